#pragma once
// A bar on the terminal for what takes longer than a second: what to write, when.

#include <string>

#include "base/clock.h"

namespace lull {

class ProgressBar {
 public:
  explicit ProgressBar(Instant start) : start_(start) {}

  // `part`: how much is done, 0 to 1. Empty: nothing yet, or it stands there already.
  std::string draw(double part, Instant now);
  std::string clear() const { return shown_ ? "\r\033[K" : ""; }

 private:
  Instant start_;
  Instant drawn_{};
  bool shown_ = false;
};

}  // namespace lull
