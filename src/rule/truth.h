#pragma once
// Truth is an answer: yes, no, or unknown. Unknown is never idle: only a definite
// yes may lead to an action. Answers are the truths of up to 1024 samples at once,
// as two bit masks, so that `and`, `or` and `not` cost a few instructions for 64
// samples together. A sample with neither bit set is unknown; both are never set.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gpu/block.h"

namespace lull {

enum class Truth : std::uint8_t { unknown, no, yes };
constexpr std::string_view to_string(Truth truth) {
  return truth == Truth::yes ? "yes" : truth == Truth::no ? "no" : "unknown";
}

using Word = std::uint64_t;
inline constexpr std::size_t kWordSamples = 64;
inline constexpr std::size_t kWords = kBlockSamples / kWordSamples;
using Mask = std::array<Word, kWords>;

constexpr std::size_t words_for(std::size_t samples) { return (samples + kWordSamples - 1) / kWordSamples; }
// The lowest `count` bits.
constexpr Word low_bits(std::size_t count) { return count >= kWordSamples ? ~Word{0} : (Word{1} << count) - 1; }
constexpr bool bit(const Mask& mask, std::size_t sample) {
  return (mask[sample / kWordSamples] >> (sample % kWordSamples) & 1) != 0;
}

// Only the words that the samples of a block need are written; the rest are
// whatever they were. Bits behind the last sample of a written word are 0.
struct Answers {
  Mask yes;
  Mask no;

  Truth operator[](std::size_t sample) const {
    return bit(yes, sample) ? Truth::yes : bit(no, sample) ? Truth::no : Truth::unknown;
  }
};

}  // namespace lull
