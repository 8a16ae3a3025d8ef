#pragma once
// The Watcher is what a watching command decides: snapshots and events go in, what
// ought to be done and said comes out as data. It owns the Judge and adds what
// surrounds a judgement: the delay at the start, a job that somebody stopped, a
// longest time, firing once until told how that went, and saying each trouble once
// (then every ten minutes) instead of at every sample.
//
// It reads no clock and touches nothing. `lull run`, `lull watch`, the drop-ins and
// the tests that run ten thousand schedules in a second drive the same code.

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "engine/judge.h"
#include "gpu/snapshot.h"

namespace lull {

struct WatcherOptions {
  Policy policy;
  JudgeOptions judge = {};
  Duration delay{};                            // nothing is judged before
  std::optional<Duration> max_time = {};       // of the job
  Duration remind = std::chrono::minutes(10);  // what still cannot be judged is said again
};

// ---- what comes out

// The rule has fired: act. No second one before acted() or called_off().
struct Fire {
  Explanation why;
};
// The longest time is over.
struct TimeUp {
  Duration after{};
};
// For a person; nothing is to be done about it.
struct Say {
  enum class About : std::uint8_t { no_gpu, gpu_back, cannot_judge, can_judge, armed, gap, scope, not_judged };
  About about;
  std::string text;
};
using Intent = std::variant<Fire, TimeUp, Say>;

// Which GPUs are in scope, and how that came about, for a person.
struct Scope {
  std::vector<Device> devices;
  std::string why;              // "CUDA_VISIBLE_DEVICES"
  std::string not_judged = {};  // for a person: why nothing is judged now; empty: it is
};

class Watcher {
 public:
  Watcher(WatcherOptions options, Instant start);

  // One sample. Where the scope differs from the last one, every streak begins anew. A scope
  // that is not to be judged (each reason is said once) ends every streak.
  std::vector<Intent> observe(const Snapshot& snapshot, const Scope& scope);
  // Somebody stopped the job (Ctrl-Z, SIGSTOP) or let it go on: a stopped job is
  // not idle, it waits. Its streak begins anew.
  void job_stopped(bool stopped);
  // To be called at next_time(), and whenever it suits.
  std::vector<Intent> time_is(Instant now);
  std::optional<Instant> next_time() const;

  // After a Fire: it was done, or not. The next one takes a new streak.
  void acted();
  // The condition that fired is still a definite yes: nothing came back meanwhile.
  bool still_holds() const { return judging() && !stopped_ && judge_->verdict().truth == Truth::yes; }

  const Verdict& verdict() const { return verdict_; }
  const std::vector<Device>& scope() const { return scope_; }
  bool judging() const { return judge_.has_value() && !not_judged_; }
  bool not_judged() const { return not_judged_; }  // for a reason that the newest scope gave
  bool delayed(Instant now) const { return now < start_ + options_.delay; }
  Explanation explain() const { return judge_ ? judge_->explain() : Explanation{}; }
  Progress arm_progress() const { return judge_ ? judge_->arm_progress() : Progress{}; }
  const Policy& policy() const { return options_.policy; }
  Instant start() const { return start_; }

 private:
  void say_about_driver(const Snapshot& snapshot, std::vector<Intent>& out);
  void say_about_missing(const Judge& judge, const Snapshot& snapshot, std::vector<Intent>& out);
  Judge& use_scope(const Scope& scope, bool judged_again, std::vector<Intent>& out);
  void say_not_judged(const std::string& why, std::vector<Intent>& out);
  void begin_anew();

  WatcherOptions options_;
  Instant start_;
  std::optional<Judge> judge_;
  std::vector<Device> scope_;
  Verdict verdict_;
  std::optional<Instant> last_at_;
  bool stopped_ = false;
  bool not_judged_ = false;
  std::set<std::string> reasons_said_;  // for not judging
  bool firing_ = false;
  std::uint64_t seen_ = 0;  // samples that were judged
  bool put_off_ = false;    // it would have fired on the first one
  bool time_up_ = false;
  bool was_armed_ = false;
  std::optional<Instant> no_gpu_said_;
  std::optional<Instant> missing_said_;
  std::string missing_text_;
};

}  // namespace lull
