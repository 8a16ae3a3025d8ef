#include "replay/survival.h"

#include <algorithm>
#include <cmath>

namespace lull::replay {
namespace {

constexpr std::size_t kUnmerged = 1024;

std::uint32_t whole_seconds(Duration duration) {
  return static_cast<std::uint32_t>(std::chrono::ceil<std::chrono::seconds>(duration).count());
}

// On the scale of log(-log), so that it stays between 0 and 1. If none returned, or all did, that scale has
// no end: then what 2.5 % of the samples of so many jobs, of which that is known, would still show.
void interval_of(Chance& chance, double deviation, std::uint64_t jobs) {
  constexpr double kNormal = 1.959964;
  const double p = std::clamp(chance.ratio, 0.0, 1.0);
  const double unseen = share_up_to(0, jobs);
  if (p <= 0 || p >= 1) {
    chance.low = p <= 0 ? 0 : 1 - unseen;
    chance.high = p <= 0 ? unseen : 1;
    return;
  }
  const double width = kNormal * deviation / (p * std::abs(std::log(p)));
  chance.low = std::pow(p, std::exp(width));
  chance.high = std::pow(p, std::exp(-width));
}

}  // namespace

double share_up_to(std::uint64_t seen, std::uint64_t jobs) {
  constexpr double kTail = 0.025;
  if (seen >= jobs) return 1;
  // The share at which no more than `seen` of the jobs would do it is as unlikely as that.
  const auto chance_of_so_few = [&](double share) {
    double sum = 0;
    double ways = 0;  // the logarithm of how many sets of so many jobs there are
    for (std::uint64_t i = 0; i <= seen; ++i) {
      const auto done = static_cast<double>(i);
      const auto others = static_cast<double>(jobs - i);
      sum += std::exp(ways + done * std::log(share) + others * std::log1p(-share));
      ways += std::log(others / (done + 1));
    }
    return sum;
  };
  double low = static_cast<double>(seen) / static_cast<double>(jobs);
  double high = 1;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (chance_of_so_few(middle) > kTail ? low : high) = middle;
  }
  return high;
}

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

std::optional<Chance> Survival::estimate(Duration limit) const {
  if (count_ == 0) return std::nullopt;
  Survival sorted = *this;
  sorted.merge();
  struct Step {
    double at_risk, waiting, back, returned, left;  // waiting: the chance before it; returned: that by then
  };
  std::vector<Step> steps;
  Chance chance{.at_risk = count_};
  std::uint64_t known = count_;  // jobs that were followed until then, or to their return or release
  auto at_risk = static_cast<double>(count_);
  double waiting = 1;  // the chance that its fate is open
  for (const Moment& moment : sorted.moments_) {
    if (moment.second < whole_seconds(limit)) {
      chance.at_risk -= moment.back + moment.released + moment.cut;
      known -= moment.cut;
    }
    if (moment.second > whole_seconds(limit)) break;
    const double left = moment.back + moment.released;
    chance.ratio += waiting * moment.back / at_risk;
    steps.push_back({at_risk, waiting, static_cast<double>(moment.back), chance.ratio, left});
    waiting *= 1 - left / at_risk;
    at_risk -= left + moment.cut;
  }
  // Greenwood's variance, as it is for one of two ways to leave.
  double variance = 0;
  for (const Step& step : steps) {
    const double n = step.at_risk;
    const double later = chance.ratio - step.returned;
    if (n > step.left) variance += later * later * step.left / (n * (n - step.left));
    variance += step.waiting * step.waiting * (n - step.back) * step.back / (n * n * n);
    variance -= 2 * later * step.waiting * step.back / (n * n);
  }
  interval_of(chance, std::sqrt(std::max(0.0, variance)), known);
  return chance;
}

std::optional<Chance> Survival::chance_within(Duration limit) const {
  const auto chance = estimate(limit);
  return chance && chance->at_risk >= kFewest ? chance : std::nullopt;
}

namespace {

// splitmix64: the draws are the same on every machine, which those of <random> need not be.
class Dice {
 public:
  std::uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15ULL); }
  // Even enough: the bound is at most 10 000 of 2^32.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>((next() >> 32) * bound >> 32); }
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t state_ = 20261117;
};

}  // namespace

std::vector<std::optional<Interval>> LossIntervals::of(const std::vector<std::vector<Loss>>& policies,
                                                       double all_work) const {
  std::vector<std::optional<Interval>> intervals(policies.size());
  if (jobs_.size() < 2) return intervals;
  std::vector<Loss> jobs = jobs_;
  std::ranges::sort(jobs, {}, &Loss::job);
  const std::size_t count = std::min(jobs.size(), kGroups);
  const auto group_of = [&](std::size_t job) {
    return jobs.size() <= kGroups ? job : static_cast<std::size_t>(Dice::mix(job + 1) % kGroups);
  };
  std::vector<double> work(count);
  double others = all_work;  // done by no job: the same in every draw
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    work[group_of(i)] += jobs[i].seconds;
    others -= jobs[i].seconds;
  }
  // Most jobs lose nothing under most policies.
  struct Part {
    std::uint32_t group;
    double seconds;
  };
  std::vector<std::vector<Part>> lost(policies.size());
  for (std::size_t p = 0; p < policies.size(); ++p)
    for (const Loss& loss : policies[p]) {
      const auto found = std::ranges::lower_bound(jobs, loss.job, {}, &Loss::job);
      if (found == jobs.end() || found->job != loss.job) continue;
      lost[p].push_back(
          {static_cast<std::uint32_t>(group_of(static_cast<std::size_t>(found - jobs.begin()))), loss.seconds});
    }
  std::vector<std::vector<double>> ratios(policies.size());
  std::vector<std::uint32_t> drawn(count);
  Dice dice;
  for (std::size_t draw = 0; draw < kDraws; ++draw) {
    std::ranges::fill(drawn, 0U);
    for (std::size_t i = 0; i < count; ++i) ++drawn[dice.below(count)];
    double all = std::max(0.0, others);
    for (std::size_t i = 0; i < count; ++i) all += drawn[i] * work[i];
    if (all <= 0) continue;
    for (std::size_t p = 0; p < policies.size(); ++p) {
      double sum = 0;
      for (const Part& part : lost[p]) sum += drawn[part.group] * part.seconds;
      ratios[p].push_back(sum / all);
    }
  }
  for (std::size_t p = 0; p < policies.size(); ++p) {
    std::vector<double>& sorted = ratios[p];
    if (sorted.empty()) continue;
    std::ranges::sort(sorted);
    const auto at = [&](double share) {
      return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
    };
    intervals[p] = Interval{at(0.025), at(0.975)};
  }
  return intervals;
}

}  // namespace lull::replay
