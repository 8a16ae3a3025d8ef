#pragma once
// A stretch is a maximal run of samples at which a condition is yes, without a gap. It
// ends at the first sample that is not yes, or at its own last sample where a gap or the
// end of the series cut it. Replay counts stretches; live, one is under way or not.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "rule/policy.h"
#include "rule/truth.h"

namespace lull {

// came_back: a definite no followed. unknown: a sample that could not be judged did.
enum class StretchEnd : std::uint8_t { came_back, unknown, gap, end, over };  // over: there was nothing left to judge

struct Stretch {
  Instant begin{};
  Instant last = {};                  // its last yes
  Instant end = {};                   // see above
  std::uint64_t samples = 0;          // that are yes
  std::optional<Instant> fired = {};  // the first firing in it
  StretchEnd ending = StretchEnd::end;

  Duration length() const { return end - begin; }
  Duration reclaimed() const { return fired ? end - *fired : Duration::zero(); }
};

class StretchFinder {
 public:
  // The answers to the condition (a rule without its outermost `for`) and where it fired.
  // Stretches that end in these samples are appended to `out`.
  void feed(std::span<const Instant> at, const Answers& condition, const Mask& fires, const Mask& gaps,
            std::vector<Stretch>& out);
  void feed(std::span<const Instant> at, const PolicyAnswers& answers, std::vector<Stretch>& out) {
    feed(at, answers.condition, answers.fires, answers.gaps, out);
  }
  // The series is over: a stretch that is under way ends with it.
  void finish(std::vector<Stretch>& out);

 private:
  void end(Instant at, StretchEnd why, std::vector<Stretch>& out);

  bool inside_ = false;
  Stretch now_;
};

}  // namespace lull
