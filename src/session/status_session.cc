#include "session/status_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"
#include "sense/select.h"
#include "session/feed.h"
#include "view/events.h"
#include "view/live.h"
#include "view/screen.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kStatusDriverLimit =
    1500ms;                               // how long a driver may take before its GPUs are shown as not answering
constexpr Duration kLongestWaking = 11s;  // real cards take up to 10 s without persistence mode
constexpr auto kBetweenLooks = 200ms;     // while one of them wakes up

// `none`: why there is no row, where there is more to say than that.
Result<std::vector<std::size_t>> rows_of(const StatusSettings& settings, const Snapshot& snapshot, std::string& none) {
  const Inventory& inventory = *snapshot.inventory;
  std::vector<std::size_t> rows;
  if (!settings.gpus.empty()) return select_devices(settings.gpus, inventory);
  if (settings.visible) {
    VisibleHere visible = visible_here(RuntimeVariables::of_this_process(), inventory);
    none = std::move(visible.none);
    return std::move(visible.devices);
  }
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) rows.push_back(i);
  return rows;
}

// In one line, with how to go on without a driver.
std::string no_driver(const Snapshot& snapshot) {
  std::string line = snapshot.driver.text();
  if (snapshot.driver.absence == Absence::no_driver)
    line += "; to try lull on simulated GPUs: lull sim --gpus 4 -- lull status";
  return line;
}

}  // namespace

StatusSession::StatusSession(StatusSettings settings, Say say)
    : settings_(std::move(settings)),
      say_(std::move(say)),
      pictures_(settings_.format, settings_.every, settings_.processes),
      users_(Root{.dev = Root::machine().dev}),
      idle_(settings_.every.value_or(1s)),
      live_(settings_.input, settings_.output) {}

SamplerOptions StatusSession::sampling() const {
  SamplerOptions sampling;
  sampling.process_info = sampling.if_unexplained = true;
  sampling.deadline = kStatusDriverLimit;
  sampling.once = !settings_.every;
  sampling.wait_for_waking = sampling.once;
  sampling.attach_deadline = kLongestWaking;
  sampling.idle_before = true;
  sampling.gpus = settings_.gpus;
  sampling.dump = settings_.dump;
  return sampling;
}

SessionEnd StatusSession::once() {
  const bool terminal = settings_.format == StatusFormat::table && ::isatty(settings_.output) == 1;
  const auto end = terminal ? once_on_terminal() : show(Sampler::start(sampling())->sample());
  return end.value_or(SessionEnd{});
}

std::optional<SessionEnd> StatusSession::once_on_terminal() {
  SamplerOptions options = sampling();
  options.once = options.wait_for_waking = false;
  const auto sampler = Sampler::start(options);
  const Instant until = SystemClock().now() + kLongestWaking;
  Snapshot snapshot = sampler->sample();
  std::string erase;
  for (std::string waking; SystemClock().now() < until && !(waking = still_waking(snapshot)).empty();) {
    if (erase.empty())
      if (auto end = show_meanwhile(snapshot, waking, erase)) return end;
    std::this_thread::sleep_for(kBetweenLooks);
    sampler->sample(snapshot);
  }
  if (auto end = live_.append(erase)) return end;
  return show(snapshot);
}

// "GPU 1", "GPUs 1, 3": those to be shown that the driver still wakes. Nothing: there is none.
std::string StatusSession::still_waking(const Snapshot& snapshot) const {
  std::string none;
  const auto rows = rows_of(settings_, snapshot, none);
  if (!rows || snapshot.driver.absence != Absence::none) return {};
  std::vector<Device> devices;
  for (const std::size_t row : *rows)
    if (snapshot.readings[row].device_absence == Absence::waking) devices.push_back(snapshot.inventory->devices[row]);
  return devices.empty() ? "" : gpus_text(devices);
}

std::optional<SessionEnd> StatusSession::show_meanwhile(Snapshot snapshot, const std::string& waking,
                                                        std::string& erase) {
  users_.identify_in(snapshot);
  std::string none;
  const auto rows = rows_of(settings_, snapshot, none);
  if (!rows) return SessionEnd{kExitUsage, rows.error().message()};
  idle_.see(snapshot);
  const Screen screen = screen_of(settings_.output);
  std::string unread;  // said when all is shown
  const StatusView view{snapshot, *rows, status_extras(snapshot, *rows, idle_, unread)};
  const std::string text =
      pictures_.next(view, screen) +
      fit(fmt::format("waiting up to {} for {} to wake up", format_duration(kLongestWaking), waking), screen.width,
          screen.utf8) +
      "\n";
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n'));
  // What has left the screen cannot be drawn over: then all is shown once more below.
  erase = lines < screen.height ? fmt::format("\x1b[{}A\x1b[J", lines) : "\n";
  return live_.append(text);
}

std::optional<SessionEnd> StatusSession::show(Snapshot snapshot) {
  users_.identify_in(snapshot);
  idle_.see(snapshot);
  if (live_.on_screen()) {  // what is to be said is on the screen
    histories_.see(snapshot);
    shown_ = snapshot;
    return draw(snapshot);
  }
  for (const std::string& text : snapshot.inventory->warnings())
    if (warned_.insert(text).second) say_(text);
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
  std::string unread;
  const StatusView view{snapshot, *rows, status_extras(snapshot, *rows, idle_, unread)};
  if (!unread.empty() && !live_.on_screen() && !std::exchange(unread_said_, true)) say_(unread);
  return live_.on_screen() ? draw_screen(view, unread)
                           : live_.append(pictures_.next(view, screen_of(settings_.output)));
}

std::optional<SessionEnd> StatusSession::draw_screen(const StatusView& view, const std::string& trouble) {
  StatusView with_history = view;
  for (std::size_t i = 0; i < view.devices.size(); ++i)
    with_history.extras[i].history = histories_.of(view.snapshot.inventory->devices[view.devices[i]]);
  const bool driven = view.snapshot.driver.absence == Absence::none;
  const std::string heading =
      fmt::format("{}  every {}{}{}", format_local(view.snapshot.wall, "%H:%M:%S"), format_duration(*settings_.every),
                  driven ? "" : "  " + view.snapshot.driver.text(), trouble.empty() ? "" : "  " + printable(trouble));
  return live_.draw(StatusRows(with_history), heading);
}

SessionEnd StatusSession::watch(World& world) {
  return live_.watch(
      world, {.sampling = sampling(), .every = *settings_.every, .length = {}}, settings_.format == StatusFormat::table,
      [this](const Snapshot& snapshot) { return show(snapshot); },
      [this] { return shown_ ? draw(*shown_) : std::nullopt; });
}

}  // namespace lull
