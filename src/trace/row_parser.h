#pragma once
// What turns the chunks of one file into rows. A format that keeps something in mind
// from chunk to chunk says so in its Schema (in_turn) and gets them in order, on one
// thread.

#include <string>
#include <vector>

#include "trace/batch.h"
#include "trace/bytes.h"
#include "trace/schema.h"

namespace lull::trace {

class RowParser {
 public:
  explicit RowParser(const Schema& schema) : schema_(schema), identities_(schema.identity) {}
  RowParser(const RowParser&) = delete;
  RowParser& operator=(const RowParser&) = delete;
  virtual ~RowParser() = default;

  virtual void parse(const Chunk& chunk, Batch& batch) = 0;
  // The rows that were still being put together when the file ended; parse() did not give them yet.
  virtual void finish(Batch& batch) { batch.reset(0); }
  const Identities& identities() const { return identities_; }
  // What the file names that is none of ours, for a message.
  virtual std::vector<std::string> strangers() const { return {}; }
  // By slot of the schema: the rank of the best source that was met, for Schema::ranks.
  virtual std::vector<int> best_ranks() const { return {}; }
  // Names of series of which some have labels that say who has the GPU, for Schema::labelled.
  virtual std::vector<std::string> labelled() const { return {}; }
  // By slot, for Schema::doubtful.
  virtual std::vector<std::string> doubtful() const { return {}; }
  // What --columns asked for and the file does not have.
  virtual Result<> check_choices() const { return {}; }

 protected:
  const Schema& schema_;
  Identities identities_;
};

// Each line with its number, without its end, and whether the file ended in the middle of it (the last number may lack
// digits then).
template <class EachLine>
void for_lines(const Chunk& chunk, Batch& batch, const EachLine& each) {
  std::string_view text = chunk.text();
  if (chunk.first && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    text.remove_prefix(std::min(end + 1, text.size()));
    each(line, ++batch.lines, text.empty() && chunk.unterminated);
  }
}

class LineParser : public RowParser {
 public:
  using RowParser::RowParser;
  void parse(const Chunk& chunk, Batch& batch) final {
    batch.reset(schema_.metrics.size());
    for_lines(chunk, batch,
              [&](std::string_view text, std::uint64_t number, bool cut) { line(text, number, cut, batch); });
  }

 protected:
  virtual void line(std::string_view text, std::uint64_t number, bool cut, Batch& batch) = 0;
};

}  // namespace lull::trace
