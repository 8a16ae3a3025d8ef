#include "act/actions.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "act/determined.h"
#include "act/notify_action.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

constexpr auto kOffers = std::to_array<ActionOffer>({
    {"exit", "lull ends"},
    {"kill=parent", "end what started lull"},
    {"kill=container", "end the container that lull runs in"},
    {"kill=holders", "end who holds the GPU"},
    {"end", "as kill=holders"},
    {"exec=", "run a command"},
    {"shutdown", "power this machine off"},
    {"reboot", "reboot this machine"},
    {"determined", "end this Determined task"},
    {"notify", "tell somebody"},
});

// "exit", "kill=", "end", …
std::vector<std::string_view> names() {
  std::vector<std::string_view> found;
  for (const ActionOffer& offer : kOffers) {
    const std::string_view name = offer.word.substr(0, offer.word.find('=') + 1);
    found.push_back(name.empty() ? offer.word : name);
  }
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

// What can be said of `kill=…` before anybody looks who that is.
Result<> check_target(const std::string& what) {
  if (what == "container" || what == "parent" || what == "holders" || to_pid(what)) return {};
  if (!what.starts_with("PGID:"))
    return fail("kill= needs a PID, PGID:N, parent, container or holders, not '" + printable(what) + "'");
  if (to_pid(what.substr(5))) return {};
  return fail("kill=PGID:N needs the number of a process group, not '" + printable(what.substr(5)) + "'");
}

Result<std::vector<std::string>> determined_command() {
  const auto task = determined_task([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
  });
  if (!task)
    return fail(
        "this is no Determined task (DET_TASK_TYPE and DET_TASK_ID are not set); say what to end, for example "
        "kill=parent");
  if (!is_executable("det")) return fail("`det` is not in PATH: a Determined task cannot be ended");
  return determined_kill(*task);
}

// kill=…: who that is, is looked up once, before anything is watched.
class KillNamed final : public EndTree {
 public:
  KillNamed(Loop& loop, const ActionWord& word, Ending::Options options)
      : EndTree(loop, word.text, options), what_(word.argument) {}

  Result<> prepare() override {
    tree_ = TRY(find());
    use(*tree_, target_);
    return {};
  }
  // Who loses its parent before the rule fires is known from here on.
  void look() override {
    if (tree_) (void)tree_->members();
    EndTree::look();
  }

 private:
  Result<Tree> find() {
    if (what_ == "container") return Tree::of_container();
    if (what_.starts_with("PGID:")) return Tree::of_group(to_pid(what_.substr(5)).value_or(0));
    const pid_t pid = what_ == "parent" ? ::getppid() : to_pid(what_).value_or(0);
    if (pid == ::getpid()) return fail("kill=" + what_ + " is lull itself");
    if (what_ == "parent" && pid <= 1) return fail("kill=parent: whoever started us has ended");
    target_ = TRY(Process::open(pid));
    if (const auto may = target_.signal(0); !may && may.error().errno_value == EPERM)
      return fail(EPERM, fmt::format("process {} is not ours to end", pid));
    return Tree::of_process(target_);
  }

  std::string what_;
  Process target_;
  std::optional<Tree> tree_;
};

// Tells everybody who is logged in, and gives them time to call it off.
class AnnouncePower final : public Action {
 public:
  AnnouncePower(Loop& loop, const ActionWord& word, Duration warn, Root root)
      : loop_(loop), text_(word.text), power_(word.power), warn_(warn), root_(std::move(root)) {}
  ~AnnouncePower() override { (void)AnnouncePower::undo(); }

  const std::string& text() const override { return text_; }
  void start(const FiringFacts& facts, Done done, Tell tell) override {
    const std::string message =
        fmt::format("lull: this machine goes {} in {}: {}. `lull watch --cancel` keeps it up.",
                    power_ == Power::off ? "off" : "down for a reboot", format_duration(warn_), headline(facts.why));
    tell(Announced{text_, warn_, tell_terminals(message, root_)});
    until_ = loop_.now() + warn_;
    timer_ = loop_.at(*until_, [this, done = std::move(done)] {
      timer_.reset();
      until_.reset();
      done({});
    });
  }
  bool undo() override {
    if (timer_) loop_.cancel(*timer_);
    timer_.reset();
    until_.reset();
    return true;
  }
  bool needs_a_fresh_yes() const override { return false; }
  std::optional<Instant> waits_until() const override { return until_; }

 private:
  Loop& loop_;
  std::string text_;
  Power power_;
  Duration warn_;
  Root root_;
  std::optional<Loop::TimerId> timer_;
  std::optional<Instant> until_;
};

Result<std::vector<std::string>> shell(const std::string& line) {
  return std::vector<std::string>{"/bin/sh", "-c", line};
}

}  // namespace

std::string left_in_words(const std::vector<ProcessEntry>& left) {
  std::string stuck;
  std::string refused;
  for (const ProcessEntry& one : left) {
    const auto process = Process::open(one);
    const auto reached = process ? process->signal(0) : Result<>();
    const bool ours = reached || reached.error().errno_value != EPERM;
    std::string& list = ours ? stuck : refused;
    list += (list.empty() ? "" : " ") + std::to_string(one.pid);
  }
  if (!stuck.empty()) stuck += " (stuck in the kernel)";
  if (!refused.empty()) refused += " (not ours to end)";
  return stuck + (stuck.empty() || refused.empty() ? "" : ", ") + refused;
}

std::span<const ActionOffer> action_offers() { return kOffers; }

Result<ActionWord> parse_action(std::string_view text) {
  ActionWord action;
  action.text = text;
  const auto equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const bool has_argument = equals != std::string_view::npos;
  if (has_argument) action.argument = text.substr(equals + 1);
  const auto needs = [&](bool wanted, const char* example) -> Result<ActionWord> {
    if (wanted == (has_argument && !action.argument.empty())) return action;
    return fail(fmt::format("{}: {}, as in {}", name, wanted ? "something is missing" : "takes nothing", example));
  };
  if (name == "exit") {
    action.kind = ActionWord::Kind::exit;
    if (!has_argument) return action;
    const auto status = to_unsigned(action.argument);
    if (!status || *status > 255)
      return fail("exit=STATUS is a number from 0 to 255, not '" + printable(action.argument) + "'");
    action.status = static_cast<int>(*status);
    return action;
  }
  if (name == "kill") {
    action.kind = ActionWord::Kind::kill;
    TRY(needs(true, "kill=1234"));
    TRY(check_target(action.argument));
    if (action.argument == "holders") action.kind = ActionWord::Kind::holders;
    return action;
  }
  if (name == "exec") return action.kind = ActionWord::Kind::exec, needs(true, "exec='mail -s idle me'");
  if (name == "notify") {
    action.kind = ActionWord::Kind::notify;
    action.notify = TRY(parse_notify(action.argument));
    const std::string place = shown(action.notify);
    action.text = place.empty() ? "notify" : "notify=" + place;
    return action;
  }
  if (name == "end") return action.kind = ActionWord::Kind::holders, needs(false, "--do end");
  if (name == "determined") return action.kind = ActionWord::Kind::determined, needs(false, "--do determined");
  if (name == "shutdown" || name == "reboot") {
    action.kind = ActionWord::Kind::power;
    action.power = name == "reboot" ? Power::reboot : Power::off;
    return needs(false, "--do shutdown");
  }
  std::vector<std::string_view> known;
  for (const std::string_view one : names()) known.push_back(one.substr(0, one.find('=')));
  const std::string hint = did_you_mean(name, known);
  return fail(fmt::format("there is no action '{}'{}", printable(name),
                          hint.empty() ? fmt::format("; there are {}", fmt::join(names(), ", ")) : hint));
}

std::string in_words(const std::vector<ActionWord>& actions) {
  std::string words;
  for (const ActionWord& action : actions) words += (words.empty() ? "" : ", then ") + printable(action.text);
  return words;
}

std::string in_words_of_a_notice(std::vector<ActionWord> actions) {
  std::erase_if(actions, [](const ActionWord& one) { return one.kind == ActionWord::Kind::notify; });
  return in_words(actions);
}

std::vector<std::unique_ptr<Action>> actions_of(const ActionWord& word, const Tools& tools,
                                                const ActionOptions& options) {
  std::vector<std::unique_ptr<Action>> actions;
  RunCommand::Options command{.text = word.text, .find = nullptr, .limit = options.limit};
  switch (word.kind) {
    case ActionWord::Kind::exit:
    case ActionWord::Kind::holders: return actions;
    case ActionWord::Kind::kill:
      actions.push_back(std::make_unique<KillNamed>(tools.loop, word, options.ending));
      return actions;
    case ActionWord::Kind::exec:
      command.find = [line = word.argument] { return shell(line); };
      command.facts_on_stdin = true;
      break;
    case ActionWord::Kind::power:
      if (options.warn)
        actions.push_back(std::make_unique<AnnouncePower>(tools.loop, word, *options.warn, options.root));
      command.find = [power = word.power, &signals = tools.signals] { return find_power_command(power, &signals); };
      break;
    case ActionWord::Kind::determined: command.find = determined_command; break;
    case ActionWord::Kind::notify:
      actions.push_back(std::make_unique<SendNotification>(tools, word, options));
      return actions;
  }
  actions.push_back(std::make_unique<RunCommand>(tools, std::move(command)));
  return actions;
}

void EndTree::start(const FiringFacts& /*facts*/, Done done, Tell tell) {
  done_ = std::move(done);
  tell_ = std::move(tell);
  ending_.emplace(*tree_, *root_, options_);
  answer_by_.reset();
  if (asks_first()) ending_->ask_first();
  step();
}

bool EndTree::undo() {
  if (!ending_ || ending_->state() != Ending::State::signalled) return false;
  stop_waiting();
  ending_.reset();
  done_ = nullptr;
  return true;
}

void EndTree::ask_or_kill() {
  if (answer_by_) {
    if (loop_.now() >= *answer_by_) ending_->may_kill();
    return;
  }
  answer_by_ = loop_.now() + kLongestLastLook;
  take_last_look([this] { return ending_ && ending_->waits_to_kill(); },
                 [this] {
                   ending_->may_kill();
                   step();
                 });
}

void EndTree::look() {
  if (ending_) step();
}

void EndTree::step() {
  stop_waiting();
  const bool killed_before = ending_->killed() > 0;
  const auto next = ending_->step(loop_.now());
  if (!killed_before && ending_->killed() > 0 && options_.signal != 0)
    tell_(Killing{options_.grace, ending_->killed()});
  if (!next) return over();
  wait_until(*next, [this] {
    if (before_look_) before_look_();
    if (ending_) step();  // that may have been the end of it
  });
  if (ending_->waits_to_kill()) ask_or_kill();  // last: the answer may come at once
}

void EndTree::over() {
  const Ending::State state = ending_->state();
  const std::string left = left_in_words(ending_->left());
  ending_.reset();  // whoever is told may look once more
  Outcome outcome;
  if (state == Ending::State::stuck) {
    outcome = {false, "still there: " + left};
    tell_(TreeStuck{left});
  } else if (state == Ending::State::unproven) {
    outcome = {false, "it is gone, but whether all its processes are cannot be told: /proc cannot be read"};
    tell_(TreeUnproven{outcome.trouble});
  } else {
    tell_(TreeGone{});
  }
  std::exchange(done_, nullptr)(outcome);
}

Result<> RunCommand::prepare() {
  command_ = TRY(options_.find());
  return {};
}

void RunCommand::start(const FiringFacts& facts, Done done, Tell /*tell*/) {
  tools_.helpers.run(
      {.arguments = command_,
       .environment = facts_environment(facts),
       .input = options_.facts_on_stdin ? facts_json(facts) + "\n" : "",
       .limit = options_.limit,
       .signals = &tools_.signals},
      [done = std::move(done)](const HelperResult& result) { done({result.ok(), result.trouble}); }, options_.on_start);
}

Result<> CollectEvidence::prepare() { return Evidence::prepare(folder_); }

void CollectEvidence::start(const FiringFacts& facts, Done done, Tell tell) {
  Evidence::collect(
      folder_, facts, recorder_, tools_.helpers, tools_.signals, on_start_,
      [done = std::move(done), tell = std::move(tell)](const std::string& where, const std::string& trouble) {
        tell(EvidenceWritten{where, trouble});
        done({});
      });
}

}  // namespace lull
