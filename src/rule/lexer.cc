#include "rule/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "rule/quantity.h"

namespace lull {
namespace {

constexpr std::size_t kShown = 72;  // of a long line: so much, around the place

bool letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool digit(char c) { return c >= '0' && c <= '9'; }
bool blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool beyond_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }
bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

}  // namespace

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

bool Token::is(std::string_view word) const {
  return (kind == Kind::word || kind == Kind::symbol) && same_word(text, word);
}

void Lexer::skip_blanks() {
  for (; at_ < text_.size(); ++at_) {
    if (text_[at_] == '#')
      at_ = std::min(text_.find('\n', at_), text_.size() - 1);
    else if (!blank(text_[at_]))
      return;
  }
}

// A unit may hold digits: 1h30m is one quantity.
std::size_t Lexer::end_of_unit(std::size_t from) const {
  while (from < text_.size() && (letter(text_[from]) || digit(text_[from]) || text_[from] == '.' ||
                                 text_[from] == '%' || text_[from] == '/' || beyond_ascii(text_[from])))
    ++from;
  return from;
}

void Lexer::take_quantity() {
  const std::size_t begin = at_;
  if (text_[at_] == '-') ++at_;
  while (at_ < text_.size() && (digit(text_[at_]) || text_[at_] == '.')) ++at_;
  token_ = {.kind = Token::Kind::quantity, .text = {}, .number = text_.substr(begin, at_ - begin), .begin = begin};
  std::size_t end = end_of_unit(at_);
  if (end == at_) {  // "5 samples", "30 %": the unit may stand apart
    const std::size_t number_end = at_;
    skip_blanks();
    end = end_of_unit(at_);
    if (!is_unit(text_.substr(at_, end - at_))) end = at_ = number_end;
  }
  token_.unit = text_.substr(at_, end - at_);
  at_ = end;
  token_.text = text_.substr(begin, end - begin);
}

void Lexer::advance() {
  skip_blanks();
  token_ = {.kind = Token::Kind::end, .text = text_.substr(at_, 0), .begin = at_};
  if (at_ >= text_.size()) return;
  const char c = text_[at_];
  const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
  if (digit(c) || (c == '.' && digit(next)) || (c == '-' && (digit(next) || next == '.'))) {
    take_quantity();
    return;
  }
  std::size_t end = at_ + 1;
  if (letter(c)) {
    token_.kind = Token::Kind::word;
    while (end < text_.size() && (letter(text_[end]) || digit(text_[end]))) ++end;
  } else {
    token_.kind = Token::Kind::symbol;
    constexpr std::string_view kDoubling = "<>=!&|";  // "<=", and what other languages write
    if (kDoubling.find(c) != std::string_view::npos && kDoubling.find(next) != std::string_view::npos && next != '\0' &&
        !(next == '!' && c != '='))
      ++end;
    while (beyond_ascii(c) && end < text_.size() && continues(text_[end])) ++end;
  }
  token_.text = text_.substr(at_, end - at_);
  at_ = end;
}

std::unexpected<Error> Lexer::wrong(const Token& where, std::string_view what) const {
  const std::size_t begin = std::min(where.begin, text_.size());
  std::size_t line_begin = begin == 0 ? 0 : text_.rfind('\n', begin - 1) + 1;  // npos + 1 is 0
  std::size_t line_end = std::min(text_.find('\n', begin), text_.size());
  const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(line_begin), '\n');
  const bool many_lines = text_.find('\n') != std::string_view::npos;
  const std::string place = fmt::format("{}column {}", many_lines ? fmt::format("line {}, ", line) : "",
                                        characters(text_.substr(line_begin, begin - line_begin)) + 1);
  if (begin - line_begin > kShown / 2) line_begin = begin - kShown / 2;
  while (line_begin < begin && continues(text_[line_begin])) ++line_begin;
  line_end = std::min(line_end, line_begin + kShown);
  while (line_end > begin && line_end < text_.size() && continues(text_[line_end])) --line_end;
  const std::string shown = printable(text_.substr(line_begin, line_end - line_begin));
  const std::size_t before = characters(printable(text_.substr(line_begin, begin - line_begin)));
  const std::size_t marked = std::min(where.text.size(), line_end > begin ? line_end - begin : 0);
  const std::size_t length = std::max<std::size_t>(1, characters(text_.substr(begin, marked)));
  return fail(fmt::format("bad rule, {}: {}\n  {}\n  {}^{}", place, what, shown, std::string(before, ' '),
                          std::string(length - 1, '~')));
}

}  // namespace lull
