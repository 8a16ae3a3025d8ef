#pragma once
// The page that `lull replay --html` writes: everything but the data, which goes in
// the place of kPageData. Styles and script are inside, so the file stands alone.

#include <string>
#include <string_view>

namespace lull::replay {

inline constexpr std::string_view kPageData = "@DATA@";
std::string page_template();

}  // namespace lull::replay
