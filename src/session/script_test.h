#pragma once
// What a fake world plays (fake_world_test.h), and what it keeps of what happened.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gpu/snapshot.h"

namespace lull {

// What the machine shows at an instant. NaN: it could not be read.
struct Script {
  std::function<double(Instant, unsigned gpu)> util = [](Instant, unsigned) { return 0.0; };
  std::function<bool(Instant)> has_driver = [](Instant) { return true; };
  std::function<Duration(Instant)> latency = [](Instant) { return std::chrono::milliseconds(2); };
  // How old the readings are when they are handed over.
  std::function<Duration(Instant)> age = [](Instant) { return Duration::zero(); };
  // How far back the newest data of the driver reach.
  std::function<Duration(Instant)> newest_span = [](Instant) { return Reading().newest_span; };
  // What the driver says of processes.
  std::function<void(Instant, Reading&)> shares = [](Instant, Reading&) {};
  // Whether the job has a context there. Lists of it are as old as the session allows.
  std::function<bool(Instant, unsigned gpu)> has_context = [](Instant, unsigned) { return true; };
  unsigned gpus = 2;
  // Whether this machine let nobody look between the so-manieth sample and the one before.
  std::function<bool(std::size_t sample)> not_covered = [](std::size_t) { return false; };
  // Who holds a GPU, for sessions that judge many; nothing: its processes cannot be listed.
  std::function<std::optional<std::vector<GpuProcess>>(Instant, unsigned gpu)> holders = [](Instant, unsigned) {
    return std::vector<GpuProcess>();
  };
};

inline GpuProcess holder_for_test(pid_t pid, uid_t user = 1000, std::string job = "") {
  ProcessInfo info;
  info.uid = user;
  info.user = "user" + std::to_string(user);
  info.name = "train";
  return {.pid = pid,
          .compute = true,
          .start_ticks = static_cast<std::uint64_t>(pid) * 10,
          .info = std::make_shared<const ProcessInfo>(info),
          .identified = true,
          .job = job.empty() ? "tree:" + std::to_string(pid) : job,
          .job_title = "job " + (job.empty() ? std::to_string(pid) : job)};
}

// Everything that happened, in order.
struct Happened {
  Instant at{};
  std::string what;
};

// Every sample as it was handed over.
struct Seen {
  Instant at{};     // of the readings
  Instant asked{};  // for them
  Instant given{};  // to the session
  bool idle = false;
  std::vector<double> util;                                     // of each GPU
  std::vector<std::optional<std::vector<GpuProcess>>> holders;  // likewise
};

}  // namespace lull
