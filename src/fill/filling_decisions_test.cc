// What decides, and what must not: one small world for each condition of filling.cc.
#include <gtest/gtest.h>

#include "fill/filling_world_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
using State = Filling::State;

const Reason kUsed{.kind = Reason::used, .who = "python3"};

FillerSettings pausing() {
  FillerSettings settings = FillingWorld::filler();
  settings.yield = YieldWay::pause;
  return settings;
}

TEST(FillingDecisions, OneHiddenProcessIsEnoughToRefuse) {
  FillingWorld world({FillingWorld::filler()});
  world.observations[0].hidden = 1;
  world.observations[0].openers.reset();
  EXPECT_TRUE(world.sample().empty());
  EXPECT_EQ(world.filling->why(0).kind, Reason::hidden);
  EXPECT_EQ(world.filling->why(0).number, 1);
}

TEST(FillingDecisions, UnknownMemoryCountsAsShort) {
  for (const auto unknown : {&GpuObservation::mem_free, &GpuObservation::mem_total}) {
    FillingWorld world({pausing()});
    world.sample();
    world.observations[0].claims = {kUsed};
    world.observations[0].*unknown = kUnknown;
    EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::end});
  }
  FillingWorld world({pausing()});
  world.sample();
  world.observations[0].claims = {kUsed};
  world.observations[0].mem_free = 0.1 * world.observations[0].mem_total;  // just enough
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::halt});
}

TEST(FillingDecisions, AWaiterOrALeaseEndsAlsoOneThatPauses) {
  FillingWorld waited({pausing()});
  waited.sample();
  waited.waiters = {{"ticket.1", "ada", 1, {{"GPU-0"}}}};
  EXPECT_EQ(kinds(waited.sample()), Kinds{FillOrder::end});

  for (const Reason::Kind kind : {Reason::leased, Reason::waited_for}) {
    FillingWorld paused({pausing()});
    paused.sample();
    paused.observations[0].claims = {kUsed};
    ASSERT_EQ(kinds(paused.sample()), Kinds{FillOrder::halt});
    EXPECT_TRUE(paused.sample().empty()) << "paused already";
    paused.observations[0].claims = {{.kind = kind, .who = "ada"}};
    EXPECT_EQ(kinds(paused.sample()), Kinds{FillOrder::end});
  }
}

TEST(FillingDecisions, AnUnreadableSampleThatIsLookedAtTwiceCountsOnce) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  world.observations[0].unreadable = "GPU is lost";
  world.now += 1s;
  for (int look = 0; look < 3; ++look)
    EXPECT_TRUE(world.filling->sampled(world.now, world.now, world.observations, {}, world.minute).empty()) << look;
  world.observations[0].unreadable.clear();
  EXPECT_TRUE(world.sample().empty());
  world.observations[0].unreadable = "GPU is lost";
  EXPECT_TRUE(world.sample().empty()) << "one that could be read begins the count anew";
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::halt});
}

TEST(FillingDecisions, AGpuThatIsNotInTheSampleIsUnreadable) {
  FillingWorld world({FillingWorld::filler()});
  const auto observations = world.observations;
  world.observations.clear();
  EXPECT_TRUE(world.sample().empty());
  EXPECT_EQ(world.filling->why(0).kind, Reason::unreadable);
  world.observations = observations;
  ASSERT_EQ(kinds(world.sample()), Kinds{FillOrder::start});
  world.observations.clear();
  EXPECT_TRUE(world.sample().empty());
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::halt});
}

TEST(FillingDecisions, MemoryIsComparedWithASampleFromAfterThePauseOnly) {
  for (const Duration before : {Duration(100ms), Duration::zero()}) {
    FillingWorld world({FillingWorld::filler()});
    world.observations[0].mem_used = 1 * kGiB;
    world.sample();
    const Instant paused = world.now;
    ASSERT_EQ(kinds(world.open(0, kStranger)), Kinds{FillOrder::halt});
    // Asked for before the filler was paused, which took memory until then.
    EXPECT_TRUE(world.filling->sampled(paused + 50ms, paused - before, world.observations, {}, world.minute).empty());
    world.observations[0].mem_used = 2 * kGiB;
    EXPECT_TRUE(world.sample(100ms).empty()) << "its own";
    world.observations[0].mem_used = 2 * kGiB + 16.0 * (1 << 20);
    EXPECT_TRUE(world.sample(100ms).empty()) << "as much as may be";
    world.observations[0].mem_used += 1;
    EXPECT_EQ(kinds(world.sample(100ms)), Kinds{FillOrder::end});
  }
}

TEST(FillingDecisions, TheDeadlineGoesByWhenTheSampleWasAskedFor) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  world.open(0, kStranger);
  const Instant paused = world.now;
  EXPECT_TRUE(world.filling->sampled(paused + 10s, paused + 100ms, world.observations, {}, world.minute).empty())
      << "what it tells is 9.9 s old";
  EXPECT_EQ(world.filling->decides_at(), paused + 2800ms);
  EXPECT_TRUE(world.filling->sampled(paused + 10s, paused + 2799ms, world.observations, {}, world.minute).empty());
  EXPECT_EQ(kinds(world.filling->sampled(paused + 10s, paused + 2800ms, world.observations, {}, world.minute)),
            Kinds{FillOrder::go_on});
  EXPECT_FALSE(world.filling->decides_at());
}

// An open is reported before it is done: who is not seen to have it open may be about to.
TEST(FillingDecisions, ThatNobodyHasItOpenCountsFromAQuarterOfASecondAfterTheOpen) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  world.open(0, kStranger);
  world.close(0);
  const Instant paused = world.now;
  EXPECT_TRUE(world.filling->sampled(paused + 1s, paused + 249ms, world.observations, {}, world.minute).empty());
  EXPECT_EQ(kinds(world.filling->sampled(paused + 1s, paused + 250ms, world.observations, {}, world.minute)),
            Kinds{FillOrder::go_on});
}

TEST(FillingDecisions, NothingIsDecidedBeforeSomebodyHasLookedWhoHasItOpen) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  world.open(0, kStranger);
  world.observations[0].openers.reset();
  EXPECT_TRUE(world.sample(10s).empty());
  EXPECT_TRUE(world.filling->wants_openers());
  world.observations[0].openers.emplace();
  EXPECT_EQ(kinds(world.sample(100ms)), Kinds{FillOrder::go_on});
  EXPECT_FALSE(world.filling->wants_openers());
}

TEST(FillingDecisions, WhoCameLastHasTheWholeTime) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  world.open(0, kStranger);
  world.now += 2s;
  EXPECT_TRUE(world.open(0, {.pid = 4712, .start_ticks = 100, .program = "python3"}).empty()) << "it is paused already";
  EXPECT_EQ(world.filling->decides_at(), world.now + 2800ms);
  EXPECT_TRUE(world.sample(1500ms).empty());
  EXPECT_EQ(kinds(world.sample(1500ms)), Kinds{FillOrder::go_on});
}

TEST(FillingDecisions, TheFirstOfSeveralDeadlinesIsTold) {
  FillingWorld world({FillingWorld::filler()}, 2);
  world.sample();
  const Instant first = world.now;
  world.open(0, kStranger);
  world.now += 1s;
  world.open(1, kStranger);
  EXPECT_EQ(world.filling->decides_at(), first + 2800ms);
  FillingWorld quick({FillingWorld::filler()}, 1, 400ms);
  quick.sample();
  quick.open(0, kStranger);
  EXPECT_EQ(quick.filling->decides_at(), quick.now + 300ms) << "a quarter of a short time";
}

TEST(FillingDecisions, WhoHasNoStartTimeIsNeverCleared) {
  for (const GpuProcess& nobody : {GpuProcess{.pid = 4711, .start_ticks = 0, .program = "python3"}, GpuProcess{}}) {
    FillingWorld world({FillingWorld::filler()});
    world.sample();
    for (int time = 0; time < 3; ++time) {
      ASSERT_EQ(kinds(world.open(0, nobody)), Kinds{FillOrder::halt}) << time;
      world.close(0);
      ASSERT_EQ(kinds(world.decision()), Kinds{FillOrder::go_on}) << time;
    }
  }
}

TEST(FillingDecisions, WhoClosedWithinTheTimeIsClearedOnceTheTimeIsUp) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  world.open(0, kStranger);
  EXPECT_TRUE(world.sample(1s).empty());
  world.close(0);
  EXPECT_EQ(kinds(world.sample(2s)), Kinds{FillOrder::go_on});
  EXPECT_TRUE(world.open(0, kStranger).empty()) << "had the whole time, and did nothing";
}

TEST(FillingDecisions, WhoWasNotHeardIsFoundByALook) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  world.observations[0].openers->push_back(kStranger);
  const auto orders = world.sample();
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::halt});
  EXPECT_EQ(orders[0].why.who, "python3 (4711)");
  EXPECT_EQ(orders[0].why.gpu, "0");
  EXPECT_TRUE(world.filling->suspects(world.observations[0].gpu, kStranger));
  ASSERT_EQ(kinds(world.decision()), Kinds{FillOrder::go_on});
  EXPECT_TRUE(world.sample().empty()) << "cleared";

  FillerSettings stop = FillingWorld::filler();
  stop.yield = YieldWay::stop;
  FillingWorld at_once({stop});
  at_once.sample();
  at_once.observations[0].openers->push_back(kStranger);
  EXPECT_EQ(kinds(at_once.sample()), Kinds{FillOrder::end});
}

TEST(FillingDecisions, SomebodyElseWhileItIsTooHotIsSuspectedBeforeItGoesOn) {
  FillerSettings settings = FillingWorld::filler();
  settings.max_temp = 70;
  FillingWorld world({settings});
  world.sample();
  world.observations[0].temp = 70;
  EXPECT_TRUE(world.sample().empty()) << "at the limit it may run";
  world.observations[0].temp = 70.5;
  ASSERT_EQ(kinds(world.sample()), Kinds{FillOrder::halt});
  EXPECT_EQ(world.filling->why(0).number, 70.5);
  world.observations[0].temp = 65.5;
  EXPECT_TRUE(world.sample().empty());
  world.observations[0].temp = 65;
  world.observations[0].openers->push_back(kStranger);
  EXPECT_TRUE(world.sample().empty()) << "it is paused already";
  EXPECT_EQ(world.filling->why(0).kind, Reason::opened);
  EXPECT_TRUE(world.filling->decides_at());
  const auto orders = world.decision();
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::go_on});
  EXPECT_EQ(orders[0].why.kind, Reason::nothing_came);
}

TEST(FillingDecisions, HeatAloneGoesAwayAsCoolEnough) {
  FillerSettings settings = FillingWorld::filler();
  settings.max_temp = 70;
  FillingWorld world({settings});
  world.sample();
  world.observations[0].temp = kUnknown;
  ASSERT_EQ(kinds(world.sample()), Kinds{FillOrder::halt});
  EXPECT_EQ(to_string(world.filling->why(0)), "GPU 0: its temperature is unknown");
  world.observations[0].temp = 60;
  const auto orders = world.sample();
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::go_on});
  EXPECT_EQ(orders[0].why.kind, Reason::cool_enough);
}

TEST(FillingDecisions, UnknownFreeMemoryDoesNotStart) {
  FillerSettings settings = FillingWorld::filler();
  settings.memory = 8 * kGiB;
  FillingWorld world({settings});
  world.observations[0].mem_free = kUnknown;
  EXPECT_TRUE(world.sample().empty());
  EXPECT_EQ(to_string(world.filling->why(0)), "GPU 0: its free memory is unknown");
  world.observations[0].mem_free = 8 * kGiB;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::start}) << "as much as it needs";
}

TEST(FillingDecisions, HoursEndOneInEveryState) {
  FillerSettings settings = FillingWorld::filler();
  settings.hours = *Hours::parse("10-14");
  const auto over = [](FillingWorld& world) {
    world.minute = 14 * 60;
    const auto orders = world.sample();
    ASSERT_EQ(kinds(orders), Kinds{FillOrder::end});
    EXPECT_EQ(orders[0].why.kind, Reason::out_of_hours);
  };
  FillingWorld running({settings});
  running.sample();
  over(running);

  FillingWorld suspected({settings});
  suspected.sample();
  suspected.open(0, kStranger);
  over(suspected);

  FillerSettings pause = settings;
  pause.yield = YieldWay::pause;
  FillingWorld paused({pause});
  paused.sample();
  paused.observations[0].claims = {kUsed};
  ASSERT_EQ(kinds(paused.sample()), Kinds{FillOrder::halt});
  over(paused);

  FillerSettings park = settings;
  park.yield_command = "park";
  FillingWorld parked({park});
  parked.sample();
  parked.observations[0].claims = {kUsed};
  ASSERT_EQ(kinds(parked.sample()), Kinds{FillOrder::park});
  EXPECT_TRUE(parked.sample().empty()) << "its command runs";
  parked.filling->parked(0, true, parked.now);
  over(parked);

  FillingWorld unreadable({settings});
  unreadable.sample();
  unreadable.observations[0].unreadable = "GPU is lost";
  unreadable.sample();
  ASSERT_EQ(kinds(unreadable.sample()), Kinds{FillOrder::halt});
  over(unreadable);
}

TEST(FillingDecisions, OneThatIsParkedComesBackOnlyToAGpuThatIsFree) {
  FillerSettings settings = FillingWorld::filler();
  settings.yield_command = "park";
  FillingWorld world({settings});
  const auto stays = [&](const char* why) {
    EXPECT_TRUE(world.sample().empty()) << why;
    world.observations[0] = FillingWorld::observation(0);
  };
  world.sample();
  world.observations[0].claims = {kUsed};
  ASSERT_EQ(kinds(world.sample()), Kinds{FillOrder::park});
  EXPECT_TRUE(world.open(0, kStranger).empty()) << "it is on its way out";
  world.filling->parked(0, true, world.now);
  EXPECT_TRUE(world.open(0, kStranger).empty()) << "it is not on the GPU";
  EXPECT_EQ(world.filling->unit_on(world.observations[0].gpu), 0U) << "it still has processes there";
  stays("somebody uses it");
  world.observations[0].unreadable = "GPU is lost";
  stays("unreadable");
  world.observations[0].not_free = Reason{.kind = Reason::starts_soon, .time = 1s};
  stays("the rule");
  world.observations[0].openers->push_back(kStranger);
  stays("open");
  world.observations[0].openers.reset();
  EXPECT_TRUE(world.sample().empty()) << "nobody has looked";
  EXPECT_TRUE(world.filling->wants_openers());
  world.observations[0] = FillingWorld::observation(0);
  const auto orders = world.sample();
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::go_on});
  EXPECT_EQ(orders[0].why.kind, Reason::free_again);
}

TEST(FillingDecisions, ParkingAndComingBackMayFail) {
  FillerSettings settings = FillingWorld::filler();
  settings.yield_command = "park";
  FillingWorld world({settings});
  world.sample();
  EXPECT_TRUE(world.filling->parked(0, false, world.now).empty()) << "it was not asked to";
  EXPECT_TRUE(world.filling->unparked(0, true, world.now).empty());
  const auto orders = world.filling->unparked(0, false, world.now);
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::end});
  EXPECT_EQ(orders[0].why.kind, Reason::not_resumed);
  EXPECT_TRUE(world.filling->unparked(0, false, world.now).empty()) << "it ends already";
  world.filling->ended(0, world.now, 143);
  EXPECT_TRUE(world.filling->unparked(0, false, world.now).empty()) << "it is gone";
  world.sample();
  world.open(0, kStranger);
  EXPECT_EQ(kinds(world.filling->unparked(0, false, world.now)), Kinds{FillOrder::end}) << "also while it is paused";
}

TEST(FillingDecisions, OneThatCouldNotBeParkedIsNotParkedAgainForWhoWantsTheWholeCard) {
  FillerSettings settings = FillingWorld::filler();
  settings.yield = YieldWay::park;
  settings.yield_command = "park";
  FillingWorld world({settings});
  world.sample();
  world.observations[0].claims = {{.kind = Reason::used, .who = "train.py"}};
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::park});
  EXPECT_EQ(kinds(world.filling->parked(0, false, world.now)), Kinds{FillOrder::halt});
  EXPECT_TRUE(world.sample().empty());
  world.observations[0].claims = {{.kind = Reason::leased, .who = "ada"}};
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::end});
}

TEST(FillingDecisions, EndingAtOnceIsAFailureWhateverTheStatus) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  world.filling->ended(0, world.now + 9s, 0);
  EXPECT_EQ(world.filling->failures(0), 1U);
  EXPECT_EQ(world.filling->backs_off(0, world.now + 9s), 10s);
  world.now += 9s;
  EXPECT_TRUE(world.sample(9s).empty());
  EXPECT_EQ(world.filling->why(0).kind, Reason::backing_off);
  EXPECT_EQ(world.filling->why(0).time, 1s);
  EXPECT_EQ(kinds(world.sample(1s)), Kinds{FillOrder::start});
  world.filling->ended(0, world.now + 10s, 0);
  EXPECT_EQ(world.filling->failures(0), 0U) << "not at once";
  world.now += 10s;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::start});
  world.filling->started(0, world.now + 5s);
  world.filling->ended(0, world.now + 14s, 0);
  EXPECT_EQ(world.filling->failures(0), 1U) << "counted from when it ran";
}

TEST(FillingDecisions, OnceThatFailsIsTriedAgain) {
  FillerSettings settings = FillingWorld::filler();
  settings.once = true;
  FillingWorld world({settings});
  world.sample();
  world.filling->ended(0, world.now + 1h, 1);
  world.now += 1h;
  EXPECT_EQ(kinds(world.sample(10s)), Kinds{FillOrder::start});
  world.filling->ended(0, world.now, 0);
  EXPECT_TRUE(world.sample(1h).empty());
  EXPECT_EQ(world.filling->why(0).kind, Reason::done);
}

TEST(FillingDecisions, TheTimeOfAChangeIsKept) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  const Instant started = world.now;
  EXPECT_EQ(world.filling->since(0), started);
  world.now += 5s;
  world.open(0, kStranger);
  EXPECT_EQ(world.filling->since(0), started + 5s);
  world.decision();
  EXPECT_EQ(world.filling->since(0), world.now);
  const auto orders = world.filling->end_all({.kind = Reason::shutting_down});
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::end});
  EXPECT_EQ(world.filling->since(0), world.now);
  EXPECT_TRUE(world.filling->end_all({.kind = Reason::shutting_down}).empty());
  world.filling->ended(0, world.now, 143);
  EXPECT_TRUE(world.sample(1h).empty()) << "nothing is started while we end";
}

TEST(FillingDecisions, AGpuThatIsOfferedAndLeftEmptyForAMinuteIsFilledAgain) {
  FillingWorld world({FillingWorld::filler()});
  world.waiters = {{"ticket.1", "ada", 1, {{"GPU-0"}}}};
  EXPECT_TRUE(world.sample().empty());
  EXPECT_EQ(world.filling->why(0).kind, Reason::waited_for);
  EXPECT_EQ(world.filling->why(0).who, "ada");
  EXPECT_TRUE(world.sample(1min).empty()) << "it stands for a minute";
  EXPECT_EQ(kinds(world.sample(1s)), Kinds{FillOrder::start});
  EXPECT_TRUE(world.sample().empty()) << "not offered to the same one again";
  world.waiters = {{"ticket.2", "bob", 1, {{"GPU-0"}}}};
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::end});
}

TEST(FillingDecisions, WaitersGetEmptyGpusFirstThenTheLeastImportant) {
  FillerSettings low = FillingWorld::filler(false);
  low.priority = -5;
  FillerSettings high = FillingWorld::filler(false);
  high.priority = 5;
  FillingWorld world({}, 3);
  world.filling =
      std::make_unique<Filling>(std::vector{low, high}, std::vector<FillUnit>{{0, {{"GPU-1"}}}, {1, {{"GPU-0"}}}}, 3s);
  ASSERT_EQ(kinds(world.sample()), (Kinds{FillOrder::start, FillOrder::start}));
  world.waiters = {{"ticket.1", "ada", 1, {{"GPU-0"}, {"GPU-1"}, {"GPU-2"}}}};
  EXPECT_TRUE(world.sample().empty()) << "the third is empty";
  world.waiters.push_back({"ticket.2", "bob", 1, {{"GPU-0"}, {"GPU-1"}, {"GPU-2"}}});
  auto orders = world.sample();
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::end});
  EXPECT_EQ(orders[0].unit, 0U) << "the least important";
  EXPECT_TRUE(world.sample().empty()) << "what was given stays given";
  world.waiters[1].missing = 2;
  orders = world.sample();
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::end});
  EXPECT_EQ(orders[0].unit, 1U);
}

TEST(FillingDecisions, WhatAWaiterWasGivenStaysGivenThoughAnotherGpuBecomesFree) {
  FillingWorld world({}, 2);
  world.filling =
      std::make_unique<Filling>(std::vector{FillingWorld::filler()}, std::vector<FillUnit>{{0, {{"GPU-0"}}}}, 3s);
  world.sample();
  world.observations[1].claims = {{.kind = Reason::leased, .who = "bob"}};
  world.waiters = {{"ticket.1", "ada", 1, {{"GPU-1"}, {"GPU-0"}}}};
  ASSERT_EQ(kinds(world.sample()), Kinds{FillOrder::end});
  world.observations[1].claims.clear();
  EXPECT_TRUE(world.sample().empty());
  world.filling->ended(0, world.now, 143);
  EXPECT_TRUE(world.sample().empty());
}

TEST(FillingDecisions, AnOfferLapsesOnlyWhileTheGpuIsEmpty) {
  FillingWorld world({FillingWorld::filler()});
  world.sample();
  world.waiters = {{"ticket.1", "ada", 1, {{"GPU-0"}}}};
  ASSERT_EQ(kinds(world.sample()), Kinds{FillOrder::end});
  EXPECT_TRUE(world.sample(90s).empty()) << "it takes its time to end";
  world.filling->ended(0, world.now, 143);
  EXPECT_TRUE(world.sample().empty());
}

TEST(FillingDecisions, OtherSettingsForAnotherGpuAreAnotherUnit) {
  FillingWorld world({FillingWorld::filler()}, 2);
  world.sample();
  const auto orders = world.filling->replace({FillingWorld::filler()}, {{0, {{"GPU-1"}}}}, world.now);
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::end});
  EXPECT_EQ(orders[0].unit, 0U);
  EXPECT_FALSE(world.filling->retired(1));
}

TEST(FillingDecisions, OtherSettingsKeepWhoStaysAndRetireTheRest) {
  FillerSettings one = FillingWorld::filler();
  FillingWorld world({one}, 2);
  world.sample();
  world.filling->ended(1, world.now, 1);
  const auto orders = world.filling->replace({one}, {{0, {{"GPU-0"}}}}, world.now);
  EXPECT_TRUE(orders.empty()) << "one goes on, the other did not run";
  EXPECT_FALSE(world.filling->retired(0));
  EXPECT_TRUE(world.filling->retired(1));
  EXPECT_TRUE(world.sample(1h).empty()) << "who is retired is not started";
  EXPECT_EQ(kinds(world.filling->replace({one}, {}, world.now)), Kinds{FillOrder::end});
  EXPECT_TRUE(world.filling->replace({one}, {}, world.now).empty()) << "it ends already";
}

TEST(FillingDecisions, AFillerWithoutGpusIsNotStarted) {
  FillingWorld world({}, 1);
  world.filling =
      std::make_unique<Filling>(std::vector{FillingWorld::filler(false)}, std::vector<FillUnit>{{0, {}}}, 3s);
  EXPECT_TRUE(world.sample().empty());
}

TEST(FillingDecisions, OpensOnOtherGpusAndByCoveredOnesDoNotMatter) {
  FillingWorld world({pausing()}, 2);
  world.filling = std::make_unique<Filling>(std::vector{pausing()}, std::vector<FillUnit>{{0, {{"GPU-0"}}}}, 3s);
  world.sample();
  EXPECT_TRUE(world.open(1, kStranger).empty());
  world.observations[0].claims = {kUsed};
  ASSERT_EQ(kinds(world.sample()), Kinds{FillOrder::halt});
  EXPECT_TRUE(world.open(0, kStranger).empty());
  EXPECT_FALSE(world.filling->decides_at()) << "it is paused for another process anyway";
  world.observations[0].claims.clear();
  EXPECT_TRUE(world.sample().empty()) << "somebody has it open, and it waits for a free GPU";
  world.close(0);
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::go_on});
}

}  // namespace
}  // namespace lull
