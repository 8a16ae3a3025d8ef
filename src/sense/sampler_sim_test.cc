// The sampler on simulated GPUs: every value, every fault, a driver that goes and
// comes (hangs: sampler_hang_test.cc). The simulated library is loaded as the real one would be.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "sense/sampler.h"
#include "sense/sim_machine_test.h"

namespace lull {
namespace {

using nvml::Return;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kGiB = 1024.0 * 1024 * 1024;

TEST(SamplerSim, ReadsWhatIsThere) {
  SimMachine machine({"H100", "T4"});
  machine.begin();
  machine.set(0, sim::Metric::util, 35);
  machine.set(0, sim::Metric::mem_util, 12);
  machine.set(0, sim::Metric::power, 180);
  machine.set(0, sim::Metric::mem_used, 8 * kGiB);
  machine.set(0, sim::Metric::temp, 60);
  machine.set(0, sim::Metric::clock, 1700);
  machine.set(0, sim::Metric::throttle, 0);
  SamplerOptions options = machine.options();
  options.pcie = true;
  const auto sampler = Sampler::start(options);
  const Snapshot snapshot = sampler->sample();

  EXPECT_EQ(snapshot.driver.absence, Absence::none) << snapshot.driver.detail;
  ASSERT_EQ(snapshot.inventory->devices.size(), 2U);
  EXPECT_EQ(snapshot.inventory->library, SimMachine::library());
  EXPECT_FALSE(snapshot.inventory->driver_version.empty());
  const Device& card = snapshot.inventory->devices[0];
  EXPECT_EQ(card.uuid, machine.plan.gpus[0].gpu.uuid);
  EXPECT_EQ(card.name, machine.plan.gpus[0].gpu.name);
  EXPECT_EQ(card.minor, machine.plan.gpus[0].gpu.minor);
  EXPECT_EQ(card.pci.size(), std::string("00000000:3B:00.0").size()) << card.pci;
  EXPECT_GT(card.speed, snapshot.inventory->devices[1].speed);

  ASSERT_EQ(snapshot.readings.size(), 2U);
  const Reading& reading = snapshot.readings[0];
  EXPECT_EQ(reading[Metric::util], 35);
  EXPECT_EQ(reading.util_basis, Basis::instant);
  EXPECT_EQ(reading[Metric::mem_util], 12);
  EXPECT_DOUBLE_EQ(reading[Metric::power], 180);
  EXPECT_GT(reading[Metric::power_limit], 180);
  EXPECT_EQ(reading[Metric::mem_used], 8 * kGiB);
  EXPECT_EQ(reading[Metric::mem_used] + reading[Metric::mem_free],
            reading[Metric::mem_total] - static_cast<double>(machine.plan.gpus[0].gpu.memory_reserved));
  EXPECT_EQ(reading[Metric::temp], 60);
  EXPECT_EQ(reading[Metric::clock], 1700);
  EXPECT_EQ(reading.throttle_reasons, 0U);
  EXPECT_GE(reading[Metric::pstate], 0);
  EXPECT_GE(reading[Metric::pcie], 0);
  EXPECT_EQ(reading[Metric::procs], 0);
  EXPECT_TRUE(reading.energy_joules);
  EXPECT_TRUE(reading.mem_clock_mhz);
  EXPECT_EQ(snapshot.readings[1].why_missing(Metric::fan), Absence::not_supported) << "a T4 has no fan";
  EXPECT_LT(now() - snapshot.at, seconds(10));
}

TEST(SamplerSim, UtilAndPowerAreMeansSinceThePreviousSample) {
  SimMachine machine({"H100"});
  // Busy for half of every second. What the moment shows is 0 or 100.
  machine.plan.gpus[0].keyframes[static_cast<std::size_t>(sim::Metric::util)] = {{.at_ns = 0, .value = 100},
                                                                                 {.at_ns = 500'000'000, .value = 0}};
  machine.plan.gpus[0].repeat_ns[static_cast<std::size_t>(sim::Metric::util)] = 1'000'000'000;
  machine.plan.gpus[0].keyframes[static_cast<std::size_t>(sim::Metric::power)] = {{.at_ns = 0, .value = 600},
                                                                                  {.at_ns = 500'000'000, .value = 100}};
  machine.plan.gpus[0].repeat_ns[static_cast<std::size_t>(sim::Metric::power)] = 1'000'000'000;
  machine.begin();
  sim::Load load;
  load.step_count = 1;
  const auto holder = SimMachine::must(machine.writer().hold(load));  // held: its buffer never runs dry
  const auto sampler = Sampler::start(machine.options());
  sampler->sample();
  // Some whole waves between two samples, unless this machine stood still meanwhile: then again. Whoever knows moments
  // alone never sees anything between 0 and 100.
  const Instant limit = now() + seconds(60);
  Snapshot snapshot;
  do {
    std::this_thread::sleep_for(seconds(2));
    snapshot = sampler->sample();
  } while (std::abs(snapshot.readings.at(0)[Metric::util] - 50) > 10 && now() < limit);
  ASSERT_EQ(snapshot.readings.size(), 1U);
  EXPECT_EQ(snapshot.readings[0].util_basis, Basis::mean);
  EXPECT_NEAR(snapshot.readings[0][Metric::util], 50, 10);
  EXPECT_GT(snapshot.readings[0].util_coverage, 0.8);
  // By the energy counter, or by many moments while that is not proven to be the card's own.
  EXPECT_TRUE(snapshot.readings[0].power_basis == Basis::mean || snapshot.readings[0].power_basis == Basis::moments);
  EXPECT_NEAR(snapshot.readings[0][Metric::power], 350, 200) << "the moment shows 100 or 600";
}

TEST(SamplerSim, WithoutBufferAndCounterTheMomentHasToDo) {
  SimMachine machine({"H100"});
  machine.plan.gpus[0].gpu.sample_buffer = 0;
  machine.plan.gpus[0].gpu.energy_counter = 0;
  machine.begin();
  machine.set(0, sim::Metric::util, 70);
  const auto sampler = Sampler::start(machine.options());
  const auto by_moments = [](const Snapshot& s) { return s.readings.at(0).util_basis == Basis::moments; };
  const Snapshot snapshot = sample_until(*sampler, by_moments, milliseconds(300));  // time for some looks in between
  EXPECT_EQ(snapshot.readings[0].util_basis, Basis::moments);
  EXPECT_NEAR(snapshot.readings[0][Metric::util], 70, 1e-6);
  EXPECT_NE(snapshot.readings[0].power_basis, Basis::mean);
  EXPECT_EQ(snapshot.readings[0].energy_joules, std::nullopt);
}

TEST(SamplerSim, ProcessesAreSeenAndJoined) {
  SimMachine machine({"H100", "H100"});
  machine.begin();
  sim::Load load;
  load.gpu = 1;
  load.step_count = 1;
  load.steps[0].memory = static_cast<std::uint64_t>(2 * kGiB);
  const auto holder = SimMachine::must(machine.writer().hold(load));
  const TestTree tree;
  for (const char* name : {"dev/nvidia0", "dev/nvidia1"}) tree.write(name, "");
  const Fd file(::open(tree.at("dev/nvidia1").c_str(), O_RDWR | O_CLOEXEC));
  SamplerOptions options = machine.options();
  options.process_info = true;
  options.root.dev = tree.at("dev");
  const auto sampler = Sampler::start(options);
  const Snapshot snapshot = sampler->sample();
  ASSERT_EQ(snapshot.readings.size(), 2U);
  EXPECT_TRUE(snapshot.readings[0].processes->empty());
  ASSERT_EQ(snapshot.readings[1].processes->size(), 1U);
  const GpuProcess& process = snapshot.readings[1].processes->front();
  EXPECT_EQ(process.pid, ::getpid());
  ASSERT_NE(process.info, nullptr);
  EXPECT_TRUE(process.compute);
  EXPECT_EQ(process.proof, Proof::proven);
  EXPECT_EQ(process.start_ticks, process.info->start_ticks);
  EXPECT_EQ(process.memory_bytes, static_cast<std::uint64_t>(2 * kGiB));
  EXPECT_EQ(snapshot.readings[1][Metric::procs], 1);
  EXPECT_EQ(process.info->parent, ::getppid());
}

TEST(SamplerSim, MigDevicesFollowTheirGpu) {
  SimMachine machine({"H100", "H100"});
  ASSERT_TRUE(sim::cut(machine.plan.gpus[0].gpu, 0, {"3g.40gb", "1g.10gb"}));
  machine.begin();
  const auto sampler = Sampler::start(machine.options());
  const Snapshot snapshot = sampler->sample();
  const auto& devices = snapshot.inventory->devices;
  ASSERT_EQ(devices.size(), 4U);
  EXPECT_EQ(devices[0].kind, DeviceKind::gpu);
  EXPECT_EQ(devices[1].label(), "0:0");
  EXPECT_EQ(devices[2].label(), "0:1");
  EXPECT_TRUE(devices[1].uuid.starts_with("MIG-")) << devices[1].uuid;
  EXPECT_TRUE(devices[1].gpu_instance);
  EXPECT_EQ(devices[3].label(), "1");
  EXPECT_EQ(snapshot.readings[0].mig_mode, true);
  EXPECT_EQ(snapshot.readings[3].mig_mode, false);
  EXPECT_EQ(snapshot.readings[1][Metric::util], 0) << "by the counters of its instance";
  EXPECT_GT(snapshot.readings[1][Metric::mem_total], 30 * kGiB);
  EXPECT_LT(snapshot.readings[2][Metric::mem_total], 20 * kGiB);
}

TEST(SamplerSim, OneGpuThatFailsCostsOnlyItselfAndComesBack) {
  SimMachine machine({"H100", "H100", "H100"});
  machine.begin();
  const auto sampler = Sampler::start(machine.options());
  ASSERT_TRUE(all_known(sampler->sample()));
  const std::pair<Return, Absence> faults[] = {{Return::gpu_is_lost, Absence::lost},
                                               {Return::unknown, Absence::failed}};
  for (const auto& [code, absence] : faults) {
    machine.fault(1, code);
    const Snapshot snapshot = sampler->sample();
    ASSERT_EQ(snapshot.readings.size(), 3U);
    EXPECT_EQ(snapshot.driver.absence, Absence::none);
    EXPECT_EQ(snapshot.readings[0].device_absence, Absence::none);
    EXPECT_EQ(snapshot.readings[1].device_absence, absence);
    EXPECT_EQ(snapshot.readings[1].why_missing(Metric::util), absence);
    EXPECT_EQ(snapshot.readings[2].device_absence, Absence::none);
    machine.heal();
    EXPECT_TRUE(all_known(sampler->sample()));
  }
}

TEST(SamplerSim, AGpuThatIsLostFromTheStartHasARow) {
  SimMachine machine({"H100", "H100", "H100"});
  machine.begin();
  machine.fault(1, Return::gpu_is_lost);
  const auto sampler = Sampler::start(machine.options());
  const Snapshot snapshot = sampler->sample();
  ASSERT_EQ(snapshot.inventory->devices.size(), 3U);
  EXPECT_EQ(snapshot.inventory->devices[1].index, 1U);
  EXPECT_EQ(snapshot.inventory->devices[1].absence, Absence::lost);
  EXPECT_EQ(snapshot.readings[1].device_absence, Absence::lost);
  EXPECT_EQ(snapshot.readings[2].device_absence, Absence::none);
  machine.heal();
  const Snapshot healed = sampler->sample();
  EXPECT_TRUE(all_known(healed));
  EXPECT_EQ(healed.inventory->devices[1].uuid, machine.plan.gpus[1].gpu.uuid);
  EXPECT_NE(healed.inventory, snapshot.inventory) << "who looks at the pointer sees that it changed";
}

TEST(SamplerSim, WithoutUtilisationTheRestIsThere) {
  SimMachine machine({"H100", "H100"});
  machine.begin();
  machine.set(1, sim::Metric::util, 55);
  machine.no_util(0);
  const auto sampler = Sampler::start(machine.options());
  const Snapshot snapshot = sampler->sample();
  EXPECT_EQ(snapshot.readings[0].why_missing(Metric::util), Absence::not_supported);
  EXPECT_TRUE(snapshot.readings[0][Metric::util] != snapshot.readings[0][Metric::util]) << "unknown is not a number";
  EXPECT_EQ(snapshot.readings[0].device_absence, Absence::none);
  EXPECT_GT(snapshot.readings[0][Metric::power], 0);
  EXPECT_EQ(snapshot.readings[1][Metric::util], 55);
  const Snapshot later =
      sample_until(*sampler, [](const Snapshot& s) { return s.readings.at(1).util_basis == Basis::mean; });
  ASSERT_EQ(later.readings[1].util_basis, Basis::mean) << "the buffer has something";
  EXPECT_EQ(later.readings[0].why_missing(Metric::util), Absence::not_supported)
      << "and not by way of the buffer either";
}

TEST(SamplerSim, OneFunctionThatFailsCostsOneValue) {
  SimMachine machine({"H100"});
  machine.begin();
  machine.fault(0, Return::unknown, {}, "nvmlDeviceGetTemperature");
  const auto sampler = Sampler::start(machine.options());
  const Snapshot snapshot = sampler->sample();
  EXPECT_EQ(snapshot.readings[0].why_missing(Metric::temp), Absence::failed);
  EXPECT_EQ(snapshot.readings[0].why_missing(Metric::util), Absence::none);
}

TEST(SamplerSim, NoDriverAndMismatchAreSaidAndTheDriverIsFoundWhenItComes) {
  for (const auto& [code, absence] : {std::pair{Return::driver_not_loaded, Absence::no_driver},
                                      std::pair{Return::lib_rm_version_mismatch, Absence::mismatch}}) {
    SimMachine machine({"H100", "H100"});
    machine.begin();
    machine.fault(sim::kWholeDriver, code);
    const auto sampler = Sampler::start(machine.options());
    const Snapshot snapshot = sampler->sample();
    EXPECT_EQ(snapshot.driver.absence, absence);
    EXPECT_NE(snapshot.driver.detail.find(std::string(to_string(absence))), std::string::npos)
        << snapshot.driver.detail;
    EXPECT_TRUE(snapshot.readings.empty());
    machine.heal();
    EXPECT_TRUE(all_known(sample_until(*sampler, all_known)));
  }
}

TEST(SamplerSim, ADriverThatIsUnloadedAndLoadedAgainComesBackByItself) {
  SimMachine machine({"H100", "T4"});
  machine.begin();
  const auto sampler = Sampler::start(machine.options());
  const Snapshot before = sampler->sample();
  ASSERT_TRUE(all_known(before));
  machine.fault(sim::kWholeDriver, Return::driver_not_loaded);
  const Snapshot without = sampler->sample();
  EXPECT_EQ(without.driver.absence, Absence::no_driver);
  ASSERT_EQ(without.inventory->devices, before.inventory->devices) << "we still know which GPUs we watch";
  ASSERT_EQ(without.readings.size(), 2U);
  for (const Reading& reading : without.readings) {
    EXPECT_EQ(reading.device_absence, Absence::no_driver);
    EXPECT_EQ(reading.why_missing(Metric::util), Absence::no_driver);
  }
  machine.heal();
  const Snapshot after = sample_until(*sampler, all_known);
  EXPECT_TRUE(all_known(after));
  EXPECT_EQ(after.inventory->devices, before.inventory->devices);
  EXPECT_EQ(after.readings[0].power_basis, Basis::instant) << "what was counted before the reload is void";
}

TEST(SamplerSim, ADriverReloadedBetweenTwoSamplesIsHardlyNoticed) {
  SimMachine machine({"H100"});
  machine.begin();
  const auto sampler = Sampler::start(machine.options());
  ASSERT_TRUE(all_known(sampler->sample()));
  std::this_thread::sleep_for(milliseconds(1100));  // not just after the start
  machine.fault(sim::kWholeDriver, Return::driver_not_loaded);
  machine.heal();
  EXPECT_TRUE(all_known(sampler->sample()));
}

TEST(SamplerSim, ManyStartsAndStopsLeaveNothingOpen) {
  SimMachine machine({"H100", "H100"});
  machine.begin();
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto bare = open_files();
  for (int cycle = 0; cycle < 100; ++cycle) ASSERT_TRUE(all_known(Sampler::start(machine.options())->sample()));
  EXPECT_EQ(open_files(), bare);
  EXPECT_TRUE(sensors_of_ours().empty());
}

TEST(SamplerSim, SixtyFourGpus) {
  SimMachine machine(std::vector<std::string>(64, "A100"));
  machine.begin();
  machine.set(63, sim::Metric::util, 77);
  const auto sampler = Sampler::start(machine.options());
  const Snapshot snapshot = sampler->sample();
  ASSERT_EQ(snapshot.readings.size(), 64U);
  EXPECT_TRUE(all_known(snapshot));
  EXPECT_EQ(snapshot.readings[63][Metric::util], 77);
}

}  // namespace
}  // namespace lull
