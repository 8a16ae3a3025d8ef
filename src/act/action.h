#pragma once
// Everything that lull does to the machine is an Action: ending a tree, running a hook, powering off, sending a
// notification, collecting evidence. The Executor (executor.h) does them in order; what happens on the way is News, as
// data (view/news.h words it).

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "act/facts.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/result.h"

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
struct Killing {
  Duration grace{};
  std::size_t processes = 0;  // that needed SIGKILL
};
struct WorksAgain {};  // before SIGKILL a new sample said no: it is not killed
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
};
using News = std::variant<Attempted, Failed, Announced, Cancelled, NoLongerWanted, Killing, WorksAgain, TreeGone,
                          TreeStuck, TreeUnproven, EvidenceWritten>;

// ---- what can be done

struct Outcome {
  bool ok = true;
  std::string trouble = {};
  bool called_off = false;  // it left off by itself, and nothing more is to be done
};

class Action {
 public:
  using Done = std::function<void(const Outcome&)>;
  using Tell = std::function<void(const News&)>;
  // Asks for a new sample; the answer: it shows for sure that what is to be ended works.
  using LastLook = std::function<void(std::function<void(bool works)>)>;

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
  virtual void ask_before_kill(LastLook) {}
  // Takes back what has begun. False: it is too late.
  virtual bool undo() { return false; }
  // Something changed (a child ended, a sample came): perhaps it is done.
  virtual void look() {}
  // Cannot be undone, so a new sample has to say yes before every attempt.
  virtual bool needs_a_fresh_yes() const { return true; }
  // It ends work, so what is seen meanwhile says nothing about whether the rest is still wanted.
  virtual bool ends_work() const { return false; }
  // What fails is tried again (notifications have their own ways).
  virtual bool may_be_repeated() const { return true; }
  // While it only waits: until when.
  virtual std::optional<Instant> waits_until() const { return std::nullopt; }
};

}  // namespace lull
