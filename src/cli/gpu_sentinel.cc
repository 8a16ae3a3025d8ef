// The drop-in gpu_sentinel: `lull watch` by the options of its document, its messages on stdout.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "cli/command.h"
#include "compat/gpu_sentinel.h"
#include "sense/sampler.h"
#include "session/machine.h"
#include "session/watch_session.h"
#include "view/events.h"
#include "view/news.h"

namespace lull {
namespace {

constexpr int kFailed = 1;
constexpr Duration kTryAgain = std::chrono::seconds(10);  // where the machine does not go down
constexpr Duration kSayAgain = std::chrono::minutes(10);

class SentinelVoice final : public Sink {
 public:
  SentinelVoice(const SentinelOptions& options, std::string absent, const Clock& clock, bool armed)
      : options_(options), absent_(std::move(absent)), clock_(clock), armed_(armed) {}

  void started() override {
    if (!absent_.empty()) tell(absent_);
    for (const std::string& line : sentinel_start(options_, ::geteuid() == 0)) print(line);
    if (armed_) print(sentinel_armed(options_));
  }
  void happened(const Event& event) override {
    if (std::holds_alternative<Armed>(event.what)) return print(sentinel_armed(options_));
    if (!std::holds_alternative<ScopeChanged>(event.what)) tell(to_words(event));
  }
  void firing(const FiringFacts&, bool) override { tell(sentinel_triggered(options_)); }
  void did(const News& news) override { note(level_of(news), event_word(news), to_words(news)); }
  void note(Level level, std::string_view event, const std::string& text) override {
    if (event == "called-off") {
      failure_said_.reset();
      return tell(text);
    }
    if (level < Level::warning) return;
    constexpr std::string_view kGpus = "--gpus: ";
    if (event == "scope" && text.starts_with(kGpus)) return tell("--gpu_devices: " + text.substr(kGpus.size()));
    if (event != "failed") return tell(text);
    // It goes on for ever: the first is said, then one now and then.
    if (failure_said_ && clock_.now() - *failure_said_ < kSayAgain) return;
    failure_said_ = clock_.now();
    tell(text);
  }

  static void tell(const std::string& text) { (void)write_all(STDERR_FILENO, "gpu_sentinel: " + text + "\n"); }

 private:
  // One write a line: whoever reads our stdout gets it at once.
  static void print(const std::string& text) { (void)write_all(STDOUT_FILENO, text + "\n"); }

  const SentinelOptions& options_;
  std::string absent_;
  const Clock& clock_;
  bool armed_;  // from the beginning
  std::optional<Instant> failure_said_;
};

std::string list(const std::vector<std::int64_t>& devices) { return fmt::format("{}", fmt::join(devices, ",")); }

// As Python does: the status counts, whether somebody reads what we say or not. A session does so itself.
void ignore_sigpipe() { std::signal(SIGPIPE, SIG_IGN); }

struct Named {
  std::string there;   // for --gpus; empty: all
  std::string absent;  // what to say about the others
};

// Which of the devices named are there. An error: none of them is.
Result<Named> look_for(const SentinelOptions& options) {
  if (options.gpu_devices.empty()) return Named{};
  std::vector<std::int64_t> there;
  std::vector<std::int64_t> missing;
  const Snapshot snapshot = Sampler::start({.memory = false,
                                            .power = false,
                                            .details = false,
                                            .tenants = false,
                                            .ignore_openers = {},
                                            .library = {},
                                            .once = true})
                                ->sample();
  // Without a driver nobody can tell: they are looked for when it is there.
  const bool known = snapshot.driver.absence == Absence::none && !snapshot.inventory->devices.empty();
  for (const std::int64_t device : options.gpu_devices) {
    const bool found = std::ranges::any_of(snapshot.inventory->devices, [&](const Device& one) {
      return one.kind == DeviceKind::gpu && one.index == device;
    });
    std::vector<std::int64_t>& which = found || (!known && device >= 0) ? there : missing;
    if (std::ranges::count(which, device) == 0) which.push_back(device);
  }
  if (there.empty()) return fail(fmt::format("there is none of the GPUs {} on this system", list(missing)));
  if (missing.empty()) return Named{list(there), ""};
  return Named{list(there), fmt::format("GPU {} is not on this system: judging on GPU {}", list(missing), list(there))};
}

}  // namespace

int gpu_sentinel_command(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto options = parse_sentinel(words);
  if (!options || options->help) ignore_sigpipe();
  if (!options) {
    const Error& error = options.error();
    if (error.errno_value == kFailed) return complain(error.what, kFailed);
    (void)write_all(STDERR_FILENO, fmt::format("{}gpu_sentinel: error: {}\n", sentinel_usage(), error.what));
    return kExitUsage;
  }
  if (options->help) {
    (void)write_all(STDOUT_FILENO, fmt::format("{}{}", sentinel_usage(), sentinel_help()));
    return 0;
  }
  auto policy = Policy::parse(options->kill_rule(), options->arm_rule());
  if (!policy) return complain(policy.error().message(), kExitUsage);
  auto gpus = look_for(*options);
  if (!gpus) {
    ignore_sigpipe();
    return complain(gpus.error().message(), kFailed);
  }
  WatchSettings settings;
  settings.common.policy = *std::move(policy);
  settings.common.gpus = gpus->there;
  settings.common.absent_left_out = true;  // where there was no driver yet to tell
  settings.common.every = std::chrono::seconds(1);
  settings.common.missing = options->ignore_missing ? WhenMissing::ignore : WhenMissing::unknown;
  const std::string action = options->kill_action == "end_process" ? "exit" : options->kill_action;
  settings.actions.push_back(*parse_action(action));
  settings.retries.most = std::numeric_limits<unsigned>::max();
  settings.retries.after = kTryAgain;
  const SystemClock clock;
  SentinelVoice voice(*options, gpus->absent, clock, !settings.common.policy.arm);
  auto machine = Machine::open(clock);
  if (!machine) return complain(machine.error().message(), kFailed);
  const int status = ended(WatchSession(std::move(settings), **machine, voice).run());
  return status == kExitFailure ? kFailed : status;
}

}  // namespace lull
