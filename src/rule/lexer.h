#pragma once
// Cuts the text of a rule into words, symbols and quantities (a number with its unit),
// and points at a place in it when something is wrong there.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace lull {

struct Token {
  enum class Kind : std::uint8_t { word, symbol, quantity, end };
  Kind kind = Kind::end;
  std::string_view text = {};
  std::string_view number = {};  // of a quantity: "-5", "1", "90.5"
  std::string_view unit = {};    // of a quantity: "", "%", "GiB", "h30m"
  std::size_t begin = 0;

  bool is(std::string_view word) const;  // a word or symbol, in any case of letters
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { advance(); }

  const Token& peek() const { return token_; }
  Token take() {
    const Token taken = token_;
    advance();
    return taken;
  }
  // One line that says what is wrong, then the line of the rule with a caret below the place.
  std::unexpected<Error> wrong(const Token& where, std::string_view what) const;

  std::string_view text() const { return text_; }

 private:
  void advance();
  void skip_blanks();
  void take_quantity();
  std::size_t end_of_unit(std::size_t from) const;

  std::string_view text_;
  std::size_t at_ = 0;
  Token token_;
};

bool same_word(std::string_view a, std::string_view b);  // in any case of letters

}  // namespace lull
