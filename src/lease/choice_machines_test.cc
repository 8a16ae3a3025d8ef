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
    Wishes wishes;
    wishes.mem_used = Limit::of(kGiB);  // memory may be used, by whom was not said
    EXPECT_EQ(judged(reading, wishes).why, "processes in other containers are hidden from here");
    wishes.procs = Limit::off();
    EXPECT_TRUE(judged(reading, wishes).fits);
    wishes.procs = Limit::of(2);
    EXPECT_EQ(judged(reading, wishes).why, "procs cannot be read (processes in other containers are hidden from here)");
    wishes = {};
    wishes.tolerate = kGiB;
    EXPECT_TRUE(judged(reading, wishes).fits);
    reading.miss(Metric::mem_used, Absence::not_supported);
    EXPECT_FALSE(judged(reading).fits);
  }
  Reading seen = idle();
  seen.processes_hidden = true;
  seen.set(Metric::procs, 2);
  EXPECT_EQ(judged(seen).why, "2 processes; wanted 0 processes");
  seen.miss(Metric::procs, Absence::no_permission);
  seen.tenants = {tenant(10, kGiB), tenant(11, kGiB, true)};
  EXPECT_EQ(judged(seen).why, "1 process; wanted 0 processes") << "at least the one that is seen";
}

TEST(Judging, HiddenProcessesAndNoUtilisationLeaveMemoryAlone) {
  Reading reading = without({Metric::util, Metric::mem_util});
  reading.processes_hidden = true;
  EXPECT_EQ(judged(reading, {}, mig()).why,
            "cannot be judged without util (not supported), procs (hidden in other containers): mem_used alone does "
            "not tell");
  Wishes wishes;
  wishes.util = wishes.procs = Limit::off();
  EXPECT_TRUE(judged(reading, wishes, mig()).fits);
}

TEST(Judging, EstimatedMemoryDoesNotProveThatNobodyIsHidden) {
  Reading reading = idle();
  reading.processes_hidden = true;
  reading.memory_estimated = true;
  EXPECT_EQ(judged(reading).why, "processes in other containers are hidden from here");
}

// ---- mine ---------------------------------------------------------------------

Reading busy_with(std::vector<Tenant> tenants) {
  Reading busy = idle();
  busy.set(Metric::procs, static_cast<double>(tenants.size()));
  busy.set(Metric::util, 80);
  busy.set(Metric::mem_used, 8 * kGiB);
  busy.tenants = std::move(tenants);
  return busy;
}

TEST(Judging, MineCountsAsIdleOnlyIfAllOfItIsMine) {
  Reading busy = busy_with({tenant(10, 4 * kGiB), tenant(11, 4 * kGiB)});
  auto processes = owned_by(1000, {10, 11});
  Wishes wishes;
  wishes.mine = 1000;
  EXPECT_TRUE(judged(busy, wishes, gpu(), processes).fits);
  processes[11].uid = 1001;
  EXPECT_FALSE(judged(busy, wishes, gpu(), processes).fits);
  processes.erase(11);  // somebody whom we cannot see
  EXPECT_FALSE(judged(busy, wishes, gpu(), processes).fits);
  processes[11].uid = 1000;
  wishes.util = Limit::of(50);  // said by name: it stands
  EXPECT_FALSE(judged(busy, wishes, gpu(), processes).fits);
  wishes.util = {};
  busy.tenants.reset();
  EXPECT_FALSE(judged(busy, wishes, gpu(), processes).fits);
}

// Older drivers give the host's numbers to a container: another process of ours may have the same one.
TEST(Judging, APidOfAnotherNamespaceIsNobodysThatWeKnow) {
  Reading busy = busy_with({tenant(10, 8 * kGiB)});
  Wishes wishes;
  wishes.mine = 1000;
  EXPECT_TRUE(judged(busy, wishes, gpu(), owned_by(1000, {10})).fits);
  (*busy.tenants)[0].here = false;
  EXPECT_FALSE(judged(busy, wishes, gpu(), owned_by(1000, {10})).fits);
}

TEST(Judging, MineWhereOthersMayBeHiddenNeedsAllMemoryToBeMine) {
  Reading busy = busy_with({tenant(10, 8 * kGiB - 5 * kMiB)});
  busy.processes_hidden = true;
  Wishes wishes;
  wishes.mine = 1000;
  const auto processes = owned_by(1000, {10});
  EXPECT_TRUE(judged(busy, wishes, gpu(), processes).fits);
  busy.set(Metric::mem_used, 9 * kGiB);  // whose is the rest?
  EXPECT_FALSE(judged(busy, wishes, gpu(), processes).fits);
  busy.miss(Metric::mem_used, Absence::not_supported);
  EXPECT_FALSE(judged(busy, wishes, gpu(), processes).fits);
  busy.set(Metric::mem_used, 8 * kGiB);
  (*busy.tenants)[0].memory_bytes.reset();
  EXPECT_FALSE(judged(busy, wishes, gpu(), processes).fits);
}

TEST(Judging, AnMpsServerCountsThroughItsClients) {
  Tenant server = tenant(9, 30 * kMiB);
  server.mps_server = true;
  Reading busy = busy_with({server, tenant(10, 7 * kGiB)});
  Wishes wishes;
  wishes.mine = 1000;
  auto processes = owned_by(1000, {10});
  processes[9].uid = 0;
  EXPECT_TRUE(judged(busy, wishes, gpu(), processes).fits) << "root's server, my client";
  processes[10].uid = 1001;
  EXPECT_FALSE(judged(busy, wishes, gpu(), processes).fits);
  Reading alone = idle();  // `procs` does not have it
  alone.set(Metric::mem_used, 33 * kMiB);
  alone.tenants->push_back(server);
  EXPECT_TRUE(judged(alone).fits);
  alone.set(Metric::util, 4);
  EXPECT_FALSE(judged(alone, wishes, gpu(), processes).fits) << "a server alone makes nothing mine";
}

// ---- desktops ------------------------------------------------------------------

Reading desktop(double used, double util = 7) {
  Reading reading = idle();
  reading.display_active = true;
  reading.set(Metric::util, util);
  reading.set(Metric::mem_util, 3);
  reading.set(Metric::mem_used, used);
  reading.tenants = {tenant(700, 400 * kMiB, true), tenant(701, 120 * kMiB, true)};
  return reading;
}

TEST(Judging, ADesktopMayDraw) {
  const Judgement judgement = judged(desktop(600 * kMiB));
  EXPECT_TRUE(judgement.fits) << judgement.why;
  EXPECT_EQ(judgement.note, "a desktop draws on it");
  EXPECT_TRUE(judged(desktop(600 * kMiB, 10)).fits);
  EXPECT_EQ(judged(desktop(600 * kMiB, 25)).why, "25 % util; wanted at most 10 % util (a desktop draws on it)");
  EXPECT_EQ(judged(desktop(2 * kGiB)).why,
            "1.5 GiB in use beside the desktop; wanted at most 256.0 MiB in use beside the desktop (a desktop draws on "
            "it)");
  Reading dark = desktop(600 * kMiB);
  dark.display_active = false;
  EXPECT_FALSE(judged(dark).fits);
  dark.display_active.reset();
  EXPECT_FALSE(judged(dark).fits);
}

TEST(Judging, BesideADesktopOnlyWhatOnlyDrawsIsLeftOut) {
  Reading reading = desktop(600 * kMiB);
  (*reading.tenants)[0].compute = true;
  reading.set(Metric::procs, 1);
  EXPECT_FALSE(judged(reading).fits);
  reading.set(Metric::procs, 0);
  EXPECT_FALSE(judged(reading).fits) << "480 MiB are not the desktop's";
  reading = desktop(600 * kMiB);
  (*reading.tenants)[0].memory_bytes.reset();
  EXPECT_FALSE(judged(reading).fits) << "nobody knows how much of it is the desktop's";
  reading = desktop(600 * kMiB);
  reading.processes_hidden = true;
  EXPECT_FALSE(judged(reading).fits) << "somebody else may hold it";
  reading.tenants.reset();
  EXPECT_FALSE(judged(reading).fits);
}

TEST(Judging, WhatWasAskedForHoldsBesideADesktopToo) {
  Wishes wishes;
  wishes.util = Limit::of(5);
  EXPECT_FALSE(judged(desktop(600 * kMiB), wishes).fits);
  wishes = {};
  wishes.mem_used = Limit::of(512 * kMiB);
  EXPECT_EQ(judged(desktop(600 * kMiB), wishes).why,
            "600.0 MiB in use; wanted at most 512.0 MiB in use (a desktop draws on it)");
  wishes = {};
  wishes.mem_util = Limit::of(0);
  EXPECT_FALSE(judged(desktop(600 * kMiB), wishes).fits);
}

}  // namespace
}  // namespace lull
