#include "replay/page.h"

#include <array>
#include <utility>

namespace lull::replay {

std::string make_page(std::string_view data) {
  const std::string script = std::string(packed_base_js).append(packed_chart_js).append(packed_page_js);
  const std::array<std::pair<std::string_view, std::string_view>, 3> parts = {
      {{"@STYLE@", packed_page_css}, {"@DATA@", data}, {"@SCRIPT@", script}}};
  std::string page;
  page.reserve(packed_page_html.size() + packed_page_css.size() + data.size() + script.size());
  std::string_view rest = packed_page_html;
  for (const auto& [mark, text] : parts) {  // in the order of the page, so that nothing in a part is taken for a mark
    const std::size_t at = rest.find(mark);
    page.append(rest.substr(0, at)).append(text);
    rest.remove_prefix(at + mark.size());
  }
  return page.append(rest);
}

}  // namespace lull::replay
