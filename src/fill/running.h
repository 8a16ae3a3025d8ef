#pragma once
// One filler that runs, as the session knows it; used by its .cc files alone.

#include <memory>

#include "act/guard.h"
#include "fill/session.h"

namespace lull {

struct FillSession::Running {
  std::unique_ptr<Guard> guard;
  Instant since{};
  bool parked = false;
  bool said_still = true;  // no: it is to stand still, and has not been seen to
};

}  // namespace lull
