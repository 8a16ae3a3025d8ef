#include "replay/survival.h"

#include <algorithm>

namespace lull::replay {
namespace {

constexpr std::size_t kUnmerged = 1024;

std::uint32_t whole_seconds(Duration duration) {
  return static_cast<std::uint32_t>(std::chrono::ceil<std::chrono::seconds>(duration).count());
}

}  // namespace

void Survival::add(Duration after, Leaving how) {
  ++count_;
  if (after > kLongest) return;
  Moment moment{whole_seconds(after)};
  ++(how == Leaving::came_back ? moment.back : how == Leaving::released ? moment.released : moment.cut);
  moments_.push_back(moment);
  if (moments_.size() > 2 * merged_ + kUnmerged) merge();
}

void Survival::merge() {
  std::sort(moments_.begin(), moments_.end(), [](const Moment& a, const Moment& b) { return a.second < b.second; });
  std::size_t kept = 0;
  for (const Moment& moment : moments_) {
    if (kept == 0 || moments_[kept - 1].second != moment.second) {
      moments_[kept++] = moment;
      continue;
    }
    Moment& same = moments_[kept - 1];
    same.back += moment.back;
    same.released += moment.released;
    same.cut += moment.cut;
  }
  moments_.resize(kept);
  merged_ = kept;
}

Survival& Survival::operator+=(const Survival& more) {
  count_ += more.count_;
  moments_.insert(moments_.end(), more.moments_.begin(), more.moments_.end());
  if (moments_.size() > 2 * merged_ + kUnmerged) merge();
  return *this;
}

std::optional<double> Survival::chance_within(Duration limit) const {
  if (count_ == 0) return std::nullopt;
  Survival sorted = *this;
  sorted.merge();
  auto left = static_cast<double>(count_);  // whose fate is open
  double waiting = 1;                       // the chance that it still is
  double back = 0;
  for (const Moment& moment : sorted.moments_) {
    if (moment.second > whole_seconds(limit)) break;
    back += waiting * moment.back / left;
    waiting *= 1 - (moment.back + moment.released) / left;
    left -= moment.back + moment.released + moment.cut;
  }
  return back;
}

}  // namespace lull::replay
