#include "replay/replay.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "replay/output.h"
#include "trace/test_trace.h"

namespace lull::replay {
namespace {

using trace::TempFile;

// The slow, obvious twin: one GPU, one sample after the other, straight from the definitions.
struct Sample {
  std::int64_t at = 0;
  double util = 0;  // NaN: unknown
};
using Series = std::vector<Sample>;

struct Asked {
  double limit = 5;
  std::int64_t span = 0;      // ns
  std::uint32_t count = 0;    // samples, where not 0
  std::optional<double> arm;  // util above this
  std::int64_t regret = 0;
};

struct Counted {
  std::uint64_t firings = 0;
  std::uint64_t came_back = 0;
  std::uint64_t regretted = 0;
  std::int64_t idle = 0;
  std::int64_t reclaimed = 0;
  std::int64_t seen = 0;
};

// Whether a gap lies before each sample: an interval of more than three medians and a second.
std::vector<bool> gaps_of(const Series& series) {
  std::vector<std::int64_t> sorted;
  for (std::size_t i = 1; i < series.size(); ++i) sorted.push_back(series[i].at - series[i - 1].at);
  std::sort(sorted.begin(), sorted.end());
  std::vector<bool> gaps(series.size());
  for (std::size_t i = 1; i < series.size(); ++i) {
    const std::int64_t twice = sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2];
    gaps[i] = series[i].at - series[i - 1].at > std::max<std::int64_t>(3 * (twice / 2), 1'000'000'000);
  }
  return gaps;
}

void count_obviously(const Series& series, const Asked& asked, Counted& counted) {
  const std::vector<bool> gap = gaps_of(series);
  const auto yes = [&](std::size_t i) { return series[i].util < asked.limit; };
  const auto no = [&](std::size_t i) { return series[i].util >= asked.limit; };
  for (std::size_t i = 1; i < series.size(); ++i)
    if (!gap[i]) counted.seen += series[i].at - series[i - 1].at;
  std::size_t armed = asked.arm ? series.size() : 0;  // the first sample that may fire
  for (std::size_t i = series.size(); asked.arm && i-- > 0;)
    if (series[i].util > *asked.arm) armed = i + 1;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const bool begins = yes(i) && (i == 0 || !yes(i - 1) || gap[i]);
    if (!begins) continue;
    std::size_t last = i;
    while (last + 1 < series.size() && yes(last + 1) && !gap[last + 1]) ++last;
    const bool cut = last + 1 == series.size() || gap[last + 1];
    const std::int64_t end = cut ? series[last].at : series[last + 1].at;
    counted.idle += end - series[i].at;
    const std::size_t from = std::max(i, armed);
    for (std::size_t k = from; k <= last; ++k) {
      const bool long_enough =
          asked.count != 0 ? k - from + 1 >= asked.count : series[k].at - series[from].at >= asked.span;
      if (!long_enough) continue;
      const bool back = !cut && no(last + 1);
      ++counted.firings;
      counted.came_back += back ? 1 : 0;
      counted.regretted += back && end - series[k].at <= asked.regret ? 1 : 0;
      counted.reclaimed += end - series[k].at;
      break;
    }
  }
}

// Idle and busy phases, unknowns, gaps, and times that are regular, jittered, or change their pace.
Series random_series(std::mt19937_64& dice) {
  const auto below = [&](std::uint64_t bound) { return static_cast<std::int64_t>(dice() % bound); };
  Series series;
  const auto length = below(3000);
  const auto pace = below(4);
  std::int64_t at = below(1000) * 1'000'000'000;
  bool idle = false;
  for (std::int64_t i = 0; i < length; ++i) {
    if (below(30) == 0) idle = !idle;
    const bool unknown = below(60) == 0;
    series.push_back({at, unknown ? std::nan("") : static_cast<double>(idle ? below(7) : below(101))});
    std::int64_t step = 1'000'000'000;
    if (pace == 1) step += below(20'000'000) - 10'000'000;
    if (pace == 2) step = i < length * 2 / 5 ? 1'000'000'000 : 4'000'000'000;
    if (pace == 3) step = 100'000'000;
    if (below(40) == 0) step *= below(pace == 3 ? 15 : 5) + 1;
    at += step;
  }
  return series;
}

std::string as_csv(const std::vector<Series>& gpus, std::mt19937_64& dice, int order) {
  struct Row {
    std::int64_t at;
    std::size_t gpu;
    double util;
  };
  std::vector<Row> rows;
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu)
    for (const Sample& sample : gpus[gpu]) rows.push_back({sample.at, gpu, sample.util});
  if (order == 1) std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.at < b.at; });
  if (order == 2) std::shuffle(rows.begin(), rows.end(), dice);
  std::string text = "time,gpu,util\n";
  for (const Row& row : rows)
    text += fmt::format("{},{},{}\n", row.at, row.gpu, std::isnan(row.util) ? "" : fmt::format("{}", row.util));
  return text;
}

void expect_equal(const Totals& got, const Counted& want) {
  RC_ASSERT(got.firings == want.firings);
  RC_ASSERT(got.came_back == want.came_back);
  RC_ASSERT(got.regretted == want.regretted);
  RC_ASSERT(std::abs(got.idle_seconds - static_cast<double>(want.idle) / 1e9) < 1e-6);
  RC_ASSERT(std::abs(got.reclaimed_seconds - static_cast<double>(want.reclaimed) / 1e9) < 1e-6);
}

TEST(Replay, AgreesWithTheObviousTwin) {
  const bool held = rc::check([] {
    std::mt19937_64 dice(*rc::gen::arbitrary<std::uint64_t>());
    std::vector<Series> gpus(dice() % 4 + 1);
    for (Series& series : gpus) series = random_series(dice);
    gpus[0].push_back({gpus[0].empty() ? 0 : gpus[0].back().at + 1'000'000'000, 3});  // a trace has a row
    const int order = static_cast<int>(dice() % 3);
    const TempFile file(as_csv(gpus, dice, order));
    const bool by_count = dice() % 2 == 0;
    const bool armed = dice() % 2 == 0;
    ReplayOptions options;
    options.paths = {file.path()};
    options.columns = *trace::parse_columns("time=time:ns");
    options.policy.idle = *parse_rule(by_count ? "util < 5 for 3 samples" : "util < 5 for 20s");
    if (armed) options.policy.arm = *parse_rule("util > 95");
    options.regret = std::chrono::seconds(15);
    options.threads = static_cast<unsigned>(dice() % 2 + 1);
    // So little that GPUs are judged one by one, and by a few policies at a time; or room to sort one.
    if (dice() % 2 == 0) options.memory = order == 2 ? 400'000 : 8'000;
    if (!by_count) options.axes = {{"util", {"1", "5", "50"}}, {"for", {"1m", "0.5s", "20s"}}};
    const auto result = replay(options);
    RC_ASSERT(result.has_value());
    const auto check = [&](const Totals& totals, double limit, double seconds) {
      Counted counted;
      Asked asked{limit, std::llround(seconds * 1e9), by_count ? 3U : 0U, {}, 15'000'000'000};
      if (armed) asked.arm = 95;
      for (const Series& series : gpus) count_obviously(series, asked, counted);
      expect_equal(totals, counted);
      RC_ASSERT(std::abs(result->seen_seconds - static_cast<double>(counted.seen) / 1e9) < 1e-6);
    };
    check(result->totals, 5, 20);
    RC_ASSERT(result->firings.size() == result->totals.firings);
    if (by_count) return;
    std::size_t row = 0;
    for (const double limit : {1.0, 5.0, 50.0})
      for (const double seconds : {0.5, 20.0, 60.0}) check(result->sweep[row++].totals, limit, seconds);
  });
  EXPECT_TRUE(held);
}

// All GPUs together: with the same times for all, the group is idle when each of them is.
TEST(Replay, TogetherAgreesWithTheObviousTwin) {
  const bool held = rc::check([] {
    std::mt19937_64 dice(*rc::gen::arbitrary<std::uint64_t>());
    std::vector<Series> gpus(dice() % 3 + 1);
    gpus[0] = random_series(dice);
    gpus[0].push_back({gpus[0].empty() ? 0 : gpus[0].back().at + 1'000'000'000, 3});
    Series group = gpus[0];
    for (std::size_t gpu = 1; gpu < gpus.size(); ++gpu) {
      gpus[gpu] = gpus[0];
      for (std::size_t i = 0; i < gpus[gpu].size(); ++i) {
        if (dice() % 20 == 0) gpus[gpu][i].util = dice() % 2 == 0 ? std::nan("") : 70;
        const double util = gpus[gpu][i].util;
        if (group[i].util >= 5 || util >= 5)
          group[i].util = 100;  // one that is busy settles it
        else if (std::isnan(util))
          group[i].util = util;
      }
    }
    const TempFile file(as_csv(gpus, dice, static_cast<int>(dice() % 3)));
    ReplayOptions options;
    options.paths = {file.path()};
    options.columns = *trace::parse_columns("time=time:ns");
    options.policy.idle = *parse_rule("util < 5 for 10s");
    options.together = true;
    if (dice() % 2 == 0) options.axes = {{"for", {"1m", "30s"}}};
    options.regret = std::chrono::seconds(15);
    const auto result = replay(options);
    RC_ASSERT(result.has_value());
    Counted counted;
    count_obviously(group, {5, 10'000'000'000, 0, {}, 15'000'000'000}, counted);
    const auto weight = static_cast<std::int64_t>(gpus.size());
    counted.idle *= weight;
    counted.reclaimed *= weight;
    expect_equal(result->totals, counted);
    RC_ASSERT(std::abs(result->seen_seconds - static_cast<double>(counted.seen * weight) / 1e9) < 1e-6);
  });
  EXPECT_TRUE(held);
}

TEST(Replay, WhatTheDefinitionsSay) {
  const TempFile file(
      "time,gpu,util\n0,0,50\n60,0,1\n120,0,2\n180,0,1\n240,0,90\n300,0,1\n360,0,1\n420,0,\n480,0,1\n540,0,1\n"
      "2000,0,1\n2060,0,1\n2120,0,1\n2180,0,1\n");
  ReplayOptions options;
  options.paths = {file.path()};
  options.policy.idle = *parse_rule("util < 5 for 1m");
  const auto result = replay(options);
  ASSERT_TRUE(result);
  ASSERT_EQ(result->firings.size(), 4U);
  const StretchEnd endings[] = {StretchEnd::came_back, StretchEnd::unknown, StretchEnd::gap, StretchEnd::end};
  const int after[] = {120, 60, 0, 120};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(result->firings[i].ending, endings[i]);
    EXPECT_EQ(result->firings[i].after, std::chrono::seconds(after[i]));
    EXPECT_EQ(result->firings[i].idle, std::chrono::seconds(60));
  }
  EXPECT_EQ(result->totals.came_back, 1U);
  EXPECT_EQ(result->totals.regretted, 1U);
  EXPECT_DOUBLE_EQ(result->seen_seconds, 720);
  EXPECT_DOUBLE_EQ(result->totals.idle_seconds, 180 + 120 + 60 + 180);
}

TEST(Sweep, MistakesAreSaid) {
  for (const char* bad : {"for", "fro=5m", "for=", "util=1,,2"}) EXPECT_FALSE(parse_axis(bad)) << bad;
  const Policy policy = *Policy::parse("util < 5 for 20m");
  const auto combined = [&](std::vector<Axis> axes) { return combine(policy, axes); };
  EXPECT_FALSE(combined({{"for", {"5m", "3 samples"}}}));
  EXPECT_FALSE(combined({{"for", {"60s", "1m"}}}));
  EXPECT_FALSE(combined({{"temp", {"5"}}}));
  EXPECT_FALSE(combined({{"util", {"5"}}, {"util", {"6"}}}));
  const auto good = combined({{"for", {"1h", "5m"}}, {"util", {"1", "5"}}});
  ASSERT_TRUE(good);
  ASSERT_EQ(good->size(), 4U);
  EXPECT_EQ((*good)[0].policy.idle.text, "util < 1 for 5m");
  EXPECT_EQ((*good)[3].policy.idle.text, "util < 5 for 1h");
}

TEST(Sweep, TheKneeIsTheLongestThatIsWorthIt) {
  using Outcomes = std::vector<Outcome>;
  EXPECT_EQ(find_knee(Outcomes{{100, 50}, {90, 6}, {85, 4}, {80, 3}, {79, 0}}), 3U);
  EXPECT_EQ(find_knee(Outcomes{{100, 50}, {90, 5}}), std::nullopt);  // a tenth is not under a tenth
  EXPECT_EQ(find_knee(Outcomes{{100, 50}, {79, 0}}), std::nullopt);
  EXPECT_EQ(find_knee(Outcomes{{100, 0}, {100, 0}}), std::nullopt);
  EXPECT_EQ(find_knee(Outcomes{}), std::nullopt);
}

}  // namespace
}  // namespace lull::replay
