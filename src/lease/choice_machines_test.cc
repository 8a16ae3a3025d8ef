// Whether a GPU suits on machines as they are: in containers, with a desktop, under MPS.

#include <gtest/gtest.h>

#include "lease/choice_readings_test.h"

namespace lull {
namespace {

// ---- containers --------------------------------------------------------------

TEST(Judging, WhereProcessesMayBeHiddenMemoryDecides) {
  for (const bool counted : {false, true}) {
    Reading reading = idle();
    reading.processes_hidden = true;
    if (!counted) reading.miss(Metric::procs, Absence::no_permission);
    EXPECT_TRUE(judged(reading).fits) << judged(reading).why;
    EXPECT_EQ(judged(reading).judged_by, (std::vector{Metric::util, Metric::mem_used}));
    reading.set(Metric::mem_used, 400 * kMiB);  // another container's, and nobody shows it
    EXPECT_EQ(judged(reading).why,
              "processes in other containers are hidden from here, 400.0 MiB in use; wanted at most 64.0 MiB in use");
    Constraints constraints;
    constraints.mem_used = Limit::of(kGiB);  // memory may be used, by whom was not said
    EXPECT_EQ(judged(reading, constraints).why, "processes in other containers are hidden from here");
    constraints.procs = Limit::off();
    EXPECT_TRUE(judged(reading, constraints).fits);
    constraints.procs = Limit::of(2);
    EXPECT_EQ(judged(reading, constraints).why,
              "procs cannot be read (processes in other containers are hidden from here)");
    constraints = {};
    constraints.tolerate = kGiB;
    EXPECT_TRUE(judged(reading, constraints).fits);
    reading.miss(Metric::mem_used, Absence::not_supported);
    EXPECT_FALSE(judged(reading).fits);
  }
  Reading seen = idle();
  seen.processes_hidden = true;
  seen.set(Metric::procs, 2);
  EXPECT_EQ(judged(seen).why, "2 processes; wanted 0 processes");
  seen.miss(Metric::procs, Absence::no_permission);
  seen.processes = {process(10, kGiB), process(11, kGiB, true)};
  EXPECT_EQ(judged(seen).why, "1 process; wanted 0 processes") << "at least the one that is seen";
}

TEST(Judging, HiddenProcessesAndNoUtilisationLeaveMemoryAlone) {
  Reading reading = without({Metric::util, Metric::mem_util});
  reading.processes_hidden = true;
  EXPECT_EQ(judged(reading, {}, mig()).why,
            "cannot be judged without util (not supported), procs (hidden in other containers): mem_used alone does "
            "not tell");
  Constraints constraints;
  constraints.util = constraints.procs = Limit::off();
  EXPECT_TRUE(judged(reading, constraints, mig()).fits);
}

TEST(Judging, EstimatedMemoryDoesNotProveThatNobodyIsHidden) {
  Reading reading = idle();
  reading.processes_hidden = true;
  reading.memory_estimated = true;
  EXPECT_EQ(judged(reading).why, "processes in other containers are hidden from here");
}

// ---- mine ---------------------------------------------------------------------

Reading busy_with(std::vector<GpuProcess> processes) {
  Reading busy = idle();
  busy.set(Metric::procs, static_cast<double>(processes.size()));
  busy.set(Metric::util, 80);
  busy.set(Metric::mem_used, 8 * kGiB);
  busy.processes = std::move(processes);
  return busy;
}

TEST(Judging, MineCountsAsIdleOnlyIfAllOfItIsMine) {
  Reading busy = busy_with({process(10, 4 * kGiB), process(11, 4 * kGiB)});
  auto processes = owned_by(1000, {10, 11});
  Constraints constraints;
  constraints.mine = 1000;
  EXPECT_TRUE(judged(busy, constraints, gpu(), processes).fits);
  processes[11].uid = 1001;
  EXPECT_FALSE(judged(busy, constraints, gpu(), processes).fits);
  processes.erase(11);  // somebody whom we cannot see
  EXPECT_FALSE(judged(busy, constraints, gpu(), processes).fits);
  processes[11].uid = 1000;
  constraints.util = Limit::of(50);  // said by name: it stands
  EXPECT_FALSE(judged(busy, constraints, gpu(), processes).fits);
  constraints.util = {};
  busy.processes.reset();
  EXPECT_FALSE(judged(busy, constraints, gpu(), processes).fits);
}

// Older drivers give the host's numbers to a container: another process of ours may have the same one.
TEST(Judging, APidOfAnotherNamespaceIsNobodysThatWeKnow) {
  Reading busy = busy_with({process(10, 8 * kGiB)});
  Constraints constraints;
  constraints.mine = 1000;
  EXPECT_TRUE(judged(busy, constraints, gpu(), owned_by(1000, {10})).fits);
  (*busy.processes)[0].here = false;
  EXPECT_FALSE(judged(busy, constraints, gpu(), owned_by(1000, {10})).fits);
}

// A number that the driver goes on listing may be that of another process by now, of mine for instance.
TEST(Judging, OnlyAProvenProcessIsMine) {
  Reading busy = busy_with({process(10, 8 * kGiB)});
  Constraints constraints;
  constraints.mine = 1000;
  auto processes = owned_by(1000, {10});
  for (const Proof proof : {Proof::unproven, Proof::stale}) {
    (*busy.processes)[0].proof = proof;
    EXPECT_FALSE(judged(busy, constraints, gpu(), processes).fits) << to_string(proof);
  }
  (*busy.processes)[0].proof = Proof::proven;
  (*busy.processes)[0].start_ticks = 100;
  processes[10].start_ticks = 200;
  EXPECT_FALSE(judged(busy, constraints, gpu(), processes).fits) << "it started later";
  processes[10].start_ticks = 100;
  EXPECT_TRUE(judged(busy, constraints, gpu(), processes).fits);
}

TEST(Judging, MineWhereOthersMayBeHiddenNeedsAllMemoryToBeMine) {
  Reading busy = busy_with({process(10, 8 * kGiB - 5 * kMiB)});
  busy.processes_hidden = true;
  Constraints constraints;
  constraints.mine = 1000;
  const auto processes = owned_by(1000, {10});
  EXPECT_TRUE(judged(busy, constraints, gpu(), processes).fits);
  busy.set(Metric::mem_used, 9 * kGiB);  // whose is the rest?
  EXPECT_FALSE(judged(busy, constraints, gpu(), processes).fits);
  busy.miss(Metric::mem_used, Absence::not_supported);
  EXPECT_FALSE(judged(busy, constraints, gpu(), processes).fits);
  busy.set(Metric::mem_used, 8 * kGiB);
  (*busy.processes)[0].memory_bytes.reset();
  EXPECT_FALSE(judged(busy, constraints, gpu(), processes).fits);
}

TEST(Judging, AnMpsServerCountsThroughItsClients) {
  GpuProcess server = process(9, 30 * kMiB);
  server.mps_server = true;
  Reading busy = busy_with({server, process(10, 7 * kGiB)});
  Constraints constraints;
  constraints.mine = 1000;
  auto processes = owned_by(1000, {10});
  processes[9].uid = 0;
  EXPECT_TRUE(judged(busy, constraints, gpu(), processes).fits) << "root's server, my client";
  processes[10].uid = 1001;
  EXPECT_FALSE(judged(busy, constraints, gpu(), processes).fits);
  Reading alone = idle();  // `procs` does not have it
  alone.set(Metric::mem_used, 33 * kMiB);
  alone.processes->push_back(server);
  EXPECT_TRUE(judged(alone).fits);
  alone.set(Metric::util, 4);
  EXPECT_FALSE(judged(alone, constraints, gpu(), processes).fits) << "a server alone makes nothing mine";
}

// ---- desktops ------------------------------------------------------------------

Reading desktop(double used, double util = 7) {
  Reading reading = idle();
  reading.display_active = true;
  reading.set(Metric::util, util);
  reading.set(Metric::mem_util, 3);
  reading.set(Metric::mem_used, used);
  reading.processes = {process(700, 400 * kMiB, true), process(701, 120 * kMiB, true)};
  return reading;
}

TEST(Judging, ADesktopMayDraw) {
  const Judgement judgement = judged(desktop(600 * kMiB));
  EXPECT_TRUE(judgement.fits) << judgement.why;
  EXPECT_EQ(judgement.note, "a desktop draws on it");
  EXPECT_TRUE(judged(desktop(600 * kMiB, 10)).fits);
  EXPECT_EQ(judged(desktop(600 * kMiB, 25)).why, "25 % util; wanted at most 10 % util (a desktop draws on it)");
  EXPECT_EQ(
      judged(desktop(2 * kGiB)).why,
      "1.5 GiB in use besides the desktop; wanted at most 256.0 MiB in use besides the desktop (a desktop draws on "
      "it)");
  Reading dark = desktop(600 * kMiB);
  dark.display_active = false;
  EXPECT_FALSE(judged(dark).fits);
  dark.display_active.reset();
  EXPECT_FALSE(judged(dark).fits);
}

TEST(Judging, BesideADesktopOnlyWhatOnlyDrawsIsLeftOut) {
  Reading reading = desktop(600 * kMiB);
  (*reading.processes)[0].compute = true;
  reading.set(Metric::procs, 1);
  EXPECT_FALSE(judged(reading).fits);
  reading.set(Metric::procs, 0);
  EXPECT_FALSE(judged(reading).fits) << "480 MiB are not the desktop's";
  reading = desktop(600 * kMiB);
  (*reading.processes)[0].memory_bytes.reset();
  EXPECT_FALSE(judged(reading).fits) << "nobody knows how much of it is the desktop's";
  reading = desktop(600 * kMiB);
  reading.processes_hidden = true;
  EXPECT_FALSE(judged(reading).fits) << "somebody else may hold it";
  reading.processes.reset();
  EXPECT_FALSE(judged(reading).fits);
}

TEST(Judging, WhatWasAskedForHoldsBesideADesktopToo) {
  Constraints constraints;
  constraints.util = Limit::of(5);
  EXPECT_FALSE(judged(desktop(600 * kMiB), constraints).fits);
  constraints = {};
  constraints.mem_used = Limit::of(512 * kMiB);
  EXPECT_EQ(judged(desktop(600 * kMiB), constraints).why,
            "600.0 MiB in use; wanted at most 512.0 MiB in use (a desktop draws on it)");
  constraints = {};
  constraints.mem_util = Limit::of(0);
  EXPECT_FALSE(judged(desktop(600 * kMiB), constraints).fits);
}

}  // namespace
}  // namespace lull
