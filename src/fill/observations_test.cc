#include "fill/observations.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "fill/plan_file.h"
#include "fill/sink.h"
#include "gpu/inventory_test.h"
#include "sense/file_tree_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr double kMiB = 1024.0 * 1024;

// Two idle GPUs, looked at once a second.
class ObservationsTest : public ::testing::Test {
 protected:
  ObservationsTest() {
    settings_.idle = *parse_rule("util < 5 for 3s");
    settings_.every = 1s;
    snapshot_.inventory = inventory_ = gpus_for_test(2);
    inventory_->devices[0].minor = 0;
    inventory_->devices[1].minor = 1;
    snapshot_.at = snapshot_.asked = Instant(1h);
    for (int i = 0; i < 2; ++i) {
      Reading reading;
      reading.set(Metric::util, 0);
      reading.set(Metric::temp, 40);
      reading.set(Metric::mem_used, 0);
      reading.set(Metric::mem_free, 16384 * kMiB);
      reading.set(Metric::mem_total, 16384 * kMiB);
      reading.processes.emplace();
      snapshot_.readings.push_back(reading);
    }
    make();
  }
  void make() {
    observations_ = std::make_unique<Observations>(settings_, [this](pid_t pid) { return pid == ours_; });
  }
  void pass(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      snapshot_.at += 1s;
      snapshot_.asked += 1s;
      observations_->observe(snapshot_);
    }
  }
  GpuObservation look(std::size_t gpu = 0) {
    return observations_->look({.snapshot = snapshot_,
                                .openers = openers_ ? &*openers_ : nullptr,
                                .leases = &leases_,
                                .no_leases = no_leases_,
                                .people = people_,
                                .no_people = no_people_})[gpu];
  }
  void process(GpuProcess one) { snapshot_.readings[0].processes = {one}; }
  Openers& looked() {
    openers_.emplace();
    openers_->holders.resize(2);
    openers_->absence.assign(2, Absence::none);
    return *openers_;
  }

  FillSettings settings_;
  std::shared_ptr<Inventory> inventory_;
  Snapshot snapshot_;
  std::unique_ptr<Observations> observations_;
  std::optional<Openers> openers_;
  FolderState leases_;
  std::string no_leases_;
  std::vector<ActivePerson> people_;
  std::string no_people_;
  pid_t ours_ = -1;
};

TEST_F(ObservationsTest, TheRuleHasToHoldForItsTime) {
  ASSERT_TRUE(look().not_free) << "nothing is known of the rule before the first sample";
  EXPECT_EQ(look().not_free->kind, Reason::rule);
  pass(1);
  ASSERT_TRUE(look().not_free);
  EXPECT_EQ(look().not_free->kind, Reason::starts_soon);
  EXPECT_EQ(look().not_free->time, 3s);
  pass(2);
  EXPECT_EQ(look().not_free->time, 1s);
  pass(1);
  EXPECT_FALSE(look().not_free);
  observations_->disturb({"GPU-0"});
  pass(1);
  EXPECT_TRUE(look(0).not_free) << "somebody was there";
  EXPECT_FALSE(look(1).not_free);
  snapshot_.readings[1].set(Metric::util, 50);
  pass(1);
  ASSERT_TRUE(look(1).not_free);
  EXPECT_EQ(look(1).not_free->kind, Reason::rule);
  EXPECT_NE(look(1).not_free->who.find("util is 50"), std::string::npos) << look(1).not_free->who;
  snapshot_.readings[1].miss(Metric::util, Absence::no_permission);
  pass(1);
  ASSERT_TRUE(look(1).not_free);
  EXPECT_EQ(look(1).not_free->kind, Reason::rule) << "unknown is not idle";
}

TEST_F(ObservationsTest, ARuleInSamplesTellsTheTimeThatIsLeft) {
  settings_.idle = *parse_rule("util < 5 for 4 samples");
  settings_.every = 2s;
  make();
  pass(1);
  ASSERT_TRUE(look().not_free);
  EXPECT_EQ(look().not_free->time, 6s);
}

TEST_F(ObservationsTest, WhoIsThereBeginsTheTimeAnew) {
  pass(5);
  ASSERT_FALSE(look().not_free);
  people_ = {{"ada", 10s}};
  const GpuObservation seen = look();
  ASSERT_EQ(seen.claims.size(), 1U);
  EXPECT_EQ(seen.claims[0], (Reason{.kind = Reason::user, .who = "ada", .time = 10s}));
  people_.clear();
  pass(1);
  EXPECT_TRUE(look().not_free);
}

TEST_F(ObservationsTest, OtherSettingsThatLeaveTheRuleLeaveItsTime) {
  pass(5);
  ASSERT_FALSE(look().not_free);
  settings_.ignore = {"tool"};
  observations_->change(settings_);
  EXPECT_FALSE(look().not_free);
  settings_.every = 2s;
  observations_->change(settings_);
  pass(1);
  EXPECT_TRUE(look().not_free);
  pass(5);
  settings_.idle = *parse_rule("util < 6 for 3s");
  observations_->change(settings_);
  pass(1);
  EXPECT_TRUE(look().not_free);
}

TEST_F(ObservationsTest, WhatCannotBeReadIsSaid) {
  EXPECT_EQ(look().unreadable, "");
  no_people_ = "the terminals cannot be looked at";
  EXPECT_EQ(look().unreadable, no_people_);
  no_leases_ = "no";
  EXPECT_EQ(look().unreadable, "leases cannot be read: no");
  snapshot_.readings[0].processes.reset();
  EXPECT_EQ(look().unreadable, "who computes on it cannot be read");
  snapshot_.readings[0].device_absence = Absence::lost;
  EXPECT_EQ(look().unreadable, to_string(Absence::lost));
  snapshot_.driver.absence = Absence::no_driver;
  EXPECT_EQ(look().unreadable, to_string(Absence::no_driver));
}

TEST_F(ObservationsTest, ValuesAreThoseOfTheSample) {
  snapshot_.readings[0].set(Metric::mem_used, 100 * kMiB);
  snapshot_.readings[0].set(Metric::mem_free, 200 * kMiB);
  snapshot_.readings[0].set(Metric::mem_total, 300 * kMiB);
  const GpuObservation seen = look();
  EXPECT_EQ(seen.temp, 40);
  EXPECT_EQ(seen.mem_used, 100 * kMiB);
  EXPECT_EQ(seen.mem_free, 200 * kMiB);
  EXPECT_EQ(seen.mem_total, 300 * kMiB);
  EXPECT_EQ(seen.label, "0");
  EXPECT_EQ(seen.gpu.value, "GPU-0");
}

TEST_F(ObservationsTest, MemoryThatNobodyOwnsUpToIsUnexplained) {
  snapshot_.readings[0].set(Metric::mem_used, 8192 * kMiB);
  EXPECT_EQ(look().mem_unexplained, 8192 * kMiB);
  snapshot_.readings[0].processes_hidden = true;
  EXPECT_EQ(look().mem_unexplained, 0) << "the driver may leave somebody out";
  snapshot_.readings[0].processes_hidden = false;
  process({.pid = ::getpid(), .compute = true, .memory_bytes = {}, .gpu_instance = {}});
  EXPECT_EQ(look().mem_unexplained, 0);
  snapshot_.readings[0].processes.emplace();
  snapshot_.readings[0].set(Metric::mem_used, 10 * kMiB);
  EXPECT_EQ(look().mem_unexplained, 0) << "an empty card has that";
  snapshot_.readings[0].set(Metric::mem_used, 283 * kMiB);
  EXPECT_EQ(look().mem_unexplained, 283 * kMiB);
  inventory_->devices[0].vendor = Vendor::amd;
  EXPECT_EQ(look().mem_unexplained, 0) << "an empty MI300X has that";
}

TEST_F(ObservationsTest, WhoComputesClaimsTheGpu) {
  const GpuProcess us{.pid = ::getpid(), .compute = true, .memory_bytes = {}, .gpu_instance = {}};
  process(us);
  ASSERT_EQ(look().claims.size(), 1U);
  EXPECT_EQ(look().claims[0].kind, Reason::used);
  EXPECT_NE(look().claims[0].who.find("fill_tests (" + std::to_string(::getpid()) + ")"), std::string::npos)
      << look().claims[0].who;
  EXPECT_TRUE(look(1).claims.empty());
  ours_ = ::getpid();
  EXPECT_TRUE(look().claims.empty()) << "a filler of ours";
  GpuProcess elsewhere = us;
  elsewhere.here = false;
  process(elsewhere);
  ASSERT_EQ(look().claims.size(), 1U) << "that number means somebody else";
  EXPECT_NE(look().claims[0].who.find("another pid namespace"), std::string::npos);
  ours_ = -1;
  GpuProcess draws = us;
  draws.compute = false;
  draws.graphics = true;
  process(draws);
  EXPECT_TRUE(look().claims.empty());
  GpuProcess server = us;
  server.mps_server = true;
  process(server);
  EXPECT_TRUE(look().claims.empty()) << "counts through its clients";
}

TEST_F(ObservationsTest, ProgramsThatTheSettingsNameDoNotClaim) {
  const GpuProcess us{.pid = ::getpid(), .compute = true, .memory_bytes = {}, .gpu_instance = {}};
  process(us);
  settings_.ignore = {"fill_tests"};
  observations_->change(settings_);
  EXPECT_TRUE(look().claims.empty());
  settings_.ignore.clear();
  settings_.ignore_on = {{.files = std::set<unsigned>{1}, .programs = {"fill_tests"}}};
  observations_->change(settings_);
  EXPECT_EQ(look().claims.size(), 1U) << "named for another GPU";
  settings_.ignore_on[0].files = std::set<unsigned>{0};
  observations_->change(settings_);
  EXPECT_TRUE(look().claims.empty());
}

TEST_F(ObservationsTest, LeasesClaimUnlessTheyAreOurFillers) {
  LeaseInfo lease;
  lease.gpu = "GPU-0";
  lease.owner = ::getuid();
  lease.record.holder.pid = ::getpid();
  leases_.leases = {lease};
  ASSERT_EQ(look().claims.size(), 1U);
  EXPECT_EQ(look().claims[0].kind, Reason::leased);
  EXPECT_TRUE(look(1).claims.empty());
  ours_ = ::getpid();
  EXPECT_TRUE(look().claims.empty());
  leases_.leases[0].record.holder.pid = 0;
  ours_ = 0;
  EXPECT_EQ(look().claims.size(), 1U) << "nobody knows whose it is";
}

TEST_F(ObservationsTest, OpenersAreToldWhereSomebodyHasLooked) {
  EXPECT_FALSE(look().openers);
  looked().holders[0] = {::getpid()};
  ASSERT_TRUE(look().openers);
  ASSERT_EQ(look().openers->size(), 1U);
  EXPECT_EQ(look().openers->front().pid, ::getpid());
  EXPECT_EQ(look().openers->front().start_ticks, read_process_entry(::getpid())->start_ticks);
  EXPECT_EQ(look().openers->front().program, "fill_tests");
  EXPECT_TRUE(look(1).openers && look(1).openers->empty());
  ours_ = ::getpid();
  EXPECT_TRUE(look().openers->empty());
  ours_ = -1;
  settings_.ignore_on = {{.files = std::set<unsigned>{0}, .programs = {"fill_tests"}}};
  observations_->change(settings_);
  EXPECT_TRUE(look().openers->empty());
  looked().absence[0] = Absence::looking;
  EXPECT_FALSE(look().openers);
  EXPECT_EQ(look().unreadable, "");
  openers_->absence[0] = Absence::no_permission;
  openers_->hidden = {1, 2, 3};
  EXPECT_FALSE(look().openers);
  EXPECT_EQ(look().hidden, 3U);
  EXPECT_EQ(look(1).hidden, 0U);
  openers_->absence[0] = Absence::failed;
  EXPECT_EQ(look().unreadable, "its device file cannot be looked at");
  openers_->absence.resize(1);
  openers_->holders.resize(1);
  EXPECT_FALSE(look(1).openers) << "a look at fewer GPUs";
}

// ROCm opens the render nodes of all GPUs, also of those that it does not use.
TEST_F(ObservationsTest, AKfdProcessOnAnotherGpuIsNoOpener) {
  const TestTree tree;
  tree.write("sys/class/kfd/kfd/proc/" + std::to_string(::getpid()) + "/vram_7", "4096\n");
  ::setenv("LULL_SIM", tree.path().c_str(), 1);
  inventory_->devices[0].vendor = Vendor::amd;
  looked().holders[0] = {::getpid()};
  const auto openers = [&] { return look().openers->size(); };
  EXPECT_EQ(openers(), 0U);
  process({.pid = ::getpid(), .compute = true, .memory_bytes = {}, .gpu_instance = {}});
  EXPECT_EQ(openers(), 1U) << "it is listed here";
  snapshot_.readings[0].processes.emplace();
  snapshot_.readings[0].processes_hidden = true;
  EXPECT_EQ(openers(), 1U) << "the list may leave it out";
  snapshot_.readings[0].processes_hidden = false;
  std::filesystem::remove_all(tree.at("sys/class/kfd/kfd/proc"));
  EXPECT_EQ(openers(), 1U) << "KFD does not know it";
  ::unsetenv("LULL_SIM");
}

TEST_F(ObservationsTest, MigDevicesShareTheFileOfTheirCard) {
  Device part = inventory_->devices[0];
  part.kind = DeviceKind::mig;
  part.uuid = "MIG-0";
  inventory_->devices.insert(inventory_->devices.begin() + 1, part);
  snapshot_.readings.push_back(snapshot_.readings[0]);
  looked().holders = {{::getpid()}, {}, {}};
  openers_->absence.assign(3, Absence::none);
  ASSERT_TRUE(look(1).openers);
  EXPECT_EQ(look(1).openers->size(), 1U);
  EXPECT_TRUE(look(2).openers && look(2).openers->empty());
}

TEST_F(ObservationsTest, WaitersThatCanTakeAGpuAreCounted) {
  TicketInfo ticket;
  ticket.file = "ticket.1";
  ticket.owner = ::getuid();
  ticket.record.missing = 2;
  ticket.record.scope = {"GPU-1"};
  ticket.record.wants = {"GPU-0"};
  leases_.tickets = {ticket};
  auto found = observations_->waiters(leases_, snapshot_);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].id, "ticket.1");
  EXPECT_EQ(found[0].missing, 2U);
  EXPECT_EQ(found[0].could_use, (std::vector<DeviceId>{{"GPU-0"}, {"GPU-1"}}));
  leases_.tickets[0].record.wants.clear();
  EXPECT_EQ(observations_->waiters(leases_, snapshot_)[0].could_use, std::vector<DeviceId>{{"GPU-1"}});
  leases_.tickets[0].stopped = true;
  EXPECT_TRUE(observations_->waiters(leases_, snapshot_).empty());
  leases_.tickets[0].stopped = false;
  leases_.tickets[0].record.waiter.pid = ours_ = ::getpid();
  EXPECT_TRUE(observations_->waiters(leases_, snapshot_).empty());
}

TEST_F(ObservationsTest, WhatIsReadIsWhatTheSettingsNeed) {
  const auto wants = [&](Metric metric) { return std::ranges::count(metrics_of(settings_), metric) > 0; };
  for (const Metric metric : {Metric::util, Metric::mem_used, Metric::mem_free, Metric::mem_total})
    EXPECT_TRUE(wants(metric));
  EXPECT_FALSE(wants(Metric::temp));
  settings_.fillers.resize(2);
  settings_.fillers[1].max_temp = 80;
  EXPECT_TRUE(wants(Metric::temp));
}

TEST(FillUnits, AllAreThoseThatAreNotSplit) {
  const auto inventory = gpus_for_test(2);
  Device part = inventory->devices[0];
  part.kind = DeviceKind::mig;
  for (const char* uuid : {"MIG-1", "MIG-0"}) {
    part.uuid = uuid;
    inventory->devices.insert(inventory->devices.begin() + 1, part);
  }
  FillerSettings filler;
  filler.gpus = "all";
  const auto units = units_of({filler}, *inventory);
  ASSERT_TRUE(units);
  ASSERT_EQ(units->size(), 1U);
  EXPECT_EQ((*units)[0].gpus, std::vector<DeviceId>{{"GPU-1"}});
}

TEST(FillUnits, OneVendorUnlessOthersAreNamed) {
  const auto inventory = gpus_for_test(3);
  inventory->devices[1].vendor = Vendor::amd;
  inventory->devices[2].vendor = Vendor::tegra;
  FillerSettings filler;
  filler.per_gpu = true;
  auto units = units_of({filler}, *inventory);
  ASSERT_EQ(units->size(), 2U);
  EXPECT_EQ((*units)[1].gpus, std::vector<DeviceId>{{"GPU-2"}}) << "a Jetson's runtime is NVIDIA's";
  EXPECT_EQ(left_out({filler}, *inventory),
            "GPU 1: left out, since a filler has GPUs of one vendor (nvidia) unless it is told others (gpus)");
  for (const char* named : {"all", "0-2"}) {
    filler.gpus = named;
    EXPECT_EQ(units_of({filler}, *inventory)->size(), 3U) << named;
    EXPECT_EQ(left_out({filler}, *inventory), "");
  }
}

TEST(FillUnits, GpusThatAreNotThereAreAMistakeUnlessTheyMayBeAbsent) {
  const auto inventory = gpus_for_test(2);
  FillerSettings filler;
  filler.name = "work";
  filler.gpus = "1,7";
  ASSERT_FALSE(units_of({filler}, *inventory));
  EXPECT_NE(units_of({filler}, *inventory).error().message().find("work"), std::string::npos);
  filler.absent_left_out = true;
  auto units = units_of({filler}, *inventory);
  ASSERT_TRUE(units);
  ASSERT_EQ(units->size(), 1U);
  EXPECT_EQ((*units)[0].gpus, std::vector<DeviceId>{{"GPU-1"}});
  filler.gpus = "7";
  EXPECT_TRUE(units_of({filler}, *inventory)->empty());
  filler.gpus = "1,1";
  EXPECT_EQ((*units_of({filler}, *inventory))[0].gpus.size(), 1U);
  filler.gpus = "all";
  EXPECT_EQ((*units_of({filler}, *inventory))[0].gpus.size(), 2U);
}

TEST(FillCommandOptionsTest, OptionsBecomeSettings) {
  FillCommandOptions options;
  options.gpus = "0";
  options.nice = "5";
  options.yield = "pause";
  options.signal = "INT";
  options.user_idle = "1m";
  options.hours = "22-06";
  const auto settings = settle(options, {"/usr/bin/work", "-x"});
  ASSERT_TRUE(settings);
  const FillerSettings& filler = settings->fillers.at(0);
  EXPECT_EQ(filler.name, "work");
  EXPECT_EQ(filler.nice, 5);
  EXPECT_EQ(filler.yield, YieldWay::pause);
  EXPECT_EQ(filler.signal, SIGINT);
  EXPECT_EQ(settings->people.idle, 1min);
  EXPECT_TRUE(filler.hours.contain_minute(23 * 60));
  EXPECT_FALSE(filler.hours.contain_minute(12 * 60));
  const auto refused = [](auto change) {
    FillCommandOptions wrong;
    change(wrong);
    const auto none = settle(wrong, {"work"});
    return none ? "" : none.error().message();
  };
  EXPECT_EQ(refused([](FillCommandOptions& one) { one.every = "99ms"; }), "--every: at least 100ms");
  EXPECT_EQ(refused([](FillCommandOptions& one) { one.every = "100ms"; }), "");
  EXPECT_NE(refused([](FillCommandOptions& one) { one.nice = "20"; }), "");
  EXPECT_NE(refused([](FillCommandOptions& one) { one.nice = "-21"; }), "");
  EXPECT_EQ(refused([](FillCommandOptions& one) { one.nice = "19"; }), "");
  EXPECT_EQ(refused([](FillCommandOptions& one) { one.nice = "-20"; }), "");
  EXPECT_NE(refused([](FillCommandOptions& one) { one.yield = "no"; }).find("--yield"), std::string::npos);
  EXPECT_NE(refused([](FillCommandOptions& one) { one.idle = "no"; }).find("--idle"), std::string::npos);
  EXPECT_NE(refused([](FillCommandOptions& one) { one.hours = "22"; }).find("--hours"), std::string::npos);
}

TEST(FillStatusTest, ShowsWhoIsOnAGpuOrNext) {
  FillerSettings first;
  first.name = "first";
  FillerSettings second;
  second.name = "second";
  second.priority = 1;
  Filling filling({first, second}, {{0, {{"GPU-0"}}}, {1, {{"GPU-0"}}}}, 3s);
  GpuObservation observation{.gpu = {"GPU-0"}, .label = "0"};
  observation.mem_free = observation.mem_total = 1;
  observation.openers.emplace();
  const Instant now(1h);
  EXPECT_EQ(status_of(filling, observation, now).filler, "first") << "nobody is on it";
  EXPECT_EQ(status_of(filling, observation, now).state, "waiting");
  filling.sampled(now, now, std::vector{observation}, {}, 0);
  const GpuStatus status = status_of(filling, observation, now + 5s);
  EXPECT_EQ(status.filler, "second");
  EXPECT_EQ(status.state, "running");
  EXPECT_EQ(status.since, 5s);
  EXPECT_EQ(status.unit, 1U);
  EXPECT_EQ(status_of(filling, {.gpu = {"GPU-9"}, .label = "9"}, now).state, "not filled");
  FillStatus all{.pid = 7, .rule = "util < 5", .gpus = {status}};
  all.gpus[0].pid = 4711;
  EXPECT_NE(to_text(all).find("GPU 0  running         second (pid 4711) for 5s\n"), std::string::npos) << to_text(all);
  EXPECT_NE(to_json(all).find(R"("state":"running","filler":"second","pid":4711,"state_seconds":5)"), std::string::npos)
      << to_json(all);
  filling.replace({}, {}, now);
  filling.ended(1, now, 143);
  EXPECT_EQ(status_of(filling, observation, now).state, "not filled") << "who is retired is not next";
}

TEST(FillReasons, WordsAndNames) {
  const std::pair<Reason, const char*> kRows[] = {
      {{.kind = Reason::hot, .number = 81.6}, "82 C is too hot"},
      {{.kind = Reason::hot, .number = kUnknown}, "its temperature is unknown"},
      {{.kind = Reason::too_little_memory, .number = kUnknown}, "its free memory is unknown"},
      {{.kind = Reason::starts_soon, .time = 1500ms}, "starts in 2s"},
      {{.kind = Reason::starts_soon}, "about to start"},
      {{.kind = Reason::backing_off, .time = 10s, .number = 1}, "backing off for 10s after 1 failure"},
      {{.kind = Reason::backing_off, .time = 10s, .number = 2}, "backing off for 10s after 2 failures"},
      {{.kind = Reason::user, .who = "ada", .time = 3s}, "ada typed 3s ago"},
      {{.kind = Reason::none, .gpu = "0"}, ""},
      {{.kind = Reason::leased, .who = "ada", .gpu = "3"}, "GPU 3: leased by ada"},
  };
  for (const auto& [reason, text] : kRows) EXPECT_EQ(to_string(reason), text);
}

TEST(FillEvents, WordsSayHowItEnded) {
  FillerSettings filler;
  filler.name = "work";
  FillEvent event{.kind = FillEvent::ended, .filler = filler, .gpus = {"0"}};
  event.ran = 2500ms;
  event.status.code = 3;
  EXPECT_EQ(to_string(event), "work on GPU 0: ended by itself with status 3 after 2s");
  event.status = {.signal = SIGSEGV};
  EXPECT_EQ(to_string(event), "work on GPU 0: ended by itself by SIGSEGV after 2s");
  event.by_us = true;
  event.killed = 2;
  EXPECT_EQ(to_string(event), "work on GPU 0: ended after 2s, 2 of its processes had to be killed");
  event.status = {.code = 1};
  event.killed = 0;
  EXPECT_EQ(to_string(event), "work on GPU 0: ended with status 1 after 2s");
  FillEvent yields{.kind = FillEvent::yielding, .filler = filler, .gpus = {"0", "1"}};
  yields.why = {.kind = Reason::leased, .who = "ada", .gpu = "1"};
  EXPECT_EQ(to_string(yields), "work on GPUs 0, 1: yields: GPU 1: leased by ada");
  yields.gpus = {"1"};
  EXPECT_EQ(to_string(yields), "work on GPU 1: yields: leased by ada");
}

TEST(FillConsoleTest, SaysWhatItIsTold) {
  const SystemClock clock;
  const Logger logger(LogFormat::json, Level::note, clock);
  FillConsole console(logger);
  FillSettings settings;
  settings.idle = *parse_rule("util < 5 for 3s");
  settings.fillers.resize(1);
  settings.fillers[0].name = "work";
  FillEvent event{.kind = FillEvent::started, .filler = settings.fillers[0], .gpus = {"0"}};
  event.pid = 4711;
  ::testing::internal::CaptureStderr();
  console.began(settings, OpenWay::none, *gpus_for_test(1));
  console.happened(event);
  console.note(Level::warning, "log", "the log cannot be rotated");
  console.note(Level::debug, "signal", "not asked for");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("1 filler for GPU 0; free means util < 5 for 3s"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("event":"started")"), std::string::npos) << text;
  EXPECT_NE(text.find("4711"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("event":"log","message":"the log cannot be rotated")"), std::string::npos) << text;
  EXPECT_EQ(text.find("not asked for"), std::string::npos) << text;
}

}  // namespace
}  // namespace lull
