// The sensor against a driver made of plain functions.
#include "sense/nvml/driver_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

TEST_F(NvmlValues, EveryValueWithItsUnit) {
  const Reading& reading = sample();
  EXPECT_EQ(gpu_.device.uuid, "GPU-7");
  EXPECT_EQ(gpu_.device.minor, 3U);
  EXPECT_EQ(reading.device_absence, Absence::none);
  EXPECT_EQ(reading[Metric::util], 40);
  EXPECT_EQ(reading.util_basis, Basis::instant);
  EXPECT_EQ(reading[Metric::mem_util], 7);
  EXPECT_EQ(reading[Metric::mem_used], 30) << "what the driver reserves left out";
  EXPECT_EQ(reading[Metric::mem_free], 60);
  EXPECT_EQ(reading[Metric::mem_total], 100);
  EXPECT_DOUBLE_EQ(reading[Metric::power], 55.5);
  EXPECT_EQ(reading.power_basis, Basis::instant);
  EXPECT_DOUBLE_EQ(reading[Metric::power_limit], 300);
  EXPECT_EQ(reading.energy_joules, 1.0);
  EXPECT_EQ(reading[Metric::temp], 61);
  EXPECT_EQ(reading[Metric::clock], 1500);
  EXPECT_EQ(reading.mem_clock_mhz, 900);
  EXPECT_EQ(reading[Metric::fan], 30);
  EXPECT_EQ(reading.why_missing(Metric::pstate), Absence::implausible) << "32 is NVML's word for unknown";
  EXPECT_EQ(reading.throttle_reasons, 4U) << "the old name of the call serves as well";
  EXPECT_EQ(reading[Metric::procs], 0);
  EXPECT_EQ(reading.why_missing(Metric::pcie), Absence::not_asked);
  EXPECT_EQ(reading.mig_mode, std::nullopt);
  EXPECT_EQ(reading.display_active, false);
  EXPECT_EQ(reading.attached_for, 0s);
  EXPECT_FALSE(reading.memory_estimated || reading.processes_hidden || reading.asleep);
  EXPECT_EQ(sample(90s).attached_for, 90s);
}

TEST_F(NvmlValues, OnlyWhatIsWantedIsAskedFor) {
  sample();
  const unsigned before = driver.calls;
  needs_ = {.memory = false, .power = false, .details = false, .processes = false, .pcie = false, .once = true};
  const Reading& reading = sample();
  EXPECT_EQ(driver.calls, before + 1) << "utilisation, and nothing else";
  EXPECT_EQ(reading.why_missing(Metric::power), Absence::not_asked);
  EXPECT_EQ(reading.processes, std::nullopt);
  EXPECT_EQ(reading.device_absence, Absence::none);
}

TEST_F(NvmlValues, AValueThatFailsCostsOnlyItself) {
  driver.fan = Return::not_supported;
  driver.util = Return::not_supported;
  calls_.DeviceGetTemperature = nullptr;
  const Reading& reading = sample();
  EXPECT_EQ(reading.why_missing(Metric::fan), Absence::not_supported);
  EXPECT_EQ(reading.why_missing(Metric::util), Absence::not_supported);
  EXPECT_EQ(reading.why_missing(Metric::mem_util), Absence::not_supported);
  EXPECT_EQ(reading.why_missing(Metric::temp), Absence::no_symbol);
  EXPECT_EQ(reading.util_basis, Basis::unknown);
  EXPECT_EQ(reading[Metric::clock], 1500);
  EXPECT_EQ(reading.device_absence, Absence::none);
}

TEST_F(NvmlValues, NonsenseIsUnknown) {
  driver.util_percent = 37100;
  EXPECT_EQ(sample().why_missing(Metric::util), Absence::implausible);
  driver.util_percent = 40;
  driver.mem_util_percent = 37100;
  const Reading& memory = sample();
  EXPECT_EQ(memory[Metric::util], 40);
  EXPECT_EQ(memory.why_missing(Metric::mem_util), Absence::implausible);
  driver.power_limit = driver.milliwatts = driver.celsius = driver.pstate = 0xFFFFFFFF;
  driver.energy = Return::not_supported;
  driver.memory.total = driver.memory.free = ~0ULL;
  const Reading& reading = sample();
  for (const Metric metric : {Metric::power, Metric::power_limit, Metric::temp, Metric::pstate, Metric::mem_used,
                              Metric::mem_free, Metric::mem_total})
    EXPECT_EQ(reading.why_missing(metric), Absence::implausible) << info(metric).name;
  driver.memory = {0, 100, 0, 100, 101};
  EXPECT_EQ(sample().why_missing(Metric::mem_used), Absence::implausible) << "more than there is";
}

TEST_F(NvmlValues, AnEmptyLibraryIsNoGpuButNoCrash) {
  calls_ = NvmlCalls();
  EXPECT_EQ(sample().device_absence, Absence::no_symbol);
}

TEST_F(NvmlValues, ALostGpuIsLostAsAWholeAndComesBack) {
  sample();
  for (const auto& [code, absence] : std::map<Return, Absence>{{Return::gpu_is_lost, Absence::lost},
                                                               {Return::reset_required, Absence::reset_required},
                                                               {Return::unknown, Absence::failed}}) {
    driver.everything = code;
    EXPECT_EQ(sample().device_absence, absence);
    EXPECT_EQ(answer_.gpu.why_missing(Metric::util), absence);
    EXPECT_EQ(answer_.gpu.processes, std::nullopt);
    EXPECT_FALSE(answer_.driver_gone);
    driver.everything = Return::success;
    EXPECT_EQ(sample()[Metric::util], 40);
    EXPECT_EQ(answer_.gpu.device_absence, Absence::none);
  }
}

TEST_F(NvmlValues, WhatFailsBetweenTwoSamplesSaysSoAtOnce) {
  driver.samples = Return::not_supported;
  sample();
  look(700ms);
  driver.util = Return::no_permission;
  EXPECT_EQ(sample(300ms).why_missing(Metric::util), Absence::no_permission) << "not that most of it was covered";
}

TEST_F(NvmlValues, WhatIsRememberedDoesNotMakeAGpuThatFailsAlive) {
  needs_.lists_every = 1s;
  sample();
  driver.everything = Return::unknown;
  EXPECT_EQ(sample(100ms).device_absence, Absence::failed);
  EXPECT_EQ(answer_.gpu.processes, std::nullopt);
}

TEST_F(NvmlValues, LostBeforeAnythingWasReadOfIt) {
  driver.everything = Return::gpu_is_lost;
  EXPECT_EQ(sample().device_absence, Absence::lost);
  EXPECT_EQ(gpu_.device.absence, Absence::lost);
  EXPECT_EQ(gpu_.device.uuid, "");
  driver.everything = Return::success;
  EXPECT_EQ(sample().device_absence, Absence::none);
  EXPECT_EQ(gpu_.device.uuid, "GPU-7");
  EXPECT_EQ(gpu_.device.absence, Absence::none);
}

TEST_F(NvmlValues, ADriverThatIsGoneIsToldApart) {
  sample();
  for (const Return code : {Return::uninitialized, Return::driver_not_loaded, Return::lib_rm_version_mismatch}) {
    driver.everything = code;
    sample();
    EXPECT_TRUE(answer_.driver_gone);
  }
}

// ---- utilisation between samples

TEST_F(NvmlValues, UtilIsTheMeanOfTheRingFromTheSecondSampleOn) {
  pass(2s, 100);
  EXPECT_EQ(sample(0s).util_basis, Basis::instant) << "there is no previous sample";
  pass(2s, 90);
  pass(2s, 0);
  const Reading& second = sample(0s);
  EXPECT_EQ(second.util_basis, Basis::mean);
  EXPECT_NEAR(second[Metric::util], 45, 0.1);
  EXPECT_NEAR(second.util_coverage, 1, 1e-6);
}

TEST_F(NvmlValues, ARingThatRanOverLeavesTimeThatNobodySaw) {
  pass(2s, 0);
  sample(0s);
  clock_.at += 50s;
  driver.buffer.clear();
  driver.util_percent = 0;
  pass(10s, 0);
  const Reading& reading = sample(0s);
  EXPECT_EQ(reading.why_missing(Metric::util), Absence::not_covered) << "the card may have worked for 50 s";
  EXPECT_NEAR(reading.util_coverage, 10.0 / 60, 0.01);
  EXPECT_EQ(reading.device_absence, Absence::none);
  pass(5s, 0);
  EXPECT_EQ(sample(0s)[Metric::util], 0);
}

TEST_F(NvmlValues, LooksKeepALongTimeCovered) {
  needs_.power = false;
  pass(6s, 0);
  sample(0s);
  EXPECT_EQ(look_within(gpu_), 5s);
  for (int i = 0; i < 12; ++i) {
    pass(5s, i == 3 ? 100 : 0);
    look(0s);
    if (driver.buffer.size() > 80) driver.buffer.erase(driver.buffer.begin(), driver.buffer.end() - 72);
  }
  const Reading& reading = sample(0s);
  EXPECT_EQ(reading.util_basis, Basis::mean);
  EXPECT_NEAR(reading[Metric::util], 100.0 / 12, 0.3);
}

TEST_F(NvmlValues, WithoutARingMomentsAreLookedAtOften) {
  needs_.power = false;
  driver.samples = Return::not_supported;
  sample();
  EXPECT_LE(look_within(gpu_), 200ms);
  EXPECT_EQ(sample()[Metric::util], 40);
  EXPECT_EQ(answer_.gpu.util_basis, Basis::instant) << "one value for the whole second";
  for (int i = 0; i < 10; ++i) {
    driver.util_percent = i == 4 ? 50 : 0;
    look(500ms);
  }
  EXPECT_NEAR(sample(0s)[Metric::util], 5, 0.01);
  EXPECT_EQ(answer_.gpu.util_basis, Basis::moments);
  driver.util_percent = 0;
  EXPECT_EQ(sample(5s).why_missing(Metric::util), Absence::not_covered) << "a moment in 5 s says nothing of them";
  EXPECT_NEAR(answer_.gpu.util_coverage, 0.3, 0.01);
}

TEST_F(NvmlValues, ADryRingSaysNothingAndMomentsDecide) {
  needs_.power = false;
  sample();  // not found
  EXPECT_EQ(sample()[Metric::util], 40) << "not 0";
  driver.util_percent = 0;
  EXPECT_LE(look_within(gpu_), 200ms);
  sample(2s);
  for (int i = 0; i < 40; ++i) look(150ms);
  EXPECT_EQ(sample(0s)[Metric::util], 0) << "and yet an idle card is found";
  EXPECT_EQ(answer_.gpu.util_basis, Basis::moments);
}

TEST_F(NvmlValues, ARingThatRanDryOnceIsNotReliedOnAgain) {
  needs_.power = false;
  pass(6s, 0);
  sample(0s);
  EXPECT_EQ(look_within(gpu_), 5s);
  sample(5s);
  EXPECT_LE(look_within(gpu_), 200ms) << "dry";
  pass(6s, 0);
  sample(0s);
  EXPECT_LE(look_within(gpu_), 200ms);
}

TEST_F(NvmlValues, GarbageInTheRingIsTimeThatItDidNotMeasure) {
  driver.util_percent = 90;
  pass(1s, 37100);
  sample(0s);
  for (int i = 0; i < 10; ++i) {
    pass(1s, 37100);
    if (i == 5) driver.buffer.back().second = 0;
    look(0s);
  }
  const Reading& reading = sample(0s);
  EXPECT_GT(reading[Metric::util], 85) << "one 0 among garbage does not outweigh what the moments say";
  EXPECT_EQ(reading.util_basis, Basis::moments);
}

TEST_F(NvmlValues, ARingStampedSince1970) {
  needs_.power = false;
  const auto shift = std::chrono::duration_cast<std::chrono::microseconds>(clock_.since_1970).count();
  const auto stamp_by_wall = [&] {
    for (auto& [at, percent] : driver.buffer)
      if (at < static_cast<unsigned long long>(shift)) at += static_cast<unsigned long long>(shift);
  };
  pass(6s, 0);
  stamp_by_wall();
  sample(0s);
  EXPECT_EQ(look_within(gpu_), 5s);
  pass(4s, 60);
  stamp_by_wall();
  EXPECT_NEAR(sample(0s)[Metric::util], 60, 0.1);
  EXPECT_EQ(answer_.gpu.util_basis, Basis::mean);
}

TEST_F(NvmlValues, ARingThatFitsNoClockIsNotUsed) {
  pass(6s, 100);
  for (auto& [at, percent] : driver.buffer) at += 3'600'000'000ULL;
  driver.util_percent = 3;
  sample(0s);
  EXPECT_EQ(sample()[Metric::util], 3);
  EXPECT_EQ(answer_.gpu.util_basis, Basis::instant);
}

TEST_F(NvmlValues, ARingWithoutRatesIsStillUtil) {
  driver.util = Return::not_supported;
  pass(6s, 10);
  EXPECT_EQ(sample(0s).why_missing(Metric::util), Absence::not_supported);
  pass(1s, 10);
  EXPECT_NEAR(sample(0s)[Metric::util], 10, 0.01);
  EXPECT_EQ(sample(2s).why_missing(Metric::util), Absence::not_supported) << "dry, and no rate: unknown, not the last";
}

// ---- power between samples

TEST_F(NvmlValues, PowerIsTheMeanOfTheEnergyCounter) {
  sample();
  driver.millijoules += 60'000;
  const Reading& second = sample();
  EXPECT_EQ(second.power_basis, Basis::mean);
  EXPECT_NEAR(second[Metric::power], 60, 1e-9);
  driver.millijoules = 5;  // the driver was loaded anew
  EXPECT_EQ(sample().power_basis, Basis::instant);
  EXPECT_DOUBLE_EQ(answer_.gpu[Metric::power], 55.5);
  driver.energy = Return::not_supported;
  EXPECT_EQ(sample().power_basis, Basis::instant);
  EXPECT_EQ(answer_.gpu.energy_joules, std::nullopt);
}

TEST_F(NvmlValues, WithoutACounterPowerIsTheMeanOfMoments) {
  driver.energy = Return::not_supported;
  driver.samples = Return::success;
  sample();
  EXPECT_LE(look_within(gpu_), 600ms);
  for (int i = 0; i < 10; ++i) {
    driver.milliwatts = i < 5 ? 100'000 : 200'000;
    look(500ms);
  }
  EXPECT_NEAR(sample(0s)[Metric::power], 150, 0.01);
  EXPECT_EQ(answer_.gpu.power_basis, Basis::moments);
  EXPECT_EQ(sample(10s).why_missing(Metric::power), Absence::not_covered);
}

TEST_F(NvmlValues, TheCounterOfAWholeModuleIsNotTheGpus) {  // Grace Hopper
  driver.milliwatts = 90'000;
  driver.average_milliwatts = 91'000;
  driver.average = Return::success;
  sample();
  for (int i = 0; i < 20; ++i) {
    driver.millijoules += 250'000 / 2;
    look(500ms);
    EXPECT_LT(sample(0s)[Metric::power], 100) << i;
  }
  EXPECT_EQ(answer_.gpu[Metric::power], 91);
  EXPECT_EQ(driver.average_scope, nvml::kPowerScopeGpu);
  EXPECT_EQ(answer_.gpu.energy_joules, std::nullopt);
  const unsigned long long counted = driver.millijoules;
  driver.millijoules = counted + 90;  // as if it were right all of a sudden
  driver.average = Return::not_supported;
  EXPECT_NEAR(sample()[Metric::power], 90, 1e-9) << "the moment, where the field is not there";
}

// Power that swings in step with our looks must not make the card's own counter suspect.
TEST_F(NvmlValues, ACounterWithoutAModuleIsTrustedAtOnce) {
  driver.milliwatts = 70'000;  // each time we look
  sample();
  for (int i = 0; i < 12; ++i) {
    driver.millijoules += 259'000 / 2;
    look(500ms);
    EXPECT_NEAR(sample(0s)[Metric::power], 259, 1) << i;
    EXPECT_EQ(answer_.gpu.power_basis, Basis::mean);
  }
}

TEST_F(NvmlValues, ACounterThatAgreesIsTrustedAndSparesTheLooks) {
  driver.samples = Return::not_supported;
  driver.util = Return::not_supported;
  driver.milliwatts = 300'000;
  driver.average_milliwatts = 300'000;
  driver.average = Return::success;  // there is a module around it
  sample();
  EXPECT_LE(look_within(gpu_), 600ms);
  for (int i = 0; i < 6; ++i) {
    driver.millijoules += 300'000 / 2;
    look(500ms);
  }
  EXPECT_EQ(look_within(gpu_), kNoLook);
  driver.milliwatts = 0;
  driver.millijoules += 3'000'000;
  sample(0s);
  driver.millijoules += 3'000'000;
  EXPECT_NEAR(sample(60s)[Metric::power], 50, 1e-9);
  EXPECT_EQ(answer_.gpu.power_basis, Basis::mean);
}

TEST_F(NvmlValues, MigDevicesAreDevicesOfTheirOwn) {
  driver.mig_mode = Return::success;
  driver.mig_count = 2;
  driver.compute = {process(10, 100, 7)};
  const Reading& reading = sample();
  EXPECT_EQ(reading.mig_mode, true);
  ASSERT_EQ(gpu_.parts.size(), 2U);
  EXPECT_EQ(gpu_.parts[1].device.uuid, "MIG-1");
  EXPECT_EQ(gpu_.parts[1].device.label(), "0:1");
  EXPECT_EQ(gpu_.parts[1].device.gpu_instance, 8U);
  ASSERT_EQ(answer_.parts.size(), 2U);
  EXPECT_EQ(answer_.parts[1].why_missing(Metric::util), Absence::not_supported);
  EXPECT_EQ(answer_.parts[1].why_missing(Metric::power), Absence::not_supported);
  EXPECT_EQ(answer_.parts[1][Metric::mem_used], 30);
  EXPECT_EQ(answer_.parts[1].device_absence, Absence::none);
  EXPECT_EQ((*reading.processes)[0].gpu_instance, 7U);
}

TEST_F(NvmlValues, MigSwitchedOnWhileWeRunIsSeen) {
  driver.mig_mode = Return::success;
  driver.mig_current = nvml::kMigDisabled;
  EXPECT_EQ(sample().mig_mode, false);
  const unsigned changes = gpu_.changes;
  driver.mig_current = nvml::kMigEnabled;
  driver.mig_count = 2;
  sample(6s);
  EXPECT_EQ(answer_.gpu.mig_mode, true);
  EXPECT_EQ(answer_.parts.size(), 2U);
  EXPECT_GT(gpu_.changes, changes);
  driver.mig_current = nvml::kMigDisabled;
  sample(6s);
  EXPECT_EQ(answer_.gpu.mig_mode, false);
  EXPECT_TRUE(answer_.parts.empty());
}

TEST_F(NvmlValues, AMigDeviceThatWasDestroyedIsLookedForAgain) {
  driver.mig_mode = Return::success;
  driver.mig_count = 2;
  sample();
  const unsigned changes = gpu_.changes;
  driver.mig_count = 1;
  driver.mig_memory = Return::invalid_argument;  // what a void handle gets
  sample();
  driver.mig_memory = Return::success;
  sample();
  EXPECT_EQ(gpu_.parts.size(), 1U);
  EXPECT_EQ(answer_.parts.size(), 1U);
  EXPECT_GT(gpu_.changes, changes);
}

}  // namespace
}  // namespace lull
