#pragma once
// The one writer of JSON: values in the order in which they are put, straight into a
// string. Unknown (NaN, infinity, an empty optional) is null; a number is the shortest
// text that reads back as the same number, whole ones without a fraction; bytes that
// are no UTF-8 become U+FFFD, so that a hostile name never costs the whole document.

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace lull {

class JsonWriter {
 public:
  // `indent` blanks a level, one member a line; negative: all on one line, without blanks.
  explicit JsonWriter(int indent = -1) : indent_(indent) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  // In an object: before each value.
  JsonWriter& key(std::string_view name);

  JsonWriter& null() { return raw("null"); }
  // Made by another writer, or a number in a form of its own.
  JsonWriter& raw(std::string_view json);
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool yes) { return raw(yes ? "true" : "false"); }
  JsonWriter& value(double number);
  template <std::signed_integral T>
  JsonWriter& value(T number) {
    return whole(number);
  }
  template <std::unsigned_integral T>
  JsonWriter& value(T number) {
    return whole_unsigned(number);
  }
  template <class T>
  JsonWriter& value(const std::optional<T>& maybe) {
    return maybe ? value(*maybe) : null();
  }
  JsonWriter& value(std::span<const std::string> texts);
  // What is empty where it is not known.
  JsonWriter& value_or_null(std::string_view text) { return text.empty() ? null() : value(text); }

  template <class T>
  JsonWriter& member(std::string_view name, const T& what) {
    return key(name).value(what);
  }
  JsonWriter& member_or_null(std::string_view name, std::string_view text) { return key(name).value_or_null(text); }

  std::string take() { return std::move(out_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& whole(std::int64_t number);
  JsonWriter& whole_unsigned(std::uint64_t number);
  void begin_value();
  void new_line();

  int indent_;
  std::string out_;
  std::string filled_;  // one a level that is open: 1 once it has a member
  bool after_key_ = false;
};

// A text as JSON writes it, quotes and all.
void append_json_text(std::string& out, std::string_view text);

}  // namespace lull
