// Many at once on injected time: each GPU or job by itself, ladders, hours.

#include "session/each_session.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "session/each_session_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

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
      held_by({{0, {holder_for_test(10, 1000, "pod:7")}}, {3, {holder_for_test(11, 1000, "pod:7")}}}, idle));
  Listening sink;
  run_for(each(Per::job), world, sink, 2min);
  ASSERT_TRUE(sink.about.contains("end"));
  EXPECT_EQ(sink.about["end"].job, "pod:7");
  EXPECT_EQ(sink.about["end"].gpus, (std::vector<std::string>{"0", "3"}));
  EXPECT_EQ(sink.about["done"].job, "pod:7");
}

TEST(EachSessionTest, TheLogSaysWhereAJobHangs) {
  const TestTree folder;
  folder.write("train.py",
               "import os, time\ndef train_step():\n  os.write(1, b'.')\n  time.sleep(1000)\ntrain_step()\n");
  int ready[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const std::string program = folder.at("train.py");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ready[1], STDOUT_FILENO);
    ::execl("/usr/bin/python3", "python3", "-S", "-E", program.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ready[1]);
  char byte = 0;
  const bool runs = ::read(ready[0], &byte, 1) == 1;
  ::close(ready[0]);
  for (const bool for_hangs : {true, false}) {
    GpuProcess one = holder_for_test(pid, ::geteuid());
    const std::string stat = "/" + std::to_string(pid) + "/stat";
    one.start_ticks = read_process_entry(pid)->start_ticks;
    FakeWorld world(held_by({{0, {one}}}, idle));
    std::filesystem::create_directories(world.root().proc + "/" + std::to_string(pid));
    std::ofstream(world.root().proc + stat) << *read_file("/proc" + stat);
    Listening sink;
    EachSettings settings = each(Per::job);
    settings.steps[0].when.for_hangs = for_hangs;
    run_for(std::move(settings), world, sink, 2min);
    const auto said = std::ranges::find(sink.notes, "where", &std::pair<std::string, std::string>::first);
    ASSERT_EQ(said != sink.notes.end(), for_hangs);
    const std::string text = for_hangs ? said->second : "";
    EXPECT_EQ(text.contains(": the job is at train.py:4 in train_step"), for_hangs) << text;
    EXPECT_EQ(world.count("end " + std::to_string(pid)), 1U);
    std::filesystem::remove_all(world.root().proc + "/" + std::to_string(pid));
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_TRUE(runs);
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
  const auto job = [](pid_t pid) { return holder_for_test(pid, 1000, "pod:7"); };
  FakeWorld world(held_by({{0, {job(10)}}, {1, {job(11)}}, {2, {holder_for_test(12)}}},
                          [](Instant at, unsigned gpu) { return gpu == 1 && at < Instant(5min) ? 50.0 : 0.0; }));
  Listening sink;
  run_for(each(Per::job), world, sink, 10min);
  EXPECT_LE(time_of(world, "end 12"), Instant(75s)) << "another job does not wait for it";
  EXPECT_GE(time_of(world, "end 10"), Instant(6min));
  EXPECT_LE(time_of(world, "end 11"), Instant(6min + 15s));
  EXPECT_EQ(sink.firings.back().job_name, "pod:7");
}

// GPU 0 fires with the sample at 4 s, and a sample out of turn confirms that at 4.2 s: it is none of the five of GPU 1,
// which idles from 3.5 s on. But what it shows of GPU 1 counts.
TEST(EachSessionTest, WhatConfirmsForOneIsNoSampleOfTheOthers) {
  for (const bool works_meanwhile : {false, true}) {
    FakeWorld world(held_by({{0, {holder_for_test(10)}}, {1, {holder_for_test(11)}}}, [=](Instant at, unsigned gpu) {
      if (gpu != 1) return 0.0;
      const bool between = at > Instant(4s + 100ms) && at < Instant(4s + 900ms);
      return at < Instant(3500ms) || (works_meanwhile && between) ? 90.0 : 0.0;
    }));
    Listening sink;
    EachSettings settings = each(Per::gpu, {{"util < 1 for 5 samples", "end"}});
    settings.every = 1s;
    run_for(std::move(settings), world, sink, 1min);
    EXPECT_LT(time_of(world, "end 10"), Instant(5s));
    EXPECT_GE(time_of(world, "end 11"), Instant(works_meanwhile ? 9s : 8s));
    EXPECT_LT(time_of(world, "end 11"), Instant(works_meanwhile ? 10s : 9s));
  }
}

TEST(EachSessionTest, AJobThatWorksOnAGpuThatIsNotWatchedIsNotIdle) {
  const auto job = [](pid_t pid) { return holder_for_test(pid, 1000, "pod:7"); };
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

// Its script would go on, and its GPUs stay allocated.
TEST(EachSessionTest, AProcessOfASlurmJobIsNotEnded) {
  ::unsetenv("SLURM_JOB_ID");
  for (const Per per : {Per::gpu, Per::job}) {
    FakeWorld world(held_by({{0, {holder_for_test(10, 1000, "slurm:7"), holder_for_test(11)}}}, idle));
    Listening sink;
    run_for(each(per), world, sink, 10min);
    EXPECT_EQ(world.count("end 10"), 0U);
    EXPECT_GE(world.count("end 11"), 1U) << "another one is";
    EXPECT_TRUE(sink.noted("spared"));
  }
  ::setenv("SLURM_JOB_ID", "7", 1);  // its own user watches from inside
  FakeWorld world(held_by({{0, {holder_for_test(10, 1000, "slurm:7")}}}, idle));
  Listening sink;
  run_for(each(Per::gpu), world, sink, 10min);
  ::unsetenv("SLURM_JOB_ID");
  EXPECT_GE(world.count("end 10"), 1U);
}

TEST(EachSessionTest, FromInsideASlurmJobAnotherOneIsNotEnded) {
  ::setenv("SLURM_JOB_ID", "7", 1);
  FakeWorld world(
      held_by({{0, {holder_for_test(10, 1000, "slurm:7")}}, {1, {holder_for_test(11, 1000, "slurm:77")}}}, idle));
  Listening sink;
  run_for(each(Per::job), world, sink, 10min);
  ::unsetenv("SLURM_JOB_ID");
  EXPECT_GE(world.count("end 10"), 1U);
  EXPECT_EQ(world.count("end 11"), 0U);
}

// A command may requeue a job of which another node works, and this one does not ask it.
TEST(EachSessionTest, NoCommandIsRunForASlurmJobWithoutItsOtherNodes) {
  ::unsetenv("SLURM_JOB_ID");
  for (const Per per : {Per::gpu, Per::job}) {
    FakeWorld world(held_by({{0, {holder_for_test(10, 1000, "slurm:7")}}, {1, {holder_for_test(11)}}},
                            [](Instant at, unsigned) { return at.time_since_epoch() / 1min % 5 == 4 ? 90.0 : 0.0; }));
    EachSettings settings = each(per, {{"util < 1 for 60s", "exec=true"}, {"util < 1 for 90s", "mail=ada"}});
    settings.who.free_too = false;
    Listening sink;
    run_for(std::move(settings), world, sink, 30min);
    EXPECT_EQ(world.count("exec=true"), 6U) << "for the other one";
    EXPECT_EQ(world.count("mail=ada"), 12U) << "a notice does nothing";
    const auto spared = [](const std::pair<std::string, std::string>& note) { return note.first == "spared"; };
    EXPECT_EQ(std::ranges::count_if(sink.notes, spared), 1);
    EXPECT_NE(std::ranges::find_if(sink.notes, spared)->second.find("--slurm"), std::string::npos);
    const auto hook = [](const FiringFacts& facts) { return facts.action == "exec=true"; };
    EXPECT_EQ(std::ranges::count_if(sink.firings, hook), 6);
  }
}

TEST(EachSessionTest, AProcessOfASlurmJobIsNotParked) {
  ::unsetenv("SLURM_JOB_ID");
  FakeWorld world(held_by({{0, {holder_for_test(10, 1000, "slurm:7")}}, {1, {holder_for_test(11)}}}, idle));
  Listening sink;
  run_for(each(Per::job, {{"util < 1 for 60s", "park"}}), world, sink, 10min);
  std::set<std::string> parked;
  for (const auto& one : world.happened)
    if (one.what.starts_with("park ")) parked.insert(one.what.substr(0, 7));
  EXPECT_EQ(parked, std::set<std::string>{"park 11"});
  EXPECT_TRUE(sink.noted("spared"));
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
    std::vector<GpuProcess> there;
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
    std::vector<GpuProcess> there;
    if (gpu == 0) there.push_back(holder_for_test(10));
    if (gpu == 0 && at >= Instant(70s)) there.push_back(holder_for_test(11));
    return there;
  };
  for (const Per per : {Per::gpu, Per::job}) {
    FakeWorld world(script);
    world.action_takes = [] { return 20s; };
    Listening sink;
    EachSettings settings = each(per);
    settings.steps[0].actions.insert(settings.steps[0].actions.begin(), *parse_action("exec=slow"));
    run_for(std::move(settings), world, sink, 100s);
    EXPECT_EQ(world.count("exec=slow"), 1U);
    EXPECT_EQ(world.count("end 10"), 0U) << "called off";
    EXPECT_TRUE(sink.noted("called-off"));
  }
}

TEST(EachSessionTest, WhoseProcessesCannotBeListedIsNotJudged) {
  Script script = held_by({}, idle);
  script.holders = [](Instant at, unsigned gpu) -> std::optional<std::vector<GpuProcess>> {
    if (gpu != 0) return std::vector<GpuProcess>();
    if (at > Instant(55s) && at < Instant(5min)) return std::nullopt;
    return std::vector<GpuProcess>{holder_for_test(10)};
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
  const std::map<unsigned, std::vector<GpuProcess>> holders = {
      {0, {holder_for_test(10, 1000), holder_for_test(11, 1001)}},
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
    std::vector<GpuProcess> there;
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

TEST(EachSessionTest, StepsWarnThenEnd) {
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
            "end in 4m at the earliest, once `util < 1 for 5m` holds; working again calls that off");
  EXPECT_EQ(sink.firings[0].keep, "lull keep 10 4h");
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

// One on GPU 0 that is idle for a minute, gets its signal, and has 30 s: what became of it.
struct Fate {
  std::size_t killed = 0;
  std::size_t spared = 0;
};
Fate after_the_grace(std::function<double(Instant)> util) {
  FakeWorld world(held_by({{0, {holder_for_test(10)}}}, [&](Instant at, unsigned) { return util(at); }));
  world.grace = 30s;
  Listening sink;
  run_for(each(Per::gpu), world, sink, 2min);
  return {world.count("killed"), world.count("spared")};
}

TEST(EachSessionTest, WhoIsIdleWhenTheGraceIsOverIsKilled) {
  const Fate fate = after_the_grace([&](Instant) { return 0.0; });
  EXPECT_EQ(fate.killed, 1U);
  EXPECT_EQ(fate.spared, 0U);
}

TEST(EachSessionTest, WhoCannotBeReadWhenTheGraceIsOverIsKilledOnceItCan) {
  Fate fate = after_the_grace([&](Instant at) { return at > Instant(70s) ? kNotRead : 0.0; });
  EXPECT_EQ(fate.killed, 0U);
  EXPECT_EQ(fate.spared, 0U);
  fate = after_the_grace([&](Instant at) { return at > Instant(70s) && at < Instant(100s) ? kNotRead : 0.0; });
  EXPECT_EQ(fate.killed, 1U);
}

TEST(EachSessionTest, WithoutADriverNobodyIsKilled) {
  Script script = held_by({{0, {holder_for_test(10)}}}, idle);
  script.has_driver = [](Instant at) { return at < Instant(70s); };
  FakeWorld world(std::move(script));
  world.grace = 30s;
  Listening sink;
  run_for(each(Per::gpu), world, sink, 2min);
  EXPECT_EQ(world.count("told"), 1U);
  EXPECT_EQ(world.count("killed"), 0U);
}

// Seen at work after its signal: what the pre-kill check shows, or does not, takes nothing back.
TEST(EachSessionTest, AJobThatWorkedWithinTheGraceIsNotKilledWhateverThePreKillCheckShows) {
  for (const double last : {0.0, kNotRead}) {
    const Fate fate = after_the_grace([&](Instant at) {
      return at <= Instant(66s) ? 0.0 : at < Instant(80s) ? 90.0 : last;
    });
    EXPECT_EQ(fate.spared, 1U);
    EXPECT_EQ(fate.killed, 0U);
  }
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
  settings.steps[0].actions.insert(settings.steps[0].actions.begin(), *parse_action("exec=warn"));
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

TEST(EachSessionTest, FreeGpusAreJudgedWhereNobodyIsToBeEnded) {
  FakeWorld world(held_by({{0, {holder_for_test(10)}}}, idle));
  Listening sink;
  EachSettings settings = each(Per::gpu, {{"util < 1 for 60s", "exec=true"}});
  settings.who.free_too = true;
  run_for(std::move(settings), world, sink, 2min);
  EXPECT_EQ(world.count("exec=true"), 4U) << "a hook is told of free GPUs as well";
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
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  EXPECT_EQ(night.until(WallTime(12h + 30s)), 8h - 30s);
  EXPECT_EQ(night.until(WallTime(23h)), 0s);
  EXPECT_EQ(two.until(WallTime(13h + 15min)), 8h + 45min);
  EXPECT_EQ(two.until(WallTime(0s)), 12h + 30min);
}

}  // namespace
}  // namespace lull
