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
#include "act/ends_work.h"
#include "act/evidence.h"
#include "act/helper.h"
#include "act/notify.h"
#include "act/power.h"
#include "act/spawn.h"
#include "act/tree.h"
#include "base/result.h"
#include "loop/loop.h"

namespace lull {

// An action as it is written.
struct ActionWord {
  enum class Kind : std::uint8_t { exit, kill, holders, exec, power, determined, notify };
  Kind kind = Kind::exit;
  std::string text;      // as it was written; of a notification without what is secret
  std::string argument;  // behind the '='
  int status = 0;        // of exit
  Power power = Power::off;
  NotifyTo notify = {};
};
// exit[=STATUS], kill=PID|PGID:N|parent|container|holders, end (as kill=holders), exec=CMD, shutdown, reboot,
// determined, notify[=…] (notify.h)
Result<ActionWord> parse_action(std::string_view text);

// What may be written, for completions: "kill=parent".
struct ActionOffer {
  std::string_view word;
  std::string_view does;
};
std::span<const ActionOffer> action_offers();

// "shutdown, then exec=…"
std::string in_words(const std::vector<ActionWord>& actions);
// The same without notices, for one: who reads it has it, and where it goes is nobody else's business.
std::string in_words_of_a_notice(std::vector<ActionWord> actions);

// What actions work with.
struct Tools {
  Loop& loop;
  Helpers& helpers;
  const InheritedSignals& signals;
};

struct ActionOptions {
  Duration limit = std::chrono::seconds(30);  // for a command; for a notification with all its retries
  unsigned retries = 3;                       // of a notification
  Duration retry_after = std::chrono::seconds(10);
  Ending::Options ending;
  std::optional<Duration> warn = {};  // before shutdown and reboot
  Root root = Root::machine();
};
// What the word stands for, not yet prepared; a shutdown with a warning is two. Of `exit` there is nothing to do, and
// who the holders are is known to who judges them (EndHolders, holders.h).
std::vector<std::unique_ptr<Action>> actions_of(const ActionWord& word, const Tools& tools,
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

  std::optional<Instant> answer_by_;  // of the last look, which has been asked for
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
    bool undoable = false;  // harmless: needs no fresh yes, and what follows does not depend on it
    bool repeat = true;
    std::function<void(const Process&)> on_start = nullptr;
  };
  RunCommand(const Tools& tools, Options options) : tools_(tools), options_(std::move(options)) {}
  const std::string& text() const override { return options_.text; }
  Result<> prepare() override;
  void start(const FiringFacts& facts, Done done, Tell tell) override;
  bool needs_a_fresh_yes() const override { return !options_.undoable; }
  bool may_be_repeated() const override { return options_.repeat; }

 private:
  Tools tools_;
  Options options_;
  std::vector<std::string> command_;
};

// Writes down what was seen, before it is gone.
class CollectEvidence : public Action {
 public:
  CollectEvidence(const Tools& tools, std::string folder, const Recorder& recorder,
                  std::function<void(const Process&)> on_start)
      : tools_(tools), folder_(std::move(folder)), recorder_(recorder), on_start_(std::move(on_start)) {}
  const std::string& text() const override { return folder_; }
  Result<> prepare() override;
  void start(const FiringFacts& facts, Done done, Tell tell) override;
  bool needs_a_fresh_yes() const override { return false; }
  bool may_be_repeated() const override { return false; }

 private:
  Tools tools_;
  std::string folder_;
  const Recorder& recorder_;
  std::function<void(const Process&)> on_start_;
};

// "12 13 (stuck in the kernel), 14 (not ours to end)": those who outlived even SIGKILL.
std::string left_in_words(const std::vector<ProcessEntry>& left);

}  // namespace lull
