#include "session/status_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "base/calendar.h"
#include "base/units.h"
#include "sense/select.h"
#include "sense/visible.h"
#include "session/feed.h"
#include "view/live_status.h"
#include "view/screen.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 1500ms;    // how long a driver may take before its GPUs are shown as not answering
constexpr Duration kLongestWaking = 11s;  // real cards take up to 10 s without persistence mode

// `none`: why there is no row, where there is more to say than that.
Result<std::vector<std::size_t>> rows_of(const StatusSettings& settings, const Snapshot& snapshot, std::string& none) {
  const Inventory& inventory = *snapshot.inventory;
  std::vector<std::size_t> rows;
  if (!settings.gpus.empty()) return select_devices(settings.gpus, inventory);
  if (settings.visible) {
    Visible visible = visible_devices(inventory);
    if (const char* value = std::getenv("CUDA_VISIBLE_DEVICES")) none = why_none_is_visible(visible, value);
    return std::move(visible.devices);
  }
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) rows.push_back(i);
  return rows;
}

// What was looked for, and where.
std::string driver_trouble(const Snapshot& snapshot) {
  const DriverState& driver = snapshot.driver;
  return driver.detail.empty() ? std::string(words(driver.absence)) : driver.detail;
}

// In one line, with how to go on without a driver.
std::string no_driver(const Snapshot& snapshot) {
  std::string line = driver_trouble(snapshot);
  if (snapshot.driver.absence == Absence::no_driver)
    line += "; to try lull on simulated GPUs: lull sim --gpus 4 -- lull status";
  return line;
}

}  // namespace

StatusSession::StatusSession(StatusSettings settings, Say say)
    : settings_(std::move(settings)),
      say_(std::move(say)),
      pictures_(settings_.format, settings_.every, settings_.processes),
      idle_(settings_.every.value_or(1s)),
      live_(settings_.input, settings_.output) {}

SamplerOptions StatusSession::sampling() const {
  SamplerOptions sampling;
  sampling.processes = true;
  sampling.deadline = kPatience;
  sampling.once = !settings_.every;
  sampling.wait_for_waking = sampling.once;
  sampling.attach_deadline = kLongestWaking;
  sampling.idle_before = true;
  sampling.gpus = settings_.gpus;
  return sampling;
}

std::optional<SessionEnd> StatusSession::show(const Snapshot& snapshot) {
  idle_.see(snapshot);
  if (live_.on_screen()) {  // what is to be said is on the screen
    histories_.see(snapshot);
    shown_ = snapshot;
    return draw(snapshot);
  }
  if (const std::string hint = persistence_hint(snapshot); !hint.empty() && ::isatty(STDERR_FILENO) == 1)
    if (!std::exchange(hinted_, true)) say_(hint);
  if (snapshot.driver.absence != Absence::none) {
    if (!settings_.every) return SessionEnd{kExitFailure, no_driver(snapshot)};
    if (!std::exchange(driver_said_, true)) say_(no_driver(snapshot));
    if (snapshot.readings.empty()) return std::nullopt;  // none yet: the sampler keeps looking
  } else {
    driver_said_ = false;
  }
  return draw(snapshot);
}

std::optional<SessionEnd> StatusSession::draw(const Snapshot& snapshot) {
  std::string none;
  const auto rows = rows_of(settings_, snapshot, none);
  if (!rows) return SessionEnd{kExitUsage, rows.error().message()};
  if (!none.empty() && !live_.on_screen() && !std::exchange(none_said_, true)) say_(none);
  const StatusView view{snapshot, *rows, status_extras(snapshot, *rows, idle_)};
  return live_.on_screen() ? draw_screen(view) : live_.append(pictures_.next(view, screen_of(settings_.output)));
}

std::optional<SessionEnd> StatusSession::draw_screen(const StatusView& view) {
  StatusView with_history = view;
  for (std::size_t i = 0; i < view.devices.size(); ++i)
    with_history.extras[i].history = histories_.of(view.snapshot.inventory->devices[view.devices[i]]);
  const bool driven = view.snapshot.driver.absence == Absence::none;
  const std::string heading =
      fmt::format("{}  every {}{}", format_local(view.snapshot.wall, "%H:%M:%S"), format_duration(*settings_.every),
                  driven ? "" : "  " + driver_trouble(view.snapshot));
  return live_.draw(StatusRows(with_history), heading);
}

SessionEnd StatusSession::watch(World& world) {
  return live_.watch(
      world, {.sampling = sampling(), .every = *settings_.every, .length = {}}, settings_.format == StatusFormat::table,
      [this](const Snapshot& snapshot) { return show(snapshot); },
      [this] { return shown_ ? draw(*shown_) : std::nullopt; });
}

}  // namespace lull
