// `--where RULE`: the rule language on one reading of one GPU.

#include <fmt/format.h>

#include <array>
#include <memory>

#include "lease/choice.h"
#include "rule/evaluator.h"
#include "rule/reason.h"

namespace lull {

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
      return fail(fmt::format("{} is no signal of a GPU: a GPU cannot be chosen by it", info(metric).name));
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
                          words(reading.why_missing(metric)));
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
