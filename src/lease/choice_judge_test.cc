// Whether one GPU suits: judge() of src/lease/choice.cc, with hand-made readings.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <chrono>

#include "lease/choice_readings_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

TEST(Judging, TakesAnIdleGpu) {
  const Judgement judgement = judged(idle());
  EXPECT_TRUE(judgement.fits);
  EXPECT_EQ(judgement.judged_by, (std::vector{Metric::util, Metric::procs, Metric::mem_used}));
  EXPECT_EQ(judgement.note, "");
}

TEST(Judging, SaysWhatSpeaksAgainstABusyOne) {
  Reading busy = idle();
  busy.set(Metric::procs, 3);
  busy.set(Metric::util, 41);
  EXPECT_EQ(judged(busy).why, "3 processes, 41 % util; wanted 0 processes, 0 % util");
  busy.set(Metric::procs, 1);
  Constraints constraints;
  constraints.util = Limit::of(10);
  constraints.procs = Limit::of(1);
  EXPECT_EQ(judged(busy, constraints).why, "41 % util; wanted at most 10 % util");
  busy.set(Metric::util, 10);
  EXPECT_TRUE(judged(busy, constraints).fits);
}

// On a big card 2 % would be 1.6 GiB: room for a whole process that the driver does not show in a container.
TEST(Judging, MemoryInUseCountsByItselfWhateverTheSizeOfTheCard) {
  Reading full = idle();
  full.set(Metric::mem_total, 80 * kGiB);
  for (const double used : {16000 * kMiB, 700 * kMiB, 100 * kMiB}) {
    full.set(Metric::mem_used, used);
    EXPECT_FALSE(judged(full).fits) << used;
  }
  EXPECT_EQ(judged(full).why, "100.0 MiB in use; wanted at most 64.0 MiB in use");
  full.set(Metric::mem_used, 30 * kMiB);  // an idle MPS server, or an X server without a screen
  EXPECT_TRUE(judged(full).fits);
  full.set(Metric::mem_used, 16 * kGiB);
  Constraints any;
  any.mem_used = Limit::off();
  EXPECT_TRUE(judged(full, any).fits);
}

TEST(Judging, WhatAmdsDriverKeepsForItselfIsNobodys) {  // an idle MI300X
  Device amd = gpu();
  amd.vendor = Vendor::amd;
  Reading reading = idle();
  reading.set(Metric::mem_used, 283 * kMiB);
  EXPECT_TRUE(judge(amd, reading, {}).fits) << judge(amd, reading, {}).why;
  EXPECT_FALSE(judge(gpu(), reading, {}).fits);
  reading.set(Metric::mem_used, 600 * kMiB);
  EXPECT_FALSE(judge(amd, reading, {}).fits);
}

TEST(Judging, WhoAllowsProcessesAllowsTheirContexts) {
  Reading busy = idle();
  busy.set(Metric::procs, 1);
  busy.set(Metric::mem_used, 500 * kMiB);
  Constraints constraints;
  for (const Limit& procs : {Limit::of(1), Limit::off()}) {
    constraints.procs = procs;
    busy.set(Metric::mem_used, 500 * kMiB);
    EXPECT_TRUE(judged(busy, constraints).fits) << judged(busy, constraints).why;
    busy.set(Metric::mem_used, 900 * kMiB);
    EXPECT_EQ(judged(busy, constraints).why, "900.0 MiB in use; wanted at most 700.0 MiB in use");
  }
  constraints.procs = Limit::of(0);
  busy.set(Metric::procs, 0);
  busy.set(Metric::mem_used, 500 * kMiB);
  EXPECT_FALSE(judged(busy, constraints).fits);
}

// ---- what cannot be read -----------------------------------------------------

// Replacing any value that is looked at by unknown never makes a GPU fit.
TEST(Judging, UnknownNeverFits) {
  EXPECT_TRUE(rc::check([] {
    Reading reading = idle();
    reading.set(Metric::util, *rc::gen::element(0.0, 7.0, 50.0));
    reading.set(Metric::procs, *rc::gen::element(0.0, 2.0));
    reading.set(Metric::mem_used, *rc::gen::element(0.0, 300 * kMiB, 8 * kGiB));
    if (*rc::gen::arbitrary<bool>()) reading.processes->push_back(process(10, 280 * kMiB, true));
    if (*rc::gen::arbitrary<bool>()) reading.display_active = true;
    reading.processes_hidden = *rc::gen::arbitrary<bool>();
    reading.memory_estimated = *rc::gen::arbitrary<bool>();
    // Where processes may be hidden memory proves that there are none: who has a context holds some.
    if (reading.processes_hidden && reading[Metric::procs] > 0) RC_PRE(reading[Metric::mem_used] > kEmptyCard);
    Constraints constraints;
    if (*rc::gen::arbitrary<bool>()) constraints.util = Limit::of(*rc::gen::element(0.0, 100.0));
    if (*rc::gen::arbitrary<bool>()) constraints.temp = Limit::of(60);
    if (*rc::gen::arbitrary<bool>()) constraints.mem_free = Limit::of(kGiB);
    if (*rc::gen::arbitrary<bool>()) constraints.tolerate = kGiB;
    const bool before = judged(reading, constraints).fits;
    const Metric gone = *rc::gen::element(Metric::util, Metric::mem_util, Metric::procs, Metric::mem_used,
                                          Metric::mem_free, Metric::temp, Metric::mem_total);
    reading.miss(gone, *rc::gen::element(Absence::failed, Absence::no_answer, Absence::implausible,
                                         Absence::not_covered, Absence::no_permission, Absence::not_asked));
    if (judged(reading, constraints).fits) RC_ASSERT(before);
  }));
  for (const Metric metric : {Metric::util, Metric::mem_util, Metric::procs, Metric::mem_used}) {
    const Reading reading = without({metric}, Absence::failed);
    EXPECT_FALSE(judged(reading).fits);
    EXPECT_NE(judged(reading).why.find("cannot be read (unknown error)"), std::string::npos) << judged(reading).why;
  }
}

// WSL2 without utilisation, a GB10 without memory, a driver without process lists: two of three tell.
TEST(Judging, WhatACardDoesNotHaveIsJudgedWithoutAsLongAsTwoSignalsTell) {
  const Reading no_util = without({Metric::util, Metric::mem_util});
  EXPECT_TRUE(judged(no_util).fits) << judged(no_util).why;
  EXPECT_EQ(judged(no_util).judged_by, (std::vector{Metric::procs, Metric::mem_used}));
  const Reading no_memory = without({Metric::mem_used, Metric::mem_free, Metric::mem_total, Metric::mem_util});
  EXPECT_TRUE(judged(no_memory).fits) << judged(no_memory).why;
  EXPECT_EQ(judged(no_memory).judged_by, (std::vector{Metric::util, Metric::procs}));
  EXPECT_TRUE(judged(without({Metric::procs})).fits);

  Reading busy = no_util;
  busy.set(Metric::procs, 1);
  EXPECT_FALSE(judged(busy).fits);
  busy = no_util;
  busy.set(Metric::mem_used, 400 * kMiB);
  EXPECT_FALSE(judged(busy).fits);
  busy = no_memory;
  busy.set(Metric::util, 3);
  EXPECT_FALSE(judged(busy).fits);
}

TEST(Judging, OneSignalAloneDoesNotTell) {
  const Reading only_procs = without({Metric::util, Metric::mem_util, Metric::mem_used});
  EXPECT_EQ(judged(only_procs).why,
            "cannot be judged without util (not supported), mem_used (not supported): procs alone does not tell");
  EXPECT_FALSE(judged(without({Metric::util, Metric::mem_util, Metric::procs})).fits);
  EXPECT_FALSE(judged(without({Metric::procs, Metric::mem_used})).fits);
  const Reading nothing = without({Metric::util, Metric::mem_util, Metric::procs, Metric::mem_used});
  EXPECT_EQ(judged(nothing).why,
            "cannot be judged without util (not supported), procs (not supported), mem_used (not supported)");
  Constraints knows_better;  // who says that they do not matter is content with less
  knows_better.util = knows_better.mem_util = knows_better.mem_used = Limit::off();
  EXPECT_TRUE(judged(only_procs, knows_better).fits);
  EXPECT_FALSE(judged(nothing, knows_better).fits);
}

// Data-centre cards rest in state 0, so that one says nothing.
TEST(Judging, ALowPerformanceStateMayBeTheSecondWitness) {
  for (const auto& gone : {std::vector{Metric::util, Metric::mem_util, Metric::procs},
                           std::vector{Metric::util, Metric::mem_util, Metric::mem_used}}) {
    Reading reading = idle();
    for (const Metric metric : gone) reading.miss(metric, Absence::not_supported);
    EXPECT_FALSE(judged(reading).fits);
    EXPECT_TRUE(judged(reading).undecided) << "it is worth a look";
    reading.set(Metric::pstate, 0);
    EXPECT_FALSE(judged(reading).fits);
    EXPECT_FALSE(judged(reading).undecided);
    reading.set(Metric::pstate, 8);
    EXPECT_TRUE(judged(reading).fits) << judged(reading).why;
    EXPECT_EQ(judged(reading).judged_by.back(), Metric::pstate);
  }
  Reading nothing = without({Metric::util, Metric::mem_util, Metric::procs, Metric::mem_used});
  nothing.set(Metric::pstate, 8);
  EXPECT_FALSE(judged(nothing).fits);
  Reading busy = idle();
  busy.set(Metric::pstate, 8);
  busy.set(Metric::util, 3);
  EXPECT_FALSE(judged(busy).fits) << "it takes nothing back";
  EXPECT_FALSE(judged(busy).undecided);
}

// What the processes hold in all says the same as their number: it is no second signal.
TEST(Judging, EstimatedMemoryIsNoSignalOfItsOwn) {
  Reading gb10 = idle();
  gb10.memory_estimated = true;
  EXPECT_TRUE(judged(gb10).fits);
  EXPECT_EQ(judged(gb10).judged_by, (std::vector{Metric::util, Metric::procs}));
  gb10.miss(Metric::util, Absence::not_supported);
  gb10.miss(Metric::mem_util, Absence::not_supported);
  EXPECT_EQ(judged(gb10).why,
            "cannot be judged without util (not supported), mem_used (only estimated): procs alone does not tell");
}

TEST(Judging, WhoAsksForWhatIsNotThereGetsTheTruth) {
  Constraints constraints;
  constraints.util = Limit::of(5);
  EXPECT_EQ(judged(without({Metric::util, Metric::mem_util}), constraints).why, "util cannot be read (not supported)");
  constraints = {};
  constraints.mem_used = Limit::of(kGiB);
  EXPECT_EQ(judged(without({Metric::mem_used}), constraints).why, "mem_used cannot be read (not supported)");
  constraints = {};
  constraints.mem_free = Limit::of(kGiB);
  EXPECT_EQ(judged(without({Metric::mem_used, Metric::mem_free, Metric::mem_total}), constraints).why,
            "mem_free cannot be read (not supported)");
  constraints = {};
  constraints.tolerate = kGiB;  // nobody knows how much is in use, so processes count
  Reading reading = without({Metric::mem_used});
  reading.set(Metric::procs, 1);
  EXPECT_EQ(judged(reading, constraints).why, "1 process; wanted 0 processes");
}

TEST(Judging, ALostGpuIsNotTakenAndTheReasonIsSaid) {
  Reading lost;
  lost.miss_all(Absence::lost);
  EXPECT_EQ(judged(lost).why, "cannot be read (GPU is lost)");
  EXPECT_FALSE(judged(lost).lasting);  // it may come back
}

TEST(Judging, AGpuThatWeMayNotUseIsNotWaitedFor) {
  Reading foreign;
  foreign.miss_all(Absence::no_permission);
  EXPECT_EQ(judged(foreign).why, "cannot be read (no permission)");
  EXPECT_TRUE(judged(foreign).lasting);
}

TEST(Judging, ASleepingGpuIsIdle) {
  Reading asleep;
  asleep.miss_all(Absence::asleep);
  asleep.device_absence = Absence::none;
  asleep.asleep = true;
  asleep.processes_hidden = true;
  asleep.set(Metric::util, 0);
  EXPECT_TRUE(judged(asleep).fits) << judged(asleep).why;
  EXPECT_EQ(judged(asleep).note, "asleep");
  Constraints constraints;
  constraints.mem_free = Limit::of(kGiB);
  EXPECT_EQ(judged(asleep, constraints).why, "mem_free cannot be read (asleep)");
  asleep.asleep = false;  // only the card itself says so
  EXPECT_FALSE(judged(asleep).fits);
  Device unknown = gpu();
  unknown.uuid.clear();
  asleep.asleep = true;
  EXPECT_EQ(judged(asleep, {}, unknown).why, "is asleep, and its UUID cannot be read without waking it");
}

TEST(Judging, GpusWithoutAUuidGoByTheirAddress) {
  Device device = gpu();
  device.vendor = Vendor::intel;
  device.uuid.clear();
  Reading reading = without({Metric::mem_util, Metric::mem_used, Metric::mem_free, Metric::mem_total});
  reading.set(Metric::util, 0.7);  // a millisecond of 150
  EXPECT_EQ(judged(reading, {}, device).why, "its UUID cannot be read");
  device.without_uuid = true;
  EXPECT_EQ(judged(reading, {}, device).why, "its PCI address cannot be read");
  device.pci = "00000000:03:00.0";
  EXPECT_TRUE(judged(reading, {}, device).fits) << judged(reading, {}, device).why;
  reading.set(Metric::util, 3);
  EXPECT_FALSE(judged(reading, {}, device).fits);
}

TEST(Judging, AJetsonThatSleepsMayBeHeld) {
  Device device = gpu();
  device.vendor = Vendor::tegra;
  device.uuid.clear();
  device.without_uuid = true;
  device.pci = "17000000.gpu";
  Reading reading = without({Metric::mem_util, Metric::procs, Metric::mem_used}, Absence::asleep);
  reading.asleep = true;
  reading.processes.reset();
  reading.set(Metric::util, 0);
  EXPECT_EQ(judged(reading, {}, device).why,
            "cannot be judged without procs (asleep), mem_used (asleep): util alone does not tell");
}

TEST(Judging, MigDevicesGoByProcessesAndMemory) {
  Reading reading = without({Metric::util, Metric::mem_util});
  EXPECT_TRUE(judged(reading, {}, mig()).fits);
  Constraints constraints;
  constraints.util = Limit::of(5);
  EXPECT_FALSE(judged(reading, constraints, mig()).fits);
  constraints = {};
  constraints.tolerate = kGiB;
  reading.set(Metric::procs, 1);
  EXPECT_FALSE(judged(reading, {}, mig()).fits);
  EXPECT_FALSE(judged(reading, constraints, mig()).fits) << "whether that process works, nobody knows";
  constraints.util = Limit::off();
  EXPECT_TRUE(judged(reading, constraints, mig()).fits) << judged(reading, constraints, mig()).why;
  Reading parent = idle();
  parent.mig_mode = true;
  EXPECT_TRUE(judged(parent).lasting);
}

// ---- the rest -------------------------------------------------------------------

// Checking its memory shows as work right after a card was woken; who asks knows when that was.
TEST(Judging, SaysWhereNothingButWorkSpeaksAgainstIt) {
  Reading reading = idle();
  reading.set(Metric::util, 100);
  EXPECT_TRUE(judged(reading).only_busy);
  reading.set(Metric::mem_util, 60);
  EXPECT_TRUE(judged(reading).only_busy);
  reading.set(Metric::procs, 1);
  EXPECT_FALSE(judged(reading).only_busy);
  reading.set(Metric::procs, 0);
  reading.miss(Metric::mem_util, Absence::failed);
  EXPECT_FALSE(judged(reading).only_busy);
  EXPECT_FALSE(judged(idle()).only_busy);
}

TEST(Judging, OnlyACardThatWasJustWokenMayLookBusyForNothing) {
  Reading reading = idle();
  reading.set(Metric::util, 100);
  EXPECT_FALSE(busy_from_waking(judged(reading), reading)) << "nobody knows when it was woken";
  reading.attached_for = 2s;
  EXPECT_TRUE(busy_from_waking(judged(reading), reading));
  reading.attached_for = 4s;
  EXPECT_FALSE(busy_from_waking(judged(reading), reading));
  reading.attached_for = 2s;
  reading.set(Metric::procs, 1);
  EXPECT_FALSE(busy_from_waking(judged(reading), reading));
}

TEST(Judging, NamesMatchInPartAndInAnyCase) {
  Constraints constraints;
  constraints.name = "rtx 30";
  EXPECT_TRUE(judged(idle(), constraints).fits);
  constraints.name = "A100";
  EXPECT_TRUE(judged(idle(), constraints).lasting);
  EXPECT_EQ(judged(idle(), constraints).why, "its name is NVIDIA GeForce RTX 3090; wanted A100");
}

TEST(Judging, FreeMemoryAndTemperature) {
  Constraints constraints;
  constraints.mem_free = Limit::of(15.9 * kGiB);
  EXPECT_FALSE(judged(idle(), constraints).fits);
  EXPECT_FALSE(judged(idle(), constraints).lasting);
  constraints.mem_free = Limit::of(20 * kGiB);
  EXPECT_TRUE(judged(idle(), constraints).lasting);  // the card is too small
  constraints = {};
  constraints.temp = Limit::of(39);
  EXPECT_EQ(judged(idle(), constraints).why, "40 C; wanted at most 39 C");
}

TEST(Judging, SmallLeftoversMayBeTolerated) {
  Reading left = idle();
  left.set(Metric::procs, 1);
  left.set(Metric::mem_used, 900 * kMiB);
  EXPECT_FALSE(judged(left).fits);
  Constraints constraints;
  constraints.tolerate = kGiB;
  EXPECT_TRUE(judged(left, constraints).fits);
  left.set(Metric::mem_used, 1100 * kMiB);
  EXPECT_FALSE(judged(left, constraints).fits);
  left.set(Metric::mem_used, 900 * kMiB);
  left.set(Metric::util, 3);  // it works: no leftover
  EXPECT_FALSE(judged(left, constraints).fits);
  left.set(Metric::util, 0);
  left.miss(Metric::mem_used, Absence::failed);
  EXPECT_FALSE(judged(left, constraints).fits);
}

// Who waives processes has not waived the utilisation that tells whether they work.
TEST(Judging, AcceptedProcessesNeedAUtilisationThatCanBeRead) {
  std::vector<Constraints> all(3);
  all[0].procs = Limit::off();
  all[1].procs = Limit::of(1);
  all[2].tolerate = kGiB;
  for (Constraints constraints : all) {
    Reading reading = without({Metric::util, Metric::mem_util});
    EXPECT_TRUE(judged(reading, constraints).fits) << "nobody is there: " << judged(reading, constraints).why;
    reading.set(Metric::procs, 1);
    reading.processes->push_back(process(100, 500 * kMiB));
    reading.set(Metric::mem_used, 500 * kMiB);
    EXPECT_EQ(judged(reading, constraints).why,
              "util cannot be read (not supported), and only that would tell whether its processes work");
    reading.set(Metric::pstate, kRestingState);
    EXPECT_FALSE(judged(reading, constraints).fits);
    Constraints any = constraints;
    any.util = any.mem_util = Limit::off();
    EXPECT_TRUE(judged(reading, any).fits) << judged(reading, any).why;
    reading.set(Metric::util, 0);
    EXPECT_TRUE(judged(reading, constraints).fits) << judged(reading, constraints).why;
  }
}

TEST(Judging, ProcessesThatNobodyCanCountAreProcessesToo) {
  Constraints constraints;
  constraints.procs = Limit::off();
  Reading reading = without({Metric::util, Metric::mem_util, Metric::procs});
  reading.processes.reset();
  reading.set(Metric::mem_used, 500 * kMiB);
  reading.set(Metric::pstate, kRestingState);
  EXPECT_FALSE(judged(reading, constraints).fits);
}

TEST(Judging, AGpuWhoseUuidIsSharedIsNamedByItsPlaceOrNotTaken) {
  Device shared = gpu();
  shared.shares_uuid = true;
  EXPECT_EQ(judged(idle(), {}, shared).why, "another GPU has the same UUID, and its PCI address cannot be read");
  shared.pci = "00000000:3B:00.0";
  EXPECT_TRUE(judged(idle(), {}, shared).fits);
  Device part = mig();
  part.shares_uuid = true;
  EXPECT_TRUE(judged(idle(), {}, part).lasting);
}

TEST(Judging, WhereIsARuleOnOneReading) {
  Constraints constraints;
  constraints.where = *where_rule(*parse_rule("power < 50W and temp < 60"));
  EXPECT_TRUE(judged(idle(), constraints).fits);
  Reading warm = idle();
  warm.set(Metric::temp, 71);
  EXPECT_EQ(judged(warm, constraints).why, "power 30 W, temp 71 C; wanted power < 50W and temp < 60C");
  warm.miss(Metric::temp, Absence::not_supported);
  EXPECT_EQ(judged(warm, constraints).why, "temp cannot be read (not supported)");
  EXPECT_FALSE(where_rule(*parse_rule("util < 5 for 10m")));
  EXPECT_FALSE(where_rule(*parse_rule("cpu < 5")));
}

}  // namespace
}  // namespace lull
