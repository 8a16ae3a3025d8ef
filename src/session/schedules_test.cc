// Thousands of random schedules of whole sessions on injected time, and days of them, against what is obviously right:
// what cannot be undone follows a confirmation only.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "session/scripts_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// A thousand schedules of each; LULL_SCHEDULES asks for more.
int rounds() {
  const char* wanted = std::getenv("LULL_SCHEDULES");
  return std::max(1, (wanted != nullptr ? std::atoi(wanted) : 1000) / 100);
}

struct Spell {
  Instant from{};
  double util = 0;
};

// Stretches of work, idleness and silence, some shorter than a sample.
Script random_script(unsigned gpus) {
  Script script;
  script.gpus = gpus;
  auto spells = std::make_shared<std::vector<std::vector<Spell>>>(gpus);
  for (auto& one : *spells) {
    Instant at{};
    for (int i = 0; i < 40; ++i) {
      const int dice = *rc::gen::inRange(0, 100);
      one.push_back({at, dice < 70 ? 0.0 : dice < 90 ? 80.0 : kNotRead});
      at += std::chrono::milliseconds(dice < 70 ? *rc::gen::inRange(1'000, 200'000) : *rc::gen::inRange(100, 20'000));
    }
  }
  script.util = [spells](Instant at, unsigned gpu) {
    double util = 0;
    for (const Spell& spell : (*spells)[gpu])
      if (spell.from <= at) util = spell.util;
    return util;
  };
  const Duration away = std::chrono::seconds(*rc::gen::inRange(0, 3000));
  const Duration back = away + std::chrono::seconds(*rc::gen::element(0, 0, 3, 100));
  script.has_driver = [away, back](Instant at) {
    return at.time_since_epoch() < away || at.time_since_epoch() >= back;
  };
  const int old = *rc::gen::inRange(0, 7000);
  script.age = [old](Instant) { return std::chrono::milliseconds(std::max(0, old - 5000)); };  // most are of now
  const int slow = *rc::gen::inRange(0, 5);
  script.latency = [slow](Instant at) {
    const auto second = at.time_since_epoch() / 1s;
    return slow > 0 && second % 97 < slow ? Duration(8s) : Duration(2ms);
  };
  return script;
}

// Pauses of the machine, stops of the job.
void add_troubles(FakeWorld& world) {
  const int pauses = *rc::gen::inRange(0, 4);
  for (int i = 0; i < pauses; ++i) {
    const Duration length = std::chrono::seconds(*rc::gen::element(1, 20, 4000));
    world.loop().at(Instant(std::chrono::seconds(*rc::gen::inRange(1, 2000))),
                    [&world, length] { world.clock.advance(length); });
  }
  const int stops = *rc::gen::inRange(0, 3);
  for (int i = 0; i < stops; ++i) {
    const auto from = std::chrono::seconds(*rc::gen::inRange(1, 2000));
    world.loop().at(Instant(from), [&world] { world.stop_job(SIGSTOP); });
    world.loop().at(Instant(from + std::chrono::seconds(*rc::gen::inRange(1, 300))), [&world] { world.stop_job(0); });
  }
}

// Whether what cannot be undone may be done now, the slow and obvious way; empty, or what it broke. Every sample of the
// last `span` that was handed over said idle, there was no gap between them, the newest is of now, nobody stopped the
// job meanwhile; and from the firing that was announced until now nothing but yes was seen.
std::string broken_law(const FakeWorld& world, const Listening& sink, Instant now, Duration every, Duration span) {
  Instant next = now;
  Instant oldest = now;
  for (auto one = world.seen.rbegin(); one != world.seen.rend(); ++one) {
    if (one->given > now) continue;
    if (next - one->at > longest_gap(every)) return "a gap, or the newest sample is old";
    if (!one->idle) return "work was seen, or something could not be";
    next = oldest = one->at;
    if (now - oldest >= span) break;
  }
  if (now - oldest < span) return "that is too soon";
  for (const auto& [when, stopped] : world.stopped_at)
    if ((when > oldest || (when == oldest && stopped)) && when <= now)  // it may go on at the moment of the first one
      return "the job was stopped, or went on";
  const FiringFacts* firing = nullptr;
  for (const FiringFacts& one : sink.firings)
    if (Instant(one.at.time_since_epoch()) <= now) firing = &one;
  if (firing == nullptr) return "nothing was said before";
  for (const Seen& one : world.seen)
    if (one.given >= Instant(firing->at.time_since_epoch()) && one.given <= now && !one.idle)
      return "work was seen since it was said";
  return "";
}

TEST(RandomSessions, WhatCannotBeUndoneFollowsAFreshYesOnly) {
  std::size_t ended = 0;
  for (int round = 0; round < rounds(); ++round) {
    ASSERT_TRUE(rc::check([&] {
      const Duration every = *rc::gen::element<Duration>(500ms, 1s, 5s);
      const Duration span = std::chrono::seconds(*rc::gen::element(10, 30, 60));
      RunSettings settings = run_settings("util < 1 for " + std::to_string(span / 1s) + "s", every,
                                          std::chrono::seconds(*rc::gen::element(0, 60)));
      if (*rc::gen::inRange(0, 2) == 1) settings.on_idle = "hook";
      const unsigned restarts = settings.restarts = *rc::gen::inRange(0U, 3U);
      FakeWorld world(random_script(*rc::gen::inRange(1U, 4U)));
      const auto slow = *rc::gen::inRange(0, 40'000);
      world.action_takes = [slow] { return std::chrono::milliseconds(slow); };
      world.job_runs = 1h;
      add_troubles(world);
      Listening sink;
      const int status = RunSession(std::move(settings), world, sink).run().status;
      for (const Happened& one : world.happened)
        if (one.what == "end") {
          RC_ASSERT(broken_law(world, sink, one.at, every, span) == "");
        }
      RC_ASSERT((status == kExitIdle) == (world.count("end") > restarts));
      ended += world.count("end");
    }));
  }
  EXPECT_GT(ended, 5U * static_cast<unsigned>(rounds())) << "or nothing was tried";
}

TEST(RandomSessions, WarningsRetriesAndSeveralActionsLikewise) {
  std::size_t acted = 0;
  for (int round = 0; round < rounds(); ++round) {
    ASSERT_TRUE(rc::check([&] {
      WatchSettings settings = watch_settings("util < 1 for 30s");
      if (*rc::gen::inRange(0, 2) == 1) settings.how.warn = std::chrono::seconds(*rc::gen::inRange(1, 120));
      settings.actions.push_back(*parse_action("exec=second"));
      settings.retries = {.most = 3, .after = std::chrono::seconds(*rc::gen::inRange(1, 30))};
      settings.repeat = true;
      FakeWorld world(random_script(*rc::gen::inRange(1U, 4U)));
      const auto fails = *rc::gen::inRange(0, 4);
      world.action_works = [fails, n = 0]() mutable { return ++n % 4 >= fails; };
      const auto slow = *rc::gen::inRange(0, 40'000);
      world.action_takes = [slow] { return std::chrono::milliseconds(slow); };
      add_troubles(world);
      world.loop().at(Instant(1h), [&] { world.send(SIGTERM); });
      Listening sink;
      RC_ASSERT(WatchSession(std::move(settings), world, sink).run().status == 128 + SIGTERM);
      for (const Happened& one : world.happened)
        if (one.what == "exec=true" || one.what == "exec=second") {
          RC_ASSERT(broken_law(world, sink, one.at, 5s, 30s) == "");
          ++acted;
        }
    }));
  }
  EXPECT_GT(acted, 10U * static_cast<unsigned>(rounds()));
}

// The job has a context on the first GPU, which idles at times, and now and then one on another where it works, for as
// long as it takes to see it; lists of them are some seconds old.
Script wandering(Script script) {
  auto visits = std::make_shared<std::vector<std::vector<Spell>>>(script.gpus);
  for (auto& one : *visits) {
    Instant at{};
    for (int i = 0; i < 60; ++i) {
      const bool there = i % 2 == 1;
      one.push_back({at, there ? 1.0 : 0.0});
      at += std::chrono::milliseconds(there ? *rc::gen::inRange(6'000, 20'000) : *rc::gen::inRange(10'000, 100'000));
    }
  }
  script.has_context = [visits](Instant at, unsigned gpu) {
    double there = 0;
    for (const Spell& spell : (*visits)[gpu])
      if (spell.from <= at) there = spell.util;
    return gpu == 0 || there > 0;
  };
  script.util = [util = std::move(script.util)](Instant at, unsigned gpu) { return gpu == 0 ? util(at, gpu) : 80.0; };
  return script;
}

TEST(RandomSessions, AJobThatMovesIsJudgedByWhereItIsNow) {
  std::size_t ended = 0;
  const int few = (rounds() + 9) / 10;  // each reads /proc often
  for (int round = 0; round < few; ++round) {
    ASSERT_TRUE(rc::check([&] {
      const Duration every = *rc::gen::element<Duration>(500ms, 1s, 5s);
      const Duration span = std::chrono::seconds(*rc::gen::element(10, 33, 58));
      RunSettings settings = run_settings("util < 1 for " + std::to_string(span / 1s) + "s", every);
      settings.common.gpus.clear();
      FakeWorld world(wandering(random_script(*rc::gen::inRange(2U, 4U))));
      settings.restarts = 100;
      world.send_from(Instant(20min), SIGINT);
      Listening sink;
      (void)RunSession(std::move(settings), world, sink).run();
      for (const Happened& one : world.happened)
        if (one.what == "end") {
          RC_ASSERT(broken_law(world, sink, one.at, every, span) == "");
          ++ended;
        }
    }));
  }
  EXPECT_GT(ended, 20U * static_cast<unsigned>(few)) << "or nothing was tried";
}

// ---- whole days

// Two days of each; LULL_DAYS asks for more.
unsigned days() {
  const char* wanted = std::getenv("LULL_DAYS");
  return wanted != nullptr ? static_cast<unsigned>(std::max(1, std::atoi(wanted))) : 2U;
}

constexpr Instant kQuietFrom{23h};  // from here on nothing is wrong and nobody works
constexpr Instant kMidnight{24h};

// Times of the day before the quiet hour at which something is so.
class Spells {
 public:
  Spells(std::mt19937_64& dice, std::size_t count, Duration longest) {
    std::vector<Spell> all;
    for (std::size_t i = 0; i < count; ++i) {
      const Instant from = Instant() + up_to(dice, 22h);
      all.push_back({from, from + up_to(dice, longest)});
    }
    std::ranges::sort(all, {}, &Spell::from);
    for (const Spell& one : all) {
      if (spells_.empty() || spells_.back().to < one.from)
        spells_.push_back(one);
      else
        spells_.back().to = std::max(spells_.back().to, one.to);
    }
  }
  static Duration up_to(std::mt19937_64& dice, Duration longest) {
    return Duration(static_cast<std::int64_t>(dice() % static_cast<std::uint64_t>(longest.count())));
  }
  bool has(Instant at) const {
    const auto after = std::ranges::upper_bound(spells_, at, {}, &Spell::from);
    return after != spells_.begin() && at < std::prev(after)->to;
  }
  struct Spell {
    Instant from{};
    Instant to{};
  };
  const std::vector<Spell>& all() const { return spells_; }

 private:
  std::vector<Spell> spells_;
};

// A day of a machine on which everything goes wrong that can: work in bursts, GPUs that are silent, the driver gone,
// samples that take longer than their interval or are old when they come.
Script troubled_day(std::mt19937_64& dice) {
  Script script;
  script.gpus = 1 + static_cast<unsigned>(dice() % 4);
  std::vector<Spells> work;
  std::vector<Spells> bursts;
  std::vector<Spells> silent;
  for (unsigned gpu = 0; gpu < script.gpus; ++gpu) {
    work.emplace_back(dice, 30, 30min);
    bursts.emplace_back(dice, 60, 6s);
    silent.emplace_back(dice, 10, 2min);
  }
  script.util = [work, bursts, silent](Instant at, unsigned gpu) {
    return silent[gpu].has(at) ? kNotRead : work[gpu].has(at) || bursts[gpu].has(at) ? 80.0 : 0.0;
  };
  script.has_driver = [away = Spells(dice, 8, 5min)](Instant at) { return !away.has(at); };
  script.latency = [slow = Spells(dice, 20, 40s)](Instant at) { return slow.has(at) ? Duration(8s) : Duration(2ms); };
  script.age = [late = Spells(dice, 20, 40s)](Instant at) { return late.has(at) ? 6s : 0s; };
  return script;
}

// The machine is suspended; somebody stops the job and forgets it for a while; what is done takes its time.
void add_troubles_of_a_day(FakeWorld& world, std::mt19937_64& dice) {
  const Spells suspended(dice, 6, 20min);
  for (const auto& one : suspended.all())
    world.loop().at(one.from, [&world, length = one.to - one.from] {
      if (world.clock.now() + length < kQuietFrom) world.clock.advance(length);
    });
  const Spells stopped(dice, 8, 10min);
  for (const auto& one : stopped.all()) {
    world.loop().at(one.from, [&world] { world.stop_job(SIGSTOP); });
    world.loop().at(one.to, [&world] { world.stop_job(0); });
  }
  world.action_takes = [&dice] { return Spells::up_to(dice, dice() % 2 == 0 ? Duration(1s) : Duration(40s)); };
}

// Each thing that cannot be undone was lawful, it was done often, and in the quiet hour too: nothing was stuck.
void check_day(const FakeWorld& world, const Listening& sink, std::string_view what) {
  std::size_t times = 0;
  Instant last{};
  for (const Happened& one : world.happened) {
    if (one.what != what) continue;
    EXPECT_EQ(broken_law(world, sink, one.at, 5s, 5min), "") << "at " << one.at.time_since_epoch() / 1s << " s";
    last = one.at;
    ++times;
  }
  EXPECT_GT(times, 5U);
  EXPECT_GT(last, kQuietFrom);
}

TEST(SimulatedDays, RunWithFaultsAtRandom) {
  for (unsigned seed = 0; seed < days(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 dice(seed);
    RunSettings settings = run_settings("util < 1 for 5m");
    if (seed % 2 == 0) settings.on_idle = "hook";
    settings.restarts = 100'000;
    FakeWorld world(troubled_day(dice));
    add_troubles_of_a_day(world, dice);
    world.send_from(kMidnight, SIGINT);
    Listening sink;
    EXPECT_EQ(RunSession(std::move(settings), world, sink).run().status, 128 + SIGINT);
    EXPECT_GE(world.clock.now(), kMidnight);
    check_day(world, sink, "end");
    EXPECT_GE(world.starts, world.count("end"));
  }
}

TEST(SimulatedDays, WatchWithFaultsAtRandom) {
  for (unsigned seed = 0; seed < days(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 dice(seed);
    WatchSettings settings = watch_settings("util < 1 for 5m");
    if (seed % 2 == 0) settings.how.warn = 60s;
    settings.actions.push_back(*parse_action("exec=second"));
    settings.retries = {.most = 3, .after = 10s};
    settings.repeat = true;
    Script day = troubled_day(dice);
    day.util = [util = std::move(day.util)](Instant at, unsigned gpu) {  // a repeat takes a new streak
      return at > kQuietFrom + 10min && at < kQuietFrom + 12min ? 80.0 : util(at, gpu);
    };
    FakeWorld world(std::move(day));
    add_troubles_of_a_day(world, dice);
    world.action_works = [&dice] { return dice() % 4 != 0; };
    world.loop().at(kMidnight, [&] { world.send(SIGTERM); });
    Listening sink;
    EXPECT_EQ(WatchSession(std::move(settings), world, sink).run().status, 128 + SIGTERM);
    check_day(world, sink, "exec=true");
    check_day(world, sink, "exec=second");
  }
}

}  // namespace
}  // namespace lull
