#pragma once
// The page of lull-serve: the files beside this one, packed in by the build (tools/pack.cmake): now.* is what the GPUs
// do now, history.js and policy.js are the other two views, views.css is the look of those.
// What it shares with the page of `lull replay` is in replay/page.h.

#include <string_view>

namespace lull {

extern const std::string_view packed_now_html;
extern const std::string_view packed_now_css;
extern const std::string_view packed_now_js;
extern const std::string_view packed_views_css;
extern const std::string_view packed_views_js;
extern const std::string_view packed_history_js;
extern const std::string_view packed_policy_js;

}  // namespace lull
