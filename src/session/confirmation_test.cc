// Before anything is ended, the newest data that the driver has must say so too: what they cover of the time since the
// firing, and what they show. Whole sessions on the simulated driver, on a clock that the test sets.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "session/each_session.h"
#include "session/scripts_test.h"
#include "session/simulated_machine_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPeriod{sim::kSamplePeriodNs};

// One card that somebody holds, and what it does.
struct Load {
  Duration at{};
  double util = 0;
};

struct CardOptions {
  Duration period = kPeriod;  // of the driver's samples
  Duration lag{};             // how long after their end they can be read, and the moment's value with them
  bool ring = true;
  bool dry_when_idle = false;
  bool has_moment = true;
};

// Power that goes with utilisation.
double watts(double util) { return 60 + 2.4 * util; }

sim::Plan cards(const std::vector<std::vector<Load>>& loads_of_each, const CardOptions& options) {
  sim::Plan plan;
  plan.sample_period_ns = options.period.count();
  plan.sample_lag_ns = options.lag.count();
  for (unsigned i = 0; i < loads_of_each.size(); ++i) {
    sim::GpuPlan& gpu = plan.gpus.emplace_back();
    gpu.gpu = sim::model("A100").value();
    sim::place(gpu.gpu, i, static_cast<unsigned>(loads_of_each.size()));
    gpu.gpu.sample_buffer = options.ring ? 1 : 0;
    auto& util = gpu.keyframes[static_cast<unsigned>(sim::Metric::util)];
    auto& power = gpu.keyframes[static_cast<unsigned>(sim::Metric::power)];
    util.push_back({.at_ns = 0, .value = 0});
    power.push_back({.at_ns = 0, .value = watts(0)});
    for (const Load& one : loads_of_each[i]) {
      util.push_back({.at_ns = one.at.count(), .value = one.util});
      power.push_back({.at_ns = one.at.count(), .value = watts(one.util)});
    }
    if (options.dry_when_idle) continue;
    sim::Load holder;  // while somebody holds it, the driver records
    holder.gpu = i;
    holder.pid = 100'001 + i;
    holder.end_ns = Duration(24h).count();
    holder.step_count = 1;
    holder.steps[0].memory = 1U << 30;
    plan.processes.push_back(holder);
  }
  if (!options.has_moment) {
    sim::Fault fault;
    fault.from_ns = 0;
    fault.to_ns = Duration(24h).count();
    fault.code = static_cast<std::int32_t>(nvml::Return::not_supported);
    std::string_view("nvmlDeviceGetUtilizationRates").copy(fault.function, sizeof fault.function - 1);
    plan.faults.push_back(fault);
  }
  return plan;
}

sim::Plan card(const std::vector<Load>& loads, const CardOptions& options = {}) { return cards({loads}, options); }

double util_at(const std::vector<Load>& loads, Duration at) {
  double util = 0;
  for (const Load& one : loads)
    if (one.at <= at) util = one.util;
  return util;
}

Duration elapsed_until(const FakeWorld& world, std::string_view what) {
  for (const Happened& one : world.happened)
    if (one.what == what) return one.at - kTestBegins;
  return Duration::max();
}

std::string notes(const Listening& sink, std::string_view event) {
  std::string text;
  for (const auto& [word, said] : sink.notes)
    if (word == event) text += said + "\n";
  return text;
}

// ---- gpu_idle_timeout -t 50 -s 2 -n 5, and work that begins 0.46 s before the sample that completes the streak

RunSettings idle_timeout() { return run_settings("util < 50 for 5 samples", 2s); }

TEST(Confirmation, WorkThatBeganJustBeforeTheLastSampleOfTheStreakIsNotEnded) {
  SimulatedMachine machine(card({{.at = 8s - 460ms, .util = 100}}));
  machine.world.job_runs = 60s;
  Listening sink;
  EXPECT_EQ(RunSession(idle_timeout(), machine.world, sink).run().status, 0);
  EXPECT_EQ(machine.world.count("end"), 0U);
  EXPECT_TRUE(sink.firings.empty()) << "nothing is announced that is not done";
  EXPECT_EQ(notes(sink, "not-confirmed"), "not confirmed: GPU 0 at 100 % now\n");
}

TEST(Confirmation, AnIdleJobIsEndedOneDriverPeriodAfterItsStreak) {
  for (const bool ring : {true, false}) {
    SimulatedMachine machine(card({}, {.ring = ring}));
    machine.world.job_runs = 60s;
    Listening sink;
    EXPECT_EQ(RunSession(idle_timeout(), machine.world, sink).run().status, kExitIdle);
    const Duration end = elapsed_until(machine.world, "end");
    EXPECT_GE(end, 8s + kPeriod);
    EXPECT_LE(end, ring ? 8s + 2 * kPeriod + 50ms : 10s + 50ms) << "it waits for the driver, not for --every";
    EXPECT_EQ(sink.firings.size(), 1U);
  }
}

TEST(Confirmation, ACardWhoseRingIsDryWhileItIdlesIsConfirmedByTheMoment) {
  SimulatedMachine machine(card({{.at = 1s, .util = 80}, {.at = 4s, .util = 0}}, {.dry_when_idle = true}));
  machine.world.job_runs = 60s;
  Listening sink;
  EXPECT_EQ(RunSession(run_settings("util < 5 for 10s", 1s), machine.world, sink).run().status, kExitIdle);
  EXPECT_LE(elapsed_until(machine.world, "end"), 17s);
}

// ---- job_util: the driver's samples of processes come as late as it likes

// One every second, told so long after its end. The job works from then on.
Script shares_of_a_job(Instant works_from, Duration lag) {
  struct Told {
    Instant until{};
    Instant begin{};
    double percent = 0;
  };
  Script script;
  script.gpus = 1;
  script.util = [](Instant, unsigned) { return 90.0; };  // a neighbour
  script.shares = [works_from, lag, told = Told()](Instant at, Reading& reading) mutable {
    const Instant end = std::chrono::floor<std::chrono::seconds>(at - lag);
    reading.shares_absence = Absence::none;
    reading.unlisted_util = 0;
    if (end > told.until) told = {end, told.until, end - 1s >= works_from ? 100.0 : 0.0};
    if (told.percent > 0) reading.shares.push_back({::getpid(), told.percent, told.percent});
    reading.shares_span = at - told.begin;
  };
  return script;
}

TEST(Confirmation, WorkOfTheJobsOwnIsWaitedForWhereTheDriverTellsItLate) {
  for (const Duration lag : {0ms, 300ms, 1200ms}) {
    const Instant begins = ManualClock().now();
    FakeWorld works(shares_of_a_job(begins + 10900ms, lag));
    works.job_runs = 60s;
    Listening sink;
    EXPECT_EQ(RunSession(run_settings("job_util < 1 for 10s", 1s), works, sink).run().status, 0) << lag / 1ms;
    EXPECT_EQ(works.count("end"), 0U);
    FakeWorld idles(shares_of_a_job(begins + 1h, lag));
    idles.job_runs = 60s;
    EXPECT_EQ(RunSession(run_settings("job_util < 1 for 10s", 1s), idles, sink).run().status, kExitIdle) << lag / 1ms;
  }
}

// ---- the chip's own counters: a value is of the time since the sample before, and ends now

// The GPU works from then on, for a moment or for good.
Script counters_of_a_gpu(Instant from, Instant to) {
  Script script;
  script.gpus = 1;
  script.util = [](Instant, unsigned) { return 100.0; };
  script.shares = [from, to, before = Instant()](Instant at, Reading& reading) mutable {
    const Instant begin = std::exchange(before, at);
    if (begin == Instant() || at <= begin) return reading.miss(Metric::sm, Absence::no_baseline);
    const Duration work = std::max(Duration(0), std::min(to, at) - std::max(from, begin));
    reading.counters_span = at - begin;
    reading.set(Metric::sm, 100.0 * static_cast<double>(work.count()) / static_cast<double>((at - begin).count()));
  };
  return script;
}

TEST(Confirmation, CountersOfTimeBeforeTheFiringConfirmNothing) {
  const auto settings = [] { return run_settings("sm < 1 for 10m", 30s); };
  const Instant begins = ManualClock().now();
  Listening sink;
  FakeWorld idles(counters_of_a_gpu(begins + 1h, begins + 2h));
  idles.job_runs = 30min;
  EXPECT_EQ(RunSession(settings(), idles, sink).run().status, kExitIdle);
  const Duration end = elapsed_until(idles, "end");
  EXPECT_LE(end, 10min + 31s) << "it does not wait for --every";
  const Duration fires = std::chrono::floor<std::chrono::seconds>(end);
  // It goes on with its work between the sample that fires and the one that would confirm, of which that is a
  // hundredth.
  for (const Duration after : {10ms, 100ms, 190ms, 250ms}) {
    FakeWorld works(counters_of_a_gpu(begins + fires + after, begins + 1h));
    works.job_runs = 30min;
    EXPECT_EQ(RunSession(settings(), works, sink).run().status, 0) << after / 1ms;
    EXPECT_EQ(works.count("end"), 0U) << after / 1ms;
  }
}

// ---- openers: of many processes a sample tells what the last whole scan has found

// One scan after the other, each of which takes that long and finds who had opened the GPU when it began.
Script scans_of_processes(Instant opens, Duration takes) {
  Script script;
  script.shares = [opens, takes, now = Instant(), whole = Instant()](Instant at, Reading& reading) mutable {
    if (now == Instant()) now = whole = at;
    if (at >= now + takes) whole = std::exchange(now, at);
    if (takes == Duration::zero()) whole = at;
    reading.set(Metric::openers, whole >= opens ? 1 : 0);
    reading.openers_span = at - whole;
  };
  return script;
}

TEST(Confirmation, OpenersOfTimeBeforeTheFiringConfirmNothing) {
  const Instant begins = ManualClock().now();
  for (const Duration takes : {0ms, 700ms, 3000ms}) {
    SCOPED_TRACE(takes / 1ms);
    FakeWorld idle(scans_of_processes(begins + 1h, takes));
    idle.job_runs = 2min;
    Listening sink;
    EXPECT_EQ(RunSession(run_settings("openers < 1 for 20s", 1s), idle, sink).run().status, kExitIdle);
    const Duration fires = std::chrono::floor<std::chrono::seconds>(elapsed_until(idle, "end"));
    EXPECT_LE(fires, 21s + 2 * takes);
    for (const Duration after : {50ms, 150ms}) {
      FakeWorld opened(scans_of_processes(begins + 20s + after, takes));
      opened.job_runs = 2min;
      EXPECT_EQ(RunSession(run_settings("openers < 1 for 20s", 1s), opened, sink).run().status, 0);
      EXPECT_EQ(opened.count("end"), 0U);
    }
  }
}

TEST(Confirmation, OpenersOfTimeBeforeTheFiringConfirmNothingForEach) {
  const Instant begins = ManualClock().now();
  for (const bool opens : {false, true}) {
    FakeWorld world(scans_of_processes(begins + (opens ? 20s + 100ms : Duration(1h)), 3s));
    world.script.holders = [](Instant, unsigned gpu) {
      return gpu == 0 ? std::vector<GpuProcess>{holder_for_test(4711)} : std::vector<GpuProcess>{};
    };
    world.send_from(begins + 35s, SIGINT);
    EachSettings settings;
    settings.steps = {{.when = *parse_rule("openers < 1 for 20s"), .actions = {*parse_action("end")}}};
    settings.every = 1s;
    settings.controlled = false;
    Listening sink;
    (void)EachSession(std::move(settings), world, sink).run();
    EXPECT_EQ(world.count("end 4711"), opens ? 0U : 1U);
  }
}

TEST(Confirmation, AScanOfAllProcessesThatTakesTooLongConfirmsNothing) {
  FakeWorld world(scans_of_processes(ManualClock().now() + 1h, 20s));
  world.job_runs = 2min;
  Listening sink;
  EXPECT_EQ(RunSession(run_settings("openers < 1 for 60s", 1s), world, sink).run().status, 0);
  EXPECT_EQ(world.count("end"), 0U);
  EXPECT_EQ(notes(sink, "not-confirmed"), "not confirmed: the scan of all processes takes too long\n");
}

// A confirming sample counts as any other: work in it ends the stretch, and the next one is tried again.
TEST(Confirmation, WhatWasNotConfirmedIsTriedAgainWhileTheRuleHolds) {
  std::vector<Load> loads;
  for (Duration at = 9800ms; at < 40s; at += 5s) {
    loads.push_back({at, 100});
    loads.push_back({at + 600ms, 0});
  }
  RunSettings settings = run_settings("util < 30 for 10s", 5s);
  SimulatedMachine machine(card(loads, {.period = 250ms}));
  machine.world.job_runs = 2min;
  Listening sink;
  EXPECT_EQ(RunSession(std::move(settings), machine.world, sink).run().status, kExitIdle);
  EXPECT_GT(elapsed_until(machine.world, "end"), 40s);
  EXPECT_LT(elapsed_until(machine.world, "end"), 60s);
  const auto said = std::ranges::count(notes(sink, "not-confirmed"), '\n');
  EXPECT_GE(said, 1);
  EXPECT_LE(said, 4) << "once a stretch";
}

// A hook runs from 8 s and a little to 9.2 s; the GPU works for half a second then, and the rule holds all the while.
const std::vector<Load> kBurstAfterTheHook = {{.at = 9260ms, .util = 100}, {.at = 9800ms, .util = 0}};

TEST(Confirmation, WhatIsNotConfirmedAfterAHookComesAgainAfterAnotherCount) {
  SimulatedMachine machine(card(kBurstAfterTheHook));
  machine.world.job_runs = 60s;
  machine.world.action_takes = [] { return 1s; };
  RunSettings settings = run_settings("util < 90 for 5 samples", 2s);
  settings.on_idle = "hook";
  Listening sink;
  EXPECT_EQ(RunSession(std::move(settings), machine.world, sink).run().status, kExitIdle);
  EXPECT_TRUE(sink.noted("called-off"));
  EXPECT_EQ(machine.world.count("hook"), 2U);
  EXPECT_GE(elapsed_until(machine.world, "end"), 18s);
  EXPECT_LE(elapsed_until(machine.world, "end"), 22s);
}

TEST(Confirmation, WhatIsNotConfirmedAfterAnActionComesAgainForEachAfterAnotherCount) {
  SimulatedMachine machine(card(kBurstAfterTheHook));
  machine.world.action_takes = [] { return 1s; };
  machine.world.script.holders = [](Instant, unsigned) { return std::vector<GpuProcess>{holder_for_test(4711)}; };
  machine.world.send_from(kTestBegins + 40s, SIGINT);
  EachSettings settings;
  settings.steps = {
      {.when = *parse_rule("util < 90 for 5 samples"), .actions = {*parse_action("exec=true"), *parse_action("end")}}};
  settings.every = 2s;
  settings.controlled = false;
  Listening sink;
  (void)EachSession(std::move(settings), machine.world, sink).run();
  EXPECT_EQ(machine.world.count("exec=true"), 2U);
  EXPECT_GE(elapsed_until(machine.world, "end 4711"), 18s);
  EXPECT_LE(elapsed_until(machine.world, "end 4711"), 22s);
}

TEST(Confirmation, NothingIsConfirmedWhereTheNewestDataCannotBeRead) {
  sim::Plan plan = card({});
  sim::Fault fault;  // the mean of the time before is known, what is now is not
  fault.from_ns = Duration(8s + 1ms).count();
  fault.to_ns = Duration(50s).count();
  fault.code = static_cast<std::int32_t>(nvml::Return::unknown);
  plan.faults.push_back(fault);
  SimulatedMachine machine(std::move(plan));
  machine.world.job_runs = 40s;
  Listening sink;
  EXPECT_EQ(RunSession(idle_timeout(), machine.world, sink).run().status, 0);
  EXPECT_EQ(machine.world.count("end"), 0U);
}

// ---- every rule and command

TEST(Confirmation, PowerThatRoseJustBeforeTheLastSampleIsSeen) {
  sim::Plan plan = card({});
  auto& power = plan.gpus[0].keyframes[static_cast<unsigned>(sim::Metric::power)];
  power.push_back({.at_ns = 0, .value = 60});
  power.push_back({.at_ns = Duration(8s - 460ms).count(), .value = 300});
  SimulatedMachine machine(std::move(plan));
  machine.world.job_runs = 60s;
  Listening sink;
  EXPECT_EQ(RunSession(run_settings("power < 150W for 5 samples", 2s), machine.world, sink).run().status, 0);
  EXPECT_EQ(machine.world.count("end"), 0U);
  EXPECT_EQ(notes(sink, "not-confirmed"), "not confirmed: GPU 0 at 300 W now\n");
}

TEST(Confirmation, AMeanOverALongTimeDoesNotEndWhoWorksNow) {
  SimulatedMachine machine(card({{.at = 29500ms, .util = 100}}));
  machine.world.job_runs = 35s;
  Listening sink;
  EXPECT_EQ(RunSession(run_settings("mean(util, 30s) < 20 for 30s", 2s), machine.world, sink).run().status, 0);
  EXPECT_EQ(machine.world.count("end"), 0U);
}

// What a rule asks of the past is no question to the moment.
TEST(Confirmation, ARuleThatAsksForPastWorkIsConfirmedByPresentIdleness) {
  SimulatedMachine machine(card({{.at = 0s, .util = 90}, {.at = 20s, .util = 0}}));
  machine.world.job_runs = 2min;
  Listening sink;
  EXPECT_EQ(RunSession(run_settings("util < 5 for 10s and mean(util, 30s) > 30", 2s), machine.world, sink).run().status,
            kExitIdle);
  EXPECT_EQ(machine.world.count("end"), 1U);
}

// Who begins to work after its signal, just before SIGKILL, is seen by the newest data alone.
TEST(Confirmation, WhoWorksInTheLastDriverPeriodBeforeTheKillIsNotKilled) {
  for (const bool works : {false, true}) {
    const Duration grace = 10s;
    // Told at 8 s and a little, killed at 18 s and a little; the pre-kill check's mean since the sample before is low.
    SimulatedMachine machine(
        card(works ? std::vector<Load>{{.at = 18500ms, .util = 100}} : std::vector<Load>{}, {.period = 500ms}));
    machine.world.grace = grace;
    machine.world.job_runs = 5min;
    machine.world.send_from(kTestBegins + 40s, SIGINT);
    Listening sink;
    (void)RunSession(run_settings("util < 90 for 5 samples", 2s), machine.world, sink).run();
    EXPECT_EQ(machine.world.count("killed"), works ? 0U : 1U);
  }
}

// ---- what comes between the firing and its confirmation

Script held_and_idle() {
  Script script;
  script.holders = [](Instant, unsigned gpu) {
    return gpu == 0 ? std::vector<GpuProcess>{holder_for_test(10)} : std::vector<GpuProcess>();
  };
  return script;
}

EachSettings end_holders() {
  EachSettings settings;
  settings.steps = {{.when = *parse_rule("util < 1 for 60s"), .actions = {*parse_action("end")}}};
  settings.controlled = false;
  return settings;
}

TEST(Confirmation, MoreTimeThatIsAskedForMeanwhileIsGiven) {
  FakeWorld world(held_and_idle());
  Listening sink;
  EachSession session(end_holders(), world, sink);
  std::string answer;
  // The rule has held at the sample at 60 s.
  world.loop().at(Instant(60s + 100ms), [&] { answer = session.on_keep(1000, "ada", "0", 10min); });
  world.loop().at(Instant(5min), [&] { world.send(SIGTERM); });
  (void)session.run();
  EXPECT_TRUE(answer.starts_with("kept")) << answer;
  EXPECT_EQ(world.count("end 10"), 0U);
}

TEST(Confirmation, EachGpuThatBeginsToWorkMeanwhileIsLeftAlone) {
  Script script = held_and_idle();
  script.util = [](Instant at, unsigned) { return at > Instant(60s + 100ms) ? 90.0 : 0.0; };
  FakeWorld world(std::move(script));
  Listening sink;
  EachSession session(end_holders(), world, sink);
  world.loop().at(Instant(5min), [&] { world.send(SIGTERM); });
  (void)session.run();
  EXPECT_EQ(world.count("end 10"), 0U);
  EXPECT_EQ(notes(sink, "not-confirmed"), "GPU 0: not confirmed: GPU 0 at 90 % now\n");
}

// From the firing at 60 s on, what a sample says is a while old when it is handed over: nobody knows what the job does
// by now.
void hand_over_late(Script& script) {
  script.latency = [](Instant at) { return at > Instant(60s + 50ms) ? Duration(8s) : Duration(2ms); };
  script.age = [](Instant at) { return at > Instant(60s + 50ms) ? Duration(8s) : Duration::zero(); };
}

TEST(Confirmation, ASampleThatWasHandedOverLateConfirmsNothing) {
  Script script;
  hand_over_late(script);
  FakeWorld world(std::move(script));
  world.job_runs = 2min;
  RunSettings settings = run_settings("util < 1 for 60s", 1s);
  settings.on_idle = "hook";
  Listening sink;
  EXPECT_EQ(RunSession(std::move(settings), world, sink).run().status, 0);
  EXPECT_EQ(world.count("end"), 0U);
  EXPECT_EQ(world.count("hook"), 0U);
  EXPECT_TRUE(sink.firings.empty()) << "nothing is announced on old data";
}

TEST(Confirmation, ASampleThatWasHandedOverLateConfirmsNothingForEach) {
  Script script = held_and_idle();
  hand_over_late(script);
  FakeWorld world(std::move(script));
  EachSettings settings = end_holders();
  settings.every = 1s;
  settings.steps[0].actions.insert(settings.steps[0].actions.begin(), *parse_action("exec=true"));
  Listening sink;
  EachSession session(std::move(settings), world, sink);
  world.loop().at(Instant(2min), [&] { world.send(SIGTERM); });
  (void)session.run();
  EXPECT_EQ(world.count("exec=true"), 0U);
  EXPECT_EQ(world.count("end 10"), 0U);
  EXPECT_TRUE(sink.firings.empty()) << "nothing is announced on old data";
  EXPECT_TRUE(sink.noted("not-confirmed"));
}

// Each new sample says yes, but what the driver tells is of the time before the firing.
TEST(Confirmation, ADriverThatTellsNothingNewConfirmsNothing) {
  Script script;
  script.newest_span = [](Instant) { return Duration(10s); };
  FakeWorld world(std::move(script));
  world.job_runs = 2min;
  Listening sink;
  EXPECT_EQ(RunSession(run_settings("util < 1 for 60s", 1s), world, sink).run().status, 0);
  EXPECT_EQ(world.count("end"), 0U);
  EXPECT_TRUE(sink.firings.empty());
  EXPECT_EQ(notes(sink, "not-confirmed"), "not confirmed: the driver has given no new sample within 4s\n");
}

TEST(Confirmation, ADriverThatTellsNothingNewConfirmsNothingForEach) {
  Script script = held_and_idle();
  script.newest_span = [](Instant) { return Duration(10s); };
  FakeWorld world(std::move(script));
  Listening sink;
  EachSession session(end_holders(), world, sink);
  world.loop().at(Instant(2min), [&] { world.send(SIGTERM); });
  (void)session.run();
  EXPECT_EQ(world.count("end 10"), 0U);
  EXPECT_TRUE(sink.firings.empty());
  EXPECT_EQ(notes(sink, "not-confirmed"), "GPU 0: not confirmed: the driver has given no new sample within 4s\n");
}

// We are stopped (SIGSTOP, swapped out) after everything was checked, right before the signal.
TEST(Confirmation, WhoWorksWhileWeAreStoppedRightBeforeTheSignalIsNotSignalled) {
  for (const Duration stop : {Duration(300ms), Duration(2s), Duration(1h)}) {
    for (const bool works : {false, true}) {
      SimulatedMachine machine(
          card(works ? std::vector<Load>{{.at = 8s + 2 * kPeriod + 60ms, .util = 100}} : std::vector<Load>{}));
      machine.world.job_runs = 2h;
      machine.world.send_from(kTestBegins + 3h, SIGINT);
      Duration stopped{};
      machine.world.before_signal = [&] {
        machine.world.clock.advance(stop);
        stopped = machine.world.clock.now() - kTestBegins;
      };
      Listening sink;
      (void)RunSession(idle_timeout(), machine.world, sink).run();
      ASSERT_GT(stopped, 8s);
      EXPECT_EQ(machine.world.count("end"), works ? 0U : 1U) << stop / 1ms;
      if (!works) {
        EXPECT_GE(elapsed_until(machine.world, "end"), stopped + kPeriod);
      }
    }
  }
}

// Each gets its own answer, by a sample that covers the time since it asked.
TEST(Confirmation, ManyMayAskAtOnce) {
  FakeWorld world(Script{});
  Feed feed(world, {.policy = {.idle = *parse_rule("util < 1")}, .every = 1s, .gpus = {}});
  std::vector<Duration> answered(3);
  std::vector<Instant> asked(3);
  const auto confirm = [&](std::size_t number, bool covering) {
    asked[number] = world.clock.now();
    feed.confirm(
        [&, number, covering] {
          answered[number] = world.clock.now() - asked[number];
          EXPECT_GE(feed.newest().asked, asked[number]);
          EXPECT_TRUE(feed.covers() && covering == (number != 1));
        },
        covering);
  };
  world.loop().at(Instant(3s + 300ms), [&] { confirm(0, true); });
  world.loop().at(Instant(3s + 400ms), [&] { confirm(1, false); });
  world.loop().at(Instant(3s + 450ms), [&] { confirm(2, true); });
  world.loop().at(Instant(10s), [&] { world.loop().stop(); });
  feed.begin();
  EXPECT_TRUE(world.loop().run());
  EXPECT_GE(answered[0], 200ms);
  EXPECT_LT(answered[0], 300ms);
  EXPECT_GT(answered[1], 0ms);
  EXPECT_LT(answered[1], 50ms) << "it need not wait for the others";
  EXPECT_GE(answered[2], 200ms);
  EXPECT_LT(answered[2], 300ms);
  EXPECT_FALSE(feed.confirming());
}

// ---- the property of the issue

enum class Kind : std::uint8_t { run, watch, each_gpu, each_job };
// What a rule asks of its GPUs, with the threshold. A mean over time takes twice the interval to be known.
enum class Shape : std::uint8_t { util, any, mean_of_gpus, mean_of_time, power };

struct Case {
  Kind kind = Kind::run;
  Shape shape = Shape::util;
  CardOptions card;
  Duration every{};
  double threshold = 50;
  std::vector<std::vector<Load>> loads;  // of each GPU
  std::vector<unsigned> job_of;          // of each GPU: who uses it, for Kind::each_job
};

std::string rule_of(const Case& one) {
  const auto condition = [&]() -> std::string {
    switch (one.shape) {
      case Shape::util: return fmt::format("util < {}", one.threshold);
      case Shape::any: return fmt::format("any(util) < {}", one.threshold);
      case Shape::mean_of_gpus: return fmt::format("mean(util) < {}", one.threshold);
      case Shape::mean_of_time: return fmt::format("mean(util, {}ms) < {}", 2 * one.every / 1ms, one.threshold);
      case Shape::power: return fmt::format("power < {}W", watts(one.threshold));
    }
    return {};
  };
  return condition() + " for 5 samples";
}

Case random_case(std::mt19937_64& dice) {
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(dice() % static_cast<std::uint64_t>(bound));
  };
  const auto ms = [&](std::int64_t most) { return std::chrono::milliseconds(below(most)); };
  Case one;
  one.kind = static_cast<Kind>(below(4));
  one.shape = static_cast<Shape>(below(5));
  one.card.period = std::array<Duration, 6>{100ms, kPeriod, 167ms, 250ms, 500ms, 1s}[below(6)];
  one.card.ring = below(3) != 0;
  if (below(3) == 0) one.card.lag = ms(600);
  one.card.dry_when_idle = below(3) == 0;
  one.card.has_moment = !one.card.ring || one.card.dry_when_idle || below(4) != 0;
  one.every = std::array<Duration, 5>{500ms, 1s, 2s, 3s, 5s}[below(5)];
  one.threshold = std::array<double, 4>{1, 5, 50, 90}[below(4)];
  // Around the firing, which is at four intervals: a step that stays, or bursts. GPUs work at once, or each for itself.
  const Duration around = 4 * one.every + (one.shape == Shape::mean_of_time ? 2 * one.every : 0s);
  const bool at_once = below(2) == 0;
  for (std::int64_t gpus = one.kind == Kind::each_job ? 2 + below(3) : 1 + below(3); gpus > 0; --gpus) {
    std::vector<Load>& loads = one.loads.emplace_back();
    one.job_of.push_back(one.kind == Kind::each_job ? static_cast<unsigned>(below(3) / 2) : 0);
    if (at_once && one.loads.size() > 1) loads = one.loads.front();
    if (!loads.empty()) continue;
    Duration at = around - 2500ms + ms(6000);
    for (std::int64_t steps = 1 + below(5); steps > 0 && at > 0s; --steps) {
      loads.push_back({at, below(3) == 0 ? static_cast<double>(below(100)) : 100});
      if (below(2) == 0) break;
      at += 50ms + ms(2000);
      loads.push_back({at, 0});
      at += 50ms + ms(2000);
    }
  }
  return one;
}

struct Signalled {
  Duration at{};
  std::vector<std::size_t> gpus;  // by which whoever was signalled is judged
};
struct Ran {
  std::vector<Signalled> signalled;
  std::size_t not_confirmed = 0;
};

constexpr pid_t kHolder = 4711;  // of the first GPU or job; the others' follow

std::size_t subject_of(const Case& one, std::size_t gpu) { return one.kind == Kind::each_gpu ? gpu : one.job_of[gpu]; }

Ran run_case(const Case& one) {
  SimulatedMachine machine(cards(one.loads, one.card));
  machine.world.job_runs = 60s;
  machine.world.send_from(kTestBegins + 60s, SIGINT);
  const std::string rule = rule_of(one);
  Listening sink;
  if (one.kind == Kind::run) {
    (void)RunSession(run_settings(rule, one.every), machine.world, sink).run();
  } else if (one.kind == Kind::watch) {
    WatchSettings settings = watch_settings(rule);
    settings.common.every = one.every;
    (void)WatchSession(std::move(settings), machine.world, sink).run();
  } else {
    machine.world.script.holders = [&](Instant, unsigned gpu) {
      return std::vector<GpuProcess>{holder_for_test(kHolder + static_cast<pid_t>(subject_of(one, gpu)))};
    };
    EachSettings settings;
    settings.who.per = one.kind == Kind::each_gpu ? Per::gpu : Per::job;
    settings.steps = {{.when = *parse_rule(rule), .actions = {*parse_action("kill=holders")}}};
    settings.every = one.every;
    settings.controlled = false;
    (void)EachSession(std::move(settings), machine.world, sink).run();
  }
  Ran ran;
  for (const Happened& what : machine.world.happened) {
    const Duration at = what.at - kTestBegins;
    const bool by_all = what.what == "end" || what.what == "exec=true";
    Signalled signalled{at, {}};
    for (std::size_t gpu = 0; gpu < one.loads.size(); ++gpu)
      if (by_all || what.what == fmt::format("end {}", kHolder + subject_of(one, gpu))) signalled.gpus.push_back(gpu);
    if (!signalled.gpus.empty()) ran.signalled.push_back(std::move(signalled));
  }
  ran.not_confirmed = static_cast<std::size_t>(std::ranges::count(notes(sink, "not-confirmed"), '\n'));
  return ran;
}

// All of the last sample period that the driver can tell of was work, on so many GPUs that the rule cannot hold.
bool worked_all_of_the_last_period(const Case& one, const Signalled& signalled) {
  const Duration now = signalled.at;
  // Without the moment's value the newest sample of the ring may have ended almost a period ago; with a margin for when
  // we ask.
  const Duration from = now - one.card.lag - one.card.period - (one.card.has_moment ? 0ms : 30ms);
  const auto worked = [&](std::size_t gpu) {
    const std::vector<Load>& loads = one.loads[gpu];
    const auto works = [&](Duration at) { return util_at(loads, at) >= one.threshold + 1; };
    return works(from) && std::ranges::none_of(loads, [&](const Load& step) {
             return step.at > from && step.at <= now && !works(step.at);
           });
  };
  if (one.shape == Shape::any || one.shape == Shape::mean_of_gpus) return std::ranges::all_of(signalled.gpus, worked);
  return std::ranges::any_of(signalled.gpus, worked);
}

TEST(Confirmation, NobodyIsSignalledWhoseGpuWorkedForTheLastPeriodOfItsDriver) {
  const char* more = std::getenv("LULL_CASES");
  const unsigned many = more != nullptr ? static_cast<unsigned>(std::atoi(more)) : 400;
  std::size_t signalled = 0;
  std::size_t refused = 0;
  std::size_t jobs_of_several = 0;
  for (unsigned seed = 0; seed < many && !testing::Test::HasFailure(); ++seed) {
    std::mt19937_64 dice(seed);
    const Case one = random_case(dice);
    SCOPED_TRACE(fmt::format(
        "case {}: kind {}, `{}` on {} GPUs, every {} ms, period {} ms, lag {} ms, ring {}, dry {}, moment {}", seed,
        static_cast<int>(one.kind), rule_of(one), one.loads.size(), one.every / 1ms, one.card.period / 1ms,
        one.card.lag / 1ms, one.card.ring, one.card.dry_when_idle, one.card.has_moment));
    const Ran ran = run_case(one);
    for (const Signalled& signalled_one : ran.signalled)
      EXPECT_FALSE(worked_all_of_the_last_period(one, signalled_one))
          << "signalled at " << signalled_one.at / 1ms << " ms";
    signalled += ran.signalled.size();
    if (one.kind == Kind::each_job)
      jobs_of_several += static_cast<std::size_t>(
          std::ranges::count_if(ran.signalled, [](const Signalled& job) { return job.gpus.size() > 1; }));
    refused += ran.not_confirmed;
  }
  EXPECT_GT(signalled, many / 8) << "or nothing was tried";
  EXPECT_GT(jobs_of_several, many / 40) << "likewise";
  EXPECT_GT(refused, many / 10) << "likewise";
}

}  // namespace
}  // namespace lull
