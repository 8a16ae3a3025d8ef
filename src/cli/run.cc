// `lull run`: run a command, and end it with all its processes when its GPUs sit idle.

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <string>

#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/run_session.h"
#include "cli/screen.h"
#include "cli/watch_options.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostTreeLines = 24;

constexpr const char* kAbout =
    "Runs CMD and ends it, with every process it started, when its GPUs sit idle for as\n"
    "long as the rule says. The evidence is shown first. A value that cannot be read is\n"
    "never taken for idle. A job is judged by its own GPUs: those of --gpus, else those that it\n"
    "was given (CUDA_VISIBLE_DEVICES, its lease, its Slurm allocation), else those on which its\n"
    "processes have a context; before it has one it is not judged.\n";
constexpr const char* kMore =
    "A server waits for its users: give it 2h and more, --idle 'util < 1 for 2h'.\n\n"
    "Exit status: CMD's own (128+N if signal N ended it); 124 ended for idleness or --max-time;\n"
    "125 lull could not; 126, 127 CMD could not be run, was not found.\n\n"
    "Examples:\n"
    "  lull run -- python3 train.py\n"
    "  lull run --idle 'util < 1 for 20m' --evidence ~/hangs -- torchrun train.py\n"
    "  lull run --idle 'util < 1 and cpu < 5 for 10m' --restart 3 -- ./resume.sh\n"
    "  lull run --also $(pgrep -o raylet) -- python3 tune.py    # its workers are Ray's children\n";

class LullVoice final : public RunVoice {
 public:
  explicit LullVoice(const Sayer& sayer) : sayer_(sayer), utf8_(screen_of(STDERR_FILENO).utf8) {}

  void started(const RunSettings& settings) override {
    sayer_.say(Level::debug, "start",
               fmt::format("watching: {}; judged after {}, sampled every {}", to_text(settings.policy.idle),
                           format_duration(settings.delay), format_duration(settings.every)));
  }
  void sampled(const Snapshot& snapshot, const Watcher& watcher) override {
    if (!sayer_.wants(Level::debug)) return;
    sayer_.say(Level::debug, "sample", sample_text(snapshot, watcher));
  }
  void said(const Say& say) override {
    const bool trouble = say.about == Say::About::no_gpu || say.about == Say::About::cannot_judge;
    const bool detail = say.about == Say::About::scope;
    sayer_.say(trouble ? Level::warning : detail ? Level::debug : Level::note, event_word(say.about), say.text);
  }
  void firing(const FiringFacts& facts, bool dry_run) override {
    std::string text;
    for (const std::string& line : to_words(facts.why, utf8_)) text += (text.empty() ? "" : "\n") + line;
    text += "\nthe job's processes:";
    for (const std::string& line : tree_lines(facts.members, kMostTreeLines)) text += "\n  " + line;
    text += fmt::format("\n{}: {}", dry_run ? "would do (--dry-run)" : "now", facts.action);
    sayer_.say(Level::important, dry_run ? "would-end" : "end", text,
               sayer_.format() == LogFormat::json ? facts_json(facts) : "");
  }
  void note(Level level, std::string_view event, const std::string& text) override { sayer_.say(level, event, text); }

 private:
  const Sayer& sayer_;
  bool utf8_;
};

struct RunOptions {
  RunSettings settings;
  WatchOptions watch;
  std::string signal = "TERM";
  std::string grace = "10s";
  std::string backoff = "30s";
  std::string max_time;
  std::string hook_limit = "30s";
  bool no_cgroup = false;
};

void describe_options(CommandLine& line, RunOptions& options) {
  add_watch_options(line, options.watch);
  RunSettings& settings = options.settings;
  line.option("--evidence", settings.evidence, "write what was seen into a new folder below DIR first").value("DIR");
  line.option("--on-idle", settings.on_idle,
              "run CMD first (sh -c), the facts in LULL_* variables and as JSON on its stdin")
      .value("CMD");
  line.option("--on-idle-limit", options.hook_limit, "how long that may take").value("TIME");
  line.option("--signal", options.signal, "what the tree gets first").value("NAME");
  line.option("--grace", options.grace, "and how long it has before SIGKILL").value("TIME");
  line.option("--restart", settings.restarts, "start CMD again after an idle kill, at most N times").value("N");
  line.option("--backoff", options.backoff, "after so long").value("TIME");
  line.option("--max-time", options.max_time, "end the job after this long in any case").value("TIME");
  line.flag("--dry-run", settings.dry_run, "only say what would be done, and go on watching");
  line.flag("--require-gpu", settings.require_gpu, "do not start CMD if no GPU can be read (125)");
  line.flag("--no-cgroup", options.no_cgroup, "follow the process tree by /proc alone");
}

Result<> settle(RunOptions& options) {
  RunSettings& settings = options.settings;
  const WatchChoice choice = TRY(settle_watch_options(options.watch));
  settings.policy = choice.policy;
  settings.use_cgroup = !options.no_cgroup;
  settings.every = choice.every;
  settings.delay = choice.delay;
  settings.gpus = choice.gpus;
  settings.missing = choice.missing;
  settings.also = TRY(Also::parse(options.watch.also));
  auto signal = parse_signal(options.signal);
  if (!signal) return std::unexpected(std::move(signal).error().during("--signal"));
  settings.ending.signal = *signal;
  settings.ending.grace = TRY(duration_option("--grace", options.grace));
  settings.backoff = TRY(duration_option("--backoff", options.backoff));
  settings.on_idle_limit = TRY(duration_option("--on-idle-limit", options.hook_limit));
  if (!options.max_time.empty()) settings.max_time = TRY(duration_option("--max-time", options.max_time));
  if (settings.max_time == Duration::zero())
    return fail("--max-time 0 would end the job at once; without it there is no limit");
  return {};
}

}  // namespace

int run_command(int argc, char** argv) {
  CommandLine line(kAbout, "lull run");
  line.usage("options] [--] CMD [ARGUMENT…");
  line.footer(kMore);
  RunOptions options;
  options.watch = {.idle = std::string(kDefaultIdle), .delay = "1m", .every = "5s"};
  describe_options(line, options);
  const int command = line.command_begins(argc, argv);
  if (const auto status = line.parse(command, argv)) return *status;
  options.settings.command.assign(argv + command, argv + argc);
  if (!options.settings.command.empty() && options.settings.command.front() == "--")
    options.settings.command.erase(options.settings.command.begin());
  if (options.settings.command.empty())
    return complain("run: no command given; for example: lull run -- python3 train.py", kExitUsage);
  if (const auto settled = settle(options); !settled) return complain("run: " + settled.error().message(), kExitUsage);

  const SystemClock clock;
  const Sayer sayer = make_sayer(options.watch, clock);
  LullVoice voice(sayer);
  say_remarks(sayer, options.settings.policy);
  RunSession session(std::move(options.settings), voice, clock);
  return session.run();
}

}  // namespace lull
