// `lull slurm`: what Slurm's Prolog and Epilog run, what asks and acts on one job, and what checks a node.

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "base/fd.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "config/settings.h"
#include "sense/sampler.h"
#include "session/control.h"
#include "session/machine.h"
#include "slurm/act_on_job.h"
#include "slurm/allocation.h"
#include "slurm/answer.h"
#include "slurm/check.h"

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPrologLimit = 800ms;  // Slurm drains a node whose Prolog fails, and waits for one that takes long
constexpr Duration kDriverLimit = 2s;
constexpr int kNo = 1;
constexpr int kUnknown = 2;
constexpr int kNobody = 3;

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Result<> write_own(const std::string& dir) {
  const SystemClock clock;
  return write_allocation(allocation_folder(dir), TRY(allocation_from(environment, node_name(), clock.wall())));
}

Result<> remove_own(const std::string& dir) {
  const auto job = parse_job_number(environment("SLURM_JOB_ID").value_or(""));
  if (!job) return fail("SLURM_JOB_ID is not set: this is for Slurm's Prolog and Epilog");
  return remove_allocation(allocation_folder(dir), *job);
}

void add_dir_option(CommandLine& line, std::string& dir) {
  line.option("--dir", dir, "the folder of the files; %n is the node's name", "LULL_SLURM_DIR, or /run/lull/slurm")
      .value("DIR");
}

// Whatever happens, also where the command line is wrong: 0.
int in_prolog(std::string_view name, int argc, char** argv, Result<> (*body)(const std::string& dir)) {
  std::string dir;
  CommandLine line(name == "prolog"
                       ? "Writes what Slurm gave to the job, for `lull watch --slurm`: SLURM_JOB_* as slurmd's Prolog\n"
                         "has them. Always exits with 0, within a second.\n"
                       : "Removes what `lull slurm prolog` wrote. Always exits with 0, within a second.\n",
                   fmt::format("lull slurm {}", name));
  add_dir_option(line, dir);
  if (line.parse(argc, argv)) return 0;
  const std::string complaint = complaint_within(kPrologLimit, [&] { return body(dir); });
  // A full pipe must not make us wait: what does not fit is dropped.
  if (!complaint.empty() && ::fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK) == 0)
    (void)complain(fmt::format("slurm {}: {}", name, printable(complaint)));
  return 0;
}

int prolog_command(int argc, char** argv) { return in_prolog("prolog", argc, argv, write_own); }
int epilog_command(int argc, char** argv) { return in_prolog("epilog", argc, argv, remove_own); }

// ---- ask

constexpr const char* kAskAbout =
    "Asks the `lull watch --slurm` of this node whether the job's GPUs here are idle. Its owner may ask, and\n"
    "root.\n";
constexpr const char* kAskMore =
    "Exit status: 0 yes; 1 no; 2 unknown, or the command line was wrong; 3 no watcher for the job here.\n\n"
    "Example:\n  srun --overlap --jobid=22 lull slurm ask 22\n";

int complain_of_job(std::string_view command, const std::string& text, int status) {
  return complain(fmt::format("slurm {}: '{}' is not the number of a job, such as 22", command, printable(text)),
                  status);
}

std::string in_words(const Answer& one) {
  std::string text = fmt::format("{}: {}", one.node, to_text(one.says));
  if (!one.why.empty()) text += ": " + one.why;
  if (one.yes_in && one.says != Says::yes)
    text += fmt::format("; yes in {:.0f} s at the earliest", to_seconds(*one.yes_in));
  return text;
}

// Which of the two is missing: the watcher, or what the Prolog writes for it.
std::string nobody_text(const std::string& folder, std::uint64_t job) {
  const auto file = read_trusted_file(folder, std::to_string(job));
  return fmt::format("nobody watches it here{} {}", file ? "; its file is in" : ", and it has no file in",
                     printable(folder));
}

// Root's watcher sees all GPUs. The asking user's own watcher counts only if there is no other: a user cannot avoid
// being judged by running a watcher. For root no other user's watcher counts. `for_root`: root asks, from another node
// and as the job's user.
Answer heard(const std::vector<Reply>& replies, std::uint64_t job, bool for_root) {
  Answer answer{.job = job, .node = node_name()};
  for (const uid_t owner : {uid_t{0}, ::geteuid()}) {
    for (const Reply& reply : replies) {
      const auto one = reply.owner == owner ? read_answer(reply.line) : std::nullopt;
      if (!one || one->job != job || one->node != answer.node || one->says == Says::nobody) continue;
      if (for_root && owner != 0) {
        answer.why = "a watcher of its user does not count for root, and root's is not here";
        continue;
      }
      if (answer.says != Says::nobody)
        return {.job = job, .node = answer.node, .says = Says::unknown, .why = "two watch it here"};
      answer = *one;
    }
    if (answer.says != Says::nobody) break;
  }
  return answer;
}

int ask_command(int argc, char** argv) {
  std::vector<std::string> words;
  std::string rule;
  std::string dir;
  bool json = false;
  bool plain = false;
  CommandLine line(kAskAbout, "lull slurm ask");
  line.usage("JOB [--json] [--rule RULE] [--dir DIR]");
  line.arguments("JOB", words, "the job's number").required();
  line.flag(shared::kJson, json, shared::kOneObject);
  line.option("--rule", rule, "the rule of one of the watcher's steps (default: that of the last one)").value("RULE");
  add_dir_option(line, dir);
  line.flag("--plain", plain, "for other nodes: only root's watcher counts").hidden();
  line.footer(kAskMore);
  if (const auto status = line.parse(argc, argv)) return *status;
  if (words.size() != 1) return complain("slurm ask: one job, such as 22", kExitUsage);
  const auto job = parse_job_number(words[0]);
  if (!job) return complain_of_job("ask", words[0], kExitUsage);
  Answer answer =
      heard(ask_all(ControlOf::keep, to_line(Question{*job, node_name(), rule}), kLongestAnswerTime), *job, plain);
  if (answer.says == Says::nobody && answer.why.empty()) answer.why = nobody_text(allocation_folder(dir), *job);
  fmt::print("{}\n", json ? to_json(answer) : plain ? to_line(answer) : in_words(answer));
  switch (answer.says) {
    case Says::yes: return 0;
    case Says::no: return kNo;
    case Says::unknown: return kUnknown;
    case Says::nobody: return kNobody;
  }
  return kUnknown;
}

// ---- act

constexpr const char* kActAbout =
    "Does one thing to a job through Slurm, if it still runs and has been restarted as often as you say. Each of\n"
    "Slurm's commands ends within 5 s. An interactive job can only be cancelled.\n";
constexpr const char* kActMore =
    "Exit status: 0 done; 1 no longer so: the job does not run, or was restarted; 2 the command line was wrong;\n"
    "75 Slurm's controller does not answer; 125 refused, or it failed.\n\n"
    "Examples:\n"
    "  lull slurm act 22 requeue --restarts 0 --reason 'idle for 2h'\n"
    "  lull slurm act 22 cancel --restarts 1 --dry-run\n";

int status_of(ActResult::Kind kind) {
  switch (kind) {
    case ActResult::Kind::done: return 0;
    case ActResult::Kind::no_longer: return 1;
    case ActResult::Kind::not_now: return kExitNotNow;
    case ActResult::Kind::kept:
    case ActResult::Kind::refused:
    case ActResult::Kind::failed: return kExitFailure;
  }
  return kExitFailure;
}

// What is known of this run of the job where it has a file here: another one may have its number by now.
void add_what_was_given(Judged& judged, const std::string& folder) {
  const auto text = read_trusted_file(folder, std::to_string(judged.job));
  const auto given = text ? parse_allocation(*text, folder) : fail("");
  if (!given || given->restarts != judged.restarts) return;
  judged.user = given->uid;
  judged.nodes = given->nodes;
}

SessionEnd act(Machine& machine, const ActOnJob::Request& request, bool start_again) {
  Loop& loop = machine.loop();
  SessionEnd end{kExitFailure, "slurm act: nothing was done"};
  if (const auto ready = machine.stop_on_signals(end); !ready) return {kExitFailure, ready.error().message()};
  const Run run = machine.runner();
  std::unique_ptr<StartAgain> again;
  ActOnJob acting(
      run, request, [](const std::function<void()>& go) { go(); },
      [&](const ActResult& result) {
        const int status = status_of(result.kind);
        end = {status, status == 0 ? "" : "slurm act: " + result.text};
        if (status == 0) (void)write_all(STDOUT_FILENO, result.text + "\n");
        if (status != 0 || request.dry_run || !start_again || result.verb.kind != VerbKind::requeue) return loop.stop();
        again = std::make_unique<StartAgain>(loop, run, request.judged.job, result.id, [&](bool) { loop.stop(); });
      });
  acting.start();
  return machine.run(end);
}

int act_command(int argc, char** argv) {
  std::vector<std::string> words;
  std::string restarts;
  std::string dir;
  const auto settings = Settings::load();
  ActOnJob::Request request;
  unsigned& at_most = request.policy.restarts_at_most;
  if (settings)
    at_most = static_cast<unsigned>(to_unsigned(settings->text(Setting::slurm_restarts_at_most)).value_or(at_most));
  bool no_wait = false;
  CommandLine line(kActAbout, "lull slurm act");
  line.usage("JOB requeue|requeuehold|cancel|comment|signal:NAME --restarts N [--reason TEXT] [--dry-run] [--dir DIR]");
  line.arguments("JOB", words, "the job's number, and what to do").required();
  line.option("--restarts", restarts, "how often it had been restarted when it was judged (required)").value("N");
  line.option("--reason", request.reason, "what its AdminComment says (default: that stays as it is)").value("TEXT");
  line.option("--restarts-at-most", at_most,
              "after so many restarts, requeue the job and hold it (slurm.restarts_at_most of lull.toml)")
      .value("N");
  line.flag("--no-wait", no_wait, "do not wait until it can be started again after a requeue (Slurm waits 2 minutes)");
  line.flag(shared::kDryRun, request.dry_run);
  add_dir_option(line, dir);
  line.footer(kActMore);
  if (const auto status = line.parse(argc, argv)) return *status;
  if (!settings) return complain(settings.error().message(), kExitUsage);
  if (words.size() != 2) return complain("slurm act: a job and what to do, such as 22 requeue", kExitUsage);
  const auto job = parse_job_number(words[0]);
  if (!job) return complain_of_job("act", words[0], kExitUsage);
  auto verb = parse_verb(words[1]);
  if (!verb) return complain("slurm act: " + verb.error().message(), kExitUsage);
  const auto count = to_unsigned(restarts);
  if (!count || *count > 1'000'000'000)
    return complain(restarts.empty()
                        ? "slurm act: --restarts says which run of the job is meant; for example --restarts 0"
                        : "slurm act: --restarts: a number such as 0 would be right",
                    kExitUsage);
  if (verb->kind == VerbKind::comment && request.reason.empty())
    return complain("slurm act: comment needs --reason", kExitUsage);
  request.judged.job = *job;
  request.judged.restarts = static_cast<unsigned>(*count);
  add_what_was_given(request.judged, allocation_folder(dir));
  request.verb = *std::move(verb);
  const SystemClock clock;
  return on_machine(clock, [&](Machine& machine) { return act(machine, request, !no_wait); });
}

// ---- check

constexpr const char* kCheckAbout =
    "Says what this node lacks for `lull watch --per job --slurm`, and how to fix it. Run it as root, on each\n"
    "node. Each command of Slurm ends within 5 s.\n";
constexpr const char* kCheckMore =
    "Exit status: 0 all fine; 1 something is missing; 2 the command line was wrong; 125 unknown.\n"
    "`untried` is not an error: there was no job to try it with.\n\n"
    "Example:\n  lull slurm check --json\n";

CheckItem check_settings(bool& has_steps) {
  const auto known = Settings::load();
  has_steps = known && !known->list(Setting::slurm_steps).empty();
  CheckItem item{.name = "settings", .state = CheckItem::State::ok, .text = "lull.toml can be read"};
  if (known) return item;
  item.state = CheckItem::State::missing;
  item.text = known.error().message();
  item.fix = "correct it; `lull config` reads it again";
  return item;
}

// One that watches the jobs of this node says how often it looks, whatever it is asked about.
CheckItem check_watcher(bool has_steps) {
  constexpr std::uint64_t kNoJob = 0xFFFFFFFFULL;
  CheckItem item{.name = "watcher", .state = CheckItem::State::ok, .text = "a `lull watch --slurm` of root's answers"};
  for (const Reply& reply : ask_all(ControlOf::keep, to_line(Question{kNoJob, node_name()})))
    if (const auto one = read_answer(reply.line);
        one && reply.owner == 0 && one->node == node_name() && one->every > Duration::zero())
      return item;
  item.state = CheckItem::State::missing;
  item.text = fmt::format("no `lull watch --slurm` of root's answers for {}", node_name());
  item.fix = fmt::format("{}systemctl enable --now lull-slurm",
                         has_steps ? "" : "put steps into [slurm] of /etc/lull/lull.toml, then ");
  return item;
}

// The device files of the GPUs in the driver's order, in which exporters number them; empty: the driver does not say.
GpuOrder driver_order() {
  SamplerOptions options;
  options.once = true;
  options.deadline = kDriverLimit;
  const Snapshot seen = Sampler::start(options)->sample();
  GpuOrder order;
  for (const Device& device : seen.inventory->devices) {
    if (device.kind != DeviceKind::gpu) continue;
    const auto minor = device.minor ? device.minor : device.render_minor;
    order.push_back(minor ? std::optional(GpuFile{*minor, !device.minor}) : std::nullopt);
  }
  return order;
}

SessionEnd check(Machine& machine, const std::string& folder, bool json, GpuOrder counted) {
  Loop& loop = machine.loop();
  SessionEnd end{kExitFailure};
  if (const auto ready = machine.stop_on_signals(end); !ready) return {kExitFailure, ready.error().message()};
  const Run run = machine.runner();
  bool has_steps = false;
  std::vector<CheckItem> all = {check_settings(has_steps)};
  all.push_back(check_watcher(has_steps));
  NodeCheck checking(
      run, loop.clock(), folder, ::geteuid() == 0, std::move(counted), [&](const std::vector<CheckItem>& items) {
        all.insert(all.end(), items.begin(), items.end());
        const auto written = write_all(STDOUT_FILENO, json ? check_json(node_name(), all) : check_text(all));
        end = written ? SessionEnd{status_of(all)} : SessionEnd{kExitFailure, written.error().message()};
        loop.stop();
      });
  // From inside the loop: it may be over at once.
  loop.in(Duration::zero(), [&] { checking.start(); });
  return machine.run(end);
}

int check_command(int argc, char** argv) {
  std::string dir;
  bool json = false;
  CommandLine line(kCheckAbout, "lull slurm check");
  line.usage("[--json] [--dir DIR]");
  line.flag(shared::kJson, json, shared::kOneObject);
  add_dir_option(line, dir);
  line.footer(kCheckMore);
  if (const auto status = line.parse(argc, argv)) return *status;
  GpuOrder counted = driver_order();  // before there is a loop whose signals its process would disturb
  const SystemClock clock;
  return on_machine(clock,
                    [&](Machine& machine) { return check(machine, allocation_folder(dir), json, std::move(counted)); });
}

constexpr std::array kSlurmCommands = {
    lull::Command{"prolog", "write what Slurm gave to a job (slurm.conf: Prolog)", prolog_command},
    lull::Command{"epilog", "remove it (slurm.conf: Epilog)", epilog_command},
    lull::Command{"ask", "are the job's GPUs on this node idle?", ask_command},
    lull::Command{"act", "requeue, hold, cancel, signal or comment a job", act_command},
    lull::Command{"check", "what this node lacks, and how to fix it", check_command},
};

constexpr const char* kAbout = "Finds idle GPUs of Slurm jobs, together with `lull watch --per job --slurm`.\n";

}  // namespace
}  // namespace lull::slurm

namespace lull {

int slurm_command(int argc, char** argv) {
  if (const auto status = run_subcommand(slurm::kSlurmCommands, argc, argv)) return *status;
  CommandLine line(slurm::kAbout, "lull slurm");
  line.usage("prolog|epilog|ask|act|check …");
  line.footer(help_of_subcommands("slurm", slurm::kSlurmCommands) +
              "\nExample, in the Prolog of slurm.conf:\n  lull slurm prolog\n");
  std::vector<std::string> words;
  line.arguments("COMMAND", words, "see below");
  if (const auto status = line.parse(argc, argv)) return *status;
  constexpr const char* kThere = "there are prolog, epilog, ask, act and check";
  if (words.empty()) return complain(fmt::format("slurm: a command is missing: {}", kThere), kExitUsage);
  const std::string hint = did_you_mean(words[0], slurm::kSlurmCommands);
  return complain(
      fmt::format("slurm: there is no '{}'{}", printable(words[0]), hint.empty() ? fmt::format(": {}", kThere) : hint),
      kExitUsage);
}

}  // namespace lull
