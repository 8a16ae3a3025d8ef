#pragma once
// JSON as it comes in, piece by piece: what was met is told to a handler at once, so that
// a document of any size needs next to no memory. Several documents may follow each other
// in a file. One that is broken (cut off by a crash, and the next begins in the middle of
// it) is told, and reading goes on where the next one begins.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lull::trace {

void append_utf8(std::string& out, unsigned code);

class JsonHandler {
 public:
  JsonHandler() = default;
  JsonHandler(const JsonHandler&) = delete;
  JsonHandler& operator=(const JsonHandler&) = delete;
  virtual ~JsonHandler() = default;

  virtual void open(bool object) = 0;  // or an array
  virtual void close() = 0;
  virtual void key(std::string_view name) = 0;
  virtual void value(std::string_view text, bool quoted) = 0;  // a string, a number, true, false, null
  virtual void document_end() = 0;
  virtual void broken() = 0;  // all that is open is given up
};

class JsonStream {
 public:
  void feed(std::string_view piece, JsonHandler& to);
  void finish(JsonHandler& to);                 // at the end of the file
  std::uint64_t line() const { return line_; }  // from 1

 private:
  enum class State : std::uint8_t {
    before,
    key_or_end,
    key,
    colon,
    value_or_end,
    value,
    comma,
    text,
    escape,
    word,
    lost
  };
  void take(char c, JsonHandler& to);
  void take_structure(char c, JsonHandler& to);
  bool begin_value(char c, JsonHandler& to);
  void end_value(JsonHandler& to);
  void close_level(JsonHandler& to);
  void give_up(char c, JsonHandler& to);
  void take_text(char c, JsonHandler& to);

  State state_ = State::before;
  State after_text_ = State::colon;
  std::vector<bool> levels_;  // true: an object
  std::string token_;
  std::uint64_t line_ = 1;
  unsigned escape_left_ = 0;
  unsigned escape_code_ = 0;
};

}  // namespace lull::trace
