#include "replay/hours.h"

#include <algorithm>
#include <tuple>

namespace lull::replay {
namespace {

constexpr std::int64_t kHour = 3'600'000'000'000;

std::int64_t hour_of(Instant at) {
  const std::int64_t ns = at.time_since_epoch().count();
  return ns >= 0 ? ns / kHour : -1;
}

}  // namespace

void HoursOfGpu::add(Instant from, Instant to, Part part, std::optional<float> holder) {
  if (to <= from || hour_of(from) < 0) return;
  // Samples of one kind are one piece of time.
  if (run_ && run_->to == from && run_->part == part && run_->holder == holder) {
    run_->to = to;
    return;
  }
  flush();
  run_ = Run{from, to, part, holder};
}

void HoursOfGpu::flush() {
  if (!run_) return;
  const Run run = *run_;
  run_.reset();
  if (hours_.empty()) first_ = hour_of(run.from);
  for (Instant at = run.from; at < run.to;) {
    const std::int64_t hour = hour_of(at);
    const Instant end = std::min(run.to, Instant(Duration((hour + 1) * kHour)));
    if (hour < first_ || static_cast<std::size_t>(hour - first_) >= kMost) return;
    const auto place = static_cast<std::size_t>(hour - first_);
    if (place >= hours_.size()) hours_.resize(place + 1);
    const auto seconds = static_cast<float>(to_seconds(end - at));
    hours_[place].*run.part += seconds;
    if (run.holder) holders_[{place, *run.holder}] += seconds;
    at = end;
  }
}

void LongestStretches::add(const IdleStretch& one) {
  if (most_ == 0) return;
  all_.push_back(one);
  if (all_.size() >= 8 * most_) prune(most_);
}

void LongestStretches::prune(std::size_t to) {
  // The same whatever order the GPUs are read in.
  std::ranges::sort(all_, {}, [](const IdleStretch& one) { return std::tuple(-one.length(), one.from, one.gpu); });
  if (all_.size() > to) all_.resize(to);
}

std::vector<IdleStretch> LongestStretches::take() {
  prune(most_);
  return std::exchange(all_, {});
}

}  // namespace lull::replay
