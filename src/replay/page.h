#pragma once
// The page that `lull replay --html` writes. It is made of page.html, page.css, base.js and
// page.js beside this file, which the build packs in (tools/pack.cmake); styles and
// script go inside, so the page stands alone.

#include <string>
#include <string_view>

namespace lull::replay {

extern const std::string_view packed_page_html;
extern const std::string_view packed_page_css;
extern const std::string_view packed_page_js;
extern const std::string_view packed_chart_js;  // likewise: charts and tables of policies
extern const std::string_view packed_base_js;   // stands before it, and before the scripts of other pages

// `data`: JSON, safe inside a script.
std::string make_page(std::string_view data);

}  // namespace lull::replay
