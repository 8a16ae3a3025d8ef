#pragma once
// JSON documents that each hold all GPUs at one moment, one after another: `gpustat --json`
// appended to a file, `lull status --watch --json`. On one line each or on many.

#include <string>
#include <string_view>
#include <vector>

#include "trace/format.h"
#include "trace/json_stream.h"

namespace lull::trace {

bool is_snapshots(std::string_view head, const ReadHow& how);
Result<Schema> open_snapshots(std::string_view head, const ReadHow& how);

class SnapshotParser final : public RowParser, private JsonHandler {
 public:
  explicit SnapshotParser(const Schema& schema) : schema_(schema), identities_(schema.identity) {}

  void parse(const Chunk& chunk, Batch& batch) override;
  void finish(Batch& batch) override;
  const Identities& identities() const override { return identities_; }

 private:
  struct Gpu {
    GpuName name;
    std::string slice;  // of a MIG device
    std::vector<float> values;
    std::vector<int> ranks;
    std::string wrong;  // what is
    // Who has it; as the cells of rows say it (trace/rows.h), empty: not told.
    std::string pids;
    std::string users;
    std::string command;
  };
  struct Process {
    std::string pid;
    std::string user;
    std::string name;
    std::string line;                // its command line as one text
    std::vector<std::string> words;  // or in words
    bool draws = false;              // only: a desktop's, which has no job on the card
  };
  void open(bool object) override;
  void close() override;
  void key(std::string_view name) override { key_ = name; }
  void value(std::string_view text, bool quoted) override;
  void document_end() override;
  void broken() override;
  void of_gpu(std::string_view text, bool quoted);
  void of_process(std::string_view text, bool quoted);
  void end_process();
  std::uint64_t here() const { return stream_.line() - lines_before_; }

  const Schema& schema_;
  Identities identities_;
  JsonStream stream_;
  Batch* batch_ = nullptr;
  std::uint64_t lines_before_ = 0;
  std::string key_;
  std::size_t depth_ = 0;
  bool in_gpus_ = false;
  bool in_processes_ = false;
  std::string process_key_;  // within a process: what a list in it is of
  Process process_;
  std::string time_;  // of this document
  std::string host_;
  std::vector<Gpu> gpus_;
};

}  // namespace lull::trace
