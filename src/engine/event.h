#pragma once
// What the engine takes and what comes out of it, all of it data. Plans say what is looked for, Subjects who is looked
// at; Events say what was found, with the facts and without prose (view/events.h words them).

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "engine/judge.h"
#include "gpu/snapshot.h"
#include "rule/reason.h"

namespace lull {

// ---- what goes in

// One step of a ladder: warn, then act, then end. Each has its own rule and its own streak.
struct PolicyStep {
  std::string name;
  Rule when;
};

struct Plan {
  std::string name;
  std::vector<PolicyStep> steps;
  std::optional<Rule> arm = {};  // nothing fires before this has held once
  bool rearm = false;            // and again after each firing
  JudgeOptions judge = {};
  Duration delay{};                            // nothing is judged before, counted from the subject's start
  std::optional<Duration> max_time = {};       // of the subject
  Duration remind = std::chrono::minutes(10);  // what still cannot be judged is said again
};
// The plan with a single step that most commands have.
Plan plan_of(Policy policy, JudgeOptions judge, Duration delay = {}, std::optional<Duration> max_time = {});

// Which GPUs are in scope, and how that came about, for a person.
struct Scope {
  std::vector<Device> devices;
  std::string why;              // "CUDA_VISIBLE_DEVICES"
  std::string not_judged = {};  // for a person: why nothing is judged now; empty: it is
  bool unseen = false;          // not judged, since it cannot be seen on which GPUs it works
};

// Who is judged: a job, a GPU, the machine.
struct SubjectId {
  std::string value;
  auto operator<=>(const SubjectId&) const = default;
};
struct Subject {
  SubjectId id;
  Scope scope;
  Facts job = {};
  // It was stopped (Ctrl-Z, SIGSTOP, a frozen cgroup): it is not idle, it waits.
  bool stopped = false;
};

// ---- what comes out

// A step's rule has fired: act. No second time before Engine::outcome().
struct Fired {
  Explanation why;
};
// When it fires again, if the rule holds all the while: not before it ceased to hold; with the next sample that says
// yes; or when it has held for its whole time again.
enum class FiresAgain : std::uint8_t { in_another_stretch, at_once, after_another_count };
// It fired, and before it was told how that went the rule ceased to hold for certain: undo what can be undone.
struct CalledOff {};
// The longest time is over.
struct TimeUp {
  Duration after{};
};
struct NoGpu {
  DriverState driver;
};
struct GpuBack {
  std::vector<Device> watched;  // of all subjects
};
struct CannotJudge {
  std::vector<MissingSignal> missing;
};
struct CanJudge {};
struct Armed {
  std::string rule;
};
// Nothing was seen for this long: a streak that was running begins anew.
struct Gap {
  Duration unseen{};
};
struct ScopeChanged {
  Scope scope;
};
struct NotJudged {
  std::string why;
};

struct Event {
  Instant at{};
  SubjectId subject;
  std::uint32_t plan = 0;
  std::uint32_t step = 0;
  std::variant<Fired, CalledOff, TimeUp, NoGpu, GpuBack, CannotJudge, CanJudge, Armed, Gap, ScopeChanged, NotJudged>
      what;
};

}  // namespace lull
