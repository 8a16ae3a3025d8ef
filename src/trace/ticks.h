#pragma once
// Ticks put the rows of all GPUs on common moments: the first row opens a tick,
// rows within half a sampling interval of it belong to it, each GPU once. What a
// GPU did not show at a tick is unknown there.

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "gpu/block.h"
#include "trace/reader.h"
#include "trace/series.h"

namespace lull::trace {

class Ticks {
 public:
  // `gaps` may be empty; then nothing is seen.
  // With `who` each row has one more value behind the metrics: the holder.
  Ticks(std::span<const Metric> metrics, bool who, std::size_t gpus, const Paced& tick, std::span<const Paced> gaps,
        std::size_t memory, bool partial, TraceSink& sink);

  // A row in any order; false: it came too late for its tick.
  bool add(Instant at, std::uint32_t gpu, std::span<const float> values);
  void finish();
  // Instead of add: series that are sorted already, merged by time.
  void merge(std::span<const Series> series);

  std::uint64_t duplicates() const { return duplicates_; }
  std::uint64_t out_of_order() const { return out_of_order_; }
  Duration seen(std::size_t gpu) const { return gpus_[gpu].seen; }
  Duration missed(std::size_t gpu) const { return gpus_[gpu].missed; }
  std::uint64_t samples(std::size_t gpu) const { return gpus_[gpu].samples; }

 private:
  struct Row {
    Instant at;
    std::uint32_t gpu;
    std::uint32_t slot;  // where its values are
  };
  struct Gpu {
    Instant last{};
    bool any = false;
    std::uint64_t tick = 0;  // the last one it was in, from 1
    Duration seen{};
    Duration missed{};
    std::uint64_t samples = 0;
  };

  void release(std::size_t count);  // the first so many rows, which are in order
  void place(Instant at, std::uint32_t gpu, const float* values);
  bool complete(std::uint32_t gpu, const float* values);  // true: it brought something
  void open_tick(Instant at);
  void emit();

  std::span<const Metric> metrics_;
  bool who_;
  std::size_t width_;  // values of a row
  const Paced& interval_;
  std::span<const Paced> gaps_;
  TraceSink& sink_;
  bool partial_;          // rows of one GPU and time each bring some of the signals
  std::size_t held_;      // rows that wait for those before them
  std::size_t gathered_;  // ticks that leave at once

  std::vector<Row> waiting_;
  std::vector<float> waiting_values_;
  bool sorted_ = true;
  Instant released_{};
  bool released_any_ = false;

  std::vector<Gpu> gpus_;
  std::vector<Instant> at_;     // of the ticks gathered so far
  std::vector<float> columns_;  // [gpu][value][tick]
  std::uint64_t tick_ = 0;
  std::uint64_t duplicates_ = 0;
  std::uint64_t out_of_order_ = 0;
};

}  // namespace lull::trace
