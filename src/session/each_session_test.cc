// Many at once on injected time: each GPU or job by itself, ladders, hours, more time; then random schedules of many
// subjects against what is obviously right: nobody is ended who was not idle, alone and in sight all the while.

#include "session/each_session.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "session/fake_world_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr double kNotRead = std::numeric_limits<double>::quiet_NaN();

EachSettings each(Per per, std::vector<std::pair<std::string, std::string>> rungs = {{"util < 1 for 60s", "end"}}) {
  EachSettings settings;
  settings.who.per = per;
  for (const auto& [rule, action] : rungs) settings.rungs.push_back({*parse_rule(rule), {*parse_action(action)}});
  settings.controlled = false;
  return settings;
}

Script held_by(std::map<unsigned, std::vector<Holder>> holders, std::function<double(Instant, unsigned)> util) {
  Script script;
  script.gpus = 4;
  script.util = std::move(util);
  script.holders = [holders = std::move(holders)](Instant, unsigned gpu) {
    const auto found = holders.find(gpu);
    return found == holders.end() ? std::vector<Holder>() : found->second;
  };
  return script;
}

double idle(Instant, unsigned) { return 0; }

void run_for(EachSettings settings, FakeWorld& world, Sink& sink, Duration time) {
  world.loop().at(Instant(time), [&] { world.send(SIGTERM); });
  EXPECT_EQ(EachSession(std::move(settings), world, sink).run().status, 128 + SIGTERM);
}

Instant time_of(const FakeWorld& world, std::string_view what) {
  for (const Happened& one : world.happened)
    if (one.what == what) return one.at;
  return Instant::max();
}

TEST(EachSessionTest, AnIdleGpuLosesItsHolderAndABusyOneKeepsIt) {
  FakeWorld world(held_by({{0, {holder_for_test(10)}}, {1, {holder_for_test(11)}}},
                          [](Instant, unsigned gpu) { return gpu == 1 ? 90.0 : 0.0; }));
  Listening sink;
  run_for(each(Per::gpu), world, sink, 10min);
  EXPECT_EQ(world.count("end 10"), 1U);
  EXPECT_EQ(world.count("end 11"), 0U);
  EXPECT_GE(time_of(world, "end 10"), Instant(60s));
  EXPECT_LE(time_of(world, "end 10"), Instant(75s));
  ASSERT_EQ(sink.firings.size(), 1U);
  EXPECT_EQ(sink.firings[0].subject, "GPU 0");
  EXPECT_EQ(sink.firings[0].why.gpus, std::vector<std::string>{"0"});
}

TEST(EachSessionTest, TheLineOnATerminalCountsDownForTheNearestToAnAction) {
  FakeWorld world(held_by({{0, {holder_for_test(10)}}, {1, {holder_for_test(11)}}, {2, {holder_for_test(12)}}},
                          [](Instant at, unsigned gpu) {
                            if (gpu == 1) return 90.0;
                            return gpu == 2 && at < Instant(30s) ? 50.0 : 0.0;
                          }));
  Listening sink;
  EachSettings settings = each(Per::gpu, {{"util < 1 for 10m", "notify=variable:X"}, {"util < 1 for 20m", "end"}});
  settings.dry_run = true;
  run_for(std::move(settings), world, sink, 30min);
  ASSERT_GT(sink.progress.size(), 200U);
  const auto shown = [&](const std::string& text) { return std::ranges::count(sink.progress, text) > 0; };
  const std::string counts = " | 3 GPUs: 2 idle, 1 busy";
  EXPECT_TRUE(shown("GPU 0 idle 5m of 10m, would notify variable:X in 5m (lull watch --cancel)" + counts));
  EXPECT_TRUE(shown("GPU 2 idle 9m35s of 10m, would notify variable:X in 25s (lull watch --cancel)" + counts))
      << "0 has had that";
  EXPECT_TRUE(shown("GPU 0 idle 15m of 20m, would end in 5m (lull watch --cancel)" + counts));
  EXPECT_EQ(sink.progress.back(), "3 GPUs: 2 idle, 1 busy") << "all has been said of both";
}

TEST(EachSessionTest, NotesSayWhomTheyAreAbout) {
  FakeWorld world(
      held_by({{0, {holder_for_test(10, 1000, "slurm:7")}}, {3, {holder_for_test(11, 1000, "slurm:7")}}}, idle));
  Listening sink;
  run_for(each(Per::job), world, sink, 2min);
  ASSERT_TRUE(sink.about.contains("end"));
  EXPECT_EQ(sink.about["end"].job, "slurm:7");
  EXPECT_EQ(sink.about["end"].gpus, (std::vector<std::string>{"0", "3"}));
  EXPECT_EQ(sink.about["done"].job, "slurm:7");
}

TEST(EachSessionTest, WhatTheEnvironmentOfAHookSaysIsOfTheOneThatFired) {
  FakeWorld world(held_by({{2, {holder_for_test(10, 1001), holder_for_test(12, 1002)}}}, idle));
  Listening sink;
  run_for(each(Per::gpu, {{"util < 1 for 60s", "exec=true"}}), world, sink, 2min);
  const auto fired = std::ranges::find(sink.firings, "GPU 2", &FiringFacts::subject);
  ASSERT_NE(fired, sink.firings.end());
  std::map<std::string, std::string> said;
  for (const auto& [name, value] : facts_environment(*fired)) said[name] = value;
  EXPECT_EQ(said["LULL_GPU"], "2");
  EXPECT_EQ(said["LULL_GPUS"], "2");
  EXPECT_EQ(said["LULL_PIDS"], "10 12");
  EXPECT_EQ(said["LULL_USERS"], "user1001,user1002");
  EXPECT_EQ(said["LULL_JOB"], "");
}

TEST(EachSessionTest, AJobIsIdleOnlyWhereAllItsGpusAre) {
  const auto job = [](pid_t pid) { return holder_for_test(pid, 1000, "slurm:7"); };
  FakeWorld world(held_by({{0, {job(10)}}, {1, {job(11)}}, {2, {holder_for_test(12)}}},
                          [](Instant at, unsigned gpu) { return gpu == 1 && at < Instant(5min) ? 50.0 : 0.0; }));
  Listening sink;
  run_for(each(Per::job), world, sink, 10min);
  EXPECT_LE(time_of(world, "end 12"), Instant(75s)) << "another job does not wait for it";
  EXPECT_GE(time_of(world, "end 10"), Instant(6min));
  EXPECT_LE(time_of(world, "end 11"), Instant(6min + 15s));
  EXPECT_EQ(sink.firings.back().job_name, "slurm:7");
}

TEST(EachSessionTest, AJobThatWorksOnAGpuThatIsNotWatchedIsNotIdle) {
  const auto job = [](pid_t pid) { return holder_for_test(pid, 1000, "slurm:7"); };
  FakeWorld world(held_by({{0, {job(10)}}, {1, {job(11)}}, {2, {holder_for_test(12)}}, {3, {holder_for_test(13)}}},
                          [](Instant at, unsigned gpu) { return gpu == 1 && at < Instant(5min) ? 50.0 : 0.0; }));
  Listening sink;
  EachSettings settings = each(Per::job);
  settings.gpus = "0,2";
  run_for(std::move(settings), world, sink, 10min);
  EXPECT_LE(time_of(world, "end 12"), Instant(75s)) << "another job does not wait for it";
  EXPECT_GE(time_of(world, "end 10"), Instant(6min));
  EXPECT_LT(time_of(world, "end 10"), Instant::max());
  EXPECT_EQ(world.count("end 11"), 0U) << "where it is, nobody watches";
  EXPECT_EQ(world.count("end 13"), 0U) << "it has nothing that is watched";
}

TEST(EachSessionTest, AProcessThatWorksOnAnotherGpuIsNotEndedForAnIdleOne) {
  FakeWorld world(held_by({{0, {holder_for_test(10)}}, {1, {holder_for_test(10)}}},
                          [](Instant, unsigned gpu) { return gpu == 1 ? 90.0 : 0.0; }));
  Listening sink;
  run_for(each(Per::gpu), world, sink, 10min);
  EXPECT_EQ(world.count("end 10"), 0U);
  EXPECT_TRUE(sink.noted("spared"));
}

TEST(EachSessionTest, WhoComesLateDoesNotInheritTheIdlenessOfWhoWasThere) {
  Script script = held_by({}, idle);
  script.holders = [](Instant at, unsigned gpu) {
    std::vector<Holder> there;
    if (gpu == 0 && at < Instant(50s)) there.push_back(holder_for_test(10));
    if (gpu == 0 && at >= Instant(55s)) there.push_back(holder_for_test(11));
    return there;
  };
  FakeWorld world(script);
  Listening sink;
  run_for(each(Per::gpu), world, sink, 10min);
  EXPECT_EQ(world.count("end 10"), 0U);
  EXPECT_GE(time_of(world, "end 11"), Instant(115s));
}

// Between the firing and the act: a slow notification comes first.
TEST(EachSessionTest, ANewJobOnTheGpuCallsOffWhatWasAboutToBeDone) {
  Script script = held_by({}, idle);
  script.holders = [](Instant at, unsigned gpu) {
    std::vector<Holder> there;
    if (gpu == 0) there.push_back(holder_for_test(10));
    if (gpu == 0 && at >= Instant(70s)) there.push_back(holder_for_test(11));
    return there;
  };
  for (const Per per : {Per::gpu, Per::job}) {
    FakeWorld world(script);
    world.action_takes = [] { return 20s; };
    Listening sink;
    EachSettings settings = each(per);
    settings.rungs[0].actions.insert(settings.rungs[0].actions.begin(), *parse_action("exec=slow"));
    run_for(std::move(settings), world, sink, 100s);
    EXPECT_EQ(world.count("exec=slow"), 1U);
    EXPECT_EQ(world.count("end 10"), 0U) << "called off";
    EXPECT_TRUE(sink.noted("called-off"));
  }
}

TEST(EachSessionTest, WhoseProcessesCannotBeListedIsNotJudged) {
  Script script = held_by({}, idle);
  script.holders = [](Instant at, unsigned gpu) -> std::optional<std::vector<Holder>> {
    if (gpu != 0) return std::vector<Holder>();
    if (at > Instant(55s) && at < Instant(5min)) return std::nullopt;
    return std::vector<Holder>{holder_for_test(10)};
  };
  for (const Per per : {Per::gpu, Per::job}) {
    FakeWorld world(script);
    Listening sink;
    run_for(each(per), world, sink, 10min);
    EXPECT_GE(time_of(world, "end 10"), Instant(6min));
    EXPECT_LT(time_of(world, "end 10"), Instant::max());
    EXPECT_TRUE(sink.noted("not-judged"));
  }
}

TEST(EachSessionTest, UsersThatAreLeftOutAreLeftAlone) {
  const std::map<unsigned, std::vector<Holder>> holders = {{0, {holder_for_test(10, 1000), holder_for_test(11, 1001)}},
                                                           {1, {holder_for_test(12, 1001)}},
                                                           {2, {holder_for_test(13, 1002)}}};
  for (const Per per : {Per::gpu, Per::job}) {
    FakeWorld world(held_by(holders, idle));
    Listening sink;
    EachSettings settings = each(per);
    settings.who.except = {1001};
    run_for(std::move(settings), world, sink, 5min);
    EXPECT_EQ(world.ended_pids, (std::set<pid_t>{10, 13}));

    FakeWorld second(held_by(holders, idle));
    EachSettings only = each(per);
    only.who.only = {1002};
    run_for(std::move(only), second, sink, 5min);
    EXPECT_EQ(second.ended_pids, (std::set<pid_t>{13}));
  }
}

TEST(EachSessionTest, AStoppedHolderIsNotIdleItWaits) {
  Script script = held_by({}, idle);
  script.holders = [](Instant at, unsigned gpu) {
    std::vector<Holder> there;
    if (gpu == 0) there.push_back(holder_for_test(10));
    if (gpu == 0) there[0].stopped = at < Instant(5min);
    return there;
  };
  FakeWorld world(script);
  Listening sink;
  run_for(each(Per::job), world, sink, 10min);
  EXPECT_GE(time_of(world, "end 10"), Instant(6min));
  EXPECT_LT(time_of(world, "end 10"), Instant::max());
}

TEST(EachSessionTest, ALadderWarnsThenEnds) {
  FakeWorld world(held_by({{0, {holder_for_test(10)}}}, idle));
  Listening sink;
  run_for(each(Per::job, {{"util < 1 for 60s", "exec=warn"}, {"util < 1 for 5m", "end"}}), world, sink, 10min);
  EXPECT_GE(time_of(world, "exec=warn"), Instant(60s));
  EXPECT_LE(time_of(world, "exec=warn"), Instant(75s));
  EXPECT_EQ(world.count("exec=warn"), 1U);
  EXPECT_GE(time_of(world, "end 10"), Instant(5min));
  EXPECT_LE(time_of(world, "end 10"), Instant(5min + 15s));
}

TEST(EachSessionTest, ANoticeSaysWhatComesAndWhatCanBeDoneAboutIt) {
  FakeWorld world(held_by({{0, {holder_for_test(10)}}}, idle));
  Listening sink;
  auto settings = each(Per::job, {{"util < 1 for 60s", "notify=slack:file:/etc/secret"}, {"util < 1 for 5m", "end"}});
  settings.dry_run = true;
  run_for(std::move(settings), world, sink, 10min);
  ASSERT_GE(sink.firings.size(), 2U);
  EXPECT_EQ(sink.firings[0].announced,
            "end, once `util < 1 for 5m` holds; working again calls that off, `lull keep 4h` puts it off");
  EXPECT_EQ(sink.firings.back().announced, "end");
}

TEST(EachSessionTest, OutsideTheHoursNothingIsDoneAndWhatHoldsThenIsDoneThen) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  FakeWorld world(held_by({{0, {holder_for_test(10)}}}, idle));  // its clock begins at midnight
  Listening sink;
  EachSettings settings = each(Per::job);
  settings.hours = *Hours::parse("20-22");
  run_for(std::move(settings), world, sink, 24h);
  EXPECT_GE(time_of(world, "end 10"), Instant(20h));
  EXPECT_LE(time_of(world, "end 10"), Instant(20h + 10s));
}

TEST(EachSessionTest, OnlyItsOwnerAndRootGetMoreTimeAndNoMoreThanThereIs) {
  FakeWorld world(held_by({{0, {holder_for_test(10, 1000)}}, {1, {holder_for_test(11, 1001)}}}, idle));
  Listening sink;
  EachSettings settings = each(Per::job);
  settings.keep_at_most = 2h;
  EachSession session(std::move(settings), world, sink);
  std::map<std::string, std::string> said;
  const auto ask = [&](Duration at, std::string name, uid_t user, std::string target, Duration time) {
    world.loop().at(Instant(at),
                    [&, name, user, target, time] { said[name] = session.on_keep(user, "who", target, time); });
  };
  ask(30s, "stranger", 1001, "10", 1h);
  ask(30s, "owner", 1000, "", 1h);
  ask(50min, "again", 1000, "tree:10", 3h);
  ask(100min, "too much", 1000, "gpu0", 3h);
  ask(50s, "nobody", 1005, "", 1h);
  ask(50s, "nothing", 0, "99", 1h);
  world.loop().at(Instant(5h), [&] { world.send(SIGTERM); });
  (void)session.run();
  EXPECT_TRUE(said["stranger"].starts_with("refused: only its owner")) << said["stranger"];
  EXPECT_TRUE(said["owner"].starts_with("kept: job 10")) << said["owner"];
  EXPECT_NE(said["again"].find("(--keep-at-most)"), std::string::npos) << said["again"];
  EXPECT_TRUE(said["nobody"].starts_with("nothing to keep")) << said["nobody"];
  EXPECT_TRUE(said["nothing"].starts_with("nothing to keep")) << said["nothing"];
  EXPECT_LE(time_of(world, "end 11"), Instant(75s)) << "the other one has asked for nothing";
  EXPECT_GE(time_of(world, "end 10"), Instant(2h + 30s));
  EXPECT_LE(time_of(world, "end 10"), Instant(2h + 45s));
}

TEST(EachSessionTest, MoreTimeIsNotInheritedByAnotherUser) {
  Script script = held_by({}, idle);
  script.holders = [](Instant at, unsigned gpu) {
    std::vector<Holder> there;
    if (gpu == 0) there.push_back(at < Instant(5min) ? holder_for_test(10, 1000) : holder_for_test(11, 1001));
    return there;
  };
  FakeWorld world(script);
  Listening sink;
  EachSession session(each(Per::gpu), world, sink);
  world.loop().at(Instant(30s), [&] { (void)session.on_keep(1000, "ada", "0", 10h); });
  world.loop().at(Instant(20min), [&] { world.send(SIGTERM); });
  (void)session.run();
  EXPECT_EQ(world.count("end 10"), 0U);
  EXPECT_GE(time_of(world, "end 11"), Instant(6min));
  EXPECT_LE(time_of(world, "end 11"), Instant(6min + 15s));
}

// Whatever comes in between: the driver is gone for a while, the lists cannot be read, the job works for a moment and
// goes on with another process.
TEST(EachSessionTest, MoreTimeThatWasGivenIsNotTakenBack) {
  Script gone = held_by({{0, {holder_for_test(10, 1000, "slurm:7")}}}, idle);
  gone.has_driver = [](Instant at) { return at < Instant(2min) || at > Instant(3min); };
  Script other =
      held_by({}, [](Instant at, unsigned) { return at > Instant(4min) && at < Instant(5min) ? 50.0 : 0.0; });
  other.holders = [](Instant at, unsigned gpu) -> std::optional<std::vector<Holder>> {
    if (gpu != 0) return std::vector<Holder>();
    if (at > Instant(2min) && at < Instant(3min)) return std::nullopt;
    return std::vector<Holder>{holder_for_test(at < Instant(6min) ? 10 : 11, 1000, "slurm:7")};
  };
  for (const Script& script : {gone, other})
    for (const Per per : {Per::gpu, Per::job}) {
      FakeWorld world(script);
      Listening sink;
      EachSession session(each(per), world, sink);
      world.loop().at(Instant(30s), [&] { (void)session.on_keep(1000, "ada", "", 1h); });
      world.loop().at(Instant(2h), [&] { world.send(SIGTERM); });
      (void)session.run();
      ASSERT_EQ(world.ended_pids.size(), 1U);
      EXPECT_GE(time_of(world, "end " + std::to_string(*world.ended_pids.begin())), Instant(30s + 1h));
    }
}

TEST(EachSessionTest, MoreTimeIsNotLostWhenAnotherUserComesToTheGpu) {
  Script script = held_by({}, idle);
  script.holders = [](Instant at, unsigned gpu) {
    std::vector<Holder> there;
    if (gpu == 0) there.push_back(holder_for_test(10, 1000));
    if (gpu == 0 && at > Instant(5min)) there.push_back(holder_for_test(11, 1001));
    return there;
  };
  FakeWorld world(script);
  Listening sink;
  EachSession session(each(Per::gpu), world, sink);
  world.loop().at(Instant(30s), [&] { (void)session.on_keep(1000, "ada", "0", 1h); });
  world.loop().at(Instant(2h), [&] { world.send(SIGTERM); });
  (void)session.run();
  EXPECT_GE(time_of(world, "end 10"), Instant(30s + 1h));
  EXPECT_LT(time_of(world, "end 10"), Instant::max());
}

TEST(EachSessionTest, WhoWorksAgainMayAskForAllTheTimeAgain) {
  FakeWorld world(held_by({{0, {holder_for_test(10)}}}, [](Instant at, unsigned) {
    return at > Instant(30min) && at < Instant(31min) ? 50.0 : 0.0;
  }));
  Listening sink;
  EachSettings settings = each(Per::job);
  settings.keep_at_most = 1h;
  EachSession session(std::move(settings), world, sink);
  for (const Duration at : {Duration(30s), Duration(40min), Duration(50min)})
    world.loop().at(Instant(at), [&] { (void)session.on_keep(1000, "ada", "", 1h); });
  world.loop().at(Instant(4h), [&] { world.send(SIGTERM); });
  (void)session.run();
  EXPECT_GE(time_of(world, "end 10"), Instant(100min));
  EXPECT_LE(time_of(world, "end 10"), Instant(100min + 15s));
}

TEST(EachSessionTest, MoreTimeWhileItIsWarnedCallsTheEndOff) {
  FakeWorld world(held_by({{0, {holder_for_test(10, 1000)}}}, idle));
  world.action_takes = [] { return 30s; };
  Listening sink;
  EachSettings settings = each(Per::gpu);
  settings.rungs[0].actions.insert(settings.rungs[0].actions.begin(), *parse_action("exec=warn"));
  EachSession session(std::move(settings), world, sink);
  world.loop().at(Instant(80s), [&] { (void)session.on_keep(1000, "ada", "0", 10min); });
  world.loop().at(Instant(20min), [&] { world.send(SIGTERM); });
  (void)session.run();
  EXPECT_EQ(world.count("exec=warn"), 2U) << "and is warned anew";
  EXPECT_GE(time_of(world, "end 10"), Instant(80s + 10min));
  EXPECT_LT(time_of(world, "end 10"), Instant::max());
  EXPECT_TRUE(sink.noted("cancelled"));
  EXPECT_FALSE(sink.noted("called-off")) << "the GPU was idle all the while: that is not the reason";
}

TEST(EachSessionTest, WhoWorksAgainWithinTheGraceIsNotKilledAndWatchedOn) {
  for (const Per per : {Per::gpu, Per::job}) {
    FakeWorld world(held_by({{0, {holder_for_test(10)}}}, [](Instant at, unsigned) {
      return at > Instant(70s) && at < Instant(10min) ? 90.0 : 0.0;
    }));
    world.grace = 30s;
    Listening sink;
    run_for(each(per), world, sink, 20min);
    EXPECT_EQ(world.count("spared"), 1U);
    EXPECT_LE(time_of(world, "spared"), Instant(2min));
    EXPECT_GE(time_of(world, "killed"), Instant(11min))
        << "idle again, for as long as the rule says, and all the grace";
    EXPECT_LT(time_of(world, "killed"), Instant(15min));
  }
}

TEST(EachSessionTest, WhoIsIdleOrCannotBeReadWhenTheGraceIsOverIsKilled) {
  for (const double later : {0.0, kNotRead}) {
    FakeWorld world(
        held_by({{0, {holder_for_test(10)}}}, [&](Instant at, unsigned) { return at > Instant(70s) ? later : 0.0; }));
    world.grace = 30s;
    Listening sink;
    run_for(each(Per::gpu), world, sink, 2min);
    EXPECT_EQ(world.count("killed"), 1U);
    EXPECT_EQ(world.count("spared"), 0U);
  }
}

TEST(EachSessionTest, MoreTimeWithinTheGraceCallsTheKillOffAndAfterItIsRefused) {
  FakeWorld world(held_by({{0, {holder_for_test(10, 1000)}}}, idle));
  world.grace = 30s;
  Listening sink;
  EachSession session(each(Per::gpu), world, sink);
  std::string answer;
  world.loop().at(Instant(80s), [&] { answer = session.on_keep(1000, "ada", "0", 10min); });
  world.loop().at(Instant(20min), [&] { world.send(SIGTERM); });
  (void)session.run();
  EXPECT_TRUE(answer.starts_with("kept: GPU 0 for 10m")) << answer;
  EXPECT_EQ(world.count("told"), 2U);
  EXPECT_GE(time_of(world, "killed"), Instant(80s + 10min + 30s));

  FakeWorld late(held_by({{0, {holder_for_test(10, 1000)}}}, idle));
  late.grace = 30s;
  late.script.latency = [](Instant at) { return at > Instant(75s) ? Duration(2s) : Duration(1ms); };
  EachSession other(each(Per::gpu), late, sink);
  // The last look is under way, and the fake does not take back what it waits for.
  const auto watch_for_it = [&] {
    if (late.count("told") == 1) answer = other.on_keep(1000, "ada", "0", 10min);
  };
  late.loop().at(Instant(61s) + 31s, watch_for_it);
  late.loop().at(Instant(3min), [&] { late.send(SIGTERM); });
  (void)other.run();
  EXPECT_TRUE(answer.starts_with("refused: it is too late for GPU 0")) << answer;
}

TEST(EachSessionTest, ADryRunSaysAndDoesNothing) {
  FakeWorld world(held_by({{0, {holder_for_test(10)}}}, idle));
  Listening sink;
  EachSettings settings = each(Per::gpu);
  settings.dry_run = true;
  run_for(std::move(settings), world, sink, 10min);
  EXPECT_EQ(sink.firings.size(), 1U);
  EXPECT_TRUE(world.ended_pids.empty());
}

TEST(EachSessionTest, CancellingIsOfWhatIsUnderWay) {
  FakeWorld world(held_by({{0, {holder_for_test(10)}}}, idle));
  world.action_takes = [] { return 30s; };
  Listening sink;
  EachSettings settings = each(Per::gpu);
  settings.rungs[0].actions.insert(settings.rungs[0].actions.begin(), *parse_action("exec=warn"));
  settings.retries.most = 0;
  world.action_works = [] { return false; };
  EachSession session(std::move(settings), world, sink);
  std::string early;
  std::string late;
  world.loop().at(Instant(30s), [&] { early = session.on_cancel("ada"); });
  world.loop().at(Instant(70s), [&] { late = session.on_cancel("ada"); });
  world.loop().at(Instant(10min), [&] { world.send(SIGTERM); });
  (void)session.run();
  EXPECT_TRUE(early.starts_with("nothing to cancel: no rule")) << early;
  EXPECT_TRUE(late.starts_with("cancelled: GPU 0")) << late << ": a hook cannot be taken back, what comes after it can";
  EXPECT_EQ(world.count("end 10"), 0U);
}

TEST(EachSessionTest, HowMoreTimeIsAskedFor) {
  const auto asked = read_keep_question(keep_question("slurm:12", 90min));
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->first, "slurm:12");
  EXPECT_EQ(asked->second, 90min);
  EXPECT_EQ(read_keep_question(keep_question("", 1s))->first, "");
  for (const char* wrong : {"", "x", "5", "-5 a", "99999999999999999999 a", "1e9 a"})
    EXPECT_FALSE(read_keep_question(wrong)) << wrong;
}

TEST(EachSessionTest, FreeGpusAreJudgedWhereNobodyIsToBeEnded) {
  FakeWorld world(held_by({{0, {holder_for_test(10)}}}, idle));
  Listening sink;
  EachSettings settings = each(Per::gpu, {{"util < 1 for 60s", "exec=true"}});
  settings.who.free_too = true;
  run_for(std::move(settings), world, sink, 2min);
  EXPECT_EQ(world.count("exec=true"), 4U) << "a hook is told of free GPUs as well";
}

// ---- random schedules

struct Phase {
  Duration lasts;
  double util;
  int holders;  // 0, 1 or 2 of them; negative: cannot be listed
  bool same;    // as in the phase before
};

// What a GPU goes through: phases one after the other, each with its own processes or those of before.
class Story {
 public:
  Story(const std::vector<Phase>& phases, unsigned gpu) {
    pid_t next = static_cast<pid_t>(1000 * (gpu + 1));
    std::vector<Holder> there;
    Instant at{};
    for (const Phase& phase : phases) {
      if (phase.holders >= 0 && !phase.same) {
        there.clear();
        // Some of one job across GPUs.
        for (int i = 0; i < phase.holders; ++i) there.push_back(holder_for_test(++next, 1000, i == 1 ? "slurm:1" : ""));
      }
      parts_.push_back({at, phase.util, phase.holders < 0 ? std::nullopt : std::optional(there)});
      at += phase.lasts;
    }
  }
  double util(Instant at) const { return part(at).util; }
  std::optional<std::vector<Holder>> holders(Instant at) const { return part(at).holders; }

 private:
  struct Part {
    Instant from;
    double util;
    std::optional<std::vector<Holder>> holders;
  };
  const Part& part(Instant at) const {
    const auto after = std::ranges::upper_bound(parts_, at, {}, &Part::from);
    return after == parts_.begin() ? parts_.front() : *std::prev(after);
  }
  std::vector<Part> parts_;
};

// The slow, obvious answer: on every GPU that the process held at the newest sample before it was ended, every sample
// for the time of the rule says idle, lists it, and lists nobody who was not there in the sample before.
void check_end(const FakeWorld& world, pid_t pid, Instant when, Duration time, Duration longest_gap) {
  std::vector<const Seen*> before;
  for (const Seen& one : world.seen)
    if (one.given <= when) before.push_back(&one);
  RC_ASSERT(!before.empty());
  RC_ASSERT(when - before.back()->at <= longest_gap);
  bool held = false;
  for (unsigned gpu = 0; gpu < world.script.gpus; ++gpu) {
    const auto lists = [&](const Seen& one) {
      return one.holders[gpu] && std::ranges::any_of(*one.holders[gpu], [&](const Holder& h) { return h.pid == pid; });
    };
    if (!lists(*before.back())) continue;
    held = true;
    Instant covered = before.back()->at;
    for (std::size_t i = before.size(); i-- > 0 && before.back()->at - covered < time;) {
      const Seen& one = *before[i];
      RC_ASSERT(covered - one.at <= longest_gap);
      covered = one.at;
      RC_ASSERT(one.util[gpu] < 1);  // neither a no nor unknown
      RC_ASSERT(lists(one));
      if (i == 0 || before.back()->at - covered >= time) break;
      for (const Holder& h : *one.holders[gpu])
        RC_ASSERT(before[i - 1]->holders[gpu] &&
                  std::ranges::count(*before[i - 1]->holders[gpu], h.pid, &Holder::pid) > 0);
    }
    RC_ASSERT(before.back()->at - covered >= time);
  }
  RC_ASSERT(held);
}

TEST(EachSessionTest, NobodyIsEverEndedWhoWasNotIdleAndInSightAllTheWhile) {
  unsigned ended = 0;
  const auto property = [&] {
    const auto phase = rc::gen::apply(
        [](int seconds, int util, int holders, bool same) {
          return Phase{std::chrono::seconds(seconds), util < 2 ? kNotRead : util < 9 ? 0.0 : 60.0, holders, same};
        },
        rc::gen::inRange(3, 140), rc::gen::inRange(0, 12),
        rc::gen::weightedElement<int>({{1, -1}, {1, 0}, {6, 1}, {6, 2}}),
        rc::gen::weightedElement<bool>({{3, true}, {1, false}}));
    std::vector<Story> stories;
    for (unsigned gpu = 0; gpu < 3; ++gpu)
      stories.emplace_back(*rc::gen::container<std::vector<Phase>>(12, phase), gpu);
    Script script;
    script.gpus = 3;
    script.util = [&](Instant at, unsigned gpu) { return stories[gpu].util(at); };
    script.holders = [&](Instant at, unsigned gpu) { return stories[gpu].holders(at); };
    const int slow = *rc::gen::inRange(0, 4);
    script.latency = [slow](Instant at) {
      return at.time_since_epoch() / 1s % 7 == slow ? Duration(4s) : Duration(5ms);
    };
    FakeWorld world(script);
    const int takes = *rc::gen::inRange(0, 30);
    world.action_takes = [takes] { return std::chrono::seconds(takes); };
    world.action_works = [n = 0]() mutable { return ++n % 3 != 0; };
    EachSettings settings = each(*rc::gen::element(Per::gpu, Per::job));
    settings.retries.most = 1;
    const int hook = *rc::gen::inRange(0, 2);
    if (hook == 1) settings.rungs[0].actions.insert(settings.rungs[0].actions.begin(), *parse_action("exec=first"));
    const Duration gap = longest_gap(settings.every);
    Listening sink;
    run_for(std::move(settings), world, sink, 15min);
    for (const Happened& one : world.happened)
      if (one.what.starts_with("end ")) {
        ++ended;
        check_end(world, static_cast<pid_t>(std::stoi(one.what.substr(4))), one.at, 60s, gap);
      }
  };
  EXPECT_TRUE(rc::check("nobody is ended who was not idle and in sight", property));
  EXPECT_GT(ended, 20U) << "the schedules are of no use if nobody is ever ended";
}

TEST(EachSessionTest, WhatHappensToOneDoesNotChangeWhenAnotherIsEnded) {
  EXPECT_TRUE(rc::check("each is ended at the time at which it is ended alone", [] {
    std::map<unsigned, Instant> idle_from;
    for (unsigned gpu = 0; gpu < 4; ++gpu) idle_from[gpu] = Instant(std::chrono::seconds(*rc::gen::inRange(0, 300)));
    const auto ended_at = [&](const std::set<unsigned>& used) {
      std::map<unsigned, std::vector<Holder>> holders;
      for (const unsigned gpu : used) holders[gpu] = {holder_for_test(static_cast<pid_t>(10 + gpu))};
      FakeWorld world(held_by(holders, [&](Instant at, unsigned gpu) { return at < idle_from[gpu] ? 50.0 : 0.0; }));
      Listening sink;
      run_for(each(Per::gpu), world, sink, 10min);
      std::map<unsigned, Instant> times;
      for (const unsigned gpu : used) times[gpu] = time_of(world, "end " + std::to_string(10 + gpu));
      return times;
    };
    const auto together = ended_at({0, 1, 2, 3});
    for (unsigned gpu = 0; gpu < 4; ++gpu) {
      const Duration apart = together.at(gpu) - ended_at({gpu}).at(gpu);
      RC_ASSERT(apart < 100ms && apart > -100ms);
    }
  }));
}

TEST(HoursTest, SpansOfTheDay) {
  const Hours night = *Hours::parse("20-08");
  EXPECT_TRUE(night.contain_minute(23 * 60) && night.contain_minute(0) && night.contain_minute(7 * 60 + 59));
  EXPECT_FALSE(night.contain_minute(8 * 60) || night.contain_minute(12 * 60));
  const Hours two = *Hours::parse("12:30-13:15, 22-24");
  EXPECT_TRUE(two.contain_minute(12 * 60 + 30) && two.contain_minute(23 * 60 + 59));
  EXPECT_FALSE(two.contain_minute(12 * 60) || two.contain_minute(13 * 60 + 15) || two.contain_minute(0));
  for (const char* wrong : {"", "20", "20-", "8-8", "25-3", "20:60-8", "a-b", "20-08,", "-5-8"})
    EXPECT_FALSE(Hours::parse(wrong)) << wrong;
  EXPECT_TRUE(Hours().contain_minute(5));
}

}  // namespace
}  // namespace lull
