#pragma once
// The page of lull-serve: now.html, now.css and now.js beside this file, packed in by the build (tools/pack.cmake).
// What it shares with the page of `lull replay` is in replay/page.h.

#include <string_view>

namespace lull {

extern const std::string_view packed_now_html;
extern const std::string_view packed_now_css;
extern const std::string_view packed_now_js;

}  // namespace lull
