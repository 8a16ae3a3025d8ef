#pragma once
// A SubjectState is one subject under one plan: a Judge for each step of the ladder, and what surrounds a judgement:
// the delay at the start, a stopped job, a time limit, more time that a user asked for, firing once until told the
// result, and reporting each trouble once (then every ten minutes) instead of at every sample.
//
// It reads no clock and touches nothing. The Engine (engine.h) keeps those of all subjects.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/event.h"
#include "engine/judge.h"
#include "gpu/snapshot.h"

namespace lull {

class SubjectState {
 public:
  SubjectState(const Plan& plan, std::uint32_t number, SubjectId subject, Instant start);

  // One sample. Where the scope differs from the last one, every streak begins anew. A scope that is not to be judged
  // (each reason is said once) and a stop end every streak. `no_gpu`: the driver shows none, and that was said.
  // `counts`: it is of those that `for N samples` counts.
  void observe(const Snapshot& snapshot, const Subject& subject, const Facts& machine, bool no_gpu, bool counts,
               std::vector<Event>& out);
  // Between two samples: it was stopped, or continued.
  void stopped(bool stopped);
  // To be called at next_time(), and whenever it suits.
  void time_is(Instant now, std::vector<Event>& out);
  std::optional<Instant> next_time() const;

  // What has fired is not wanted any more: the subject is gone, or is another one now.
  void call_off(Instant at, std::vector<Event>& out);
  // No step fires before; what holds then fires then.
  void keep(Instant until) { keep_until_ = std::max(keep_until_, until); }
  // After Fired: it was done, or not.
  void outcome(std::uint32_t step, FiresAgain again = FiresAgain::in_another_stretch);
  // What fired is still a definite yes: nothing came back meanwhile.
  bool holds(std::uint32_t step) const {
    return judging() && !stopped_ && steps_[step].judge->verdict().truth == Truth::yes;
  }
  // The same by the newest data alone, too.
  bool holds_now(std::uint32_t step) const { return holds(step) && steps_[step].judge->newest() == Truth::yes; }
  // It is known that the condition does not hold, or does not by the newest data.
  bool fails_now(std::uint32_t step) const {
    return steps_[step].verdict.condition == Truth::no ||
           (judging() && !stopped_ && steps_[step].judge->newest() == Truth::no);
  }

  // Whether it does cannot be seen now.
  bool unknown_now(std::uint32_t step) const {
    if (not_judged_) return unseen_;
    return begun_ && !stopped_ &&
           (steps_[step].verdict.condition == Truth::unknown || steps_[step].judge->newest() == Truth::unknown);
  }

  const Plan& plan() const { return plan_; }
  const Verdict& verdict(std::uint32_t step = 0) const { return steps_[step].verdict; }
  const std::vector<Device>& scope() const { return scope_; }
  bool judging() const { return begun_ && !not_judged_; }
  bool not_judged() const { return not_judged_; }  // for a reason that the newest scope gave
  bool delayed(Instant now) const { return now < judged_from(start_, plan_.delay); }
  Progress arm_progress() const { return steps_[0].judge ? steps_[0].judge->arm_progress() : Progress{}; }
  // Until this step fires if nothing changes; nothing: it is not under way, or has fired. Of rules that count time.
  std::optional<Duration> time_left(std::uint32_t step, Instant now) const;
  const Rule& rule(std::uint32_t step = 0) const { return plan_.steps[step].when; }

 private:
  struct Watched {
    std::optional<Judge> judge;
    Verdict verdict;
    bool firing = false;      // fired, and not told yet how that went
    bool called_off = false;  // and that has ceased to hold
    bool put_off = false;     // it would have fired while more time was asked for, or the last one was dealt with
    bool was_armed = false;
    std::optional<Instant> missing_said;
    std::vector<MissingSignal> missing;
  };
  template <class What>
  void emit(std::vector<Event>& out, Instant at, What what, std::uint32_t step = 0) const {
    out.push_back({at, subject_, number_, step, std::move(what)});
  }
  void use_scope(const Scope& scope, bool judged_again, Instant at, std::vector<Event>& out);
  void judge_step(std::uint32_t number, const Snapshot& snapshot, const Subject& subject, const Facts& machine,
                  bool no_gpu, bool counts, std::vector<Event>& out);
  void decide(std::uint32_t number, Instant at, std::vector<Event>& out);
  void look_for_missing(std::uint32_t number, Instant at, std::vector<Event>& out);
  void call_off(std::uint32_t step, Instant at, std::vector<Event>& out);
  static void begin_anew(Watched& step);
  void begin_anew();

  Plan plan_;
  std::uint32_t number_;
  SubjectId subject_;
  Instant start_;
  bool begun_ = false;
  std::vector<Device> scope_;
  std::vector<Watched> steps_;
  std::optional<Instant> last_at_;
  bool stopped_ = false;
  bool not_judged_ = false;
  bool unseen_ = false;                 // since it cannot be seen where it works
  std::set<std::string> reasons_said_;  // for not judging
  bool time_up_ = false;
  Instant keep_until_ = Instant::min();
};

}  // namespace lull
