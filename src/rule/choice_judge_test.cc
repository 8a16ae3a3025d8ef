// Whether one GPU suits: src/rule/choice_judge.cc, with hand-made readings.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <chrono>

#include "rule/choice.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr double kMiB = 1 << 20;
constexpr double kGiB = 1 << 30;

Device gpu() {
  Device device;
  device.uuid = "GPU-0";
  device.name = "NVIDIA GeForce RTX 3090";
  return device;
}

Device mig() {
  Device device = gpu();
  device.kind = DeviceKind::mig;
  device.uuid = "MIG-1";
  return device;
}

Reading idle() {
  Reading reading;
  reading.set(Metric::util, 0);
  reading.set(Metric::mem_util, 0);
  reading.set(Metric::procs, 0);
  reading.set(Metric::mem_used, 3 * kMiB);
  reading.set(Metric::mem_total, 16 * kGiB);
  reading.set(Metric::mem_free, 16 * kGiB - 300 * kMiB);
  reading.set(Metric::temp, 40);
  reading.set(Metric::power, 30);
  reading.tenants.emplace();
  return reading;
}

Reading without(std::initializer_list<Metric> metrics, Absence why = Absence::not_supported) {
  Reading reading = idle();
  for (const Metric metric : metrics) reading.miss(metric, why);
  return reading;
}

Tenant tenant(pid_t pid, double bytes, bool graphics_only = false) {
  Tenant one;
  one.pid = pid;
  one.compute = !graphics_only;
  one.graphics = graphics_only;
  one.memory_bytes = static_cast<std::uint64_t>(bytes);
  return one;
}

Judgement judged(const Reading& reading, const Wishes& wishes = {}, const Device& device = gpu(),
                 const std::map<pid_t, ProcessInfo>& processes = {}) {
  return judge(device, reading, wishes, processes);
}

std::map<pid_t, ProcessInfo> owned_by(uid_t uid, std::initializer_list<pid_t> pids) {
  std::map<pid_t, ProcessInfo> processes;
  for (const pid_t pid : pids) processes[pid].uid = uid;
  return processes;
}

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
  EXPECT_EQ(judged(busy).why, "3 processes, 41 % util; wanted 0");
  busy.set(Metric::procs, 1);
  Wishes wishes;
  wishes.util = Limit::of(10);
  wishes.procs = Limit::of(1);
  EXPECT_EQ(judged(busy, wishes).why, "41 % util; wanted at most 10 % util");
  busy.set(Metric::util, 10);
  EXPECT_TRUE(judged(busy, wishes).fits);
}

// On a big card 2 % used to be 1.6 GiB: room for a whole process that the driver does not show in a container.
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
  Wishes any;
  any.mem_used = Limit::off();
  EXPECT_TRUE(judged(full, any).fits);
}

TEST(Judging, WhoAllowsProcessesAllowsTheirContexts) {
  Reading busy = idle();
  busy.set(Metric::procs, 1);
  busy.set(Metric::mem_used, 500 * kMiB);
  Wishes wishes;
  for (const Limit& procs : {Limit::of(1), Limit::off()}) {
    wishes.procs = procs;
    busy.set(Metric::mem_used, 500 * kMiB);
    EXPECT_TRUE(judged(busy, wishes).fits) << judged(busy, wishes).why;
    busy.set(Metric::mem_used, 900 * kMiB);
    EXPECT_EQ(judged(busy, wishes).why, "900.0 MiB in use; wanted at most 700.0 MiB in use");
  }
  wishes.procs = Limit::of(0);
  busy.set(Metric::procs, 0);
  busy.set(Metric::mem_used, 500 * kMiB);
  EXPECT_FALSE(judged(busy, wishes).fits);
}

// ---- what cannot be read -----------------------------------------------------

// The law: replacing any value that is looked at by unknown never makes a GPU fit.
TEST(Judging, UnknownNeverFits) {
  EXPECT_TRUE(rc::check([] {
    Reading reading = idle();
    reading.set(Metric::util, *rc::gen::element(0.0, 7.0, 50.0));
    reading.set(Metric::procs, *rc::gen::element(0.0, 2.0));
    reading.set(Metric::mem_used, *rc::gen::element(0.0, 300 * kMiB, 8 * kGiB));
    if (*rc::gen::arbitrary<bool>()) reading.tenants->push_back(tenant(10, 280 * kMiB, true));
    if (*rc::gen::arbitrary<bool>()) reading.display_active = true;
    reading.processes_hidden = *rc::gen::arbitrary<bool>();
    reading.memory_estimated = *rc::gen::arbitrary<bool>();
    // Where processes may be hidden memory proves that there are none: who has a context holds some.
    if (reading.processes_hidden && reading[Metric::procs] > 0) RC_PRE(reading[Metric::mem_used] > kEmptyCard);
    Wishes wishes;
    if (*rc::gen::arbitrary<bool>()) wishes.util = Limit::of(*rc::gen::element(0.0, 100.0));
    if (*rc::gen::arbitrary<bool>()) wishes.temp = Limit::of(60);
    if (*rc::gen::arbitrary<bool>()) wishes.mem_free = Limit::of(kGiB);
    if (*rc::gen::arbitrary<bool>()) wishes.tolerate = kGiB;
    const bool before = judged(reading, wishes).fits;
    const Metric gone = *rc::gen::element(Metric::util, Metric::mem_util, Metric::procs, Metric::mem_used,
                                          Metric::mem_free, Metric::temp, Metric::mem_total);
    reading.miss(gone, *rc::gen::element(Absence::failed, Absence::no_answer, Absence::implausible,
                                         Absence::not_covered, Absence::no_permission, Absence::not_asked));
    if (judged(reading, wishes).fits) RC_ASSERT(before);
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
  Wishes knows_better;  // who says that they do not matter is content with less
  knows_better.util = knows_better.mem_util = knows_better.mem_used = Limit::off();
  EXPECT_TRUE(judged(only_procs, knows_better).fits);
  EXPECT_FALSE(judged(nothing, knows_better).fits);
}

// What the tenants hold in all says the same as their number: it is no second signal.
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
  Wishes wishes;
  wishes.util = Limit::of(5);
  EXPECT_EQ(judged(without({Metric::util, Metric::mem_util}), wishes).why, "util cannot be read (not supported)");
  wishes = {};
  wishes.mem_used = Limit::of(kGiB);
  EXPECT_EQ(judged(without({Metric::mem_used}), wishes).why, "mem_used cannot be read (not supported)");
  wishes = {};
  wishes.mem_free = Limit::of(kGiB);
  EXPECT_EQ(judged(without({Metric::mem_used, Metric::mem_free, Metric::mem_total}), wishes).why,
            "mem_free cannot be read (not supported)");
  wishes = {};
  wishes.tolerate = kGiB;  // nobody knows how much is in use, so processes count
  Reading reading = without({Metric::mem_used});
  reading.set(Metric::procs, 1);
  EXPECT_EQ(judged(reading, wishes).why, "1 process; wanted 0");
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
  Wishes wishes;
  wishes.mem_free = Limit::of(kGiB);
  EXPECT_EQ(judged(asleep, wishes).why, "mem_free cannot be read (asleep)");
  asleep.asleep = false;  // only the card itself says so
  EXPECT_FALSE(judged(asleep).fits);
  Device unknown = gpu();
  unknown.uuid.clear();
  asleep.asleep = true;
  EXPECT_EQ(judged(asleep, {}, unknown).why, "is asleep, and its UUID cannot be read without waking it");
}

TEST(Judging, MigDevicesGoByProcessesAndMemory) {
  Reading reading = without({Metric::util, Metric::mem_util});
  EXPECT_TRUE(judged(reading, {}, mig()).fits);
  Wishes wishes;
  wishes.util = Limit::of(5);
  EXPECT_FALSE(judged(reading, wishes, mig()).fits);
  wishes = {};
  wishes.tolerate = kGiB;
  reading.set(Metric::procs, 1);
  EXPECT_FALSE(judged(reading, {}, mig()).fits);
  EXPECT_TRUE(judged(reading, wishes, mig()).fits);
  Reading parent = idle();
  parent.mig_mode = true;
  EXPECT_TRUE(judged(parent).lasting);
}

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
  EXPECT_EQ(judged(seen).why, "2 processes; wanted 0");
  seen.miss(Metric::procs, Absence::no_permission);
  seen.tenants = {tenant(10, kGiB), tenant(11, kGiB, true)};
  EXPECT_EQ(judged(seen).why, "1 process; wanted 0") << "at least the one that is seen";
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
  Wishes wishes;
  wishes.name = "rtx 30";
  EXPECT_TRUE(judged(idle(), wishes).fits);
  wishes.name = "A100";
  EXPECT_TRUE(judged(idle(), wishes).lasting);
  EXPECT_EQ(judged(idle(), wishes).why, "is a NVIDIA GeForce RTX 3090; wanted A100");
}

TEST(Judging, FreeMemoryAndTemperature) {
  Wishes wishes;
  wishes.mem_free = Limit::of(15.9 * kGiB);
  EXPECT_FALSE(judged(idle(), wishes).fits);
  EXPECT_FALSE(judged(idle(), wishes).lasting);
  wishes.mem_free = Limit::of(20 * kGiB);
  EXPECT_TRUE(judged(idle(), wishes).lasting);  // the card is too small
  wishes = {};
  wishes.temp = Limit::of(39);
  EXPECT_EQ(judged(idle(), wishes).why, "40 C; wanted at most 39 C");
}

TEST(Judging, SmallLeftoversMayBeTolerated) {
  Reading left = idle();
  left.set(Metric::procs, 1);
  left.set(Metric::mem_used, 900 * kMiB);
  EXPECT_FALSE(judged(left).fits);
  Wishes wishes;
  wishes.tolerate = kGiB;
  EXPECT_TRUE(judged(left, wishes).fits);
  left.set(Metric::mem_used, 1100 * kMiB);
  EXPECT_FALSE(judged(left, wishes).fits);
  left.set(Metric::mem_used, 900 * kMiB);
  left.set(Metric::util, 3);  // it works: no leftover
  EXPECT_FALSE(judged(left, wishes).fits);
  left.set(Metric::util, 0);
  left.miss(Metric::mem_used, Absence::failed);
  EXPECT_FALSE(judged(left, wishes).fits);
}

TEST(Judging, WhereIsARuleOnOneReading) {
  Wishes wishes;
  wishes.where = *where_rule(*parse_rule("power < 50W and temp < 60"));
  EXPECT_TRUE(judged(idle(), wishes).fits);
  Reading warm = idle();
  warm.set(Metric::temp, 71);
  EXPECT_EQ(judged(warm, wishes).why, "power 30 W, temp 71 C; wanted power < 50W and temp < 60C");
  warm.miss(Metric::temp, Absence::not_supported);
  EXPECT_EQ(judged(warm, wishes).why, "temp cannot be read (not supported)");
  EXPECT_FALSE(where_rule(*parse_rule("util < 5 for 10m")));
  EXPECT_FALSE(where_rule(*parse_rule("cpu < 5")));
}

}  // namespace
}  // namespace lull
