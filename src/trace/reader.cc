#include "trace/reader.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <set>

#include "base/text.h"
#include "trace/pass.h"

namespace lull::trace {
namespace {

constexpr std::size_t kHeadBytes = 256U << 10;

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
  Chunker chunker(TRY(open_source(file)), kHeadBytes);
  file.size = chunker.source().size();
  Chunk head;
  if (!TRY(chunker.next(head)))
    return fail(shown(path) + ": it is empty" +
                (chunker.source().damage().empty() ? "" : " (" + chunker.source().damage() + ")"));
  auto schema = detect_schema(head.text(), options.columns, options.metrics);
  if (!schema) return std::unexpected(std::move(schema).error().during(shown(path)));
  file.schema = *std::move(schema);
  Parser parser = make_parser(file.schema);
  Batch batch;
  std::visit([&](auto& p) { p.parse(head, batch); }, parser);
  if (batch.rows > 0) file.first = batch.at[0];
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
      return fail(shown(path) + ": given twice");
  }
  for (const File& file : state->files)
    if (std::all_of(file.schema.identity.begin(), file.schema.identity.end(), trace::tells_who))
      state->notes.push_back(
          fmt::format("{}: no column tells GPUs apart; taken as one GPU (--columns gpu=…)", shown(file.path)));
  // Rotated files in any order are read from the oldest on.
  std::stable_sort(state->files.begin(), state->files.end(), [](const File& a, const File& b) {
    return a.first.value_or(std::numeric_limits<std::int64_t>::max()) <
           b.first.value_or(std::numeric_limits<std::int64_t>::max());
  });
  return TraceReader(std::move(state));
}

Instant TraceReader::first() const {  // the files are in the order of their first rows
  return Instant(Duration(state_->files.front().first.value_or(0)));
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

bool TraceReader::tells_who() const {
  return std::any_of(state_->files.begin(), state_->files.end(), [](const File& file) {
    return std::any_of(file.schema.identity.begin(), file.schema.identity.end(), trace::tells_who);
  });
}

std::vector<std::string> TraceReader::columns() const {
  std::vector<std::string> names;
  for (const File& file : state_->files)
    for (const Column& column : file.schema.columns)
      if (std::find(names.begin(), names.end(), column.name) == names.end()) names.push_back(column.name);
  return names;
}

Result<TraceReport> TraceReader::read(TraceSink& sink) {
  for (;;) {
    sink.restart();
    TraceReport report;
    switch (TRY(state_->read_parts(sink, report))) {
      case Outcome::too_late: state_->sorted = true; continue;
      case Outcome::overlap:
        state_->separate = true;
        state_->notes.emplace_back("the files overlap in time: GPUs of the same number are told apart by file");
        continue;
      case Outcome::done: break;
    }
    for (const TraceGpu& gpu : report.gpus) report.samples += gpu.samples;
    report.metrics = available();
    report.notes.insert(report.notes.begin(), state_->notes.begin(), state_->notes.end());
    for (const File& file : state_->files) {
      report.zoned = report.zoned && file.schema.zoned;
      report.from_epoch = report.from_epoch && file.schema.from_epoch;
    }
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

}  // namespace lull::trace
