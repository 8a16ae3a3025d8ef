#include "session/trace_log.h"

#include <unistd.h>

#include <utility>

#include "base/host.h"
#include "sense/file_source.h"
#include "session/feed.h"

namespace lull {
namespace {

constexpr Duration kFrame = std::chrono::seconds(5);  // packed rows wait at most so long for their frame
constexpr std::size_t kFrameBytes = 256 << 10;

}  // namespace

std::string host_cell() { return one_word(host_name()); }

Result<TraceLog> TraceLog::open(const std::string& path, trace::RowLayout layout, bool each_sample) {
  layout.architecture = is_any_drm_card(Root::machine());
  trace::WriterOptions options;
  options.path = path;
  options.format = layout.format;
  options.packing = trace::packing_by_name(path);
  options.header = trace::header_line(layout);
  if (layout.format == trace::Format::ndjson) options.like = trace::empty_row(layout);
  const bool packed = options.packing != trace::Packing::none;
  return TraceLog(TRY(trace::TraceWriter::open(std::move(options))), std::move(layout), packed && !each_sample);
}

void TraceLog::begin(const Snapshot& first) { anchor_ = first.wall.time_since_epoch() - first.at.time_since_epoch(); }

Result<> TraceLog::add(const Snapshot& snapshot, std::span<const std::size_t> devices, const Facts& job,
                       const Facts& machine, std::span<const trace::UserCells> who) {
  rows_.clear();
  // Wall time that does not follow clock changes: the samples keep their distance.
  const WallTime at(std::chrono::round<std::chrono::milliseconds>(snapshot.at.time_since_epoch() + anchor_));
  const trace::UserCells nobody_told;
  for (std::size_t i = 0; i < devices.size(); ++i)
    trace::append_row(rows_, layout_,
                      {at, snapshot.inventory->devices[devices[i]], snapshot.readings[devices[i]], job, machine,
                       i < who.size() ? who[i] : nobody_told});
  writer_.add(rows_);
  if (waits_ && writer_.pending() < kFrameBytes && snapshot.at - flushed_ < kFrame) return {};
  flushed_ = snapshot.at;
  return writer_.flush();
}

trace::RowLayout RecordingSink::layout(const std::string& path, const Policy& policy,
                                       const std::vector<SignalSource>& signals) {
  trace::RowLayout layout{trace::format_by_name(path), {}, true};
  for (const MetricInfo& row : kMetricTable)
    if (trace::is_recorded_unasked(row.metric) || (!is_learned(row.metric) && policy_uses(policy, {row.metric})))
      layout.metrics.push_back(row.metric);
  for (const SignalSource& source : signals) layout.metrics.push_back(source.metric);
  return layout;
}

void RecordingSink::give_up(const Error& error) {
  next_.note(Level::warning, "record", "--record: " + error.message() + "; the job goes on unrecorded");
  log_.reset();
}

void RecordingSink::started() {
  if (++starts_ > 1) who_.job = job_ + "." + std::to_string(starts_);
  next_.started();
}

void RecordingSink::sampled(const Sampled& sampled, std::optional<Instant> acts_at) {
  if (log_) {
    const Snapshot& snapshot = sampled.snapshot;
    if (!begun_) log_->begin(snapshot);
    begun_ = true;
    devices_.clear();
    for (const Device& device : sampled.subject.scope.devices)
      if (const auto place = snapshot.inventory->place_of(device.id())) devices_.push_back(*place);
    whos_.assign(devices_.size(), who_);
    rows_ += devices_.size();
    if (const auto put = log_->add(snapshot, devices_, sampled.subject.job, sampled.machine, whos_); !put)
      give_up(put.error());
  }
  next_.sampled(sampled, acts_at);
}

void RecordingSink::finish() {
  if (!log_) return;
  if (const auto closed = log_->close(); !closed) return give_up(closed.error());
  log_.reset();
  if (rows_ == 0)
    next_.note(Level::warning, "record",
               "--record: nothing was recorded, since the job was seen on no GPU; --gpus says which ones are its own");
}

}  // namespace lull
