// More time, asked for with `lull keep`: who gets it, how much of it, and that it is not lost.

#include <gtest/gtest.h>

#include <map>

#include "sense/file_tree_test.h"
#include "session/each_session_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

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
    std::vector<GpuProcess> there;
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
  Script gone = held_by({{0, {holder_for_test(10, 1000, "pod:7")}}}, idle);
  gone.has_driver = [](Instant at) { return at < Instant(2min) || at > Instant(3min); };
  Script other =
      held_by({}, [](Instant at, unsigned) { return at > Instant(4min) && at < Instant(5min) ? 50.0 : 0.0; });
  other.holders = [](Instant at, unsigned gpu) -> std::optional<std::vector<GpuProcess>> {
    if (gpu != 0) return std::vector<GpuProcess>();
    if (at > Instant(2min) && at < Instant(3min)) return std::nullopt;
    return std::vector<GpuProcess>{holder_for_test(at < Instant(6min) ? 10 : 11, 1000, "pod:7")};
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
    std::vector<GpuProcess> there;
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
  settings.steps[0].actions.insert(settings.steps[0].actions.begin(), *parse_action("exec=warn"));
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
  // The pre-kill check is under way, and the fake does not take back what it waits for.
  const auto watch_for_it = [&] {
    if (late.count("told") == 1) answer = other.on_keep(1000, "ada", "0", 10min);
  };
  late.loop().at(Instant(61s) + 31s, watch_for_it);
  late.loop().at(Instant(3min), [&] { late.send(SIGTERM); });
  (void)other.run();
  EXPECT_TRUE(answer.starts_with("refused: it is too late for GPU 0")) << answer;
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

TEST(EachSessionTest, EachOwnerOfAJobMayKeepItWithSubordinateUids) {
  const TestTree tree;
  tree.write("passwd", "ada:x:1000:1::/:/bin/sh\nbob:x:1001:1::/:/bin/sh\n");
  tree.write("subuid", "ada:100000:65536\n");
  FakeWorld world(held_by({{0, {holder_for_test(10, 1001, "tree:9"), holder_for_test(11, 1002, "tree:9")}},
                           {1, {holder_for_test(12, 100'999, "container:ada/0123456789ab")}}},
                          idle));
  Listening sink;
  EachSettings settings = each(Per::job);
  settings.who.user_files = {.passwd = tree.at("passwd"), .subuid = tree.at("subuid")};
  EachSession session(std::move(settings), world, sink);
  std::map<std::string, std::string> said;
  world.loop().at(Instant(30s), [&] {
    said["one"] = session.on_keep(1001, "bob", "tree:9", 1h);
    said["other"] = session.on_keep(1002, "eve", "", 1h);
    said["ada"] = session.on_keep(1000, "ada", "0123456789ab", 1h);
    said["stranger"] = session.on_keep(1003, "x", "tree:9", 1h);
    said["not hers"] = session.on_keep(1001, "bob", "0123456789ab", 1h);
  });
  world.loop().at(Instant(2min), [&] { world.send(SIGTERM); });
  (void)session.run();
  EXPECT_TRUE(said["one"].starts_with("kept: ")) << said["one"];
  EXPECT_TRUE(said["other"].starts_with("kept: ")) << said["other"];
  EXPECT_TRUE(said["ada"].starts_with("kept: ")) << said["ada"];
  EXPECT_TRUE(said["stranger"].starts_with("refused: ")) << said["stranger"];
  EXPECT_TRUE(said["not hers"].starts_with("refused: ")) << said["not hers"];
}

}  // namespace
}  // namespace lull
