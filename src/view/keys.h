#pragma once
// Keys as a terminal sends them: letters, and sequences that begin with an escape, which may arrive in pieces.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lull {

enum class KeyKind : std::uint8_t {
  text,
  enter,
  backspace,
  escape,
  up,
  down,
  left,
  right,
  page_up,
  page_down,
  home,
  end
};

struct Key {
  KeyKind kind = KeyKind::text;
  std::string text = {};  // one UTF-8 letter, of `text`
  bool operator==(const Key&) const = default;
};

class KeyReader {
 public:
  // The keys in what has arrived. An escape at the very end is kept until more comes, or flush() is called.
  std::vector<Key> feed(std::string_view bytes);
  bool pending() const { return !rest_.empty(); }
  std::vector<Key> flush();  // nothing more came: it was the key Escape

 private:
  std::string rest_;
};

}  // namespace lull
