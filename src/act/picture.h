#pragma once
// The readings that a rule fired on as a picture: a small SVG file that needs nothing else, for the folder of evidence
// and for mail. One row for each GPU, over the window of the rule; what is unknown is a gap.

#include <string>
#include <string_view>

#include "act/facts.h"

namespace lull {

// Of the utilisation; where the rule does not look at it, of the first signal of the GPUs that it does look at. Empty:
// there is none.
std::string picture_of(const FiringFacts& facts, std::string_view host);

}  // namespace lull
