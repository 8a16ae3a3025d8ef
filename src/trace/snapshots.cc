// JSON documents that each hold all GPUs at one moment, one after another: `gpustat --json`
// appended to a file, `lull status --watch --json`. On one line each or on many.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "gpu/snapshot.h"
#include "trace/cells.h"
#include "trace/format.h"
#include "trace/names.h"
#include "trace/ndjson.h"
#include "trace/rows.h"
#include "trace/time.h"

namespace lull::trace {
namespace {

class SnapshotParser final : public JsonRowParser<JsonHandler> {
 public:
  using JsonRowParser::JsonRowParser;

 private:
  struct Gpu {
    GpuName name;
    std::string slice;  // of a MIG device
    std::vector<float> values;
    std::vector<int> ranks;
    std::string wrong;  // what is
    // Who has it; as the cells of rows say it (trace/rows.h), empty: not told.
    std::string pids;
    std::string users;
    std::string command;
  };
  struct Process {
    std::string pid;
    std::string user;
    std::string name;
    std::string line;                // its command line as one text
    std::vector<std::string> words;  // or in words
    bool draws = false;              // only: a desktop's, which has no job on the card
  };
  void open(bool object) override;
  void close() override;
  void key(std::string_view name) override { key_ = name; }
  void value(std::string_view text, bool quoted) override;
  void document_end() override;
  void broken() override;
  void of_gpu(std::string_view text, bool quoted);
  void of_process(std::string_view text, bool quoted);
  void end_process();

  std::string key_;
  std::size_t depth_ = 0;
  bool in_gpus_ = false;
  bool in_processes_ = false;
  std::string process_key_;  // within a process: what a list in it is of
  Process process_;
  std::string time_;  // of this document
  std::string host_;
  std::vector<Gpu> gpus_;
};

// Where things are: the document, its list of GPUs, a GPU in it, its list of processes, a process in that.
constexpr std::size_t kDocument = 1;
constexpr std::size_t kList = 2;
constexpr std::size_t kGpu = 3;
constexpr std::size_t kProcesses = 4;
constexpr std::size_t kProcess = 5;
constexpr std::size_t kWords = 6;  // of its command line

constexpr std::string_view kProcessList = "processes";

bool is_list_of_gpus(std::string_view key) { return key == "gpus" || key == "devices"; }

bool is_time(std::string_view key) {
  const auto meaning = meaning_of(key);
  return meaning && meaning->role == Role::time;
}

bool is_host(std::string_view key) {
  const auto meaning = meaning_of(key);
  return meaning && meaning->role == Role::host;
}

// Looks at the first documents: the time, and what the GPUs have.
class Probe final : public JsonHandler {
 public:
  bool lists_gpus = false;
  std::string time;
  std::vector<std::string> keys;

  void open(bool object) override {
    ++depth_;
    if (depth_ == kList && !object && is_list_of_gpus(key_)) lists_gpus = in_list_ = true;
    key_.clear();
  }
  void close() override {
    if (depth_ == kList) in_list_ = false;
    if (depth_ > 0) --depth_;
  }
  void key(std::string_view name) override {
    key_ = name;
    if (depth_ == kGpu && in_list_ && std::find(keys.begin(), keys.end(), key_) == keys.end() && keys.size() < 1000)
      keys.push_back(key_);
  }
  void value(std::string_view text, bool) override {
    if (depth_ == kDocument && time.empty() && is_time(key_)) time = text;
  }
  void document_end() override {}
  void broken() override { depth_ = 0; }

 private:
  std::size_t depth_ = 0;
  bool in_list_ = false;
  std::string key_;
};

}  // namespace

static bool is_snapshots(std::string_view head, const ReadHow&) {
  if (!trim(head.substr(0, 64)).starts_with('{')) return false;
  Probe probe;
  JsonStream().feed(head.substr(0, 65536), probe);
  return probe.lists_gpus;
}

static Result<Schema> open_snapshots(std::string_view head, const ReadHow& how) {
  Probe probe;
  JsonStream().feed(head, probe);
  Schema schema = schema_of_samples(how.wanted);
  schema.lines = false;
  std::vector<Metric> there;
  if (std::find(probe.keys.begin(), probe.keys.end(), kProcessList) != probe.keys.end())
    schema.identity.insert(schema.identity.end(), {Role::pids, Role::user, Role::command});
  for (const std::string& key : probe.keys) {
    schema.columns.emplace_back().name = key;
    if (const auto meaning = meaning_of(key); meaning && meaning->role == Role::metric)
      there.push_back(meaning->metric);
  }
  keep_signals(schema, there);
  schema.timed = !probe.time.empty();
  if (!schema.timed) return schema;
  if (const auto number = to_double(probe.time)) {
    schema.time = kind_by_magnitude(*number);
    return schema;
  }
  const auto time = read_any_time(probe.time);
  if (!time || !time->dated || !time->has_year)
    return fail(fmt::format("'{}' is not a time", printable(std::string_view(probe.time).substr(0, 60))));
  schema.time = TimeKind::calendar;
  schema.zoned = time->zone_minutes.has_value();
  schema.zone_minutes = time->zone_minutes.value_or(0);
  return schema;
}

void SnapshotParser::open(bool object) {
  ++depth_;
  if (depth_ == kList && !object) in_gpus_ = is_list_of_gpus(key_);
  if (depth_ == kGpu && object && in_gpus_ && gpus_.size() < 4096) {
    Gpu& gpu = gpus_.emplace_back();
    gpu.values.assign(schema_.metrics.size(), kUnknownSample);
    gpu.ranks.assign(schema_.metrics.size(), 1000);
  }
  if (depth_ == kProcesses && !object && in_gpus_ && key_ == kProcessList && !gpus_.empty()) {
    in_processes_ = true;
    gpus_.back().pids = gpus_.back().users = kNobodyText;
  }
  if (depth_ == kProcess) process_ = {};
  if (depth_ == kWords) process_key_ = key_;
  key_.clear();
}

void SnapshotParser::close() {
  if (depth_ == kList) in_gpus_ = false;
  if (depth_ == kProcesses) in_processes_ = false;
  if (depth_ == kProcess && in_processes_ && !gpus_.empty()) end_process();
  if (depth_ > 0) --depth_;
  key_.clear();
}

void SnapshotParser::value(std::string_view text, bool quoted) {
  if (depth_ == kGpu && in_gpus_ && !gpus_.empty()) return of_gpu(text, quoted);
  if (depth_ >= kProcess && in_processes_) return of_process(text, quoted);
  if (depth_ != kDocument) return;
  if (time_.empty() && is_time(key_)) time_ = text;
  if (is_host(key_)) host_ = text;
}

void SnapshotParser::of_gpu(std::string_view text, bool quoted) {
  Gpu& gpu = gpus_.back();
  const bool null = !quoted && text == "null";
  if (key_ == "mig_index" && !null) gpu.slice = text;
  const auto meaning = meaning_of(key_);
  if (!meaning || null) return;
  if (meaning->role == Role::gpu) gpu.name.gpu = text;
  if (meaning->role == Role::uuid) gpu.name.uuid = text;
  if (meaning->role != Role::metric) return;
  const std::size_t slot = slot_of(schema_, meaning->metric);
  if (slot == kNoSlot || meaning->rank >= gpu.ranks[slot]) return;
  const auto value = series_cell(text, *meaning, false);
  if (!value) {
    gpu.wrong = fmt::format("{}: '{}' is not a number", printable(key_), printable(text.substr(0, 60)));
    return;
  }
  gpu.ranks[slot] = meaning->rank;
  gpu.values[slot] = *value;
}

// gpustat has username, command and full_command; lull has user, name, command and type.
void SnapshotParser::of_process(std::string_view text, bool quoted) {
  if (!quoted && text == "null") return;
  if (depth_ == kWords && process_key_ == "full_command" && process_.words.size() < 64)
    process_.words.emplace_back(text);
  if (depth_ != kProcess) return;
  if (key_ == "pid") process_.pid = text;
  if (key_ == "username" || key_ == "user") process_.user = text;
  if (key_ == "name") process_.name = text;
  if (key_ == "command") process_.line = text;
  if (key_ == "type") process_.draws = text == "G";
}

void SnapshotParser::end_process() {
  const Process& it = process_;
  if (it.pid.empty() || it.draws) return;
  Gpu& gpu = gpus_.back();
  const auto add = [](std::string& cell, const std::string& word) {
    if (cell == kNobodyText) cell.clear();
    if (!word.empty()) cell += (cell.empty() ? "" : " ") + one_word(word);
  };
  add(gpu.pids, it.pid);
  add(gpu.users, it.user);
  if (gpu.command.empty())
    gpu.command = short_command(it.words.empty() ? std::vector<std::string>{it.line} : it.words, it.name);
}

void SnapshotParser::document_end() {
  const auto at = schema_.timed ? parse_time(time_, schema_.time) : std::optional<std::int64_t>(0);
  const bool strange = at && schema_.timed && schema_.time == TimeKind::calendar && zone_mismatch(time_, schema_.zoned);
  if ((!at || strange) && !gpus_.empty()) {
    batch_->add_bad(here(), time_.empty() ? std::string("GPUs without a time")
                                          : fmt::format("'{}' is not a time as before",
                                                        printable(std::string_view(time_).substr(0, 60))));
  } else {
    for (Gpu& gpu : gpus_) {
      if (!gpu.slice.empty()) gpu.name.gpu += ":" + gpu.slice;
      if (gpu.wrong.empty() && gpu.name.gpu.empty() && gpu.name.uuid.empty()) gpu.wrong = "it does not say which GPU";
      if (!gpu.wrong.empty()) {
        batch_->add_bad(here(), gpu.wrong);
        continue;
      }
      const Identities::Cells cells{gpu.name.gpu, gpu.name.uuid, host_, gpu.pids, gpu.users, gpu.command};
      batch_->add_row(*at, identities_.find(cells), gpu.values);
    }
  }
  gpus_.clear();
  time_.clear();
  host_.clear();
  depth_ = 0;
}

void SnapshotParser::broken() {
  batch_->add_bad(here(), "the JSON breaks off here");
  gpus_.clear();
  time_.clear();
  host_.clear();
  depth_ = 0;
  in_gpus_ = in_processes_ = false;
  key_.clear();
}

const TraceFormat kSnapshots{"JSON with the GPUs of each moment", is_snapshots, open_snapshots,
                             make_row_parser<SnapshotParser>, false};

}  // namespace lull::trace
