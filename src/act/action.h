#pragma once
// Everything that lull does to the machine is an Action: ending a tree, running a hook, powering off, sending a
// notification, collecting evidence. The Executor (executor.h) does them in order; what happens on the way is an
// ActionEvent, as data (view/events.h words it).

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "act/facts.h"
#include "base/clock.h"
#include "base/result.h"
#include "rule/truth.h"

namespace lull {

// ---- what happens while acting

struct Attempted {
  std::string action;  // as it was written: "kill=1234"
  unsigned number = 1;
};
struct Failed {
  std::string action;
  std::string trouble;
  std::optional<Duration> again_in = {};  // nothing: given up
  bool goes_on = false;                   // what comes after it is done all the same, as if it had worked
};
// A shutdown is announced.
struct Announced {
  std::string action;
  Duration in{};
  std::size_t terminals = 0;  // on which people were told
};
struct Cancelled {
  std::string who;
};
struct NoLongerWanted {};  // the rule ceased to hold: called off
struct PutOff {
  std::string action;
  Duration again_in{};
  std::string why;     // in words; empty: it did not say
  bool first = false;  // else it was said before
};
struct Killing {
  Duration grace{};
  std::size_t processes = 0;  // that needed SIGKILL
};
struct WorksAgain {};  // before SIGKILL a new sample said no: it is not killed
struct KillWaits {};   // before SIGKILL there is no sample that tells: it is not killed until there is one
struct TreeGone {};
struct TreeStuck {
  std::string left;  // who, in words
};
struct TreeUnproven {
  std::string trouble;
};
struct EvidenceWritten {
  std::string folder;   // empty: none could be made
  std::string trouble;  // not empty: not all of it
  std::string where;    // where the job's Python processes are, in a line; empty: none is, or not known
  std::string page;     // that shows it; empty: it could not be written
};
using ActionEvent = std::variant<Attempted, Failed, Announced, Cancelled, NoLongerWanted, PutOff, Killing, WorksAgain,
                                 KillWaits, TreeGone, TreeStuck, TreeUnproven, EvidenceWritten>;

// ---- what can be done

struct Outcome {
  bool ok = true;
  std::string trouble = {};
  bool called_off = false;                // it left off by itself, and nothing more is to be done
  bool not_now = false;                   // no failure: it is tried again after a while, as long as it is wanted
  std::optional<Duration> again_in = {};  // of not_now: not before
};

class Action {
 public:
  using Done = std::function<void(const Outcome&)>;
  using Tell = std::function<void(const ActionEvent&)>;
  // Asks for a new sample; the answer: by it, what is to be ended works.
  using PreKillCheck = std::function<void(std::function<void(Truth works)>)>;
  // A confirmation is good for a moment only, and from start() to what cannot be undone it may take longer: we may be
  // stopped in between. So an action that knows when that is looks once more right before it.
  struct Leave {
    std::function<bool()> holds;     // now: what cannot be undone has to follow at once
    std::function<bool()> may_kill;  // the same before SIGKILL: a sample of this moment shows no work
    std::function<Instant()> until;  // for who does it elsewhere
    // Confirms again, and calls back if it is still wanted. Else the action is undone and left off.
    std::function<void(std::function<void()>)> again;
  };

  Action() = default;
  Action(const Action&) = delete;
  Action& operator=(const Action&) = delete;
  virtual ~Action() = default;

  virtual const std::string& text() const = 0;  // as it was written
  // May we, and can we: found out before anything is watched.
  virtual Result<> prepare() { return {}; }
  // Begins; `done` is called once, now or later, unless undo() says that it has been undone.
  virtual void start(const FiringFacts& facts, Done done, Tell tell) = 0;
  // What an action that ends work asks before SIGKILL; nothing: it need not ask. Told before start().
  virtual void ask_before_kill(PreKillCheck) {}
  // Whether it may still be done, for one that looks right before it. Told before start().
  virtual void ask_before_acting(Leave) {}
  // Takes back what has begun. False: it is too late.
  virtual bool undo() { return false; }
  // Something changed (a child ended, a sample came): perhaps it is done.
  virtual void look() {}
  // Cannot be undone, so a new sample has to say yes before every attempt.
  virtual bool requires_confirmation() const { return true; }
  // It ends work, so what is seen meanwhile says nothing about whether the rest is still wanted.
  virtual bool ends_work() const { return false; }
  // What fails is tried again (notifications have their own ways).
  virtual bool may_be_repeated() const { return true; }
  // While it only waits: until when.
  virtual std::optional<Instant> waits_until() const { return std::nullopt; }
};

}  // namespace lull
