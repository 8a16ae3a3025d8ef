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
constexpr int kUntold = -1;
constexpr int kNone = 0;

struct Sample {
  std::int64_t at = 0;
  double util = 0;  // NaN: unknown
  double memory = std::nan("");
  int pid = kUntold;
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

  std::uint64_t jobs = 0;
  std::uint64_t ended = 0;
  std::uint64_t worked_again = 0;
  double work = 0;
  double lost = 0;
  std::int64_t saved = 0;
  std::int64_t missed = 0;
  struct Leave {
    std::int64_t second;
    Leaving how;
  };
  std::vector<Leave> leaves;
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

// Who has the GPU at each sample: a number for each life, from 1; 0 while nobody does.
std::vector<int> lives_of(const Series& series) {
  std::vector<int> lives;
  int newest = 0;
  int now = 0;
  int pid = kUntold;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const Sample& sample = series[i];
    const bool works = sample.util >= 1;
    const bool empty = sample.memory <= 64.0 * 1024 * 1024;
    const bool full = sample.memory > 64.0 * 1024 * 1024;
    const bool nobody = !works && (sample.pid == kNone || (sample.pid == kUntold && empty));
    const bool somebody = works || sample.pid > 0 || (sample.pid == kUntold && full);
    const bool another = now != 0 && pid > 0 && sample.pid > 0 && pid != sample.pid;
    if (nobody) now = 0;
    if ((now == 0 && somebody) || another || (i == 0 && !nobody)) {
      now = ++newest;
      pid = kUntold;
    }
    if (sample.pid > 0) pid = sample.pid;
    lives.push_back(now);
  }
  return lives;
}

// The samples of one life, by the rule from the beginning; then what came after the first firing.
void end_obviously(const Series& series, const std::vector<bool>& gap, std::size_t begin, std::size_t end, bool cut_off,
                   const Asked& asked, Counted& counted) {
  ++counted.jobs;
  std::size_t armed = asked.arm ? end : begin;
  for (std::size_t i = end; asked.arm && i-- > begin;)
    if (series[i].util > *asked.arm) armed = i + 1;
  std::optional<std::size_t> fired;
  std::optional<std::size_t> since;
  for (std::size_t i = armed; i < end && !fired; ++i) {
    if (!(series[i].util < asked.limit)) {
      since.reset();
      continue;
    }
    if (!since || (gap[i] && i != armed)) since = i;
    if (asked.count != 0 ? i - *since + 1 >= asked.count : series[i].at - series[*since].at >= asked.span) fired = i;
  }
  if (!fired) return;
  ++counted.ended;
  std::optional<std::size_t> back;
  std::int64_t after = 0;
  for (std::size_t i = *fired + 1; i < end; ++i) {
    if (!gap[i]) after += series[i].at - series[i - 1].at;
    if (!gap[i] && series[i].util > 0)
      counted.lost += series[i].util / 100 * static_cast<double>(series[i].at - series[i - 1].at) / 1e9;
    if (!back && series[i].util >= asked.limit) back = i;
  }
  counted.worked_again += back ? 1 : 0;
  counted.saved += back ? 0 : after;
  const std::int64_t left = series[back ? *back : end - 1].at - series[*fired].at;
  counted.leaves.push_back({(left + 999'999'999) / 1'000'000'000, back      ? Leaving::came_back
                                                                  : cut_off ? Leaving::cut_off
                                                                            : Leaving::released});
}

void count_lives_obviously(const Series& series, const Asked& asked, Counted& counted) {
  const std::vector<bool> gap = gaps_of(series);
  const std::vector<int> lives = lives_of(series);
  for (std::size_t i = 1; i < series.size(); ++i) {
    const std::int64_t since = series[i].at - series[i - 1].at;
    if (gap[i]) counted.missed += since;
    if (!gap[i] && series[i].util > 0) counted.work += series[i].util / 100 * static_cast<double>(since) / 1e9;
  }
  for (std::size_t begin = 0; begin < series.size();) {
    std::size_t end = begin;
    while (end < series.size() && lives[end] == lives[begin]) ++end;
    if (lives[begin] != 0) end_obviously(series, gap, begin, end, end == series.size(), asked, counted);
    begin = end;
  }
}

// Kaplan and Meier by the book, with released as another way to leave.
std::optional<double> chance_obviously(const std::vector<Counted::Leave>& leaves, std::int64_t limit) {
  if (leaves.empty()) return std::nullopt;
  double waiting = 1;
  double back = 0;
  for (std::int64_t second = 0; second <= limit; ++second) {
    double at_risk = 0;
    double came = 0;
    double released = 0;
    for (const Counted::Leave& leave : leaves) {
      at_risk += leave.second >= second ? 1 : 0;
      came += leave.second == second && leave.how == Leaving::came_back ? 1 : 0;
      released += leave.second == second && leave.how == Leaving::released ? 1 : 0;
    }
    if (at_risk == 0) break;
    back += waiting * came / at_risk;
    waiting *= 1 - (came + released) / at_risk;
  }
  return back;
}

// Idle and busy phases, unknowns, gaps, and times that are regular, jittered, or change their pace.
Series random_series(std::mt19937_64& dice) {
  const auto below = [&](std::uint64_t bound) { return static_cast<std::int64_t>(dice() % bound); };
  Series series;
  const auto length = below(3000);
  const auto pace = below(4);
  std::int64_t at = below(1000) * 1'000'000'000;
  bool idle = false;
  const bool memory = below(2) == 0;
  const bool pids = below(3) == 0;
  int pid = static_cast<int>(below(3));
  for (std::int64_t i = 0; i < length; ++i) {
    if (below(30) == 0) idle = !idle;
    if (below(150) == 0) pid = static_cast<int>(below(4));
    const bool unknown = below(60) == 0;
    Sample sample{at, unknown ? std::nan("") : static_cast<double>(idle ? below(7) : below(101))};
    if (idle && below(2) == 0) sample.util = 0;
    if (pids && below(20) != 0) sample.pid = pid;
    if (memory && below(20) != 0) sample.memory = pid == 0 && idle ? 4e6 : 3e10;
    series.push_back(sample);
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
    Sample sample;
  };
  std::vector<Row> rows;
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu)
    for (const Sample& sample : gpus[gpu]) rows.push_back({sample.at, gpu, sample});
  if (order == 1) std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.at < b.at; });
  if (order == 2) std::shuffle(rows.begin(), rows.end(), dice);
  const auto number = [](double value) { return std::isnan(value) ? "" : fmt::format("{}", value); };
  std::string text = "time,gpu,util,mem_used_bytes,pid\n";
  for (const Row& row : rows)
    text += fmt::format("{},{},{},{},{}\n", row.at, row.gpu, number(row.sample.util), number(row.sample.memory),
                        row.sample.pid == kUntold ? ""
                        : row.sample.pid == kNone ? "none"
                                                  : fmt::format("{}", row.sample.pid));
  return text;
}

void expect_equal(const Totals& got, const Counted& want) {
  RC_ASSERT(got.firings == want.firings);
  RC_ASSERT(got.came_back == want.came_back);
  RC_ASSERT(got.regretted == want.regretted);
  RC_ASSERT(std::abs(got.idle_seconds - static_cast<double>(want.idle) / 1e9) < 1e-6);
  RC_ASSERT(std::abs(got.reclaimed_seconds - static_cast<double>(want.reclaimed) / 1e9) < 1e-6);
}

void expect_equal_lives(const Totals& got, const Counted& want) {
  RC_ASSERT(got.jobs == want.jobs);
  RC_ASSERT(got.ended == want.ended);
  RC_ASSERT(got.worked_again == want.worked_again);
  RC_ASSERT(std::abs(got.work_seconds - want.work) < 1e-5);
  RC_ASSERT(std::abs(got.lost_seconds - want.lost) < 1e-5);
  RC_ASSERT(std::abs(got.saved_seconds - static_cast<double>(want.saved) / 1e9) < 1e-5);
  for (const int minutes : {1, 5, 60}) {
    const auto chance = got.back.chance_within(std::chrono::minutes(minutes));
    const auto obvious = chance_obviously(want.leaves, minutes * 60);
    RC_ASSERT(chance.has_value() == obvious.has_value());
    RC_ASSERT(!chance || std::abs(*chance - *obvious) < 1e-9);
  }
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
      for (const Series& series : gpus) {
        count_obviously(series, asked, counted);
        count_lives_obviously(series, asked, counted);
      }
      expect_equal(totals, counted);
      expect_equal_lives(totals, counted);
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
    count_obviously(group, {5, 10'000'000'000, 0, {}, 15'000'000'000}, counted);
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

void expect_same_lives(const Totals& a, const Totals& b) {
  RC_ASSERT(a.jobs == b.jobs);
  RC_ASSERT(a.ended == b.ended);
  RC_ASSERT(a.worked_again == b.worked_again);
  RC_ASSERT(std::abs(a.work_seconds - b.work_seconds) < 1e-5);
  RC_ASSERT(std::abs(a.lost_seconds - b.lost_seconds) < 1e-5);
  RC_ASSERT(std::abs(a.saved_seconds - b.saved_seconds) < 1e-5);
  RC_ASSERT(a.back.chance_within(std::chrono::hours(1)) == b.back.chance_within(std::chrono::hours(1)));
}

// Jobs of one GPU each, told apart by their processes: judging each job is judging each GPU life by life.
TEST(Replay, JobsOfOneGpuAreItsLives) {
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
    expect_same_lives(by_gpu.totals, by_job.totals);
    for (std::size_t i = 0; i < 2; ++i) expect_same_lives(by_gpu.sweep[i].totals, by_job.sweep[i].totals);
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
    for (int at = 0; at < 1500; ++at) {
      for (const std::size_t host : {0U, 1U}) {
        if (below(40) == 0) idle[host] = !idle[host];
        // One host pauses where the other goes on.
        if (host == 1 && at > 600 && at < 620) continue;
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
    expect_same_lives(hosts.totals, sum);
    RC_ASSERT(hosts.totals.firings == sum.firings);
    RC_ASSERT(std::abs(hosts.totals.idle_seconds - sum.idle_seconds) < 1e-6);
    RC_ASSERT(hosts.subjects.size() == 2U);
    RC_ASSERT(hosts.subjects[1].gpus.size() == 2U);
  });
  EXPECT_TRUE(held);
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
  EXPECT_DOUBLE_EQ(result.totals.saved_seconds, 2 * 75.0);
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

TEST(Sweep, TheKneeSavesMostOfThoseThatLoseLittle) {
  using Outcomes = std::vector<Outcome>;
  EXPECT_EQ(find_knee(Outcomes{{100, 0.9}, {90, 0.01}, {85, 0.0}}, 0.01), 1U);
  EXPECT_EQ(find_knee(Outcomes{{100, 0.9}, {90, 0.011}, {85, 0.0}}, 0.01), 2U);
  EXPECT_EQ(find_knee(Outcomes{{100, 0.9}, {90, 0.5}}, 0.01), std::nullopt);
  EXPECT_EQ(find_knee(Outcomes{{90, 0.01}, {90, 0.0}, {90, 0.0}}, 0.01), 2U);  // the same saved: the longest is safest
  EXPECT_EQ(find_knee(Outcomes{{0, 0.0}}, 0.01), std::nullopt);                // nothing saved is no knee
  EXPECT_EQ(find_knee(Outcomes{{90, std::nullopt}}, 0.01), std::nullopt);      // no work was seen: nothing is known
  EXPECT_EQ(find_knee(Outcomes{}, 0.01), std::nullopt);
}

TEST(Sweep, ARuleWithoutForStartsFromTheFirstValue) {
  Policy policy = *Policy::parse("util < 5");
  ASSERT_TRUE(start_from_first(policy, {{"util", {"1"}}, {"for", {"30m", "5m"}}}));
  EXPECT_EQ(policy.idle.text, "util < 5 for 30m");
  ASSERT_TRUE(start_from_first(policy, {{"for", {"1h"}}}));
  EXPECT_EQ(policy.idle.text, "util < 5 for 30m");
}

}  // namespace
}  // namespace lull::replay
