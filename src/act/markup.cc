#include "act/markup.h"

#include "base/text.h"

namespace lull {

std::string for_markup(std::string_view text) {
  std::string out;
  for (const char c : printable_lines(text)) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  return out;
}

}  // namespace lull
