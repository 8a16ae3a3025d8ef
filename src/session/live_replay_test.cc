// Replay says what would have happened live. Here that is tried on the whole of it: a day of a simulated machine is
// watched by a real session, through the simulated driver's library and the real sensor code, on a warped clock; what
// the session saw is recorded in the same pass by what `lull record` writes with; and that file is replayed. Every
// firing must be the same, to the nanosecond, for the same time held.
//
// (replay/live_test.cc compares the engine alone; tests/e2e/test_replay_live.py whole programs in real time.)

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "session/each_session.h"
#include "session/live_replay_test.h"

namespace lull::live_replay {
namespace {

struct Totals {
  std::size_t samples = 0;
  std::size_t firings = 0;
  std::size_t warnings = 0;
};

// How the sensor gets its turns, beside the machine that it looks at.
using Turns = std::function<void(Dice&, Case&, SimulatedMachine&, replay::ReplayOptions&, Duration length)>;

Totals compare(unsigned many, const Turns& turns, bool bare = false) {
  Totals totals;
  for (unsigned seed = 0; seed < cases(many) && !testing::Test::HasFailure(); ++seed) {
    Dice dice(seed);
    Case one = random_case(dice);
    const Duration length = one.every * (50 + below(dice, 300));
    SimulatedMachine machine(random_plan(dice, length, bare));
    replay::ReplayOptions options;
    turns(dice, one, machine, options, length);
    SCOPED_TRACE(fmt::format("case {}: {} every {}ms{}", seed, to_text(one.policy.idle), one.every / 1ms,
                             options.every ? ", resampled" : ""));
    Recording recording(machine, one_of<const char*>(dice, {"day.csv", "day.ndjson", "day.csv.zst"}));
    Firings live(machine.world.clock);
    watch(machine, one, length, live);
    options = as_replayed(one, std::move(options));
    expect_same(live, recording.replay(options));
    if (one.warn_by) {
      options.policy = {.idle = *one.warn_by};
      std::vector<std::int64_t> said;
      for (const Found& firing : found_by(recording.replay(options))) said.push_back(firing.at);
      EXPECT_EQ(live.warned, said) << "warning by " << to_text(*one.warn_by);
    }
    totals.samples += recording.samples().size();
    totals.firings += live.found.size();
    totals.warnings += live.warned.size();
  }
  return totals;
}

TEST(LiveIsReplay, EveryFiringOfASimulatedMachineOnAWarpedClockIsThatOfItsRecording) {
  const Totals totals = compare(30, [](Dice& dice, Case& one, auto&, replay::ReplayOptions& options, Duration) {
    if (one_in(dice, 2)) options.every = one.every;
  });
  EXPECT_GT(totals.samples, 3000U);
  EXPECT_GT(totals.firings, 50U);
  EXPECT_GT(totals.warnings, 20U);
}

// Whatever the driver and the machine let us wait for: turns that come late, by a little or by more than a gap.
TEST(LiveIsReplay, EveryFiringIsTheSameWhereTheSensorIsStarved) {
  const Totals totals = compare(
      30, [](Dice& dice, Case& one, SimulatedMachine& machine, replay::ReplayOptions& options, Duration length) {
        one.delay = {};  // counts from the first sample in replay, from a little before it live
        options.gap = longest_gap(one.every);
        const std::int64_t most = one.every / 10ms;
        machine.latency = [&dice, most](Instant) { return milliseconds(1 + below(dice, most)); };
        for (Instant at = kTestBegins; at < kTestBegins + length;) {
          at += one.every * (3 + below(dice, 40)) + milliseconds(below(dice, 1000));
          const Duration edge = longest_gap(one.every);
          const Duration lasts = one_of<Duration>(dice, {edge, edge - 1ms, edge + 1ms, one.every * 2, one.every * 9});
          machine.starved.push_back({at, at + lasts});
          at += lasts;
        }
      });
  EXPECT_GT(totals.samples, 3000U);
  EXPECT_GT(totals.firings, 50U);
}

// On the grid, so that nothing is to be made up between the samples: then --every changes nothing, also where samples
// are missing for so long that it is a gap. (A card with an account of its own may tell what it did in the gap: replay
// makes nothing of that with --every, and begins with the next sample.)
TEST(LiveIsReplay, EveryFiringIsTheSameWhereSamplesAreMissing) {
  for (const bool resampled : {false, true}) {
    const auto turns = [&](Dice& dice, Case& one, SimulatedMachine& machine, auto& options, Duration length) {
      if (resampled) options.every = one.every;
      const std::int64_t fewest = longest_gap(one.every) / one.every;
      machine.drops = true;
      for (Instant at = kTestBegins; at < kTestBegins + length;) {
        at += one.every * (3 + below(dice, 40));
        const std::int64_t missing = fewest + (resampled ? 0 : below(dice, 2) - 1) + below(dice, 3);
        machine.starved.push_back({at + 1ms, at + one.every * (missing + 1)});
        at += one.every * missing;
      }
    };
    const Totals totals = compare(20, turns, resampled);
    EXPECT_GT(totals.samples, 2000U);
    EXPECT_GT(totals.firings, 30U);
  }
}

// The driver's own account reaches back 10 s. What a card did in a longer time without a look nobody knows, whatever it
// does before and after: a streak cannot go over that, though no gap is long enough to break it.
TEST(LiveIsReplay, WhatWasNotCoveredWasNotSeen) {
  for (const bool ring : {true, false}) {
    SCOPED_TRACE(ring ? "with a sample buffer" : "with momentary values alone");
    sim::Plan plan;
    sim::GpuPlan& gpu = plan.gpus.emplace_back();
    gpu.gpu = sim::model("H100").value();
    sim::place(gpu.gpu, 0, 1);
    gpu.gpu.sample_buffer = ring ? 1 : 0;
    const auto util = [&](Duration at, double percent) {
      gpu.keyframes[static_cast<unsigned>(sim::Metric::util)].push_back({.at_ns = at.count(), .value = percent});
    };
    util(0s, 0);
    util(102s, 100);
    util(108s, 0);
    // A context, as a job has that idles: without one a driver records nothing.
    sim::Load job;
    job.pid = 100'000;
    job.step_count = 1;
    plan.processes.push_back(job);
    SimulatedMachine machine(std::move(plan));
    machine.latency = [](Instant) { return 1ms; };
    machine.starved.push_back({kTestBegins + 101s, kTestBegins + 119s});  // 23 s after the sample before: no gap yet
    Case one;
    one.policy.idle = *parse_rule("util < 1 for 60s");
    one.every = 8s;
    Recording recording(machine, "day.csv");
    Firings live(machine.world.clock);
    watch(machine, one, 400s, live);
    expect_same(live, recording.replay(as_replayed(one, {})));
    ASSERT_EQ(live.found.size(), 2U);
    EXPECT_LT(live.found[0].at, (kTestBegins + 101s).time_since_epoch().count());
    EXPECT_GE(live.found[1].at, (kTestBegins + 179s).time_since_epoch().count());
  }
}

// ---- many at once

// Each GPU by itself, by a ladder of two rules. A step that fires is confirmed by one more sample (or two, where both
// fire at once), which is recorded as all others: live it is told of if the rule still holds then. Rules that count
// samples are left out: live such a sample does not count, and the recording here does not say which those are.
void expect_told(const std::vector<Instant>& told, const replay::ReplayResult& result, std::size_t gpu,
                 const std::vector<Instant>& samples) {
  std::vector<Instant> said;
  for (const replay::Firing& firing : result.firings) {
    if (firing.gpu != gpu) continue;
    const auto last = std::ranges::upper_bound(samples, firing.at) + 1;
    const bool holds_on = last < samples.end() && firing.at + firing.after > *last;
    if (holds_on || std::ranges::count(told, firing.at) > 0) said.push_back(firing.at);
  }
  const auto seconds = [](const std::vector<Instant>& times) {
    std::vector<double> out;
    for (const Instant at : times) out.push_back(std::chrono::duration<double>(at - kTestBegins).count());
    return out;
  };
  EXPECT_EQ(seconds(told), seconds(said));
}

TEST(LiveIsReplay, EachStepFiresForEachGpuAsItsRuleReplayedForThatGpu) {
  std::size_t firings = 0;
  for (unsigned seed = 0; seed < cases(20) && !HasFailure(); ++seed) {
    Dice dice(seed + 1000);
    EachSettings settings;
    settings.who = {.per = Per::gpu, .free_too = true};
    settings.every = one_of<Duration>(dice, {1s, 5s});
    const auto rule_of_time = [&] {
      Rule rule = random_rule(dice);
      while (rule.text.find("samples") != std::string::npos) rule = random_rule(dice);
      return rule;
    };
    settings.steps.push_back({rule_of_time(), {}});
    do settings.steps.resize(1), settings.steps.push_back({rule_of_time(), {}});
    while (settings.steps[1].when.text == settings.steps[0].when.text);
    settings.dry_run = true;
    settings.controlled = false;
    const std::vector<EachStep> steps = settings.steps;
    const Duration gap = longest_gap(settings.every);
    const Duration length = settings.every * (50 + below(dice, 300));
    SCOPED_TRACE(fmt::format("case {}: {}, then {}", seed, to_text(steps[0].when), to_text(steps[1].when)));
    SimulatedMachine machine(random_plan(dice, length));
    machine.latency = [](Instant) { return 1ms; };
    Recording recording(machine, "day.csv");
    Firings live(machine.world.clock);
    machine.world.loop().at(kTestBegins + length, [&] { machine.world.send(SIGTERM); });
    EXPECT_EQ(EachSession(std::move(settings), machine.world, live).run().status, 128 + SIGTERM);
    for (const EachStep& step : steps) {
      replay::ReplayOptions options;
      options.policy.idle = step.when;
      options.gap = gap;
      const replay::ReplayResult result = recording.replay(options);
      for (std::size_t gpu = 0; gpu < result.gpus.size(); ++gpu) {
        std::vector<Instant> told;
        for (const FiringFacts& facts : live.all)
          if (facts.why.rule == step.when.text && facts.scope.at(0).uuid == result.gpus[gpu].uuid)
            told.emplace_back(
                (facts.why.since + (facts.why.running ? facts.why.held : facts.why.window)).time_since_epoch());
        SCOPED_TRACE(fmt::format("{} on GPU {}", to_text(step.when), gpu));
        expect_told(told, result, gpu, recording.samples());
        firings += told.size();
      }
    }
  }
  EXPECT_GT(firings, 50U);
}

// ---- a recording that is there already

constexpr sim::Metric kPlayed[] = {sim::Metric::util, sim::Metric::power, sim::Metric::mem_used, sim::Metric::temp};

// One moment of a recording: its values of each GPU, NaN where the cell is empty; and what the machine showed since the
// one before.
using Values = std::array<double, std::size(kPlayed)>;
struct Moment {
  Duration at{};
  std::vector<Values> written;
  std::vector<Values> shown;
};

// As a recorder would have written it that knows what it did not see: after a gap it cannot tell what the time was
// like, and of a card that gave no util it asks for none before the next sample, whose moment stands for 1.5 s alone.
std::vector<Moment> random_recording(Dice& dice, std::size_t gpus, Duration every, bool with_power) {
  std::vector<Moment> moments;
  std::vector<bool> idle(gpus);
  std::vector<bool> refused(gpus);
  Duration at{};
  bool after_gap = false;
  for (std::int64_t rows = 60 + below(dice, 200); rows > 0; --rows) {
    Moment& moment = moments.emplace_back(Moment{at, {}, {}});
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
      if (one_in(dice, 12)) idle[gpu] = !idle[gpu];
      const Values shown = {static_cast<double>(below(dice, idle[gpu] ? 6 : 101)),
                            static_cast<double>(60 + below(dice, idle[gpu] ? 50 : 240)),
                            static_cast<double>(below(dice, 3)) * (1 << 30), static_cast<double>(30 + below(dice, 50))};
      moment.shown.push_back(shown);
      moment.written.push_back(shown);
      Values& written = moment.written.back();
      if (after_gap) written[0] = written[1] = kUnknown;
      if (refused[gpu] && every > kMomentStands && !with_power) written[0] = kUnknown;
      refused[gpu] = one_in(dice, 30);
      if (refused[gpu]) moment.shown.back()[0] = written[0] = kUnknown;
    }
    after_gap = one_in(dice, 30);
    at += every * (after_gap ? longest_gap(every) / every + 1 + below(dice, 4) : 1);
  }
  return moments;
}

std::string as_csv(const std::vector<Moment>& moments) {
  std::string text = "time,gpu,util_percent,power_watts,mem_used_bytes,temp_celsius\n";
  for (const Moment& moment : moments)
    for (std::size_t gpu = 0; gpu < moment.written.size(); ++gpu) {
      text += fmt::format("{},{}", (kTestBegins + moment.at).time_since_epoch().count(), gpu);
      for (const double value : moment.written[gpu]) text += std::isnan(value) ? "," : fmt::format(",{}", value);
      text += '\n';
    }
  return text;
}

// Each row stands for the time since the one before it: its values are set when that one has been read, on cards that
// answer with what they show and nothing else, so that what is read at its time is just what it says.
TEST(LiveIsReplay, ARecordingPlayedRowByRowFiresAsItsReplay) {
  std::size_t samples = 0;
  std::size_t firings = 0;
  for (unsigned seed = 0; seed < cases(25) && !HasFailure(); ++seed) {
    Dice dice(seed + 2000);
    Case one = random_case(dice);
    do one.policy.idle = random_rule(dice);
    while (one.policy.idle.text.find("procs") != std::string::npos ||
           one.policy.idle.text.find("mem_util") != std::string::npos ||
           one.policy.idle.text.find('%') != std::string::npos);
    one.warn_by.reset();
    SCOPED_TRACE(fmt::format("case {}: {} every {}ms", seed, to_text(one.policy.idle), one.every / 1ms));
    const auto gpus = static_cast<unsigned>(1 + below(dice, 3));
    const std::vector<Moment> moments =
        random_recording(dice, gpus, one.every, policy_uses(one.policy, {Metric::power}));
    sim::Plan plan;
    for (unsigned i = 0; i < gpus; ++i) {
      sim::Gpu& gpu = plan.gpus.emplace_back().gpu;
      gpu = sim::model("A100").value();
      sim::place(gpu, i, gpus);
      gpu.sample_buffer = gpu.energy_counter = 0;
      gpu.memory_reserved = 0;
    }
    SimulatedMachine machine(std::move(plan));
    machine.drops = true;
    for (std::size_t i = 1; i < moments.size(); ++i)
      if (moments[i].at - moments[i - 1].at > one.every)
        machine.starved.push_back({kTestBegins + moments[i - 1].at + 1ns, kTestBegins + moments[i].at});
    const auto show = [&](const Moment& moment) {
      std::vector<sim::Change> changes;
      for (unsigned gpu = 0; gpu < gpus; ++gpu)
        for (std::size_t m = 0; m < std::size(kPlayed); ++m) {
          const double value = moment.shown[gpu][m];
          changes.push_back({gpu, kPlayed[m], std::isnan(value) ? sim::kUnsupported : value});
        }
      ASSERT_TRUE(machine.writer().set(changes));
    };
    std::size_t next = 0;
    show(moments[next++]);
    machine.on_read = [&](const Snapshot& snapshot) {
      EXPECT_EQ(snapshot.at, kTestBegins + moments[next - 1].at);
      if (next < moments.size()) show(moments[next++]);
    };
    Firings live(machine.world.clock);
    watch(machine, one, moments.back().at + 1ms, live);
    const TestTree folder;
    folder.write("recording.csv", as_csv(moments));
    replay::ReplayOptions options = as_replayed(one, {});
    if (one_in(dice, 2)) options.every = one.every;
    options.paths = {folder.at("recording.csv")};
    options.columns = *trace::parse_columns("time=time:ns");
    const auto result = replay::replay(options);
    ASSERT_TRUE(result) << result.error().message();
    expect_same(live, *result);
    samples += moments.size();
    firings += live.found.size();
  }
  EXPECT_GT(samples, 2000U);
  EXPECT_GT(firings, 50U);
}

}  // namespace
}  // namespace lull::live_replay
