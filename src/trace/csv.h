#pragma once
// Reads a chunk of CSV. A clean row goes the fast way, cell by cell; a row with
// quotes, odd units or anything unexpected is read again the slow, obvious way,
// which has the last word and says what is wrong. Both give equal answers.

#include "trace/batch.h"
#include "trace/bytes.h"
#include "trace/row_parser.h"
#include "trace/schema.h"

namespace lull::trace {

// What the fast way needs of a column.
struct FastColumn {
  Role role;
  bool wanted;
  bool pstate;
  std::size_t slot;
  float* values;  // of a signal: where they go
  double scale;
  double unit_scale;
  std::string_view unit;
};

class CsvParser final : public RowParser {
 public:
  explicit CsvParser(const Schema& schema);

  void parse(const Chunk& chunk, Batch& batch) override;

  // Tests only: every row the slow way.
  void set_slow(bool slow) { slow_ = slow; }

 private:
  void aim(Batch& batch);
  const char* fast_time(const char* p, std::int64_t& ns);
  const char* fast_row(const char* p, const char* end, Batch& batch);
  void slow_row(std::string_view line, std::uint64_t number, Batch& batch);
  bool is_header(const std::vector<std::string>& cells) const;
  // Both false where they said what is wrong with the line.
  bool slow_time(const std::vector<std::string>& cells, const std::string& cell, std::uint64_t number, Batch& batch);
  bool slow_value(const std::string& cell, const Column& column, std::uint64_t number, Batch& batch);

  TimeReader time_;
  std::vector<FastColumn> fast_;
  Identities::Cells names_;          // of the row that is read the fast way
  const char* same_time_ = nullptr;  // the time cell of the row before, in this chunk
  std::size_t same_time_size_ = 0;
  std::int64_t same_time_ns_ = 0;
  bool slow_ = false;
};

}  // namespace lull::trace
