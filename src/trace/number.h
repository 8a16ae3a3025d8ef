#pragma once
// Plain decimals as telemetry writes them, read without a locale and several times
// faster than std::from_chars. What cannot be had exactly in one division says so.
//
// The text must be followed by a byte that does not belong to a number: every chunk
// of a trace ends in a newline, so nothing here looks at an end. read_number looks at
// eight bytes at once, so as many must follow that may be looked at.

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <system_error>

namespace lull::trace {

inline constexpr double kPowersOfTen[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                                          1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19};

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// The exact way: whatever from_chars takes. `end` bounds what may be read.
inline const char* read_number_exactly(const char* p, const char* end, double& number) {
  const auto [after, error] = std::from_chars(p, end, number);
  return error == std::errc{} && std::isfinite(number) ? after : nullptr;
}

inline constexpr std::uint64_t kWholePowersOfTen[] = {1,       10,        100,        1'000,      10'000,
                                                      100'000, 1'000'000, 10'000'000, 100'000'000};

// Reads on in a number whose digits so far are `digits` (which may wrap around); returns what follows.
inline const char* read_digits(const char* p, std::uint64_t& digits) {
  if constexpr (std::endian::native == std::endian::little) {
    for (;;) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, p, sizeof eight);
      eight ^= 0x3030303030303030;  // digits become 0 to 9, and nothing else does
      // The highest bit of every byte over 9. What is carried into the next byte lies behind the first one that counts.
      const std::uint64_t others = (eight | (eight + 0x7676767676767676)) & 0x8080808080808080;
      const int count = std::countr_zero(others) / 8;
      if (count == 0) return p;
      eight <<= 64 - 8 * count;  // as if zeros came first; then pairs, fours, and all eight
      eight = eight * 10 + (eight >> 8);
      eight = ((eight & 0x000000FF000000FF) * 0x000F424000000064 +
               ((eight >> 16) & 0x000000FF000000FF) * 0x0000271000000001) >>
              32;
      digits = digits * kWholePowersOfTen[count] + eight;
      p += count;
      if (count < 8) return p;
    }
  } else {
    while (is_digit(*p)) digits = digits * 10 + static_cast<std::uint64_t>(*p++ - '0');
    return p;
  }
}

// Reads a number at `p`; returns what follows it, or nullptr where there is none or
// from_chars had better look (an exponent, more than 19 digits). With more than 15
// digits the number may be off by a rounding or two: then `exact` is set to false.
inline const char* read_number(const char* p, double& number, bool& exact) {
  const bool negative = *p == '-';
  if (negative) ++p;
  std::uint64_t digits = 0;
  const char* const whole = p;
  p = read_digits(p, digits);
  auto count = p - whole;
  std::int64_t fraction = 0;
  if (*p == '.') {
    const char* const point = p;
    p = read_digits(p + 1, digits);
    fraction = p - point - 1;
    count += fraction;
  }
  if (count == 0 || count > 19 || *p == 'e' || *p == 'E') return nullptr;
  if (count > 15) exact = false;
  auto magnitude = static_cast<double>(digits);
  if (fraction > 0) magnitude /= kPowersOfTen[fraction];  // both exact: rounded once
  number = negative ? -magnitude : magnitude;
  return p;
}

// Reads "1710500669.052" as an integer of units 10^-places, with no rounding but
// of digits beyond the last place. nullptr: not a plain decimal, or too large.
inline const char* read_fixed(const char* p, int places, std::int64_t& value) {
  const bool negative = *p == '-';
  if (negative) ++p;
  constexpr std::int64_t kLimit = std::numeric_limits<std::int64_t>::max() / 10 - 1;
  std::int64_t total = 0;
  const char* const whole = p;
  for (; is_digit(*p); ++p) {
    if (total > kLimit) return nullptr;
    total = total * 10 + (*p - '0');
  }
  auto count = p - whole;
  int left = places;
  if (*p == '.') {
    for (++p; is_digit(*p); ++p, ++count) {
      if (left == 0) continue;
      if (total > kLimit) return nullptr;
      total = total * 10 + (*p - '0');
      --left;
    }
  }
  if (count == 0 || *p == 'e' || *p == 'E') return nullptr;
  for (; left > 0; --left) {
    if (total > kLimit) return nullptr;
    total *= 10;
  }
  value = negative ? -total : total;
  return p;
}

}  // namespace lull::trace
