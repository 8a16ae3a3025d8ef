#pragma once
// A suspended GPU is idle now. Whether it slept since the sample before, too, is what the kernel's count of its time
// awake tells: it may have worked in between, and fallen asleep again.

#include <cstdint>
#include <optional>

#include "sense/source.h"

namespace lull {

// It may have worked since the sample before.
void not_covered(Answer& answer);

// A sensor that has just begun knows the moment only. Where there was a sample before, the time since then was watched
// by nobody: what would be a mean over it is unknown.
void forget_moments(Reading& reading);

class SleepCover {
 public:
  // Of each sample of one GPU, in order: makes the utilisation of one that may have worked unknown.
  void apply(Answer& answer);

 private:
  std::optional<bool> slept_;  // at the sample before
  std::int64_t awake_ms_ = -1;
};

}  // namespace lull
