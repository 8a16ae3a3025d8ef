// Replay says what would have happened live. So what happens live is the test: random
// recordings and random rules go through the Engine, one snapshot at a time as a
// running command sees them, and through replay as a file. Every firing must agree.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/engine.h"
#include "replay/replay.h"
#include "replay/resample.h"
#include "trace/test_trace.h"

namespace lull::replay {
namespace {

using trace::TempFile;
using Dice = std::mt19937_64;

constexpr std::int64_t kMs = 1'000'000;
constexpr Metric kSignals[] = {Metric::util, Metric::power, Metric::temp};

struct Moment {
  std::int64_t at = 0;                             // ns
  std::vector<std::array<double, 3>> values = {};  // [gpu][signal]; NaN: unknown
  std::vector<bool> of_job = {};                   // [gpu]; empty: all of them are
};
using Recording = std::vector<Moment>;

std::int64_t below(Dice& dice, std::uint64_t bound) { return static_cast<std::int64_t>(dice() % bound); }

Recording random_recording(Dice& dice, std::size_t gpus, std::int64_t interval) {
  Recording recording;
  std::int64_t at = below(dice, 100'000) * kMs;
  const bool jittered = dice() % 2 == 0;
  std::vector<bool> idle(gpus);
  for (std::int64_t i = 0, length = 2 + below(dice, 1500); i < length; ++i) {
    Moment moment{at, {}};
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
      if (dice() % 25 == 0) idle[gpu] = !idle[gpu];
      std::array<double, 3> values{static_cast<double>(below(dice, idle[gpu] ? 7 : 101)),
                                   static_cast<double>(below(dice, idle[gpu] ? 80 : 400)),
                                   static_cast<double>(30 + below(dice, 60))};
      if (dice() % 50 == 0) values[dice() % 3] = std::nan("");
      moment.values.push_back(values);
    }
    recording.push_back(std::move(moment));
    std::int64_t step = interval;
    if (jittered) step += below(dice, static_cast<std::uint64_t>(interval / 50 + 1));
    if (dice() % 40 == 0) step = step * (1 + below(dice, 8)) + below(dice, 3);
    at += step;
  }
  return recording;
}

std::string random_condition(Dice& dice, int depth) {
  static const std::vector<std::string> leaves = {"util < 5",
                                                  "util < 50",
                                                  "power < 100W",
                                                  "temp < 60",
                                                  "not util >= 5",
                                                  "any(util < 5)",
                                                  "max(util) < 10",
                                                  "mean(util) < 20",
                                                  "mean(util, 10s) < 30",
                                                  "mean(power, 3s) < 90",
                                                  "any(util < 5 for 4s)",
                                                  "util == 0"};
  if (depth == 0 || dice() % 3 == 0) return leaves[dice() % leaves.size()];
  std::string text = "(" + random_condition(dice, depth - 1) + ")";
  text += dice() % 2 == 0 ? " and (" : " or (";
  return text + random_condition(dice, depth - 1) + ")";
}

std::string random_rule(Dice& dice) {
  static const std::vector<std::string> spans = {"",        " for 1s", " for 10s", " for 3 samples", " for 1 samples",
                                                 " for 45s"};
  const std::string& span = spans[dice() % spans.size()];
  const std::string condition = random_condition(dice, 2);
  return span.empty() ? condition : "(" + condition + ")" + span;
}

// What a running command does with it: the moments at which it acts.
std::vector<std::int64_t> live(const Recording& recording, std::size_t first, std::size_t gpus, const Plan& plan) {
  auto inventory = std::make_shared<Inventory>();
  for (std::size_t i = 0; i < gpus; ++i) {
    Device device;
    device.index = static_cast<unsigned>(first + i);
    device.uuid = fmt::format("GPU-{}", first + i);
    inventory->devices.push_back(device);
  }
  Subject subject{.id = {"recorded"}, .scope = {inventory->devices, "test"}};
  Engine engine({plan});
  engine.begin(subject.id, Instant(Duration(recording.front().at)));
  std::vector<std::int64_t> fired;
  for (const Moment& moment : recording) {
    Snapshot snapshot;
    snapshot.at = Instant(Duration(moment.at));
    snapshot.inventory = inventory;
    for (std::size_t i = 0; i < gpus; ++i) {
      Reading reading;
      for (std::size_t s = 0; s < std::size(kSignals); ++s) {
        reading.value[index_of(kSignals[s])] = moment.values[first + i][s];
        reading.absence[index_of(kSignals[s])] =
            std::isnan(moment.values[first + i][s]) ? Absence::failed : Absence::none;
      }
      snapshot.readings.push_back(reading);
    }
    if (!moment.of_job.empty()) {
      subject.scope.devices.clear();
      for (std::size_t i = 0; i < gpus; ++i)
        if (moment.of_job[i]) subject.scope.devices.push_back(inventory->devices[i]);
    }
    for (const Event& event : engine.observe(snapshot, {&subject, 1})) {
      if (!std::holds_alternative<Fired>(event.what)) continue;
      fired.push_back(moment.at);
      engine.outcome(subject.id);
    }
  }
  return fired;
}

std::string as_csv(const Recording& recording) {
  const bool of_jobs = !recording.front().of_job.empty();
  std::string text = of_jobs ? "time,gpu,util,power,temp,job\n" : "time,gpu,util,power,temp\n";
  for (const Moment& moment : recording)
    for (std::size_t gpu = 0; gpu < moment.values.size(); ++gpu) {
      text += fmt::format("{},{}", moment.at, gpu);
      for (const double value : moment.values[gpu]) text += std::isnan(value) ? "," : fmt::format(",{}", value);
      if (of_jobs) text += moment.of_job[gpu] ? ",7" : ",none";
      text += '\n';
    }
  return text;
}

std::int64_t median(const Recording& recording) {
  std::vector<std::int64_t> intervals;
  for (std::size_t i = 1; i < recording.size(); ++i) intervals.push_back(recording[i].at - recording[i - 1].at);
  std::sort(intervals.begin(), intervals.end());
  return (intervals[(intervals.size() - 1) / 2] + intervals[intervals.size() / 2]) / 2;
}

// The slow, obvious twin of the resampler: what a command that looks every so often would have read. The value of a
// recorded sample is known for every nanosecond since the one before, unless a gap lies there.
Recording resampled(const Recording& recording, std::int64_t every) {
  const std::int64_t gap = longest_gap(Duration(median(recording))).count();
  Recording taken;
  for (std::int64_t tick = recording.front().at; tick <= recording.back().at; tick += every) {
    std::size_t newest = 0;
    while (newest + 1 < recording.size() && recording[newest + 1].at <= tick) ++newest;
    const bool cut = newest + 1 < recording.size() && recording[newest + 1].at - recording[newest].at > gap;
    if (cut && tick - recording[newest].at > std::min(gap, every / 10)) continue;
    Moment moment{tick, recording[newest].values};
    for (std::size_t gpu = 0; gpu < moment.values.size() && !taken.empty(); ++gpu)
      for (std::size_t s = 0; s < 2; ++s) {  // util, power
        double sum = 0;
        std::int64_t covered = 0;
        for (std::size_t i = 1; i < recording.size(); ++i) {
          const std::int64_t from = std::max(recording[i - 1].at, tick - every);
          const std::int64_t to = std::min(recording[i].at, tick);
          const double value = recording[i].values[gpu][s];
          if (to <= from || std::isnan(value) || recording[i].at - recording[i - 1].at > gap) continue;
          sum += value * static_cast<double>(to - from);
          covered += to - from;
        }
        moment.values[gpu][s] = static_cast<double>(covered) >= 0.9 * static_cast<double>(every)
                                    ? sum / static_cast<double>(covered)
                                    : std::nan("");
      }
    taken.push_back(std::move(moment));
  }
  return taken;
}

struct BothWays {
  ReplayOptions replay;
  Plan watch;
};

BothWays random_case(Dice& dice) {
  BothWays made;
  made.replay.columns = *trace::parse_columns("time=time:ns");
  made.replay.policy.idle = *parse_rule(random_rule(dice));
  if (dice() % 3 == 0)
    made.replay.policy.arm = *parse_rule(dice() % 2 == 0 ? "util > 90" : "power > 300W for 2 samples");
  if (dice() % 4 == 0) made.replay.missing = WhenMissing::ignore;
  if (dice() % 3 == 0) made.replay.delay = Duration(below(dice, 60'000) * kMs);
  made.replay.threads = 1;
  made.watch = plan_of(made.replay.policy, {.missing = made.replay.missing}, made.replay.delay);
  return made;
}

void expect_same(const ReplayResult& result, std::size_t gpu, const std::vector<std::int64_t>& want) {
  std::vector<std::int64_t> got;
  for (const Firing& firing : result.firings)
    if (firing.gpu == gpu) got.push_back(firing.at.time_since_epoch().count());
  RC_ASSERT(got == want);
}

TEST(ReplayIsLive, EveryFiringAgrees) {
  const bool held = rc::check([] {
    Dice dice(*rc::gen::arbitrary<std::uint64_t>());
    const std::size_t gpus = 1 + dice() % 3;
    const std::int64_t interval = std::vector<std::int64_t>{100, 1000, 2500}[dice() % 3] * kMs;
    const Recording recording = random_recording(dice, gpus, interval);
    auto [options, watch] = random_case(dice);
    watch.judge.interval = Duration(median(recording));
    const TempFile file(as_csv(recording));
    options.paths = {file.path()};
    options.per = dice() % 2 == 0 ? Per::all : Per::gpu;
    RC_LOG() << options.policy.idle.text << (options.per == Per::all ? " together" : "") << "\n";
    const auto result = replay(options);
    RC_ASSERT(result.has_value());
    if (options.per != Per::gpu) return expect_same(*result, kAllGpus, live(recording, 0, gpus, watch));
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) expect_same(*result, gpu, live(recording, gpu, 1, watch));
  });
  EXPECT_TRUE(held);
}

// With other GPUs its streaks begin anew; what was armed stays armed.
TEST(ReplayIsLive, EveryFiringAgreesForAJobThatTakesGpusAndLeavesThem) {
  const bool held = rc::check([] {
    Dice dice(*rc::gen::arbitrary<std::uint64_t>());
    const std::size_t gpus = 2 + dice() % 3;
    Recording recording = random_recording(dice, gpus, 1000 * kMs);
    std::vector<bool> of_job(gpus, true);
    for (Moment& moment : recording) {
      // It always has one, else it would be over.
      if (dice() % 60 == 0) of_job[1 + dice() % (gpus - 1)].flip();
      moment.of_job = of_job;
    }
    auto [options, watch] = random_case(dice);
    watch.judge.interval = Duration(median(recording));
    const TempFile file(as_csv(recording));
    options.paths = {file.path()};
    options.per = Per::job;
    RC_LOG() << options.policy.idle.text << "\n";
    const auto result = replay(options);
    RC_ASSERT(result.has_value());
    RC_ASSERT(result->subjects.size() == 1U);
    expect_same(*result, 0, live(recording, 0, gpus, watch));
  });
  EXPECT_TRUE(held);
}

TEST(ReplayIsLive, EveryFiringAgreesWithAnotherInterval) {
  const bool held = rc::check([] {
    Dice dice(*rc::gen::arbitrary<std::uint64_t>());
    Recording recording = random_recording(dice, 1, 1000 * kMs);
    recording.resize(std::min<std::size_t>(recording.size(), 300));  // the twin is slow
    auto [options, watch] = random_case(dice);
    const std::int64_t every = std::vector<std::int64_t>{200, 1000, 5000, 7300}[dice() % 4] * kMs;
    options.every = watch.judge.interval = Duration(every);
    const TempFile file(as_csv(recording));
    options.paths = {file.path()};
    options.per = dice() % 2 == 0 ? Per::all : Per::gpu;
    RC_LOG() << options.policy.idle.text << " every " << every << "\n";
    const auto result = replay(options);
    RC_ASSERT(result.has_value());
    expect_same(*result, options.per == Per::all ? kAllGpus : 0, live(resampled(recording, every), 0, 1, watch));
  });
  EXPECT_TRUE(held);
}

// A file that comes in no order does not tell its first moment at once; the delay and the ticks count from it all the
// same.
TEST(ReplayIsLive, TheStartIsThatOfTheTraceInWhateverOrder) {
  std::string rows;
  for (int i = 100; i-- > 0;) rows += fmt::format("{},0,{}\n", 1000 + i, i < 60 ? 0 : 50);
  const TempFile file("time,gpu,util\n" + rows);
  ReplayOptions options;
  options.paths = {file.path()};
  options.policy.idle = *parse_rule("util < 5 for 20s");
  options.delay = std::chrono::seconds(10);
  options.every = std::chrono::seconds(5);
  const auto result = replay(options);
  ASSERT_TRUE(result);
  ASSERT_EQ(result->firings.size(), 1U);
  EXPECT_EQ(result->firings[0].at, Instant(std::chrono::seconds(1030)));
}

}  // namespace
}  // namespace lull::replay
