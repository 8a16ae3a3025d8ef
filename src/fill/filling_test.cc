#include "fill/filling.h"

#include <gtest/gtest.h>

#include "fill/filling_world_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
using State = Filling::State;

TEST(Filling, StartsOnlyOnWhatIsKnownToBeFree) {
  FillingWorld world({FillingWorld::filler()});
  const auto refuses = [&](Reason::Kind why) {
    EXPECT_TRUE(world.sample().empty());
    EXPECT_EQ(world.filling->why(0).kind, why) << to_string(world.filling->why(0));
    world.observations[0] = FillingWorld::observation(0);
  };
  world.observations[0].not_free = Reason{.kind = Reason::starts_soon, .time = 14s};
  refuses(Reason::starts_soon);
  world.observations[0].claims = {{.kind = Reason::leased, .who = "ada"}};
  refuses(Reason::leased);
  world.observations[0].claims = {{.kind = Reason::user, .who = "ada", .time = 12s}};
  refuses(Reason::user);
  world.observations[0].openers->push_back(kStranger);
  refuses(Reason::opened);
  world.observations[0].openers.reset();
  refuses(Reason::starts_soon);
  world.observations[0].unreadable = "GPU is lost";
  refuses(Reason::unreadable);
  world.observations[0].hidden = 12;
  world.observations[0].openers.reset();
  refuses(Reason::hidden);
  world.observations[0].mem_unexplained = 2 * kGiB;
  refuses(Reason::memory_left);
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::start});
}

TEST(Filling, LimitsOfAFillerAreKept) {
  FillerSettings settings = FillingWorld::filler();
  settings.max_temp = 70;
  settings.memory = 8 * kGiB;
  settings.hours = *Hours::parse("22-06");
  FillingWorld world({settings});
  world.sample();
  EXPECT_EQ(world.filling->why(0).kind, Reason::out_of_hours);
  world.minute = 23 * 60;
  world.observations[0].temp = 75;
  world.sample();
  EXPECT_EQ(world.filling->why(0).kind, Reason::hot);
  world.observations[0].temp = 60;
  world.observations[0].mem_free = 4 * kGiB;
  world.sample();
  EXPECT_EQ(world.filling->why(0).kind, Reason::too_little_memory);
  world.observations[0].mem_free = 16 * kGiB;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::start});
  world.observations[0].temp = 71;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::halt});
  world.observations[0].temp = 68;
  EXPECT_TRUE(world.sample().empty()) << "not on and off around the limit";
  world.observations[0].temp = 60;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::go_on});
  world.observations[0].temp = kUnknown;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::halt}) << "unknown is not cool";
  world.minute = 12 * 60;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::end});
}

TEST(Filling, AnOpenIsNoUse) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  ASSERT_EQ(kinds(world.open(0, kStranger)), Kinds{FillOrder::halt});
  EXPECT_TRUE(world.sample(100ms).empty());
  EXPECT_TRUE(world.sample(1s).empty()) << "it still has it open: it has the whole time";
  const auto orders = world.decision();
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::go_on});
  EXPECT_EQ(orders[0].why.kind, Reason::nothing_came);
  EXPECT_TRUE(world.open(0, kStranger).empty()) << "not suspected again";
  EXPECT_EQ(kinds(world.open(0, {.pid = 4711, .start_ticks = 100, .program = "python3"})), Kinds{FillOrder::halt})
      << "another process of that number";
}

TEST(Filling, ASuspectIsRememberedWhileTheFillerIsPaused) {
  FillingWorld world({FillingWorld::filler()});
  const DeviceId gpu = world.observations[0].gpu;
  world.sample();
  EXPECT_FALSE(world.filling->suspects(gpu, kStranger));
  world.open(0, kStranger);
  EXPECT_TRUE(world.filling->suspects(gpu, kStranger));
  EXPECT_FALSE(world.filling->suspects(gpu, {.pid = 4711, .start_ticks = 100, .program = "python3"}))
      << "another process of that number";
  EXPECT_FALSE(world.filling->suspects({"another GPU"}, kStranger));
  ASSERT_EQ(kinds(world.decision()), Kinds{FillOrder::go_on});
  EXPECT_FALSE(world.filling->suspects(gpu, kStranger));
}

TEST(Filling, WhoOpensAndClosesIsSuspectedTwiceAndNoMore) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  for (int time = 0; time < 2; ++time) {
    ASSERT_EQ(kinds(world.open(0, kStranger)), Kinds{FillOrder::halt});
    world.close(0);
    EXPECT_TRUE(world.sample(50ms).empty()) << "an open is told before it is done";
    EXPECT_EQ(kinds(world.sample(500ms)), Kinds{FillOrder::go_on});
  }
  EXPECT_TRUE(world.open(0, kStranger).empty());
}

TEST(Filling, NothingOlderThanTheOpenClearsAnybody) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  world.open(0, kStranger);
  world.close(0);
  const Instant before = world.now - 1s;
  EXPECT_TRUE(world.filling->sampled(world.now + 5s, before, world.observations, {}, world.minute).empty());
  EXPECT_EQ(world.state(), State::still);
}

TEST(Filling, UseEndsIt) {
  const std::vector<Reason> claims = {{.kind = Reason::used, .who = "python3"},
                                      {.kind = Reason::leased, .who = "ada"},
                                      {.kind = Reason::user, .who = "ada", .time = 1s}};
  for (const Reason& claim : claims) {
    FillingWorld world({FillingWorld::filler()});
    world.sample();
    world.open(0, kStranger);
    world.observations[0].claims = {claim};
    EXPECT_EQ(kinds(world.sample(100ms)), Kinds{FillOrder::end});
    EXPECT_EQ(world.state(), State::ending);
    EXPECT_TRUE(world.sample().empty()) << "once";
    world.filling->ended(0, world.now, 143);
    EXPECT_TRUE(world.sample().empty());
    world.observations[0] = FillingWorld::observation(0);
    EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::start}) << "no back-off for what we ended";
  }
}

TEST(Filling, MemoryThatGrowsWhileTheFillerIsPausedBelongsToAnotherProcess) {
  FillingWorld world({FillingWorld::filler()});
  world.observations[0].mem_used = 4 * kGiB;
  world.sample();
  world.open(0, kStranger);
  EXPECT_TRUE(world.sample(100ms).empty());
  world.observations[0].mem_used = 4.5 * kGiB;
  const auto orders = world.sample(100ms);
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::end});
  EXPECT_EQ(orders[0].why.kind, Reason::memory_grew);
}

TEST(Filling, YieldStopEndsAtOnceAndYieldPausePauses) {
  FillerSettings stop = FillingWorld::filler();
  stop.yield = YieldWay::stop;
  FillingWorld at_once({stop});
  at_once.sample();
  EXPECT_EQ(kinds(at_once.open(0, kStranger)), Kinds{FillOrder::end});

  FillerSettings pause = FillingWorld::filler();
  pause.yield = YieldWay::pause;
  FillingWorld world({pause});
  world.sample();
  world.open(0, kStranger);
  world.observations[0].claims = {{.kind = Reason::used, .who = "python3"}};
  world.observations[0].not_free = Reason{.kind = Reason::rule, .who = "util is 90 %"};
  world.sample();
  EXPECT_EQ(world.state(), State::still);
  world.observations[0].claims.clear();
  world.close(0);
  EXPECT_TRUE(world.sample().empty()) << "the rule has to hold again";
  world.observations[0].not_free.reset();
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::go_on});
  // Short of memory, or a lease: it ends.
  world.observations[0].claims = {{.kind = Reason::used, .who = "python3"}};
  world.sample();
  ASSERT_EQ(world.state(), State::still);
  world.observations[0].mem_free = 1 * kGiB;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::end});
}

TEST(Filling, ParkingFallsBackToEnding) {
  FillerSettings settings = FillingWorld::filler();
  settings.yield_command = "park";
  FillingWorld world({settings});
  world.sample();
  world.observations[0].claims = {{.kind = Reason::used, .who = "python3"}};
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::park});
  EXPECT_TRUE(world.filling->parked(0, true, world.now).empty());
  EXPECT_EQ(world.state(), State::parked);
  world.observations[0].claims.clear();
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::go_on});
  world.observations[0].claims = {{.kind = Reason::used, .who = "python3"}};
  world.sample();
  EXPECT_EQ(kinds(world.filling->parked(0, false, world.now)), Kinds{FillOrder::end});
}

TEST(Filling, BacksOffExponentiallyAndForgetsAfterARunThatWentWell) {
  FillingWorld world({FillingWorld::filler()});
  Duration last{};
  for (int i = 0; i < 12; ++i) {
    while (world.state() == State::waiting) world.sample(5s);
    world.filling->ended(0, world.now + 1s, 1);
    world.now += 1s;
    const Duration pause = world.filling->backs_off(0, world.now);
    EXPECT_GE(pause, last);
    EXPECT_LE(pause, 10min);
    last = pause;
  }
  EXPECT_EQ(last, 10min);
  while (world.state() == State::waiting) world.sample(5s);
  world.now += 1h;
  world.filling->ended(0, world.now, 1);
  EXPECT_EQ(world.filling->backs_off(0, world.now), 10s);
  while (world.state() == State::waiting) world.sample(5s);
  world.now += 1h;
  world.filling->ended(0, world.now, 0);
  EXPECT_EQ(world.filling->backs_off(0, world.now), 0s);
}

TEST(Filling, OneThatIsToBeStartedAgainHasNotFailedHoweverSoonItEnds) {
  FillerSettings settings = FillingWorld::filler();
  settings.again = 5s;
  FillingWorld world({settings});
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::start});
  world.filling->ended(0, world.now + 2s, 0);
  EXPECT_EQ(world.filling->failures(0), 0U);
  EXPECT_EQ(world.filling->backs_off(0, world.now + 2s), 3s);
  EXPECT_TRUE(world.sample(4s).empty());
  EXPECT_EQ(world.filling->why(0).kind, Reason::starts_soon);
  EXPECT_EQ(kinds(world.sample(1s)), Kinds{FillOrder::start});
  world.filling->ended(0, world.now + 2s, 1);
  EXPECT_EQ(world.filling->failures(0), 1U) << "a failure is one";
}

TEST(Filling, OnceIsOnce) {
  FillerSettings settings = FillingWorld::filler();
  settings.once = true;
  FillingWorld world({settings});
  world.sample();
  world.filling->ended(0, world.now + 1h, 0);
  EXPECT_TRUE(world.sample(2h).empty());
  EXPECT_EQ(world.filling->why(0).kind, Reason::done);
}

TEST(Filling, TheMoreImportantGoesFirstAndOneOnAllNeedsAll) {
  FillerSettings low = FillingWorld::filler();
  FillerSettings high = FillingWorld::filler(false);
  high.priority = 5;
  FillingWorld world({low, high}, 2);
  const auto orders = world.sample();
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::start});
  EXPECT_EQ(orders[0].unit, 2U);
  EXPECT_EQ(world.filling->why(0).kind, Reason::filled);
  // Somebody on one of its GPUs ends it; the other GPU is then filled by the one that needs one alone.
  world.observations[1].claims = {{.kind = Reason::used, .who = "python3"}};
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::end});
  world.filling->ended(2, world.now, 143);
  const auto next = world.sample();
  ASSERT_EQ(kinds(next), Kinds{FillOrder::start});
  EXPECT_EQ(next[0].unit, 0U);
}

TEST(Filling, AWaiterGetsAsManyAsItLacksTheLeastImportantFirst) {
  FillerSettings low = FillingWorld::filler();
  FillingWorld world({low}, 3);
  world.sample();
  world.waiters = {{"ticket.1", "ada", 1, {{"GPU-1"}, {"GPU-2"}}}};
  auto orders = world.sample();
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::end});
  EXPECT_EQ(orders[0].why.kind, Reason::waited_for);
  EXPECT_EQ(orders[0].unit, 1U);
  world.filling->ended(1, world.now, 143);
  for (int i = 0; i < 30; ++i) EXPECT_TRUE(world.sample().empty()) << "kept for who waits, and no other one is ended";
  // It does not take it: it is filled again, and the next one is tried.
  bool again = false;
  bool other = false;
  for (int i = 0; i < 60; ++i)
    for (const FillOrder& order : world.sample()) {
      again |= order.kind == FillOrder::start && order.unit == 1;
      other |= order.kind == FillOrder::end && order.unit == 2;
    }
  EXPECT_TRUE(again && other);
}

TEST(Filling, AWaiterThatCollectsCostsNoMoreThanItAskedFor) {
  FillingWorld world({FillingWorld::filler()}, 4);
  world.sample();
  world.waiters = {{"ticket.1", "ada", 2, {{"GPU-0"}, {"GPU-1"}, {"GPU-2"}, {"GPU-3"}}}};
  EXPECT_EQ(kinds(world.sample()), (Kinds{FillOrder::end, FillOrder::end}));
  world.filling->ended(0, world.now, 143);
  EXPECT_TRUE(world.sample().empty());
  world.observations[0].claims = {{.kind = Reason::leased, .who = "ada"}};
  world.waiters[0].missing = 1;
  EXPECT_TRUE(world.sample().empty());
  world.filling->ended(1, world.now, 143);
  EXPECT_TRUE(world.sample().empty());
  world.observations[1].claims = world.observations[0].claims;
  world.waiters[0].missing = 0;
  EXPECT_TRUE(world.sample().empty());
  world.waiters.clear();
  EXPECT_TRUE(world.sample().empty());
  EXPECT_EQ(world.state(2), State::running);
  EXPECT_EQ(world.state(3), State::running);
}

TEST(Filling, AFillerOnAnUnreadableGpuIsPausedAndNotEnded) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  world.observations[0].unreadable = "GPU is lost";
  EXPECT_TRUE(world.sample().empty()) << "one bad sample";
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::halt});
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(world.sample().empty());
  world.observations[0].unreadable.clear();
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::go_on});
}

TEST(Filling, OtherSettingsEndOnlyWhatChanged) {
  FillerSettings one = FillingWorld::filler();
  one.name = "one";
  FillerSettings two = one;
  two.name = "two";
  two.gpus = "1";
  FillingWorld world({one}, 2);
  world.sample();
  ASSERT_EQ(world.state(0), State::running);
  FillerSettings changed = one;
  changed.nice = 5;
  const auto orders = world.filling->replace({one, changed}, {{0, {{"GPU-0"}}}, {1, {{"GPU-1"}}}}, world.now);
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::end});
  EXPECT_EQ(orders[0].unit, 1U);
  EXPECT_EQ(orders[0].why.kind, Reason::config);
  EXPECT_EQ(world.state(0), State::running);
  world.filling->ended(1, world.now, 143);
  const auto started = world.sample();
  ASSERT_EQ(kinds(started), Kinds{FillOrder::start});
  EXPECT_EQ(started[0].unit, 2U);
}

}  // namespace
}  // namespace lull
