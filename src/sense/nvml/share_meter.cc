#include "sense/nvml/share_meter.h"

#include <algorithm>
#include <cmath>

#include "gpu/metric.h"
#include "sense/nvml/library.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
using std::chrono::microseconds;

constexpr Duration kStampAhead = 2s;       // clocks differ
constexpr Duration kStampLate = 2s;        // a sample of the time that is asked for may be so much older
constexpr Duration kShareBuffer = 15s;     // the driver keeps none for longer
constexpr Duration kShareStands = 1500ms;  // the driver promises a sample a second: until then the last one stands
constexpr std::uint64_t kLatestStamp = std::uint64_t{1} << 62;

// How old a stamp is by the clock of ours that it is near; nothing: it is near none.
std::optional<Duration> age_of_stamp(unsigned long long stamp, const RingClocks& clocks, Duration oldest) {
  if (stamp == 0 || stamp > kLatestStamp) return std::nullopt;
  std::optional<Duration> nearest;
  for (const std::int64_t clock : {clocks.boot, clocks.monotonic, clocks.wall}) {
    const Duration age = microseconds(clock - static_cast<std::int64_t>(stamp));
    if (age < -kStampAhead || age > oldest) continue;
    if (!nearest || age < *nearest) nearest = std::max(age, Duration::zero());
  }
  return nearest;
}

double percentage(unsigned percent) { return percent > 100 ? std::nan("") : percent; }

// The larger of two; one that is not a percentage is the larger.
double larger(double one, double other) {
  return std::isnan(one) || std::isnan(other) ? std::nan("") : std::max(one, other);
}

}  // namespace

void ShareMeter::look(Instant now, nvml::Return code, std::span<const nvml::ProcessUtilization> entries,
                      const RingClocks& clocks) {
  if (code != nvml::Return::success) entries = {};
  if (code != nvml::Return::success && code != nvml::Return::not_found) refused_ = absence_of(code);
  const bool first = !looked_;
  const Duration oldest = first ? kShareBuffer : now - *looked_ + kStampLate;
  looked_ = now;
  std::map<pid_t, Use> uses;
  std::optional<Duration> newest_age;
  unsigned long long newest = last_seen_;
  for (const nvml::ProcessUtilization& entry : entries) {
    if (entry.timestamp <= last_seen_) continue;
    const auto age = age_of_stamp(entry.timestamp, clocks, oldest);
    if (!age) continue;
    newest = std::max(newest, entry.timestamp);
    if (!newest_age || *age < *newest_age) newest_age = age;
    Use& use = uses[static_cast<pid_t>(entry.pid)];
    const unsigned most = std::max({entry.sm, entry.memory, entry.encoder, entry.decoder});
    use.most = larger(use.most, percentage(most));
    use.kernels = larger(use.kernels, percentage(entry.sm));
  }
  last_seen_ = newest;
  if (newest_age) newest_ = now - *newest_age;
  if (first) shown_ = now;  // what it lists is of the time before
  if (!newest_age || first) return;
  const double seconds = std::chrono::duration<double>(now - std::max(shown_, taken_.value_or(shown_))).count();
  for (const auto& [pid, use] : uses) {
    Use& sum = sums_[pid];
    sum.most += use.most * seconds;
    sum.kernels += use.kernels * seconds;
  }
  listed_ = true;
  shown_ = now;
}

std::vector<ProcessShare> ShareMeter::shares_since(Duration time) const {
  const double seconds = std::max(1e-9, std::chrono::duration<double>(time).count());
  std::vector<ProcessShare> shares;
  for (const auto& [pid, sum] : sums_)
    if (sum.most != 0)
      shares.push_back({pid, std::min(sum.most / seconds, 100.0), std::min(sum.kernels / seconds, 100.0)});
  return shares;
}

void ShareMeter::take(Instant now, Reading& reading) {
  const Absence refused = std::exchange(refused_, Absence::none);
  const bool listed = std::exchange(listed_, false);
  const std::optional<Instant> before = std::exchange(taken_, now);
  const Instant begin = std::exchange(told_until_, newest_.value_or(now));
  reading.shares.clear();
  reading.shares_span = {};
  reading.shares_absence = refused != Absence::none ? refused : before ? Absence::none : Absence::no_baseline;
  if (reading.shares_absence != Absence::none) {
    last_.clear();
    newest_.reset();
    shown_ = now;
  } else if (listed) {
    last_ = shares_since(now - *before);
    last_begin_ = begin;
    unlisted_ = reading[Metric::util];
    for (const ProcessShare& share : last_)
      if (!std::isnan(share.kernels)) unlisted_ -= share.kernels;
  } else if (reading[Metric::util] == 0 && !(reading.util_newest.high > 0)) {
    // The whole GPU did nothing, and its newest data say so.
    last_.clear();
    newest_.reset();
    last_begin_ = shown_ = told_until_ = now;
    unlisted_ = 0;
  } else if (!newest_ || now - *newest_ > kShareStands) {
    reading.shares_absence = Absence::not_covered;
    newest_.reset();
  }
  sums_.clear();
  if (reading.shares_absence != Absence::none) return;
  reading.shares = last_;
  reading.shares_span = now - last_begin_;
  reading.unlisted_util = unlisted_;
}

}  // namespace lull
