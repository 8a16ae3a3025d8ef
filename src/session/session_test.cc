// Whole sessions on injected time: a job that starts, idles, is stopped, a hook that hangs, a GPU that is lost, a
// restart, a time limit, Ctrl-C; then thousands of random schedules against what is obviously right.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "session/fake_world_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr double kNotRead = std::numeric_limits<double>::quiet_NaN();

RunSettings run_settings(std::string_view rule = "util < 1 for 60s", Duration every = 5s, Duration delay = 0s) {
  RunSettings settings;
  settings.common.policy = *Policy::parse(rule);
  settings.common.gpus = "all";
  settings.common.every = every;
  settings.common.delay = delay;
  settings.command = {"train"};
  return settings;
}

WatchSettings watch_settings(std::string_view rule = "util < 1 for 60s") {
  WatchSettings settings;
  settings.common.policy = *Policy::parse(rule);
  settings.common.every = 5s;
  settings.actions = {*parse_action("exec=true")};
  settings.controlled = false;
  return settings;
}

Script busy_until(Instant end) {
  Script script;
  script.util = [end](Instant at, unsigned) { return at < end ? 90.0 : 0.0; };
  return script;
}

Instant time_of(const FakeWorld& world, std::string_view what) {
  for (const Happened& one : world.happened)
    if (one.what == what) return one.at;
  return Instant::max();
}

TEST(RunSessionTest, AJobThatIdlesIsEndedAndOneThatWorksIsNot) {
  FakeWorld world(busy_until(Instant(100s)));
  Listening sink;
  EXPECT_EQ(RunSession(run_settings(), world, sink).run().status, kExitIdle);
  EXPECT_GE(time_of(world, "end"), Instant(160s));
  EXPECT_LE(time_of(world, "end"), Instant(171s));

  FakeWorld busy(busy_until(Instant::max()));
  busy.job_runs = 24h;
  EXPECT_EQ(RunSession(run_settings(), busy, sink).run().status, 0);
  EXPECT_EQ(busy.count("end"), 0U);
  EXPECT_EQ(time_of(busy, "job ended"), Instant(24h));
}

TEST(RunSessionTest, EvidenceAndHookComeFirstAndANewSampleHasTheLastWord) {
  RunSettings settings = run_settings();
  settings.on_idle = "hook";
  settings.evidence = testing::TempDir();
  FakeWorld world(busy_until(Instant(0s)));
  world.action_takes = [] { return 7s; };
  Listening sink;
  EXPECT_EQ(RunSession(std::move(settings), world, sink).run().status, kExitIdle);
  EXPECT_EQ(time_of(world, "hook") - time_of(world, "evidence"), 7s);
  const Instant end = time_of(world, "end");
  ASSERT_LT(end, Instant::max());
  const auto newest =
      std::ranges::find_if(world.seen.rbegin(), world.seen.rend(), [&](const Seen& one) { return one.given <= end; });
  EXPECT_GE(newest->asked, time_of(world, "hook") + 7s) << "asked for after the hook";
}

TEST(RunSessionTest, WorkThatBeginsWhileTheHookRunsCallsItOff) {
  RunSettings settings = run_settings();
  settings.on_idle = "hook";
  Script script;
  script.util = [](Instant at, unsigned gpu) {
    return at > Instant(61s) && at < Instant(80s) && gpu == 1 ? 50.0 : 0.0;
  };
  FakeWorld world(script);
  world.action_takes = [] { return 10s; };
  Listening sink;
  EXPECT_EQ(RunSession(std::move(settings), world, sink).run().status, kExitIdle);
  EXPECT_TRUE(sink.noted("called-off"));
  EXPECT_EQ(world.count("hook"), 2U) << "and it begins anew";
  EXPECT_GE(time_of(world, "end"), Instant(140s));
}

TEST(RunSessionTest, AStoppedJobALostGpuAndAPauseOfOursBeginAnew) {
  Script script;
  script.util = [](Instant at, unsigned gpu) {
    return gpu == 1 && at > Instant(110s) && at < Instant(120s) ? kNotRead : 0.0;
  };
  FakeWorld world(script);
  world.loop().at(Instant(50s), [&] { world.stop_job(SIGSTOP); });
  world.loop().at(Instant(55s), [&] { world.stop_job(0); });
  world.loop().at(Instant(170s), [&] { world.clock.advance(1h); });  // the machine slept
  Listening sink;
  EXPECT_EQ(RunSession(run_settings(), world, sink).run().status, kExitIdle);
  EXPECT_GE(time_of(world, "end"), Instant(1h + 230s));
}

TEST(RunSessionTest, RestartsAsOftenAsAskedAndEndsWhenTheTimeIsUp) {
  RunSettings settings = run_settings();
  settings.restarts = 2;
  FakeWorld world(busy_until(Instant(0s)));
  Listening sink;
  EXPECT_EQ(RunSession(std::move(settings), world, sink).run().status, kExitIdle);
  EXPECT_EQ(world.count("start"), 3U);
  EXPECT_EQ(world.count("end"), 3U);

  RunSettings limited = run_settings();
  limited.common.max_time = 10min;
  FakeWorld busy(busy_until(Instant::max()));
  EXPECT_EQ(RunSession(std::move(limited), busy, sink).run().status, kExitIdle);
  EXPECT_EQ(time_of(busy, "end"), Instant(10min));
}

TEST(RunSessionTest, CtrlCGoesToTheJobAndItsStatusIsOurs) {
  FakeWorld world(busy_until(Instant::max()));
  world.loop().at(Instant(33s), [&] { world.send(SIGINT); });
  Listening sink;
  EXPECT_EQ(RunSession(run_settings(), world, sink).run().status, 128 + SIGINT);
  EXPECT_EQ(world.count("signal 2"), 1U);
}

TEST(RunSessionTest, WithoutADriverNothingIsJudgedAndTheJobRunsOn) {
  Script script;
  script.has_driver = [](Instant at) { return at < Instant(20s) || at > Instant(10min); };
  FakeWorld world(script);
  world.job_runs = 650s;
  Listening sink;
  EXPECT_EQ(RunSession(run_settings(), world, sink).run().status, 0);
  EXPECT_EQ(world.count("end"), 0U);
  EXPECT_TRUE(
      std::ranges::any_of(sink.events, [](const Event& one) { return std::holds_alternative<NoGpu>(one.what); }));
}

TEST(WatchSessionTest, ActsOnceAndEndsWithTheStatusAskedFor) {
  WatchSettings settings = watch_settings();
  settings.actions.push_back(*parse_action("exit=7"));
  FakeWorld world(busy_until(Instant(30s)));
  Listening sink;
  EXPECT_EQ(WatchSession(std::move(settings), world, sink).run().status, 7);
  EXPECT_EQ(world.count("exec=true"), 1U);
}

TEST(WatchSessionTest, WhatFailsIsTriedAgainAsOftenAsAllowedOnTheFactsOfTheFiring) {
  WatchSettings settings = watch_settings();
  settings.retries = {.most = 2, .after = 10s};
  FakeWorld world(busy_until(Instant(0s)));
  world.action_works = [] { return false; };
  Listening sink;
  EXPECT_EQ(WatchSession(std::move(settings), world, sink).run().status, kExitFailure);
  EXPECT_EQ(world.count("exec=true"), 3U);
  EXPECT_EQ(sink.firings.size(), 1U);
}

TEST(WatchSessionTest, AWarningIsCalledOffByWork) {
  WatchSettings settings = watch_settings();
  settings.how.warn = 60s;
  Script script;
  script.util = [](Instant at, unsigned) { return at > Instant(90s) && at < Instant(100s) ? 50.0 : 0.0; };
  FakeWorld world(script);
  Listening sink;
  EXPECT_EQ(WatchSession(std::move(settings), world, sink).run().status, 0);
  EXPECT_EQ(world.count("warn"), 2U);
  EXPECT_EQ(world.count("exec=true"), 1U);
  EXPECT_TRUE(
      std::ranges::any_of(sink.all_news, [](const News& one) { return std::holds_alternative<NoLongerWanted>(one); }));
}

// ---- the law, on random schedules

// A thousand schedules of each; LULL_SCHEDULES asks for more.
int rounds() {
  const char* wanted = std::getenv("LULL_SCHEDULES");
  return std::max(1, (wanted != nullptr ? std::atoi(wanted) : 1000) / 100);
}

struct Spell {
  Instant from{};
  double util = 0;
};

// Stretches of work, idleness and silence, some shorter than a sample.
Script random_script(unsigned gpus) {
  Script script;
  script.gpus = gpus;
  auto spells = std::make_shared<std::vector<std::vector<Spell>>>(gpus);
  for (auto& one : *spells) {
    Instant at{};
    for (int i = 0; i < 40; ++i) {
      const int dice = *rc::gen::inRange(0, 100);
      one.push_back({at, dice < 70 ? 0.0 : dice < 90 ? 80.0 : kNotRead});
      at += std::chrono::milliseconds(dice < 70 ? *rc::gen::inRange(1'000, 200'000) : *rc::gen::inRange(100, 20'000));
    }
  }
  script.util = [spells](Instant at, unsigned gpu) {
    double util = 0;
    for (const Spell& spell : (*spells)[gpu])
      if (spell.from <= at) util = spell.util;
    return util;
  };
  const Duration away = std::chrono::seconds(*rc::gen::inRange(0, 3000));
  const Duration back = away + std::chrono::seconds(*rc::gen::element(0, 0, 3, 100));
  script.has_driver = [away, back](Instant at) {
    return at.time_since_epoch() < away || at.time_since_epoch() >= back;
  };
  const int slow = *rc::gen::inRange(0, 5);
  script.latency = [slow](Instant at) {
    const auto second = at.time_since_epoch() / 1s;
    return slow > 0 && second % 97 < slow ? Duration(8s) : Duration(2ms);
  };
  return script;
}

// Pauses of the machine, stops of the job.
void add_troubles(FakeWorld& world) {
  const int pauses = *rc::gen::inRange(0, 4);
  for (int i = 0; i < pauses; ++i) {
    const Duration length = std::chrono::seconds(*rc::gen::element(1, 20, 4000));
    world.loop().at(Instant(std::chrono::seconds(*rc::gen::inRange(1, 2000))),
                    [&world, length] { world.clock.advance(length); });
  }
  const int stops = *rc::gen::inRange(0, 3);
  for (int i = 0; i < stops; ++i) {
    const auto from = std::chrono::seconds(*rc::gen::inRange(1, 2000));
    world.loop().at(Instant(from), [&world] { world.stop_job(SIGSTOP); });
    world.loop().at(Instant(from + std::chrono::seconds(*rc::gen::inRange(1, 300))), [&world] { world.stop_job(0); });
  }
}

// From the firing that was announced to what cannot be undone, nothing but yes was seen.
void check_since_firing(const FakeWorld& world, const Listening& sink, Instant now) {
  const FiringFacts* firing = nullptr;
  for (const FiringFacts& one : sink.firings)
    if (Instant(one.at.time_since_epoch()) <= now) firing = &one;
  RC_ASSERT(firing != nullptr);
  for (const Seen& one : world.seen)
    if (one.given >= Instant(firing->at.time_since_epoch()) && one.given <= now) RC_ASSERT(one.idle);
}

// Whether what cannot be undone may be done now: the slow and obvious way. Every sample of the last `span` that was
// handed over said idle, there was no gap between them, the newest is of now, and nobody stopped the job meanwhile.
void check_law(const FakeWorld& world, Instant now, Duration every, Duration span) {
  const Duration gap = longest_gap(every);
  Instant next = now;
  Instant oldest = now;
  for (auto one = world.seen.rbegin(); one != world.seen.rend(); ++one) {
    if (one->given > now) continue;
    RC_ASSERT(next - one->at <= gap);
    RC_ASSERT(one->idle);
    next = oldest = one->at;
    if (now - oldest >= span) break;
  }
  RC_ASSERT(now - oldest >= span);
  for (const auto& [when, stopped] : world.stopped_at) RC_ASSERT(when < oldest || when > now);
}

TEST(RandomSessions, Faults_A2_A3_WhatCannotBeUndoneFollowsAFreshYesOnly) {
  std::size_t ended = 0;
  std::size_t called_off = 0;
  for (int round = 0; round < rounds(); ++round) {
    ASSERT_TRUE(rc::check([&] {
      const Duration every = *rc::gen::element<Duration>(500ms, 1s, 5s);
      const Duration span = std::chrono::seconds(*rc::gen::element(10, 30, 60));
      RunSettings settings = run_settings("util < 1 for " + std::to_string(span / 1s) + "s", every,
                                          std::chrono::seconds(*rc::gen::element(0, 60)));
      if (*rc::gen::inRange(0, 2) == 1) settings.on_idle = "hook";
      const unsigned restarts = settings.restarts = *rc::gen::inRange(0U, 3U);
      FakeWorld world(random_script(*rc::gen::inRange(1U, 4U)));
      const auto slow = *rc::gen::inRange(0, 40'000);
      world.action_takes = [slow] { return std::chrono::milliseconds(slow); };
      world.job_runs = 1h;
      add_troubles(world);
      Listening sink;
      const int status = RunSession(std::move(settings), world, sink).run().status;
      for (const Happened& one : world.happened)
        if (one.what == "end") {
          check_law(world, one.at, every, span);
          check_since_firing(world, sink, one.at);
        }
      RC_ASSERT((status == kExitIdle) == (world.count("end") > restarts));
      ended += world.count("end");
      called_off += sink.noted("called-off") ? 1 : 0;
    }));
  }
  EXPECT_GT(ended, 5U * static_cast<unsigned>(rounds())) << "or nothing was tried";
  EXPECT_GT(called_off, static_cast<unsigned>(rounds())) << "likewise";
}

TEST(RandomSessions, Faults_A2_A3_WarningsRetriesAndSeveralActionsLikewise) {
  std::size_t acted = 0;
  for (int round = 0; round < rounds(); ++round) {
    ASSERT_TRUE(rc::check([&] {
      WatchSettings settings = watch_settings("util < 1 for 30s");
      if (*rc::gen::inRange(0, 2) == 1) settings.how.warn = std::chrono::seconds(*rc::gen::inRange(1, 120));
      settings.actions.push_back(*parse_action("exec=second"));
      settings.retries = {.most = 3, .after = std::chrono::seconds(*rc::gen::inRange(1, 30))};
      settings.repeat = true;
      FakeWorld world(random_script(*rc::gen::inRange(1U, 4U)));
      const auto fails = *rc::gen::inRange(0, 4);
      world.action_works = [fails, n = 0]() mutable { return ++n % 4 >= fails; };
      const auto slow = *rc::gen::inRange(0, 40'000);
      world.action_takes = [slow] { return std::chrono::milliseconds(slow); };
      add_troubles(world);
      world.loop().at(Instant(1h), [&] { world.send(SIGTERM); });
      Listening sink;
      RC_ASSERT(WatchSession(std::move(settings), world, sink).run().status == 128 + SIGTERM);
      for (const Happened& one : world.happened)
        if (one.what == "exec=true" || one.what == "exec=second") {
          check_law(world, one.at, 5s, 30s);
          check_since_firing(world, sink, one.at);
          ++acted;
        }
    }));
  }
  EXPECT_GT(acted, 10U * static_cast<unsigned>(rounds()));
}

}  // namespace
}  // namespace lull
