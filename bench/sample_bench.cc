// What a sample costs beyond the driver's own calls. Prints one line a figure,
// name and number, for figure_sample.py:
//
//   sample_bench            bare calls and samples of 8 and 64 simulated GPUs, in turns
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "sense/nvml/library.h"
#include "sense/sampler.h"
#include "sense/sim_machine_test.h"

namespace lull {
namespace {

using Seconds = std::chrono::duration<double>;

double median(std::vector<double> all) {
  std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
  return all[all.size() / 2];
}

// Ours and the sensor's, by the scheduler's own account.
double cpu_of_both() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  double sum = seconds(used.ru_utime) + seconds(used.ru_stime);
  for (const pid_t sensor : sensors_of_ours())
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(sensor) + "/task"))
      if (const auto text = read_file(task.path().string() + "/schedstat"))
        sum += std::strtod(text->c_str(), nullptr) / 1e9;
  return sum;
}

// The calls that a sample needs, and nothing else: what any program would have to pay.
struct Bare {
  explicit Bare(const Nvml& nvml) : calls(nvml.calls()), handles(nvml.gpu_count()), newest(nvml.gpu_count()) {
    for (unsigned i = 0; i < handles.size(); ++i) calls.DeviceGetHandleByIndex_v2(i, &handles[i]);
  }

  void sample() {
    for (std::size_t i = 0; i < handles.size(); ++i) {
      const nvml::Device gpu = handles[i];
      nvml::Utilization rates{};
      nvml::Memory memory{};
      unsigned number = 0;
      unsigned long long big = 0;
      calls.DeviceGetUtilizationRates(gpu, &rates);
      unsigned type = 0;
      auto count = static_cast<unsigned>(samples.size());
      if (calls.DeviceGetSamples(gpu, nvml::kSamplesGpuUtil, newest[i], &type, &count, samples.data()) ==
              nvml::Return::success &&
          count > 0)
        newest[i] = samples[count - 1].timestamp;
      calls.DeviceGetMemoryInfo(gpu, &memory);
      calls.DeviceGetTotalEnergyConsumption(gpu, &big);
      calls.DeviceGetPowerUsage(gpu, &number);  // so soon after the last sample there is no mean
      calls.DeviceGetEnforcedPowerLimit(gpu, &number);
      calls.DeviceGetTemperature(gpu, nvml::kTemperatureGpu, &number);
      calls.DeviceGetFanSpeed(gpu, &number);
      calls.DeviceGetClockInfo(gpu, nvml::kClockSm, &number);
      calls.DeviceGetPerformanceState(gpu, &number);
      calls.DeviceGetClockInfo(gpu, nvml::kClockMemory, &number);
      calls.DeviceGetCurrentClocksEventReasons(gpu, &big);
      count = static_cast<unsigned>(processes.size());
      calls.DeviceGetComputeRunningProcesses_v3(gpu, &count, processes.data());
      count = static_cast<unsigned>(processes.size());
      calls.DeviceGetMPSComputeRunningProcesses_v3(gpu, &count, processes.data());
      count = static_cast<unsigned>(processes.size());
      calls.DeviceGetGraphicsRunningProcesses_v3(gpu, &count, processes.data());
    }
  }

  const NvmlCalls& calls;
  std::vector<nvml::Device> handles;
  std::vector<unsigned long long> newest;
  std::array<nvml::Sample, 1024> samples{};
  std::array<nvml::Process, 64> processes{};
};

// The same on a thread that is woken for it, as any program must that does not want to hang with the driver.
class BareThread {
 public:
  explicit BareThread(Bare& bare) : bare_(bare), thread_([this] { run(); }) {}
  ~BareThread() {
    ask(true);
    thread_.join();
  }
  // How long the calls took.
  Duration sample() {
    ask(false);
    std::unique_lock lock(mutex_);
    told_.wait(lock, [&] { return !asked_; });
    return took_;
  }

 private:
  void ask(bool end) {
    const std::scoped_lock lock(mutex_);
    asked_ = true;
    end_ = end;
    wake_.notify_all();
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return asked_; });
      if (end_) return;
      const Instant began = now();
      bare_.sample();
      took_ = now() - began;
      asked_ = false;
      told_.notify_all();
    }
  }

  Bare& bare_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable told_;
  bool asked_ = false;
  bool end_ = false;
  Duration took_{};
  std::thread thread_;
};

template <class Body>
double time_of(unsigned times, Body&& body) {
  const Instant began = now();
  for (unsigned i = 0; i < times; ++i) body();
  return Seconds(now() - began).count() / times;
}

void compare(unsigned gpus) {
  SimMachine machine(std::vector<std::string>(gpus, "H100"));
  machine.begin();
  DriverState state;
  const std::shared_ptr<Nvml> nvml = Nvml::open(SimMachine::library(), state);
  Bare bare(*nvml);
  const auto sampler = Sampler::start(machine.options());
  Snapshot snapshot = sampler->sample();
  std::vector<double> ratios;
  std::vector<double> handed_over;  // waking the sensor, and until we have what it wrote
  std::vector<double> calls;
  std::vector<double> took;
  double cpu = 0;
  unsigned samples = 0;
  {
    BareThread thread(bare);
    const unsigned times = std::max(5U, 400 / gpus);
    for (int turn = 0; turn < 80; ++turn) {
      Duration theirs{};
      Duration ours{};
      (void)time_of(times, [&] { theirs += thread.sample(); });
      const double before = cpu_of_both();
      const double our_wall = time_of(times, [&] {
        sampler->sample(snapshot);
        ours += snapshot.took;
      });
      cpu += cpu_of_both() - before;
      samples += times;
      calls.push_back(Seconds(theirs).count() / times);
      took.push_back(Seconds(ours).count() / times);
      ratios.push_back(Seconds(ours) / Seconds(theirs));
      handed_over.push_back(our_wall - Seconds(ours).count() / times);
    }
  }
  std::printf("calls%u_us %.2f\ntook%u_us %.2f\nratio%u %.3f\nhand_over%u_us %.2f\ncpu%u_us %.2f\n", gpus,
              median(calls) * 1e6, gpus, median(took) * 1e6, gpus, median(ratios), gpus, median(handed_over) * 1e6,
              gpus, cpu / samples * 1e6);
  nvml->shutdown();
}

void first_sample() {
  SimMachine machine(std::vector<std::string>(8, "H100"));
  machine.begin();
  std::vector<double> all;
  SamplerOptions options = machine.options();
  options.once = true;
  for (int turn = 0; turn < 50; ++turn) all.push_back(time_of(1, [&] { Sampler::start(options)->sample(); }));
  std::printf("first8_us %.2f\n", median(all) * 1e6);
}

}  // namespace
}  // namespace lull

int main() {
  // One processor for both: what another core's cache holds is not what is measured here.
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(::sched_getcpu()), &one);
  ::sched_setaffinity(0, sizeof one, &one);
  lull::compare(8);
  lull::compare(64);
  lull::first_sample();
  return 0;
}
