#include "rule/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "base/units.h"

namespace lull {

namespace {

// What speaks against a GPU: what it has, and what was wanted instead.
struct Objection {
  std::string has;
  std::string wanted;
};

std::string number(double value) { return fmt::format("{:.6g}", std::round(value * 10) / 10); }

std::string share(double value, std::string_view of) { return fmt::format("{} % {}", number(value), of); }

std::string processes_text(double count) { return fmt::format("{} process{}", number(count), count == 1 ? "" : "es"); }

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string explain(const std::vector<Objection>& objections) {
  std::vector<std::string> has;
  std::vector<std::string> wanted;
  for (const Objection& objection : objections) {
    has.push_back(objection.has);
    if (!objection.wanted.empty() && std::find(wanted.begin(), wanted.end(), objection.wanted) == wanted.end())
      wanted.push_back(objection.wanted);
  }
  std::string text = joined(has);
  if (!wanted.empty()) text += "; wanted " + joined(wanted);
  return text;
}

bool contains_word(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

// Every process on the GPU is this user's, and there is one.
bool only_mine(const Reading& reading, uid_t me, const std::map<pid_t, ProcessInfo>& processes) {
  if (!reading.tenants || reading.tenants->empty()) return false;
  return std::all_of(reading.tenants->begin(), reading.tenants->end(), [&](const Tenant& tenant) {
    const auto found = processes.find(tenant.pid);
    return found != processes.end() && found->second.uid == me;
  });
}

class Weighing {
 public:
  Weighing(const Device& device, const Reading& reading) : device_(device), reading_(reading) {}

  // Unless `limit` is off: the value is known and at most (least) that much.
  void most(Metric metric, const Limit& limit, double usual, const std::function<std::string(double)>& text) {
    check(metric, limit, limit.kind == Limit::given ? limit.value : usual, false, text);
  }
  void least(Metric metric, const Limit& limit, const std::function<std::string(double)>& text) {
    check(metric, limit, limit.value, true, text);
  }
  void object(std::string has, std::string wanted) { objections_.push_back({std::move(has), std::move(wanted)}); }

  Judgement verdict() const {
    if (objections_.empty()) return {true, false, ""};
    return {false, false, explain(objections_)};
  }

 private:
  void check(Metric metric, const Limit& limit, double bound, bool at_least,
             const std::function<std::string(double)>& text) {
    if (limit.kind == Limit::none) return;
    const double value = reading_[metric];
    if (std::isnan(value)) {
      // MIG devices have no utilisation of their own; processes and memory tell. Who asked for it by
      // name gets the truth: it cannot be told.
      const bool of_mig = device_.kind == DeviceKind::mig && (metric == Metric::util || metric == Metric::mem_util);
      if (of_mig && limit.kind == Limit::usual) return;
      return object(fmt::format("{} cannot be read ({})", info(metric).name, words(reading_.why_missing(metric))), "");
    }
    if (at_least ? value >= bound : value <= bound) return;
    object(text(value), bound == 0 ? "0" : fmt::format("at {} {}", at_least ? "least" : "most", text(bound)));
  }

  const Device& device_;
  const Reading& reading_;
  std::vector<Objection> objections_;
};

Judgement never(std::string why) { return {false, true, std::move(why)}; }

}  // namespace

double usual_memory(double mem_total) {
  constexpr double kKeptByDrivers = 700.0 * (1U << 20);
  constexpr double kShare = 0.02;
  return std::isnan(mem_total) ? kKeptByDrivers : std::max(kKeptByDrivers, mem_total * kShare);
}

Judgement judge(const Device& device, const Reading& reading, const Wishes& wishes,
                const std::map<pid_t, ProcessInfo>& processes) {
  if (!wishes.name.empty() && !device.name.empty() && !contains_word(device.name, wishes.name))
    return never(fmt::format("is a {}; wanted {}", printable(device.name), printable(wishes.name)));
  if (reading.device_absence != Absence::none)
    return {false, false, fmt::format("cannot be read ({})", words(reading.device_absence))};
  if (device.absence != Absence::none) return {false, false, fmt::format("cannot be read ({})", words(device.absence))};
  if (device.uuid.empty()) return {false, false, "its UUID cannot be read"};
  if (device.kind == DeviceKind::gpu && reading.mig_mode == true)
    return never("is divided into MIG devices, which can be picked instead");
  if (!wishes.name.empty() && device.name.empty()) return {false, false, "its name cannot be read"};

  const double total = reading[Metric::mem_total];
  if (wishes.mem_free.kind == Limit::given && total < wishes.mem_free.value)
    return never(
        fmt::format("has {} in all; wanted at least {} free", format_size(total), format_size(wishes.mem_free.value)));

  const bool mine = wishes.mine && only_mine(reading, *wishes.mine, processes);
  const auto unless_mine = [&](const Limit& limit) {
    return mine && limit.kind == Limit::usual ? Limit::off() : limit;
  };
  Limit procs = unless_mine(wishes.procs);
  double memory = usual_memory(total);
  if (wishes.tolerate) {
    memory = std::max(memory, *wishes.tolerate);
    if (procs.kind == Limit::usual && reading[Metric::mem_used] <= *wishes.tolerate) procs = Limit::off();
  }

  Weighing weighing(device, reading);
  weighing.most(Metric::procs, procs, 0, processes_text);
  weighing.most(Metric::util, unless_mine(wishes.util), 0, [](double value) { return share(value, "util"); });
  weighing.most(Metric::mem_util, unless_mine(wishes.mem_util), 0,
                [](double value) { return share(value, "mem_util"); });
  weighing.most(Metric::mem_used, unless_mine(wishes.mem_used), memory,
                [](double value) { return format_size(value) + " in use"; });
  weighing.least(Metric::mem_free, wishes.mem_free, [](double value) { return format_size(value) + " free"; });
  weighing.most(Metric::temp, wishes.temp, 0, [](double value) { return number(value) + " C"; });
  if (wishes.where) {
    const WhereAnswer answer = wishes.where(reading);
    if (answer.holds != true) weighing.object(answer.why, "");
  }
  return weighing.verdict();
}

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
