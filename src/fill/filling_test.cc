#include "fill/filling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lull {
namespace {

using namespace std::chrono_literals;
using State = Filling::State;

constexpr double kGiB = 1024.0 * 1024 * 1024;

// One machine with a few GPUs, seen second by second.
class World {
 public:
  explicit World(std::vector<FillerSettings> fillers, std::size_t gpus = 1, Duration confirm = 3s) {
    std::vector<FillUnit> units;
    for (std::size_t i = 0; i < gpus; ++i) sights.push_back(sight(i));
    for (std::size_t f = 0; f < fillers.size(); ++f) {
      FillUnit all{f, {}};
      for (const GpuSight& one : sights) {
        if (fillers[f].per_gpu) units.push_back({f, {one.gpu}});
        all.gpus.push_back(one.gpu);
      }
      if (!fillers[f].per_gpu) units.push_back(all);
    }
    filling = std::make_unique<Filling>(std::move(fillers), std::move(units), confirm);
  }
  static GpuSight sight(std::size_t number) {
    GpuSight one{.gpu = {"GPU-" + std::to_string(number)}, .label = std::to_string(number)};
    one.temp = 40;
    one.mem_used = 0;
    one.mem_free = one.mem_total = 16 * kGiB;
    one.openers.emplace();
    return one;
  }
  static FillerSettings filler(bool per_gpu = true) {
    FillerSettings settings;
    settings.command = {"work"};
    settings.per_gpu = per_gpu;
    return settings;
  }

  std::vector<FillOrder> sample(Duration after = 1s) {
    now += after;
    return filling->sampled(now, now, sights, waiters, minute);
  }
  // Samples until the decision has been made.
  std::vector<FillOrder> decision() {
    for (int i = 0; i < 40; ++i)
      if (auto orders = sample(100ms); !orders.empty()) return orders;
    return {};
  }
  std::vector<FillOrder> open(std::size_t gpu, const Opener& who) {
    sights[gpu].openers->push_back(who);
    return filling->opened(now, sights[gpu].gpu, who);
  }
  void close(std::size_t gpu) { sights[gpu].openers->clear(); }
  State state(std::size_t unit = 0) const { return filling->state(unit); }

  Instant now = Instant(1h);
  std::vector<GpuSight> sights;
  std::vector<Waiter> waiters;
  int minute = 12 * 60;
  std::unique_ptr<Filling> filling;
};

using Kinds = std::vector<FillOrder::Kind>;
Kinds kinds(const std::vector<FillOrder>& orders) {
  Kinds found;
  for (const FillOrder& order : orders) found.push_back(order.kind);
  return found;
}

const Opener kStranger{4711, 99, "python3"};

TEST(Filling, StartsOnlyOnWhatIsKnownToBeFree) {
  World world({World::filler()});
  const auto refuses = [&](Reason::Kind why) {
    EXPECT_TRUE(world.sample().empty());
    EXPECT_EQ(world.filling->why(0).kind, why) << to_words(world.filling->why(0));
    world.sights[0] = World::sight(0);
  };
  world.sights[0].not_free = Reason{.kind = Reason::starts_soon, .time = 14s};
  refuses(Reason::starts_soon);
  world.sights[0].claims = {{.kind = Reason::leased, .who = "ada"}};
  refuses(Reason::leased);
  world.sights[0].claims = {{.kind = Reason::user, .who = "ada", .time = 12s}};
  refuses(Reason::user);
  world.sights[0].openers->push_back(kStranger);
  refuses(Reason::opened);
  world.sights[0].openers.reset();
  refuses(Reason::starts_soon);
  world.sights[0].unreadable = "GPU is lost";
  refuses(Reason::unreadable);
  world.sights[0].hidden = 12;
  world.sights[0].openers.reset();
  refuses(Reason::hidden);
  world.sights[0].mem_unexplained = 2 * kGiB;
  refuses(Reason::memory_left);
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::start});
}

TEST(Filling, LimitsOfAFillerAreKept) {
  FillerSettings settings = World::filler();
  settings.max_temp = 70;
  settings.memory = 8 * kGiB;
  settings.hours = HoursOfDay{22 * 60, 6 * 60};
  World world({settings});
  world.sample();
  EXPECT_EQ(world.filling->why(0).kind, Reason::out_of_hours);
  world.minute = 23 * 60;
  world.sights[0].temp = 75;
  world.sample();
  EXPECT_EQ(world.filling->why(0).kind, Reason::hot);
  world.sights[0].temp = 60;
  world.sights[0].mem_free = 4 * kGiB;
  world.sample();
  EXPECT_EQ(world.filling->why(0).kind, Reason::too_little_memory);
  world.sights[0].mem_free = 16 * kGiB;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::start});
  world.sights[0].temp = 71;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::halt});
  world.sights[0].temp = 68;
  EXPECT_TRUE(world.sample().empty()) << "not on and off around the limit";
  world.sights[0].temp = 60;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::go_on});
  world.sights[0].temp = kUnknown;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::halt}) << "unknown is not cool";
  world.minute = 12 * 60;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::end});
}

TEST(Filling, AnOpenIsNoUse) {
  World world({World::filler()});
  world.sample();
  ASSERT_EQ(kinds(world.open(0, kStranger)), Kinds{FillOrder::halt});
  EXPECT_TRUE(world.sample(100ms).empty());
  EXPECT_TRUE(world.sample(1s).empty()) << "it still has it open: it has the whole time";
  const auto orders = world.decision();
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::go_on});
  EXPECT_EQ(orders[0].why.kind, Reason::nothing_came);
  EXPECT_TRUE(world.open(0, kStranger).empty()) << "not suspected again";
  EXPECT_EQ(kinds(world.open(0, {4711, 100, "python3"})), Kinds{FillOrder::halt}) << "another process of that number";
}

TEST(Filling, WhoOpensAndClosesIsSuspectedTwiceAndNoMore) {
  World world({World::filler()});
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
  World world({World::filler()});
  world.sample();
  world.open(0, kStranger);
  world.close(0);
  const Instant before = world.now - 1s;
  EXPECT_TRUE(world.filling->sampled(world.now + 5s, before, world.sights, {}, world.minute).empty());
  EXPECT_EQ(world.state(), State::still);
}

TEST(Filling, UseEndsIt) {
  const std::vector<Reason> claims = {{.kind = Reason::used, .who = "python3"},
                                      {.kind = Reason::leased, .who = "ada"},
                                      {.kind = Reason::user, .who = "ada", .time = 1s}};
  for (const Reason& claim : claims) {
    World world({World::filler()});
    world.sample();
    world.open(0, kStranger);
    world.sights[0].claims = {claim};
    EXPECT_EQ(kinds(world.sample(100ms)), Kinds{FillOrder::end});
    EXPECT_EQ(world.state(), State::ending);
    EXPECT_TRUE(world.sample().empty()) << "once";
    world.filling->ended(0, world.now, 143);
    EXPECT_TRUE(world.sample().empty());
    world.sights[0] = World::sight(0);
    EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::start}) << "no back-off for what we ended";
  }
}

TEST(Filling, MemoryThatGrowsWhileItStandsStillIsSomebodyElses) {
  World world({World::filler()});
  world.sights[0].mem_used = 4 * kGiB;
  world.sample();
  world.open(0, kStranger);
  EXPECT_TRUE(world.sample(100ms).empty());
  world.sights[0].mem_used = 4.5 * kGiB;
  const auto orders = world.sample(100ms);
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::end});
  EXPECT_EQ(orders[0].why.kind, Reason::memory_grew);
}

TEST(Filling, YieldStopEndsAtOnceAndPauseStandsStill) {
  FillerSettings stop = World::filler();
  stop.yield = YieldWay::stop;
  World at_once({stop});
  at_once.sample();
  EXPECT_EQ(kinds(at_once.open(0, kStranger)), Kinds{FillOrder::end});

  FillerSettings pause = World::filler();
  pause.yield = YieldWay::pause;
  World world({pause});
  world.sample();
  world.open(0, kStranger);
  world.sights[0].claims = {{.kind = Reason::used, .who = "python3"}};
  world.sights[0].not_free = Reason{.kind = Reason::rule, .who = "util is 90 %"};
  world.sample();
  EXPECT_EQ(world.state(), State::still);
  world.sights[0].claims.clear();
  world.close(0);
  EXPECT_TRUE(world.sample().empty()) << "the rule has to hold again";
  world.sights[0].not_free.reset();
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::go_on});
  // Short of memory, or a lease: it ends.
  world.sights[0].claims = {{.kind = Reason::used, .who = "python3"}};
  world.sample();
  ASSERT_EQ(world.state(), State::still);
  world.sights[0].mem_free = 1 * kGiB;
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::end});
}

TEST(Filling, ParkingFallsBackToEnding) {
  FillerSettings settings = World::filler();
  settings.yield_command = "park";
  World world({settings});
  world.sample();
  world.sights[0].claims = {{.kind = Reason::used, .who = "python3"}};
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::park});
  EXPECT_TRUE(world.filling->parked(0, true, world.now).empty());
  EXPECT_EQ(world.state(), State::parked);
  world.sights[0].claims.clear();
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::go_on});
  world.sights[0].claims = {{.kind = Reason::used, .who = "python3"}};
  world.sample();
  EXPECT_EQ(kinds(world.filling->parked(0, false, world.now)), Kinds{FillOrder::end});
}

TEST(Filling, BacksOffExponentiallyAndForgetsAfterARunThatWentWell) {
  World world({World::filler()});
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

TEST(Filling, OnceIsOnce) {
  FillerSettings settings = World::filler();
  settings.once = true;
  World world({settings});
  world.sample();
  world.filling->ended(0, world.now + 1h, 0);
  EXPECT_TRUE(world.sample(2h).empty());
  EXPECT_EQ(world.filling->why(0).kind, Reason::done);
}

TEST(Filling, TheMoreImportantGoesFirstAndOneOnAllNeedsAll) {
  FillerSettings low = World::filler();
  FillerSettings high = World::filler(false);
  high.priority = 5;
  World world({low, high}, 2);
  const auto orders = world.sample();
  ASSERT_EQ(kinds(orders), Kinds{FillOrder::start});
  EXPECT_EQ(orders[0].unit, 2U);
  EXPECT_EQ(world.filling->why(0).kind, Reason::filled);
  // Somebody on one of its GPUs ends it; the other GPU is then filled by the one that needs one alone.
  world.sights[1].claims = {{.kind = Reason::used, .who = "python3"}};
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::end});
  world.filling->ended(2, world.now, 143);
  const auto next = world.sample();
  ASSERT_EQ(kinds(next), Kinds{FillOrder::start});
  EXPECT_EQ(next[0].unit, 0U);
}

TEST(Filling, AWaiterGetsAsManyAsItLacksTheLeastImportantFirst) {
  FillerSettings low = World::filler();
  World world({low}, 3);
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
  World world({World::filler()}, 4);
  world.sample();
  world.waiters = {{"ticket.1", "ada", 2, {{"GPU-0"}, {"GPU-1"}, {"GPU-2"}, {"GPU-3"}}}};
  EXPECT_EQ(kinds(world.sample()), (Kinds{FillOrder::end, FillOrder::end}));
  world.filling->ended(0, world.now, 143);
  EXPECT_TRUE(world.sample().empty());
  world.sights[0].claims = {{.kind = Reason::leased, .who = "ada"}};
  world.waiters[0].missing = 1;
  EXPECT_TRUE(world.sample().empty());
  world.filling->ended(1, world.now, 143);
  EXPECT_TRUE(world.sample().empty());
  world.sights[1].claims = world.sights[0].claims;
  world.waiters[0].missing = 0;
  EXPECT_TRUE(world.sample().empty());
  world.waiters.clear();
  EXPECT_TRUE(world.sample().empty());
  EXPECT_EQ(world.state(2), State::running);
  EXPECT_EQ(world.state(3), State::running);
}

TEST(Filling, WhatCannotBeReadStandsStillAndIsNotEnded) {
  World world({World::filler()});
  world.sample();
  world.sights[0].unreadable = "GPU is lost";
  EXPECT_TRUE(world.sample().empty()) << "one bad sample";
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::halt});
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(world.sample().empty());
  world.sights[0].unreadable.clear();
  EXPECT_EQ(kinds(world.sample()), Kinds{FillOrder::go_on});
}

TEST(Filling, OtherSettingsEndOnlyWhatChanged) {
  FillerSettings one = World::filler();
  one.name = "one";
  FillerSettings two = one;
  two.name = "two";
  two.gpus = "1";
  World world({one}, 2);
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

// ---- random episodes --------------------------------------------------------------

// Strangers come and go on three GPUs: monitors that only look, programs that open all and use one, leases, people,
// fillers that crash, GPUs that cannot be read. Time passes in tenths of a second.
class Episode {
 public:
  static constexpr std::size_t kGpus = 3;
  static constexpr Duration kStep = 100ms;
  static constexpr Duration kEvery = 1s;
  static constexpr Duration kRule = 5s;
  static constexpr Duration kGrace = 2s;

  Episode(unsigned seed, bool events, bool only_monitors)
      : random_(seed), events_(events), only_monitors_(only_monitors), world_(settings(), kGpus) {}

  void run(Duration time) {
    for (Duration passed{}; passed < time; passed += kStep) step(true);
  }
  // Everybody goes; every GPU must be filled in the end.
  void calm() {
    strangers_.clear();
    claims_.fill(false);
    unreadable_.fill(false);
    for (Duration passed{}; passed < 12min && !all_filled(); passed += kStep) step(false);
  }

  Duration longest_beside() const { return longest_; }
  bool ended_any() const { return ended_any_; }
  bool ran_on() const { return ran_on_; }  // although somebody was heard to open its GPU
  bool all_filled() const {
    for (std::size_t gpu = 0; gpu < kGpus; ++gpu)
      if (!running_on_[gpu] || still_[gpu] || gone_at_[gpu]) return false;
    return true;
  }

 private:
  struct Stranger {
    Opener who;
    std::array<bool, kGpus> holds{};
    std::optional<std::size_t> uses = {};  // which GPU it will compute on
    Instant uses_from{};
    Instant leaves{};
  };
  static std::vector<FillerSettings> settings() {
    FillerSettings one = World::filler();
    one.grace = kGrace;
    return {one};
  }
  int roll(int sides) { return std::uniform_int_distribution<int>(0, sides - 1)(random_); }

  void carry_out(const std::vector<FillOrder>& orders) {
    for (const FillOrder& order : orders) {
      const std::size_t gpu = order.unit;
      switch (order.kind) {
        case FillOrder::start:
          running_on_[gpu] = world_.now;
          still_[gpu] = false;
          break;
        case FillOrder::halt: still_[gpu] = true; break;
        case FillOrder::go_on: still_[gpu] = false; break;
        case FillOrder::park:
        case FillOrder::end:
          ended_any_ = true;
          still_[gpu] = false;
          gone_at_[gpu] = world_.now + roll(20) * kStep;
          break;
      }
    }
  }

  void step(bool wild) {
    world_.now += kStep;
    if (wild && roll(30) == 0) somebody_comes();
    for (Stranger& one : strangers_)
      if (world_.now >= one.leaves) one.holds.fill(false);
    std::erase_if(strangers_, [&](const Stranger& one) { return world_.now >= one.leaves; });
    if (wild && !only_monitors_) {
      for (std::size_t gpu = 0; gpu < kGpus; ++gpu) {
        if (roll(300) == 0) claims_[gpu] = !claims_[gpu];
        if (roll(300) == 0) unreadable_[gpu] = !unreadable_[gpu];
        if (running_on_[gpu] && !gone_at_[gpu] && !still_[gpu] && roll(600) == 0) end_of(gpu, 1);
      }
    }
    for (std::size_t gpu = 0; gpu < kGpus; ++gpu) {
      if (gone_at_[gpu] && world_.now >= *gone_at_[gpu]) end_of(gpu, 143);
      const bool used = in_use(gpu);
      if (used || claims_[gpu] || (running_on_[gpu] && !still_[gpu])) quiet_since_[gpu] = world_.now;
      const bool beside = used && running_on_[gpu] && !still_[gpu];
      beside_[gpu] = beside ? beside_[gpu] + kStep : Duration::zero();
      longest_ = std::max(longest_, beside_[gpu]);
    }
    const auto at = world_.filling->decides_at();
    if (world_.now >= next_sample_ || (at && world_.now >= *at)) sample();
  }

  bool in_use(std::size_t gpu) const {
    return std::ranges::any_of(strangers_,
                               [&](const Stranger& one) { return one.uses == gpu && world_.now >= one.uses_from; });
  }

  void end_of(std::size_t gpu, int status) {
    running_on_[gpu].reset();
    gone_at_[gpu].reset();
    still_[gpu] = false;
    world_.filling->ended(gpu, world_.now, status);
  }

  void somebody_comes() {
    Stranger one{.who = {1000 + ++last_, static_cast<std::uint64_t>(last_), "python3"}};
    one.leaves = world_.now + (1 + roll(200)) * kStep;
    const bool user = !only_monitors_ && roll(2) == 0;
    for (std::size_t gpu = 0; gpu < kGpus; ++gpu) one.holds[gpu] = user || roll(2) == 0;
    if (user) {
      one.uses = static_cast<std::size_t>(roll(kGpus));
      one.uses_from = world_.now + roll(60) * kStep;  // also later than anybody waits for it
    }
    strangers_.push_back(one);
    if (!events_) return;
    for (std::size_t gpu = 0; gpu < kGpus; ++gpu)
      if (one.holds[gpu]) {
        carry_out(world_.filling->opened(world_.now, world_.sights[gpu].gpu, one.who));
        ran_on_ |= running_on_[gpu] && !still_[gpu] && !gone_at_[gpu];
      }
  }

  void sample() {
    next_sample_ = world_.now + kEvery;
    for (int look = 0; look < 2; ++look) {
      for (std::size_t gpu = 0; gpu < kGpus; ++gpu) {
        GpuSight sight = World::sight(gpu);
        if (unreadable_[gpu]) sight.unreadable = "GPU is lost";
        if (in_use(gpu)) sight.claims.push_back({.kind = Reason::used, .who = "python3"});
        if (claims_[gpu]) sight.claims.push_back({.kind = Reason::leased, .who = "ada"});
        if (world_.now - quiet_since_[gpu] < kRule) sight.not_free = Reason{.kind = Reason::starts_soon, .time = 1s};
        sight.openers.reset();
        if (look == 1 || !events_) {
          sight.openers.emplace();
          for (const Stranger& one : strangers_)
            if (one.holds[gpu]) sight.openers->push_back(one.who);
        }
        world_.sights[gpu] = sight;
      }
      carry_out(world_.filling->sampled(world_.now, world_.now, world_.sights, {}, 0));
      if (!world_.filling->wants_openers()) return;
    }
  }

  std::mt19937 random_;
  bool events_;
  bool only_monitors_;
  World world_;
  std::vector<Stranger> strangers_;
  int last_ = 0;
  Instant next_sample_{};
  std::array<bool, kGpus> claims_{};
  std::array<bool, kGpus> unreadable_{};
  std::array<bool, kGpus> still_{};
  std::array<std::optional<Instant>, kGpus> running_on_{};
  std::array<std::optional<Instant>, kGpus> gone_at_{};
  std::array<Instant, kGpus> quiet_since_{};
  std::array<Duration, kGpus> beside_{};
  Duration longest_{};
  bool ended_any_ = false;
  bool ran_on_ = false;
};

class RandomEpisodes : public ::testing::TestWithParam<bool> {};

TEST_P(RandomEpisodes, NoFillerRunsBesideSomebodyForLongerThanTheLimitAndFreeGpusAreFilled) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    Episode episode(seed, GetParam(), false);
    episode.run(3min);
    // A sample sees who uses it; then the filler has its grace. An unreadable GPU is given one sample more.
    EXPECT_FALSE(episode.ran_on()) << "seed " << seed;
    EXPECT_LE(episode.longest_beside(), 2 * Episode::kEvery + Episode::kGrace + 2 * Episode::kStep) << "seed " << seed;
    episode.calm();
    EXPECT_TRUE(episode.all_filled()) << "seed " << seed;
  }
}

TEST_P(RandomEpisodes, AMonitorNeverCostsAFillerItsWork) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    Episode episode(seed, GetParam(), true);
    episode.run(3min);
    EXPECT_FALSE(episode.ended_any()) << "seed " << seed;
    episode.calm();
    EXPECT_TRUE(episode.all_filled()) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Filling, RandomEpisodes, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "Events" : "Scanning"; });

}  // namespace
}  // namespace lull
