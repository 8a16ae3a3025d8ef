#pragma once
// Series turn rows into blocks: each GPU's samples are held back a little, so that
// rows somewhat out of order find their place, and then leave as blocks. Rows are
// only ever appended; what came out of order is sorted once, before it leaves. A row
// that is late for what has left already is too late: then unbounded series, which
// hold everything back until the end, must do.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "gpu/block.h"
#include "trace/reader.h"

namespace lull::trace {

// How many samples a series gathers before the older half leaves as a block.
inline constexpr std::size_t kMostHeld = 2 * kBlockSamples;
inline constexpr std::size_t kLeastHeld = 128;

class Series {
 public:
  // `partial`: samples of one time each bring some of the signals, and become one. With `who` there is one more value
  // behind the metrics: the holder.
  Series(std::span<const Metric> metrics, bool bounded, bool partial = false, bool who = false)
      : metrics_(metrics), bounded_(bounded), partial_(partial), who_(who) {
    value_.resize(metrics.size() + (who ? 1 : 0));
  }

  enum class Added : std::uint8_t { in_order, moved, duplicate, too_late };

  // `value(i)` is the sample's i-th metric; `held` is how many samples may gather (bounded only).
  template <class Values>
  Added add(Instant at, std::size_t gpu, std::size_t held, TraceSink& sink, const Values& value) {
    if (count_ >= at_.size() || (bounded_ && count_ >= held)) [[unlikely]]
      make_space(gpu, held, sink);
    if (emitted_any_ && at <= emitted_) [[unlikely]]
      return at == emitted_ && !partial_ ? Added::duplicate : Added::too_late;
    at_[count_] = at;
    for (std::size_t i = 0; i < value_.size(); ++i) value_[i][count_] = value(i);
    ++count_;
    if (at > newest_) [[likely]] {
      newest_ = at;
      return Added::in_order;
    }
    unsorted_ = count_ > 1;
    return at < newest_ ? Added::moved : Added::in_order;  // of the same time: sort() finds it
  }

  // Puts what is held in order and drops duplicates (the first one counts).
  void sort();
  // Hands out what is held; its memory goes.
  void flush(std::size_t gpu, TraceSink& sink);
  void forget();

  std::size_t size() const { return count_; }
  std::size_t bytes() const { return at_.size() * bytes_per_sample(value_.size()); }
  static std::size_t bytes_per_sample(std::size_t metrics) { return sizeof(Instant) + metrics * sizeof(float); }
  std::uint64_t total() const { return emitted_count_ + count_; }  // with what has left
  std::uint64_t duplicates() const { return duplicates_; }         // found when sorting
  Instant at(std::size_t i) const { return at_[i]; }
  float value(std::size_t metric, std::size_t i) const { return value_[metric][i]; }

 private:
  void grow(std::size_t most);
  bool complete(std::size_t first, std::size_t more);  // true: it brought something
  void make_space(std::size_t gpu, std::size_t held, TraceSink& sink);
  void emit(std::size_t from, std::size_t count, std::size_t gpu, TraceSink& sink);

  std::span<const Metric> metrics_;
  bool bounded_;
  bool partial_;
  bool who_;
  bool unsorted_ = false;
  bool emitted_any_ = false;
  Instant emitted_{};  // the last sample that left
  Instant newest_ = Instant::min();
  std::size_t count_ = 0;
  std::uint64_t emitted_count_ = 0;
  std::uint64_t duplicates_ = 0;
  std::vector<Instant> at_;
  std::vector<std::vector<float>> value_;
};

// Ticks put the rows of all GPUs on common moments: the first row opens a tick,
// rows within half a sampling interval of it belong to it, each GPU once. What a
// GPU did not show at a tick is unknown there.
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
