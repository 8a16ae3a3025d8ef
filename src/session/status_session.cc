#include "session/status_session.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/fd.h"
#include "sense/select.h"
#include "sense/visible.h"
#include "session/feed.h"
#include "view/screen.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 1500ms;    // how long a driver may take before its GPUs are shown as not answering
constexpr Duration kLongestWaking = 11s;  // real cards take up to 10 s without persistence mode

Result<std::vector<std::size_t>> rows_of(const StatusSettings& settings, const Snapshot& snapshot) {
  const Inventory& inventory = *snapshot.inventory;
  std::vector<std::size_t> rows;
  if (!settings.gpus.empty()) return select_devices(settings.gpus, inventory);
  if (settings.visible) return visible_devices(inventory).devices;
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) rows.push_back(i);
  return rows;
}

// One line: what was looked for and where, and how to go on without a driver.
std::string no_driver(const Snapshot& snapshot) {
  const DriverState& driver = snapshot.driver;
  std::string line = driver.detail.empty() ? std::string(words(driver.absence)) : driver.detail;
  if (driver.absence == Absence::no_driver) line += "; to try lull on simulated GPUs: lull sim --gpus 4 -- lull status";
  return line;
}

}  // namespace

StatusSession::StatusSession(StatusSettings settings, Say say)
    : settings_(std::move(settings)),
      say_(std::move(say)),
      pictures_(settings_.format, settings_.every, ::isatty(settings_.output) == 1),
      idle_(settings_.every.value_or(1s)) {}

SamplerOptions StatusSession::sampling() const {
  SamplerOptions sampling;
  sampling.processes = true;
  sampling.deadline = kPatience;
  sampling.once = !settings_.every;
  sampling.wait_for_waking = sampling.once;
  sampling.attach_deadline = kLongestWaking;
  sampling.idle_before = true;
  return sampling;
}

std::optional<SessionEnd> StatusSession::show(const Snapshot& snapshot) {
  idle_.see(snapshot);
  if (const std::string hint = persistence_hint(snapshot); !hint.empty() && ::isatty(STDERR_FILENO) == 1)
    if (!std::exchange(hinted_, true)) say_(hint);
  if (snapshot.driver.absence != Absence::none) {
    if (!settings_.every) return SessionEnd{kExitFailure, no_driver(snapshot)};
    if (!std::exchange(driver_said_, true)) say_(no_driver(snapshot));
    if (snapshot.readings.empty()) return std::nullopt;  // none yet: the sampler keeps looking
  } else {
    driver_said_ = false;
  }
  const auto rows = rows_of(settings_, snapshot);
  if (!rows) return SessionEnd{kExitUsage, rows.error().message()};
  const StatusView view{snapshot, *rows, status_extras(snapshot, *rows, idle_)};
  const auto shown = write_all(settings_.output, pictures_.next(view, screen_of(settings_.output)));
  if (shown) return std::nullopt;
  if (shown.error().errno_value == EPIPE) return SessionEnd{};  // the reader has seen enough
  return SessionEnd{kExitFailure, shown.error().message()};
}

SessionEnd StatusSession::watch(World& world) {
  SamplingSettings settings{.sampling = sampling(), .every = *settings_.every, .length = {}};
  settings.a_signal_is_no_failure = false;
  struct stat status{};
  if (::fstat(settings_.output, &status) == 0 && S_ISFIFO(status.st_mode)) settings.reader = settings_.output;
  const SessionEnd end =
      SamplingSession(std::move(settings), world, [this](const Snapshot& snapshot) { return show(snapshot); }).run();
  (void)write_all(settings_.output, pictures_.last());
  return end;
}

}  // namespace lull
