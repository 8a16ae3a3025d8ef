#include "serve/observer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/units.h"
#include "lease/folder.h"
#include "rule/timeline.h"
#include "session/leases_session.h"

namespace lull {
namespace {

constexpr double kCovered = 0.9;
constexpr int kIntervalsOfNow = 3;
constexpr int kMostMissed = 100'000;  // points of the grid, after a long sleep

// Of a command line no more is kept: all clients get all of them with every sample.
constexpr std::size_t kMostOfCommand = 1000;

void shorten(Reading& reading) {
  if (!reading.processes) return;
  for (GpuProcess& process : *reading.processes) {
    if (process.info == nullptr || process.info->command_line().size() <= kMostOfCommand) continue;
    auto info = std::make_shared<ProcessInfo>(*process.info);
    info->arguments = {process.info->command_line().substr(0, kMostOfCommand) + "…"};
    process.info = std::move(info);
  }
}

}  // namespace

void LastHour::close_before(std::int64_t slice) {
  if (slice - slice_ > static_cast<std::int64_t>(kSlices)) {
    closed_.clear();
    slice_ = slice;
    time_ = {};
  }
  for (; slice_ < slice; ++slice_) {
    closed_.push_back(time_.seen >= kCovered * in_seconds(kSlice) ? static_cast<float>(100 * time_.busy / time_.seen)
                                                                  : kUnknownSample);
    if (closed_.size() > kSlices) closed_.pop_front();
    time_ = {};
  }
}

void LastHour::add(Instant at, Duration time, double util) {
  const auto slice_of = [](Instant moment) { return moment.time_since_epoch() / kSlice; };
  const Instant from = at - time;
  if (closed_.empty() && time_.seen == 0) slice_ = slice_of(from);
  // A sample may reach over the end of a slice.
  for (Instant begin = from; begin < at;) {
    const std::int64_t slice = slice_of(begin);
    const Instant end = std::min(at, Instant(kSlice * (slice + 1)));
    close_before(slice);
    if (slice == slice_ && !std::isnan(util)) {
      time_.seen += in_seconds(end - begin);
      time_.busy += in_seconds(end - begin) * util / 100;
    }
    begin = end;
  }
}

std::vector<float> LastHour::until(Instant now) const {
  LastHour copy = *this;
  copy.close_before(now.time_since_epoch() / kSlice);
  return {copy.closed_.begin(), copy.closed_.end()};
}

void Delays::add(double seconds) {
  for (std::size_t i = 0; i < kBounds.size(); ++i)
    if (seconds <= kBounds[i]) ++at_most[i];
  ++count;
  sum += seconds;
}

Observer::Observer(Duration every, GpuUsers& users)
    : every_(every), longest_gap_(longest_gap(every)), users_(users), idle_(every) {
  snapshot_.inventory = as_commands_.inventory = std::make_shared<const Inventory>();
}

void Observer::see(const Snapshot& snapshot) {
  snapshot_ = snapshot;
  for (Reading& reading : snapshot_.readings) shorten(reading);
  as_commands_ = snapshot_;
  for (Reading& reading : as_commands_.readings)
    for (const Metric metric : {Metric::effort, Metric::learned, Metric::idle_power})
      reading.miss(metric, Absence::not_asked);
  ++samples_;
  rows_.resize(snapshot.readings.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i] = i;
  idle_.see(snapshot);
  extras_ = status_extras(snapshot, rows_, idle_, lease_trouble_);
  uses_ = users_.look(snapshot, UserDetail::jobs);
  find_jobs();
  count_time();
  count_delays();
  last_ = snapshot.at;
}

// Samples follow a grid that begins with the first one (Ticker, loop/loop.h). A point of it at which no sample was
// asked for counts as late until the next one was.
void Observer::count_delays() {
  if (!due_) {
    due_ = snapshot_.at + every_;
    return;
  }
  for (int counted = 0; *due_ <= snapshot_.asked; *due_ += every_)
    if (counted++ < kMostMissed) delays_.add(in_seconds(snapshot_.asked - *due_));
}

void Observer::count_time() {
  const Duration passed = last_ ? snapshot_.at - *last_ : Duration::zero();
  if (passed <= Duration::zero() || passed > longest_gap_) return;
  for (std::size_t i = 0; i < snapshot_.readings.size(); ++i) {
    const Reading& reading = snapshot_.readings[i];
    const DeviceId id = snapshot_.inventory->devices[i].id();
    const double util = reading[Metric::util];
    hours_[id].add(snapshot_.at, passed, util);
    if (std::isnan(util)) continue;
    // The driver may not have measured all of it; what it says of a moment stands for the interval.
    const double share = reading.util_basis == Basis::mean ? std::clamp(reading.util_coverage, 0.0, 1.0) : 1.0;
    SeenTime& time = time_[id];
    time.seen += share * in_seconds(passed);
    time.busy += share * in_seconds(passed) * util / 100;
  }
}

void Observer::find_jobs() {
  std::map<std::string, JobUse> found;
  for (std::size_t gpu = 0; gpu < uses_.size(); ++gpu) {
    for (const GpuProcess& process : uses_[gpu].processes) {
      if (!process.identified || !holds(process) || process.job.empty()) continue;
      JobUse& job = found[process.job];
      job.id = process.job;
      job.title = process.job_title;
      const auto add = [](auto& list, const auto& value) {
        if (std::ranges::find(list, value) == list.end()) list.push_back(value);
      };
      add(job.users, process.user());
      add(job.gpus, gpu);
      add(job.processes, process.pid);
    }
  }
  jobs_.clear();
  for (auto& [id, job] : found) {
    job.idle_for = Duration::max();
    for (const std::size_t gpu : job.gpus) {
      const StatusExtra& extra = extras_[gpu];
      if (!extra.idle_for || !job.idle_for) {
        job.idle_for.reset();
      } else if (*extra.idle_for < *job.idle_for) {
        job.idle_for = extra.idle_for;
        job.idle_for_longer = extra.idle_for_longer;
      }
    }
    jobs_.push_back(std::move(job));
  }
}

bool Observer::is_up(Instant now) const {
  return last_ && snapshot_.driver.absence == Absence::none && now - snapshot_.at <= kIntervalsOfNow * every_;
}

std::string Observer::trouble(Instant now) const {
  if (is_up(now)) return "";
  if (!last_) return "no sample yet";
  const DriverState& driver = snapshot_.driver;
  if (driver.absence != Absence::none)
    return driver.detail.empty() ? std::string(to_string(driver.absence)) : driver.detail;
  return fmt::format("no sample for {}", format_duration(std::chrono::floor<std::chrono::seconds>(now - snapshot_.at)));
}

StatusView Observer::status() const { return {.snapshot = as_commands_, .devices = rows_, .extras = extras_}; }

Result<LeasesView> Observer::leases() const {
  return LeasesView{.state = TRY(read_folder(LeasePlace::of_environment())),
                    .gpus = leased_gpus(snapshot_, idle_),
                    .now = snapshot_.wall};
}

std::vector<ObservedGpu> Observer::gpus() const {
  std::vector<ObservedGpu> all;
  for (std::size_t i = 0; i < snapshot_.readings.size(); ++i) {
    const Device& device = snapshot_.inventory->devices[i];
    const auto time = time_.find(device.id());
    all.push_back({device, snapshot_.readings[i], extras_[i], time == time_.end() ? SeenTime{} : time->second});
  }
  return all;
}

std::vector<float> Observer::last_hour(const Device& device, Instant now) const {
  const auto found = hours_.find(device.id());
  return found == hours_.end() ? std::vector<float>{} : found->second.until(now);
}

}  // namespace lull
