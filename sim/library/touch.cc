#include "sim/library/touch.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace lull::sim {
namespace {

constexpr std::int64_t kReady = 1;

bool alive(const Client& client) {
  const std::uint32_t pid = client.pid.load(std::memory_order_acquire);
  return pid != 0 && process_start_ticks(pid) == client.start_ticks.load(std::memory_order_acquire);
}

// A place of our own among the clients: a free one, else one whose process is gone. 0: none is left.
std::uint32_t take_place(State& state) {
  const auto own = static_cast<std::uint32_t>(::getpid());
  for (const bool also_dead : {false, true})
    for (std::uint32_t i = 0; i < kMaxClients; ++i) {
      Client& client = state.clients[i];
      std::uint32_t there = client.pid.load(std::memory_order_acquire);
      if (there != 0 && (!also_dead || alive(client))) continue;
      if (!client.pid.compare_exchange_strong(there, own, std::memory_order_acq_rel)) continue;
      for (auto& word : client.gpus) word.store(0, std::memory_order_relaxed);
      client.start_ticks.store(process_start_ticks(own), std::memory_order_release);
      return i + 1;
    }
  return 0;
}

Cost kind_of(const char* function) {
  const auto has = [&](const char* part) { return std::strstr(function, part) != nullptr; };
  if (has("RunningProcesses")) return Cost::lists;
  if (has("FanSpeed")) return Cost::fan;
  if (has("MemoryInfo")) return Cost::memory;
  if (has("UtilizationRates")) return Cost::util;
  if (has("GetSamples")) return Cost::samples;
  if (has("PowerUsage") || has("Energy") || has("PowerLimit")) return Cost::power;
  return Cost::other;
}

// Where the time is set by hand, until it has been set as much further.
void spend_manual(State& state, std::int64_t ns) {
  for (const std::int64_t end = boot_now_ns(state) + ns;;) {
    const std::uint64_t version = state.version.load(std::memory_order_acquire);
    if (boot_now_ns(state) >= end || state.closed.load(std::memory_order_acquire) != 0) return;
    wait_for_change(state, version, kLookAgainNs);
  }
}

void spend(State& state, std::int64_t ns) {
  constexpr std::int64_t kTooShortToSleep = 200'000;
  if (state.manual_boot_ns.load(std::memory_order_acquire) != 0) return spend_manual(state, ns);
  const std::int64_t end = boot_now_ns() + ns;
  if (ns > kTooShortToSleep) {
    timespec left{ns / 1'000'000'000, ns % 1'000'000'000};
    while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
  }
  while (boot_now_ns() < end) {
  }
}

}  // namespace

void Touch::begin(const char* folder) {
  std::snprintf(folder_, sizeof folder_, "%s", folder);
  for (auto& ready : ready_) ready.store(0, std::memory_order_relaxed);
  client_.store(0, std::memory_order_relaxed);
}

std::int64_t Touch::attach(State& state, bool writable, unsigned gpu, bool persistent) {
  std::int64_t ready = ready_[gpu].load(std::memory_order_acquire);
  if (ready == kReady || gpu >= state.nvml_count) return 0;
  const Gpu& card = state.gpus[gpu];
  const std::int64_t now = boot_now_ns(state);
  if (ready == 0) {
    const std::int64_t then = now + (persistent ? 0 : card.attach_ns);
    if (ready_[gpu].compare_exchange_strong(ready, then, std::memory_order_acq_rel)) {
      ready = then;
      if (writable) hold(state, gpu);
    }
  }
  if (ready > now) return ready - now;
  // Attached. Whoever finds that first says when: it is then that the driver scrubs the memory.
  if (ready_[gpu].exchange(kReady, std::memory_order_acq_rel) != kReady && writable && card.scrub_ns > 0)
    state.touched[gpu].attached_ns.store(std::max<std::int64_t>(1, scenario_time(state, now)),
                                         std::memory_order_release);
  return 0;
}

void Touch::hold(State& state, unsigned gpu) {
  std::uint32_t place = client_.load(std::memory_order_acquire);
  if (place == 0) {
    place = take_place(state);
    std::uint32_t none = 0;
    if (place != 0 && !client_.compare_exchange_strong(none, place, std::memory_order_acq_rel)) {
      state.clients[place - 1].pid.store(0, std::memory_order_release);  // another thread was first
      place = none;
    }
  }
  if (place != 0) state.clients[place - 1].gpus[gpu / 64].fetch_or(1ULL << gpu % 64, std::memory_order_acq_rel);
}

void Touch::end(State& state, bool writable) {
  const std::uint32_t place = client_.exchange(0, std::memory_order_acq_rel);
  if (place != 0 && writable) state.clients[place - 1].pid.store(0, std::memory_order_release);
}

void Touch::after_fork() {
  client_.store(0, std::memory_order_relaxed);
  for (auto& ready : ready_) ready.store(0, std::memory_order_relaxed);
}

void wake(State& state, bool writable, const char* folder, unsigned gpu) {
  if (gpu >= state.nvml_count) return;
  if (writable && state.touched[gpu].asleep.exchange(0, std::memory_order_acq_rel) == 0) return;
  const Gpu& card = state.gpus[gpu];
  char place[4200];
  char fresh[4240];
  std::snprintf(place, sizeof place, "%s/sys/bus/pci/devices/%04x:%02x:%02x.0/power/runtime_status", folder,
                card.pci_domain, card.pci_bus, card.pci_device);
  std::snprintf(fresh, sizeof fresh, "%s.%d", place, static_cast<int>(::gettid()));
  const int before = errno;
  // Whole or not at all: a reader never sees half a word.
  if (const int fd = ::open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644); fd >= 0) {
    const bool written = ::write(fd, "active\n", 7) == 7;
    ::close(fd);
    if (!written || ::rename(fresh, place) != 0) ::unlink(fresh);
  }
  errno = before;
}

void wait_for_change(State& state, std::uint64_t version, std::int64_t for_ns) {
  const timespec limit{for_ns / 1'000'000'000, for_ns % 1'000'000'000};
  ::syscall(SYS_futex, &state.version, FUTEX_WAIT, static_cast<std::uint32_t>(version), &limit, nullptr, 0);
}

void pay(State& state, bool writable, const char* function) {
  const std::int64_t cost = state.cost_ns[static_cast<unsigned>(kind_of(function))];
  if (cost <= 0) return;
  if (!writable) return spend(state, cost);
  const int locked = ::pthread_mutex_lock(&state.driver_lock);
  if (locked == EOWNERDEAD) ::pthread_mutex_consistent(&state.driver_lock);
  spend(state, cost);
  if (locked == 0 || locked == EOWNERDEAD) ::pthread_mutex_unlock(&state.driver_lock);
}

bool read_unanswered(const char* folder, std::int32_t gpu) {
  char path[4200];
  if (gpu < 0)
    std::snprintf(path, sizeof path, "%s/dstate/driver", folder);
  else
    std::snprintf(path, sizeof path, "%s/dstate/%d", folder, gpu);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char byte = 0;
  const ssize_t got = ::read(fd, &byte, 1);
  ::close(fd);
  return got >= 0;
}

}  // namespace lull::sim
