// Who is on a GPU, in namespaces and behind MPS servers, and memory that has to be guessed.
#include "sense/nvml/gpu.h"

#include <filesystem>

#include "sense/nvml/driver_test.h"
#include "sense/processes.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr unsigned long long kMiB = 1 << 20;

class GpuProcesses : public NvmlValues {
 protected:
  void SetUp() override {
    NvmlValues::SetUp();
    buffers_.root.proc = tree_.at("proc");
    tree_.link("proc/self/ns/pid", "pid:[4026531836]");
    buffers_.first_namespace.reset();
    buffers_.root.dev = tree_.at("dev");
    driver.memory = {0, 80'000 * kMiB, 500 * kMiB, 79'000 * kMiB, 500 * kMiB};
  }
  void process_here(unsigned pid, const std::string& comm, const std::string& program) const {
    const std::string folder = "proc/" + std::to_string(pid);
    tree_.write(folder + "/stat", std::to_string(pid) + " (" + comm + ") S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 " +
                                      "100 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n");
    tree_.write(folder + "/comm", comm + "\n");
    tree_.write(folder + "/cmdline", program + std::string(1, '\0'));
    std::filesystem::create_directories(tree_.at(folder + "/fd"));
  }
  // And it holds the GPU.
  void holder_here(unsigned pid, const std::string& comm = "python", const std::string& program = "python") const {
    process_here(pid, comm, program);
    tree_.write("dev/nvidia3", "");
    tree_.link("proc/" + std::to_string(pid) + "/fd/5", tree_.at("dev/nvidia3"));
  }
  void other_namespace() const { tree_.link("sim/proc/self/ns/pid", "pid:[4026532999]"); }
};

TEST_F(GpuProcesses, ProcessesOfAllListsOnceEach) {
  driver.compute = {process(10, 100), process(11, nvml::kValueNotAvailable)};
  driver.shared = {process(12, 300)};
  driver.graphics = {process(10, 500), process(13, 50)};
  const Reading& reading = sample();
  ASSERT_TRUE(reading.processes);
  ASSERT_EQ(reading.processes->size(), 4U);
  const auto& processes = *reading.processes;
  EXPECT_TRUE(processes[0].compute && processes[0].graphics);
  EXPECT_EQ(processes[0].memory_bytes, 500U);
  EXPECT_EQ(processes[1].memory_bytes, std::nullopt);
  EXPECT_TRUE(processes[2].compute);
  EXPECT_FALSE(processes[3].compute);
  EXPECT_EQ(reading[Metric::procs], 3) << "those with a compute context";
}

TEST_F(GpuProcesses, ALongListAndTheOldLists) {
  for (unsigned pid = 1; pid <= 500; ++pid) driver.compute.push_back(process(pid, pid));
  EXPECT_EQ(sample()[Metric::procs], 500);
  calls_.DeviceGetComputeRunningProcesses_v3 = nullptr;
  EXPECT_EQ(sample().why_missing(Metric::procs), Absence::no_symbol);
  EXPECT_EQ(answer_.gpu.processes, std::nullopt) << "could not look: not an empty list";
  calls_.DeviceGetComputeRunningProcesses = [](nvml::Device, unsigned* count, nvml::ProcessV1* out) {
    return give(driver.old_compute, count, out);
  };
  driver.old_compute = {{77, 1000}, {78, 2000}};
  EXPECT_EQ(sample()[Metric::procs], 2);
  EXPECT_EQ((*answer_.gpu.processes)[1].memory_bytes, 2000U);
}

TEST_F(GpuProcesses, ListsAreAskedForAtMostOnceASecond) {
  needs_.lists_every = 1s;
  holder_here(10);
  holder_here(11);
  driver.compute = {process(10, 100)};
  sample();
  EXPECT_EQ(driver.compute_lists, 1U);
  driver.compute.push_back(process(11, 100));
  for (int i = 0; i < 8; ++i) sample(100ms);
  EXPECT_EQ(driver.compute_lists, 1U);
  EXPECT_EQ(answer_.gpu[Metric::procs], 1) << "as it was a moment ago";
  EXPECT_EQ(sample(200ms)[Metric::procs], 2);
  EXPECT_EQ(driver.compute_lists, 2U);
  for (int i = 0; i < 200; ++i) sample(50ms);
  EXPECT_LE(driver.compute_lists, 12U) << "ten seconds later";
  for (int i = 0; i < 10; ++i) sample(i % 2 == 0 ? 960ms : 1040ms);
  EXPECT_GE(driver.compute_lists, 21U) << "a hair too early is early enough";
}

TEST_F(GpuProcesses, ThoseWhoDrawOnlyWhereWantedOrADisplayIsActive) {
  needs_.all_lists = false;
  driver.graphics = {process(13, 50)};
  EXPECT_TRUE(sample().processes->empty());
  EXPECT_EQ(driver.graphics_lists + driver.shared_lists, 0U);
  driver.display_active = 1;
  sample(6s);
  EXPECT_EQ(answer_.gpu.display_active, true);
  ASSERT_EQ(answer_.gpu.processes->size(), 1U);
  EXPECT_TRUE(answer_.gpu.processes->front().graphics);
  EXPECT_EQ(answer_.gpu[Metric::procs], 0);
}

TEST_F(GpuProcesses, AnMpsServerCountsThroughItsClients) {
  needs_.all_lists = false;
  holder_here(20, "nvidia-cuda-mps", "/usr/bin/nvidia-cuda-mps-server");
  holder_here(21, "nvidia-cuda-mps", "nvidia-cuda-mps-control");
  process_here(22, "python", "python");
  driver.compute = {process(20, 30 * kMiB)};
  EXPECT_EQ(sample()[Metric::procs], 0);
  EXPECT_TRUE(answer_.gpu.processes->front().mps_server);
  driver.shared = {process(22, 100 * kMiB)};
  EXPECT_EQ(sample()[Metric::procs], 1);
  EXPECT_EQ(answer_.gpu.processes->size(), 2U);
  // Older cards name the clients among the others. They have no file of their own: that is no reason to ask again.
  driver.compute = {process(20, 30 * kMiB), process(22, 100 * kMiB)};
  sample();
  const unsigned lists = driver.compute_lists;
  for (int i = 0; i < 3; ++i) sample();
  EXPECT_EQ(driver.compute_lists, lists + 3);
  driver.compute = {process(21, 30 * kMiB)};
  EXPECT_FALSE(sample().processes->front().mps_server) << "the control daemon is not the server";
}

TEST_F(GpuProcesses, WhoEndsWhileWeLookIsNotListed) {
  holder_here(22);
  driver.compute = {process(22, 1), process(23, 1)};
  const auto list = calls_.DeviceGetComputeRunningProcesses_v3;
  static decltype(list) first = list;
  calls_.DeviceGetComputeRunningProcesses_v3 = [](nvml::Device device, unsigned* count, nvml::Process* out) {
    const Return code = first(device, count, out);
    if (code == Return::success) driver.compute.resize(1);  // 23 ends behind its back
    return code;
  };
  sample();
  ASSERT_EQ(answer_.gpu.processes->size(), 1U);
  EXPECT_EQ((*answer_.gpu.processes)[0].proof, Proof::proven);
  EXPECT_EQ(driver.compute_lists, 2U);
  sample();
  EXPECT_EQ(driver.compute_lists, 3U) << "asked again only where somebody turned out to be stale";
}

TEST_F(GpuProcesses, ANumberThatGoesOnBeingListedIsStale) {
  holder_here(22);
  process_here(23, "sleep", "sleep");  // has the number of one that ended
  driver.compute = {process(22, 1), process(23, 1), process(24, 1)};
  for (int i = 0; i < 2; ++i) {
    sample();
    EXPECT_EQ((*answer_.gpu.processes)[0].proof, Proof::proven);
    EXPECT_EQ((*answer_.gpu.processes)[0].start_ticks, 100U);
    EXPECT_EQ((*answer_.gpu.processes)[1].proof, Proof::stale);
    EXPECT_EQ((*answer_.gpu.processes)[2].proof, Proof::stale);
    EXPECT_EQ(answer_.gpu[Metric::procs], 3) << "whoever it is, the GPU is not free";
  }
}

TEST_F(GpuProcesses, ANumberThatNamesNobodyIsNotHere) {
  holder_here(22);
  driver.compute = {process(22, 1), process(23, 1)};
  sample();
  EXPECT_TRUE((*answer_.gpu.processes)[0].here);
  EXPECT_FALSE((*answer_.gpu.processes)[1].here);
}

TEST_F(GpuProcesses, InAnotherNamespaceACountIsUnknownUnlessTheMemoryIsEmpty) {
  other_namespace();
  EXPECT_EQ(sample().why_missing(Metric::procs), Absence::hidden) << "500 MiB are somebody's";
  EXPECT_TRUE(answer_.gpu.processes_hidden);
  EXPECT_TRUE(answer_.gpu.processes->empty());
  driver.memory.used = 10 * kMiB;
  EXPECT_EQ(sample()[Metric::procs], 0) << "what the driver reserves is nobody's";
  needs_.memory = false;
  EXPECT_EQ(sample()[Metric::procs], 0) << "asked for that alone";
  EXPECT_EQ(answer_.gpu.why_missing(Metric::mem_used), Absence::not_asked);
  driver.compute = {process(22, kMiB)};
  EXPECT_EQ(sample().why_missing(Metric::procs), Absence::hidden) << "at least one";
  EXPECT_EQ(answer_.gpu.processes->size(), 1U);
  driver.compute.clear();
  driver.memory_second = driver.memory_first = Return::not_supported;
  EXPECT_EQ(sample().why_missing(Metric::procs), Absence::hidden) << "nothing decides";
}

TEST_F(GpuProcesses, InAnotherNamespaceTheDeviceFileSaysWhetherANumberIsAProcessOfOurs) {
  other_namespace();
  process_here(22, "python", "python");
  process_here(23, "sshd", "sshd");
  tree_.write("dev/nvidia3", "");
  tree_.write("dev/null", "");
  tree_.link("proc/22/fd/5", tree_.at("dev/nvidia3"));
  tree_.link("proc/23/fd/5", tree_.at("dev/null"));
  driver.compute = {process(22, 1), process(23, 1), process(24, 1)};
  sample();
  EXPECT_TRUE((*answer_.gpu.processes)[0].here);
  EXPECT_FALSE((*answer_.gpu.processes)[1].here) << "a number of the host's, and of somebody else here";
  EXPECT_FALSE((*answer_.gpu.processes)[2].here);
}

TEST_F(GpuProcesses, TheFirstNamespaceIsKnownByItsNumber) {
  Root root = buffers_.root;
  EXPECT_EQ(first_pid_namespace(root), true) << "a simulation that says nothing: the machine does";
  root.proc = tree_.at("nowhere");
  EXPECT_EQ(first_pid_namespace(root), std::nullopt) << "who cannot tell";
  tree_.link("sim/proc/self/ns/pid", "pid:[4026531836]");
  EXPECT_EQ(first_pid_namespace(root), true);
  root.driver = tree_.at("other/proc/driver/nvidia");
  tree_.link("other/proc/self/ns/pid", "pid:[4026531837]");
  EXPECT_EQ(first_pid_namespace(root), false);
}

TEST_F(GpuProcesses, UnifiedMemoryIsEstimated) {  // GB10
  tree_.write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:   1 kB\nMemAvailable:    600 kB\n");
  driver.compute = {process(10, 100), process(11, 200)};
  for (const bool zero : {false, true}) {
    driver.memory_second = driver.memory_first = zero ? Return::success : Return::not_supported;
    driver.memory = {};
    needs_.processes = true;
    const Reading& reading = sample();
    EXPECT_TRUE(reading.memory_estimated);
    EXPECT_EQ(reading[Metric::mem_used], 300);
    EXPECT_EQ(reading[Metric::mem_free], 600 * 1024);
    EXPECT_EQ(reading[Metric::mem_total], 1000 * 1024);
    needs_.processes = false;
    EXPECT_EQ(sample()[Metric::mem_used], 300) << "listed for the memory alone";
    EXPECT_EQ(answer_.gpu.processes, std::nullopt);
  }
  driver.compute.push_back(process(12, nvml::kValueNotAvailable));
  EXPECT_EQ(sample().why_missing(Metric::mem_used), Absence::not_supported) << "a sum of what is known is too little";
  driver.compute.pop_back();
  std::filesystem::remove(tree_.at("proc/meminfo"));
  EXPECT_EQ(sample().why_missing(Metric::mem_total), Absence::not_supported);
  EXPECT_FALSE(answer_.gpu.memory_estimated);
}

TEST_F(GpuProcesses, AnOldDriversMemoryDoes) {
  calls_.DeviceGetMemoryInfo_v2 = nullptr;
  EXPECT_EQ(sample()[Metric::mem_used], 1000.0 * kMiB) << "what is reserved is in there";
  const unsigned before = driver.calls;
  calls_ = table();
  driver.memory_second = Return::argument_version_mismatch;
  needs_ = {.power = false, .details = false, .processes = false};
  EXPECT_EQ(sample()[Metric::mem_used], 1000.0 * kMiB);
  EXPECT_EQ(driver.calls, before + 2) << "the call that works is remembered";
}

}  // namespace
}  // namespace lull
