// JSON of AMD's tools, one document for each look: `rocm-smi --json` ({"card0": {"GPU use (%)": "19", …}, …}), which
// writes no time, and `amd-smi metric` and `amd-smi monitor --json` ([{"gpu": 0, "usage": {"gfx_activity": {"value":
// 42, "unit": "%"}, …}}, …], newer ones as {"gpu_data": […]}), which write one where they watch (-w).

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "trace/cells.h"
#include "trace/format.h"
#include "trace/names.h"
#include "trace/ndjson.h"
#include "trace/time.h"

namespace lull::trace {
namespace {

struct AmdGpu {
  std::string name;
  std::string time;
  struct Leaf {
    Meaning meaning;
    std::string key;
    std::string text;
  };
  std::vector<Leaf> leaves;
};

bool is_card(std::string_view key) { return key.starts_with("card") && to_unsigned(key.substr(4)).has_value(); }

bool is_time_key(std::string_view key) { return key == "timestamp" || key == "time"; }

// Puts the GPUs together, whichever tool wrote them.
class AmdGpus : public JsonHandler {
 public:
  bool wrapped() const { return wrapped_; }

 protected:
  virtual void gpu(const AmdGpu& gpu) = 0;
  void broken() override {
    levels_.clear();
    key_.clear();
    depth_ = 0;
  }

 private:
  struct Level {
    bool object = false;
    std::string key;  // where it is
    std::string value;
    std::string unit;
  };

  void open(bool object) override {
    const bool in_list = std::ranges::none_of(levels_, &Level::object);
    const bool card = object && levels_.size() == 1 && is_card(key_);
    const bool listed = object && levels_.size() == 2 && levels_.back().key == "gpu_data";
    levels_.push_back({object, std::move(key_), "", ""});
    key_.clear();
    if (!object || !(in_list || card || listed)) return;
    if (in_list) time_.clear();
    wrapped_ = wrapped_ || card || listed;
    gpu_ = {card ? levels_.back().key : "", time_, {}};
    depth_ = levels_.size();
  }

  void close() override {
    if (levels_.empty()) return;
    const Level level = std::move(levels_.back());
    levels_.pop_back();
    key_.clear();
    if (!level.value.empty() && depth_ > 0) leaf(level.key, level.value, level.unit);
    if (levels_.size() + 1 != depth_) return;
    depth_ = 0;
    if (!gpu_.name.empty() || !gpu_.leaves.empty()) gpu(gpu_);
  }

  void key(std::string_view name) override { key_ = name; }

  void value(std::string_view text, bool) override {
    if (levels_.size() == 1 && is_time_key(key_)) time_ = text;  // of all GPUs in it, where a script added one
    if (depth_ == 0 || levels_.empty() || !levels_.back().object) return;
    Level& level = levels_.back();
    if (levels_.size() > depth_ && key_ == "value")
      level.value = text;
    else if (levels_.size() > depth_ && key_ == "unit")
      level.unit = text;
    else if (levels_.size() == depth_ && key_ == "gpu" && gpu_.name.empty())
      gpu_.name = text;
    else if (levels_.size() == depth_ && key_ == "xcp" && !means_unknown(text))  // a partition
      gpu_.name += fmt::format("/{}", text);
    else if (levels_.size() == depth_ && is_time_key(key_))
      gpu_.time = text;
    else
      leaf(key_, text, "");
  }

  // "clk" is one of several clocks: "gfx_0" around it says which.
  void leaf(std::string_view key, std::string_view text, std::string_view unit) {
    const bool clock = key == "clk" && levels_.size() > depth_;
    const Heading heading = heading_of(clock ? fmt::format("{}_clk", levels_.back().key) : std::string(key));
    auto meaning = meaning_of(heading.name);
    if (!meaning || meaning->role != Role::metric || gpu_.leaves.size() >= 100) return;
    if (unit.empty()) unit = heading.unit;
    if (unit == "MB") unit = "MiB";  // as they count
    if (unit == "GB") unit = "GiB";
    if (!unit.empty() && unit != "N/A" && unit != "c") {
      const auto factor = unit_factor(info(meaning->metric).unit, unit);
      if (!factor) return;  // it is something else of the same name
      meaning->scale = *factor;
      meaning->size_unclear = false;
    }
    gpu_.leaves.push_back({*meaning, std::string(key), std::string(text)});
  }

  std::vector<Level> levels_;
  std::string key_;
  std::size_t depth_ = 0;  // of the GPU that is open; 0: none is
  AmdGpu gpu_;
  std::string time_;  // of the document
  bool wrapped_ = false;
};

class AmdProbe final : public AmdGpus {
 public:
  std::vector<AmdGpu> gpus;

 private:
  void gpu(const AmdGpu& gpu) override {
    if (gpus.size() < 1000) gpus.push_back(gpu);
  }
  void document_end() override {}
};

// Keys that amd-smi alone has.
constexpr std::array<std::string_view, 7> kAmdKeys = {"gfx_activity", "umc_activity", "socket_power",       "used_vram",
                                                      "gfx",          "gfx_clk",      "hotspot_temperature"};

class AmdJsonParser final : public JsonRowParser<AmdGpus> {
 public:
  using JsonRowParser::JsonRowParser;

 private:
  void gpu(const AmdGpu& gpu) override;
  void document_end() override {}
  void broken() override;
};

}  // namespace

static bool is_amd_json(std::string_view head, const ReadHow&) {
  const auto lines = data_lines_of(head.substr(0, 65536));
  if (lines.empty() || (lines[0].front() != '{' && lines[0].front() != '[')) return false;
  AmdProbe probe;
  JsonStream().feed(head.substr(0, 65536), probe);
  if (lines[0].front() == '{') return probe.wrapped() && !probe.gpus.empty();
  return std::ranges::any_of(probe.gpus, [](const AmdGpu& gpu) {
    return std::ranges::any_of(
        gpu.leaves, [](const AmdGpu::Leaf& leaf) { return std::ranges::find(kAmdKeys, leaf.key) != kAmdKeys.end(); });
  });
}

static Result<Schema> open_amd_json(std::string_view head, const ReadHow& how) {
  AmdProbe probe;
  JsonStream().feed(head, probe);
  Schema schema = schema_of_samples(how.wanted);
  schema.lines = false;
  std::vector<Metric> there;
  std::string time;
  for (const AmdGpu& gpu : probe.gpus) {
    if (time.empty()) time = gpu.time;
    for (const AmdGpu::Leaf& leaf : gpu.leaves)
      if (std::ranges::find(there, leaf.meaning.metric) == there.end()) {
        there.push_back(leaf.meaning.metric);
        schema.columns.emplace_back().name = leaf.key;
      }
  }
  keep_signals(schema, there);
  const auto number = to_double(time);
  const auto any = number ? std::nullopt : read_any_time(time);
  if (!time.empty() && !number && !any)
    return fail(fmt::format("'{}' is not a time", printable(std::string_view(time).substr(0, 60))));
  take_kind_of_time(schema, any);
  schema.timed = !time.empty();
  schema.time = number ? kind_by_magnitude(*number) : TimeKind::words;
  if (number) schema.zoned = schema.from_epoch = true;
  return schema;
}

void AmdJsonParser::gpu(const AmdGpu& gpu) {
  if (gpu.name.empty()) return batch_->add_bad(here(), "it does not say which GPU");
  const auto at = schema_.timed ? parse_time(gpu.time, schema_.time) : std::optional<std::int64_t>(0);
  if (!at) return batch_->add_bad(here(), fmt::format("'{}' is not a time", printable(gpu.time.substr(0, 60))));
  std::vector<float> values(schema_.metrics.size(), kUnknownSample);
  std::vector<int> ranks(schema_.metrics.size(), 1000);
  for (const AmdGpu::Leaf& leaf : gpu.leaves) {
    const std::size_t slot = slot_of(schema_, leaf.meaning.metric);
    if (slot == kNoSlot || leaf.meaning.rank >= ranks[slot] || means_unknown(leaf.text)) continue;
    const auto value = series_cell(leaf.text, leaf.meaning, false);
    if (!value)
      return batch_->add_bad(
          here(), fmt::format("{}: '{}' is not a number", printable(leaf.key), printable(leaf.text.substr(0, 60))));
    values[slot] = *value;
    ranks[slot] = leaf.meaning.rank;
  }
  batch_->add_row(*at, identities_.find(Identities::Cells{gpu.name}), values);
}

void AmdJsonParser::broken() {
  batch_->add_bad(here(), "the JSON breaks off here");
  AmdGpus::broken();
}

const TraceFormat kAmdJson{"JSON of rocm-smi or amd-smi", is_amd_json, open_amd_json, make_row_parser<AmdJsonParser>,
                           false};

}  // namespace lull::trace
