#include "session/recording_sink.h"

namespace lull {

trace::RowLayout RecordingSink::layout(const std::string& path) {
  trace::RowLayout layout{trace::format_by_name(path), {}, true};
  for (const MetricInfo& row : kMetricTable)
    if (trace::is_recorded_unasked(row.metric)) layout.metrics.push_back(row.metric);
  return layout;
}

void RecordingSink::give_up(const Error& error) {
  next_.note(Level::warning, "record", "--record: " + error.message() + "; the job goes on unrecorded");
  log_.reset();
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
