#pragma once
// Reads a chunk of NDJSON: one flat object per line, one line per GPU per sample. Keys
// are columns; those we do not know are passed over whatever they hold. A missing
// key and null are both unknown.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/batch.h"
#include "trace/bytes.h"
#include "trace/row_parser.h"
#include "trace/schema.h"

namespace lull::trace {

class NdjsonParser final : public RowParser {
 public:
  using RowParser::RowParser;
  void parse(const Chunk& chunk, Batch& batch) override;

 private:
  void row(std::string_view line, std::uint64_t number, Batch& batch);
  const Column* column_of(std::string_view key);

  std::size_t next_ = 0;  // keys come in the same order again
};

// For detect_schema: the keys of some lines, each once, and one line's values for them.
std::vector<std::string> keys_of_lines(const std::vector<std::string_view>& lines);
std::vector<std::string> cells_of_object(std::string_view line, const std::vector<std::string>& keys);

// JSON as it comes in, piece by piece: what was met is told to a handler at once, so that
// a document of any size needs next to no memory. Several documents may follow each other
// in a file. One that is broken (cut off by a crash, and the next begins in the middle of
// it) is told, and reading goes on where the next one begins.
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
  // Behind a value, where a comma or the end of the list or object is next: who knows what follows may skip over it.
  bool behind_value() const { return state_ == State::comma; }

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

// What the parsers of JSON documents have in common: `Handler`, a JsonHandler, gets what is met in each chunk, and adds
// rows to the batch of that chunk.
template <class Handler, class Base = RowParser>
class JsonRowParser : public Base, protected Handler {
 public:
  using Base::Base;

  void parse(const Chunk& chunk, Batch& batch) override {
    begin(batch);
    std::string_view text = chunk.text();
    if (chunk.first && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    stream_.feed(text, *this);
    batch.lines = stream_.line() - 1 - lines_before_;
  }
  void finish(Batch& batch) override {
    begin(batch);
    stream_.finish(*this);
  }

 protected:
  std::uint64_t here() const { return stream_.line() - lines_before_; }  // the line in this chunk
  void begin(Batch& batch) {
    batch.reset(this->schema_.metrics.size());
    batch_ = &batch;
    lines_before_ = stream_.line() - 1;
  }

  Batch* batch_ = nullptr;
  JsonStream stream_;
  std::uint64_t lines_before_ = 0;
};

}  // namespace lull::trace
