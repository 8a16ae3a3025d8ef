#pragma once
// The actions there are: the words of `lull watch --do …`, and what `lull run` does. Each is checked before anything is
// watched (the process is there and ours to signal, we may power off, curl is installed).

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "act/action.h"
#include "act/children.h"
#include "act/evidence.h"
#include "act/notify.h"
#include "act/power.h"
#include "act/spawn.h"
#include "act/tree.h"
#include "base/process.h"
#include "base/result.h"
#include "gpu/snapshot.h"
#include "loop/loop.h"

namespace lull {

// What the actions that end work have in common: until SIGKILL they can be undone, and before SIGKILL a pre-kill check
// asks whether the job works again.
class EndsWork : public Action {
 public:
  const std::string& text() const override { return text_; }
  void ask_before_kill(PreKillCheck look) override { pre_kill_check_ = std::move(look); }
  void ask_before_acting(Leave leave) override { leave_ = std::move(leave); }
  bool ends_work() const override { return true; }

 protected:
  EndsWork(Loop& loop, std::string text, Ending::Options options)
      : loop_(loop), text_(std::move(text)), options_(options) {}

  bool asks_first() const { return pre_kill_check_ && options_.check_before_kill; }
  // `still_waits`: no process has ended or been killed meanwhile. If the job does not work, `kill`; if it does, undo.
  // If that is unknown, nothing is killed: the next step asks again.
  void run_pre_kill_check(std::function<bool()> still_waits, std::function<void()> kill);

  Loop& loop_;
  const std::string text_;
  const Ending::Options options_;
  Done done_;
  Tell tell_;
  Leave leave_;
  Timer timer_{loop_};
  bool looking_ = false;     // a pre-kill check is under way
  bool waits_said_ = false;  // that one could not tell

 private:
  PreKillCheck pre_kill_check_;
};

// An action as it is written.
struct ActionOption {
  enum class Kind : std::uint8_t { exit, kill, holders, exec, power, determined, notify, mail, slurm, park };
  Kind kind = Kind::exit;
  std::string text;      // as it was written; of a notification without what is secret
  std::string argument;  // behind the '='
  int status = 0;        // of exit
  Power power = Power::off;
  NotifyTo notify = {};

  bool only_tells() const { return kind == Kind::notify || kind == Kind::mail; }  // and does nothing else
};
// exit[=STATUS], kill=PID|PGID:N|parent|container|holders, end (as kill=holders), park[=PID], exec=CMD, shutdown,
// reboot, determined, notify[=…], mail[=…] (notify.h)
Result<ActionOption> parse_action(std::string_view text);

// What may be written, for completions: "kill=parent".
struct ActionOffer {
  std::string_view word;
  std::string_view does;
};
std::span<const ActionOffer> action_offers();

// "shutdown, then exec=…"
std::string to_text(const std::vector<ActionOption>& actions);
// The same without notices, for one recipient: the address is not shown.
std::string notice_text(std::vector<ActionOption> actions);

// What actions work with.
struct Tools {
  Loop& loop;
  Helpers& helpers;
  const InheritedSignals& signals;
};

// How `park` parks (docs/park.md).
struct ParkOptions {
  std::string tool = {};  // cuda-checkpoint; empty: `lull park` finds it
  bool else_end = false;  // what cannot be parked is ended
};

struct ActionOptions {
  Duration limit = std::chrono::seconds(30);  // for a command; for a notification with all its retries
  unsigned retries = 3;                       // of a notification
  Duration retry_after = std::chrono::seconds(10);
  Ending::Options ending;
  std::optional<Duration> warn = {};  // before shutdown and reboot
  ParkOptions park = {};
  Root root = Root::machine();
};
// What the word stands for, not yet prepared; a shutdown with a warning is two. Of `exit` there is nothing to do, and
// who the holders are is known to who judges them (EndHolders).
std::vector<std::unique_ptr<Action>> actions_of(const ActionOption& word, const Tools& tools,
                                                const ActionOptions& options);

// Ends a tree: the signal, the grace, KILL, until it is proven gone.
class EndTree : public EndsWork {
 public:
  EndTree(Loop& loop, std::string text, Ending::Options options) : EndsWork(loop, std::move(text), options) {}
  // Of a job of ours: `before_look` collects those of our children that have ended.
  EndTree(Loop& loop, std::string text, Ending::Options options, const Tree& tree, const Process& root,
          std::function<void()> before_look)
      : EndsWork(loop, std::move(text), options), tree_(&tree), root_(&root), before_look_(std::move(before_look)) {}
  void start(const FiringFacts& facts, Done done, Tell tell) override;
  bool undo() override;  // within the grace: what got the signal has it, SIGKILL does not follow
  void look() override;

 protected:
  void use(const Tree& tree, const Process& root) { tree_ = &tree, root_ = &root; }

 private:
  void step();
  void ask_or_kill();
  void over();

  bool asks_leave_ = false;
  const Tree* tree_ = nullptr;
  const Process* root_ = nullptr;
  std::function<void()> before_look_;
  std::optional<Ending> ending_;
};

// Runs a command with the facts of the firing in its environment, and as JSON on its stdin where wanted.
class RunCommand : public Action {
 public:
  struct Options {
    std::string text;
    std::function<Result<std::vector<std::string>>()> find;  // the command, once it is known that it may be run
    Duration limit = std::chrono::seconds(30);
    bool facts_on_stdin = false;
    bool undoable = false;  // harmless: needs no confirmation, and what follows does not depend on it
    bool repeat = true;
    std::function<void(const Process&)> on_start = nullptr;
  };
  RunCommand(const Tools& tools, Options options) : tools_(tools), options_(std::move(options)) {}
  const std::string& text() const override { return options_.text; }
  Result<> prepare() override;
  void start(const FiringFacts& facts, Done done, Tell tell) override;
  void ask_before_acting(Leave leave) override { leave_ = std::move(leave); }
  bool requires_confirmation() const override { return !options_.undoable; }
  bool may_be_repeated() const override { return options_.repeat; }

 private:
  Tools tools_;
  Options options_;
  Leave leave_;
  std::vector<std::string> command_;
};

// Writes down what was seen, before it is gone.
class CollectEvidence : public Action {
 public:
  CollectEvidence(const Tools& tools, std::string folder, const Recorder& recorder, Evidence::Debugger debugger,
                  std::function<void(const Process&)> on_start = nullptr)
      : tools_(tools),
        folder_(std::move(folder)),
        recorder_(recorder),
        debugger_(debugger),
        on_start_(std::move(on_start)) {}
  const std::string& text() const override { return folder_; }
  Result<> prepare() override;
  void start(const FiringFacts& facts, Done done, Tell tell) override;
  bool requires_confirmation() const override { return false; }
  bool may_be_repeated() const override { return false; }

 private:
  Tools tools_;
  std::string folder_;
  const Recorder& recorder_;
  Evidence::Debugger debugger_;
  std::function<void(const Process&)> on_start_;
};

// "12 13 (stuck in the kernel), 14 (not ours to end)": those who outlived even SIGKILL.
std::string processes_left_text(const std::vector<ProcessEntry>& left);

// Ends processes that were seen holding a GPU, `kill=holders`. Who is to end is asked when it begins, and each must
// still be the process that was seen (pid and start time, held by a pidfd from then on). No other process is touched:
// no children, no parents, no process group.
class EndHolders final : public EndsWork {
 public:
  using Who = std::function<std::vector<GpuProcess>()>;
  EndHolders(Loop& loop, std::string text, Ending::Options options, Who who)
      : EndsWork(loop, std::move(text), options), who_(std::move(who)) {}

  void start(const FiringFacts& facts, Done done, Tell tell) override;
  bool undo() override;  // within the grace: what got the signal has it, SIGKILL does not follow
  void look() override;

 private:
  bool signal_all(int number, const std::function<bool()>& may);
  void begin();
  void drop_who_left();
  void step();
  void ask();
  void kill(bool in_any_case);
  void over();

  bool asks_leave_ = false;
  Who who_;
  std::vector<Process> left_;
  std::size_t reached_ = 0;             // of these, by the signal that is being sent
  std::vector<std::string> refused_;    // alive, and not ours to end
  std::vector<std::string> unreached_;  // perhaps alive: why no handle on them could be had
  bool killed_ = false;
  Instant next_{};
};

// The action `park`: `lull park` in a process of its own, which goes on should we die, and does what follows where the
// job cannot be parked. What is parked and how: docs/park.md.
class ParkJob final : public Action {
 public:
  // What is to be parked, as arguments of `lull park`; asked when it begins. Empty: nothing.
  using Who = std::function<Result<std::vector<std::string>>()>;
  // `otherwise`: what is done where it could not be parked. Null: nothing.
  ParkJob(const Tools& tools, std::string text, ParkOptions options, Who who, std::unique_ptr<Action> otherwise,
          std::function<void(const Process&)> on_start = nullptr)
      : tools_(tools),
        text_(std::move(text)),
        options_(std::move(options)),
        who_(std::move(who)),
        otherwise_(std::move(otherwise)),
        on_start_(std::move(on_start)) {}

  const std::string& text() const override { return text_; }
  Result<> prepare() override;
  void start(const FiringFacts& facts, Done done, Tell tell) override;
  void ask_before_kill(PreKillCheck look) override;
  void ask_before_acting(Leave leave) override;
  bool undo() override { return ends_ && otherwise_->undo(); }
  void look() override;
  bool ends_work() const override { return ends_ && otherwise_->ends_work(); }
  bool may_be_repeated() const override { return false; }

 private:
  void failed(const std::string& trouble, const FiringFacts& facts, const Done& done, const Tell& tell);

  Tools tools_;
  std::string text_;
  ParkOptions options_;
  Who who_;
  std::unique_ptr<Action> otherwise_;
  std::function<void(const Process&)> on_start_;
  Leave leave_;
  bool ends_ = false;  // it could not be parked, and `otherwise` is under way
};

// "PID@START" of a process, with a '+' for all that it started.
std::string park_argument(pid_t pid, std::uint64_t start_ticks, bool with_children);
// Of the process that has this number now: looked up here, once.
ParkJob::Who park_named(pid_t pid);

}  // namespace lull
