#pragma once
// Readings as a picture: a small SVG file that needs nothing else, for the folder of evidence, its page and mail. One
// row for each signal of each GPU, over the window of the rule; what is unknown is a gap.

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "act/facts.h"
#include "base/clock.h"
#include "gpu/snapshot.h"

namespace lull {

// Utilisation, power and effort of every GPU since the job began, for the picture of a window of any length: the longer
// ago, the coarser, so that a week takes no more memory than an hour. A part of the time that a value was not known in
// is unknown.
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

inline constexpr int kPictureWidth = 640;
inline constexpr int kNarrowPicture = 360;  // for a phone

// What the rule fired on: the utilisation; where the rule does not look at it, the first signal of the GPUs that it
// does look at. Empty: there is none.
std::string picture_of(const FiringFacts& facts, std::string_view host);
// Utilisation, power and effort of its GPUs as they were recorded, and what else of them the rule looks at.
std::string picture_of(const FiringFacts& facts, std::string_view host, const Past& past, int width = kPictureWidth);

}  // namespace lull
