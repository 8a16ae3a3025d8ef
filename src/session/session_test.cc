// Whole sessions on injected time: a job that starts, idles, is stopped, a hook that hangs, a GPU that is lost, a
// restart, a time limit, Ctrl-C. Random schedules are in schedules_test.cc.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "session/scripts_test.h"
#include "session/trace_log.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

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

TEST(EndingText, TellsTheSignalAndTheGrace) {
  EXPECT_EQ(to_text(Ending::Options{.signal = 0}), "SIGKILL to its process tree");
  EXPECT_EQ(to_text(Ending::Options{.signal = SIGKILL}), "SIGKILL to its process tree");
  EXPECT_EQ(to_text(Ending::Options{.signal = SIGHUP, .grace = 30s}),
            "SIGHUP to its process tree, SIGKILL to what is left after 30s");
}

// The rule fires after a minute; the job works from 66 s to 80 s, and has until 90 s or so.
TEST(RunSessionTest, AJobThatWorkedWithinTheGraceIsNotKilledWhateverThePreKillCheckShows) {
  for (const double last : {0.0, kNotRead}) {
    Script script;
    script.util = [last](Instant at, unsigned) { return at <= Instant(66s) ? 0.0 : at < Instant(80s) ? 90.0 : last; };
    FakeWorld world(script);
    world.grace = 30s;
    world.job_runs = 2min;
    Listening sink;
    EXPECT_EQ(RunSession(run_settings(), world, sink).run().status, 0);
    EXPECT_EQ(world.count("spared"), 1U);
    EXPECT_EQ(world.count("killed"), 0U);
  }
}

// Told to end at 60 s, with a grace of 30 s; from 70 s to 100 s the GPUs, or the driver, say nothing.
TEST(RunSessionTest, WhoCannotBeSeenWhenTheGraceIsOverIsKilledOnceItIsSeenNotToWork) {
  const auto silent = [](Instant at) { return at > Instant(70s) && at < Instant(100s); };
  for (const double later : {0.0, 90.0}) {
    for (const bool driver : {false, true}) {
      Script script;
      script.util = [&](Instant at, unsigned) {
        return silent(at) && !driver ? kNotRead : at >= Instant(100s) ? later : 0.0;
      };
      script.has_driver = [&](Instant at) { return !driver || !silent(at); };
      FakeWorld world(script);
      world.grace = 30s;
      world.job_runs = 150s;
      Listening sink;
      (void)RunSession(run_settings(), world, sink).run();
      EXPECT_GT(world.count("waits"), 0U);
      EXPECT_EQ(world.count("spared"), later > 0 ? 1U : 0U);
      EXPECT_EQ(world.count("killed"), later > 0 ? 0U : 1U);
      EXPECT_GE(time_of(world, later > 0 ? "spared" : "killed"), Instant(100s));
    }
  }
}

// It has left its GPUs, and that is seen.
TEST(RunSessionTest, WhoHasLeftItsGpusAndDoesNotEndIsKilled) {
  Script script;
  script.has_context = [](Instant at, unsigned) { return at < Instant(70s); };
  FakeWorld world(script);
  world.grace = 30s;
  world.job_runs = 150s;
  RunSettings settings = run_settings();
  settings.common.gpus = "";
  Listening sink;
  EXPECT_EQ(RunSession(std::move(settings), world, sink).run().status, kExitIdle);
  EXPECT_EQ(world.count("killed"), 1U);
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

// Told to end at 60 s, the job works from 66 s on and is spared at 90 s; its time was up at 70 s.
TEST(RunSessionTest, ATimeLimitThatFallsIntoAnEndingThatIsCalledOffIsKept) {
  Script script;
  script.util = [](Instant at, unsigned) { return at <= Instant(66s) ? 0.0 : 90.0; };
  FakeWorld world(script);
  world.grace = 30s;
  world.job_runs = 1h;
  RunSettings settings = run_settings();
  settings.common.max_time = 70s;
  Listening sink;
  EXPECT_EQ(RunSession(std::move(settings), world, sink).run().status, kExitIdle);
  EXPECT_EQ(world.count("spared"), 1U);
  EXPECT_EQ(world.count("told"), 2U);
  EXPECT_EQ(world.count("killed"), 1U);
  EXPECT_TRUE(sink.noted("max-time"));
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

// The lists of processes that say where it works may be five seconds old.
TEST(RunSessionTest, WorkThatBeganElsewhereSinceTheLastListIsSeenBeforeTheEnd) {
  for (const Duration every : {500ms, 1000ms, 1700ms, 5000ms})
    for (Instant begins(116s); begins < Instant(125s); begins += 700ms) {
      RunSettings settings = run_settings("util < 1 for 2m", every);
      settings.common.gpus.clear();
      Script script;
      script.util = [](Instant, unsigned gpu) { return gpu == 1 ? 90.0 : 0.0; };
      script.has_context = [begins](Instant at, unsigned gpu) { return gpu == 0 || at >= begins; };
      FakeWorld world(script);
      world.job_runs = 3min;
      Listening sink;
      (void)RunSession(std::move(settings), world, sink).run();
      const Instant end = time_of(world, "end");
      EXPECT_TRUE(end == Instant::max() || end <= begins)
          << begins.time_since_epoch() / 1ms << " every " << every / 1ms;
    }
}

// Whoever records a job of a few seconds wants all of them, though a rule of an hour needs no lists that are that new.
TEST(RunSessionTest, ARecordingHasTheRowsOfAShortJobFromTheSampleOnThatSawItsGpu) {
  const std::string path = testing::TempDir() + "recording-" + std::to_string(::getpid()) + ".csv";
  RunSettings settings = run_settings("util < 1 for 1h", 1s);
  settings.common.gpus.clear();
  settings.common.watch_work = true;
  Script script;
  script.has_context = [](Instant at, unsigned gpu) { return gpu == 1 && at >= Instant(2500ms); };
  FakeWorld world(script);
  world.job_runs = 5500ms;
  Listening sink;
  RecordingSink recording(sink, *TraceLog::open(path, RecordingSink::layout(path)), {});
  EXPECT_EQ(RunSession(std::move(settings), world, recording).run().status, 0);
  recording.finish();
  const std::string text = *read_file(path);
  EXPECT_EQ(std::ranges::count(text, '\n'), 4) << "a header, and the samples at 3, 4 and 5 s:\n" << text;
  EXPECT_FALSE(sink.noted("record"));
  ::unlink(path.c_str());
}

TEST(RunSessionTest, ARecordingThatHasNoRowsIsSaid) {
  const std::string path = testing::TempDir() + "no-rows-" + std::to_string(::getpid()) + ".csv";
  RunSettings settings = run_settings();
  settings.common.gpus.clear();
  Script script;
  script.has_context = [](Instant, unsigned) { return false; };
  FakeWorld world(script);
  world.job_runs = 60s;
  Listening sink;
  RecordingSink recording(sink, *TraceLog::open(path, RecordingSink::layout(path)), {});
  EXPECT_EQ(RunSession(std::move(settings), world, recording).run().status, 0);
  recording.finish();
  EXPECT_TRUE(sink.noted("record"));
  ::unlink(path.c_str());
}

// The first sample comes late, since cards have to be attached; the grid begins with it.
TEST(RunSessionTest, ARuleOfTwoIntervalsFiresAfterTwoIntervals) {
  Script script;
  script.latency = [](Instant at) { return at < Instant(1s) ? 45ms : 2ms; };
  FakeWorld world(script);
  Listening sink;
  EXPECT_EQ(RunSession(run_settings("util < 1 for 10s"), world, sink).run().status, kExitIdle);
  EXPECT_LT(time_of(world, "end"), Instant(10s + 300ms)) << "and its confirmation";
}

TEST(WatchSessionTest, ActsOnceAndEndsWithTheStatusAskedFor) {
  WatchSettings settings = watch_settings();
  settings.actions.push_back(*parse_action("exit=7"));
  FakeWorld world(busy_until(Instant(30s)));
  Listening sink;
  EXPECT_EQ(WatchSession(std::move(settings), world, sink).run().status, 7);
  EXPECT_EQ(world.count("exec=true"), 1U);
}

TEST(WatchSessionTest, SlowReadingsDoNotStretchTheWindow) {
  WatchSettings settings = watch_settings("util < 70 for 10s");
  settings.common.every = 1s;
  Script script = busy_until(Instant(10s));
  script.latency = [](Instant) { return 600ms; };
  FakeWorld world(script);
  Listening sink;
  EXPECT_EQ(WatchSession(std::move(settings), world, sink).run().status, 0);
  EXPECT_GE(time_of(world, "exec=true"), Instant(20s));
  EXPECT_LE(time_of(world, "exec=true"), Instant(23s)) << "a tick a reading would make it 26 s";
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
  EXPECT_TRUE(std::ranges::any_of(sink.all_action_events,
                                  [](const ActionEvent& one) { return std::holds_alternative<NoLongerWanted>(one); }));
}

// The screen says "shutdown in 27m (lull watch --cancel)" before the rule has fired: then that must help.
TEST(WatchSessionTest, ACancelBeforeTheRuleFiresRestartsTheCount) {
  WatchSettings settings = watch_settings();
  FakeWorld world(busy_until(Instant(0s)));
  Listening sink;
  WatchSession session(std::move(settings), world, sink);
  std::string answer;
  world.loop().at(Instant(40s), [&] { answer = session.on_cancel("ada"); });
  EXPECT_EQ(session.run().status, 0);
  EXPECT_TRUE(answer.starts_with("cancelled: exec=true")) << answer;
  EXPECT_GE(time_of(world, "exec=true"), Instant(100s));
}

TEST(WatchSessionTest, WhileTheGpusWorkThereIsNothingToCancel) {
  WatchSettings settings = watch_settings();
  FakeWorld world(busy_until(Instant(30s)));
  Listening sink;
  WatchSession session(std::move(settings), world, sink);
  std::string answer;
  world.loop().at(Instant(20s), [&] { answer = session.on_cancel("ada"); });
  EXPECT_EQ(session.run().status, 0);
  EXPECT_TRUE(answer.starts_with("nothing to cancel")) << answer;
}

}  // namespace
}  // namespace lull
