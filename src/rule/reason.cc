#include "rule/reason.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <variant>
#include <vector>

#include "base/calendar.h"
#include "base/units.h"
#include "rule/quantity.h"

namespace lull {
namespace {

constexpr std::size_t kSparkWidth = 32;

template <class Range, class Text>
std::string listed(const Range& range, Text&& text, std::string_view last_joint) {
  std::string out;
  std::size_t i = 0;
  for (const auto& item : range) {
    if (i > 0) out += i + 1 == range.size() ? std::string(last_joint) : ", ";
    out += text(item);
    ++i;
  }
  return out;
}

std::string on_gpus(const std::vector<std::string>& gpus) {
  if (gpus.empty()) return "no GPU";
  return (gpus.size() == 1 ? "GPU " : "GPUs ") + listed(gpus, [](const std::string& gpu) { return gpu; }, ", ");
}

std::string so_long(Duration held, std::uint64_t samples, const Span& needed) {
  if (needed.samples != 0) return fmt::format("{} sample{}", samples, samples == 1 ? "" : "s");
  return format_duration(held);
}

std::string at_time(WallTime time) { return format_local(time, "%H:%M:%S"); }

std::string story_line(const Story& story, bool utf8) {
  const auto value = [&](double v) { return value_text(story.metric, v, story.share); };
  const std::string whose = !story.gpu.empty()                 ? "GPU " + story.gpu
                            : is_own(story.metric)             ? "signal"
                            : info(story.metric).of == Of::job ? "job"
                                                               : "machine";
  const std::string signal = story.window == Duration::zero()
                                 ? std::string(info(story.metric).name)
                                 : fmt::format("mean({}, {})", info(story.metric).name, format_duration(story.window));
  std::string line =
      fmt::format("{:<7} {:<9} {} {} {}", whose, signal, value(story.first), utf8 ? "→" : "->", value(story.last));
  if (!std::isnan(story.worst))
    line +=
        fmt::format(", {} {}{}", story.high_is_worse ? "highest" : "lowest", value(story.worst),
                    story.worst_ago > Duration::zero() ? fmt::format(" {} ago", format_duration(story.worst_ago)) : "");
  const bool percent = story.share || info(story.metric).unit == Unit::percent;
  if (story.trace.size() > 1) line += "  " + sparkline(story.trace, kSparkWidth, utf8, percent ? 100 : kUnknown);
  return line;
}

}  // namespace

std::span<const Metric> instead_of(Metric metric) {
  static constexpr std::array kUtil = {Metric::power, Metric::mem_util, Metric::clock, Metric::procs};
  static constexpr std::array kPower = {Metric::util, Metric::mem_util, Metric::temp};
  static constexpr std::array kMemory = {Metric::procs, Metric::openers};
  static constexpr std::array kHolders = {Metric::openers, Metric::procs, Metric::mem_used};
  static constexpr std::array kActivity = {Metric::util, Metric::power};
  static constexpr std::array kJob = {Metric::cpu, Metric::io, Metric::quiet};
  switch (metric) {
    case Metric::util: return kUtil;
    case Metric::power:
    case Metric::power_limit: return kPower;
    case Metric::mem_used:
    case Metric::mem_free:
    case Metric::mem_total: return kMemory;
    case Metric::procs:
    case Metric::openers: return kHolders;
    case Metric::mem_util:
    case Metric::clock:
    case Metric::pstate:
    case Metric::fan:
    case Metric::temp:
    case Metric::pcie:
    case Metric::sm:
    case Metric::tensor:
    case Metric::dram: return kActivity;
    case Metric::cpu:
    case Metric::io:
    case Metric::quiet:
    case Metric::beat:
    case Metric::job_util: return kJob;
    case Metric::user_idle:
    case Metric::effort:
    case Metric::learned:
    case Metric::idle_power: return {};
  }
  return {};
}

std::string value_text(Metric metric, double value, bool share) {
  if (!std::isfinite(value)) return "?";
  if (is_own(metric)) return fmt::format("{:.4g}", value);
  const Unit unit = info(metric).unit;
  if (share) return fmt::format("{:.0f} %", value);
  switch (unit) {
    case Unit::bytes: return format_size(value);
    case Unit::bytes_per_second: return format_size(value) + "/s";
    case Unit::seconds:
      return std::abs(value) < 9e9 ? format_duration(Duration(std::llround(value) * 1'000'000'000)) : "?";
    case Unit::percent:
      return std::abs(value) < 10 && value != std::round(value) ? fmt::format("{:.1f} %", value)
                                                                : fmt::format("{:.0f} %", value);
    default: break;
  }
  const std::string_view name = unit_name(unit);
  return fmt::format("{:.0f}{}{}", value, name.empty() ? "" : " ", name);
}

std::string sparkline(std::span<const float> values, std::size_t width, bool utf8, double top) {
  constexpr std::array<std::string_view, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::string_view kPlain = "_.:-=+*#";
  double low = 0;
  double high = top;
  if (std::isnan(top)) {
    high = 0;
    for (const float value : values) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, static_cast<double>(value));
      high = std::max(high, static_cast<double>(value));
    }
  }
  std::string out;
  const std::size_t cells = std::min(width, values.size());
  for (std::size_t cell = 0; cell < cells; ++cell) {
    // The highest of a cell's values: a burst must not vanish in a mean.
    float peak = kUnknownSample;
    const std::size_t end = (cell + 1) * values.size() / cells;
    for (std::size_t i = cell * values.size() / cells; i < end; ++i) peak = std::fmax(peak, values[i]);
    if (!std::isfinite(peak)) {
      out += utf8 ? " " : "?";
      continue;
    }
    const double part = high > low ? std::clamp((static_cast<double>(peak) - low) / (high - low), 0.0, 1.0) : 0;
    const auto level = static_cast<std::size_t>(std::lround(part * 7));
    if (utf8)
      out += kBars[level];
    else
      out += kPlain[level];
  }
  return out;
}

std::string to_string(const MissingSignal& missing) {
  const MetricInfo& row = info(missing.metric);
  if (missing.why == Absence::not_covered) {
    const std::string share = std::isfinite(missing.coverage) ? fmt::format("only {:.0f} %", missing.coverage * 100)
                                                              : "less than nine tenths";
    if (row.of != Of::gpu)
      return fmt::format("not all {} of the {} was counted since the sample before", row.name,
                         row.of == Of::job ? "job" : "machine");
    return fmt::format("{} of GPU {} was measured for {} of the time since the sample before", row.name, missing.gpu,
                       share);
  }
  std::string line = row.of == Of::gpu
                         ? fmt::format("GPU {} gives no {} ({})", missing.gpu, row.name, to_string(missing.why))
                         : fmt::format("there is no {} ({})", row.name, to_string(missing.why));
  if (!missing.instead.empty())
    line += fmt::format("; {} would do",
                        listed(missing.instead, [](Metric metric) { return std::string(info(metric).name); }, " or "));
  return line;
}

std::string missing_line(std::span<const MissingSignal> missing) {
  if (missing.empty()) return {};
  // GPUs that lack the same for the same reason are said together.
  std::string line = "this rule cannot be judged while ";
  std::vector<bool> said(missing.size());
  for (std::size_t i = 0; i < missing.size(); ++i) {
    if (said[i]) continue;
    MissingSignal joint = missing[i];
    std::size_t count = 1;
    for (std::size_t j = i + 1; j < missing.size(); ++j) {
      if (missing[j].metric != joint.metric || missing[j].why != joint.why || missing[j].instead != joint.instead)
        continue;
      said[j] = true;
      joint.gpu += ", " + missing[j].gpu;
      joint.coverage = std::fmin(joint.coverage, missing[j].coverage);
      ++count;
    }
    std::string words = to_string(joint);
    if (count > 1 && words.starts_with("GPU ")) {
      words.replace(0, 3, "GPUs");
      if (const std::size_t at = words.find(" gives no "); at != std::string::npos) words.replace(at, 10, " give no ");
    }
    if (const std::size_t at = words.find(" of GPU "); count > 1 && at != std::string::npos)
      words.replace(at, 8, " of GPUs ");
    if (i > 0) line += ", and ";
    line += words;
  }
  return line;
}

std::string headline(const Explanation& explanation) {
  const std::string where = explanation.of_gpus ? " on " + on_gpus(explanation.gpus) : "";
  const std::string held = so_long(explanation.held, explanation.samples, explanation.needed);
  const std::string since = at_time(explanation.since);
  const std::string unarmed = explanation.armed ? "" : fmt::format("; not armed yet ({})", explanation.arm);
  if (explanation.truth == Truth::yes) {
    if (!explanation.running) return fmt::format("'{}' holds{}{}", explanation.rule, where, unarmed);
    return fmt::format("'{}' has held for {}{}, since {}{}", explanation.rule, held, where, since, unarmed);
  }
  if (explanation.running)
    return fmt::format("'{}'{}: {} of {} so far{}", explanation.rule, where, held, to_text(explanation.needed),
                       unarmed);
  if (explanation.truth == Truth::no) return fmt::format("'{}' does not hold{}{}", explanation.rule, where, unarmed);
  if (explanation.of_gpus && explanation.gpus.empty())
    return fmt::format("'{}' cannot be judged: there is no GPU to judge", explanation.rule);
  return fmt::format("'{}' cannot be judged{}{}", explanation.rule, where, unarmed);
}

std::vector<std::string> to_string(const Explanation& explanation, bool utf8) {
  std::vector<std::string> lines = {headline(explanation)};
  for (const Story& story : explanation.stories) lines.push_back("  " + story_line(story, utf8));
  if (explanation.driver.absence != Absence::none)
    lines.push_back(fmt::format("  {}{}{}", to_string(explanation.driver.absence),
                                explanation.driver.detail.empty() ? "" : ": ", explanation.driver.detail));
  else if (explanation.truth == Truth::yes)
    for (const MissingSignal& one : explanation.missing) lines.push_back("  ignored: " + to_string(one));
  else if (explanation.truth == Truth::unknown && !explanation.running && !explanation.missing.empty())
    lines.push_back("  " + missing_line(explanation.missing));
  return lines;
}

Rule at_one_moment(Rule rule) {
  std::vector<bool> wanted(rule.nodes.size(), true);  // false: under an odd number of `not`
  for (std::size_t i = rule.nodes.size(); i-- > 0;) {
    const bool here = wanted[i];
    if (const auto* both = std::get_if<And>(&rule.nodes[i])) {
      wanted[both->left] = wanted[both->right] = here;
    } else if (const auto* either = std::get_if<Or>(&rule.nodes[i])) {
      wanted[either->left] = wanted[either->right] = here;
    } else if (const auto* negated = std::get_if<Not>(&rule.nodes[i])) {
      wanted[negated->operand] = !here;
    } else if (auto* held = std::get_if<Held>(&rule.nodes[i])) {
      wanted[held->operand] = here;
      held->span = {.samples = 1};
    } else if (const auto* each = std::get_if<Each>(&rule.nodes[i])) {
      wanted[each->operand] = here;
    } else if (auto* one = std::get_if<Comparison>(&rule.nodes[i]); one->window) {
      const bool little =
          one->compare == Compare::below || one->compare == Compare::at_most || one->compare == Compare::equal;
      one->window.reset();
      if (little == here) continue;
      constexpr double kLessThanAny = -1e9;
      one->share = one->over_idle = false;
      one->limit = kLessThanAny;
      one->compare = here ? Compare::at_least : Compare::below;
    }
  }
  return rule;
}

}  // namespace lull
