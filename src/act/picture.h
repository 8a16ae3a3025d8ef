#pragma once
// Readings as a picture: a small SVG file that needs nothing else, for the folder of evidence, its page and mail. One
// row for each signal of each GPU, over the window of the rule; what is unknown is a gap.

#include <string>
#include <string_view>

#include "act/facts.h"
#include "act/past.h"

namespace lull {

inline constexpr int kPictureWidth = 640;
inline constexpr int kNarrowPicture = 360;  // for a phone

// What the rule fired on: the utilisation; where the rule does not look at it, the first signal of the GPUs that it
// does look at. Empty: there is none.
std::string picture_of(const FiringFacts& facts, std::string_view host);
// Utilisation, power and effort of its GPUs as they were recorded, and what else of them the rule looks at.
std::string picture_of(const FiringFacts& facts, std::string_view host, const Past& past, int width = kPictureWidth);

}  // namespace lull
