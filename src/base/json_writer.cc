#include "base/json_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "base/text.h"

namespace lull {
namespace {

// Doubles hold every whole number up to here.
constexpr double kLargestWhole = 9007199254740992.0;

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\b': out += "\\b"; return;
    case '\f': out += "\\f"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  if (static_cast<unsigned char>(c) < 0x20)
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
  else
    out += c;
}

}  // namespace

void append_json_text(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 1)
      append_escaped(out, text[0]);
    else
      out += length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
}

JsonWriter& JsonWriter::key(std::string_view name) {
  begin_value();
  append_json_text(out_, name);
  out_ += indent_ < 0 ? ":" : ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  begin_value();
  out_ += json;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  begin_value();
  append_json_text(out_, text);
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  if (std::abs(number) <= kLargestWhole && number == std::floor(number))
    return whole(static_cast<std::int64_t>(number));  // -0 is 0
  begin_value();
  fmt::format_to(std::back_inserter(out_), "{}", number);
  return *this;
}

JsonWriter& JsonWriter::value(std::span<const std::string> texts) {
  begin_array();
  for (const std::string& text : texts) value(text);
  return end_array();
}

JsonWriter& JsonWriter::whole(std::int64_t number) {
  begin_value();
  fmt::format_to(std::back_inserter(out_), "{}", number);
  return *this;
}

JsonWriter& JsonWriter::whole_unsigned(std::uint64_t number) {
  begin_value();
  fmt::format_to(std::back_inserter(out_), "{}", number);
  return *this;
}

JsonWriter& JsonWriter::open(char bracket) {
  begin_value();
  out_ += bracket;
  filled_ += '\0';
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  const bool empty = filled_.back() == '\0';
  filled_.pop_back();
  if (!empty) new_line();
  out_ += bracket;
  return *this;
}

// The comma and the line before a value or a key; a value stands on the line of its key.
void JsonWriter::begin_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (filled_.empty()) return;
  if (filled_.back() != '\0') out_ += ',';
  filled_.back() = '\1';
  new_line();
}

void JsonWriter::new_line() {
  if (indent_ < 0) return;
  out_ += '\n';
  out_.append(filled_.size() * static_cast<std::size_t>(indent_), ' ');
}

}  // namespace lull
