#pragma once
// How far a rule has come at one sample, for people: what each GPU in scope shows, and since when it holds.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/event.h"
#include "engine/subject_state.h"
#include "gpu/snapshot.h"

namespace lull {

// One sample as it was judged.
struct Sampled {
  const Snapshot& snapshot;
  const Subject& subject;
  const Facts& machine;
  const SubjectState& judged;
  bool confirming = false;  // a firing is being confirmed, of which nothing was said yet
};

// One sample of many that are judged each by itself.
struct EachSampled {
  struct One {
    std::string title;  // "GPU 3"
    const SubjectState& judged;
    std::vector<std::string> actions = {};  // of each step
  };
  std::vector<One> all;
  bool dry_run = false;
  bool of_jobs = false;
  bool within_hours = true;  // else nothing is done now
  Instant at{};
};

// "GPU 0 util 0 %; GPU 1 util 3 %"; empty where no GPU is in scope.
std::string readings_text(const Sampled& sampled);
// "highest util 0 % on 8 GPUs": of each signal the value that is furthest from what the rule asks for; "util 0 % on GPU
// 3" where there is one. Empty where no GPU is in scope.
std::string extremes_text(const Sampled& sampled);
// One line for --verbose: the readings, and how far the rule is.
std::string sample_text(const Sampled& sampled);
// "idle 12m of 30m", "busy", "not armed"
std::string progress_text(const SubjectState& judged, std::uint32_t step = 0);
// "GPU 3 idle 3m of 30m, end in 27m (lull watch --cancel) | 8 GPUs: 2 idle, 5 busy, 1 not judged": the one that is
// nearest to an action first.
std::string each_progress_text(const EachSampled& sampled);
// "27m", "42s": never less than what is left.
std::string countdown_text(Duration left);

}  // namespace lull
