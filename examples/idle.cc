// Reads the GPUs, judges a rule on each of them, and leases the first GPU for which it holds:
//
//     idle 'util < 5 for 3 samples' 200 [SECONDS]     (milliseconds between samples; gives up after SECONDS, 60)
//
// Prints which GPU it leased and why, and holds the lease until its standard input ends.

#include <lull/engine/engine.h>
#include <lull/lease/folder.h>
#include <lull/rule/policy.h>
#include <lull/rule/reason.h>
#include <lull/sense/sampler.h>
#include <lull/view/events.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace {

// Each GPU is a subject: the rule is judged on each GPU separately.
std::vector<lull::Subject> subjects_of(const lull::Inventory& inventory) {
  std::vector<lull::Subject> subjects;
  for (const lull::Device& device : inventory.devices)
    subjects.push_back({.id = {device.id().value}, .scope = {.devices = {device}, .why = "each by itself"}});
  return subjects;
}

// While the folder lock is held, no other process can take the GPU. Returns nullopt if it is already leased.
lull::Result<std::optional<lull::LockedFile>> take(const lull::LeaseFolder& leases, const lull::Device& device) {
  auto folder_lock = leases.enter();
  if (!folder_lock) return std::unexpected(folder_lock.error());
  auto state = leases.scan();
  if (!state) return std::unexpected(state.error());
  const auto is_it = [&](const lull::LeaseInfo& lease) { return lease.gpu == device.uuid; };
  if (std::ranges::any_of(state->leases, is_it)) return std::nullopt;
  lull::LeaseRecord record;
  record.gpu = device.uuid;
  record.label = device.label();
  record.id = lull::random_id();
  record.kind = lull::LeaseKind::process;
  record.holder = lull::ProcessMark::of(0);
  record.command = "idle";
  record.since = lull::SystemClock().wall();
  auto lease = leases.take(*folder_lock, record);
  if (!lease) return std::unexpected(lease.error());
  return std::move(*lease);
}

// Returns false if the GPU is already leased.
bool hold(const lull::LeaseFolder& leases, const lull::Device& device, const lull::Explanation& why) {
  auto lease = take(leases, device);
  if (!lease) std::cerr << lease.error().message() << '\n';
  if (!lease || !*lease) return false;
  std::cout << "holding GPU " << device.label() << ": " << lull::headline(why) << std::endl;
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  if (auto folder_lock = leases.enter()) leases.give_back(*folder_lock, std::move(**lease));
  return true;
}

int watch(lull::Policy policy, const lull::LeaseFolder& leases, std::chrono::milliseconds every,
          std::chrono::seconds patience) {
  lull::Engine engine({lull::plan_of(std::move(policy), {.interval = every})});
  const auto sampler = lull::Sampler::start({});
  const lull::SystemClock clock;
  for (const lull::Instant end = clock.now() + patience; clock.now() < end; std::this_thread::sleep_for(every)) {
    const lull::Snapshot snapshot = sampler->sample();
    for (const lull::Event& event : engine.observe(snapshot, subjects_of(*snapshot.inventory))) {
      const auto* fired = std::get_if<lull::Fired>(&event.what);
      if (fired == nullptr) {
        std::cerr << lull::to_string(event) << '\n';
        continue;
      }
      engine.outcome(event.subject);  // it may fire again if another process has the GPU
      const auto place = snapshot.inventory->place_of({event.subject.value});
      if (place && hold(leases, snapshot.inventory->devices[*place], fired->why)) return EXIT_SUCCESS;
    }
  }
  std::cerr << "no GPU to hold\n";
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "idle RULE MILLISECONDS [SECONDS]\n";
    return EXIT_FAILURE;
  }
  auto policy = lull::Policy::parse(argv[1]);
  auto leases = lull::LeaseFolder::open(lull::LeasePlace::of_environment());
  if (!policy || !leases) {
    std::cerr << (policy ? leases.error() : policy.error()).message() << '\n';
    return EXIT_FAILURE;
  }
  return watch(std::move(*policy), *leases, std::chrono::milliseconds(std::atoi(argv[2])),
               std::chrono::seconds(argc > 3 ? std::atoi(argv[3]) : 60));
}
