#pragma once
// Rows out of values that come one at a time, each of one signal of one GPU at one moment
// (Prometheus, long tables). Values of the same GPU and moment that follow each other
// share a row; the others find each other when the trace is put in order (Schema::partial).

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/batch.h"
#include "trace/format.h"
#include "trace/names.h"

namespace lull::trace {

// What a series is to us: where its values go.
struct SeriesPlace {
  std::size_t slot = kNoSlot;  // npos: none of ours, or nobody wants it
  Meaning meaning;
  GpuName gpu;
};

class SeriesRows {
 public:
  explicit SeriesRows(const Schema& schema) : schema_(schema), identities_(schema.identity) {}

  // Notes what was met, for a message and for the ranks of the schema.
  SeriesPlace place(const SeriesName& series);
  void add(const SeriesPlace& place, std::int64_t at, float value, Batch& batch);
  void next_batch() { last_ = kNoSlot; }

  const Identities& identities() const { return identities_; }
  std::vector<std::string> strangers() const { return strangers_; }
  // By slot: the best source met; 1000: none.
  std::vector<int> best_ranks() const { return best_; }

 private:
  const Schema& schema_;
  Identities identities_;
  std::vector<std::string> strangers_;
  std::vector<int> best_;
  std::size_t last_ = kNoSlot;  // the row added last
};

}  // namespace lull::trace
