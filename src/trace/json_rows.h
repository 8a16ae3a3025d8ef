#pragma once
// What the parsers of JSON documents have in common: `Handler`, a JsonHandler, gets what is met in each chunk, and adds
// rows to the batch of that chunk.

#include <cstdint>
#include <string_view>

#include "trace/ndjson.h"
#include "trace/row_parser.h"

namespace lull::trace {

template <class Handler>
class JsonRowParser : public RowParser, protected Handler {
 public:
  explicit JsonRowParser(const Schema& schema) : schema_(schema), identities_(schema.identity) {}

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
  const Identities& identities() const override { return identities_; }

 protected:
  std::uint64_t here() const { return stream_.line() - lines_before_; }  // the line in this chunk

  const Schema& schema_;
  Identities identities_;
  Batch* batch_ = nullptr;

 private:
  void begin(Batch& batch) {
    batch.reset(schema_.metrics.size());
    batch_ = &batch;
    lines_before_ = stream_.line() - 1;
  }

  JsonStream stream_;
  std::uint64_t lines_before_ = 0;
};

}  // namespace lull::trace
