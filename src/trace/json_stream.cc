#include "trace/json_stream.h"

#include "trace/number.h"

namespace lull::trace {
namespace {

constexpr std::size_t kDeepest = 64;
constexpr std::size_t kLongest = 64U << 10;

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool in_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '+' || c == '-';
}

}  // namespace

void append_utf8(std::string& out, unsigned code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

void JsonStream::feed(std::string_view piece, JsonHandler& to) {
  for (const char c : piece) {
    take(c, to);
    if (c == '\n') ++line_;
  }
}

void JsonStream::finish(JsonHandler& to) {
  if (state_ == State::word) end_value(to);
  if (state_ != State::before && state_ != State::lost) to.broken();
  state_ = State::before;
  levels_.clear();
}

// Whatever is open cannot be finished. A brace begins the next document, also in the middle of a line.
void JsonStream::give_up(char c, JsonHandler& to) {
  if (state_ != State::lost && state_ != State::before) to.broken();
  levels_.clear();
  token_.clear();
  state_ = State::lost;
  if (c == '{') {
    state_ = State::before;
    take_structure(c, to);
  }
}

void JsonStream::take(char c, JsonHandler& to) {
  if (state_ == State::text || state_ == State::escape) return take_text(c, to);
  if (state_ == State::word) {
    if (in_word(c) && token_.size() < kLongest) {
      token_ += c;
      return;
    }
    end_value(to);
  }
  if (blank(c)) return;
  take_structure(c, to);
}

void JsonStream::take_text(char c, JsonHandler& to) {
  if (escape_left_ > 0) {  // the four digits of \u
    const unsigned digit = is_digit(c) ? static_cast<unsigned>(c - '0') : static_cast<unsigned>((c | 0x20) - 'a') + 10U;
    escape_code_ = escape_code_ * 16 + (digit & 15U);
    if (--escape_left_ == 0) append_utf8(token_, escape_code_);
    return;
  }
  if (state_ == State::escape) {
    state_ = State::text;
    constexpr std::string_view kFrom = "nrtbf";
    constexpr std::string_view kTo = "\n\r\t\b\f";
    if (c == 'u') {
      escape_left_ = 4;
      escape_code_ = 0;
    } else if (const std::size_t k = kFrom.find(c); k != std::string_view::npos) {
      token_ += kTo[k];
    } else {
      token_ += c;
    }
    return;
  }
  if (c == '\\') {
    state_ = State::escape;
  } else if (c == '"') {
    state_ = after_text_;
    if (after_text_ == State::colon) {
      to.key(token_);
    } else {
      to.value(token_, true);
      if (levels_.empty()) {
        to.document_end();
        state_ = State::before;
      }
    }
  } else if (c == '\n' || token_.size() >= kLongest) {
    give_up(c, to);  // no string has a line's end in it: it was cut off
  } else {
    token_ += c;
  }
}

// A number, true, false or null is over.
void JsonStream::end_value(JsonHandler& to) {
  to.value(token_, false);
  state_ = State::comma;
  if (levels_.empty()) {
    to.document_end();
    state_ = State::before;
  }
}

void JsonStream::close_level(JsonHandler& to) {
  levels_.pop_back();
  to.close();
  state_ = levels_.empty() ? State::before : State::comma;
  if (levels_.empty()) to.document_end();
}

bool JsonStream::begin_value(char c, JsonHandler& to) {
  token_.clear();
  if (c == '"') {
    state_ = State::text;
    after_text_ = State::comma;
    return true;
  }
  if (c == '{' || c == '[') {
    if (levels_.size() >= kDeepest) return false;
    levels_.push_back(c == '{');
    to.open(c == '{');
    state_ = c == '{' ? State::key_or_end : State::value_or_end;
    return true;
  }
  if (!in_word(c)) return false;
  token_ = c;
  state_ = State::word;
  return true;
}

void JsonStream::take_structure(char c, JsonHandler& to) {
  switch (state_) {
    case State::before:
      if ((c == '{' || c == '[') && begin_value(c, to)) return;
      if (c == ',' || c == ']') return;  // documents in a list, of which we do not need the list
      return give_up(c, to);
    case State::lost:
      if (c == '{') give_up(c, to);
      return;
    case State::key_or_end:
      if (c == '}') return close_level(to);
      [[fallthrough]];
    case State::key:
      if (c != '"') return give_up(c, to);
      token_.clear();
      state_ = State::text;
      after_text_ = State::colon;
      return;
    case State::colon:
      if (c != ':') return give_up(c, to);
      state_ = State::value;
      return;
    case State::value_or_end:
      if (c == ']') return close_level(to);
      [[fallthrough]];
    case State::value:
      if (!begin_value(c, to)) give_up(c, to);
      return;
    case State::comma:
      if (c == ',') {
        state_ = levels_.back() ? State::key : State::value;
      } else if (c == (levels_.back() ? '}' : ']')) {
        close_level(to);
      } else {
        give_up(c, to);
      }
      return;
    case State::text:
    case State::escape:
    case State::word: return;
  }
}

}  // namespace lull::trace
