#include "engine/engine.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <memory>

#include "gpu/inventory_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// A sample at which every GPU shows `util`; NaN: it could not be read.
Snapshot sample(Instant at, const std::shared_ptr<const Inventory>& inventory, const std::vector<double>& util) {
  Snapshot snapshot;
  snapshot.at = at;
  snapshot.inventory = inventory;
  snapshot.readings.resize(inventory->devices.size());
  for (std::size_t i = 0; i < util.size(); ++i) {
    if (util[i] >= 0) {
      snapshot.readings[i].set(Metric::util, util[i]);
    } else {
      snapshot.readings[i].miss_all(Absence::lost);
    }
  }
  return snapshot;
}

using Events = std::vector<Event>;

template <class What>
std::size_t count(const Events& events) {
  return static_cast<std::size_t>(
      std::ranges::count_if(events, [](const Event& one) { return std::holds_alternative<What>(one.what); }));
}

template <class What>
bool says(const Events& events) {
  return count<What>(events) > 0;
}

Plan options(std::string_view rule, Duration every, Duration delay = {}) {
  return plan_of(*Policy::parse(rule), {.interval = every}, delay);
}

// One subject under one plan, as most commands have it.
class Watching {
 public:
  Watching(Plan plan, Instant start) : engine_({std::move(plan)}) { engine_.begin(subject_.id, start); }
  Events observe(const Snapshot& snapshot, const Scope& scope) {
    subject_.scope = scope;
    const auto events = engine_.observe(snapshot, {&subject_, 1});
    return {events.begin(), events.end()};
  }
  Events time_is(Instant now) {
    const auto events = engine_.time_is(now);
    return {events.begin(), events.end()};
  }
  std::optional<Instant> next_time() const { return engine_.next_time(); }
  void job_stopped(bool stopped) {
    subject_.stopped = stopped;
    engine_.stopped(subject_.id, stopped);
  }
  void acted() { engine_.outcome(subject_.id); }
  void not_confirmed() { engine_.outcome(subject_.id, 0, 0, FiresAgain::at_once); }
  void announced_and_not_confirmed() { engine_.outcome(subject_.id, 0, 0, FiresAgain::after_another_count); }
  bool still_holds() const { return engine_.holds(subject_.id); }
  bool not_judged() const { return engine_.find(subject_.id)->not_judged(); }
  void keep(Instant until) { engine_.keep(subject_.id, until); }

 private:
  Engine engine_;
  Subject subject_{.id = {"job"}, .scope = {}};
};

class EngineTest : public testing::Test {
 protected:
  Events see(Watching& watcher, Duration at, const std::vector<double>& util) {
    return watcher.observe(sample(Instant(at), inventory_, util), {inventory_->devices, "all"});
  }
  std::shared_ptr<const Inventory> inventory_ = gpus_for_test(2);
};

TEST_F(EngineTest, WhatIsNotToBeJudgedIsNotAndThatIsSaidOnce) {
  Watching watcher(options("util < 1 for 10s", 5s, 20s), Instant(0s));
  const auto pause = [&](Duration at) {
    return watcher.observe(sample(Instant(at), inventory_, {0, 0}), {{}, "", "no context yet"});
  };
  int said = 0;
  for (int t = 0; t <= 100; t += 5) {
    const auto intents = pause(std::chrono::seconds(t));
    EXPECT_EQ(count<Fired>(intents), 0U);
    said += says<NotJudged>(intents) ? 1 : 0;
    if (t < 20) {
      EXPECT_EQ(said, 0) << "nothing is judged before the delay anyway";
    }
  }
  EXPECT_EQ(said, 1);
  EXPECT_TRUE(watcher.not_judged());
  // Then it is judged, from then on.
  std::vector<int> fired;
  for (int t = 105; t <= 130; t += 5) {
    if (t == 115) {
      EXPECT_TRUE(pause(std::chrono::seconds(t)).empty()) << "once";
      EXPECT_FALSE(watcher.still_holds());
      continue;
    }
    if (count<Fired>(see(watcher, std::chrono::seconds(t), {0, 0})) > 0) fired.push_back(t);
  }
  EXPECT_EQ(fired, std::vector<int>{130}) << "a pause ends the streak";
}

// ---- what ends with the scope

TEST_F(EngineTest, AnotherScopeCallsOffWhatHadFired) {
  Watching watcher(options("util < 1", 5s), Instant(0s));
  const std::vector<Device> first = {inventory_->devices[0]};
  const std::vector<Device> second = {inventory_->devices[1]};
  const auto look = [&](Duration at, const std::vector<Device>& scope) {
    return watcher.observe(sample(Instant(at), inventory_, {0, 0}), {scope, "given"});
  };
  look(0s, first);
  ASSERT_TRUE(says<Fired>(look(5s, first)));
  EXPECT_TRUE(says<CalledOff>(look(10s, second))) << "though it is idle there, too";
}

TEST_F(EngineTest, WhatIsNoLongerJudgedCallsOffWhatHadFired) {
  Watching watcher(options("util < 1 for 5s", 5s), Instant(0s));
  see(watcher, 0s, {0, 0});
  ASSERT_TRUE(says<Fired>(see(watcher, 5s, {0, 0})));
  EXPECT_TRUE(says<CalledOff>(watcher.observe(sample(Instant(10s), inventory_, {0, 0}), {{}, "", "no context"})));
}

TEST_F(EngineTest, APauseInJudgingEndsTheStreakHoweverShortItIs) {
  Plan plan = options("util < 1 for 10s", 5s);
  plan.judge.max_gap = 1min;
  Watching watcher(std::move(plan), Instant(0s));
  see(watcher, 0s, {0, 0});
  see(watcher, 5s, {0, 0});
  watcher.observe(sample(Instant(6s), inventory_, {0, 0}), {{}, "", "no context"});
  EXPECT_FALSE(says<Fired>(see(watcher, 7s, {0, 0})));
  EXPECT_FALSE(says<Fired>(see(watcher, 12s, {0, 0}))) << "which was not watched from 5 to 7 s";
  EXPECT_TRUE(says<Fired>(see(watcher, 17s, {0, 0})));
}

// What fired while more time was asked for was of the GPUs of then.
TEST_F(EngineTest, WhatWasPutOffIsForgottenInAnotherScope) {
  Policy policy = *Policy::parse("util < 5", "util > 90");
  policy.rearm = true;
  Watching watcher(plan_of(std::move(policy), {.interval = 5s}), Instant(0s));
  const std::vector<Device> first = {inventory_->devices[0]};
  const std::vector<Device> second = {inventory_->devices[1]};
  const auto look = [&](Duration at, double util, const std::vector<Device>& scope) {
    return watcher.observe(sample(Instant(at), inventory_, {util, util}), {scope, "given"});
  };
  look(0s, 95, first);
  look(5s, 95, first);
  watcher.keep(Instant(12s));
  EXPECT_FALSE(says<Fired>(look(10s, 0, first))) << "put off";
  EXPECT_FALSE(says<Fired>(look(15s, 0, second))) << "nobody has worked there yet";
}

TEST_F(EngineTest, ASampleThatGoesBackInTimeDecidesNothing) {
  Watching watcher(options("util < 1 for 5s", 5s), Instant(0s));
  see(watcher, 0s, {0, 0});
  ASSERT_TRUE(says<Fired>(see(watcher, 5s, {0, 0})));
  watcher.acted();
  EXPECT_TRUE(see(watcher, 4s, {0, 0}).empty());
}

// ---- firing again, where it was not confirmed

TEST_F(EngineTest, WhatWasNotConfirmedFiresAgainWithTheNextSampleThatIsAYes) {
  Watching watcher(options("util < 1 for 5s", 5s), Instant(0s));
  see(watcher, 0s, {0, 0});
  ASSERT_TRUE(says<Fired>(see(watcher, 5s, {0, 0})));
  watcher.not_confirmed();
  EXPECT_TRUE(says<Fired>(see(watcher, 10s, {0, 0})));
  watcher.not_confirmed();
  EXPECT_FALSE(says<Fired>(see(watcher, 15s, {50, 0})));
  EXPECT_FALSE(says<Fired>(see(watcher, 20s, {0, 0}))) << "that takes a new streak";
  EXPECT_TRUE(says<Fired>(see(watcher, 25s, {0, 0})));
  watcher.acted();
  EXPECT_FALSE(says<Fired>(see(watcher, 30s, {0, 0})));
}

TEST_F(EngineTest, WhatWasAnnouncedAndNotConfirmedFiresAgainAfterAnotherCount) {
  Watching watcher(options("util < 1 for 10s", 5s), Instant(0s));
  see(watcher, 0s, {0, 0});
  see(watcher, 5s, {0, 0});
  ASSERT_TRUE(says<Fired>(see(watcher, 10s, {0, 0})));
  watcher.announced_and_not_confirmed();
  EXPECT_FALSE(watcher.still_holds());
  EXPECT_FALSE(says<Fired>(see(watcher, 15s, {0, 0})));
  EXPECT_FALSE(says<Fired>(see(watcher, 20s, {0, 0})));
  EXPECT_TRUE(says<Fired>(see(watcher, 25s, {0, 0})));
}

TEST_F(EngineTest, FiresOnceAfterDelayAndWindow) {
  Watching watcher(options("util < 1 for 10s", 5s, 20s), Instant(0s));
  std::vector<int> fired;
  for (int t = 0; t <= 100; t += 5)
    if (count<Fired>(see(watcher, std::chrono::seconds(t), {0, 0})) > 0) fired.push_back(t);
  EXPECT_EQ(fired, std::vector{30});
}

TEST_F(EngineTest, FiresAgainOnlyAfterANewStreak) {
  Watching watcher(options("util < 1 for 2s", 1s), Instant(0s));
  std::vector<int> fired;
  for (int t = 0; t <= 12; ++t) {
    if (count<Fired>(see(watcher, std::chrono::seconds(t), {t == 6 ? 50.0 : 0, 0})) > 0) {
      fired.push_back(t);
      EXPECT_TRUE(watcher.still_holds());
      watcher.acted();
    }
    if (t == 6) {
      EXPECT_FALSE(watcher.still_holds());
    }
  }
  EXPECT_EQ(fired, (std::vector{2, 9}));
}

TEST_F(EngineTest, LostGpuIsSaidOnceAndNeverFires) {
  Watching watcher(options("util < 1 for 3s", 1s), Instant(0s));
  int said = 0;
  for (int t = 0; t <= 300; ++t) {
    const auto out = see(watcher, std::chrono::seconds(t), {0, -1});
    EXPECT_EQ(count<Fired>(out), 0U);
    said += says<CannotJudge>(out) ? 1 : 0;
  }
  EXPECT_EQ(said, 1);
  const auto back = see(watcher, 301s, {0, 0});
  EXPECT_TRUE(says<CanJudge>(back));
  EXPECT_EQ(count<Fired>(see(watcher, 303s, {0, 0})) + count<Fired>(see(watcher, 304s, {0, 0})), 1U);
}

TEST_F(EngineTest, WhatStillCannotBeJudgedIsSaidAgainAfterTenMinutes) {
  Watching watcher(options("util < 1 for 3s", 1s), Instant(0s));
  std::vector<int> said;
  for (int t = 0; t <= 1300; ++t)
    if (says<CannotJudge>(see(watcher, std::chrono::seconds(t), {-1, -1}))) said.push_back(t);
  EXPECT_EQ(said, (std::vector{0, 600, 1200}));
}

TEST_F(EngineTest, NoDriverIsSaidAndForgottenWhenItComes) {
  Watching watcher(options("util < 1 for 3s", 1s), Instant(0s));
  Snapshot nothing;
  nothing.inventory = std::make_shared<Inventory>();
  nothing.driver = {Absence::no_driver, "libnvidia-ml.so.1: not found"};
  EXPECT_TRUE(says<NoGpu>(watcher.observe(nothing, {})));
  nothing.at = Instant(1s);
  EXPECT_TRUE(watcher.observe(nothing, {}).empty());
  const auto back = see(watcher, 2s, {0, 0});
  const auto said =
      std::ranges::find_if(back, [](const Event& one) { return std::holds_alternative<GpuBack>(one.what); });
  ASSERT_NE(said, back.end());
  EXPECT_EQ(std::get<GpuBack>(said->what).watched.size(), 2U);
  EXPECT_FALSE(says<GpuBack>(see(watcher, 3s, {0, 0}))) << "once";
  EXPECT_EQ(count<Fired>(see(watcher, 4s, {0, 0})), 0U);
  EXPECT_EQ(count<Fired>(see(watcher, 5s, {0, 0})), 1U);
}

TEST_F(EngineTest, StoppedJobIsNotIdle) {
  Watching watcher(options("util < 1 for 4s", 1s), Instant(0s));
  for (int t = 0; t <= 3; ++t) EXPECT_EQ(count<Fired>(see(watcher, std::chrono::seconds(t), {0, 0})), 0U);
  watcher.job_stopped(true);
  for (int t = 4; t <= 50; ++t) EXPECT_EQ(count<Fired>(see(watcher, std::chrono::seconds(t), {0, 0})), 0U);
  watcher.job_stopped(false);
  std::vector<int> fired;
  for (int t = 51; t <= 60; ++t)
    if (count<Fired>(see(watcher, std::chrono::seconds(t), {0, 0})) > 0) fired.push_back(t);
  EXPECT_EQ(fired, std::vector{55});
}

TEST_F(EngineTest, AGapInWhichNothingWasCountedIsNotSaid) {
  Watching watcher(options("util < 1 for 10m", 5s), Instant(0s));
  for (int t = 0; t <= 300; t += 5) see(watcher, std::chrono::seconds(t), {50, 50});
  EXPECT_FALSE(says<Gap>(see(watcher, 8h, {50, 50})));
}

TEST_F(EngineTest, SuspendedMachineBeginsAnewAndSaysSo) {
  Watching watcher(options("util < 1 for 10m", 5s), Instant(0s));
  for (int t = 0; t <= 300; t += 5) see(watcher, std::chrono::seconds(t), {0, 0});
  const auto out = see(watcher, 8h, {0, 0});  // the lid was closed
  EXPECT_EQ(count<Fired>(out), 0U);
  EXPECT_TRUE(says<Gap>(out));
}

TEST_F(EngineTest, ScopeChangeBeginsAnew) {
  Watching watcher(options("util < 1 for 3s", 1s), Instant(0s));
  const Scope both{inventory_->devices, "all"};
  const Scope one{{inventory_->devices[0]}, "its context"};
  for (int t = 0; t <= 2; ++t) watcher.observe(sample(Instant(std::chrono::seconds(t)), inventory_, {0, 0}), both);
  const auto out = watcher.observe(sample(Instant(3s), inventory_, {0, 90}), one);
  EXPECT_TRUE(says<ScopeChanged>(out));
  EXPECT_EQ(count<Fired>(out), 0U);
  std::vector<int> fired;
  for (int t = 4; t <= 8; ++t)
    if (count<Fired>(watcher.observe(sample(Instant(std::chrono::seconds(t)), inventory_, {0, 90}), one)) > 0)
      fired.push_back(t);
  EXPECT_EQ(fired, std::vector{6});
}

TEST_F(EngineTest, LongestTime) {
  auto chosen = options("util < 1 for 1h", 1s);
  chosen.max_time = 60s;
  Watching watcher(chosen, Instant(10s));
  EXPECT_EQ(watcher.next_time(), Instant(70s));
  EXPECT_TRUE(watcher.time_is(Instant(69s)).empty());
  EXPECT_EQ(count<TimeUp>(watcher.time_is(Instant(71s))), 1U);
  EXPECT_TRUE(watcher.time_is(Instant(80s)).empty());
}

TEST_F(EngineTest, WhatFiredIsCalledOffOnceWhenItCeasesToHold) {
  Watching watcher(options("util < 1 for 2s", 1s), Instant(0s));
  std::vector<int> fired;
  std::vector<int> off;
  for (int t = 0; t <= 12; ++t) {
    const auto events = see(watcher, std::chrono::seconds(t), {t == 4 || t == 5 ? 50.0 : 0, t == 9 ? -1.0 : 0});
    if (says<Fired>(events)) fired.push_back(t);
    if (says<CalledOff>(events)) off.push_back(t);
    if (t == 6) watcher.acted();  // only now the machine knows how that went
  }
  EXPECT_EQ(fired, (std::vector{2, 8})) << "not again before it was told";
  EXPECT_EQ(off, (std::vector{4, 9})) << "once; an unknown is no yes either";
}

TEST_F(EngineTest, WhatHasToArmAgainSaysSoEachTimeAndIsArmedWhenItFires) {
  Plan plan =
      plan_of({.idle = *parse_rule("util < 1 for 2s"), .arm = parse_rule("util > 50 for 1s").value(), .rearm = true},
              {.interval = 1s});
  Watching watcher(plan, Instant(0s));
  std::vector<int> armed;
  std::vector<int> fired;
  for (int t = 0; t <= 20; ++t) {
    const double util = t % 10 < 4 ? 90 : 0;
    for (const Event& event : see(watcher, std::chrono::seconds(t), {util, util})) {
      if (std::holds_alternative<Armed>(event.what)) armed.push_back(t);
      const Fired* fire = std::get_if<Fired>(&event.what);
      if (fire == nullptr) continue;
      fired.push_back(t);
      EXPECT_TRUE(fire->why.armed) << "it has fired";
      watcher.acted();
    }
  }
  EXPECT_EQ(armed, (std::vector{1, 11}));
  EXPECT_EQ(fired, (std::vector{6, 16}));
}

TEST_F(EngineTest, AStreakThatBeginsWhileTheLastIsDealtWithFiresAfterwards) {
  Watching watcher(options("util < 1 for 2s", 1s), Instant(0s));
  std::vector<int> fired;
  for (int t = 0; t <= 12; ++t) {
    if (says<Fired>(see(watcher, std::chrono::seconds(t), {t == 4 ? 50.0 : 0, 0}))) fired.push_back(t);
    if (t == 9) watcher.acted();
  }
  EXPECT_EQ(fired, (std::vector{2, 10}));
}

TEST_F(EngineTest, APersonAsksForMoreTime) {
  Watching watcher(options("util < 1 for 2s", 1s), Instant(0s));
  watcher.keep(Instant(6s));
  std::vector<int> fired;
  for (int t = 0; t <= 20; ++t) {
    if (t == 8) {
      watcher.acted();
      watcher.keep(Instant(16s));
    }
    if (says<Fired>(see(watcher, std::chrono::seconds(t), {t == 10 || t == 15 ? 50.0 : 0, 0}))) fired.push_back(t);
  }
  EXPECT_EQ(fired, (std::vector{6, 18})) << "what holds when the time is over fires then, what was busy begins anew";
}

TEST_F(EngineTest, StepsFireOneAfterTheOther) {
  Plan plan = options("util < 1 for 2s", 1s);
  plan.steps.push_back({"end", *parse_rule("util < 1 for 5s")});
  Engine engine({plan});
  const Subject subject{.id = {"job"}, .scope = {inventory_->devices, "all"}};
  std::vector<std::pair<int, std::uint32_t>> fired;
  for (int t = 0; t <= 20; ++t) {
    const double util = t == 12 ? 50 : 0;
    for (const Event& event :
         engine.observe(sample(Instant(std::chrono::seconds(t)), inventory_, {util, 0}), {&subject, 1}))
      if (std::holds_alternative<Fired>(event.what)) {
        fired.emplace_back(t, event.step);
        EXPECT_TRUE(engine.holds(subject.id, 0, event.step));
      }
    if (t == 8) engine.outcome(subject.id, 0, 0);
  }
  EXPECT_EQ(fired, (std::vector<std::pair<int, std::uint32_t>>{{2, 0}, {5, 1}, {15, 0}}))
      << "the second step was never told how it went";
}

TEST_F(EngineTest, AStepThatIsNotArmedHasNoTimeLeft) {
  Engine engine({plan_of(*Policy::parse("util < 1 for 4s", "util > 50"), {.interval = 1s}, {})});
  const Subject subject{.id = {"job"}, .scope = {inventory_->devices, "all"}};
  for (int t = 0; t < 3; ++t) {
    const Instant now{std::chrono::seconds(t)};
    (void)engine.observe(sample(now, inventory_, {0, 0}), {&subject, 1});
    EXPECT_EQ(engine.find(subject.id)->time_left(0, now), std::nullopt);
  }
}

TEST_F(EngineTest, AStepThatFiresHasNoTimeLeft) {
  Engine engine({options("util < 1 for 4s", 1s)});
  const Subject subject{.id = {"job"}, .scope = {inventory_->devices, "all"}};
  const auto left = [&](int t) {
    const Instant now{std::chrono::seconds(t)};
    (void)engine.observe(sample(now, inventory_, {0, 0}), {&subject, 1});
    return engine.find(subject.id)->time_left(0, now);
  };
  for (int t = 0; t < 4; ++t) EXPECT_EQ(left(t), std::chrono::seconds(4 - t));
  EXPECT_EQ(left(4), std::nullopt);
  EXPECT_EQ(left(5), std::nullopt);
  engine.keep(subject.id, Instant(20s));
  EXPECT_EQ(left(6), std::nullopt) << "it has fired, and nobody said how that went";
}

TEST_F(EngineTest, ManySubjectsAreJudgedEachByItself) {
  Engine engine({options("util < 1 for 3s", 1s), options("util < 60 for 2s", 1s)});
  const auto of_gpu = [&](unsigned gpu) {
    return Subject{.id = {"gpu" + std::to_string(gpu)}, .scope = {{inventory_->devices[gpu]}, "each"}};
  };
  std::vector<Subject> subjects{of_gpu(0), of_gpu(1)};
  std::vector<std::string> seen;
  for (int t = 0; t <= 6; ++t) {
    if (t == 5) subjects.pop_back();
    for (const Event& event : engine.observe(sample(Instant(std::chrono::seconds(t)), inventory_, {0, 50}), subjects)) {
      const std::string what = std::holds_alternative<Fired>(event.what)       ? "fired"
                               : std::holds_alternative<CalledOff>(event.what) ? "called off"
                                                                               : "other";
      seen.push_back(std::to_string(t) + " " + event.subject.value + " plan " + std::to_string(event.plan) + " " +
                     what);
    }
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"2 gpu0 plan 1 fired", "2 gpu1 plan 1 fired", "3 gpu0 plan 0 fired",
                                            "5 gpu1 plan 1 called off"}))
      << "who is gone is called off";
  EXPECT_EQ(engine.find({"gpu1"}), nullptr);
}

// ---- random schedules, against what is obviously right

struct Moment {
  Instant at{};
  std::vector<double> util;
  bool judged = true;   // neither delayed nor stopped
  bool broken = false;  // a gap, a stop or a change of scope lies before it
  bool fired = false;
};

bool idle(const Moment& moment, double limit) {
  return moment.judged && std::ranges::all_of(moment.util, [&](double one) { return one >= 0 && one < limit; });
}

// One schedule: what happened, and when it fired.
std::vector<Moment> play(Duration every, Duration span, Duration delay, double limit, unsigned devices) {
  const auto inventory = gpus_for_test(devices);
  Watching watcher(
      options("util < " + std::to_string(static_cast<int>(limit)) + " for " + std::to_string(span / 1ms) + "ms", every,
              delay),
      Instant(1h));
  std::vector<Moment> moments;
  Instant now(1h);
  bool stopped = false;
  double mood = 0;  // long stretches of one kind, or nothing would ever fire
  bool broken = true;
  const int length = *rc::gen::inRange(10, 120);
  for (int i = 0; i < length; ++i) {
    const int dice = *rc::gen::inRange(0, 100);
    if (dice < 3) {
      now += *rc::gen::inRange(1, 50) * every;  // suspended, or starved
    } else if (dice < 6) {
      stopped = !stopped;
      watcher.job_stopped(stopped);
      broken = true;
    } else if (dice < 12) {
      mood = 99;
    } else if (dice < 30) {
      mood = 0;
    }
    Moment moment;
    moment.at = now;
    for (unsigned gpu = 0; gpu < devices; ++gpu) {
      const int fate = *rc::gen::inRange(0, 100);
      double util = mood;
      if (fate == 0) util = -1;  // one failed reading
      if (fate == 1) util = limit;
      if (fate == 2) util = 99;
      moment.util.push_back(util);
    }
    moment.judged = !stopped && now >= Instant(1h) + delay;
    if (!moments.empty() && now - moments.back().at > longest_gap(every)) broken = true;
    moment.broken = broken;
    broken = false;
    for (const Event& event : watcher.observe(sample(now, inventory, moment.util), {inventory->devices, "all"})) {
      if (!std::holds_alternative<Fired>(event.what)) continue;
      RC_ASSERT(!moment.fired);
      moment.fired = true;
      watcher.acted();
    }
    moments.push_back(std::move(moment));
    now += every + std::chrono::milliseconds(*rc::gen::inRange(0, 20));
  }
  return moments;
}

TEST(RandomSchedules, BusyWithinTheWindowIsNeverEndedAndIdleAlwaysIs) {
  // RC_PARAMS may ask for more; this many are the promise.
  for (int schedule = 0; schedule < 100; ++schedule) {
    ASSERT_TRUE(rc::check([] {
      const Duration every = *rc::gen::element<Duration>(100ms, 1s, 5s);
      const Duration span = every * *rc::gen::inRange(1, 12);
      const Duration delay = every * *rc::gen::inRange(0, 6);
      const double limit = *rc::gen::element(1.0, 50.0);
      const auto moments = play(every, span, delay, limit, *rc::gen::inRange(1U, 4U));
      for (std::size_t i = 0; i < moments.size(); ++i) {
        // How far back without a break everything was idle: the slow and obvious way.
        std::size_t first = i;
        if (!idle(moments[i], limit)) {
          RC_ASSERT(!moments[i].fired);
          continue;
        }
        while (first > 0 && !moments[first].broken && idle(moments[first - 1], limit)) --first;
        const bool held = moments[i].at - moments[first].at >= span;
        const bool already = i > first && moments[i - 1].at - moments[first].at >= span;
        RC_ASSERT(moments[i].fired == (held && !already));
      }
    }));
  }
}

}  // namespace
}  // namespace lull
