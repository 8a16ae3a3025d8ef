#pragma once
// For tests and benchmarks: a simulated machine in a folder of its own, seen by
// every sampler of this process for as long as it lives.

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/process.h"
#include "base/result.h"
#include "nvml/abi.h"
#include "sense/file_tree_test.h"
#include "sense/sampler.h"
#include "sim/models.h"
#include "sim/writer.h"
#include "tests/places.h"

namespace lull {

class SimMachine {
 public:
  explicit SimMachine(const std::vector<std::string>& models) {
    for (unsigned i = 0; i < models.size(); ++i) {
      sim::GpuPlan& gpu = plan.gpus.emplace_back();
      gpu.gpu = sim::model(models[i]).value();
      sim::place(gpu.gpu, i, static_cast<unsigned>(models.size()));
    }
  }
  SimMachine(const SimMachine&) = delete;
  SimMachine& operator=(const SimMachine&) = delete;
  // Whoever still hangs in a call of it comes back first.
  ~SimMachine() {
    if (begun_) heal();
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
    ::unsetenv("LULL_SIM");
  }

  // Begins; `plan` may be changed before.
  void begin() {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // sensors are our children: see sensors_of_ours()
    must(sim::create_state(tree.path(), plan));
    ::setenv("LULL_SIM", tree.path().c_str(), 1);
    begun_ = true;
  }

  sim::Writer writer() const { return must(sim::Writer::open(tree.path())); }
  void set(unsigned gpu, sim::Metric metric, double value) const { must(writer().set({{gpu, metric, value}})); }

  // As `lull sim fault`: an answer with a code, after hanging for a while.
  void fault(std::int32_t gpu, nvml::Return code, Duration hang = {}, const std::string& function = "") const {
    sim::Fault one;
    one.gpu = gpu;
    one.code = static_cast<std::int32_t>(code);
    one.hang_ns = hang.count();
    one.from_ns = -1;
    function.copy(one.function, sizeof one.function - 1);
    must(writer().add_faults({one}));
  }
  void no_util(std::int32_t gpu) const {
    sim::Fault one;
    one.gpu = gpu;
    one.kind = sim::FaultKind::no_util;
    one.from_ns = -1;
    must(writer().add_faults({one}));
  }
  void heal() const { must(writer().clear_faults(sim::kEveryGpu)); }

  static std::string library() { return build_dir() + "/sim/libnvidia-ml.so.1"; }
  SamplerOptions options() const {
    SamplerOptions chosen;
    chosen.library = library();
    return chosen;
  }

  template <class T>
  static T must(Result<T> result) {
    if (!result) {
      std::fprintf(stderr, "simulated machine: %s\n", result.error().message().c_str());
      std::abort();
    }
    if constexpr (!std::is_void_v<T>) return std::move(*result);
  }

  TestTree tree;
  sim::Plan plan;

 private:
  bool begun_ = false;
};

// Samples until `wanted` holds, with a pause in between; the last snapshot, whether it does or not.
template <class Wanted>
Snapshot sample_until(Sampler& sampler, const Wanted& wanted, Duration pause = std::chrono::milliseconds(5)) {
  const SystemClock clock;
  const Instant end = clock.now() + std::chrono::seconds(20);
  Snapshot snapshot = sampler.sample();
  while (!wanted(snapshot) && clock.now() < end) {
    std::this_thread::sleep_for(pause);
    snapshot = sampler.sample();
  }
  return snapshot;
}

// One sample as a loop gets it: waiting for the event, but no longer than until look_by().
inline Snapshot sample_by_event(Sampler& sampler) {
  const SystemClock clock;
  Snapshot snapshot;
  pollfd ready{sampler.event_fd(), POLLIN, 0};
  for (sampler.request(); !sampler.take(snapshot);) {
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(sampler.look_by() - clock.now());
    (void)::poll(&ready, 1, static_cast<int>(std::clamp<std::int64_t>(wait.count(), 0, 60'000)));
  }
  return snapshot;
}

// The sensor processes that are children of this one.
inline std::vector<pid_t> sensors_of_ours() {
  std::vector<pid_t> found;
  for (const ProcessEntry& one : read_all_processes())
    if (one.parent == ::getpid() && one.name == "lull-sensor" && !one.ended()) found.push_back(one.pid);
  return found;
}

// Without the thread that TSan starts in each process.
inline std::size_t threads_of_sensors() {
#ifdef __SANITIZE_THREAD__
  constexpr std::size_t kOfTsan = 1;
#else
  constexpr std::size_t kOfTsan = 0;
#endif
  std::size_t threads = 0;
  for (const pid_t pid : sensors_of_ours()) {
    std::error_code gone;
    const std::filesystem::directory_iterator tasks("/proc/" + std::to_string(pid) + "/task", gone);
    const auto count = static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
    threads += count - std::min(count, kOfTsan);
  }
  return threads;
}

inline Instant now() { return SystemClock().now(); }

inline bool all_known(const Snapshot& snapshot) {
  return !snapshot.readings.empty() && snapshot.driver.absence == Absence::none &&
         std::ranges::all_of(snapshot.readings, [](const Reading& r) { return r.device_absence == Absence::none; });
}

}  // namespace lull
