#pragma once
// Reads a chunk of NDJSON: one flat object per line, one line per GPU per sample. Keys
// are columns; those we do not know are passed over whatever they hold. A missing
// key and null are both unknown.

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
  explicit NdjsonParser(const Schema& schema);

  void parse(const Chunk& chunk, Batch& batch) override;
  const Identities& identities() const override { return identities_; }

 private:
  void row(std::string_view line, std::uint64_t number, Batch& batch);
  const Column* column_of(std::string_view key);

  const Schema& schema_;
  Identities identities_;
  std::size_t next_ = 0;  // keys come in the same order again
};

// For detect_schema: the keys of some lines, each once, and one line's values for them.
std::vector<std::string> keys_of_lines(const std::vector<std::string_view>& lines);
std::vector<std::string> cells_of_object(std::string_view line, const std::vector<std::string>& keys);

}  // namespace lull::trace
