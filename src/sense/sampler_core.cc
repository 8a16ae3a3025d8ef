// The sampler's worker: opens the driver, samples the GPUs in order, publishes.
#include "sense/sampler_core.h"

#include <algorithm>

#include "base/units.h"
#include "sense/openers.h"
#include "sense/processes.h"

namespace lull {
namespace {

constexpr Duration kOpenAgain = std::chrono::seconds(1);
constexpr Duration kStartOver = std::chrono::seconds(10);  // where every GPU fails, a new start may help

Instant now() { return SystemClock().now(); }

// Good to a few milliseconds, and so cheap that it can be asked for every GPU: enough to see that one hangs.
Duration coarse() {
  timespec ts{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
  return std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec);
}

Wanted wanted_of(const SamplerOptions& options) {
  Wanted wanted;
  wanted.memory = options.memory;
  wanted.power = options.power;
  wanted.details = options.details;
  wanted.tenants = options.tenants || options.processes;
  wanted.all_lists = options.processes;  // shown to a person
  wanted.pcie = options.pcie;
  wanted.once = options.once;
  wanted.idle_before = options.idle_before;
  return wanted;
}

// As new: the memory is that of an older sample, to which its owner may have added.
void unknown(Reading& reading, Absence why, Duration unanswered = {}) {
  reading = Reading();
  reading.miss_all(why);
  reading.unanswered = unanswered;
}

}  // namespace

Sampler::Core::Core(SamplerOptions chosen) : options(std::move(chosen)), wanted(wanted_of(options)) {
  driver = {Absence::no_answer, "no sample was taken yet", {}};
}

void Sampler::Core::work(std::uint64_t id) {
  Desk desk;
  Lock lock(mutex);
  while (true) {
    wake.wait(lock, [&] { return stopping || worker != id || requested > done; });
    if (stopping || worker != id || !round(lock, id, desk)) break;
    if (done > taken) announce(lock);
  }
  // The last one out turns off the light, unless somebody still hangs in there or the program ends anyway.
  if (stopping && worker == id && stuck.empty() && !options.once && nvml != nullptr) drop_driver(lock);
  --workers;
  told.notify_all();
}

bool Sampler::Core::round(Lock& lock, std::uint64_t id, Desk& desk) {
  const std::uint64_t number = requested;
  work_began = now();
  for (int tries = 0; tries < 2; ++tries) {
    if (nvml == nullptr && now() >= open_again) open_driver(lock);
    if (nvml == nullptr || done >= number) break;
    bool gone = false;
    if (!sample_slots(lock, id, number, desk, gone)) return false;
    if (!gone) break;
    // The driver was unloaded, or exchanged between two samples: one new start at once, then about one a second.
    const bool just_opened = now() - opened_at < kOpenAgain;
    drop_driver(lock);
    driver = {Absence::no_driver, "the driver was unloaded", {}};
    open_again = just_opened || tries > 0 ? now() + kOpenAgain : now();
  }
  if (done < number && !finish(lock, id, number, desk.snapshot)) return false;
  if (nvml != nullptr && nothing_works(number) && now() - opened_at > kStartOver) drop_driver(lock);
  return true;
}

void Sampler::Core::open_driver(Lock& lock) {
  step = Step::open;
  step_began = now();
  lock.unlock();
  DriverState state;
  std::shared_ptr<Nvml> opened = Nvml::open(options.library, state);
  lock.lock();
  step = Step::none;
  driver = std::move(state);
  opened_at = now();
  round_began = std::max(round_began, opened_at);  // opening has a limit of its own
  if (opened == nullptr) {
    open_again = opened_at + kOpenAgain;
    return;
  }
  nvml = std::move(opened);
  slots = std::make_shared<Slots>();
  for (unsigned i = 0; i < nvml->gpu_count(); ++i) slots->emplace_back(i);
  rearrange = true;
}

void Sampler::Core::drop_driver(Lock& lock) {
  const std::shared_ptr<Nvml> dropped = std::move(nvml);
  nvml = nullptr;
  step = Step::open;
  step_began = now();
  lock.unlock();
  dropped->shutdown();
  lock.lock();
  step = Step::none;
  open_again = now();
}

void Sampler::Core::adopt(Slot& slot) {
  slot.changes = slot.gpu.changes;
  slot.device = slot.gpu.device;
  slot.parts.clear();
  for (const NvmlPart& part : slot.gpu.parts) slot.parts.push_back(part.device);
  rearrange = true;
}

bool Sampler::Core::sample_slots(Lock& lock, std::uint64_t id, std::uint64_t number, Desk& desk, bool& gone) {
  // Held for as long as we may be in a call, whatever others do meanwhile.
  const std::shared_ptr<Nvml> library = nvml;
  const std::shared_ptr<Slots> mine = slots;
  const Instant began = now();
  const Duration coarse_began = coarse();
  for (unsigned i = 0; i < mine->size() && done < number; ++i) {
    Slot& slot = (*mine)[i];
    if (slot.round == number || stuck_at(i) != nullptr) continue;
    step = Step::gpu;
    step_gpu = i;
    const Instant at = step_began = began + (coarse() - coarse_began);
    lock.unlock();
    sample_gpu(library->calls(), slot.gpu, wanted, at, desk.room, slot.answer);
    lock.lock();
    if (worker != id) {  // we were given up; the GPU is back from now on
      std::erase_if(stuck, [&](const Stuck& one) { return one.worker == id; });
      return false;
    }
    step = Step::none;
    slot.round = number;
    if (slot.changes != slot.gpu.changes) adopt(slot);
    if (slot.answer.driver_gone) {
      gone = true;
      return true;
    }
  }
  return true;
}

bool Sampler::Core::finish(Lock& lock, std::uint64_t id, std::uint64_t number, Snapshot& snapshot) {
  if (rearrange) arrange_rows();
  build(snapshot, number, now());
  if ((options.processes || options.openers) && !proc_stuck) {
    // Reading /proc can hang as well: at a process that is stuck with its memory locked.
    step = Step::finish;
    step_began = now();
    lock.unlock();
    if (options.processes) join_processes(snapshot, options.root);
    if (options.openers) count_openers(snapshot, options.root, options.ignore_openers);
    lock.lock();
    if (worker != id) {
      proc_stuck = false;
      return false;
    }
    step = Step::none;
    if (done >= number) return true;
  }
  publish(snapshot, number);
  return true;
}

void Sampler::Core::publish(Snapshot& snapshot, std::uint64_t number) {
  done = number;
  snapshot.took = now() - work_began;
  std::swap(published, snapshot);
}

// Without the lock: whoever is woken wants it at once, and would go to sleep again over it.
void Sampler::Core::announce(Lock& lock) {
  const int fd = event.get();  // once made, it stays
  lock.unlock();
  const std::uint64_t one = 1;
  if (fd >= 0) (void)!::write(fd, &one, sizeof one);
  told.notify_all();
  lock.lock();
}

void Sampler::Core::arrange_rows() {
  rearrange = false;
  std::vector<FoundGpu> found;
  for (const Slot& slot : *slots) {
    FoundGpu& one = found.emplace_back();
    one.gpu = &slot.device;
    for (const Device& part : slot.parts) one.parts.push_back(&part);
  }
  Arrangement arrangement = arrange(inventory->devices, found);
  rows = std::move(arrangement.rows);
  const std::string version = nvml != nullptr ? nvml->driver_version() : inventory->driver_version;
  const std::string path = nvml != nullptr ? nvml->path() : inventory->library;
  if (arrangement.devices == inventory->devices && version == inventory->driver_version && path == inventory->library)
    return;
  inventory = std::make_shared<Inventory>(Inventory{std::move(arrangement.devices), version, path});
}

void Sampler::Core::build(Snapshot& snapshot, std::uint64_t number, Instant at) {
  snapshot.at = at;
  snapshot.wall = SystemClock().wall();
  snapshot.inventory = inventory;
  snapshot.driver = driver;
  snapshot.readings.resize(inventory->devices.size());
  snapshot.processes.clear();
  bool all_hang = !slots->empty();
  Duration longest{};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    fill(snapshot.readings[i], rows[i], number, at);
    all_hang = all_hang && snapshot.readings[i].device_absence == Absence::no_answer;
    longest = std::max(longest, snapshot.readings[i].unanswered);
    if (options.openers) snapshot.readings[i].miss(Metric::openers, Absence::no_answer);  // until it was looked
  }
  if (driver.absence != Absence::none || !all_hang) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  snapshot.driver = {Absence::no_answer, "the driver does not answer for " + format_duration(seconds), longest};
}

void Sampler::Core::fill(Reading& reading, const Row& row, std::uint64_t number, Instant at) const {
  if (driver.absence != Absence::none) return unknown(reading, driver.absence, driver.unanswered);
  if (row.gpu == Row::kNobody || row.gpu >= slots->size()) return unknown(reading, Absence::lost);
  const Slot& slot = (*slots)[row.gpu];
  if (slot.round != number) {
    const Stuck* one = stuck_at(static_cast<unsigned>(row.gpu));
    const bool in_it = step == Step::gpu && step_gpu == row.gpu;
    return unknown(reading, Absence::no_answer, at - (one != nullptr ? one->since : in_it ? step_began : round_began));
  }
  if (row.part == Row::kNobody)
    reading = slot.answer.gpu;
  else if (row.part < slot.answer.parts.size())
    reading = slot.answer.parts[row.part];
  else
    unknown(reading, Absence::lost);
}

const Sampler::Core::Stuck* Sampler::Core::stuck_at(unsigned index) const {
  const auto found = std::ranges::find(stuck, index, &Stuck::index);
  return found == stuck.end() ? nullptr : &*found;
}

bool Sampler::Core::nothing_works(std::uint64_t number) const {
  return !slots->empty() && stuck.empty() && std::ranges::all_of(*slots, [&](const Slot& slot) {
    return slot.round == number && slot.answer.gpu.device_absence != Absence::none;
  });
}

}  // namespace lull
