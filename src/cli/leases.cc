// `lull leases`: who holds which GPU, and who waits.

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>

#include "cli/command.h"
#include "cli/options.h"
#include "lease/folder.h"
#include "sense/sampler.h"
#include "session/status_extras.h"
#include "view/leases.h"
#include "view/screen.h"

namespace lull {

namespace {

// One look at what is leased, with a limit: who asks for leases gets them even where a driver hangs.
LeasedGpus look_at(const std::vector<LeaseInfo>& leases) {
  constexpr Duration kPatience = std::chrono::milliseconds(1500);
  LeasedGpus gpus;
  if (leases.empty()) return gpus;
  SamplerOptions options;
  options.want_only(std::array{Metric::util});
  options.once = options.idle_before = true;
  options.deadline = options.init_deadline = options.attach_deadline = kPatience;
  const Snapshot snapshot = Sampler::start(options)->sample();
  IdleTimes idle(std::chrono::seconds(1));
  idle.see(snapshot);
  for (std::size_t i = 0; i < snapshot.readings.size(); ++i) {
    const Device& device = snapshot.inventory->devices[i];
    StatusExtra extra;
    idle.tell(device, extra);
    gpus[device.uuid] = {snapshot.readings[i][Metric::util], extra.idle_for, extra.idle_for_longer};
  }
  return gpus;
}

}  // namespace

int leases_command(int argc, char** argv) {
  CommandLine line("Shows who holds which GPU, and who waits for one.", "lull leases");
  line.footer("\nexample: lull leases --json");
  bool json = false;
  line.flag("--json", json, "one JSON object");
  if (const auto status = line.parse(argc, argv)) return *status;
  const LeasePlace place = LeasePlace::of_environment();
  const auto folder = LeaseFolder::look(place);
  if (!folder) return complain(folder.error().message());
  FolderState state;
  if (*folder) {
    auto scanned = (*folder)->scan();
    if (!scanned) return complain(scanned.error().message());
    state = *std::move(scanned);
    sort_by_gpu(state.leases);
  }
  const LeasedGpus gpus = look_at(state.leases);
  if (json)
    fmt::print("{}\n", leases_json(state, gpus, place.path));
  else if (state.leases.empty() && state.tickets.empty())
    fmt::print(stderr, "no GPU is leased, nobody waits\n");
  else
    for (const std::string& text : leases_table(state, gpus, SystemClock().wall(), screen_of(STDOUT_FILENO)))
      fmt::print("{}\n", text);
  return 0;
}

}  // namespace lull
