#include "rule/rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <variant>

#include "base/units.h"
#include "rule/quantity.h"

namespace lull {

std::string_view symbol(Compare compare) {
  switch (compare) {
    case Compare::below: return "<";
    case Compare::at_most: return "<=";
    case Compare::above: return ">";
    case Compare::at_least: return ">=";
    case Compare::equal: return "==";
    case Compare::unequal: return "!=";
  }
  return "?";
}

std::string_view to_string(Compare compare) {
  switch (compare) {
    case Compare::below: return "below";
    case Compare::at_most: return "at most";
    case Compare::above: return "above";
    case Compare::at_least: return "at least";
    case Compare::equal: return "exactly";
    case Compare::unequal: return "other than";
  }
  return "?";
}

std::string_view to_string(Over over) {
  switch (over) {
    case Over::all: return "all";
    case Over::any: return "any";
    case Over::mean: return "mean";
    case Over::max: return "max";
    case Over::min: return "min";
  }
  return "?";
}

Rule Rule::of_one_gpu() const {
  Rule rule = *this;
  while (!rule.nodes.empty()) {
    const auto* each = std::get_if<Each>(&rule.nodes.back());
    if (each == nullptr) break;
    rule.nodes.resize(each->operand + 1);
  }
  return rule;
}

bool Rule::may_hold_for_some() const {
  return std::ranges::any_of(nodes, [](const Node& node) {
    if (const auto* each = std::get_if<Each>(&node)) return !each->all;
    const auto* comparison = std::get_if<Comparison>(&node);
    return std::holds_alternative<Not>(node) || (comparison != nullptr && comparison->over != Over::all &&
                                                 comparison->over != Over::mean && comparison->over != Over::max);
  });
}

bool Rule::looks_at_gpus() const {
  return std::ranges::any_of(signals(), [](Metric metric) { return info(metric).of == Of::gpu; });
}

bool Rule::stricter_with_more_gpus() const {
  return std::ranges::all_of(nodes, [](const Node& node) {
    if (const auto* comparison = std::get_if<Comparison>(&node))
      return comparison->over == Over::all || info(comparison->metric).of != Of::gpu;
    if (const auto* each = std::get_if<Each>(&node)) return each->all;
    return !std::holds_alternative<Not>(node);
  });
}

std::optional<Span> Rule::span() const {
  if (nodes.empty()) return std::nullopt;
  const auto* held = std::get_if<Held>(&nodes.back());
  return held == nullptr ? std::nullopt : std::optional(held->span);
}

NodeId Rule::condition() const {
  const auto* held = std::get_if<Held>(&nodes.back());
  return held == nullptr ? root() : held->operand;
}

std::vector<Metric> Rule::signals() const {
  std::vector<Metric> found;
  const auto add = [&](Metric metric) {
    if (std::find(found.begin(), found.end(), metric) == found.end()) found.push_back(metric);
  };
  for (const Node& node : nodes) {
    const auto* comparison = std::get_if<Comparison>(&node);
    if (comparison == nullptr) continue;
    add(comparison->metric);
    if (const auto whole = info(comparison->metric).whole; whole && comparison->share) add(*whole);
    if (comparison->over_idle) add(Metric::idle_power);
  }
  return found;
}

Rule with_span(const Rule& rule, Span span) {
  Rule changed = rule;
  if (auto* held = changed.nodes.empty() ? nullptr : std::get_if<Held>(&changed.nodes.back()))
    held->span = span;
  else if (!changed.nodes.empty())
    changed.nodes.emplace_back(Held{rule.root(), span});
  changed.text = to_text(changed);
  return changed;
}

// Rules back into text: in the language, and as a sentence for a person.

namespace {

// ---- in the language -------------------------------------------------------

class Writer {
 public:
  explicit Writer(const Rule& rule) : rule_(rule) {}

  std::string write(NodeId id) const {
    return std::visit([&](const auto& it) { return text(it); }, rule_[id]);
  }

 private:
  template <class T>
  bool is(NodeId id) const {
    return std::holds_alternative<T>(rule_[id]);
  }
  std::string guarded(NodeId id, bool guard) const { return guard ? "(" + write(id) + ")" : write(id); }

  std::string text(const Comparison& it) const { return to_text(it); }
  std::string text(const And& it) const {
    const auto loose = [&](NodeId id) { return is<Or>(id) || is<Held>(id); };
    return guarded(it.left, loose(it.left)) + " and " + guarded(it.right, loose(it.right) || is<And>(it.right));
  }
  std::string text(const Or& it) const {
    return guarded(it.left, is<Held>(it.left)) + " or " + guarded(it.right, is<Held>(it.right) || is<Or>(it.right));
  }
  std::string text(const Not& it) const {
    return "not " + guarded(it.operand, !is<Comparison>(it.operand) && !is<Each>(it.operand) && !is<Not>(it.operand));
  }
  std::string text(const Held& it) const {
    return guarded(it.operand, is<Held>(it.operand)) + " for " + to_text(it.span);
  }
  std::string text(const Each& it) const { return fmt::format("{}({})", it.all ? "all" : "any", write(it.operand)); }

  const Rule& rule_;
};

// ---- as a sentence ---------------------------------------------------------

std::string quantity(const Comparison& it) {
  const MetricInfo& row = info(it.metric);
  if (it.over_idle)
    return fmt::format("{} W {} its own idle power", std::abs(it.limit), it.limit < 0 ? "below" : "above");
  if (it.share) return fmt::format("{} % of {}", it.limit, info(row.whole.value_or(it.metric)).name);
  switch (row.unit) {
    case Unit::bytes: return format_size(it.limit);
    case Unit::bytes_per_second: return format_size(it.limit) + "/s";
    case Unit::seconds: return exact_limit(row, it.limit, false);
    case Unit::celsius: return fmt::format("{} °C", it.limit);
    default: break;
  }
  const std::string_view unit = unit_name(row.unit);
  return fmt::format("{}{}{}", it.limit, unit.empty() ? "" : " ", unit);
}

class Teller {
 public:
  explicit Teller(const Rule& rule, bool of_one = false) : rule_(rule), of_one_(of_one) {}

  std::string tell(NodeId id) const {
    return std::visit([&](const auto& it) { return say(it); }, rule_[id]);
  }

 private:
  bool compound(NodeId id) const { return !std::holds_alternative<Comparison>(rule_[id]); }
  std::string grouped(NodeId id) const { return compound(id) ? "(" + tell(id) + ")" : tell(id); }
  // A chain of the same joint needs no parentheses.
  template <class T>
  std::string joined(const T& it, std::string_view word) const {
    const bool same = std::holds_alternative<T>(rule_[it.left]);
    return fmt::format("{} {} {}", same ? tell(it.left) : grouped(it.left), word, grouped(it.right));
  }

  std::string subject(const Comparison& it) const {
    const MetricInfo& row = info(it.metric);
    std::string what =
        it.window ? fmt::format("the mean {} over {}", row.name, exact_duration(*it.window)) : std::string(row.name);
    if (is_own(it.metric)) return what;
    if (row.of != Of::gpu) return fmt::format("{} of the {}", what, row.of == Of::job ? "job" : "machine");
    switch (it.over) {
      case Over::all: return of_one_ ? "its " + std::string(it.window ? what.substr(4) : what) : what + " of every GPU";
      case Over::any: return what + " of at least one GPU";
      case Over::mean: return fmt::format("{} averaged over the GPUs", what);
      case Over::max: return fmt::format("the highest {} of the GPUs", what);
      case Over::min: return fmt::format("the lowest {} of the GPUs", what);
    }
    return what;
  }
  std::string say(const Comparison& it) const {
    return fmt::format("{} is {} {}", subject(it), to_string(it.compare), quantity(it));
  }
  std::string say(const And& it) const { return joined(it, "and"); }
  std::string say(const Or& it) const { return joined(it, "or"); }
  std::string say(const Not& it) const { return "it is not so that " + grouped(it.operand); }
  std::string say(const Held& it) const {
    const std::string what = compound(it.operand) && std::holds_alternative<Held>(rule_[it.operand])
                                 ? grouped(it.operand)
                                 : tell(it.operand);
    if (it.span.samples != 0)
      return fmt::format("{}, in {} sample{} in a row", what, it.span.samples, it.span.samples == 1 ? "" : "s");
    return fmt::format("{}, without a break for {}", what, exact_duration(it.span.time));
  }
  std::string say(const Each& it) const {
    return fmt::format("{} GPU by itself: {}", it.all ? "for every" : "for at least one",
                       Teller(rule_, true).tell(it.operand));
  }

  const Rule& rule_;
  bool of_one_;  // inside of all(…) and any(…): of the GPU that is looked at by itself
};

// Whether a value that lies in [low, high] can, or must, meet the comparison.
struct Reach {
  bool never;
  bool always;
};
Reach reach(const Comparison& it, double low, double high) {
  switch (it.compare) {
    case Compare::below: return {it.limit <= low, it.limit > high};
    case Compare::at_most: return {it.limit < low, it.limit >= high};
    case Compare::above: return {it.limit >= high, it.limit < low};
    case Compare::at_least: return {it.limit > high, it.limit <= low};
    case Compare::equal: return {it.limit < low || it.limit > high, false};
    case Compare::unequal: return {false, it.limit < low || it.limit > high};
  }
  return {false, false};
}

}  // namespace

std::string limit_text(const Comparison& comparison) {
  const std::string limit = exact_limit(info(comparison.metric), comparison.limit, comparison.share);
  return comparison.over_idle ? fmt::format("idle{}{}", limit.starts_with('-') ? "" : "+", limit) : limit;
}

std::string to_text(const Span& span) {
  if (span.samples != 0) return fmt::format("{} sample{}", span.samples, span.samples == 1 ? "" : "s");
  return exact_duration(span.time);
}

std::string to_text(const Comparison& comparison) {
  std::string value(info(comparison.metric).name);
  if (comparison.window) value = fmt::format("mean({}, {})", value, exact_duration(*comparison.window));
  if (comparison.over != Over::all) value = fmt::format("{}({})", to_string(comparison.over), value);
  return fmt::format("{} {} {}", value, symbol(comparison.compare), limit_text(comparison));
}

std::string to_text(const Rule& rule) { return rule.nodes.empty() ? "" : Writer(rule).write(rule.root()); }

std::string describe(const Rule& rule) {
  return rule.nodes.empty() ? "" : "Holds while " + Teller(rule).tell(rule.root()) + ".";
}

std::vector<std::string> remarks(const Rule& rule) {
  std::vector<std::string> out;
  bool held = false;
  for (const Node& node : rule.nodes) {
    held |= std::holds_alternative<Held>(node);
    const auto* it = std::get_if<Comparison>(&node);
    if (it == nullptr) continue;
    held |= it->window.has_value();
    const MetricInfo& row = info(it->metric);
    // A share of the power limit can go beyond it for a moment, a CPU share beyond one core.
    const bool capped =
        it->metric == Metric::util || it->metric == Metric::mem_util || (it->share && row.whole == Metric::mem_total);
    const double low = is_own(it->metric)          ? -std::numeric_limits<double>::infinity()
                       : row.unit == Unit::celsius ? -273.15
                                                   : 0;
    if (it->over_idle) continue;  // below its idle a card is seldom, but it can be
    const Reach found = reach(*it, low, capped ? 100 : std::numeric_limits<double>::infinity());
    if (found.never) out.push_back(fmt::format("'{}' can never hold", to_text(*it)));
    if (found.always) out.push_back(fmt::format("'{}' always holds where {} is known", to_text(*it), row.name));
  }
  if (!held) out.emplace_back("there is no 'for': a single sample is enough to fire");
  return out;
}

}  // namespace lull
