#pragma once
// A Rule is a condition on the readings of the GPUs in scope, as a small tree:
// comparisons at the leaves; and, or, not and "held without a break for" above.
// It is a plain value: copy it, change a threshold or a duration in it, compare it.
// Nothing here looks at readings; rule/evaluator.h does.
//
// The nodes lie in one vector, operands before the nodes that use them, the root
// last. So walking a rule is a loop, and no hostile nesting can exhaust the stack.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "gpu/metric.h"

namespace lull {

enum class Compare : std::uint8_t { below, at_most, above, at_least, equal, unequal };
std::string_view symbol(Compare compare);     // "<="
std::string_view to_string(Compare compare);  // "at most"

// How one answer comes of the values of several GPUs. max and min are of the
// values, so `max(util) < 5` is known to be no as soon as one GPU is known to be busy.
enum class Over : std::uint8_t { all, any, mean, max, min };
std::string_view to_string(Over over);

using NodeId = std::uint32_t;

struct Comparison {
  Over over = Over::all;
  Metric metric = Metric::util;
  std::optional<Duration> window = {};  // the mean over this much time, of each GPU
  Compare compare = Compare::below;
  double limit = 0;        // in the metric's unit, or in % if `share`
  bool share = false;      // of the metric's whole: power < 30%
  bool over_idle = false;  // above the card's own idle power: power < idle+3W
  bool operator==(const Comparison&) const = default;
};
struct And {
  NodeId left, right;
  bool operator==(const And&) const = default;
};
struct Or {
  NodeId left, right;
  bool operator==(const Or&) const = default;
};
struct Not {
  NodeId operand;
  bool operator==(const Not&) const = default;
};
// For how long: a time, or (where `samples` is not 0) so many samples in a row.
struct Span {
  Duration time = {};
  std::uint32_t samples = 0;
  bool operator==(const Span&) const = default;
};
struct Held {
  NodeId operand;
  Span span;
  bool operator==(const Held&) const = default;
};
// any(CONDITION) or all(CONDITION): the condition is judged on each GPU by itself.
struct Each {
  NodeId operand;
  bool all;
  bool operator==(const Each&) const = default;
};
using Node = std::variant<Comparison, And, Or, Not, Held, Each>;

inline constexpr std::size_t kMaxRuleText = 4096;
inline constexpr std::size_t kMaxRuleDepth = 64;
inline constexpr std::size_t kMaxRuleWindows = 16;

struct Rule {
  std::vector<Node> nodes;
  std::string text = {};   // as it was written
  bool for_hangs = false;  // the named rule for hangs: not asked where Device::idle_looks_hung

  NodeId root() const { return static_cast<NodeId>(nodes.size() - 1); }
  const Node& operator[](NodeId id) const { return nodes[id]; }
  bool operator==(const Rule& other) const { return nodes == other.nodes; }  // the text does not matter

  // The span of the outermost `for`, if the rule is "… for SPAN" as a whole.
  std::optional<Span> span() const;
  // What must hold for that long: the rule without its outermost `for`.
  NodeId condition() const;
  // The same without an outermost any(…) or all(…): what it asks of one GPU by itself.
  Rule of_one_gpu() const;
  // It may hold because of some GPUs while others are busy: any(…), min(…), a negation. Not so where they are compared
  // all, or by a mean of them.
  bool may_hold_for_some() const;
  // It looks at a signal of GPUs; one on `cpu` alone does not.
  bool looks_at_gpus() const;
  // Every signal that is looked at, the wholes of shares included, each once.
  std::vector<Metric> signals() const;
  // Whether one more GPU can never turn a no into a yes: every comparison is over all of them, and none is negated.
  bool stricter_with_more_gpus() const;
};

// Says where the text is wrong (with a caret below it), what was expected there,
// and the nearest valid word.
Result<Rule> parse_rule(std::string_view text);

// The rule in its canonical spelling; parses back to an equal rule, if it is not longer than kMaxRuleText by then.
std::string to_text(const Rule& rule);
// A comparison, a span or a limit as it is written in a rule: "util < 5", "30m", "1GiB".
std::string to_text(const Comparison& comparison);
std::string to_text(const Span& span);
std::string limit_text(const Comparison& comparison);
// What the rule means, as a sentence for a person.
std::string describe(const Rule& rule);
// What a person should know about a rule that is valid but surely not meant:
// can never hold, always holds, fires on a single sample.
std::vector<std::string> remarks(const Rule& rule);

// For sweeps. Both leave the tree's shape alone and update the text.
// The same rule with another outermost span; one without any gets one.
Rule with_span(const Rule& rule, Span span);
// The same rule with another limit wherever `metric` is compared. The limit is
// text as in a rule ("5", "120W", "30%"): it is checked against the signal's unit.
Result<Rule> with_limit(const Rule& rule, Metric metric, std::string_view limit);

}  // namespace lull
