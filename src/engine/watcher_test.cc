#include "engine/watcher.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <memory>

namespace lull {
namespace {

using namespace std::chrono_literals;

std::shared_ptr<const Inventory> gpus(unsigned count) {
  auto inventory = std::make_shared<Inventory>();
  for (unsigned i = 0; i < count; ++i) {
    Device device;
    device.index = i;
    device.uuid = "GPU-" + std::to_string(i);
    inventory->devices.push_back(device);
  }
  return inventory;
}

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

template <class What>
std::size_t count(const std::vector<Intent>& intents) {
  return static_cast<std::size_t>(
      std::ranges::count_if(intents, [](const Intent& one) { return std::holds_alternative<What>(one); }));
}

bool says(const std::vector<Intent>& intents, Say::About about) {
  return std::ranges::any_of(intents, [&](const Intent& one) {
    const Say* say = std::get_if<Say>(&one);
    return say != nullptr && say->about == about;
  });
}

WatcherOptions options(std::string_view rule, Duration every, Duration delay = {}) {
  return {.policy = *Policy::parse(rule), .judge = {.interval = every}, .delay = delay};
}

class WatcherTest : public testing::Test {
 protected:
  std::vector<Intent> see(Watcher& watcher, Duration at, const std::vector<double>& util) {
    return watcher.observe(sample(Instant(at), inventory_, util), {inventory_->devices, "all"});
  }
  std::shared_ptr<const Inventory> inventory_ = gpus(2);
};

TEST_F(WatcherTest, Law_7_WhatIsNotToBeJudgedIsNotAndThatIsSaidOnce) {
  Watcher watcher(options("util < 1 for 10s", 5s, 20s), Instant(0s));
  const auto pause = [&](Duration at) {
    return watcher.observe(sample(Instant(at), inventory_, {0, 0}), {{}, "", "no context yet"});
  };
  int said = 0;
  for (int t = 0; t <= 100; t += 5) {
    const auto intents = pause(std::chrono::seconds(t));
    EXPECT_EQ(count<Fire>(intents), 0U);
    said += says(intents, Say::About::not_judged) ? 1 : 0;
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
      EXPECT_EQ(count<Say>(pause(std::chrono::seconds(t))), 0U) << "once";
      EXPECT_FALSE(watcher.still_holds());
      continue;
    }
    if (count<Fire>(see(watcher, std::chrono::seconds(t), {0, 0})) > 0) fired.push_back(t);
  }
  EXPECT_EQ(fired, std::vector<int>{130}) << "a pause ends the streak";
}

TEST_F(WatcherTest, FiresOnceAfterDelayAndWindow) {
  Watcher watcher(options("util < 1 for 10s", 5s, 20s), Instant(0s));
  std::vector<int> fired;
  for (int t = 0; t <= 100; t += 5)
    if (count<Fire>(see(watcher, std::chrono::seconds(t), {0, 0})) > 0) fired.push_back(t);
  EXPECT_EQ(fired, std::vector{30});
}

TEST_F(WatcherTest, FiresAgainOnlyAfterANewStreak) {
  Watcher watcher(options("util < 1 for 2s", 1s), Instant(0s));
  std::vector<int> fired;
  for (int t = 0; t <= 12; ++t) {
    if (count<Fire>(see(watcher, std::chrono::seconds(t), {t == 6 ? 50.0 : 0, 0})) > 0) {
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

TEST_F(WatcherTest, LostGpuIsSaidOnceAndNeverFires) {
  Watcher watcher(options("util < 1 for 3s", 1s), Instant(0s));
  int said = 0;
  for (int t = 0; t <= 300; ++t) {
    const auto out = see(watcher, std::chrono::seconds(t), {0, -1});
    EXPECT_EQ(count<Fire>(out), 0U);
    said += says(out, Say::About::cannot_judge) ? 1 : 0;
  }
  EXPECT_EQ(said, 1);
  const auto back = see(watcher, 301s, {0, 0});
  EXPECT_TRUE(says(back, Say::About::can_judge));
  EXPECT_EQ(count<Fire>(see(watcher, 303s, {0, 0})) + count<Fire>(see(watcher, 304s, {0, 0})), 1U);
}

TEST_F(WatcherTest, WhatStillCannotBeJudgedIsSaidAgainAfterTenMinutes) {
  Watcher watcher(options("util < 1 for 3s", 1s), Instant(0s));
  std::vector<int> said;
  for (int t = 0; t <= 1300; ++t)
    if (says(see(watcher, std::chrono::seconds(t), {-1, -1}), Say::About::cannot_judge)) said.push_back(t);
  EXPECT_EQ(said, (std::vector{0, 600, 1200}));
}

TEST_F(WatcherTest, NoDriverIsSaidAndForgottenWhenItComes) {
  Watcher watcher(options("util < 1 for 3s", 1s), Instant(0s));
  Snapshot nothing;
  nothing.inventory = std::make_shared<Inventory>();
  nothing.driver = {Absence::no_driver, "libnvidia-ml.so.1: not found"};
  EXPECT_TRUE(says(watcher.observe(nothing, {}), Say::About::no_gpu));
  nothing.at = Instant(1s);
  EXPECT_TRUE(watcher.observe(nothing, {}).empty());
  EXPECT_TRUE(says(see(watcher, 2s, {0, 0}), Say::About::gpu_back));
  EXPECT_EQ(count<Fire>(see(watcher, 4s, {0, 0})), 0U);
  EXPECT_EQ(count<Fire>(see(watcher, 5s, {0, 0})), 1U);
}

TEST_F(WatcherTest, StoppedJobIsNotIdle) {
  Watcher watcher(options("util < 1 for 4s", 1s), Instant(0s));
  for (int t = 0; t <= 3; ++t) EXPECT_EQ(count<Fire>(see(watcher, std::chrono::seconds(t), {0, 0})), 0U);
  watcher.job_stopped(true);
  for (int t = 4; t <= 50; ++t) EXPECT_EQ(count<Fire>(see(watcher, std::chrono::seconds(t), {0, 0})), 0U);
  watcher.job_stopped(false);
  std::vector<int> fired;
  for (int t = 51; t <= 60; ++t)
    if (count<Fire>(see(watcher, std::chrono::seconds(t), {0, 0})) > 0) fired.push_back(t);
  EXPECT_EQ(fired, std::vector{55});
}

TEST_F(WatcherTest, SuspendedMachineBeginsAnewAndSaysSo) {
  Watcher watcher(options("util < 1 for 10m", 5s), Instant(0s));
  for (int t = 0; t <= 300; t += 5) see(watcher, std::chrono::seconds(t), {0, 0});
  const auto out = see(watcher, 8h, {0, 0});  // the lid was closed
  EXPECT_EQ(count<Fire>(out), 0U);
  EXPECT_TRUE(says(out, Say::About::gap));
}

TEST_F(WatcherTest, ScopeChangeBeginsAnew) {
  Watcher watcher(options("util < 1 for 3s", 1s), Instant(0s));
  const Scope both{inventory_->devices, "all"};
  const Scope one{{inventory_->devices[0]}, "its context"};
  for (int t = 0; t <= 2; ++t) watcher.observe(sample(Instant(std::chrono::seconds(t)), inventory_, {0, 0}), both);
  const auto out = watcher.observe(sample(Instant(3s), inventory_, {0, 90}), one);
  EXPECT_TRUE(says(out, Say::About::scope));
  EXPECT_EQ(count<Fire>(out), 0U);
  std::vector<int> fired;
  for (int t = 4; t <= 8; ++t)
    if (count<Fire>(watcher.observe(sample(Instant(std::chrono::seconds(t)), inventory_, {0, 90}), one)) > 0)
      fired.push_back(t);
  EXPECT_EQ(fired, std::vector{6});
}

TEST_F(WatcherTest, LongestTime) {
  auto chosen = options("util < 1 for 1h", 1s);
  chosen.max_time = 60s;
  Watcher watcher(chosen, Instant(10s));
  EXPECT_EQ(watcher.next_time(), Instant(70s));
  EXPECT_TRUE(watcher.time_is(Instant(69s)).empty());
  EXPECT_EQ(count<TimeUp>(watcher.time_is(Instant(71s))), 1U);
  EXPECT_TRUE(watcher.time_is(Instant(80s)).empty());
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

// One schedule: what happened, and when the watcher fired.
std::vector<Moment> play(Duration every, Duration span, Duration delay, double limit, unsigned devices) {
  const auto inventory = gpus(devices);
  Watcher watcher(
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
    for (const Intent& intent : watcher.observe(sample(now, inventory, moment.util), {inventory->devices, "all"})) {
      if (!std::holds_alternative<Fire>(intent)) continue;
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
