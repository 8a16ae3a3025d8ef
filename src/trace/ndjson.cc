#include "trace/ndjson.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "trace/cells.h"
#include "trace/number.h"

namespace lull::trace {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// What stands for what behind a backslash; \u is not among them.
char unescaped(char c) {
  constexpr std::string_view kFrom = "nrtbf";
  constexpr std::string_view kTo = "\n\r\t\b\f";
  const std::size_t at = kFrom.find(c);
  return at == std::string_view::npos ? c : kTo[at];
}

unsigned hex_digit(char c) {
  return (is_digit(c) ? static_cast<unsigned>(c - '0') : static_cast<unsigned>((c | 0x20) - 'a') + 10U) & 15U;
}

// One member after the other of the object on a line. Knows no more of JSON than
// it takes to step over what is not ours.
class Members {
 public:
  explicit Members(std::string_view line) : p_(line.data()), end_(line.data() + line.size()) {
    skip();
    if (!take('{')) broken_ = true;
    skip();
    if (!broken_ && take('}')) ended_ = true;
  }

  struct Member {
    std::string_view key;    // as written, between the quotes
    std::string_view value;  // as written, between the quotes of a string
    bool text = false;       // a string
    bool nested = false;     // an object or array
  };
  bool next(Member& member) {
    if (broken_ || ended_) return false;
    broken_ = true;  // until proven whole
    skip();
    if (!string(member.key)) return false;
    skip();
    if (!take(':')) return false;
    skip();
    if (p_ == end_) return false;
    member.text = *p_ == '"';
    member.nested = *p_ == '{' || *p_ == '[';
    if (member.text) {
      if (!string(member.value)) return false;
    } else if (member.nested) {
      if (!nested()) return false;
    } else {
      const char* const from = p_;
      while (p_ < end_ && *p_ != ',' && *p_ != '}' && !is_blank(*p_)) ++p_;
      member.value = {from, static_cast<std::size_t>(p_ - from)};
      if (member.value.empty()) return false;
    }
    skip();
    if (take('}'))
      ended_ = true;
    else if (!take(','))
      return false;
    broken_ = false;
    return true;
  }
  // The object was whole, and nothing follows it.
  bool whole() {
    skip();
    return !broken_ && ended_ && p_ == end_;
  }

 private:
  void skip() {
    while (p_ < end_ && is_blank(*p_)) ++p_;
  }
  bool take(char c) {
    if (p_ == end_ || *p_ != c) return false;
    ++p_;
    return true;
  }
  bool string(std::string_view& text) {
    if (!take('"')) return false;
    const char* const from = p_;
    while (p_ < end_ && *p_ != '"') p_ += *p_ == '\\' ? 2 : 1;
    if (p_ >= end_) {
      p_ = end_;
      return false;
    }
    text = {from, static_cast<std::size_t>(p_ - from)};
    ++p_;
    return true;
  }
  bool nested() {
    std::size_t depth = 0;
    std::string_view ignored;
    while (p_ < end_) {
      if (*p_ == '"') {
        if (!string(ignored)) return false;
        continue;
      }
      if (*p_ == '{' || *p_ == '[') ++depth;
      if ((*p_ == '}' || *p_ == ']') && --depth == 0) {
        ++p_;
        return true;
      }
      ++p_;
    }
    return false;
  }

  const char* p_;
  const char* end_;
  bool broken_ = false;
  bool ended_ = false;
};

std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    if (c == 'u' && i + 4 < text.size()) {
      unsigned code = 0;
      for (std::size_t k = 1; k <= 4; ++k) code = code * 16 + hex_digit(text[i + k]);
      append_utf8(out, code);
      i += 4;
    } else {
      out += unescaped(c);
    }
  }
  return out;
}

bool plain(std::string_view text) { return text.find('\\') == std::string_view::npos; }

}  // namespace

std::vector<std::string> keys_of_lines(const std::vector<std::string_view>& lines) {
  std::vector<std::string> keys;
  for (const std::string_view line : lines) {
    Members members(line);
    Members::Member member;
    while (members.next(member)) {
      std::string key = unescape(member.key);
      if (keys.size() < 1000 && std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(std::move(key));
    }
  }
  return keys;
}

std::vector<std::string> cells_of_object(std::string_view line, const std::vector<std::string>& keys) {
  std::vector<std::string> cells(keys.size());
  Members members(line);
  Members::Member member;
  while (members.next(member)) {
    const auto at = std::find(keys.begin(), keys.end(), unescape(member.key));
    if (at == keys.end() || member.nested || (!member.text && member.value == "null")) continue;
    cells[static_cast<std::size_t>(at - keys.begin())] = unescape(member.value);
  }
  return cells;
}

const Column* NdjsonParser::column_of(std::string_view key) {
  const std::size_t count = schema_.columns.size();
  if (next_ >= count) next_ = 0;
  if (count > 0 && schema_.columns[next_].name == key) return &schema_.columns[next_++];
  for (std::size_t i = 0; i < count; ++i)
    if (schema_.columns[i].name == key) {
      next_ = i + 1;
      return &schema_.columns[i];
    }
  return nullptr;
}

void NdjsonParser::row(std::string_view line, std::uint64_t number, Batch& batch) {
  if (trim(line).empty()) return;
  const std::size_t row = batch.rows;
  for (auto& column : batch.value) column[row] = kUnknownSample;
  Identities::Cells identity{};
  std::array<std::string, kMaxIdentity> unescaped;
  bool timed = !schema_.timed;
  if (timed) batch.at[row] = 0;
  Members members(line);
  Members::Member member;
  while (members.next(member)) {
    const Column* const column = plain(member.key) ? column_of(member.key) : column_of(unescape(member.key));
    if (column == nullptr || !column->wanted) continue;
    const bool null = !member.text && member.value == "null";
    std::string_view value = null ? std::string_view{} : member.value;
    std::string escaped;
    if (!plain(value)) value = escaped = unescape(value);
    if (column->role == Role::time) {
      const auto ns = parse_time(value, schema_.time);
      if (!ns || member.nested)
        return batch.add_bad(number, fmt::format("'{}' is not a time", printable(value.substr(0, 60))));
      if (schema_.time == TimeKind::calendar && zone_mismatch(value, schema_.zoned))
        return batch.add_bad(number, fmt::format("'{}' {} a time zone, unlike the first rows",
                                                 printable(value.substr(0, 60)), schema_.zoned ? "lacks" : "has"));
      batch.at[row] = *ns;
      timed = true;
    } else if (column->role == Role::metric) {
      const auto cell = member.nested ? std::nullopt : parse_cell(value, *column, schema_.decimal_comma);
      if (!cell)
        return batch.add_bad(
            number, fmt::format("{}: '{}' is not a number", printable(column->name), printable(value.substr(0, 60))));
      batch.value[column->slot][row] = *cell;
    } else if (!member.nested) {
      if (!escaped.empty()) {
        unescaped[column->slot] = std::move(escaped);
        value = unescaped[column->slot];
      }
      identity[column->slot] = trim(value);
    }
  }
  if (!members.whole()) return batch.add_bad(number, "it is not one whole JSON object");
  if (!timed) return batch.add_bad(number, "it has no time");
  const std::uint32_t gpu = identities_.find(identity);
  if (!identities_.usable(gpu)) return batch.add_bad(number, "it does not say which GPU");
  batch.gpu[row] = gpu;
  ++batch.rows;
}

void NdjsonParser::parse(const Chunk& chunk, Batch& batch) {
  const char* p = chunk.begin();
  const char* const end = chunk.end();
  batch.reset(schema_.metrics.size());
  if (chunk.first && chunk.text().starts_with("\xEF\xBB\xBF")) p += 3;
  while (p < end) {
    const auto* const newline = static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(end - p)));
    if (batch.full()) batch.make_space();
    row({p, static_cast<std::size_t>(newline - p)}, ++batch.lines, batch);
    p = newline + 1;
  }
}

namespace {

constexpr std::size_t kDeepest = 64;
constexpr std::size_t kLongest = 64U << 10;

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
  if (is_blank(c)) return;
  take_structure(c, to);
}

void JsonStream::take_text(char c, JsonHandler& to) {
  if (escape_left_ > 0) {  // the four digits of \u
    escape_code_ = escape_code_ * 16 + hex_digit(c);
    if (--escape_left_ == 0) append_utf8(token_, escape_code_);
    return;
  }
  if (state_ == State::escape) {
    state_ = State::text;
    if (c == 'u') {
      escape_left_ = 4;
      escape_code_ = 0;
    } else {
      token_ += unescaped(c);
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
