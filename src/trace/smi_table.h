#pragma once
// The table that plain `nvidia-smi` prints, appended to a file again and again (-l, a loop,
// cron), of any driver since 2012: two or three lines for each GPU, the time above it.

#include <string>
#include <string_view>

#include "trace/format.h"

namespace lull::trace {

bool is_smi_table(std::string_view head, const ReadHow& how);
Result<Schema> open_smi_table(std::string_view head, const ReadHow& how);

class SmiTableParser final : public RowParser {
 public:
  explicit SmiTableParser(const Schema& schema) : schema_(schema), identities_(schema.identity) {}

  void parse(const Chunk& chunk, Batch& batch) override;
  const Identities& identities() const override { return identities_; }

 private:
  void line(std::string_view text, std::uint64_t number, bool cut, Batch& batch);
  void readings(std::string_view text, std::uint64_t number, Batch& batch);

  const Schema& schema_;
  Identities identities_;
  bool in_gpus_ = false;  // in the part of the table that lists GPUs
  bool fresh_ = false;    // a time that no table has used yet
  bool timed_ = false;    // this table has one
  std::int64_t now_ = 0;
  std::string gpu_;  // of the line before; its readings are on this one
};

}  // namespace lull::trace
