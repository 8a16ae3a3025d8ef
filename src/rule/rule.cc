#include "rule/rule.h"

#include <algorithm>
#include <utility>

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

std::string_view words(Compare compare) {
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

std::string_view words(Over over) {
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

}  // namespace lull
