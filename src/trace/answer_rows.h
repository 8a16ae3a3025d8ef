#pragma once
// The rows of one answer of Prometheus. It has one series behind the other, each with all of its times: they are held
// until the answer is over, and leave in order of time, the values of a GPU and moment in one row. So a history that
// comes day by day is read as one that was recorded, however long it is.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trace/batch.h"
#include "trace/format.h"

namespace lull::trace {

class AnswerRows {
 public:
  // Begins a series: whom its values are of, and which signal they are; kNoSlot: each says only who has the GPU.
  void series(const Identities::Cells& cells, std::size_t slot);
  void add(std::int64_t at, float value) {
    series_.back().any = true;
    values_.push_back({at, static_cast<std::uint32_t>(series_.size() - 1), value});
  }
  // As much as is held at most. Release then what there is: the rest comes out of order.
  bool full() const { return values_.size() >= kMost; }
  void release(Identities& identities, Batch& batch);

 private:
  static constexpr std::size_t kMost = 16U << 20;

  struct Series {
    std::array<std::string, kMaxIdentity> cells;
    std::size_t slot = kNoSlot;
    bool any = false;  // it has values
  };
  struct Value {
    std::int64_t at;
    std::uint32_t series;
    float value;
  };
  void sort();

  std::vector<Series> series_;
  std::vector<Value> values_;
  std::vector<Value> moved_;           // while they are sorted
  std::vector<std::uint32_t> row_of_;  // the newest of each of the identities
};

}  // namespace lull::trace
