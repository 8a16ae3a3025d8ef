// The sampler when a simulated driver does not answer: nobody waits for it, and nothing old is shown.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "base/text.h"
#include "sense/sampler.h"
#include "sense/sim_machine_test.h"
#include "sense/wire.h"

namespace lull {
namespace {

using nvml::Return;
using std::chrono::milliseconds;
using std::chrono::seconds;

SamplerOptions impatient(const SimMachine& machine) {
  SamplerOptions options = machine.options();
  options.deadline = milliseconds(2500);  // time enough for those who do not hang, on any machine
  options.init_deadline = milliseconds(2500);
  return options;
}

TEST(SamplerHang, AGpuThatHangsCostsOnlyItself) {
  SimMachine machine({"H100", "H100", "H100"});
  machine.begin();
  machine.set(2, sim::Metric::util, 66);
  const auto sampler = Sampler::start(impatient(machine));
  ASSERT_TRUE(all_known(sampler->sample()));
  machine.fault(1, Return::success, seconds(60));
  Duration last{};
  for (int i = 0; i < 3; ++i) {
    const Instant began = now();
    const Snapshot snapshot = sampler->sample();
    last = snapshot.readings.at(1).unanswered;
    EXPECT_LT(now() - began, seconds(20));
    ASSERT_EQ(snapshot.readings.size(), 3U);
    EXPECT_EQ(snapshot.driver.absence, Absence::none);
    EXPECT_EQ(snapshot.readings[0].device_absence, Absence::none);
    EXPECT_EQ(snapshot.readings[1].device_absence, Absence::no_answer);
    EXPECT_EQ(snapshot.readings[1].why_missing(Metric::util), Absence::no_answer);
    EXPECT_GT(snapshot.readings[1].unanswered, Duration::zero()) << "the call may have begun late";
    EXPECT_EQ(snapshot.readings[2].device_absence, Absence::none);
    EXPECT_LE(threads_of_sensors(), 1 + snapshot.readings.size()) << "one thread a GPU, however often we look";
  }
  // From now on it is known to hang: others are not kept waiting for it.
  const Instant began = now();
  const Snapshot quick = sampler->sample();
  EXPECT_LT(now() - began, milliseconds(2500)) << "the deadline";
  EXPECT_GT(quick.readings[1].unanswered, last);
  machine.heal();
  EXPECT_TRUE(all_known(sample_until(*sampler, all_known)));
}

TEST(SamplerHang, AGpuThatHangsFromTheStartIsARowToo) {
  SimMachine machine({"H100", "H100"});
  machine.begin();
  machine.fault(0, Return::success, seconds(60));
  SamplerOptions options = impatient(machine);
  options.attach_deadline = seconds(5);
  const auto sampler = Sampler::start(options);
  const Snapshot snapshot = sampler->sample();
  ASSERT_EQ(snapshot.inventory->devices.size(), 2U);
  EXPECT_EQ(snapshot.inventory->devices[0].absence, Absence::no_answer);
  EXPECT_EQ(snapshot.readings[0].device_absence, Absence::waking) << "a first contact may take its time";
  EXPECT_EQ(snapshot.readings[1].device_absence, Absence::none);
  const auto hangs = [](const Snapshot& s) { return s.readings[0].device_absence == Absence::no_answer; };
  EXPECT_TRUE(hangs(sample_until(*sampler, hangs))) << "but not for ever";
  machine.heal();
  const Snapshot healed = sample_until(*sampler, all_known);
  EXPECT_TRUE(all_known(healed));
  EXPECT_EQ(healed.inventory->devices[0].uuid, machine.plan.gpus[0].gpu.uuid);
}

// Whom nobody asked about is not asked, and not waited for: by whatever name those were named who are.
TEST(SamplerHang, AGpuThatIsLeftOutCostsNothing) {
  SimMachine machine({"H100", "H100", "H100"});
  machine.begin();
  machine.fault(1, Return::success, seconds(120));
  const auto look = [&](const std::string& gpus) {
    SamplerOptions options = impatient(machine);
    options.gpus = gpus;
    options.once = options.wait_for_waking = true;
    options.attach_deadline = seconds(90);
    const Instant began = now();
    Snapshot snapshot = Sampler::start(options)->sample();
    EXPECT_LT(now() - began, seconds(45)) << gpus;
    EXPECT_EQ(snapshot.driver.absence, Absence::none) << gpus;
    return snapshot;
  };
  const Snapshot numbers = look("0,2");
  ASSERT_EQ(numbers.readings.size(), 3U);
  EXPECT_EQ(numbers.readings[0].device_absence, Absence::none);
  EXPECT_EQ(numbers.readings[1].device_absence, Absence::not_asked);
  EXPECT_EQ(numbers.readings[1].unanswered, Duration::zero());
  EXPECT_EQ(numbers.readings[2].device_absence, Absence::none);
  const Snapshot uuids = look(machine.plan.gpus[2].gpu.uuid + std::string(",0"));
  ASSERT_EQ(uuids.readings.size(), 3U);
  EXPECT_EQ(uuids.readings[0].device_absence, Absence::none);
  EXPECT_NE(uuids.readings[1].device_absence, Absence::none);
  EXPECT_EQ(uuids.readings[2].device_absence, Absence::none);
  EXPECT_EQ(look("7").readings.at(0).device_absence, Absence::not_asked);
}

// Samples are swapped in and out: what an owner wrote into one must never come back as read.
// The sensor's shared memory is input from outside. A left-out GPU has no time until which it is left alone that
// anything could be added to: a sanitizer sees the overflow.
TEST(SamplerHang, SharedMemoryThatNamesALeftOutGpuAsBusyChangesNothing) {
  SimMachine machine({"H100", "H100"});
  machine.begin();
  SamplerOptions options = impatient(machine);
  options.gpus = "0";
  const auto sampler = Sampler::start(options);
  ASSERT_EQ(sampler->sample().readings.at(1).device_absence, Absence::not_asked);
  SensorMemory* shared = nullptr;
  const std::string maps = read_file("/proc/self/maps").value_or("");
  for (const std::string_view line : split(maps, '\n')) {
    unsigned long long from = 0;
    unsigned long long to = 0;
    if (std::sscanf(std::string(line).c_str(), "%llx-%llx rw-s", &from, &to) == 2 &&
        to - from >= sizeof(SensorMemory) && line.find(" rw-s ") != std::string_view::npos)
      shared = reinterpret_cast<SensorMemory*>(from);
  }
  ASSERT_NE(shared, nullptr);
  shared->slots[1].busy_since = now().time_since_epoch().count();
  for (const ProcessEntry& one : read_all_processes())
    if (one.parent == ::getpid()) ::kill(one.pid, SIGKILL);
  for (int i = 0; i < 3; ++i) {
    const Snapshot snapshot = sampler->sample();
    ASSERT_EQ(snapshot.readings.size(), 2U);
    EXPECT_EQ(snapshot.readings[0].device_absence, Absence::none);
    EXPECT_EQ(snapshot.readings[1].device_absence, Absence::not_asked);
  }
}

TEST(SamplerHang, WhatTheOwnerAddedToASampleDoesNotComeBack) {
  SimMachine machine({"H100", "H100"});
  machine.begin();
  const auto sampler = Sampler::start(machine.options());
  Snapshot snapshot;
  for (int round = 0; round < 12; ++round) {
    if (round == 4) machine.fault(1, Return::gpu_is_lost);
    if (round == 8) machine.fault(sim::kWholeDriver, Return::driver_not_loaded);
    sampler->sample(snapshot);
    ASSERT_EQ(snapshot.readings.size(), 2U);
    for (Reading& reading : snapshot.readings) {
      EXPECT_EQ(reading.why_missing(Metric::cpu), Absence::not_asked) << "round " << round;
      EXPECT_TRUE(std::isnan(reading[Metric::cpu]));
      reading.set(Metric::cpu, 0);
      reading.idle_before = seconds(99);
    }
  }
  EXPECT_NE(snapshot.driver.absence, Absence::none);
}

TEST(SamplerHang, AGpuThatHangsAfterASlowStartIsFoundOutInItsOwnTime) {
  SimMachine machine({"H100", "H100"});
  machine.begin();
  machine.fault(sim::kWholeDriver, Return::success, milliseconds(300), "nvmlInit*");  // whoever waits looks meanwhile
  machine.fault(0, Return::success, seconds(60));
  SamplerOptions patient = impatient(machine);
  patient.init_deadline = seconds(60);
  for (const bool by_event : {false, true}) {
    const auto sampler = Sampler::start(patient);
    const Instant began = now();
    const Snapshot snapshot = by_event ? sample_by_event(*sampler) : sampler->sample();
    EXPECT_LT(now() - began, seconds(20)) << "not the limit of the start";
    ASSERT_EQ(snapshot.readings.size(), 2U);
    EXPECT_EQ(snapshot.readings[0].device_absence, Absence::waking);
    EXPECT_EQ(snapshot.readings[1].device_absence, Absence::none);
  }
}

TEST(SamplerHang, WhoWaitsForTheEventFindsOutInTimeThatAGpuHangs) {
  SimMachine machine({"H100", "H100"});
  machine.begin();
  const auto sampler = Sampler::start(impatient(machine));
  ASSERT_TRUE(all_known(sample_until(*sampler, all_known)));
  EXPECT_EQ(sampler->look_by(), Instant::max()) << "nothing is under way";
  machine.fault(0, Return::success, seconds(60));
  const Instant began = now();
  const Snapshot snapshot = sample_by_event(*sampler);
  EXPECT_LT(now() - began, seconds(20));
  EXPECT_EQ(snapshot.readings[0].device_absence, Absence::no_answer);
  EXPECT_EQ(snapshot.readings[1].device_absence, Absence::none);
  EXPECT_EQ(sample_by_event(*sampler).readings[0].device_absence, Absence::no_answer);
}

TEST(SamplerHang, WhenEveryGpuHangsTheDriverDoesNotAnswer) {
  SimMachine machine({"H100", "H100"});
  machine.begin();
  const auto sampler = Sampler::start(impatient(machine));
  ASSERT_TRUE(all_known(sampler->sample()));
  machine.fault(sim::kEveryGpu, Return::success, seconds(60));
  const Snapshot snapshot = sample_until(*sampler, [](const Snapshot& s) { return s.driver.unanswered > seconds(1); });
  EXPECT_EQ(snapshot.driver.absence, Absence::no_answer);
  EXPECT_EQ(snapshot.driver.detail.find("the driver has not answered for "), 0U) << snapshot.driver.detail;
  EXPECT_LE(sensors_of_ours().size(), 3U) << "one is left behind for each GPU at most";
  machine.heal();
  EXPECT_TRUE(all_known(sample_until(*sampler, all_known)));
}

TEST(SamplerHang, AHangInTheStartOfTheDriverHangsNobody) {
  SimMachine machine({"H100"});
  machine.begin();
  machine.fault(sim::kWholeDriver, Return::success, seconds(60), "nvmlInit*");
  const auto sampler = Sampler::start(impatient(machine));
  const Instant began = now();
  const Snapshot snapshot = sampler->sample();
  EXPECT_LT(now() - began, seconds(20));
  EXPECT_EQ(snapshot.driver.absence, Absence::no_answer);
  EXPECT_GE(snapshot.driver.unanswered, milliseconds(700));
  machine.heal();
  EXPECT_TRUE(all_known(sample_until(*sampler, all_known)));
}

TEST(SamplerHang, WhoEndsWhileTheDriverHangsIsNotKept) {
  SimMachine machine({"H100"});
  machine.begin();
  auto sampler = Sampler::start(impatient(machine));
  ASSERT_TRUE(all_known(sampler->sample()));
  machine.fault(0, Return::success, seconds(60));
  ASSERT_EQ(sampler->sample().readings.at(0).device_absence, Absence::no_answer);
  const Instant began = now();
  sampler.reset();
  EXPECT_LT(now() - began, seconds(20)) << "the hang takes a minute";
  machine.heal();
}

}  // namespace
}  // namespace lull
