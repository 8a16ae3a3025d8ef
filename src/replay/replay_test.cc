#include "replay/replay.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <numeric>
#include <random>

#include "replay/obvious_test.h"
#include "replay/output.h"
#include "trace/test_trace.h"

namespace lull::replay {
namespace {

using trace::TempFile;

void expect_equal(const Totals& got, const Counted& want) {
  RC_ASSERT(got.firings == want.firings);
  RC_ASSERT(got.came_back == want.came_back);
  RC_ASSERT(got.regretted == want.regretted);
  RC_ASSERT(std::abs(got.idle_seconds - static_cast<double>(want.idle) / 1e9) < 1e-6);
  RC_ASSERT(std::abs(got.reclaimed_seconds - static_cast<double>(want.reclaimed) / 1e9) < 1e-6);
}

void expect_equal_spans(const Totals& got, const Counted& want) {
  RC_ASSERT(got.jobs == want.jobs);
  RC_ASSERT(got.ended == want.ended);
  RC_ASSERT(got.worked_again == want.worked_again);
  RC_ASSERT(std::abs(got.work_seconds - want.work) < 1e-5);
  RC_ASSERT(std::abs(got.lost_seconds - want.lost) < 1e-5);
  RC_ASSERT(std::abs(got.freed_seconds() - static_cast<double>(want.freed) / 1e9) < 1e-5);
  RC_ASSERT(got.not_seen_again() == want.followed.size());
  double followed = 0;
  for (const float seconds : got.followed) followed += static_cast<double>(seconds);
  RC_ASSERT(std::abs(followed - static_cast<double>(std::accumulate(want.followed.begin(), want.followed.end(), 0LL)) /
                                    1e9) < 1e-3 * (1 + static_cast<double>(want.followed.size())));
  for (const int minutes : {1, 5, 60}) {
    const auto chance = got.back.estimate(std::chrono::minutes(minutes));
    const auto obvious = chance_obviously(want.leaves, minutes * 60);
    RC_ASSERT(chance.has_value() == obvious.has_value());
    RC_ASSERT(!chance || std::abs(chance->ratio - *obvious) < 1e-9);
    RC_ASSERT(!chance || (chance->low <= chance->ratio + 1e-9 && chance->ratio <= chance->high + 1e-9));
    const auto at_risk =
        std::ranges::count_if(want.leaves, [&](const auto& one) { return one.second >= minutes * 60; });
    RC_ASSERT(!chance || chance->at_risk == static_cast<std::uint64_t>(at_risk));
  }
  RC_ASSERT(!got.lost_low || (*got.lost_low <= *got.lost_ratio() && *got.lost_ratio() <= *got.lost_high));
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
      asked.shortest = by_count ? 0 : 500'000'000;
      for (const Series& series : gpus) {
        count_obviously(series, asked, counted);
        count_spans_obviously(series, asked, counted);
      }
      expect_equal(totals, counted);
      expect_equal_spans(totals, counted);
      RC_ASSERT(std::abs(result->gap_seconds - static_cast<double>(counted.missed) / 1e9) < 1e-6);
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
    options.per = Per::all;
    if (dice() % 2 == 0) options.axes = {{"for", {"1m", "30s"}}};
    options.regret = std::chrono::seconds(15);
    const auto result = replay(options);
    RC_ASSERT(result.has_value());
    Counted counted;
    count_obviously(group, {.limit = 5, .span = 10'000'000'000, .arm = {}, .regret = 15'000'000'000}, counted);
    const auto weight = static_cast<std::int64_t>(gpus.size());
    counted.idle *= weight;
    counted.reclaimed *= weight;
    expect_equal(result->totals, counted);
    RC_ASSERT(std::abs(result->seen_seconds - static_cast<double>(counted.seen * weight) / 1e9) < 1e-6);
  });
  EXPECT_TRUE(held);
}

ReplayResult replayed(const std::string& text, Per per, const std::vector<Axis>& axes = {}) {
  const TempFile file(text);
  ReplayOptions options;
  options.paths = {file.path()};
  options.policy.idle = *parse_rule("util < 5 for 20s");
  options.per = per;
  options.axes = axes;
  options.threads = 1;
  auto result = replay(options);
  EXPECT_TRUE(result) << (result ? "" : result.error().message());
  return result ? *std::move(result) : ReplayResult{};
}

void expect_same_spans(const Totals& a, const Totals& b) {
  RC_ASSERT(a.jobs == b.jobs);
  RC_ASSERT(a.ended == b.ended);
  RC_ASSERT(a.worked_again == b.worked_again);
  RC_ASSERT(std::abs(a.work_seconds - b.work_seconds) < 1e-5);
  RC_ASSERT(std::abs(a.lost_seconds - b.lost_seconds) < 1e-5);
  RC_ASSERT(std::abs(a.freed_seconds() - b.freed_seconds()) < 1e-5);
  RC_ASSERT(a.follow_up_median() == b.follow_up_median());
}

// Jobs of one GPU each, told apart by their processes: judging each job is judging each GPU span by span.
TEST(Replay, JobsOfOneGpuAreItsJobSpans) {
  const bool held = rc::check([] {
    std::mt19937_64 dice(*rc::gen::arbitrary<std::uint64_t>());
    const auto below = [&](std::uint64_t bound) { return static_cast<int>(dice() % bound); };
    std::string text = "time,gpu,util,pid\n";
    const int gpus = below(4) + 1;
    std::vector<int> pid(static_cast<std::size_t>(gpus), 1);
    std::vector<bool> idle(static_cast<std::size_t>(gpus));
    int at = 0;
    for (int i = 0; i < 2000; ++i) {
      at += below(100) == 0 ? 30 : 1;
      for (int gpu = 0; gpu < gpus; ++gpu) {
        const auto g = static_cast<std::size_t>(gpu);
        if (below(200) == 0) pid[g] = below(3);
        if (below(30) == 0) idle[g] = !idle[g];
        const int util = pid[g] == 0 || idle[g] ? 0 : 50;
        text += fmt::format("{},{},{},{}\n", at, gpu, below(50) == 0 ? "" : std::to_string(util),
                            pid[g] == 0 ? "none" : std::to_string(pid[g] + 10 * gpu));
      }
    }
    const std::vector<Axis> axes = {{"for", {"5s", "1m"}}};
    const ReplayResult by_gpu = replayed(text, Per::gpu, axes);
    const ReplayResult by_job = replayed(text, Per::job, axes);
    expect_same_spans(by_gpu.totals, by_job.totals);
    for (std::size_t i = 0; i < 2; ++i) expect_same_spans(by_gpu.sweep[i].totals, by_job.sweep[i].totals);
    RC_ASSERT(by_gpu.ends.size() == by_job.ends.size());
  });
  EXPECT_TRUE(held);
}

// Each host for itself is the same as a trace of each host alone, all GPUs together.
TEST(Replay, AHostIsJudgedAsIfItWereAlone) {
  const bool held = rc::check([] {
    std::mt19937_64 dice(*rc::gen::arbitrary<std::uint64_t>());
    const auto below = [&](std::uint64_t bound) { return static_cast<int>(dice() % bound); };
    const std::string header = "time,host,gpu,util,mem_used_bytes\n";
    std::string both = header;
    std::vector<std::string> alone = {header, header};
    bool idle[2] = {false, false};
    const int other = below(2) == 0 ? 1 : 5;  // the interval of the second host
    for (int at = 0; at < 1500; ++at) {
      for (const std::size_t host : {0U, 1U}) {
        if (below(40) == 0) idle[host] = !idle[host];
        // One host pauses where the other goes on.
        if (host == 1 && (at % other != 0 || (at > 600 && at < 620))) continue;
        for (int gpu = 0; gpu < static_cast<int>(host) + 1; ++gpu) {
          const std::string row = fmt::format("{},node{},{},{},{}\n", at, host, gpu,
                                              below(60) == 0 ? ""
                                              : idle[host]   ? "0"
                                                             : "80",
                                              idle[host] && at % 400 > 350 ? 0 : 30'000'000'000);
          both += row;
          alone[host] += row;
        }
      }
    }
    const ReplayResult hosts = replayed(both, Per::host);
    Totals sum = replayed(alone[0], Per::all).totals;
    sum += replayed(alone[1], Per::all).totals;
    expect_same_spans(hosts.totals, sum);
    RC_ASSERT(hosts.totals.firings == sum.firings);
    RC_ASSERT(std::abs(hosts.totals.idle_seconds - sum.idle_seconds) < 1e-6);
    RC_ASSERT(hosts.subjects.size() == 2U);
    RC_ASSERT(hosts.subjects[1].gpus.size() == 2U);
  });
  EXPECT_TRUE(held);
}

// 1 s, then a minute: no gap, whatever is judged together.
TEST(Replay, TheIntervalMayChangeWhereGpusAreJudgedTogether) {
  std::string text = "time,host,gpu,util,pid\n";
  int at = 0;
  for (int i = 0; i < 300; ++i, at += i < 200 ? 1 : 60)
    for (const int gpu : {0, 1}) text += fmt::format("{},n1,{},{},7\n", at, gpu, i < 200 ? 90 : 0);
  for (const Per per : {Per::gpu, Per::job, Per::host, Per::all}) {
    const ReplayResult result = replayed(text, per);
    EXPECT_EQ(result.gap_seconds, 0) << static_cast<int>(per);
    EXPECT_EQ(result.totals.ended, per == Per::gpu ? 2U : 1U) << static_cast<int>(per);
    EXPECT_NEAR(result.totals.freed_seconds(), 2 * 98 * 60, 1) << static_cast<int>(per);
    EXPECT_NEAR(result.totals.work_seconds, 2 * 0.9 * 199, 1e-3) << static_cast<int>(per);
  }
}

// Their work is not among what can be lost; nor is that of a job whose user nobody tells.
TEST(Replay, JobsOfUsersWhoAreExceptedAreLeftOut) {
  std::string text = "time,gpu,util,pid,user\n";
  for (int at = 0; at < 200; at += 5)
    for (const int gpu : {0, 1, 2})
      text += fmt::format("{},{},{},{},{}\n", at, gpu, at < 50 || at == 150 ? 80 : 0, gpu + 7,
                          gpu == 0   ? "ada"
                          : gpu == 1 ? "bob"
                                     : "");
  const TempFile file(text);
  for (const Per per : {Per::gpu, Per::job}) {
    ReplayOptions options;
    options.paths = {file.path()};
    options.policy.idle = *parse_rule("util < 5 for 20s");
    options.per = per;
    options.axes = {{"for", {"20s", "1m"}}};
    const auto all = replay(options);
    options.except_users = {"ada"};
    const auto result = replay(options);
    ASSERT_TRUE(all && result);
    EXPECT_EQ(all->totals.ended, 3U);
    EXPECT_EQ(result->totals.jobs, 1U);
    EXPECT_EQ(result->totals.ended, 1U);
    EXPECT_EQ(result->sweep[1].totals.ended, 1U);
    EXPECT_EQ(result->left_out, 2U);
    ASSERT_EQ(result->ends.size(), 1U);
    EXPECT_EQ(result->trace.holders[result->ends[0].holder].user_text(), "bob");
    EXPECT_NEAR(result->totals.work_seconds, all->totals.work_seconds / 3, 1e-6);
    EXPECT_NEAR(*result->totals.lost_ratio(), *all->totals.lost_ratio(), 1e-9);
  }
  ReplayOptions together;
  together.paths = {file.path()};
  together.policy.idle = *parse_rule("util < 5 for 20s");
  together.per = Per::all;
  together.except_users = {"ada"};
  EXPECT_FALSE(replay(together));
}

// Somebody has a GPU of which nothing tells otherwise, from its first sample on.
TEST(Replay, AGpuOfWhichNothingIsToldIsOneJobFromItsFirstSample) {
  std::string text = "time,gpu,util\n";
  for (int at = 0; at < 200; at += 5) text += fmt::format("{},0,0\n", at);
  const ReplayResult result = replayed(text, Per::gpu);
  EXPECT_EQ(result.totals.jobs, 1U);
  EXPECT_EQ(result.totals.ended, 1U);
}

// A job on two GPUs is idle when both are, and ended as one.
TEST(Replay, AJobIsJudgedByAllItsGpus) {
  std::string text = "time,gpu,util,job,user\n";
  for (int at = 0; at < 200; at += 5)
    text += fmt::format("{},0,0,a,alice\n{},1,{},a,alice\n{},2,{},b,bob\n", at, at, at < 100 ? 90 : 0, at,
                        at < 50 || at == 150 ? 90 : 0);
  const ReplayResult result = replayed(text, Per::job);
  EXPECT_EQ(result.totals.jobs, 2U);
  ASSERT_EQ(result.ends.size(), 2U);
  EXPECT_EQ(gpu_text(result, result.ends[0].gpu), "bob/b");
  EXPECT_EQ(result.ends[0].at.time_since_epoch(), std::chrono::seconds(70));
  EXPECT_TRUE(result.ends[0].back);
  EXPECT_EQ(gpu_text(result, result.ends[1].gpu), "alice/a");
  EXPECT_EQ(result.ends[1].at.time_since_epoch(), std::chrono::seconds(120));
  EXPECT_DOUBLE_EQ(result.totals.freed_until_recording_end, 2 * 75.0);
  EXPECT_EQ(replayed(text, Per::gpu).totals.ended, 3U);
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

}  // namespace
}  // namespace lull::replay
