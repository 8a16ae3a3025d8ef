// Slurm jobs on injected time: judged by their allocations, answered for, acted on by their first node alone.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "session/each_slurm_test.h"
#include "slurm/keep_comment.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

TEST_F(EachSlurmTest, AnAllocationThatNobodyUsesIsRequeued) {
  give({.job = 22, .gpus = {0, 1}, .nodes = "n1", .restarts = 0});
  FakeWorld world(with_util(idle));
  world.answer_command = running();
  Listening sink;
  run_for(settings(), world, sink, 3min);
  ASSERT_FALSE(verbs.empty());
  EXPECT_EQ(verbs[0], "scontrol requeue");
}

TEST_F(EachSlurmTest, OneBusyGpuOfAJobIsEnoughToKeepIt) {
  give({.job = 22, .gpus = {0, 1}, .nodes = "n1", .restarts = 0});
  FakeWorld world(with_util([](Instant, unsigned gpu) { return gpu == 1 ? 50.0 : 0.0; }));
  world.answer_command = running();
  Listening sink;
  run_for(settings(), world, sink, 10min);
  EXPECT_TRUE(verbs.empty());
}

TEST_F(EachSlurmTest, AGpuThatCannotBeReadIsNotIdle) {
  give({.job = 22, .gpus = {0, 1}, .nodes = "n1", .restarts = 0});
  FakeWorld world(
      with_util([](Instant, unsigned gpu) { return gpu == 1 ? std::numeric_limits<double>::quiet_NaN() : 0.0; }));
  world.answer_command = running();
  Listening sink;
  run_for(settings(), world, sink, 10min);
  EXPECT_TRUE(verbs.empty());
}

TEST_F(EachSlurmTest, OnlyTheFirstNodeActs) {
  give({.job = 22, .gpus = {0}, .nodes = "n[0-1]", .restarts = 0});
  FakeWorld world(with_util(idle));
  world.answer_command = running();
  Listening sink;
  run_for(settings(), world, sink, 10min);
  EXPECT_TRUE(verbs.empty());
  EXPECT_EQ(world.count("run runuser"), 0U);
}

// Slurm gives job 22 so many GPUs on n0; this is n1.
class LeaderTest : public EachSlurmTest {
 protected:
  void run(Duration time = 3min) {
    give({.job = 22, .gpus = {0}, .nodes = "n[0-1]", .restarts = 0});
    Script script = with_util(idle);
    script.newest_span = [this](Instant) { return newest_span; };
    FakeWorld world(std::move(script));
    world.answer_command = [&](const std::vector<std::string>& command) {
      if (command[0] == "squeue") return done(row("n[0-1]", 2));
      if (command[0] == "runuser") {
        ++asked;
        asked_at = world.clock.now();
        return done(to_line(first) + "\n" + to_line(second) + "\n");
      }
      if (command[0] != "env") {
        const std::size_t before = verbs.size();
        HelperResult result = slurm(command);
        if (verbs.size() > before) done_at = world.clock.now();
        return result;
      }
      if (asked == 0) ++looked;
      return HelperResult(details);
    };
    slurm = running();
    Listening sink;
    run_for(settings(), world, sink, time);
  }
  static HelperResult given(const std::string& on_first, const std::string& name = "x") {
    return done(
        fmt::format("JobId=22 JobName={}\n   JobState=RUNNING\n   StartTime=1\n   SuspendTime=None SecsPreSuspend=0\n"
                    "     Nodes=n0 CPU_IDs=0 Mem=0 GRES={}\n     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)\n",
                    name, on_first));
  }
  HelperResult details = given("(null)");
  slurm::Answer first{
      .job = 22, .node = "n0", .says = slurm::Says::yes, .restarts = 0, .gpus = 0, .age = 1s, .every = 5s};
  slurm::Answer second{.job = 22,
                       .node = "n1",
                       .says = slurm::Says::yes,
                       .restarts = 0,
                       .gpus = 1,
                       .numbers = {0},
                       .age = 1s,
                       .every = 5s};
  std::function<HelperResult(const std::vector<std::string>&)> slurm;
  Duration newest_span = Reading().newest_span;
  unsigned asked = 0;
  Instant asked_at{};
  Instant done_at{};
  unsigned looked = 0;
};

TEST_F(LeaderTest, ActsWhereTheNodesBeforeItHaveNoGpuOfTheJob) {
  run();
  ASSERT_FALSE(verbs.empty());
  EXPECT_EQ(verbs[0], "scontrol requeue");
  EXPECT_EQ(looked, 1U) << "once for each run";
}

// By the time that its own idle GPUs are confirmed, so are those of the other nodes.
TEST_F(LeaderTest, AsksTheOtherNodesOnceWhileItConfirms) {
  newest_span = 2s;
  run();
  EXPECT_FALSE(verbs.empty());
  EXPECT_EQ(asked, 1U);
  EXPECT_GE(done_at - asked_at, 2s);
  EXPECT_LE(done_at - asked_at, 3s);
}

TEST_F(LeaderTest, AsksOnceInAStretchThatIsNotConfirmed) {
  newest_span = 10s;  // nothing covers that
  run(5min);
  EXPECT_TRUE(verbs.empty());
  EXPECT_EQ(asked, 1U);
}

TEST_F(LeaderTest, DoesNothingWhereOneBeforeItHasGpus) {
  details = given("gpu:1(IDX:0)");
  run(10min);
  EXPECT_TRUE(verbs.empty());
  EXPECT_EQ(looked, 1U);
  EXPECT_EQ(asked, 0U);
}

TEST_F(LeaderTest, DoesNothingWhereAnAnswerSaysOtherwise) {
  first.gpus = 1;
  first.numbers = {0};
  run(10min);
  EXPECT_GE(asked, 1U);
  EXPECT_TRUE(verbs.empty());
}

TEST_F(LeaderTest, DoesNothingWhereANodeWithoutGpusIsNotWatched) {
  first.says = slurm::Says::nobody;
  run(10min);
  EXPECT_GE(asked, 1U);
  EXPECT_TRUE(verbs.empty());
}

TEST_F(LeaderTest, DoesNothingWhereSlurmDoesNotSayItForSure) {
  for (const HelperResult& unclear : {done("", 1), done("JobId=22 JobName=x\n"), given("shard:1"),
                                      given("(null)", "x\n     Nodes=n0 CPU_IDs=0 Mem=0 GRES=(null)")}) {
    details = unclear;
    looked = 0;
    run(10min);
    EXPECT_TRUE(verbs.empty());
    EXPECT_EQ(asked, 0U);
    EXPECT_GE(looked, 5U) << "it is tried again";
    EXPECT_LE(looked, 10U) << "and not with each sample";
  }
}

TEST_F(EachSlurmTest, AHookForAJobOnTwoNodesWaitsForBoth) {
  give({.job = 22, .gpus = {0}, .nodes = "n[1-2]", .restarts = 0});
  slurm::Answer first{.job = 22,
                      .node = "n1",
                      .says = slurm::Says::yes,
                      .restarts = 0,
                      .gpus = 1,
                      .numbers = {0},
                      .age = 1s,
                      .every = 5s};
  slurm::Answer second = first;
  second.node = "n2";
  for (const bool agree : {false, true}) {
    second.says = agree ? slurm::Says::yes : slurm::Says::no;
    FakeWorld world(with_util(idle));
    world.answer_command =
        [&, slurm = running(to_line(first) + "\n" + to_line(second) + "\n")](const std::vector<std::string>& command) {
          return command[0] == "squeue" ? done(row("n[1-2]", 2)) : slurm(command);
        };
    Listening sink;
    run_for(settings("exec=true"), world, sink, 3min);
    EXPECT_EQ(world.count("exec=true") > 0, agree);
    EXPECT_GE(world.count("run runuser"), 1U);
  }
}

TEST_F(EachSlurmTest, AnswersForTheOwnerAndSaysWhenANoCouldBecomeAYes) {
  give({.job = 22, .gpus = {0}, .nodes = "n[0-1]", .restarts = 2});
  give({.job = 23, .gpus = {}, .nodes = "n[0-1]", .restarts = 0});
  FakeWorld world(with_util([](Instant at, unsigned) { return at < Instant(30s) ? 90.0 : 0.0; }));
  Listening sink;
  EachSession session(settings(), world, sink);
  std::map<int, slurm::Answer> heard;
  const auto ask_at = [&](Duration when, int key, uid_t user, const slurm::Question& question) {
    world.loop().at(Instant(when),
                    [&, key, user, question] { heard[key] = session.on_slurm_question(user, question); });
  };
  const std::string rule = to_text(settings().steps[0].when);
  ask_at(20s, 0, 1000, {22, "n1", rule});
  ask_at(61s, 1, 0, {22, "n1", ""});
  ask_at(120s, 2, 1000, {22, "n1", rule});
  ask_at(120s, 3, 1001, {22, "n1", rule});
  ask_at(120s, 4, 0, {22, "n1", "util < 2 for 1s"});
  ask_at(120s, 5, 0, {99, "n1", rule});
  ask_at(120s, 6, 0, {22, "n2", rule});
  ask_at(120s, 7, 0, {23, "n1", rule});
  world.loop().at(Instant(121s), [&] { (void)session.on_keep(1000, "ada", "slurm:22", 1h); });
  ask_at(122s, 8, 0, {22, "n1", rule});
  world.loop().at(Instant(130s), [&] { world.send(SIGTERM); });
  (void)session.run();
  using slurm::Says;
  EXPECT_EQ(heard[0].says, Says::no);
  EXPECT_EQ(heard[0].yes_in, Duration(60s));
  EXPECT_EQ(heard[0].restarts, 2U);
  EXPECT_EQ(heard[1].says, Says::no);
  EXPECT_GT(heard[1].yes_in, Duration(20s));
  EXPECT_LT(heard[1].yes_in, Duration(40s));
  EXPECT_EQ(heard[2].says, Says::yes);
  EXPECT_TRUE(slurm::is_fresh(heard[2]));
  EXPECT_EQ(heard[3].says, Says::unknown) << "a stranger learns nothing";
  EXPECT_FALSE(heard[3].restarts);
  EXPECT_EQ(heard[4].says, Says::unknown) << "another rule is another question";
  EXPECT_EQ(heard[5].says, Says::nobody);
  EXPECT_EQ(heard[5].every, settings().every) << "this node is watched";
  EXPECT_EQ(heard[6].says, Says::nobody) << "of another node";
  EXPECT_EQ(heard[6].every, Duration::zero());
  EXPECT_EQ(heard[7].says, Says::yes) << "nothing of it is here";
  EXPECT_EQ(heard[8].says, Says::no);
  EXPECT_GT(heard[8].yes_in, Duration(50min));
}

TEST_F(EachSlurmTest, AYesToAnotherNodeIsOneByASampleOfNow) {
  give({.job = 22, .gpus = {0}, .nodes = "n[0-1]", .restarts = 0});
  // It works again between the last sample in turn and the question.
  FakeWorld world(with_util([](Instant at, unsigned) { return at < Instant(121s) ? 0.0 : 90.0; }));
  Listening sink;
  EachSettings made = settings();
  made.every = 30s;
  EachSession session(std::move(made), world, sink);
  std::optional<slurm::Answer> quick;
  std::optional<slurm::Answer> sure;
  std::optional<slurm::Answer> before;
  world.loop().at(Instant(119s),
                  [&] { session.answer_slurm(0, {22, "n1", ""}, [&](const slurm::Answer& one) { before = one; }); });
  world.loop().at(Instant(130s), [&] {
    quick = session.on_slurm_question(0, {22, "n1", ""});
    session.answer_slurm(0, {22, "n1", ""}, [&](const slurm::Answer& one) { sure = one; });
  });
  world.loop().at(Instant(140s), [&] { world.send(SIGTERM); });
  (void)session.run();
  ASSERT_TRUE(quick && sure && before);
  EXPECT_EQ(before->says, slurm::Says::yes);
  EXPECT_LT(before->age, 1s);
  EXPECT_EQ(quick->says, slurm::Says::yes) << "by the last sample it was idle";
  EXPECT_EQ(sure->says, slurm::Says::no);
}

TEST_F(EachSlurmTest, AJobWhoseGpusAreNotKnownIsNotJudged) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  FakeWorld world(with_util(idle));
  std::size_t asked = 0;
  world.answer_command = [&, slurm = running()](const std::vector<std::string>& command) {
    if (command[0] != "slurmd") return slurm(command);
    ++asked;
    return done("", 1);
  };
  Listening sink;
  EachSettings made = settings();
  made.slurm->gpus.reset();
  run_for(std::move(made), world, sink, 10min);
  EXPECT_TRUE(verbs.empty());
  EXPECT_GE(asked, 9U) << "each minute";
  EXPECT_LE(asked, 11U);
  const auto about_it = [](const std::pair<std::string, std::string>& note) {
    return note.second.find("Slurm's GPU order is unknown") != std::string::npos;
  };
  EXPECT_EQ(std::ranges::count_if(sink.notes, about_it), 1);
}

TEST_F(EachSlurmTest, AJobOfAnotherToolsPrologIsJudgedWhereItHasNoFileOfOurs) {
  fs::create_directory(folder + "/gpustat");
  std::ofstream(folder + "/gpustat/1") << "23 1000\n";
  std::ofstream(folder + "/gpustat/2") << "22 1000\n";
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  SlurmSettings made = *settings().slurm;
  made.others = {{SlurmSettings::Source::gpustat, folder + "/gpustat"}};
  SlurmJobs jobs(made);
  const auto found = jobs.look(Instant(0s), WallTime(10s));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].gpus, std::vector<unsigned>{0});
  EXPECT_EQ(found[1].job, "slurm:23");
  EXPECT_EQ(found[1].gpus, std::vector<unsigned>{1});
  EXPECT_TRUE(slurm_settings(folder).others.empty()) << "who names a folder means that one";
}

TEST_F(EachSlurmTest, AFileWhoseJobSlurmDoesNotKnowIsRemoved) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  FakeWorld world(with_util(idle));
  world.answer_command = [&, slurm = running()](const std::vector<std::string>& command) {
    if (command[0] == "squeue") return done("slurm_load_jobs error: Invalid job id specified", 1);
    return slurm(command);
  };
  Listening sink;
  run_for(settings(), world, sink, 2min);
  EXPECT_TRUE(verbs.empty());
  EXPECT_FALSE(fs::exists(folder + "/22"));
}

// The Prolog of the job that runs could not write; the file is of an older one with its number.
TEST_F(EachSlurmTest, AJobThatHasOtherGpusThanItsFileSaysIsLeftAlone) {
  give({.job = 22, .gpus = {1}, .nodes = "n1", .restarts = 0});
  const std::string now = details_["22"];
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  details_["22"] = now;
  for (const char* action : {"slurm=cancel", "exec=true"}) {
    FakeWorld world(with_util([](Instant, unsigned gpu) { return gpu == 1 ? 90.0 : 0.0; }));
    world.answer_command = running();
    Listening sink;
    run_for(settings(action), world, sink, 10min);
    EXPECT_TRUE(verbs.empty());
    EXPECT_EQ(world.count("exec=true"), 0U);
    EXPECT_GE(world.count("run env"), 2U) << "it is looked at again";
  }
}

// The same GPU idled before the job began, and the file of an older one with its number was there.
TEST_F(EachSlurmTest, TimeBeforeSlurmBeganTheJobDoesNotCount) {
  slurm_start_ = 300;
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  FakeWorld world(with_util(idle));
  world.answer_command = running();
  Listening sink;
  run_for(settings("slurm=cancel"), world, sink, 10min);
  ASSERT_FALSE(verbs.empty());
  EXPECT_GE(time_of(world, "run scancel"), Instant(360s));
  EXPECT_LE(time_of(world, "run scancel"), Instant(420s));
}

// As with an upgrade of lull.
TEST_F(EachSlurmTest, TimeThatWasGivenOutlivesTheWatcher) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  {
    FakeWorld world(with_util(idle));
    world.answer_command = running();
    Listening sink;
    EachSession session(settings(), world, sink);
    world.loop().at(Instant(30s), [&] { (void)session.on_keep(1000, "ada", "slurm:22", 20min); });
    world.loop().at(Instant(40s), [&] { world.send(SIGTERM); });
    (void)session.run();
  }
  const auto acts_within = [&](Duration time, std::optional<Duration> at_most = {}) {
    verbs.clear();
    FakeWorld world(with_util(idle));
    world.answer_command = running();
    Listening sink;
    EachSettings made = settings();
    if (at_most) made.keep_at_most = *at_most;
    run_for(std::move(made), world, sink, time);
    return !verbs.empty();
  };
  EXPECT_FALSE(acts_within(19min));
  EXPECT_TRUE(acts_within(25min)) << "and no longer";
  EXPECT_TRUE(acts_within(5min, 2min)) << "nor than this watcher gives";
  std::ofstream(folder + "/kept") << "x\n12\n99999999999999999999999 job:slurm:22\n\n";
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  EXPECT_TRUE(acts_within(5min)) << "what is none is no time";
}

// The request is in Slurm's queue, whatever became of the command that sent it.
TEST_F(EachSlurmTest, AVerbWithoutAnAnswerMakesAKeepUncertain) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  FakeWorld world(with_util(idle));
  world.answer_command = [this, slurm = running()](const std::vector<std::string>& command) {
    HelperResult result = slurm(command);
    if (command[1] == "requeue")
      result = {.status = {}, .timed_out = true, .trouble = "not done within 5s", .output = ""};
    return result;
  };
  Listening sink;
  EachSession session(settings(), world, sink);
  std::map<int, std::string> said;
  const auto at = [&](Duration when, int key, const std::string& target) {
    world.loop().at(Instant(when), [&, key, target] { said[key] = session.on_keep(1000, "ada", target, 1h); });
  };
  Instant sent{};
  std::function<void()> look = [&] {
    if (verbs.empty()) return (void)world.loop().in(100ms, look);
    sent = world.clock.now();
    at(sent - Instant(0s) + 2s, 0, "slurm:22");
    at(sent - Instant(0s) + 4min, 1, "");
    at(sent - Instant(0s) + 6min, 2, "slurm:22");
    world.loop().in(7min, [&] { world.send(SIGTERM); });
  };
  world.loop().in(1s, look);
  (void)session.run();
  EXPECT_EQ(verbs.size(), 1U) << "kept, as far as lull can";
  EXPECT_TRUE(said[0].starts_with("not certain: ") && said[0].contains("Slurm job 22 of ada on GPU 0 for 1h") &&
              said[0].contains("Slurm had not answered slurm=requeue"))
      << said[0];
  EXPECT_TRUE(said[1].starts_with("not certain: ")) << said[1];
  EXPECT_TRUE(said[2].starts_with("kept: ")) << said[2];
}

TEST_F(EachSlurmTest, ARestartBeginsAnew) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  FakeWorld world(with_util(idle));
  world.answer_command = running();
  world.loop().at(Instant(50s), [&] { give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 1}); });
  Listening sink;
  run_for(settings("slurm=cancel"), world, sink, 100s);
  EXPECT_TRUE(verbs.empty()) << "what the first run did says nothing about the second";
}

// `lull keep slurm:22` from a login node.
TEST_F(EachSlurmTest, ACommentKeepsAJobUntilThen) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  FakeWorld world(with_util(idle));
  const WallTime until = world.clock.wall() + 30min;
  world.answer_command = commented([&] { return done("22 " + slurm::with_keep("mine", until) + "\n"); });
  Listening sink;
  run_for(settings(), world, sink, 40min);
  ASSERT_FALSE(verbs.empty());
  EXPECT_GE(time_of(world, "run scontrol"), Instant(30min));
  EXPECT_LE(time_of(world, "run scontrol"), Instant(31min));
}

TEST_F(EachSlurmTest, ACommentKeepsAJobNoLongerThanTheLimit) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  for (const char* comment :
       {"lull-keep=2199-01-01T00:00:00Z", "lull-keep=9999-99-99T00:00:00Z lull-keep=2199-01-01T00:00:00Z",
        "of several lines\nlull-keep=2199-01-01T00:00:00Z\n\n22"}) {
    verbs.clear();
    fs::remove(folder + "/kept");  // each comment by itself
    FakeWorld world(with_util(idle));
    world.answer_command = commented([&] { return done(fmt::format("22 {}\n", comment)); });
    Listening sink;
    EachSettings made = settings();
    made.keep_at_most = 1h;
    run_for(std::move(made), world, sink, 2h);
    ASSERT_FALSE(verbs.empty()) << comment;
    EXPECT_GE(time_of(world, "run scontrol"), Instant(1h + 60s));
    EXPECT_LE(time_of(world, "run scontrol"), Instant(1h + 2min));
  }
}

TEST_F(EachSlurmTest, ACommentThatAsksForNothingKeepsNothing) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  for (const char* comment :
       {"", "lull-keep=4h", "lull-keep=banana", "lull-keep=1970-01-01T00:00:00Z", "(null)", "a\nb", "a\n22 b\n\n"}) {
    verbs.clear();
    FakeWorld world(with_util(idle));
    world.answer_command = commented([&] { return done(fmt::format("22 {}\n", comment)); });
    Listening sink;
    run_for(settings(), world, sink, 3min);
    ASSERT_FALSE(verbs.empty()) << comment;
    EXPECT_LE(time_of(world, "run scontrol"), Instant(75s)) << comment;
  }
}

TEST_F(EachSlurmTest, NothingIsDoneWhileTheCommentCannotBeRead) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  for (const char* action : {"slurm=cancel", "exec=true"}) {
    FakeWorld world(with_util(idle));
    world.answer_command = commented([&]() -> HelperResult {
      if (world.clock.now() < Instant(5min)) return done("squeue: error: Invalid user\n", 1);
      if (world.clock.now() < Instant(10min))
        return done("slurm_load_jobs error: Unable to contact slurm controller\n", 1);
      return done("22 a\n");
    });
    Listening sink;
    run_for(settings(action), world, sink, 15min);
    const std::string what = *action == 's' ? "run scancel" : "exec=true";
    ASSERT_GE(world.count(what), 1U) << action;
    EXPECT_GE(time_of(world, what), Instant(10min)) << action;
  }
}

TEST_F(EachSlurmTest, ACommentDoesNotShortenWhatWasGiven) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  FakeWorld world(with_util(idle));
  const WallTime until = world.clock.wall() + 5min;
  world.answer_command = commented([&] { return done("22 " + slurm::with_keep("", until) + "\n"); });
  Listening sink;
  EachSession session(settings(), world, sink);
  world.loop().at(Instant(30s), [&] { (void)session.on_keep(1000, "ada", "slurm:22", 1h); });
  world.loop().at(Instant(2h), [&] { world.send(SIGTERM); });
  (void)session.run();
  EXPECT_GE(time_of(world, "run scontrol"), Instant(1h + 30s));
}

TEST_F(EachSlurmTest, UsersAndPartitionsThatAreLeftOutAreLeftAlone) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0, .partition = "main"});
  for (const int what : {0, 1, 2}) {
    EachSettings made = settings();
    if (what == 0) made.slurm->except_users = {1000};
    if (what == 1) made.slurm->policy.except_partitions = {"main"};
    if (what == 2) made.slurm->policy.except_qos = {"normal"};  // the Prolog is not told
    FakeWorld world(with_util(idle));
    world.answer_command = running();
    Listening sink;
    run_for(std::move(made), world, sink, 3min);
    EXPECT_TRUE(verbs.empty()) << what;
  }
  EachSettings other = settings();
  other.slurm->policy.except_partitions = {"debug"};
  other.slurm->policy.except_qos = {"high"};
  other.slurm->policy.except_accounts = {"chemistry"};
  FakeWorld world(with_util(idle));
  world.answer_command = running();
  Listening sink;
  run_for(std::move(other), world, sink, 3min);
  EXPECT_FALSE(verbs.empty());
}

TEST_F(EachSlurmTest, AJobIsJudgedForTheTimeThatItsUserAskedFor) {
  struct Asked {
    std::string comment;
    std::string rule;
    Duration until;
    std::string verb;  // empty: nothing is done
  };
  for (const Asked& one : {
           Asked{"", "", 90s, "scontrol requeue"},
           Asked{"lull=5m", "", 290s, ""},
           Asked{"lull=5m", "", 330s, "scontrol requeue"},
           Asked{"x; lull=5m,cancel", "", 330s, "scancel 22"},
           Asked{"", "10s,cancel", 40s, "scancel 22"},
           Asked{"lull=100h", "", 590s, ""},
           Asked{"lull=100h", "", 630s, "scontrol requeue"},  // the longest that the site allows
           Asked{"lull=10s,warn", "", 590s, ""},
           Asked{"lull=10s,warn", "", 630s, "scontrol requeue"},
           Asked{"lull=soon", "", 50s, ""},
           Asked{"lull=soon", "", 90s, "scontrol requeue"},
           Asked{"lull=1", "", 50s, ""},
       }) {
    verbs.clear();
    give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0, .comment = one.comment, .rule = one.rule});
    FakeWorld world(with_util(idle));
    world.answer_command = running();
    EachSettings made = settings();
    made.slurm->user_rule_at_most = 10min;
    Listening sink;
    run_for(std::move(made), world, sink, one.until);
    EXPECT_EQ(verbs.empty() ? "" : verbs[0], one.verb) << one.comment << one.rule << to_seconds(one.until);
  }
}

TEST_F(EachSlurmTest, WhoAsksForAWarningGetsAComment) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0, .rule = "2m,warn"});
  std::vector<std::string> comments;
  FakeWorld world(with_util(idle));
  world.answer_command = [&, slurm = running()](const std::vector<std::string>& command) {
    if (command[0] == "scontrol" && command[1] == "update") comments.push_back(command.back());
    return slurm(command);
  };
  Listening sink;
  run_for(settings(), world, sink, 10min);
  EXPECT_TRUE(verbs.empty());
  ASSERT_EQ(comments.size(), 1U);
  EXPECT_NE(comments[0].find("util < 1 for 2m"), std::string::npos) << comments[0];
}

TEST_F(EachSlurmTest, NonsenseInACommentIsSaidOnce) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0, .comment = "lull=soon"});
  FakeWorld world(with_util([](Instant, unsigned) { return 90.0; }));
  Listening sink;
  run_for(settings(), world, sink, 2min);
  const auto about_it = [](const std::pair<std::string, std::string>& note) {
    return note.second.find("job 22: lull= in its comment: 'soon'") != std::string::npos;
  };
  EXPECT_EQ(std::ranges::count_if(sink.notes, about_it), 1);
}

TEST_F(EachSlurmTest, AnInteractiveJobIsLeftOrCancelledAsTheSiteSaysWhateverItsUserAskedFor) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0, .comment = "lull=60s,requeue"});
  using Interactive = slurm::ActPolicy::Interactive;
  for (const Interactive interactive : {Interactive::leave, Interactive::cancel}) {
    FakeWorld world(with_util(idle));
    world.answer_command = [&, slurm = running()](const std::vector<std::string>& command) {
      return command[0] == "squeue" ? done(row("n1", 1, "0")) : slurm(command);
    };
    EachSettings made = settings("slurm=cancel");
    made.slurm->policy.interactive = interactive;
    Listening sink;
    run_for(std::move(made), world, sink, 2min);
    EXPECT_EQ(verbs.empty(), interactive == Interactive::leave);
  }
  ASSERT_FALSE(verbs.empty());
  EXPECT_EQ(verbs[0], "scancel 22");
}

TEST_F(EachSlurmTest, ANodeAnswersByTheRuleThatTheUserAskedFor) {
  give({.job = 22, .gpus = {0}, .nodes = "n[0-1]", .restarts = 0, .comment = "lull=2m"});
  FakeWorld world(with_util(idle));
  Listening sink;
  EachSession session(settings(), world, sink);
  std::vector<slurm::Answer> heard;
  for (const auto& [when, rule] :
       {std::pair(Duration(90s), "util < 1 for 2m"), std::pair(Duration(150s), "util < 1 for 2m"),
        std::pair(Duration(150s), "util < 1 for 60s")})
    world.loop().at(Instant(when), [&, rule] { heard.push_back(session.on_slurm_question(0, {22, "n1", rule})); });
  world.loop().at(Instant(160s), [&] { world.send(SIGTERM); });
  (void)session.run();
  ASSERT_EQ(heard.size(), 3U);
  EXPECT_EQ(heard[0].says, slurm::Says::no);
  EXPECT_EQ(heard[1].says, slurm::Says::yes);
  EXPECT_EQ(heard[2].says, slurm::Says::unknown) << "by the site's rule nobody judges it";
}

TEST_F(EachSlurmTest, NothingIsDoneToAJobBeforeItHasRunForTheDelay) {
  // It had run for 100 s when the watcher came.
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0, .start = WallTime(Duration(200s))});
  for (const auto& [delay, until] : {std::pair(Duration(0s), 90s), std::pair(Duration(400s), 295s),
                                     std::pair(Duration(400s), 320s), std::pair(Duration(120s), 90s)}) {
    verbs.clear();
    FakeWorld world(with_util(idle));
    world.answer_command = running();
    EachSettings made = settings();
    made.slurm->delay = delay;
    Listening sink;
    const Instant begin = Instant(300s);
    world.clock.advance(300s);
    run_for(std::move(made), world, sink, 300s + until);
    const bool expected = begin + until >= Instant(200s) + delay + 10s;
    EXPECT_EQ(!verbs.empty(), expected) << to_seconds(delay) << " " << to_seconds(Duration(until));
  }
}

TEST_F(EachSlurmTest, ANodeSaysWhenItCouldSayYesOutsideTheHoursAndWhereAJobIsLeftAlone) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  for (const bool left_alone : {false, true}) {
    give({.job = 22, .gpus = {0}, .nodes = "n[0-1]", .restarts = 0, .partition = "main"});
    FakeWorld world(with_util(idle));  // its clock begins at midnight
    EachSettings made = settings();
    made.hours = *Hours::parse("20-22");
    if (left_alone) made.slurm->policy.except_partitions = {"main"};
    Listening sink;
    EachSession session(std::move(made), world, sink);
    std::optional<slurm::Answer> heard;
    world.loop().at(Instant(2h), [&] { heard = session.on_slurm_question(0, {22, "n1", ""}); });
    world.loop().at(Instant(2h + 1s), [&] { world.send(SIGTERM); });
    (void)session.run();
    ASSERT_TRUE(heard);
    EXPECT_EQ(heard->says, slurm::Says::no);
    EXPECT_EQ(heard->yes_in, left_alone ? Duration(10min) : Duration(18h));
  }
}

// slurmd has just said which GPUs Slurm means, and no sample was taken since.
TEST_F(EachSlurmTest, AJobThatIsNotJudgedYetIsUnknownAndNotLeftAlone) {
  ::setenv("SLURM_CONF", (folder + "/slurm.conf").c_str(), 1);
  std::ofstream(folder + "/gres.conf") << "Name=gpu File=/dev/null\n";
  give({.job = 22, .gpus = {0}, .nodes = "n[0-1]", .restarts = 0});
  FakeWorld world(with_util(idle));
  world.answer_command = [&](const std::vector<std::string>& command) {
    return done(command[0] == "slurmd" ? "Gres Name=gpu Type=(null) Count=1 Index=0 ID=1 File=/dev/null (null)\n" : "");
  };
  EachSettings made = settings();
  made.slurm->gpus.reset();
  Listening sink;
  EachSession session(std::move(made), world, sink);
  std::optional<slurm::Answer> heard;
  world.loop().at(Instant(3s), [&] { heard = session.on_slurm_question(0, {22, "n1", ""}); });
  world.loop().at(Instant(4s), [&] { world.send(SIGTERM); });
  (void)session.run();
  ::unsetenv("SLURM_CONF");
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->says, slurm::Says::unknown);
  EXPECT_EQ(heard->why, "it is not judged yet");
}

// A dry run says what would be done, and nothing of a job of which another node says no.
TEST_F(EachSlurmTest, ADryRunAsksTheNodesAndDoesNothingElse) {
  give({.job = 22, .gpus = {0}, .nodes = "n[1-2]", .restarts = 0});
  slurm::Answer first{.job = 22,
                      .node = "n1",
                      .says = slurm::Says::yes,
                      .restarts = 0,
                      .gpus = 1,
                      .numbers = {0},
                      .age = 1s,
                      .every = 5s};
  slurm::Answer second = first;
  second.node = "n2";
  for (const char* action : {"slurm=requeue", "exec=true"})
    for (const bool agree : {false, true}) {
      second.says = agree ? slurm::Says::yes : slurm::Says::no;
      second.why = "busy";
      FakeWorld world(with_util(idle));
      std::size_t changed = 0;
      world.answer_command = [&, slurm = running(to_line(first) + "\n" + to_line(second) + "\n")](
                                 const std::vector<std::string>& command) {
        if (command[0] == "scontrol" || command[0] == "scancel") ++changed;
        return command[0] == "squeue" ? done(row("n[1-2]", 2)) : slurm(command);
      };
      Listening sink;
      EachSettings made = settings(action);
      made.dry_run = true;
      run_for(std::move(made), world, sink, 3min);
      EXPECT_GE(world.count("run runuser"), 1U);
      EXPECT_EQ(sink.firings.size(), agree ? 1U : 0U) << action;
      EXPECT_EQ(changed, 0U);
      EXPECT_EQ(world.count("exec=true"), 0U);
      const auto says_no = [](const std::pair<std::string, std::string>& note) {
        return note.second.find("n2 says no: busy") != std::string::npos;
      };
      EXPECT_EQ(std::ranges::any_of(sink.notes, says_no), !agree);
    }
}

TEST_F(EachSlurmTest, ADryRunKeepsAFileOfAJobThatSlurmDoesNotKnow) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  FakeWorld world(with_util(idle));
  world.answer_command = [&, slurm = running()](const std::vector<std::string>& command) {
    if (command[0] == "squeue") return done("slurm_load_jobs error: Invalid job id specified", 1);
    return slurm(command);
  };
  Listening sink;
  EachSettings made = settings();
  made.dry_run = true;
  run_for(std::move(made), world, sink, 2min);
  EXPECT_TRUE(sink.firings.empty() && fs::exists(folder + "/22"));
}

TEST_F(EachSlurmTest, ANodeSaysNoUntilTheDelayIsOver) {
  give({.job = 22, .gpus = {0}, .nodes = "n[0-1]", .restarts = 0});  // begins when it is first seen
  FakeWorld world(with_util(idle));
  EachSettings made = settings();
  made.slurm->delay = 5min;
  Listening sink;
  EachSession session(std::move(made), world, sink);
  std::vector<slurm::Answer> heard;
  for (const Duration when : {Duration(200s), Duration(310s)})
    world.loop().at(Instant(when), [&] { heard.push_back(session.on_slurm_question(0, {22, "n1", ""})); });
  world.loop().at(Instant(320s), [&] { world.send(SIGTERM); });
  (void)session.run();
  ASSERT_EQ(heard.size(), 2U);
  EXPECT_EQ(heard[0].says, slurm::Says::no);
  EXPECT_GT(heard[0].yes_in, Duration(95s));
  EXPECT_LT(heard[0].yes_in, Duration(101s));
  EXPECT_EQ(heard[1].says, slurm::Says::yes);
}

}  // namespace
}  // namespace lull
