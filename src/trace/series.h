#pragma once
// Series turn rows into blocks: each GPU's samples are held back a little, so that
// rows somewhat out of order find their place, and then leave as blocks of 1024.
// Unbounded series hold everything back until the end, and sort it then.

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "gpu/block.h"
#include "trace/reader.h"

namespace lull::trace {

class Series {
 public:
  Series(std::span<const Metric> metrics, bool bounded) : metrics_(metrics), bounded_(bounded) {
    value_.resize(metrics.size());
  }

  enum class Added : std::uint8_t { in_order, moved, duplicate, too_late };

  // `value(i)` is the sample's i-th metric.
  template <class Values>
  Added add(Instant at, std::size_t gpu, TraceSink& sink, const Values& value) {
    if (count_ > 0 && at <= at_[count_ - 1]) [[unlikely]]
      return add_late(at, value);
    if (count_ == 0 && emitted_any_ && at <= emitted_) [[unlikely]]
      return at == emitted_ ? Added::duplicate : Added::too_late;
    if (count_ == at_.size()) make_room(gpu, sink);
    at_[count_] = at;
    for (std::size_t i = 0; i < value_.size(); ++i) value_[i][count_] = value(i);
    ++count_;
    return Added::in_order;
  }

  // Sorts what is held (unbounded only) and drops duplicates; returns how many.
  std::uint64_t sort();
  void flush(std::size_t gpu, TraceSink& sink);

  std::size_t size() const { return count_; }
  std::uint64_t total() const { return emitted_count_ + count_; }  // with what has left
  Instant at(std::size_t i) const { return at_[i]; }
  float value(std::size_t metric, std::size_t i) const { return value_[metric][i]; }

 private:
  static constexpr std::size_t kHeld = kBlockSamples;  // a row this many samples late still finds its place

  template <class Values>
  Added add_late(Instant at, const Values& value) {
    if (!bounded_) {  // sort() will put it right
      const bool moved = at < at_[count_ - 1];
      unsorted_ = true;
      if (count_ == at_.size()) grow();
      at_[count_] = at;
      for (std::size_t i = 0; i < value_.size(); ++i) value_[i][count_] = value(i);
      ++count_;
      return moved ? Added::moved : Added::in_order;
    }
    if (emitted_any_ && at <= emitted_) return at == emitted_ ? Added::duplicate : Added::too_late;
    const std::size_t place = place_of(at);
    if (at_[place] == at) return Added::duplicate;
    if (count_ == at_.size()) grow();
    open_place(place);
    at_[place] = at;
    for (std::size_t i = 0; i < value_.size(); ++i) value_[i][place] = value(i);
    return Added::moved;
  }
  std::size_t place_of(Instant at) const;  // of the first sample not before it
  void open_place(std::size_t place);
  void grow();
  void make_room(std::size_t gpu, TraceSink& sink);
  void emit(std::size_t from, std::size_t count, std::size_t gpu, TraceSink& sink);

  std::span<const Metric> metrics_;
  bool bounded_;
  bool unsorted_ = false;
  bool emitted_any_ = false;
  Instant emitted_{};  // the last sample that left
  std::size_t count_ = 0;
  std::uint64_t emitted_count_ = 0;
  std::vector<Instant> at_;
  std::vector<std::vector<float>> value_;
};

}  // namespace lull::trace
