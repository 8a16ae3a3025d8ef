#include "lease/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/text.h"

namespace lull {

Result<Best> parse_best(std::string_view word) {
  constexpr std::array<std::string_view, 4> kWords = {"random", "memory", "cool", "topology"};
  for (std::size_t i = 0; i < kWords.size(); ++i)
    if (word == kWords[i]) return static_cast<Best>(i);
  return fail(fmt::format("'{}' is no order; memory, cool, topology and random are{}", printable(word),
                          did_you_mean(word, kWords)));
}

double closeness(Join join) {
  constexpr double kAnyLink = 10000;
  constexpr double kEachLink = 100;
  const double links = join.nvlinks == 0 ? 0 : kAnyLink + kEachLink * std::min(join.nvlinks, 50U);
  return links + static_cast<double>(join.nearness) * 10;
}

namespace {

using Positions = std::vector<std::size_t>;

// Chooses the set: how closely it is joined, then how closely what is left is.
class Closest {
 public:
  Closest(std::span<const std::size_t> open, std::span<const std::size_t> kept, const Topology& topology)
      : open_(open.begin(), open.end()), kept_(kept.begin(), kept.end()), topology_(topology) {}

  Positions best(std::size_t count) {
    return combinations(open_.size(), count) <= kTryAll ? try_all(count) : grow_and_swap(count);
  }

 private:
  static constexpr double kTryAll = 20000;

  struct Score {
    double inside = -1;
    double left = -1;
    bool operator<(const Score& other) const {
      return inside != other.inside ? inside < other.inside : left < other.left;
    }
  };

  static double combinations(std::size_t n, std::size_t k) {
    double result = 1;
    for (std::size_t i = 0; i < k; ++i) result *= static_cast<double>(n - i) / static_cast<double>(i + 1);
    return result;
  }

  double joined_with(std::size_t one, const Positions& others) const {
    double sum = 0;
    for (const std::size_t other : others)
      if (other != one) sum += closeness(topology_.between(one, other));
    return sum;
  }

  Score score(const Positions& chosen) const {
    Score score{0, 0};
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      score.inside += joined_with(chosen[i], kept_);
      for (std::size_t j = i + 1; j < chosen.size(); ++j)
        score.inside += closeness(topology_.between(chosen[i], chosen[j]));
      // What is cut off from those that stay is lost to the next who asks.
      for (const std::size_t other : open_)
        if (std::find(chosen.begin(), chosen.end(), other) == chosen.end())
          score.left -= closeness(topology_.between(chosen[i], other));
    }
    return score;
  }

  Positions try_all(std::size_t count) const {
    std::vector<bool> taken(open_.size(), false);
    std::fill(taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(count), true);
    Positions best;
    Score best_score;
    bool first = true;
    do {
      Positions chosen;
      for (std::size_t i = 0; i < open_.size(); ++i)
        if (taken[i]) chosen.push_back(open_[i]);
      const Score now = score(chosen);
      if (first || best_score < now) {
        best = std::move(chosen);
        best_score = now;
        first = false;
      }
    } while (std::prev_permutation(taken.begin(), taken.end()));
    return best;
  }

  // For machines with very many devices: from each start add the nearest, then exchange while that helps.
  Positions grow_and_swap(std::size_t count) const {
    Positions best;
    Score best_score;
    for (std::size_t start = 0; start < open_.size(); ++start) {
      Positions chosen = {open_[start]};
      while (chosen.size() < count) {
        Positions with = chosen;
        with.insert(with.end(), kept_.begin(), kept_.end());
        std::size_t nearest = open_.size();
        double nearest_sum = -1;
        for (std::size_t i = 0; i < open_.size(); ++i) {
          if (std::find(chosen.begin(), chosen.end(), open_[i]) != chosen.end()) continue;
          const double sum = joined_with(open_[i], with);
          if (sum > nearest_sum) {
            nearest = i;
            nearest_sum = sum;
          }
        }
        chosen.push_back(open_[nearest]);
      }
      const Score now = score(chosen);
      if (best.empty() || best_score < now) {
        best = std::move(chosen);
        best_score = now;
      }
    }
    for (bool better = true; better;) {
      better = false;
      for (std::size_t& member : best) {
        for (const std::size_t other : open_) {
          if (std::find(best.begin(), best.end(), other) != best.end()) continue;
          const std::size_t before = std::exchange(member, other);
          const Score now = score(best);
          if (best_score < now) {
            best_score = now;
            better = true;
          } else {
            member = before;
          }
        }
      }
    }
    return best;
  }

  Positions open_;
  Positions kept_;
  const Topology& topology_;
};

}  // namespace

std::vector<std::size_t> choose(Best best, std::span<const std::size_t> open, std::span<const std::size_t> kept,
                                std::size_t count, std::span<const Reading> readings, const Topology& topology,
                                std::mt19937_64& random) {
  Positions order(open.begin(), open.end());
  count = std::min(count, order.size());
  std::shuffle(order.begin(), order.end(), random);  // equals stay in this order
  const auto by = [&](Metric metric, double sign) {
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const double left = readings[a][metric];
      const double right = readings[b][metric];
      if (std::isnan(left) || std::isnan(right)) return !std::isnan(left) && std::isnan(right);
      return left * sign < right * sign;
    });
  };
  switch (best) {
    case Best::random: break;
    case Best::memory: by(Metric::mem_free, -1); break;
    case Best::cool: by(Metric::temp, 1); break;
    case Best::topology: order = count == 0 ? Positions() : Closest(order, kept, topology).best(count); break;
  }
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace lull
