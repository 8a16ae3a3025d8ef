#include "base/option_value.h"

#include <fmt/format.h>

#include <utility>

#include "base/process.h"
#include "base/units.h"

namespace lull {

Result<Duration> duration_option(std::string_view name, std::string_view text) {
  auto parsed = parse_duration(text);
  if (!parsed) return std::unexpected(std::move(parsed).error().during(name));
  return *parsed;
}

Result<Duration> limit_option(std::string_view name, std::string_view text) {
  const Duration limit = TRY(duration_option(name, text));
  if (limit == Duration::zero()) return fail(fmt::format("{} 0 leaves no time at all: 30s would be right", name));
  return limit;
}

Result<int> signal_option(std::string_view name, std::string_view text) {
  auto signal = parse_signal(text);
  if (!signal) return std::unexpected(std::move(signal).error().during(name));
  return *signal;
}

}  // namespace lull
