#include "trace/reader.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <set>

#include "base/text.h"
#include "trace/pass.h"
#include "trace/sequence.h"

namespace lull::trace {
namespace {

constexpr std::size_t kHeadBytes = 256U << 10;
constexpr std::size_t kFirstBytes = 16U << 10;  // the first row is among them, or it is sought further on

// Pipes can be read once, reading may have to start over: keep a nameless copy.
Result<Fd> spool(int from) {
  const char* folder = std::getenv("TMPDIR");
  if (folder == nullptr || *folder == '\0') folder = "/tmp";
  Fd copy = TRY(open_file(folder, O_TMPFILE | O_RDWR, 0600));
  std::vector<char> bytes(1U << 20);
  for (;;) {
    const ssize_t got = ::read(from, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(errno, "read");
    if (got == 0) return copy;
    if (auto put = write_all(copy.get(), {bytes.data(), static_cast<std::size_t>(got)}); !put)
      return std::unexpected(std::move(put).error().during(fmt::format("a copy in {}", folder)));
  }
}

// Its beginning, as whole lines where it has any.
Result<std::string> read_head(File& file) {
  ByteSource source = TRY(open_source(file));
  file.size = source.size();
  std::string head(kHeadBytes, '\0');
  head.resize(TRY(source.read(head.data(), head.size())));
  if (head.empty())
    return fail(printable_path(file.path) + ": it is empty" +
                (source.damage().empty() ? "" : " (" + source.damage() + ")"));
  if (const std::size_t end = head.rfind('\n'); head.size() == kHeadBytes && end != std::string::npos)
    head.resize(end + 1);
  return head;
}

// Which signals there are, where each comes from, and the first time: known only when all values have been met.
Result<> survey(File& file) {
  const auto parser = make_parser(file.schema);
  Chunker chunker(TRY(open_source(file)), 1U << 20, file.schema.lines);
  std::vector<bool> met(file.schema.metrics.size());
  Chunk chunk;
  Batch batch;
  const auto look = [&] {
    for (std::size_t slot = 0; slot < batch.value.size(); ++slot)
      met[slot] = met[slot] || std::any_of(batch.value[slot].begin(),
                                           batch.value[slot].begin() + static_cast<std::ptrdiff_t>(batch.rows),
                                           [](float value) { return !std::isnan(value); });
    for (std::size_t row = 0; row < batch.rows; ++row)
      file.first = std::min(file.first.value_or(batch.at[row]), batch.at[row]);
  };
  while (TRY(chunker.next(chunk))) {
    parser->parse(chunk, batch);
    look();
  }
  parser->finish(batch);
  look();
  TRY(parser->check_choices());
  file.schema.labelled = parser->labelled();
  if (file.schema.labelled.empty()) std::erase_if(file.schema.identity, is_owner);
  std::vector<int> ranks = parser->best_ranks();
  ranks.resize(met.size(), 1000);
  std::vector<std::string> doubtful = parser->doubtful();
  doubtful.resize(met.size());
  file.schema.doubtful.clear();
  std::vector<Metric> there;
  file.schema.ranks.clear();
  for (std::size_t slot = 0; slot < met.size(); ++slot) {
    if (!met[slot]) continue;
    there.push_back(file.schema.metrics[slot]);
    file.schema.ranks.push_back(ranks[slot]);
    file.schema.doubtful.push_back(doubtful[slot]);
  }
  file.schema.metrics = std::move(there);
  for (const std::string& name : parser->strangers()) file.schema.columns.emplace_back().name = name;
  return {};
}

// The time of the first row; and how many rows make a tick, where nothing tells the GPUs apart.
Result<> look_at_rows(File& file, const TraceOptions& options) {
  Schema& schema = file.schema;
  const auto parser = make_parser(schema);
  const bool by_place = schema.timed && !schema.names_gpus() && !schema.one_gpu;
  Chunker chunker(TRY(open_source(file)), by_place ? kHeadBytes : kFirstBytes, schema.lines);
  Chunk head;
  Batch batch;
  for (std::size_t looked = 0; batch.rows == 0 && looked < kHeadBytes; looked += head.size) {
    if (!TRY(chunker.next(head))) return {};
    parser->parse(head, batch);
  }
  if (by_place) {
    const TickShape shape = shape_of_ticks({batch.at.data(), batch.rows});
    if (shape.rows == 0)
      return fail(
          "no column tells GPUs apart, and the number of rows per tick changes: say which column does (--columns "
          "gpu=NAME), "
          "or that there is but one GPU (--columns gpu=none)");
    if (shape.rows > 1) {
      schema.gpus_in_a_tick = shape.rows;
      schema.small_gap = shape.small_gap;
      schema.large_gap = shape.large_gap;
      schema.sure_ticks = shape.sure;
    }
  }
  Sequence sequence(schema, options.every.value_or(Duration::zero()));
  if (sequence.needed() && !sequence.by_place()) sequence.apply(parser->identities(), batch);
  if (batch.rows > 0) file.first = batch.at[0];
  return {};
}

Result<File> open_trace(const std::string& path, const TraceOptions& options) {
  File file;
  file.path = path;
  if (path == "-") {
    file.spool = TRY(spool(STDIN_FILENO));
  } else {
    const Fd fd = TRY(open_file(path, O_RDONLY | O_NOCTTY));
    struct stat status{};
    if (::fstat(fd.get(), &status) != 0) return fail(errno, "stat " + path);
    if (S_ISDIR(status.st_mode)) return fail(EISDIR, "read " + path);
    if (!S_ISREG(status.st_mode)) file.spool = TRY(spool(fd.get()));
  }
  const std::string head = TRY(read_head(file));
  auto schema = recognise(head, {options.columns, options.metrics, options.every.has_value()});
  if (!schema) return std::unexpected(std::move(schema).error().during(printable_path(path)));
  file.schema = *std::move(schema);
  if (auto learned = file.schema.partial ? survey(file) : look_at_rows(file, options); !learned)
    return std::unexpected(std::move(learned).error().during(printable_path(path)));
  if (!file.spool && options.columns.empty()) file.rollup = RollUp::find(path, file.schema);
  return file;
}

}  // namespace

struct TraceReader::State {
  TraceOptions options;
  std::vector<File> files;
  std::vector<std::string> notes;
  bool sorted = false;
  bool separate = false;

  Result<Outcome> read_parts(TraceSink& sink, TraceReport& report);
};

TraceReader::TraceReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
TraceReader::TraceReader(TraceReader&&) noexcept = default;
TraceReader& TraceReader::operator=(TraceReader&&) noexcept = default;
TraceReader::~TraceReader() = default;

TraceOptions& TraceReader::options() { return state_->options; }

Result<TraceReader> TraceReader::open(TraceOptions options) {
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  std::set<std::pair<dev_t, ino_t>> opened;
  for (const std::string& path : state->options.paths) {
    state->files.push_back(TRY(open_trace(path, state->options)));
    struct stat status{};
    if (path != "-" && ::stat(path.c_str(), &status) == 0 && !opened.insert({status.st_dev, status.st_ino}).second)
      return fail(printable_path(path) + ": given twice");
  }
  for (const File& file : state->files) {
    const Schema& schema = file.schema;
    if (!state->options.range.all() && (!schema.timed || !schema.from_epoch))
      return fail(fmt::format("{}: its times do not say which day it was: --last, --from and --to cannot be obeyed",
                              printable_path(file.path)));
    if (schema.timed != state->files.front().schema.timed)
      return fail(fmt::format("{} has times and {} has none: they cannot be one trace", printable_path(file.path),
                              printable_path(state->files.front().path)));
    if (schema.gpus_in_a_tick > 1)
      state->notes.push_back(
          fmt::format("{}: no column tells GPUs apart; each tick has {} rows, taken as GPUs 0 to {} by their place",
                      printable_path(file.path), schema.gpus_in_a_tick, schema.gpus_in_a_tick - 1));
    else if (!schema.names_gpus() && !schema.one_gpu)
      state->notes.push_back(
          fmt::format("{}: no column tells GPUs apart; taken as one GPU (--columns gpu=…)", printable_path(file.path)));
  }
  // Rotated files in any order are read from the oldest on.
  std::stable_sort(state->files.begin(), state->files.end(), [](const File& a, const File& b) {
    return a.first.value_or(std::numeric_limits<std::int64_t>::max()) <
           b.first.value_or(std::numeric_limits<std::int64_t>::max());
  });
  return TraceReader(std::move(state));
}

Instant TraceReader::first() const {  // the files are in the order of their first rows
  const File& file = state_->files.front();
  return Instant(Duration(std::max(file.first.value_or(0), state_->options.range.lowest(file.schema.zoned))));
}

std::vector<Metric> TraceReader::available() const {
  std::vector<Metric> found;
  for (const Metric metric : state_->options.metrics)
    for (const File& file : state_->files)
      if (std::find(file.schema.metrics.begin(), file.schema.metrics.end(), metric) != file.schema.metrics.end()) {
        found.push_back(metric);
        break;
      }
  return found;
}

bool TraceReader::has_owners() const {
  return std::any_of(state_->files.begin(), state_->files.end(), [](const File& file) {
    return std::ranges::any_of(file.schema.identity,
                               [](Role role) { return is_owner(role) && role != Role::architecture; });
  });
}

std::vector<std::string> TraceReader::columns() const {
  std::vector<std::string> names;
  for (const File& file : state_->files)
    for (const Column& column : file.schema.columns)
      if (std::find(names.begin(), names.end(), column.name) == names.end()) names.push_back(column.name);
  return names;
}

bool TraceReader::holds_means() const {
  return std::ranges::all_of(state_->files, [](const File& file) { return file.schema.means; });
}

bool TraceReader::counted() const { return !state_->files.front().schema.timed; }

Result<TraceReport> TraceReader::read(TraceSink& sink) {
  for (;;) {
    sink.restart();
    TraceReport report;
    switch (TRY(state_->read_parts(sink, report))) {
      case Outcome::again: continue;
      case Outcome::too_late: state_->sorted = true; continue;
      case Outcome::overlap:
        state_->separate = true;
        state_->notes.emplace_back("the files overlap in time: GPUs of the same number are told apart by file");
        continue;
      case Outcome::done: break;
    }
    for (const TraceGpu& gpu : report.gpus) report.samples += gpu.samples;
    if (report.samples == 0 && !state_->options.range.all())
      return fail(fmt::format("{}{}: no row {}", printable_path(state_->files.front().path),
                              state_->files.size() > 1 ? " and the others" : "", format_range(state_->options.range)));
    report.metrics = available();
    report.notes.insert(report.notes.begin(), state_->notes.begin(), state_->notes.end());
    for (const File& file : state_->files) {
      report.zoned = report.zoned && file.schema.zoned;
      report.from_epoch = report.from_epoch && file.schema.from_epoch && file.schema.timed;
    }
    const int zone = state_->files.front().schema.zone_minutes;
    const bool same_zone = std::all_of(state_->files.begin(), state_->files.end(),
                                       [&](const File& file) { return file.schema.zone_minutes == zone; });
    report.zone_minutes = same_zone ? zone : 0;
    return report;
  }
}

// One reading, or as many as it takes to serve all GPUs.
Result<Outcome> TraceReader::State::read_parts(TraceSink& sink, TraceReport& report) {
  for (std::size_t from = 0;;) {
    Pass pass(options, files, sink, sorted, separate, from);
    if (const Outcome outcome = TRY(pass.run()); outcome != Outcome::done) return outcome;
    TraceReport part = pass.take_report();
    const std::size_t next = pass.next_from();
    if (from == 0) {
      report = std::move(part);
    } else {
      if (part.gpus.size() != report.gpus.size()) return fail("the trace changed while it was read");
      report.duplicates += part.duplicates;
      report.out_of_order += part.out_of_order;
      for (std::size_t gpu = from; gpu < next; ++gpu) report.gpus[gpu].samples = part.gpus[gpu].samples;
    }
    if (next >= report.gpus.size()) return Outcome::done;
    if (next == from) return fail("no memory to read even one GPU of the trace");
    from = next;
    sink.next_part();
  }
}

std::vector<std::string> oddities(const TraceReport& report) {
  std::vector<std::string> lines;
  const auto say = [&](std::string line) { lines.push_back(std::move(line)); };
  for (const std::string& note : report.notes) say(printable(note));
  for (const BadRow& bad : report.first_bad) say(fmt::format("{}:{}: {}", printable(bad.file), bad.line, bad.why));
  const auto rows = [](std::uint64_t count) { return fmt::format("{} row{}", count, count == 1 ? "" : "s"); };
  if (report.bad_rows > 0) say(rows(report.bad_rows) + " could not be read: left out");
  if (report.implausible > 0)
    say(fmt::format("{} outside of what {} signal can be ({}{}): unknown",
                    report.implausible == 1 ? "1 value is" : fmt::format("{} values are", report.implausible),
                    report.implausible == 1 ? "its" : "their",
                    report.implausible == 1 ? "" : "the first: ", report.first_implausible));
  if (report.duplicates > 0)
    say(rows(report.duplicates) + " of the same GPU and time as another; the first one counts");
  if (report.out_of_order > 0) say(rows(report.out_of_order) + " out of order; sorted");
  return lines;
}

// ---- paces

std::int64_t Paced::find(Instant sample) const {
  const auto next = std::ranges::lower_bound(changes, sample, {}, &Change::from);
  return next == changes.begin() ? first : std::prev(next)->value;
}

std::int64_t Paced::longest() const {
  std::int64_t most = first;
  for (const Change& change : changes) most = std::max(most, change.value);
  return most;
}

std::size_t Paced::same_for(std::span<const Instant> at, std::size_t from) const {
  const auto next = std::ranges::lower_bound(changes, at[from], {}, &Change::from);
  if (next == changes.end()) return at.size() - from;
  const auto rest = at.subspan(from);
  return static_cast<std::size_t>(std::ranges::upper_bound(rest, next->from) - rest.begin());
}

}  // namespace lull::trace
