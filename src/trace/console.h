#pragma once
// Tables that tools print for as long as they run: nvidia-smi dmon and pmon, dcgmi dmon.
// Columns are told by the last header, which comes again and again and may change; a time
// stands at the start of a line (-o DT, -o T, or put there by `ts`) or nowhere.
//
// pmon has a line for each process: a GPU's utilisation and memory are the sums, unknown
// if any is; `procs` counts those with a compute context, who have the GPU: whoever only draws has no job there.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trace/any_time.h"
#include "trace/format.h"
#include "trace/names.h"

namespace lull::trace {

bool is_dmon(std::string_view head, const ReadHow& how);
bool is_pmon(std::string_view head, const ReadHow& how);
bool is_dcgmi(std::string_view head, const ReadHow& how);
Result<Schema> open_dmon(std::string_view head, const ReadHow& how);
Result<Schema> open_pmon(std::string_view head, const ReadHow& how);
Result<Schema> open_dcgmi(std::string_view head, const ReadHow& how);

enum class Console : std::uint8_t { dmon, pmon, dcgmi };

// What a header says: for each word of a row, what it is.
struct ConsoleColumn {
  enum class Kind : std::uint8_t { other, gpu, slice, pid, type, command, signal, pcie_part };
  std::string name;
  Kind kind = Kind::other;
  Meaning meaning;
};

class ConsoleParser final : public RowParser {
 public:
  explicit ConsoleParser(const Schema& schema);

  void parse(const Chunk& chunk, Batch& batch) override;
  void finish(Batch& batch) override;
  const Identities& identities() const override { return identities_; }

 private:
  struct Row {
    std::string gpu;
    std::string pid;
    std::string command;
    bool compute = false;
    std::vector<float> values;  // by slot
  };
  struct Gathered {  // pmon: the processes of a GPU in one tick
    std::vector<float> sums;
    int compute = 0;
    std::string pids;     // of those who compute, as the cells of rows say it (trace/rows.h)
    std::string command;  // of the first of them
  };

  void line(std::string_view text, std::uint64_t number, bool cut, Batch& batch);
  bool header(std::string_view text);
  bool take_time(std::string_view& text);
  // Nothing: said in the batch, or none of ours.
  std::optional<Row> row_of(std::string_view text, std::uint64_t number, Batch& batch) const;
  void add(const Row& row, Batch& batch);
  void add_process(const Row& row, Batch& batch);
  void close_tick(Batch& batch);

  const Schema& schema_;
  Console console_;
  Identities identities_;
  std::vector<ConsoleColumn> columns_;
  std::string last_time_text_;
  std::int64_t now_ = 0;

  std::vector<std::pair<std::string, Gathered>> tick_;  // in the order of the file
  std::set<std::pair<std::string, std::string>> seen_;  // GPU and process
  std::int64_t tick_at_ = 0;
};

}  // namespace lull::trace
