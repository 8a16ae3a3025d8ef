// All vendors' GPUs in one inventory. The only NVML that can be loaded here is the simulated one.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/fd.h"
#include "sense/card_tree_test.h"
#include "sense/sampler.h"
#include "sense/sim_machine_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

class MixedMachine : public testing::Test {
 protected:
  // As where the kernel driver is loaded, and its library is not the one for it.
  void add_nvidia_without_library() {
    cards.tree.write("proc/driver/nvidia/version", "NVRM version: 535\n");
    cards.tree.write("proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: H100\n");
    cards.tree.write("proc/driver/nvidia/gpus/0000:5e:00.0/information", "Model: H100\n");
    cards.tree.write("no-library.so", "not one");
    library = cards.tree.at("no-library.so");
  }
  void open() {
    clock.advance(1h);
    source = make_all_sources(library, cards.root(), clock);
    state = source->open();
  }
  const Reading& sample(unsigned gpu) {
    (void)source->attach(gpu, clock.now());
    source->sample(gpu, needs, clock.now(), answer);
    return answer.gpu;
  }
  const Device& device(unsigned gpu) { return source->identity(gpu).device; }

  CardTree cards;
  ManualClock clock;
  std::string library;
  std::unique_ptr<Source> source;
  DriverState state;
  Needs needs{.processes = false};
  Answer answer;
};

TEST_F(MixedMachine, GpusOfSeveralVendorsAreCountedEachOnTheirOwn) {
  cards.add_navi(1, "0000:83:00.0");
  cards.add_navi(0, "0000:03:00.0");
  cards.add_card(2, 130, "0000:00:02.0", "0x8086", "i915");
  cards.add_card(3, 131, "0000:3b:00.0", "0x10de", "nvidia");
  open();
  ASSERT_EQ(state.absence, Absence::none);
  ASSERT_EQ(source->count(), 3U);
  for (unsigned i = 0; i < 3; ++i) sample(i);
  EXPECT_EQ(device(0).vendor, Vendor::amd);
  EXPECT_EQ(device(0).pci, "00000000:03:00.0") << "by PCI address";
  EXPECT_EQ(device(1).vendor_index, 1U);
  EXPECT_EQ(device(2).vendor, Vendor::intel);
  EXPECT_EQ(device(2).vendor_index, 0U);
  EXPECT_EQ(source->topology().devices(), 3U);
}

TEST_F(MixedMachine, ADriverThatCannotBeOpenedCostsItsOwnGpusAndTheyAreThereUnknown) {
  cards.add_navi();
  add_nvidia_without_library();
  open();
  ASSERT_EQ(state.absence, Absence::none);
  ASSERT_EQ(source->count(), 3U) << "NVIDIA's kernel driver has two";
  EXPECT_NE(sample(0).device_absence, Absence::none);
  EXPECT_EQ(device(0).vendor, Vendor::nvidia);
  EXPECT_NE(sample(1).why_missing(Metric::util), Absence::none);
  EXPECT_EQ(sample(2)[Metric::util], 0);
  EXPECT_EQ(device(2).vendor, Vendor::amd);
}

TEST_F(MixedMachine, WithNoOtherGpuADriverThatCannotBeOpenedIsTheMachinesTrouble) {
  add_nvidia_without_library();
  open();
  EXPECT_NE(state.absence, Absence::none);
  EXPECT_FALSE(state.detail.empty());
}

TEST_F(MixedMachine, NoNvidiaDriverIsNoTroubleOfTheOthers) {
  cards.add_navi();
  EXPECT_TRUE(any_gpu_may_be_there("", cards.root()));
  open();
  EXPECT_EQ(state.absence, Absence::none);
  EXPECT_EQ(source->count(), 1U);
}

TEST_F(MixedMachine, WhereThereIsNoneTheMessageNamesAll) {
  const std::string before = environment_variable("LULL_NVML").value_or("");
  ::unsetenv("LULL_NVML");  // which tests have for not seeing the machine's own
  EXPECT_FALSE(any_gpu_may_be_there("", cards.root()));
  ::setenv("LULL_NVML", before.c_str(), 1);
  const std::string text = no_gpu_text(cards.root());
  for (const char* vendor : {"NVIDIA", "AMD", "Intel", "Jetson"}) EXPECT_NE(text.find(vendor), std::string::npos);
}

TEST_F(MixedMachine, AJetsonsGpuIsShownOnceAndItsNvmlIsNotAsked) {
  add_nvidia_without_library();
  const std::string gpu = "sys/devices/platform/17000000.ga10b";
  cards.write(gpu, "load", 700);
  cards.tree.link(gpu + "/devfreq/17000000.ga10b/device", "../../../17000000.ga10b");
  cards.tree.link("sys/class/devfreq/17000000.ga10b", "../../devices/platform/17000000.ga10b/devfreq/17000000.ga10b");
  open();
  ASSERT_EQ(source->count(), 1U);
  EXPECT_EQ(sample(0)[Metric::util], 70);
}

// As in a container.
TEST_F(MixedMachine, ZerosOfAJetsonsNvmlAreUnknownWhereItsFilesAreHidden) {
  SimMachine machine({"Orin"});
  machine.plan.gpus[0].gpu.quirks |= sim::kNvmlZeros;
  machine.begin();
  library = SimMachine::library();
  needs.processes = true;
  open();
  ASSERT_EQ(source->count(), 1U);
  EXPECT_EQ(sample(0).device_absence, Absence::not_supported);
  EXPECT_EQ(device(0).name, "Orin (nvgpu)");
  for (const Metric metric : {Metric::util, Metric::mem_used, Metric::power, Metric::procs})
    EXPECT_EQ(sample(0).why_missing(metric), Absence::not_supported) << info(metric).name;
  EXPECT_FALSE(sample(0).processes);
}

TEST_F(MixedMachine, AGpuThatComesLaterAsksForAFreshStart) {
  cards.add_navi();
  open();
  sample(0);
  EXPECT_FALSE(answer.driver_gone);
  cards.add_navi(1, "0000:83:00.0");
  clock.advance(11s);
  sample(0);
  EXPECT_TRUE(answer.driver_gone);
}

// It hangs from the first look at it, before it has told anything.
TEST(SamplerOfCards, AGpuWhoseFirstReadHangsIsShownWithItsVendor) {
  const CardTree cards;
  cards.add_navi();
  const std::string hung = cards.add_navi(1, "0000:83:00.0");
  const HangingFile hangs(cards.tree.at(hung + "/gpu_busy_percent"));
  SamplerOptions options;
  options.root = cards.root();
  options.deadline = 300ms;
  const auto sampler = Sampler::start(options);
  const Snapshot snapshot = sampler->sample();
  ASSERT_EQ(snapshot.readings.size(), 2U);
  EXPECT_EQ(snapshot.readings[0].device_absence, Absence::none);
  EXPECT_EQ(snapshot.readings[1].device_absence, Absence::no_answer);
  const Device& device = snapshot.inventory->devices[1];
  EXPECT_EQ(device.vendor, Vendor::amd);
  EXPECT_EQ(device.pci, "00000000:83:00.0");
}

}  // namespace
}  // namespace lull
