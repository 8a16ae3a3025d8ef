#include "view/keys.h"

#include <array>
#include <optional>
#include <utility>

#include "base/text.h"

namespace lull {
namespace {

constexpr char kEscape = '\033';

struct Sequence {
  std::string_view bytes;
  KeyKind kind;
};
// As xterm, the Linux console, screen and tmux send them.
constexpr std::array kSequences = {
    Sequence{"\033[A", KeyKind::up},         Sequence{"\033OA", KeyKind::up},    Sequence{"\033[B", KeyKind::down},
    Sequence{"\033OB", KeyKind::down},       Sequence{"\033[C", KeyKind::right}, Sequence{"\033OC", KeyKind::right},
    Sequence{"\033[D", KeyKind::left},       Sequence{"\033OD", KeyKind::left},  Sequence{"\033[5~", KeyKind::page_up},
    Sequence{"\033[6~", KeyKind::page_down}, Sequence{"\033[H", KeyKind::home},  Sequence{"\033OH", KeyKind::home},
    Sequence{"\033[1~", KeyKind::home},      Sequence{"\033[F", KeyKind::end},   Sequence{"\033OF", KeyKind::end},
    Sequence{"\033[4~", KeyKind::end},
};

// The length of an escape sequence that nobody here knows; 0: it is not all there yet.
std::size_t length_of_unknown(std::string_view text) {
  if (text.size() < 2) return 0;
  if (text[1] != '[' && text[1] != 'O') return 2;  // Alt and a letter
  for (std::size_t i = 2; i < text.size(); ++i)
    if (text[i] >= 0x40 && text[i] <= 0x7E) return i + 1;
  return 0;
}

}  // namespace

std::vector<Key> KeyReader::feed(std::string_view bytes) {
  rest_ += bytes;
  std::vector<Key> keys;
  std::string_view text = rest_;
  while (!text.empty()) {
    const char first = text.front();
    if (first == kEscape) {
      const Sequence* known = nullptr;
      for (const Sequence& sequence : kSequences)
        if (text.starts_with(sequence.bytes)) known = &sequence;
      const std::size_t length = known != nullptr ? known->bytes.size() : length_of_unknown(text);
      if (length == 0) break;
      if (known != nullptr) keys.push_back({known->kind});
      text.remove_prefix(length);
    } else if (first == '\r' || first == '\n') {
      keys.push_back({KeyKind::enter});
      text.remove_prefix(1);
    } else if (first == '\b' || first == '\x7f') {
      keys.push_back({KeyKind::backspace});
      text.remove_prefix(1);
    } else {
      const std::size_t length = utf8_length(text);
      if (length == 0 && text.size() < 4 && (static_cast<unsigned char>(first) & 0xC0) == 0xC0) break;  // half a letter
      const std::size_t taken = length == 0 ? 1 : length;
      const bool shown = length > 0 && static_cast<unsigned char>(first) >= 0x20;
      if (shown) keys.push_back({KeyKind::text, std::string(text.substr(0, taken))});
      text.remove_prefix(taken);
    }
  }
  rest_ = std::string(text);
  return keys;
}

std::vector<Key> KeyReader::flush() {
  const bool escape = rest_.starts_with(kEscape);
  rest_.clear();
  return escape ? std::vector<Key>{{KeyKind::escape}} : std::vector<Key>{};
}

}  // namespace lull
