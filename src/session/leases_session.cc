#include "session/leases_session.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/calendar.h"
#include "base/units.h"
#include "lease/record.h"
#include "sense/sampler.h"
#include "view/screen.h"
#include "view/status.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// Who asks for leases gets them even where a driver hangs.
constexpr Duration kLeasesDriverLimit = 1500ms;

}  // namespace

LeasesSession::LeasesSession(LeasesSettings settings)
    : settings_(std::move(settings)), idle_(settings_.every.value_or(1s)), live_(settings_.input, settings_.output) {}

SamplerOptions LeasesSession::sampling() const {
  SamplerOptions options;
  options.want_only(std::array{Metric::util});
  options.once = !settings_.every;
  options.idle_before = true;
  options.deadline = options.init_deadline = options.attach_deadline = kLeasesDriverLimit;
  return options;
}

Result<FolderState> read_folder(const LeasePlace& place) {
  const auto folder = TRY(LeaseFolder::look(place));
  if (!folder) return FolderState{};
  FolderState state = TRY(folder->scan());
  sort_by_gpu(state.leases);
  return state;
}

LeasedGpus leased_gpus(const Snapshot& snapshot, const IdleTimes& idle) {
  LeasedGpus gpus;
  for (std::size_t i = 0; i < snapshot.readings.size(); ++i) {
    const Device& device = snapshot.inventory->devices[i];
    StatusExtra extra;
    idle.tell(device, extra);
    for (const std::string& name : lease_names(device)) {
      if (name == device.uuid && device.shares_uuid) continue;  // it is unknown which one is meant
      gpus[name] = {snapshot.readings[i][Metric::util], extra.idle_for, extra.idle_for_longer,
                    device_trouble(device, snapshot.readings[i])};
    }
  }
  return gpus;
}

std::optional<SessionEnd> LeasesSession::look() {
  view_.now = SystemClock().wall();
  auto state = read_folder(settings_.place);
  view_.state = state ? *std::move(state) : FolderState{};
  if (!state) return SessionEnd{kExitFailure, state.error().message()};
  return std::nullopt;
}

void LeasesSession::see(const Snapshot& snapshot) {
  idle_.see(snapshot);
  view_.gpus = leased_gpus(snapshot, idle_);
}

std::optional<SessionEnd> LeasesSession::draw() {
  if (live_.on_screen())
    return live_.draw(LeaseRows(view_), fmt::format("{}  every {}", format_local(view_.now, "%H:%M:%S"),
                                                    format_duration(*settings_.every)));
  if (settings_.json) return live_.append(leases_json(view_, settings_.place.path) + "\n");
  std::string text = settings_.every ? format_rfc3339(view_.now) + "\n" : "";
  if (view_.empty())
    text += leases_summary(view_) + "\n";
  else
    for (const std::string& line : leases_table(view_, screen_of(settings_.output))) text += line + "\n";
  return live_.append(text);
}

SessionEnd LeasesSession::once() {
  if (auto end = look()) return *std::move(end);
  if (!view_.state.leases.empty()) see(Sampler::start(sampling())->sample());
  if (view_.empty() && !settings_.json) {  // for people; a program that reads lines gets none
    fmt::print(stderr, "{}\n", leases_summary(view_));
    return {};
  }
  return draw().value_or(SessionEnd{});
}

SessionEnd LeasesSession::watch(World& world) {
  const auto show = [this](const Snapshot& snapshot) -> std::optional<SessionEnd> {
    if (auto end = look()) return end;
    see(snapshot);
    return draw();
  };
  return live_.watch(world, {.sampling = sampling(), .every = *settings_.every, .length = {}}, !settings_.json, show,
                     [this] { return draw(); });
}

}  // namespace lull
