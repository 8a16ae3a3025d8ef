#pragma once
// The innermost loop: a column of values against a limit, 64 samples to a word.
// A value that is not finite is unknown: neither yes nor no.

#include <cstddef>

#include "rule/rule.h"
#include "rule/truth.h"

namespace lull {

// Writes words_for(samples) words of each; bits behind the last sample are 0.
void compare_values(const float* values, std::size_t samples, Compare compare, float limit, Word* yes, Word* no);

// The slow, obvious twin; also what other processors than x86 run.
void compare_values_plainly(const float* values, std::size_t samples, Compare compare, float limit, Word* yes,
                            Word* no);

}  // namespace lull
