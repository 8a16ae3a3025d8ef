#include "compat/gpu_sentinel_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "sense/sampler.h"
#include "view/events.h"
#include "view/news.h"

namespace lull {
namespace {

constexpr Duration kTryAgain = std::chrono::seconds(10);  // where the machine does not go down
constexpr Duration kSayAgain = std::chrono::minutes(10);

void tell(const std::string& text) { (void)write_all(STDERR_FILENO, "gpu_sentinel: " + text + "\n"); }
// One write a line: whoever reads our stdout gets it at once.
void print(const std::string& text) { (void)write_all(STDOUT_FILENO, text + "\n"); }

std::string list(const std::vector<std::int64_t>& devices) { return fmt::format("{}", fmt::join(devices, ",")); }

}  // namespace

SentinelVoice::SentinelVoice(const SentinelOptions& options, std::string absent, const Clock& clock, bool armed)
    : options_(options), absent_(std::move(absent)), clock_(clock), armed_(armed) {}

void SentinelVoice::started() {
  if (!absent_.empty()) tell(absent_);
  for (const std::string& line : sentinel_start(options_, ::geteuid() == 0)) print(line);
  if (armed_) print(sentinel_armed(options_));
}

void SentinelVoice::happened(const Event& event) {
  if (std::holds_alternative<Armed>(event.what)) return print(sentinel_armed(options_));
  if (!std::holds_alternative<ScopeChanged>(event.what)) tell(to_words(event));
}

void SentinelVoice::firing(const FiringFacts&, bool) { tell(sentinel_triggered(options_)); }

void SentinelVoice::did(const News& news) { note(level_of(news), event_word(news), to_words(news)); }

void SentinelVoice::note(Level level, std::string_view event, const std::string& text) {
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

Result<SentinelDevices> sentinel_devices(const SentinelOptions& options) {
  if (options.gpu_devices.empty()) return SentinelDevices{};
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
  if (missing.empty()) return SentinelDevices{list(there), ""};
  return SentinelDevices{list(there),
                         fmt::format("GPU {} is not on this system: judging on GPU {}", list(missing), list(there))};
}

WatchSettings sentinel_settings(const SentinelOptions& options, Policy policy, const SentinelDevices& devices) {
  WatchSettings settings;
  settings.common.policy = std::move(policy);
  settings.common.gpus = devices.there;
  settings.common.absent_left_out = true;  // where there was no driver yet to tell
  settings.common.every = std::chrono::seconds(1);
  settings.common.missing = options.ignore_missing ? WhenMissing::ignore : WhenMissing::unknown;
  const std::string action = options.kill_action == "end_process" ? "exit" : options.kill_action;
  settings.actions.push_back(*parse_action(action));
  settings.retries.most = std::numeric_limits<unsigned>::max();
  settings.retries.after = kTryAgain;
  return settings;
}

}  // namespace lull
