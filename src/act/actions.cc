#include "act/actions.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <set>
#include <utility>

#include "act/determined.h"
#include "act/notify.h"
#include "act/picture.h"
#include "base/exit_status.h"
#include "base/host.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kHolderRecheck = 100ms;  // a pidfd that the loop watches would do, but there may be hundreds

constexpr auto kOffers = std::to_array<ActionOffer>({
    {"exit", "lull ends"},
    {"kill=parent", "end what started lull"},
    {"kill=container", "end the container that lull runs in"},
    {"kill=holders", "end who holds the GPU"},
    {"end", "as kill=holders"},
    {"park", "move the job out of its GPU, by cuda-checkpoint"},
    {"exec=", "run a command"},
    {"shutdown", "power this machine off"},
    {"reboot", "reboot this machine"},
    {"determined", "end this Determined task"},
    {"notify", "send a message"},
    {"mail", "write to the users of the job"},
    {"slurm=comment", "write into the Slurm job's AdminComment"},
    {"slurm=signal:TERM", "send a signal to all processes of the Slurm job"},
    {"slurm=requeue", "requeue the Slurm job"},
    {"slurm=requeuehold", "requeue the Slurm job, and hold it"},
    {"slurm=cancel", "cancel the Slurm job"},
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

// What is known of `kill=…` before its processes are looked up.
Result<> check_target(const std::string& what) {
  if (what == "container" || what == "parent" || what == "holders" || to_pid(what)) return {};
  if (!what.starts_with("PGID:"))
    return fail("kill= needs a PID, PGID:N, parent, container or holders, not '" + printable(what) + "'");
  if (to_pid(what.substr(5))) return {};
  return fail("kill=PGID:N needs the number of a process group, not '" + printable(what.substr(5)) + "'");
}

Result<std::vector<std::string>> determined_command() {
  const auto task = determined_task(environment_variable);
  if (!task)
    return fail(
        "this is not a Determined task (DET_TASK_TYPE and DET_TASK_ID are not set); say what to end, for example "
        "kill=parent");
  if (!is_executable("det")) return fail("`det` is not in PATH: a Determined task cannot be ended");
  return determined_kill(*task);
}

// kill=…: who that is, is looked up once, before anything is watched.
class KillNamed final : public EndTree {
 public:
  KillNamed(Loop& loop, const ActionOption& word, Ending::Options options)
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
    if (what_ == "parent" && pid <= 1) return fail("kill=parent: the parent process has ended");
    target_ = TRY(Process::open(pid));
    if (const auto may = target_.signal(0); !may && may.error().errno_value == EPERM)
      return fail(EPERM, fmt::format("process {} is not ours to end", pid));
    return Tree::of_process(target_);
  }

  std::string what_;
  Process target_;
  std::optional<Tree> tree_;
};

// Warns all logged-in users, and gives them time to cancel it.
class AnnouncePower final : public Action {
 public:
  AnnouncePower(Loop& loop, const ActionOption& word, Duration warn, Root root)
      : loop_(loop), text_(word.text), power_(word.power), warn_(warn), root_(std::move(root)) {}

  const std::string& text() const override { return text_; }
  void start(const FiringFacts& facts, Done done, Tell tell) override {
    const std::string message =
        fmt::format("lull: this machine goes {} in {}: {}. `lull watch --cancel` keeps it up.",
                    power_ == Power::off ? "off" : "down for a reboot", format_duration(warn_), headline(facts.why));
    tell(Announced{text_, warn_, write_to_terminals(message, root_)});
    until_ = loop_.now() + warn_;
    timer_.at(*until_, [this, done = std::move(done)] {
      until_.reset();
      done({});
    });
  }
  bool undo() override {
    timer_.cancel();
    until_.reset();
    return true;
  }
  bool requires_confirmation() const override { return false; }
  std::optional<Instant> waits_until() const override { return until_; }

 private:
  Loop& loop_;
  std::string text_;
  Power power_;
  Duration warn_;
  Root root_;
  Timer timer_{loop_};
  std::optional<Instant> until_;
};

std::string shown_host() {
  const std::string name = host_name();
  return name.empty() ? "?" : printable(name);
}

std::string seconds_text(Duration time) {
  return std::to_string(std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(time).count()));
}

// What curl said last, without the address should it be in there.
std::string trouble_of(const HelperResult& result, const std::string& address) {
  const std::string_view all = trim(result.output);
  std::string said(all.substr(all.rfind('\n') + 1));  // npos + 1 is 0
  for (std::size_t at = said.find(address); at != std::string::npos; at = said.find(address))
    said.replace(at, address.size(), "…");
  return said.empty() || result.timed_out ? result.trouble : printable(said);
}

// `notify`: curl with a message, and its retries. Nothing that follows depends on it, but it comes first where it is
// given first: it takes no longer than its limit.
class SendNotification final : public Action {
 public:
  SendNotification(const Tools& tools, const ActionOption& word, const ActionOptions& options)
      : tools_(tools), text_(word.text), to_(word.notify), options_(options) {}
  const std::string& text() const override { return text_; }
  bool may_be_repeated() const override { return false; }  // curl does, and minds a server's Retry-After

  Result<> prepare() override {
    if (!is_executable("curl")) return fail("notify needs curl, which is not in PATH");
    TRY(address_of(to_));
    return {};
  }

  void start(const FiringFacts& facts, Done done, Tell /*tell*/) override {
    const auto address = address_of(to_);
    if (!address) return done({false, address.error().message()});
    // No .curlrc: it may ask for a trace of all that is sent. No redirect is followed: the address is who we trust.
    constexpr Duration kOneTry = 10s;
    std::vector<std::string> command = {"curl", "-q", "--config", "-", "--fail", "--silent", "--show-error"};
    command.insert(command.end(), {"--proto", "=http,https", "--output", "/dev/null", "--max-time",
                                   seconds_text(std::min(kOneTry, options_.limit))});
    if (options_.retries > 0)
      command.insert(command.end(),
                     {"--retry", std::to_string(options_.retries), "--retry-delay", seconds_text(options_.retry_after),
                      "--retry-max-time", seconds_text(options_.limit), "--retry-connrefused"});
    tools_.helpers.run({.arguments = std::move(command),
                        .input = curl_config(*address, message_for(service_of(to_, *address), facts, shown_host())),
                        .limit = options_.limit,
                        .capture = true,
                        .quiet = true,
                        .signals = &tools_.signals},
                       [done = std::move(done), address = *address](const HelperResult& result) {
                         done({result.ok(), result.ok() ? "" : trouble_of(result, address)});
                       });
  }

 private:
  Tools tools_;
  std::string text_;
  NotifyTo to_;
  ActionOptions options_;
};

// `mail`: as a notification, by the machine's own mailer. Nothing that follows depends on it.
class SendMail final : public Action {
 public:
  SendMail(const Tools& tools, const ActionOption& word, const ActionOptions& options)
      : tools_(tools), text_(word.text), argument_(word.argument), limit_(options.limit) {}
  const std::string& text() const override { return text_; }

  Result<> prepare() override {
    TRY(find_mailer());
    return {};
  }

  void start(const FiringFacts& facts, Done done, Tell /*tell*/) override {
    const std::string host = shown_host();
    auto mailer = find_mailer();
    if (!mailer) return done({false, mailer.error().message()});
    const auto addresses = parse_mail(argument_);
    const auto to = addresses ? recipients_of(*addresses, facts) : addresses;
    if (!to) return done({false, to.error().message()});
    std::string input =
        mailer->whole ? mail_message(*to, facts, host, picture_of(facts, host)) : mail_text(facts, host);
    if (!mailer->whole) {
      mailer->command.insert(mailer->command.end(), {"-s", mail_subject(facts, host)});
      mailer->command.insert(mailer->command.end(), to->begin(), to->end());
    }
    tools_.helpers.run(
        {.arguments = std::move(mailer->command),
         .input = std::move(input),
         .limit = limit_,
         .capture = true,
         .quiet = true,
         .signals = &tools_.signals},
        [done = std::move(done)](const HelperResult& result) {
          const std::string said = printable(trim(std::string_view(result.output).substr(0, 300)));
          done({result.ok(), result.ok() ? "" : said.empty() ? result.trouble : result.trouble + ": " + said});
        });
  }

 private:
  Tools tools_;
  std::string text_;
  std::string argument_;
  Duration limit_;
};

Result<std::vector<std::string>> shell(const std::string& line) {
  return std::vector<std::string>{"/bin/sh", "-c", line};
}

}  // namespace

std::string processes_left_text(const std::vector<ProcessEntry>& left) {
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

Result<ActionOption> parse_action(std::string_view text) {
  ActionOption action;
  action.text = text;
  const auto equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const bool has_argument = equals != std::string_view::npos;
  if (has_argument) action.argument = text.substr(equals + 1);
  const auto needs = [&](bool wanted, const char* example) -> Result<ActionOption> {
    if (wanted == (has_argument && !action.argument.empty())) return action;
    return fail(fmt::format("{}: {}, as in {}", name, wanted ? "something is missing" : "takes nothing", example));
  };
  if (name == "exit") {
    action.kind = ActionOption::Kind::exit;
    if (!has_argument) return action;
    const auto status = to_unsigned(action.argument);
    if (!status || *status > 255)
      return fail("exit=STATUS is a number from 0 to 255, not '" + printable(action.argument) + "'");
    action.status = static_cast<int>(*status);
    return action;
  }
  if (name == "kill") {
    action.kind = ActionOption::Kind::kill;
    TRY(needs(true, "kill=1234"));
    TRY(check_target(action.argument));
    if (action.argument == "holders") action.kind = ActionOption::Kind::holders;
    return action;
  }
  if (name == "exec") return action.kind = ActionOption::Kind::exec, needs(true, "exec='mail -s idle me'");
  if (name == "notify") {
    action.kind = ActionOption::Kind::notify;
    action.notify = TRY(parse_notify(action.argument));
    const std::string place = to_string(action.notify);
    action.text = place.empty() ? "notify" : "notify=" + place;
    return action;
  }
  if (name == "mail") {
    action.kind = ActionOption::Kind::mail;
    if (has_argument) TRY(needs(true, "mail=admin@example.org"));
    TRY(parse_mail(action.argument));
    return action;
  }
  if (name == "end") return action.kind = ActionOption::Kind::holders, needs(false, "--do end");
  if (name == "park") {
    action.kind = ActionOption::Kind::park;
    if (has_argument && !to_pid(action.argument))
      return fail("park=PID needs the number of a process, not '" + printable(action.argument) + "'");
    return action;
  }
  if (name == "slurm") return action.kind = ActionOption::Kind::slurm, needs(true, "slurm=requeue");
  if (name == "determined") return action.kind = ActionOption::Kind::determined, needs(false, "--do determined");
  if (name == "shutdown" || name == "reboot") {
    action.kind = ActionOption::Kind::power;
    action.power = name == "reboot" ? Power::reboot : Power::off;
    return needs(false, "--do shutdown");
  }
  std::vector<std::string_view> known;
  for (const std::string_view one : names()) known.push_back(one.substr(0, one.find('=')));
  const std::string hint = did_you_mean(name, known);
  return fail(fmt::format("there is no action '{}'{}", printable(name),
                          hint.empty() ? fmt::format("; there are {}", fmt::join(names(), ", ")) : hint));
}

std::string to_text(const std::vector<ActionOption>& actions) {
  std::string words;
  for (const ActionOption& action : actions) words += (words.empty() ? "" : ", then ") + printable(action.text);
  return words;
}

std::string notice_text(std::vector<ActionOption> actions) {
  std::erase_if(actions, [](const ActionOption& one) { return one.only_tells(); });
  return to_text(actions);
}

std::vector<std::unique_ptr<Action>> actions_of(const ActionOption& word, const Tools& tools,
                                                const ActionOptions& options) {
  std::vector<std::unique_ptr<Action>> actions;
  RunCommand::Options command{.text = word.text, .find = nullptr, .limit = options.limit};
  switch (word.kind) {
    case ActionOption::Kind::exit:
    case ActionOption::Kind::holders:
    case ActionOption::Kind::slurm: return actions;
    case ActionOption::Kind::kill:
      actions.push_back(std::make_unique<KillNamed>(tools.loop, word, options.ending));
      return actions;
    case ActionOption::Kind::park: {
      if (word.argument.empty()) return actions;
      actions.push_back(std::make_unique<ParkJob>(
          tools, word.text, options.park, park_named(to_pid(word.argument).value_or(0)),
          options.park.else_end ? std::make_unique<KillNamed>(tools.loop, word, options.ending) : nullptr));
      return actions;
    }
    case ActionOption::Kind::exec:
      command.find = [line = word.argument] { return shell(line); };
      command.facts_on_stdin = true;
      break;
    case ActionOption::Kind::power:
      if (options.warn)
        actions.push_back(std::make_unique<AnnouncePower>(tools.loop, word, *options.warn, options.root));
      command.find = [power = word.power, &signals = tools.signals] { return find_power_command(power, &signals); };
      break;
    case ActionOption::Kind::determined: command.find = determined_command; break;
    case ActionOption::Kind::notify:
      actions.push_back(std::make_unique<SendNotification>(tools, word, options));
      return actions;
    case ActionOption::Kind::mail: actions.push_back(std::make_unique<SendMail>(tools, word, options)); return actions;
  }
  actions.push_back(std::make_unique<RunCommand>(tools, std::move(command)));
  return actions;
}

// ---- EndsWork and EndTree

void EndsWork::run_pre_kill_check(std::function<bool()> still_waits, std::function<void()> kill) {
  looking_ = true;
  pre_kill_check_([this, still_waits = std::move(still_waits), kill = std::move(kill)](Truth works) {
    looking_ = false;
    if (!still_waits()) return;
    if (works == Truth::no) return kill();
    if (works == Truth::unknown) {
      if (!std::exchange(waits_said_, true)) tell_(KillWaits{});
      return;
    }
    const Done done = std::move(done_);
    (void)undo();
    tell_(WorksAgain{});
    done({.called_off = true});
  });
}

void EndTree::start(const FiringFacts& /*facts*/, Done done, Tell tell) {
  done_ = std::move(done);
  tell_ = std::move(tell);
  ending_.emplace(*tree_, *root_, options_);
  looking_ = asks_leave_ = waits_said_ = false;
  ending_->check_before(leave_.holds, asks_first() ? leave_.may_kill : nullptr);
  if (asks_first()) ending_->ask_first();
  step();
}

bool EndTree::undo() {
  if (!ending_ || ending_->state() != Ending::State::signalled) return false;
  timer_.cancel();
  ending_.reset();
  done_ = nullptr;
  return true;
}

void EndTree::ask_or_kill() {
  if (looking_) return;
  run_pre_kill_check([this] { return ending_ && ending_->waits_to_kill(); },
                     [this] {
                       ending_->may_kill();
                       step();
                     });
}

void EndTree::look() {
  if (ending_) step();
}

void EndTree::step() {
  timer_.cancel();
  const bool killed_before = ending_->killed() > 0;
  const auto next = ending_->step(loop_.now());
  if (!killed_before && ending_->killed() > 0 && options_.signal != 0)
    tell_(Killing{options_.grace, ending_->killed()});
  if (!next) return over();
  // The leave was too old when we came to it.
  if (ending_->waits_to_signal() && !std::exchange(asks_leave_, true))
    return leave_.again([this] {
      asks_leave_ = false;
      if (!ending_) return;
      ending_->go_on();
      step();
    });
  if (asks_leave_) return;
  timer_.at(*next, [this] {
    if (before_look_) before_look_();
    if (ending_) step();  // that may have been the end of it
  });
  if (ending_->waits_to_kill()) ask_or_kill();  // last: the answer may come at once
}

void EndTree::over() {
  const Ending::State state = ending_->state();
  const std::string left = processes_left_text(ending_->left());
  ending_.reset();  // whoever is told may look once more
  Outcome outcome;
  if (state == Ending::State::stuck) {
    outcome = {false, "still there: " + left};
    tell_(TreeStuck{left});
  } else if (state == Ending::State::unproven) {
    outcome = {false, "it has ended, but lull cannot check all its processes: /proc cannot be read"};
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

void RunCommand::start(const FiringFacts& facts, Done done, Tell tell) {
  tools_.helpers.run(
      {.arguments = command_,
       .environment = facts_environment(facts),
       .input = options_.facts_on_stdin ? facts_json(facts) + "\n" : "",
       .limit = options_.limit,
       .signals = &tools_.signals,
       .may_start = requires_confirmation() ? leave_.holds : nullptr},
      [this, leave = leave_, facts, done = std::move(done), tell = std::move(tell),
       may_wait = !options_.undoable](const HelperResult& result) {
        if (result.not_allowed) return leave.again([this, facts, done, tell] { start(facts, done, tell); });
        const bool not_now = may_wait && result.status && result.status->shell_status() == kExitNotNow;
        done({.ok = result.ok(), .trouble = not_now ? "" : result.trouble, .not_now = not_now});
      },
      options_.on_start);
}

Result<> CollectEvidence::prepare() { return Evidence::prepare(folder_); }

void CollectEvidence::start(const FiringFacts& facts, Done done, Tell tell) {
  Evidence::collect(folder_, facts, recorder_, tools_.helpers, tools_.signals, on_start_, debugger_,
                    [done = std::move(done), tell = std::move(tell)](const EvidenceWritten& written) {
                      tell(written);
                      done({});
                    });
}

// ---- EndHolders

void EndHolders::start(const FiringFacts& /*facts*/, Done done, Tell tell) {
  done_ = std::move(done);
  tell_ = std::move(tell);
  left_.clear();
  refused_.clear();
  unreached_.clear();
  killed_ = looking_ = asks_leave_ = waits_said_ = false;
  reached_ = 0;
  for (const GpuProcess& one : who_()) {
    if (one.pid == ::getpid() || is_own_process(one.pid, one.start_ticks)) continue;
    if (auto process = Process::open(one.id()))
      left_.push_back(*std::move(process));
    else if (process.error().errno_value != ESRCH)
      unreached_.push_back(process.error().message());
  }
  begin();
}

void EndHolders::begin() {
  asks_leave_ = !signal_all(options_.signal == 0 ? SIGKILL : options_.signal, leave_.holds);
  if (asks_leave_)
    return leave_.again([this] {
      if (!done_) return;
      drop_who_left();
      begin();
    });
  killed_ = options_.signal == 0 || options_.signal == SIGKILL;
  next_ = loop_.now() + (killed_ ? options_.give_up : options_.grace);
  step();
}

// Who was not signalled yet may work elsewhere by now, or have left the GPU.
void EndHolders::drop_who_left() {
  std::set<ProcessId> there;
  for (const GpuProcess& one : who_()) there.insert(one.id());
  left_.erase(std::remove_if(left_.begin() + static_cast<std::ptrdiff_t>(reached_), left_.end(),
                             [&](const Process& one) { return !there.contains(one.id()); }),
              left_.end());
}

// `may` is asked before each. False: not all have it yet.
bool EndHolders::signal_all(int number, const std::function<bool()>& may) {
  for (; reached_ < left_.size(); ++reached_) {
    const Process& one = left_[reached_];
    if (may && !may()) return false;
    if (const auto sent = one.signal(number); !sent && sent.error().errno_value == EPERM)
      refused_.push_back(std::to_string(one.pid()));
  }
  reached_ = 0;
  std::erase_if(left_, [&](const Process& one) { return std::ranges::count(refused_, std::to_string(one.pid())) > 0; });
  return true;
}

void EndHolders::look() {
  if (done_ && !asks_leave_) step();
}

void EndHolders::step() {
  timer_.cancel();
  std::erase_if(left_, [](const Process& one) { return one.ended(); });
  if (left_.empty()) return over();
  bool asks = false;
  if (loop_.now() >= next_) {
    if (killed_) return over();
    asks = asks_first() && !looking_;
    if (!asks_first()) kill(true);
  }
  const Instant again = loop_.now() + kHolderRecheck;
  timer_.at(next_ > loop_.now() ? std::min(next_, again) : again, [this] { step(); });
  if (asks) ask();  // last: the answer may come at once
}

void EndHolders::kill(bool in_any_case) {
  const std::size_t count = left_.size();
  if (!in_any_case && leave_.may_kill && !leave_.may_kill()) return;  // the answer is too old: another look
  killed_ = true;
  signal_all(SIGKILL, nullptr);
  tell_(Killing{options_.grace, count});
  next_ = loop_.now() + options_.give_up;
}

void EndHolders::ask() {
  run_pre_kill_check([this] { return done_ && !killed_; },
                     [this] {
                       kill(false);
                       step();
                     });
}

bool EndHolders::undo() {
  if (killed_) return false;
  timer_.cancel();
  done_ = nullptr;
  return true;
}

void EndHolders::over() {
  std::string stuck;
  for (const Process& one : left_) stuck += (stuck.empty() ? "" : " ") + std::to_string(one.pid());
  Outcome outcome;
  if (!stuck.empty()) outcome = {false, "stuck in the kernel: " + stuck};
  if (!refused_.empty())
    outcome = {false, fmt::format("{}{}not ours to end: {}", outcome.trouble, stuck.empty() ? "" : "; ",
                                  fmt::join(refused_, " "))};
  if (!unreached_.empty())
    outcome = {false, fmt::format("{}{}{}", outcome.trouble, outcome.trouble.empty() ? "" : "; ",
                                  fmt::join(unreached_, "; "))};
  std::exchange(done_, nullptr)(outcome);
}

namespace {

// `lull park` has limits of its own for each step; were it killed, its guard would go with it.
constexpr Duration kLongestParking = std::chrono::hours(2);

}  // namespace

std::string park_argument(pid_t pid, std::uint64_t start_ticks, bool with_children) {
  return fmt::format("{}@{}{}", pid, start_ticks, with_children ? "+" : "");
}

ParkJob::Who park_named(pid_t pid) {
  const auto entry = read_process_entry(pid);
  if (!entry) return [error = entry.error()]() -> Result<std::vector<std::string>> { return std::unexpected(error); };
  return [argument = park_argument(pid, entry->start_ticks, true)]() -> Result<std::vector<std::string>> {
    return std::vector{argument};
  };
}

Result<> ParkJob::prepare() {
  if (otherwise_) TRY(otherwise_->prepare());
  return {};
}

void ParkJob::ask_before_kill(PreKillCheck look) {
  if (otherwise_) otherwise_->ask_before_kill(std::move(look));
}

void ParkJob::ask_before_acting(Leave leave) {
  if (otherwise_) otherwise_->ask_before_acting(leave);
  leave_ = std::move(leave);
}

void ParkJob::look() {
  if (otherwise_) otherwise_->look();
}

void ParkJob::start(const FiringFacts& facts, Done done, Tell tell) {
  ends_ = false;
  auto who = who_();
  if (!who) return failed(who.error().message(), facts, done, tell);
  if (who->empty()) return failed("no process is left to park", facts, done, tell);
  std::vector<std::string> command = {"/proc/self/exe", "park"};  // this very program, whatever was installed since
  if (!options_.tool.empty()) command.insert(command.end(), {"--cuda-checkpoint", options_.tool});
  command.insert(command.end(), who->begin(), who->end());
  tools_.helpers.run(
      {.arguments = command, .limit = kLongestParking, .signals = &tools_.signals, .may_start = leave_.holds},
      [this, leave = leave_, facts, done, tell](const HelperResult& result) {
        if (result.not_allowed) return leave.again([this, facts, done, tell] { start(facts, done, tell); });
        if (result.ok()) return done({});
        failed(result.trouble, facts, done, tell);
      },
      on_start_);
}

void ParkJob::failed(const std::string& trouble, const FiringFacts& facts, const Done& done, const Tell& tell) {
  if (!otherwise_) return done({.ok = false, .trouble = trouble});
  tell(Failed{.action = text_, .trouble = trouble, .goes_on = true});
  tell(Attempted{.action = otherwise_->text()});
  ends_ = true;
  otherwise_->start(facts, done, tell);
}

}  // namespace lull
