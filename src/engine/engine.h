#pragma once
// The Engine decides: snapshots and subjects go in, events come out. It judges many subjects (jobs, GPUs, the machine)
// by many plans, each a ladder of steps. It has no clock, no prose and no file, so the same code decides live, in a
// replay, from Python, and in a test that runs ten thousand schedules a second.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/event.h"
#include "engine/subject_state.h"
#include "gpu/snapshot.h"

namespace lull {

class Engine {
 public:
  explicit Engine(std::vector<Plan> plans) : plans_(std::move(plans)) {}

  // The delay and the longest time of the subject count from here. Again: it begins anew, nothing is remembered.
  void begin(const SubjectId& subject, Instant start) { begin(subject, start, plans_); }
  // The same with plans of its own.
  void begin(const SubjectId& subject, Instant start, const std::vector<Plan>& plans);
  // One sample. A subject that is new begins with it; one that is not named any more is forgotten, and what had fired
  // for it is called off. The events are good until the next call.
  // `counts`: it is of those that `for N samples` counts; one out of turn is not.
  std::span<const Event> observe(const Snapshot& snapshot, std::span<const Subject> subjects,
                                 const Facts& machine = Facts(), bool counts = true);
  // To be called at next_time(), and whenever it suits.
  std::span<const Event> time_is(Instant now);
  std::optional<Instant> next_time() const;

  // Between two samples: it was stopped, or continued. Its streaks restart.
  void stopped(const SubjectId& subject, bool stopped);
  // A person asked for more time: nothing fires for it before.
  void keep(const SubjectId& subject, Instant until);
  // What was fired has been done, or not. The next one takes a new streak.
  // `again`: not, and it fires again with the next sample if that is still a yes.
  void outcome(const SubjectId& subject, std::uint32_t plan = 0, std::uint32_t step = 0,
               FiresAgain again = FiresAgain::in_another_stretch);
  // What fired is still a definite yes.
  bool holds(const SubjectId& subject, std::uint32_t plan = 0, std::uint32_t step = 0) const;
  // The same by the newest data alone, too (Judge::newest).
  bool holds_now(const SubjectId& subject, std::uint32_t plan = 0, std::uint32_t step = 0) const;

  const SubjectState* find(const SubjectId& subject, std::uint32_t plan = 0) const;

 private:
  void look_at_driver(const Snapshot& snapshot, std::span<const Subject> subjects);
  void forget_others(std::span<const Subject> subjects, Instant now);

  std::vector<Plan> plans_;
  std::map<SubjectId, std::vector<SubjectState>> states_;  // one for each plan
  std::vector<Event> events_;
  std::optional<Instant> no_gpu_said_;
};

}  // namespace lull
