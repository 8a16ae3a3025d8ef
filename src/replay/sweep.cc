#include "replay/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "rule/quantity.h"

namespace lull::replay {
namespace {

// Times before counts; a sweep may not mix them, since neither is longer.
bool shorter(const Span& a, const Span& b) { return a.samples != b.samples ? a.samples < b.samples : a.time < b.time; }

Result<> sort_spans(Axis& axis) {
  std::vector<std::pair<Span, std::string>> spans;
  for (const std::string& value : axis.values) spans.emplace_back(TRY(parse_span(value)), value);
  const bool counts = spans.front().first.samples != 0;
  for (const auto& [span, text] : spans)
    if ((span.samples != 0) != counts) return fail("--sweep for: either durations or numbers of samples, not both");
  std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return shorter(a.first, b.first); });
  for (std::size_t i = 0; i + 1 < spans.size(); ++i)
    if (spans[i].first == spans[i + 1].first)
      return fail(fmt::format("--sweep for: {} and {} are the same", spans[i].second, spans[i + 1].second));
  for (std::size_t i = 0; i < spans.size(); ++i) axis.values[i] = to_text(spans[i].first);
  return {};
}

}  // namespace

Result<Axis> parse_axis(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos)
    return fail(fmt::format("--sweep: '{}' is not NAME=VALUE,…, such as for=5m,30m or util=1,5", printable(text)));
  Axis axis;
  axis.name = trim(text.substr(0, equals));
  if (axis.name != "for" && !metric_by_name(axis.name)) {
    std::vector<std::string_view> names = {"for"};
    for (const MetricInfo& row : kMetricTable) names.push_back(row.name);
    return fail(fmt::format("--sweep: '{}' is neither 'for' nor a signal{}", printable(axis.name),
                            did_you_mean(axis.name, names)));
  }
  for (const std::string_view value : split(text.substr(equals + 1), ',')) {
    if (trim(value).empty()) return fail(fmt::format("--sweep {}: a value is empty", axis.name));
    axis.values.emplace_back(trim(value));
    if (axis.name != "for") continue;
    if (auto span = parse_span(trim(value)); !span)
      return std::unexpected(std::move(span).error().during("--sweep for"));
  }
  return axis;
}

Result<std::vector<Combination>> combine(const Policy& base, std::vector<Axis>& axes) {
  std::vector<Combination> combinations;
  if (axes.empty()) return combinations;
  std::size_t count = 1;
  for (Axis& axis : axes) {
    for (const Axis& other : axes)
      if (&other != &axis && other.name == axis.name) return fail(fmt::format("--sweep {}: given twice", axis.name));
    if (axis.name == "for") TRY(sort_spans(axis));
    count *= axis.values.size();
    if (count > kMostCombinations) return fail(fmt::format("--sweep: more than {} combinations", kMostCombinations));
  }
  for (std::size_t i = 0; i < count; ++i) {
    Combination one{std::vector<std::size_t>(axes.size()), base};
    std::size_t rest = i;
    for (std::size_t a = axes.size(); a-- > 0; rest /= axes[a].values.size())
      one.choice[a] = rest % axes[a].values.size();
    for (std::size_t a = 0; a < axes.size(); ++a) {
      const std::string& value = axes[a].values[one.choice[a]];
      if (axes[a].name == "for")
        one.policy.idle = with_span(one.policy.idle, TRY(parse_span(value)));
      else if (const auto metric = metric_by_name(axes[a].name))
        one.policy.idle = TRY(with_limit(one.policy.idle, *metric, value));
    }
    combinations.push_back(std::move(one));
  }
  return combinations;
}

Result<> start_from_first(Policy& policy, const std::vector<Axis>& axes) {
  if (policy.idle.span()) return {};
  for (const Axis& axis : axes)
    if (axis.name == "for") policy.idle = with_span(policy.idle, TRY(parse_span(axis.values.front())));
  return {};
}

}  // namespace lull::replay
