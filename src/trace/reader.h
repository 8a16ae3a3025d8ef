#pragma once
// Reads traces (of any format in format.h, packed or not, one file or many) as blocks of
// samples: per GPU, or of all GPUs together on common ticks. Rows may come in any
// order; while they come nearly in order of time, reading needs a few megabytes
// whatever the size of the file. If a row turns up too late for that, reading
// starts over (TraceSink::restart) and holds the trace in memory to sort it, as many
// GPUs at a time as there is memory for (TraceSink::next_part).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/time_range.h"
#include "gpu/block.h"
#include "gpu/metric.h"
#include "trace/holders.h"
#include "trace/schema.h"

namespace lull::trace {

// A length of time that changes with the sampling interval of a trace: the interval itself, or what is a gap between
// samples.
struct Paced {
  struct Change {
    Instant from;  // the first interval of the new kind begins here
    std::int64_t value;
  };
  std::int64_t first = 0;            // ns
  std::vector<Change> changes = {};  // in order of time; mostly none

  // What holds for the interval that ends at a sample.
  std::int64_t before(Instant sample) const { return changes.empty() ? first : find(sample); }
  std::int64_t longest() const;
  // How many of these samples, from one on, have the same.
  std::size_t same_for(std::span<const Instant> at, std::size_t from) const;

 private:
  std::int64_t find(Instant sample) const;
};

struct BadRow {
  std::string file;
  std::uint64_t line = 0;
  std::string why;
};

struct TraceGpu {
  std::string label;  // "3", "node1/3", or a UUID where there is no more
  std::string uuid;
  std::uint64_t samples = 0;
  std::string host;
  Duration seen{};    // together only: the sum of its own intervals that are not gaps
  Duration missed{};  // together only: and of those that are
};

struct TraceReport {
  std::uint64_t samples = 0;  // rows that were used
  std::uint64_t bad_rows = 0;
  std::vector<BadRow> first_bad;
  std::uint64_t implausible = 0;       // values that their signal cannot have: unknown
  std::string first_implausible = {};  // "util 250"
  std::uint64_t duplicates = 0;        // same GPU, same time: the first one counts
  std::uint64_t out_of_order = 0;      // rows earlier than one before them
  std::uint64_t bytes = 0;
  bool sorted_in_memory = false;
  bool zoned = true;       // times are moments; else readings of some wall clock
  bool from_epoch = true;  // times count from 1970
  int zone_minutes = 0;    // the zone that all of its times are written in
  std::vector<TraceGpu> gpus;
  std::vector<Metric> metrics;     // those of the wanted that the trace has
  Holders holders;                 // what the numbers of a block's holders mean
  std::vector<std::string> notes;  // for a person: what was assumed or found odd
};

// What was odd about the files, for people, a line each; the result stands all the same.
std::vector<std::string> oddities(const TraceReport& report);

class TraceSink {
 public:
  TraceSink() = default;
  TraceSink(const TraceSink&) = delete;
  TraceSink& operator=(const TraceSink&) = delete;
  virtual ~TraceSink() = default;

  virtual void restart() = 0;  // forget everything: reading begins (again)
  // Asked once a GPU, in the order of the trace. False: neither it nor those behind it now; once those before them are
  // complete, next_part() is called and they come in another reading.
  virtual bool wants(std::size_t) { return true; }
  virtual void next_part() {}
  // Before any block: what the numbers of a block's holders will mean. It grows while the trace is read, and goes with
  // it.
  virtual void meet(const Holders&) {}
  // This GPU is one whose idle may look like a hang, by the recording's word. Before its blocks, and again with each
  // reading.
  virtual void idle_looks_hung(std::size_t) {}
  // Consecutive samples of one GPU; each GPU's come in order of time, none twice.
  virtual void block(std::size_t gpu, const Block& block) = 0;
  // The same ticks of every GPU; a GPU that showed nothing at a tick is unknown there.
  virtual void frames(std::span<const Block> gpus) = 0;
};

struct TraceOptions {
  std::vector<std::string> paths;     // "-": standard input
  std::vector<ColumnChoice> columns;  // what --columns said
  std::vector<Metric> metrics;        // to be read
  bool who = false;                   // blocks say who has the GPU, where the trace does
  TimeRange range;                    // rows outside of it are passed over
  std::optional<Duration> every;      // how far apart the samples of files without times are
  unsigned threads = 0;               // 0: one a core
  std::size_t chunk_bytes = 1U << 19;
  std::size_t memory = std::size_t{256} << 20;  // for samples that are held back; more than fits is read in parts

  // All GPUs together: who they are, and how far apart samples are, must be known
  // from an earlier reading.
  bool together = false;
  std::size_t gpus = 0;
  Paced tick = {};          // rows within half of this belong to one tick
  std::vector<Paced> gaps;  // a longer interval of that GPU is a gap
  std::function<void(double part)> progress;
  std::shared_ptr<Fd> keeps = nullptr;  // a file without a name, whose path in /proc lasts as long as this
};

class TraceReader {
 public:
  // Opens every file and learns its columns. What cannot be a trace is refused here.
  static Result<TraceReader> open(TraceOptions options);
  TraceReader(TraceReader&&) noexcept;
  TraceReader& operator=(TraceReader&&) noexcept;
  ~TraceReader();

  // The earliest of the files' first rows: that of the trace, where its rows come in order.
  Instant first() const;
  // Which of `metrics` the files have.
  std::vector<Metric> available() const;
  std::vector<std::string> columns() const;  // every name in the headers, for a message
  bool has_owners() const;                   // a file has a column of who has the GPU
  bool holds_means() const;                  // of the time since the sample before; else readings may be of a moment
  // The files have no times: they were counted, by TraceOptions::every.
  bool counted() const;

  // May be called again, also after changing how.
  Result<TraceReport> read(TraceSink& sink);
  TraceOptions& options();

 private:
  struct State;
  explicit TraceReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lull::trace
