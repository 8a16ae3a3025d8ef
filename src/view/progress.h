#pragma once
// How far a rule has come at one sample, for people: what each GPU in scope shows, and since when it holds.

#include <string>

#include "engine/case.h"
#include "engine/event.h"
#include "gpu/snapshot.h"

namespace lull {

// One sample as it was judged.
struct Sampled {
  const Snapshot& snapshot;
  const Subject& subject;
  const Facts& machine;
  const Case& judged;
};

// "GPU 0 util 0 %; GPU 1 util 3 %"; empty where no GPU is in scope.
std::string readings_text(const Sampled& sampled);
// "highest util 0 % on 8 GPUs": of each signal the value that is furthest from what the rule asks for; "util 0 % on GPU
// 3" where there is one. Empty where no GPU is in scope.
std::string extremes_text(const Sampled& sampled);
// One line for --verbose: the readings, and how far the rule is.
std::string sample_text(const Sampled& sampled);
// "idle 12m of 30m", "busy", "not armed"
std::string progress_text(const Case& judged);

}  // namespace lull
