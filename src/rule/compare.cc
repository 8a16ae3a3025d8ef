#include "rule/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace lull {
namespace {

bool holds(float value, Compare compare, float limit) {
  switch (compare) {
    case Compare::below: return value < limit;
    case Compare::at_most: return value <= limit;
    case Compare::above: return value > limit;
    case Compare::at_least: return value >= limit;
    case Compare::equal: return value == limit;
    case Compare::unequal: return value != limit;
  }
  return false;
}

#if defined(__SSE2__)
// Sixteen comparisons (each lane all ones or all zeros) as sixteen bits.
Word pack(__m128 a, __m128 b, __m128 c, __m128 d) {
  const __m128i low = _mm_packs_epi32(_mm_castps_si128(a), _mm_castps_si128(b));
  const __m128i high = _mm_packs_epi32(_mm_castps_si128(c), _mm_castps_si128(d));
  return static_cast<Word>(static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(low, high))));
}

template <Compare kCompare>
__m128 compare_four(__m128 value, __m128 limit) {
  if constexpr (kCompare == Compare::below) return _mm_cmplt_ps(value, limit);
  if constexpr (kCompare == Compare::at_most) return _mm_cmple_ps(value, limit);
  if constexpr (kCompare == Compare::above) return _mm_cmpgt_ps(value, limit);
  if constexpr (kCompare == Compare::at_least) return _mm_cmpge_ps(value, limit);
  if constexpr (kCompare == Compare::equal) return _mm_cmpeq_ps(value, limit);
  return _mm_cmpneq_ps(value, limit);
}

template <Compare kCompare>
void compare_whole_words(const float* values, std::size_t words, float limit, Word* yes, Word* no) {
  const __m128 wanted = _mm_set1_ps(limit);
  const __m128 largest = _mm_set1_ps(std::numeric_limits<float>::max());
  const __m128 sign = _mm_set1_ps(-0.0F);
  for (std::size_t w = 0; w < words; ++w) {
    Word hit = 0;
    Word known = 0;
    for (unsigned part = 0; part < 4; ++part, values += 16) {
      const __m128 a = _mm_loadu_ps(values);
      const __m128 b = _mm_loadu_ps(values + 4);
      const __m128 c = _mm_loadu_ps(values + 8);
      const __m128 d = _mm_loadu_ps(values + 12);
      const auto finite = [&](__m128 v) { return _mm_cmple_ps(_mm_andnot_ps(sign, v), largest); };
      hit |= pack(compare_four<kCompare>(a, wanted), compare_four<kCompare>(b, wanted),
                  compare_four<kCompare>(c, wanted), compare_four<kCompare>(d, wanted))
             << (16 * part);
      known |= pack(finite(a), finite(b), finite(c), finite(d)) << (16 * part);
    }
    yes[w] = known & hit;
    no[w] = known & ~hit;
  }
}
#endif

}  // namespace

void compare_values_plainly(const float* values, std::size_t samples, Compare compare, float limit, Word* yes,
                            Word* no) {
  for (std::size_t w = 0; w < words_for(samples); ++w, values += kWordSamples) {
    const std::size_t count = std::min(kWordSamples, samples - w * kWordSamples);
    yes[w] = no[w] = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (!std::isfinite(values[i])) continue;
      (holds(values[i], compare, limit) ? yes[w] : no[w]) |= Word{1} << i;
    }
  }
}

void compare_values(const float* values, std::size_t samples, Compare compare, float limit, Word* yes, Word* no) {
#if defined(__SSE2__)
  const std::size_t whole = samples / kWordSamples;
  switch (compare) {
    case Compare::below: compare_whole_words<Compare::below>(values, whole, limit, yes, no); break;
    case Compare::at_most: compare_whole_words<Compare::at_most>(values, whole, limit, yes, no); break;
    case Compare::above: compare_whole_words<Compare::above>(values, whole, limit, yes, no); break;
    case Compare::at_least: compare_whole_words<Compare::at_least>(values, whole, limit, yes, no); break;
    case Compare::equal: compare_whole_words<Compare::equal>(values, whole, limit, yes, no); break;
    case Compare::unequal: compare_whole_words<Compare::unequal>(values, whole, limit, yes, no); break;
  }
  const std::size_t done = whole * kWordSamples;
  compare_values_plainly(values + done, samples - done, compare, limit, yes + whole, no + whole);
#else
  compare_values_plainly(values, samples, compare, limit, yes, no);
#endif
}

}  // namespace lull
