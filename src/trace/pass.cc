#include "trace/pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/text.h"
#include "trace/cells.h"
#include "trace/rows.h"
#include "trace/time.h"

namespace lull::trace {
namespace {

constexpr std::size_t kMostGpus = 1U << 16;
constexpr std::size_t kShownBad = 5;
constexpr std::size_t kLeastPacking = 8;  // how much smaller a trace is at least when it is packed

}  // namespace

std::string printable_path(const std::string& path) { return path == "-" ? "standard input" : printable(path); }

Result<ByteSource> open_source(const File& file) {
  if (!file.spool) return ByteSource::open(file.path);
  if (::lseek(file.spool.get(), 0, SEEK_SET) != 0)
    return fail(errno, "seek in the copy of " + printable_path(file.path));
  const int copy = ::fcntl(file.spool.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return fail(errno, "read " + file.path);
  return ByteSource::from(Fd(copy), file.path);
}

Result<> Pass::read_file() {
  File& file = files_[file_];
  line_ = 0;
  file_rows_ = 0;
  file_bad_ = 0;
  hints_.clear();
  slot_of_.clear();
  for (const Metric metric : options_.metrics) {
    const auto at = std::find(file.schema.metrics.begin(), file.schema.metrics.end(), metric);
    slot_of_.push_back(at == file.schema.metrics.end() ? kNoSlot
                                                       : static_cast<std::size_t>(at - file.schema.metrics.begin()));
  }
  sequence_.emplace(file.schema, options_.every.value_or(Duration::zero()), clock_set_back_);
  if (file.rollup) return read_rollup();
  Chunker chunker(TRY(open_source(file)), options_.chunk_bytes, file.schema.lines);
  const std::size_t text = file.size * (chunker.source().packed() ? kLeastPacking : 1);
  const bool small = file.size != 0 && text < 2 * options_.chunk_bytes;
  const Next next = [&](Chunk& chunk) { return chunker.next(chunk); };
  if (auto read = small || file.schema.in_turn ? read_alone(next) : read_with(next); !read) return read;
  if (outcome_ == Outcome::done) TRY(check_units());
  if (outcome_ == Outcome::done) TRY(finish_file());
  if (outcome_ != Outcome::done) return {};
  if (!chunker.source().damage().empty())
    report_.notes.push_back(
        fmt::format("{}: {}; what came before it is used", printable_path(file.path), chunker.source().damage()));
  report_.bytes += chunker.source().taken();
  before_ += file.size;
  if (file_rows_ > 0) return {};
  std::string why = "no usable row";
  if (!report_.first_bad.empty() && report_.first_bad.back().file == file.path)
    why += fmt::format("; line {}: {}", report_.first_bad.back().line, report_.first_bad.back().why);
  else if (file_bad_ == 0)
    why += ": nothing follows the header";
  return fail(printable_path(file.path) + ": " + why);
}

// What was found damaged is read from the file itself, from the beginning.
Result<> Pass::read_rollup() {
  File& file = files_[file_];
  auto rollup = file.rollup->open();
  bool damaged = !rollup;
  const Next next = [&](Chunk& chunk) -> Result<bool> {
    auto more = rollup->next(chunk);
    damaged = damaged || !more;
    chunk.taken = file.size;
    return more;
  };
  auto read = damaged ? Result<>{} : read_with(next);
  if (damaged) {
    file.rollup.reset();
    outcome_ = Outcome::again;
    return {};
  }
  report_.bytes += file.size;
  before_ += file.size;
  return read;
}

Result<> Pass::read_alone(const Next& next) {
  Worker worker(files_[file_]);
  while (TRY(next(worker.chunk))) {
    worker.parser->parse(worker.chunk, worker.batch);
    check_values(worker);
    TRY(consume(worker));
    if (outcome_ != Outcome::done) return {};
  }
  worker.parser->finish(worker.batch);
  check_values(worker);
  return consume(worker);
}

void Pass::check_values(Worker& worker) const {
  worker.batch.look_at_units(files_[file_].schema);
  worker.batch.drop_implausible(files_[file_].schema.metrics);
}

// Numbers that would mean something else in another unit, which was not excluded.
Result<> Pass::check_units() const {
  const Schema& schema = files_[file_].schema;
  for (std::size_t slot = 0; slot < std::min(hints_.size(), schema.metrics.size()); ++slot) {
    const MetricInfo& row = info(schema.metrics[slot]);
    const UnitHint& hint = hints_[slot];
    const std::string name = slot < schema.doubtful.size() ? printable(schema.doubtful[slot]) : "";
    if (row.unit == Unit::percent && hint.decimals && hint.most <= 1)
      return fail(
          fmt::format("{}: no value of '{}' is above 1 and some have decimals: a fraction of 1, or per cent? "
                      "say which: --columns '{}={}:fraction' or '{}={}:percent'",
                      printable_path(files_[file_].path), name, row.name, name, row.name, name));
    if (row.unit == Unit::watts && hint.above_2000 * 2 > hint.known)
      return fail(
          fmt::format("{}: '{}' would mean more than 2 kW a card: say its unit: --columns '{}={}:mW' or '{}={}:W'",
                      printable_path(files_[file_].path), name, row.name, name, row.name, name));
  }
  return {};
}

// What waited for more of its tick.
Result<> Pass::finish_file() {
  Worker worker(files_[file_]);
  clock_set_back_ = std::max(clock_set_back_, sequence_->clock_set_back());
  if (const auto at = sequence_->set_back_at())
    report_.notes.push_back(
        fmt::format("{}: after {} the clock goes back an hour, as at the end of summer time: later "
                    "times are counted on",
                    printable_path(files_[file_].path), format_time(*at, false)));
  if (sequence_->by_place()) {
    const Sequence& sequence = *sequence_;
    sequence_->finish(worker.batch);
    TRY(consume_rows(worker));
    if (sequence.unclear_ticks() > 0)
      report_.notes.push_back(
          fmt::format("{}: {} tick{} had other than {} rows, followed such a tick, or began at an unclear place: all "
                      "GPUs are unknown "
                      "there; a recording with the index tells them apart",
                      printable_path(files_[file_].path), sequence.unclear_ticks(),
                      sequence.unclear_ticks() == 1 ? "" : "s", files_[file_].schema.gpus_in_a_tick));
  }
  return {};
}

// Chunks are read in turn, parsed at the same time, and used in turn again.
Result<> Pass::read_with(const Next& next) {
  const unsigned wanted = options_.threads != 0 ? options_.threads : std::thread::hardware_concurrency();
  const unsigned threads = std::clamp(wanted, 1U, 8U);
  if (threads == 1) return read_alone(next);
  std::mutex reading;
  std::mutex use;
  std::condition_variable turned;
  std::uint64_t next_read = 0;
  std::uint64_t next_used = 0;
  bool stop = false;  // under `use`
  std::optional<Error> error;
  const auto give_up = [&](std::optional<Error> why) {
    const std::lock_guard lock(use);
    if (!error && why) error = std::move(why);
    stop = true;
    turned.notify_all();
  };
  const auto work = [&] {
    Worker worker(files_[file_]);
    for (;;) {
      std::uint64_t mine = 0;
      {
        const std::lock_guard lock(reading);
        auto more = next(worker.chunk);
        if (!more) return give_up(std::move(more).error());
        if (!*more) return;
        mine = next_read++;
      }
      worker.parser->parse(worker.chunk, worker.batch);
      check_values(worker);
      {
        std::unique_lock lock(use);
        turned.wait(lock, [&] { return stop || next_used == mine; });
        if (stop) return;
      }
      auto used = consume(worker);  // no other thread does it: it is our turn
      if (!used) return give_up(std::move(used).error());
      if (outcome_ != Outcome::done) return give_up(std::nullopt);
      {
        const std::lock_guard lock(use);
        ++next_used;
      }
      turned.notify_all();
    }
  };
  {
    std::vector<std::jthread> others;
    for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
  if (error) return std::unexpected(*std::move(error));
  return {};
}

std::string Batch::name_odd(Metric metric, float value) { return fmt::format("{} {:g}", info(metric).name, value); }

Result<> Pass::consume(Worker& worker) {
  const Batch& batch = worker.batch;
  const File& file = files_[file_];
  report_.bad_rows += batch.bad;
  file_bad_ += batch.bad;
  report_.implausible += batch.implausible;
  if (report_.first_implausible.empty()) report_.first_implausible = batch.first_implausible;
  for (const BadLine& bad : batch.first_bad)
    if (report_.first_bad.size() < kShownBad) report_.first_bad.push_back({file.path, line_ + bad.line, bad.why});
  if (batch.new_header)
    return fail(fmt::format("{}: line {}: the columns change to '{}'; cut the file in two there",
                            printable_path(file.path), line_ + batch.new_header->line, batch.new_header->why));
  line_ += batch.lines;
  hints_.resize(std::max(hints_.size(), batch.hints.size()));
  for (std::size_t slot = 0; slot < batch.hints.size(); ++slot) hints_[slot] += batch.hints[slot];
  if (sequence_->needed()) sequence_->apply(worker.parser->identities(), worker.batch);
  TRY(consume_rows(worker));
  if (options_.progress && total_ > 0)
    options_.progress(static_cast<double>(before_ + worker.chunk.taken) / static_cast<double>(total_));
  return {};
}

Result<> Pass::consume_rows(Worker& worker) {
  file_rows_ += worker.batch.rows;
  TRY(learn_gpus(worker));
  if (!options_.range.all()) {
    const bool zoned = files_[file_].schema.zoned;
    worker.batch.drop_outside(options_.range.lowest(zoned), options_.range.end(zoned));
  }
  if (outcome_ == Outcome::done && ticks_)
    add_to_ticks(*ticks_, worker);
  else if (outcome_ == Outcome::done)
    TRY(add_to_series(worker));
  return {};
}

// An index that another file uses at the same time is of another machine.
bool Pass::belongs_elsewhere(const Registry::Found& found, Instant at) const {
  return !found.fresh && !found.by_uuid && !separate_ && met_in_[found.gpu] != file_ && at < last_[found.gpu];
}

void Pass::serve(std::uint32_t gpu) {
  if (ticks_) return;
  series_.emplace_back(metrics(), !sorted_, partial_, options_.who);
  if (!options_.together && served(gpu) && !sink_.wants(gpu)) to_ = gpu;
  if (!served(gpu)) return;
  ++served_;
  const std::size_t each =
      options_.memory / served_ / Series::bytes_per_sample(metrics().size() + (options_.who ? 1 : 0));
  held_ = std::bit_floor(std::clamp(each, kLeastHeld, kMostHeld));
}

Ticks& Pass::make_ticks(std::size_t gpus) {
  return ticks_.emplace(metrics(), options_.who, gpus, options_.tick, gaps(), options_.memory, partial_, sink_);
}

// While all is held back until the end: what does not fit is left for another reading.
Result<> Pass::keep_within_memory() {
  std::size_t bytes = 0;
  for (const Series& series : series_) bytes += series.bytes();
  if (bytes <= options_.memory) return {};
  if (served_ == 1 || options_.together)
    return fail(
        fmt::format("{}: its rows are too far out of order to be sorted in {} MiB of memory; sort it by time, "
                    "or allow more (--memory)",
                    printable_path(files_[file_].path), options_.memory >> 20));
  bytes = 0;
  served_ = 0;
  for (std::size_t gpu = from_; gpu < series_.size(); ++gpu) {
    bytes += series_[gpu].bytes();
    if (gpu < to_ && (served_ == 0 || bytes <= options_.memory / 2)) {
      ++served_;
      continue;
    }
    to_ = std::min(to_, gpu);
    series_[gpu].forget();
  }
  return {};
}

// Gives the GPUs that this worker's parser met for the first time their place among ours.
Result<> Pass::learn_gpus(Worker& worker) {
  const bool by_place = sequence_->by_place();
  const Identities& identities = by_place ? sequence_->identities() : worker.parser->identities();
  const File& file = files_[file_];
  const std::string scope = separate_ ? file.path : "";
  const std::span<const std::uint32_t> rows(worker.batch.gpu.data(), worker.batch.rows);
  for (std::size_t i = worker.gpu_of.size(); i < identities.size(); ++i) {
    worker.gpu_of.push_back(0);
    worker.holder_of.push_back(report_.holders.find(identities.roles(), identities.cells(i)));
    const auto first = std::find(rows.begin(), rows.end(), i);
    if (first == rows.end() && !by_place) continue;  // named no GPU: its rows are bad
    const auto found = registry_.resolve(identities.roles(), identities.cells(i), scope);
    worker.gpu_of.back() = found.gpu;
    if (found.fresh) {
      if (registry_.size() > kMostGpus)
        return fail(fmt::format("{}: more than {} GPUs: does the column that names them hold something else?",
                                printable_path(file.path), kMostGpus));
      last_.push_back(Instant::min());
      met_in_.push_back(file_);
      serve(found.gpu);
    }
    for (std::size_t part = 0; part < identities.roles().size(); ++part)
      if (identities.roles()[part] == Role::architecture &&
          (identities.cells(i)[part] == kRdnaText || identities.cells(i)[part] == kIntelText))
        sink_.idle_looks_hung(found.gpu);
    if (first != rows.end() &&
        belongs_elsewhere(found, Instant(Duration(worker.batch.at[static_cast<std::size_t>(first - rows.begin())]))))
      outcome_ = Outcome::overlap;
    met_in_[found.gpu] = file_;
  }
  if (ticks_ && registry_.size() > options_.gpus)
    return fail(fmt::format("{}: it changed while it was read", printable_path(file.path)));
  return {};
}

Result<> Pass::add_to_series(const Worker& worker) {
  const Batch& batch = worker.batch;
  // A signal that this file lacks is unknown in it.
  std::vector<const float*> columns;
  const std::vector<float> unknown(std::count(slot_of_.begin(), slot_of_.end(), kNoSlot) > 0 ? batch.rows : 0,
                                   kUnknownSample);
  for (const std::size_t slot : slot_of_)
    columns.push_back(slot == kNoSlot ? unknown.data() : batch.value[slot].data());
  std::vector<float> holders;
  if (options_.who) {
    holders.resize(batch.rows);
    for (std::size_t row = 0; row < batch.rows; ++row) holders[row] = worker.holder_of[batch.gpu[row]];
    columns.push_back(holders.data());
  }
  for (std::size_t row = 0; row < batch.rows; ++row) {
    const std::uint32_t gpu = worker.gpu_of[batch.gpu[row]];
    const Instant at{Duration(batch.at[row])};
    if (!served(gpu)) [[unlikely]] {
      last_[gpu] = std::max(last_[gpu], at);
      continue;
    }
    const auto added = series_[gpu].add(at, gpu, held_, sink_, [&](std::size_t i) { return columns[i][row]; });
    if (added == Series::Added::in_order) {
      last_[gpu] = at;
      continue;
    }
    if (added == Series::Added::duplicate) ++report_.duplicates;
    if (added == Series::Added::moved && !partial_) ++report_.out_of_order;  // values that come apart have no order
    if (added == Series::Added::too_late) {
      outcome_ = Outcome::too_late;
      return {};
    }
  }
  return sorted_ ? keep_within_memory() : Result<>{};
}

void Pass::add_to_ticks(Ticks& ticks, const Worker& worker) {
  const Batch& batch = worker.batch;
  std::vector<float> values(slot_of_.size() + (options_.who ? 1 : 0), kUnknownSample);
  for (std::size_t row = 0; row < batch.rows; ++row) {
    const std::uint32_t gpu = worker.gpu_of[batch.gpu[row]];
    const Instant at{Duration(batch.at[row])};
    for (std::size_t i = 0; i < slot_of_.size(); ++i)
      if (slot_of_[i] != kNoSlot) values[i] = batch.value[slot_of_[i]][row];
    if (options_.who) values.back() = worker.holder_of[batch.gpu[row]];
    last_[gpu] = std::max(last_[gpu], at);
    if (!ticks.add(at, gpu, values)) {
      outcome_ = Outcome::too_late;
      return;
    }
  }
}

void Pass::finish() {
  if (ticks_) {
    ticks_->finish();
  } else if (options_.together) {
    for (Series& series : series_) series.sort();
    make_ticks(registry_.size()).merge(series_);
  } else {
    for (std::size_t gpu = from_; gpu < std::min(to_, series_.size()); ++gpu) series_[gpu].flush(gpu, sink_);
  }
  for (std::size_t gpu = 0; gpu < series_.size(); ++gpu) {
    registry_.gpus()[gpu].samples = series_[gpu].total();
    report_.duplicates += series_[gpu].duplicates();
  }
  if (ticks_) {
    report_.duplicates += ticks_->duplicates();
    if (!partial_) report_.out_of_order += ticks_->out_of_order();
    for (std::size_t gpu = 0; gpu < registry_.size(); ++gpu) {
      registry_.gpus()[gpu].seen = ticks_->seen(gpu);
      registry_.gpus()[gpu].missed = ticks_->missed(gpu);
      registry_.gpus()[gpu].samples = ticks_->samples(gpu);
    }
  }
  report_.gpus = std::move(registry_.gpus());
  make_labels_unique(report_.gpus);
}

// ---- which GPU a row is of

std::uint32_t Registry::create(std::string label, std::string uuid) {
  TraceGpu gpu;
  gpu.label = std::move(label);
  gpu.uuid = std::move(uuid);
  gpus_.push_back(std::move(gpu));
  return static_cast<std::uint32_t>(gpus_.size() - 1);
}

Registry::Found Registry::resolve(const std::vector<Role>& roles, const std::vector<std::string>& cells,
                                  std::string_view scope) {
  std::string uuid;
  std::string host;
  std::string index;
  std::string pci;
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (means_unknown(cells[i])) continue;
    if (roles[i] == Role::uuid) uuid = cells[i];
    if (roles[i] == Role::host) host = cells[i];
    if (roles[i] == Role::pci) pci = cells[i];
    if (roles[i] != Role::gpu) continue;
    if (!index.empty()) index += '/';
    index += cells[i];
  }
  if (index.empty()) index = pci;
  if (index.empty() && std::all_of(roles.begin(), roles.end(), is_owner)) index.assign(1, '0');
  std::string name = index;
  if (!name.empty() && !host.empty()) name = fmt::format("{}/{}", host, name);
  if (!name.empty() && !scope.empty()) name = fmt::format("{}:{}", scope, name);

  if (!uuid.empty()) {
    if (const auto known = by_uuid_.find(uuid); known != by_uuid_.end()) {
      if (!name.empty()) by_label_[name] = known->second;
      return {known->second, true, false};
    }
    // A GPU that was lost before it could say its UUID may be known by its index.
    if (const auto known = by_label_.find(name);
        !name.empty() && known != by_label_.end() && gpus_[known->second].uuid.empty()) {
      gpus_[known->second].uuid = uuid;
      by_uuid_[uuid] = known->second;
      return {known->second, true, false};
    }
    const std::uint32_t fresh = create(name.empty() ? uuid : name, uuid);
    gpus_[fresh].host = host.empty() ? std::string(scope) : host;
    by_uuid_[uuid] = fresh;
    if (!name.empty()) by_label_[name] = fresh;
    return {fresh, true, true};
  }
  if (const auto known = by_label_.find(name); known != by_label_.end())
    return {known->second, !gpus_[known->second].uuid.empty(), false};
  const std::uint32_t fresh = create(name, "");
  gpus_[fresh].host = host.empty() ? std::string(scope) : host;
  by_label_[name] = fresh;
  return {fresh, false, true};
}

void make_labels_unique(std::vector<TraceGpu>& gpus) {
  std::map<std::string, int> seen;
  for (const TraceGpu& gpu : gpus) ++seen[gpu.label];
  for (TraceGpu& gpu : gpus)
    if (seen[gpu.label] > 1 && !gpu.uuid.empty()) gpu.label += fmt::format(" ({})", gpu.uuid.substr(0, 12));
}

}  // namespace lull::trace
