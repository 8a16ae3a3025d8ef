#pragma once
// One reading of all files of a trace from beginning to end, on as many threads as
// there are cores, 8 at most: chunks are read in turn, parsed at the same time, and used in
// turn again, so that the answer is that of one thread.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "trace/batch.h"
#include "trace/bytes.h"
#include "trace/format.h"
#include "trace/reader.h"
#include "trace/rollup.h"
#include "trace/schema.h"
#include "trace/sequence.h"
#include "trace/series.h"

namespace lull::trace {

struct File {
  std::string path;
  Fd spool;  // of what can be read only once: a copy without a name
  Schema schema;
  std::optional<std::int64_t> first;  // time of its first row
  std::uint64_t size = 0;
  std::shared_ptr<const RollUp> rollup = nullptr;  // read in its place
};

Result<ByteSource> open_source(const File& file);
std::string printable_path(const std::string& path);  // in a message

// Which GPU a row is of. A UUID names a GPU for good, in every file; an index (or
// whatever --columns gpu= chose) names one within its host. Rows whose UUID reads
// "[GPU is lost]" are told by their index.
class Registry {
 public:
  // `scope` keeps the indexes of different files apart; empty: they are the same GPUs.
  struct Found {
    std::uint32_t gpu = 0;
    bool by_uuid = false;
    bool fresh = false;
  };
  Found resolve(const std::vector<Role>& roles, const std::vector<std::string>& cells, std::string_view scope);

  std::size_t size() const { return gpus_.size(); }
  std::vector<TraceGpu>& gpus() { return gpus_; }

 private:
  std::uint32_t create(std::string label, std::string uuid);

  std::vector<TraceGpu> gpus_;
  std::map<std::string, std::uint32_t, std::less<>> by_uuid_;
  std::map<std::string, std::uint32_t, std::less<>> by_label_;  // scope, host and index
};

// Labels that several GPUs share get part of the UUID, so that people can tell them apart.
void make_labels_unique(std::vector<TraceGpu>& gpus);

// again: a roll-up was damaged, and is not used any more
enum class Outcome : std::uint8_t { done, too_late, overlap, again };

// One reading of all files from beginning to end, for the GPUs from one on.
class Pass {
 public:
  Pass(const TraceOptions& options, std::vector<File>& files, TraceSink& sink, bool sorted, bool separate,
       std::size_t from)
      : options_(options), files_(files), sink_(sink), sorted_(sorted), separate_(separate), from_(from) {
    report_.sorted_in_memory = sorted;
    for (const File& file : files) {
      total_ += file.size;
      partial_ = partial_ || file.schema.partial;
    }
    sink.meet(report_.holders);
    if (options.together && !sorted) make_ticks(options.gpus);
  }

  Result<Outcome> run() {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      file_ = i;
      if (auto read = read_file(); !read) return std::unexpected(std::move(read).error());
      if (outcome_ != Outcome::done) return outcome_;
    }
    finish();
    return Outcome::done;
  }
  TraceReport take_report() { return std::move(report_); }
  // The first GPU that must wait for another reading; as many as there are: none.
  std::size_t next_from() const { return std::min(to_, last_.size()); }

 private:
  // What one thread has of its own.
  struct Worker {
    explicit Worker(const File& file)
        : parser(file.rollup ? file.rollup->parser(file.schema) : make_parser(file.schema)) {}
    std::unique_ptr<RowParser> parser;
    Chunk chunk;
    Batch batch;
    std::vector<std::uint32_t> gpu_of;  // from the parser's GPUs to ours
    std::vector<float> holder_of;       // and to who has them
  };

  std::span<const Metric> metrics() const { return options_.metrics; }
  std::span<const Paced> gaps() const { return options_.gaps; }

  Result<> read_file();
  using Next = std::function<Result<bool>(Chunk& chunk)>;
  Result<> read_alone(const Next& next);
  Result<> read_rollup();
  Result<> finish_file();
  void check_values(Worker& worker) const;
  Result<> check_units() const;
  Result<> read_with(const Next& next);  // on as many threads as it takes
  Result<> consume(Worker& worker);
  Result<> consume_rows(Worker& worker);
  Result<> learn_gpus(Worker& worker);
  void serve(std::uint32_t gpu);
  Result<> add_to_series(const Worker& worker);
  Result<> keep_within_memory();
  bool served(std::size_t gpu) const { return gpu >= from_ && gpu < to_; }
  Ticks& make_ticks(std::size_t gpus);
  void add_to_ticks(Ticks& ticks, const Worker& worker);
  bool belongs_elsewhere(const Registry::Found& found, Instant at) const;
  void finish();

  const TraceOptions& options_;
  std::vector<File>& files_;
  TraceSink& sink_;
  bool sorted_;
  bool separate_;
  bool partial_ = false;  // rows of one GPU and moment may add up
  std::size_t from_;
  std::size_t to_ = static_cast<std::size_t>(-1);  // the GPUs behind it come in another reading
  std::size_t served_ = 0;
  std::size_t held_ = kMostHeld;
  Outcome outcome_ = Outcome::done;
  TraceReport report_;
  Registry registry_;
  std::vector<Series> series_;
  std::vector<Instant> last_;        // of each GPU, for telling files apart
  std::vector<std::size_t> met_in_;  // the file that named it last
  std::optional<Ticks> ticks_;
  std::uint64_t total_ = 0;
  std::uint64_t before_ = 0;  // bytes of the files before this one

  std::size_t file_ = 0;
  std::optional<Sequence> sequence_;  // of this file
  std::uint64_t line_ = 0;
  std::uint64_t file_rows_ = 0;
  std::uint64_t file_bad_ = 0;
  std::vector<UnitHint> hints_;       // by slot of this file
  Duration clock_set_back_{};         // by the files so far
  std::vector<std::size_t> slot_of_;  // from a wanted metric to the batch's column, or npos
};

}  // namespace lull::trace
