#pragma once
// Utilisation, power and effort of every GPU since the job began, for the picture of a window of any length: the longer
// ago, the coarser, so that a week takes no more room than an hour. A part of the time that a value was not known in is
// unknown.

#include <deque>
#include <vector>

#include "base/clock.h"
#include "gpu/snapshot.h"

namespace lull {

class Past {
 public:
  struct Cell {
    Instant from{};
    Instant to{};
    float low = kUnknownSample;  // NaN: unknown
    float high = kUnknownSample;
  };
  // The signals that are kept, as far as this version has them.
  static const std::vector<Metric>& metrics();

  void add(const Snapshot& snapshot);
  // Oldest first, those that end in (begin, end].
  std::vector<Cell> cells(const DeviceId& gpu, Metric metric, Instant begin, Instant end) const;

 private:
  struct Value {
    float low = kUnknownSample;
    float high = kUnknownSample;
  };
  struct Part {
    Instant from{};
    Instant to{};
    std::vector<Value> values;  // GPU by GPU as in gpus_, metric by metric
  };
  static Part joined(const Part& older, const Part& newer);

  std::vector<DeviceId> gpus_;
  std::vector<std::deque<Part>> levels_;  // oldest first; each part of a level is of twice as many samples as below it
  Instant newest_{};
};

}  // namespace lull
