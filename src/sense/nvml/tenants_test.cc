// Who is on a GPU, in namespaces and behind MPS servers, and memory that has to be guessed.
#include "sense/nvml/tenants.h"

#include <filesystem>

#include "sense/nvml/driver_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr unsigned long long kMiB = 1 << 20;

class Tenants : public NvmlValues {
 protected:
  void SetUp() override {
    NvmlValues::SetUp();
    room_.root.proc = tree_.at("proc");
    tree_.link("proc/self/ns/pid", "pid:[4026531836]");
    room_.first_namespace.reset();
    room_.root.dev = tree_.at("dev");
    driver.memory = {0, 80'000 * kMiB, 500 * kMiB, 79'000 * kMiB, 500 * kMiB};
  }
  void process_here(unsigned pid, const std::string& comm, const std::string& program) const {
    const std::string folder = "proc/" + std::to_string(pid);
    tree_.write(folder + "/comm", comm + "\n");
    tree_.write(folder + "/cmdline", program + std::string(1, '\0'));
    std::filesystem::create_directories(tree_.at(folder + "/fd"));
  }
  void other_namespace() const { tree_.link("sim/proc/self/ns/pid", "pid:[4026532999]"); }
};

TEST_F(Tenants, TenantsOfAllListsOnceEach) {
  driver.compute = {process(10, 100), process(11, nvml::kValueNotAvailable)};
  driver.shared = {process(12, 300)};
  driver.graphics = {process(10, 500), process(13, 50)};
  const Reading& reading = sample();
  ASSERT_TRUE(reading.tenants);
  ASSERT_EQ(reading.tenants->size(), 4U);
  const auto& tenants = *reading.tenants;
  EXPECT_TRUE(tenants[0].compute && tenants[0].graphics);
  EXPECT_EQ(tenants[0].memory_bytes, 500U);
  EXPECT_EQ(tenants[1].memory_bytes, std::nullopt);
  EXPECT_TRUE(tenants[2].compute);
  EXPECT_FALSE(tenants[3].compute);
  EXPECT_EQ(reading[Metric::procs], 3) << "those with a compute context";
}

TEST_F(Tenants, ALongListAndTheOldLists) {
  for (unsigned pid = 1; pid <= 500; ++pid) driver.compute.push_back(process(pid, pid));
  EXPECT_EQ(sample()[Metric::procs], 500);
  calls_.DeviceGetComputeRunningProcesses_v3 = nullptr;
  EXPECT_EQ(sample().why_missing(Metric::procs), Absence::no_symbol);
  EXPECT_EQ(answer_.gpu.tenants, std::nullopt) << "could not look: not an empty list";
  calls_.DeviceGetComputeRunningProcesses = [](nvml::Device, unsigned* count, nvml::ProcessV1* out) {
    return give(driver.old_compute, count, out);
  };
  driver.old_compute = {{77, 1000}, {78, 2000}};
  EXPECT_EQ(sample()[Metric::procs], 2);
  EXPECT_EQ((*answer_.gpu.tenants)[1].memory_bytes, 2000U);
}

TEST_F(Tenants, ListsAreAskedForAtMostOnceASecond) {
  needs_.lists_every = 1s;
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

TEST_F(Tenants, ThoseWhoDrawOnlyWhereWantedOrADisplayIsActive) {
  needs_.all_lists = false;
  driver.graphics = {process(13, 50)};
  EXPECT_TRUE(sample().tenants->empty());
  EXPECT_EQ(driver.graphics_lists + driver.shared_lists, 0U);
  driver.display_active = 1;
  sample(6s);
  EXPECT_EQ(answer_.gpu.display_active, true);
  ASSERT_EQ(answer_.gpu.tenants->size(), 1U);
  EXPECT_TRUE(answer_.gpu.tenants->front().graphics);
  EXPECT_EQ(answer_.gpu[Metric::procs], 0);
}

TEST_F(Tenants, AnMpsServerCountsThroughItsClients) {
  needs_.all_lists = false;
  process_here(20, "nvidia-cuda-mps", "/usr/bin/nvidia-cuda-mps-server");
  process_here(21, "nvidia-cuda-mps", "nvidia-cuda-mps-control");
  process_here(22, "python", "python");
  driver.compute = {process(20, 30 * kMiB)};
  EXPECT_EQ(sample()[Metric::procs], 0);
  EXPECT_TRUE(answer_.gpu.tenants->front().mps_server);
  driver.shared = {process(22, 100 * kMiB)};
  EXPECT_EQ(sample()[Metric::procs], 1);
  EXPECT_EQ(answer_.gpu.tenants->size(), 2U);
  driver.compute = {process(21, 30 * kMiB)};
  EXPECT_FALSE(sample().tenants->front().mps_server) << "the control daemon is not the server";
}

TEST_F(Tenants, ANumberThatNamesNobodyIsNotHere) {
  process_here(22, "python", "python");
  driver.compute = {process(22, 1), process(23, 1)};
  sample();
  EXPECT_TRUE((*answer_.gpu.tenants)[0].here);
  EXPECT_FALSE((*answer_.gpu.tenants)[1].here);
}

TEST_F(Tenants, InAnotherNamespaceACountIsUnknownUnlessTheMemoryIsEmpty) {
  other_namespace();
  EXPECT_EQ(sample().why_missing(Metric::procs), Absence::hidden) << "500 MiB are somebody's";
  EXPECT_TRUE(answer_.gpu.processes_hidden);
  EXPECT_TRUE(answer_.gpu.tenants->empty());
  driver.memory.used = 10 * kMiB;
  EXPECT_EQ(sample()[Metric::procs], 0) << "what the driver reserves is nobody's";
  needs_.memory = false;
  EXPECT_EQ(sample()[Metric::procs], 0) << "asked for that alone";
  EXPECT_EQ(answer_.gpu.why_missing(Metric::mem_used), Absence::not_asked);
  driver.compute = {process(22, kMiB)};
  EXPECT_EQ(sample().why_missing(Metric::procs), Absence::hidden) << "at least one";
  EXPECT_EQ(answer_.gpu.tenants->size(), 1U);
  driver.compute.clear();
  driver.memory_second = driver.memory_first = Return::not_supported;
  EXPECT_EQ(sample().why_missing(Metric::procs), Absence::hidden) << "nothing decides";
}

TEST_F(Tenants, InAnotherNamespaceTheDeviceFileSaysWhetherANumberIsAProcessOfOurs) {
  other_namespace();
  process_here(22, "python", "python");
  process_here(23, "sshd", "sshd");
  tree_.write("dev/nvidia3", "");
  tree_.write("dev/null", "");
  tree_.link("proc/22/fd/5", tree_.at("dev/nvidia3"));
  tree_.link("proc/23/fd/5", tree_.at("dev/null"));
  driver.compute = {process(22, 1), process(23, 1), process(24, 1)};
  sample();
  EXPECT_TRUE((*answer_.gpu.tenants)[0].here);
  EXPECT_FALSE((*answer_.gpu.tenants)[1].here) << "a number of the host's, and of somebody else here";
  EXPECT_FALSE((*answer_.gpu.tenants)[2].here);
}

TEST_F(Tenants, TheFirstNamespaceIsKnownByItsNumber) {
  Root root = room_.root;
  EXPECT_TRUE(first_pid_namespace(root)) << "a simulation that says nothing: the machine does";
  root.proc = tree_.at("nowhere");
  EXPECT_FALSE(first_pid_namespace(root)) << "who cannot tell";
  tree_.link("sim/proc/self/ns/pid", "pid:[4026531836]");
  EXPECT_TRUE(first_pid_namespace(root));
  root.driver = tree_.at("other/proc/driver/nvidia");
  tree_.link("other/proc/self/ns/pid", "pid:[4026531837]");
  EXPECT_FALSE(first_pid_namespace(root));
}

TEST_F(Tenants, UnifiedMemoryIsEstimated) {  // GB10
  tree_.write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:   1 kB\nMemAvailable:    600 kB\n");
  driver.compute = {process(10, 100), process(11, 200)};
  for (const bool zero : {false, true}) {
    driver.memory_second = driver.memory_first = zero ? Return::success : Return::not_supported;
    driver.memory = {};
    needs_.tenants = true;
    const Reading& reading = sample();
    EXPECT_TRUE(reading.memory_estimated);
    EXPECT_EQ(reading[Metric::mem_used], 300);
    EXPECT_EQ(reading[Metric::mem_free], 600 * 1024);
    EXPECT_EQ(reading[Metric::mem_total], 1000 * 1024);
    needs_.tenants = false;
    EXPECT_EQ(sample()[Metric::mem_used], 300) << "listed for the memory alone";
    EXPECT_EQ(answer_.gpu.tenants, std::nullopt);
  }
  driver.compute.push_back(process(12, nvml::kValueNotAvailable));
  EXPECT_EQ(sample().why_missing(Metric::mem_used), Absence::not_supported) << "a sum of what is known is too little";
  driver.compute.pop_back();
  std::filesystem::remove(tree_.at("proc/meminfo"));
  EXPECT_EQ(sample().why_missing(Metric::mem_total), Absence::not_supported);
  EXPECT_FALSE(answer_.gpu.memory_estimated);
}

TEST_F(Tenants, AnOldDriversMemoryDoes) {
  calls_.DeviceGetMemoryInfo_v2 = nullptr;
  EXPECT_EQ(sample()[Metric::mem_used], 1000.0 * kMiB) << "what is reserved is in there";
  const unsigned before = driver.calls;
  calls_ = table();
  driver.memory_second = Return::argument_version_mismatch;
  needs_ = {.power = false, .details = false, .tenants = false};
  EXPECT_EQ(sample()[Metric::mem_used], 1000.0 * kMiB);
  EXPECT_EQ(driver.calls, before + 2) << "the call that works is remembered";
}

}  // namespace
}  // namespace lull
