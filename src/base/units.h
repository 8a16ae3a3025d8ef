#pragma once
// Durations and sizes as people write them: 500ms, 30s, 5m, 2h, 1d, 1h30m;
// 20 minutes; 8GiB, 8G, 700MiB, 20GB. Only 0 needs no unit. Parsing says what was wrong and what would be right;
// formatting is short and parses back.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace lull {

Result<Duration> parse_duration(std::string_view text);  // 10000 days at most
Result<std::uint64_t> parse_size(std::string_view text);

// What one of a unit is worth in ns or bytes ("m" -> 60e9, "GiB" -> 1<<30); 0 if it is none.
double duration_unit(std::string_view unit);
double size_unit(std::string_view unit);

struct UnitOfMeasure {
  std::string_view name;
  double worth;
};
std::span<const UnitOfMeasure> size_units();  // the binary ones first, greatest first

std::string format_duration(Duration duration);  // "1h30m", "12s", "500ms", "0s"
std::string format_size(double bytes);           // "8.0 GiB", "512 B"

// The value of an option as written; the error names the option.
Result<Duration> duration_option(std::string_view name, std::string_view text);
Result<Duration> limit_option(std::string_view name, std::string_view text);  // more than 0
Result<std::size_t> choice_option(std::string_view name, std::string_view text,
                                  std::span<const std::string_view> words);  // as one_of()
Result<int> signal_option(std::string_view name, std::string_view text);

}  // namespace lull
