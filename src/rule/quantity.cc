#include "rule/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "rule/lexer.h"

namespace lull {
namespace {

using Scale = UnitOfMeasure;
constexpr std::array kWatts = {Scale{"W", 1}, Scale{"kW", 1000}};
constexpr std::array kCelsius = {Scale{"C", 1}, Scale{"°C", 1}};
constexpr std::array kMegahertz = {Scale{"MHz", 1}, Scale{"GHz", 1000}};
constexpr std::array kPercent = {Scale{"%", 1}};

std::span<const Scale> scales_of(Unit unit) {
  switch (unit) {
    case Unit::percent: return kPercent;
    case Unit::bytes:
    case Unit::bytes_per_second: return size_units();
    case Unit::watts: return kWatts;
    case Unit::celsius: return kCelsius;
    case Unit::megahertz: return kMegahertz;
    case Unit::count:
    case Unit::seconds:
    case Unit::none: return {};
  }
  return {};
}

// "util takes a number, or one with %: 5, 5%"
std::string what_fits(const MetricInfo& row) {
  switch (row.unit) {
    case Unit::percent: return fmt::format("{} is in %: write 5 or 5%", row.name);
    case Unit::bytes:
      return fmt::format("{} is in bytes: write 1GiB, 700MiB, 20GB{}", row.name,
                         row.whole ? ", or 50% (of " + std::string(info(*row.whole).name) + ")" : "");
    case Unit::bytes_per_second: return fmt::format("{} is in bytes per second: write 1KiB, 20MiB or 1KiB/s", row.name);
    case Unit::watts:
      return fmt::format("{} is in watts: write 120W{}", row.name,
                         row.whole ? ", or 30% (of " + std::string(info(*row.whole).name) + ")" : "");
    case Unit::celsius: return fmt::format("{} is in degrees: write 80C", row.name);
    case Unit::megahertz: return fmt::format("{} is in MHz: write 500MHz or 1.2GHz", row.name);
    case Unit::seconds: return fmt::format("{} is a time: write 90s, 10m or 1h30m", row.name);
    case Unit::count:
    case Unit::none:
      if (is_own(row.metric))
        return fmt::format("{} is a signal of your own: write 2, 10m (in seconds) or 1GiB (in bytes)", row.name);
      return fmt::format("{} is a plain number: write 2", row.name);
  }
  return {};
}

std::optional<double> scaled(const MetricInfo& row, double number, std::string_view text, std::string_view unit) {
  const bool many_units = row.unit == Unit::seconds || row.unit == Unit::bytes || row.unit == Unit::bytes_per_second;
  // What a signal of the user's own is measured in, lull does not know: a number, a time in seconds, a size in bytes.
  if (is_own(row.metric) && !unit.empty()) {
    if (const auto time = parse_duration(lowered(text))) return std::chrono::duration<double>(*time).count();
    return size_unit(lowered(unit)) != 0 ? std::optional(number * size_unit(lowered(unit))) : std::nullopt;
  }
  if (unit.empty()) return many_units && number != 0 ? std::nullopt : std::optional(number);
  if (row.unit == Unit::seconds) {
    if (unit == "s") return number;  // also what is longer than parse_duration() takes
    const auto duration = parse_duration(lowered(text));
    if (!duration) return std::nullopt;
    return std::chrono::duration<double>(*duration).count();
  }
  std::string wanted = lowered(unit);
  if (row.unit == Unit::bytes_per_second && wanted.ends_with("/s")) wanted.resize(wanted.size() - 2);
  for (const Scale& scale : scales_of(row.unit))
    if (lowered(scale.name) == wanted) return number * scale.worth;
  const bool bytes = row.unit == Unit::bytes || row.unit == Unit::bytes_per_second;
  if (bytes && size_unit(wanted) != 0) return number * size_unit(wanted);  // 20G
  return std::nullopt;
}

// Plain digits that read back as the same number: the language has no exponents.
std::string digits(double number) {
  std::array<char, 400> text{};  // the smallest double has 324 behind the point
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed).ptr;
  return {text.data(), end};
}

}  // namespace

bool is_unit(std::string_view word) {
  const std::string small = lowered(word.ends_with("/s") ? word.substr(0, word.size() - 2) : word);
  const auto known = [&](std::span<const Scale> scales) {
    return std::any_of(scales.begin(), scales.end(), [&](const Scale& scale) { return lowered(scale.name) == small; });
  };
  return known(size_units()) || known(kWatts) || known(kCelsius) || known(kMegahertz) || known(kPercent) ||
         duration_unit(small) != 0 || small == "sample" || small == "samples";
}

Result<Quantity> read_limit(Metric metric, std::string_view number, std::string_view unit) {
  const MetricInfo& row = info(metric);
  const auto plain = to_double(number);
  if (!plain) return fail(fmt::format("'{}' is not a number", printable(number)));
  const bool share = unit == "%" && row.unit != Unit::percent && row.whole;
  const auto value = share ? plain : scaled(row, *plain, std::string(number) + std::string(unit), unit);
  if (!value)
    return fail(fmt::format("'{}{}' {}: {}", printable(number), printable(unit),
                            unit.empty() ? "needs a unit" : "does not fit", what_fits(row)));
  // Samples are float: a limit that no sample can reach is a slip of the pen.
  if (!(std::abs(*value) <= static_cast<double>(std::numeric_limits<float>::max())))
    return fail(fmt::format("'{}{}' is too large", printable(number), printable(unit)));
  return Quantity{.value = *value, .share = share};
}

Result<Span> read_span(std::string_view number, std::string_view unit) {
  const std::string small = lowered(unit);
  if (small == "samples" || small == "sample") {
    const auto count = to_unsigned(number);
    if (!count || *count == 0 || *count > std::numeric_limits<std::uint32_t>::max())
      return fail(fmt::format("'{} samples': it takes a whole number from 1 on", printable(number)));
    return Span{.samples = static_cast<std::uint32_t>(*count)};
  }
  if (unit.empty())
    return fail(fmt::format("'{0}' needs a unit: {0}s, {0}m or {0}h; or {0} samples", printable(number)));
  const auto time = parse_duration(std::string(number) + small);
  if (time) return Span{.time = *time};
  constexpr std::array<std::string_view, 9> kUnits = {"ms", "s", "m", "h", "d", "min", "sec", "samples", "hours"};
  return fail(fmt::format("'{}{}' is neither a duration (500ms, 30s, 5m, 1h30m, 1d) nor '5 samples'{}",
                          printable(number), printable(unit), unit.size() > 2 ? did_you_mean(unit, kUnits) : ""));
}

bool is_quantity(std::string_view text) {
  Lexer lexer(text);
  return lexer.take().kind == Token::Kind::quantity && lexer.peek().kind == Token::Kind::end;
}

Result<Span> parse_span(std::string_view text) {
  if (!is_quantity(text)) return fail(fmt::format("'{}' is not a duration, such as 30m or 5 samples", printable(text)));
  const Token token = Lexer(text).take();
  return read_span(token.number, token.unit);
}

Result<Rule> rule_or_span(std::string_view text, std::string_view otherwise) {
  if (!is_quantity(text)) return parse_rule(text);
  return with_span(TRY(parse_rule(otherwise)), TRY(parse_span(text)));
}

Result<Duration> read_window(std::string_view number, std::string_view unit) {
  const Span span = TRY(read_span(number, unit));
  if (span.samples != 0) return fail("a window is a time, such as 5m, and not a number of samples");
  if (span.time <= Duration::zero()) return fail("a window must be longer than 0");
  return span.time;
}

std::string exact_duration(Duration duration) {
  struct Part {
    std::int64_t worth;
    std::string_view name;
  };
  constexpr std::array kParts = {Part{86'400'000'000'000, "d"}, Part{3'600'000'000'000, "h"}, Part{60'000'000'000, "m"},
                                 Part{1'000'000'000, "s"},      Part{1'000'000, "ms"},        Part{1, "ns"}};
  std::string text;
  std::int64_t rest = duration.count();
  for (const Part& part : kParts) {
    if (rest / part.worth != 0) text += fmt::format("{}{}", rest / part.worth, part.name);
    rest %= part.worth;
  }
  return text.empty() ? "0s" : text;
}

std::string_view unit_name(Unit unit) {
  switch (unit) {
    case Unit::percent: return "%";
    case Unit::bytes: return "B";
    case Unit::watts: return "W";
    case Unit::celsius: return "C";
    case Unit::megahertz: return "MHz";
    case Unit::bytes_per_second: return "B/s";
    case Unit::seconds: return "s";
    case Unit::count:
    case Unit::none: return "";
  }
  return "";
}

std::string exact_limit(const MetricInfo& row, double value, bool share) {
  if (share) return digits(value) + "%";
  if (row.unit == Unit::bytes || row.unit == Unit::bytes_per_second) {
    // The unit that takes the fewest characters: 20GB, 1536MiB, 5B.
    std::string best = digits(value) + "B";
    for (const Scale& scale : size_units()) {
      if (std::fmod(value, scale.worth) != 0 || std::abs(value / scale.worth) >= 1e15) continue;
      std::string text = digits(value / scale.worth) + std::string(scale.name);
      if (text.size() < best.size()) best = std::move(text);
    }
    return best;
  }
  if (row.unit == Unit::seconds) {
    const double ns = std::round(value * 1e9);
    if (ns > 0 && ns < 4e18) {
      std::string text = exact_duration(Duration(static_cast<std::int64_t>(ns)));
      const auto read = parse_duration(text);  // refuses what is longer than 10000d
      if (read && std::chrono::duration<double>(*read).count() == value) return text;
    }
    return digits(value) + "s";
  }
  if (row.unit == Unit::percent) return digits(value);
  return digits(value) + std::string(unit_name(row.unit));
}

}  // namespace lull
