#include "lease/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "rule/evaluator.h"
#include "rule/reason.h"

namespace lull {

Result<Best> parse_best(std::string_view word) {
  constexpr std::array<std::string_view, 4> kOrders = {"random", "memory", "cool", "topology"};
  return static_cast<Best>(TRY(one_of(word, kOrders)));
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

// Whether one GPU suits: the half of choice.h that looks at a single reading.

namespace {

// What speaks against a GPU: what it has, and what was wanted instead.
struct Objection {
  std::string has;
  std::string wanted;
};

constexpr std::string_view kHidden = "processes in other containers are hidden from here";

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

// Memory without a known process; nothing if that is unknown.
std::optional<double> unclaimed_memory(const Reading& reading) {
  if (std::isnan(reading[Metric::mem_used]) || reading.memory_estimated) return {};
  double claimed = 0;
  for (const GpuProcess& process : *reading.processes) {
    // Older cards book the memory of all clients on the MPS server, whoever they are.
    if (process.mps_server) continue;
    if (!process.memory_bytes) return {};
    claimed += static_cast<double>(*process.memory_bytes);
  }
  return reading[Metric::mem_used] - claimed;
}

// Every process on the GPU is proven to be this user's, and there is one. Where some may be hidden, the
// memory must be all theirs: who has a context holds memory.
bool only_mine(const Reading& reading, uid_t me) {
  if (!reading.processes) return false;
  bool any = false;
  for (const GpuProcess& process : *reading.processes) {
    if (process.mps_server) continue;  // it counts through its clients
    if (!process.proven() || process.info == nullptr || process.info->uid != me) return false;
    any = true;
  }
  if (!any || !reading.processes_hidden) return any;
  const auto left = unclaimed_memory(reading);
  return left && *left <= kEmptyCard;
}

// What those hold who only draw. Not where processes may be hidden: the rest could be theirs.
double drawn_with(const Reading& reading) {
  if (reading.display_active != true || !reading.processes || reading.processes_hidden) return 0;
  double sum = 0;
  for (const GpuProcess& process : *reading.processes)
    if (process.graphics && !process.compute && !process.mps_server)
      sum += static_cast<double>(process.memory_bytes.value_or(0));
  return sum;
}

class Weighing {
 public:
  Weighing(const Device& device, const Reading& reading, const Constraints& constraints, bool mine)
      : device_(device),
        reading_(reading),
        constraints_(constraints),
        mine_(mine),
        desktop_(reading.display_active == true),
        empty_(empty_card(device)),
        empty_util_(empty_util(device)),
        unseen_processes_(device.vendor == Vendor::tegra) {}

  Judgement verdict() {
    for (const Metric metric : {Metric::util, Metric::procs, Metric::mem_used})
      if (can_tell(metric)) judged_by_.push_back(metric);
    weigh_processes();
    most(Metric::util, unless_mine(constraints_.util), reading_[Metric::util], desktop_ ? kDrawing : empty_util_,
         [](double value) { return share(value, "util"); });
    most(Metric::mem_util, unless_mine(constraints_.mem_util), reading_[Metric::mem_util], desktop_ ? kDrawing : 0,
         [](double value) { return share(value, "mem_util"); });
    weigh_memory();
    least(Metric::mem_free, constraints_.mem_free, [](double value) { return format_size(value) + " free"; });
    most(Metric::temp, constraints_.temp, reading_[Metric::temp], 0, [](double value) { return number(value) + " C"; });
    if (constraints_.where) {
      const WhereAnswer answer = constraints_.where(reading_);
      if (answer.holds != true) object(answer.why, "");
    }
    if (objections_.empty()) weigh_evidence();
    return judgement();
  }

 private:
  using Text = std::string (*)(double);

  Limit unless_mine(const Limit& limit) const { return mine_ && limit.kind == Limit::usual ? Limit::off() : limit; }

  // What is in use, without what the desktop draws with.
  double memory() const {
    const double used = reading_[Metric::mem_used];
    return std::isnan(used) ? kUnknown : std::max(0.0, used - drawn_with(reading_));
  }

  // Read, and not only concluded from another signal.
  bool can_tell(Metric metric) const {
    if (std::isnan(reading_[metric])) return false;
    if (metric == Metric::procs) return !reading_.processes_hidden;
    return metric != Metric::mem_used || !reading_.memory_estimated;
  }

  // At least so many there are; where some may be hidden the sensor gives no number.
  double processes_seen() const {
    if (!std::isnan(reading_[Metric::procs]) || !reading_.processes) return reading_[Metric::procs];
    return static_cast<double>(
        std::count_if(reading_.processes->begin(), reading_.processes->end(),
                      [](const GpuProcess& process) { return process.compute && !process.mps_server; }));
  }

  void weigh_processes() {
    Limit limit = unless_mine(constraints_.procs);
    if (constraints_.tolerate && limit.kind == Limit::usual && memory() <= *constraints_.tolerate) limit = Limit::off();
    const double count = reading_.processes_hidden ? processes_seen() : reading_[Metric::procs];
    const double bound = limit.kind == Limit::given ? limit.value : 0;
    if (!reading_.processes_hidden || limit.kind == Limit::none || count > bound)
      return most(Metric::procs, limit, count, 0, processes_text);
    // Those that we see are few enough. Whether there are more tells only memory that is not in use.
    const bool empty = can_tell(Metric::mem_used) && reading_[Metric::mem_used] <= kEmptyCard;
    if (limit.kind == Limit::given) return object(fmt::format("procs cannot be read ({})", kHidden), "");
    if (!empty && !reading_.asleep) object(std::string(kHidden), "");
  }

  // Processes may be there: whether there are some, or it is unknown, does not matter.
  bool processes_waived() const {
    return constraints_.procs.kind == Limit::none ||
           (constraints_.procs.kind == Limit::given && constraints_.procs.value > 0) ||
           constraints_.tolerate.has_value();
  }

  // Who has a context holds memory.
  bool may_have_processes() const {
    if (processes_seen() > 0) return true;
    return !can_tell(Metric::procs) && !(can_tell(Metric::mem_used) && reading_[Metric::mem_used] <= kEmptyCard);
  }

  void weigh_memory() {
    const Limit limit = unless_mine(constraints_.mem_used);
    if (limit.kind == Limit::given)
      return most(Metric::mem_used, limit, reading_[Metric::mem_used], 0,
                  [](double value) { return format_size(value) + " in use"; });
    const bool processes_allowed = constraints_.procs.kind == Limit::none ||
                                   (constraints_.procs.kind == Limit::given && constraints_.procs.value > 0);
    const double bound = std::max({desktop_ ? std::max(kEmptyDesktop, empty_) : empty_,
                                   processes_allowed ? kRestingProcesses : 0, constraints_.tolerate.value_or(0)});
    if (drawn_with(reading_) > 0)
      return most(Metric::mem_used, limit, memory(), bound,
                  [](double bytes) { return format_size(bytes) + " in use besides the desktop"; });
    most(Metric::mem_used, limit, memory(), bound, [](double bytes) { return format_size(bytes) + " in use"; });
  }

  // Nothing speaks against it; does enough speak for it? Who says `any` wants to know less.
  void weigh_evidence() {
    if (mine_ || (reading_.asleep && !unseen_processes_)) return;
    if (processes_waived() && may_have_processes() && !can_tell(Metric::util) && constraints_.util.kind != Limit::none)
      return object(fmt::format("util cannot be read ({}), and only that would tell whether its processes work",
                                to_string(reading_.why_missing(Metric::util))),
                    "");
    std::size_t needed = 3;
    for (const Limit* limit : {&constraints_.util, &constraints_.procs, &constraints_.mem_used})
      if (limit->kind == Limit::none) --needed;
    needed = std::min<std::size_t>(needed, 2);
    if (judged_by_.size() >= needed) return;
    if (!judged_by_.empty() && reading_[Metric::pstate] >= kRestingState) {
      judged_by_.push_back(Metric::pstate);
      return;
    }
    undecided_ = reading_.why_missing(Metric::pstate) == Absence::not_asked;
    std::vector<std::string> gone;
    for (const Metric metric : {Metric::util, Metric::procs, Metric::mem_used}) {
      if (can_tell(metric)) continue;
      std::string_view why = to_string(reading_.why_missing(metric));
      if (metric == Metric::procs && reading_.processes_hidden) why = "hidden in other containers";
      if (metric == Metric::mem_used && reading_.memory_estimated) why = "only estimated";
      gone.push_back(fmt::format("{} ({})", info(metric).name, why));
    }
    object(fmt::format("cannot be judged without {}{}", joined(gone),
                       judged_by_.empty() ? "" : fmt::format(": {} alone does not tell", info(judged_by_[0]).name)),
           "");
  }

  Judgement judgement() const {
    Judgement result;
    result.fits = objections_.empty();
    result.judged_by = judged_by_;
    result.undecided = undecided_;
    result.in_use = in_use_;
    result.only_busy = !objections_.empty() && objections_.size() == busy_;
    const bool usual = constraints_.util.kind == Limit::usual || constraints_.mem_util.kind == Limit::usual ||
                       constraints_.mem_used.kind == Limit::usual;
    if (reading_.asleep)
      result.note = "asleep";
    else if (desktop_ && usual && !mine_)
      result.note = "a desktop draws on it";
    if (result.fits) return result;
    result.why = explain(objections_);
    if (!result.note.empty() && !reading_.asleep) result.why += fmt::format(" ({})", result.note);
    return result;
  }

  void object(std::string has, std::string wanted) { objections_.push_back({std::move(has), std::move(wanted)}); }

  // Unless the limit is off: the value is known and at most (least) that much.
  void most(Metric metric, const Limit& limit, double value, double usual, Text text) {
    check(metric, limit, value, limit.kind == Limit::given ? limit.value : usual, false, text);
  }
  void least(Metric metric, const Limit& limit, Text text) {
    check(metric, limit, reading_[metric], limit.value, true, text);
  }

  // What the GPU does not have, or what cannot be read while it sleeps, the other signals have to
  // tell. If it was asked for by name, it cannot be read.
  bool may_be_missing(Metric metric, const Limit& limit) const {
    const bool asleep = reading_.asleep && reading_.why_missing(metric) == Absence::asleep;
    return limit.kind == Limit::usual && (asleep || has_no(device_, reading_, metric));
  }

  void check(Metric metric, const Limit& limit, double value, double bound, bool at_least, Text text) {
    if (limit.kind == Limit::none) return;
    if (std::isnan(value)) {
      if (may_be_missing(metric, limit)) return;
      return object(fmt::format("{} cannot be read ({})", info(metric).name, to_string(reading_.why_missing(metric))),
                    "");
    }
    if (at_least ? value >= bound : value <= bound) return;
    if (metric == Metric::util || metric == Metric::mem_util) ++busy_;
    in_use_ = in_use_ || metric == Metric::util || metric == Metric::mem_util || metric == Metric::procs ||
              metric == Metric::mem_used;
    object(text(value), bound == 0 ? text(0) : fmt::format("at {} {}", at_least ? "least" : "most", text(bound)));
  }

  const Device& device_;
  const Reading& reading_;
  const Constraints& constraints_;
  bool mine_;
  bool desktop_;
  double empty_;           // bytes that a GPU of this kind has in use when nothing runs
  double empty_util_;      // and its util
  bool unseen_processes_;  // a Jetson sleeps whenever it has no work, whoever holds it
  std::vector<Metric> judged_by_;
  std::vector<Objection> objections_;
  std::size_t busy_ = 0;  // how many of them are about work being done
  bool in_use_ = false;
  bool undecided_ = false;
};

Judgement refuse(bool lasting, std::string why) {
  Judgement judgement;
  judgement.lasting = lasting;
  judgement.why = std::move(why);
  return judgement;
}
Judgement never(std::string why) { return refuse(true, std::move(why)); }
Judgement not_now(std::string why) { return refuse(false, std::move(why)); }

}  // namespace

Judgement judge(const Device& device, const Reading& reading, const Constraints& constraints) {
  const bool named = constraints.exact_name ? device.name.find(constraints.name) != std::string::npos
                                            : contains_word(device.name, constraints.name);
  if (!constraints.name.empty() && !device.name.empty() && !named)
    return never(fmt::format("its name is {}; wanted {}", printable(device.name), printable(constraints.name)));
  for (const Absence absence : {reading.device_absence, device.absence}) {
    if (absence == Absence::none) continue;
    // Others' GPUs: waiting does not make them ours.
    return refuse(absence == Absence::no_permission, fmt::format("cannot be read ({})", to_string(absence)));
  }
  if (device.without_uuid && device.pci.empty()) return not_now("its PCI address cannot be read");
  if (device.uuid.empty() && !device.without_uuid)
    return not_now(reading.asleep ? "is asleep, and its UUID cannot be read without waking it"
                                  : "its UUID cannot be read");
  if (device.shares_uuid && device.kind == DeviceKind::mig)
    return never("another device has the same UUID, and CUDA knows MIG devices by UUID alone");
  if (device.shares_uuid && device.pci.empty())
    return not_now("another GPU has the same UUID, and its PCI address cannot be read");
  if (device.kind == DeviceKind::gpu && reading.mig_mode == true)
    return never("is divided into MIG devices, which can be picked instead");
  if (device.kind == DeviceKind::gpu && device.partition)
    return never("is divided into partitions, which can be picked instead");
  if (!constraints.name.empty() && device.name.empty()) return not_now("its name cannot be read");

  const double total = reading[Metric::mem_total];
  if (constraints.mem_free.kind == Limit::given && total < constraints.mem_free.value)
    return never(fmt::format("has {} in all; wanted at least {} free", format_size(total),
                             format_size(constraints.mem_free.value)));
  const bool mine = constraints.mine && only_mine(reading, *constraints.mine);
  return Weighing(device, reading, constraints, mine).verdict();
}

bool busy_from_waking(const Judgement& judgement, const Reading& reading) {
  constexpr Duration kWaking = std::chrono::seconds(3);
  return judgement.only_busy && reading.attached_for && *reading.attached_for < kWaking;
}

// `--where RULE`: the rule language on one reading of one GPU.

namespace {

Result<> answerable(const Rule& rule) {
  for (const Node& node : rule.nodes) {
    if (std::holds_alternative<Held>(node))
      return fail(fmt::format("'{}' asks what held for a time, and one reading cannot tell; leave out the 'for'",
                              to_text(rule)));
    const auto* comparison = std::get_if<Comparison>(&node);
    if (comparison != nullptr && comparison->window)
      return fail(fmt::format("'{}' asks for a mean over time, and there is one reading only", to_text(*comparison)));
  }
  for (const Metric metric : rule.signals())
    if (info(metric).of != Of::gpu)
      return fail(fmt::format("{} is not a GPU signal: lull cannot choose a GPU by it", info(metric).name));
    else if (is_learned(metric))
      return fail(fmt::format("{} is learned over time: lull cannot choose a GPU by it", info(metric).name));
  return {};
}

// The values that the rule looked at: "power 120 W, temp 71 C".
std::string values_text(const Rule& rule, const Reading& reading) {
  std::string text;
  for (const Metric metric : rule.signals())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", info(metric).name, value_text(metric, reading[metric]));
  return text;
}

std::string missing_text(const Rule& rule, const Reading& reading) {
  std::string text;
  for (const Metric metric : rule.signals())
    if (reading.why_missing(metric) != Absence::none)
      text += fmt::format("{}{} cannot be read ({})", text.empty() ? "" : ", ", info(metric).name,
                          to_string(reading.why_missing(metric)));
  return text;
}

}  // namespace

Result<Where> where_rule(const Rule& rule) {
  TRY(answerable(rule));
  const auto evaluator = std::make_shared<Evaluator>(Evaluator::compile(rule, EvaluatorOptions{}));
  return Where([rule, evaluator](const Reading& reading) {
    const std::array<Instant, 1> at = {Instant()};
    std::array<float, kMetrics> values{};
    Block block;
    block.at = at;
    for (std::size_t i = 0; i < kMetrics; ++i) {
      values[i] = static_cast<float>(reading.value[i]);
      block.value[i] = {&values[i], 1};
    }
    Answers answers{};
    evaluator->reset();
    if (!evaluator->feed({&block, 1}, answers)) return WhereAnswer{{}, "the rule could not be judged"};
    switch (answers[0]) {
      case Truth::yes: return WhereAnswer{true, ""};
      case Truth::no:
        return WhereAnswer{false, fmt::format("{}; wanted {}", values_text(rule, reading), to_text(rule))};
      case Truth::unknown: break;
    }
    return WhereAnswer{{}, missing_text(rule, reading)};
  });
}

}  // namespace lull
