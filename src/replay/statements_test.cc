// What replay says holds: the rest of a recording does not contradict what was said of its beginning, and another draw
// of the same jobs does not move a recommended policy out of the interval that was given for it.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <random>

#include "replay/answer.h"
#include "replay/obvious_test.h"
#include "replay/replay.h"
#include "trace/test_trace.h"
#include "trace/time.h"

namespace lull::replay {
namespace {

ReplayResult replay_of(const std::string& text, const ReplayOptions& how) {
  const trace::TempFile file(text);
  ReplayOptions options = how;
  options.paths = {file.path()};
  options.threads = 1;
  auto result = replay(options);
  EXPECT_TRUE(result) << (result ? "" : result.error().message());
  return result ? *std::move(result) : ReplayResult{};
}

// `part` says nothing that `whole` contradicts.
void expect_consistent(const ReplayResult& part, const ReplayResult& whole) {
  RC_ASSERT(part.totals.jobs <= whole.totals.jobs);
  RC_ASSERT(part.totals.ended <= whole.totals.ended);
  RC_ASSERT(part.totals.worked_again <= whole.totals.worked_again);
  for (const End& end : part.ends) {
    const auto later =
        std::ranges::find_if(whole.ends, [&](const End& one) { return one.gpu == end.gpu && one.at == end.at; });
    RC_ASSERT(later != whole.ends.end());
    RC_ASSERT(end.followed <= later->followed);
    RC_ASSERT(end.lost_seconds <= later->lost_seconds + 1e-6);
    RC_ASSERT(end.freed_seconds <= later->freed_seconds + 1e-6);
    RC_ASSERT(!end.back || later->back == end.back);
    RC_ASSERT(end.how != Leaving::released || later->how == Leaving::released);
    // Not seen again, for as long as it was followed.
    RC_ASSERT(end.back || !later->back || *later->back > end.at + end.followed);
  }
  for (const std::string_view word : {"for good", "never", "saved"})
    RC_ASSERT(answer(part).find(word) == std::string::npos);
}

TEST(Statements, HoldWhereverARecordingIsCut) {
  const bool held = rc::check([] {
    std::mt19937_64 dice(*rc::gen::arbitrary<std::uint64_t>());
    std::vector<Series> gpus(dice() % 3 + 1);
    for (Series& series : gpus) series = random_series(dice);
    gpus[0].push_back({gpus[0].empty() ? 0 : gpus[0].back().at + 1'000'000'000, 3});
    std::int64_t last = 0;
    for (const Series& series : gpus)
      if (!series.empty()) last = std::max(last, series.back().at);
    const std::int64_t cut =
        gpus[0].front().at + static_cast<std::int64_t>(dice() % static_cast<std::uint64_t>(last + 1));
    std::vector<Series> first = gpus;
    for (Series& series : first) std::erase_if(series, [&](const Sample& sample) { return sample.at > cut; });
    ReplayOptions options;
    options.columns = *trace::parse_columns("time=time:ns");
    const std::vector<std::string_view> rules = {"util < 5 for 20s", "util < 1 for 3s", "util < 50 for 1m",
                                                 "util < 5 for 4 samples"};
    options.policy.idle = *parse_rule(rules[dice() % rules.size()]);
    if (dice() % 3 == 0) options.policy.arm = *parse_rule("util > 90");
    options.gap = std::chrono::seconds(1 + dice() % 30);  // the median of a part may be another
    if (options.policy.idle.span()->samples == 0) options.axes = {{"for", {"5s", "1m"}}};
    const ReplayResult whole = replay_of(as_csv(gpus, dice, 1), options);
    const ReplayResult part = replay_of(as_csv(first, dice, 1), options);
    expect_consistent(part, whole);
    for (std::size_t row = 0; row < part.sweep.size(); ++row) {
      RC_ASSERT(part.sweep[row].totals.ended <= whole.sweep[row].totals.ended);
      RC_ASSERT(part.sweep[row].totals.worked_again <= whole.sweep[row].totals.worked_again);
    }
  });
  EXPECT_TRUE(held);
}

// What is recorded of a lab in two weeks, a sample each ten minutes, as `lull record` writes it: training with short
// pauses; jobs that are forgotten after their work; notebooks with pauses of an hour, seldom of a night; nobody.
constexpr std::size_t kDay = 144;

struct Lab {
  struct Cell {
    int util = 0;
    int pid = 0;  // 0: nobody
  };
  std::vector<std::vector<Cell>> gpus;
  std::vector<bool> recorded;  // false: the recorder did not run
};

void add_job(std::vector<Lab::Cell>& cells, int pid, std::mt19937_64& dice) {
  const auto some = [&](std::size_t least, std::size_t more, bool busy) {
    const int util = busy ? 30 + static_cast<int>(dice() % 70) : 0;
    cells.insert(cells.end(), least + dice() % more, {util, pid});
  };
  const std::uint64_t kind = dice() % 4;
  if (kind == 0) {  // forgotten
    some(6, 30, true);
    some(30, 200, false);
    return;
  }
  for (std::uint64_t left = 2 + dice() % 12; left-- > 0;) {
    some(2, kind == 1 ? 5 : 30, true);
    if (kind == 1 && dice() % 20 == 0)
      some(20, 60, false);
    else
      some(1, kind == 1 ? 8 : 2, false);
  }
  some(1, 6, true);
}

Lab fortnight(std::mt19937_64& dice, std::size_t gpus, bool holes) {
  Lab lab;
  lab.recorded.assign(14 * kDay, true);
  for (std::size_t at = 0; holes && at < lab.recorded.size(); at += 1 + dice() % (4 * kDay)) {
    const std::size_t to = std::min(lab.recorded.size(), at + 1 + dice() % 40);
    if (at > 0)
      std::fill(lab.recorded.begin() + static_cast<std::ptrdiff_t>(at),
                lab.recorded.begin() + static_cast<std::ptrdiff_t>(to), false);
  }
  int pid = 100;
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
    std::vector<Lab::Cell>& cells = lab.gpus.emplace_back();
    while (cells.size() < 14 * kDay) {
      add_job(cells, ++pid, dice);
      cells.insert(cells.end(), dice() % 24, {0, 0});
    }
  }
  return lab;
}

std::string text_of(const Lab& lab, std::size_t from, std::size_t to) {
  std::string text = "time,gpu,uuid,util_percent,host,users,pids,command,lease,job\n";
  for (std::size_t i = from; i < to; ++i) {
    const std::string time = trace::format_time((1'700'000'000 + 600 * static_cast<std::int64_t>(i)) * 1'000'000'000);
    for (std::size_t gpu = 0; lab.recorded[i] && gpu < lab.gpus.size(); ++gpu) {
      const Lab::Cell& cell = lab.gpus[gpu][i];
      text += cell.pid == 0 ? fmt::format("{},{},GPU-{},0,n,none,none,none,none,none\n", time, gpu, gpu)
                            : fmt::format("{},{},GPU-{},{},n,ada,{},x,,\n", time, gpu, gpu, cell.util, cell.pid);
    }
  }
  return text;
}

ReplayOptions lab_options() {
  ReplayOptions options;
  options.policy.idle = *parse_rule("util < 1 for 1h");
  options.axes = {{"for", {"30m", "1h", "2h", "4h", "8h"}}};
  options.lose = 0.1;
  return options;
}

// Gaps are found as for any recording, by its own interval.
TEST(Statements, HoldWhereverARealisticRecordingIsCut) {
  const bool held = rc::check([] {
    std::mt19937_64 dice(*rc::gen::arbitrary<std::uint64_t>());
    const Lab lab = fortnight(dice, 3, dice() % 2 == 0);
    ReplayOptions options = lab_options();
    options.per = dice() % 2 == 0 ? Per::gpu : Per::job;
    const ReplayResult whole = replay_of(text_of(lab, 0, 14 * kDay), options);
    const ReplayResult part = replay_of(text_of(lab, 0, 20 + dice() % (14 * kDay - 20)), options);
    // The jobs that are listed are those of the recommended value, if there is one.
    if (part.ends_rule == whole.ends_rule) expect_consistent(part, whole);
    RC_ASSERT(part.totals.worked_again <= whole.totals.worked_again);
    for (std::size_t row = 0; row < part.sweep.size(); ++row) {
      RC_ASSERT(part.sweep[row].totals.jobs <= whole.sweep[row].totals.jobs);
      RC_ASSERT(part.sweep[row].totals.ended <= whole.sweep[row].totals.ended);
      RC_ASSERT(part.sweep[row].totals.worked_again <= whole.sweep[row].totals.worked_again);
      RC_ASSERT(part.sweep[row].totals.lost_seconds <= whole.sweep[row].totals.lost_seconds + 1e-6);
      RC_ASSERT(part.sweep[row].totals.freed_seconds() <= whole.sweep[row].totals.freed_seconds() + 1e-6);
    }
  });
  EXPECT_TRUE(held);
}

// A longer `for` ends a subset of the jobs, each no earlier: it loses no more, and nothing says that it may.
TEST(Statements, ALongerTimeLosesNoMoreAndIsNotSaidTo) {
  const bool held = rc::check([] {
    std::mt19937_64 dice(*rc::gen::arbitrary<std::uint64_t>());
    ReplayOptions options = lab_options();
    options.per = dice() % 2 == 0 ? Per::gpu : Per::job;
    std::ranges::shuffle(options.axes[0].values, dice);
    if (dice() % 2 == 0) options.axes.push_back({"util", {"1", "20", "60"}});
    const ReplayResult result = replay_of(text_of(fortnight(dice, 3, dice() % 2 == 0), 0, 5 * kDay), options);
    for (const SweepRow& row : result.sweep)
      for (const SweepRow& shorter : result.sweep) {
        if (shorter.span->time >= row.span->time ||
            !std::ranges::equal(row.values.begin() + 1, row.values.end(), shorter.values.begin() + 1,
                                shorter.values.end()))
          continue;
        RC_ASSERT(row.totals.ended <= shorter.totals.ended);
        RC_ASSERT(row.totals.worked_again <= shorter.totals.worked_again);
        RC_ASSERT(row.totals.lost_seconds <= shorter.totals.lost_seconds + 1e-6);
        RC_ASSERT(row.totals.lost_high.has_value() == shorter.totals.lost_high.has_value());
        if (row.totals.lost_high) RC_ASSERT(*row.totals.lost_high <= *shorter.totals.lost_high + 1e-9);
      }
  });
  EXPECT_TRUE(held);
}

// What one week says of the next: the chances to return, and what the recommended value loses.
TEST(Statements, OfAWeekAreNotContradictedByTheNext) {
  std::mt19937_64 dice(11);
  int chances = 0;
  int chances_held = 0;
  int recommended = 0;
  int loss_held = 0;
  for (int round = 0; round < 20; ++round) {
    const Lab lab = fortnight(dice, 16, false);
    const ReplayResult first = replay_of(text_of(lab, 0, 7 * kDay), lab_options());
    const ReplayResult second = replay_of(text_of(lab, 7 * kDay, 14 * kDay), lab_options());
    for (std::size_t row = 0; row < first.sweep.size(); ++row) {
      const Totals& said = first.sweep[row].totals;
      const Totals& came = second.sweep[row].totals;
      for (const int hours : {1, 4, 24}) {
        const auto one = said.back.chance_within(std::chrono::hours(hours));
        const auto other = came.back.chance_within(std::chrono::hours(hours));
        if (!one || !other) continue;
        ++chances;
        chances_held += one->low <= other->high && other->low <= one->high ? 1 : 0;
      }
      if (!first.sweep[row].recommended) continue;
      ++recommended;
      loss_held += *said.lost_low <= *came.lost_high && *came.lost_low <= *said.lost_high ? 1 : 0;
      EXPECT_LE(came.lost_ratio().value_or(0), 2 * first.lose) << round << ": " << answer(first);
    }
  }
  EXPECT_GT(chances, 100);
  EXPECT_GE(chances_held, chances * 95 / 100) << "of " << chances;
  EXPECT_GE(recommended, 10);
  EXPECT_GE(loss_held, recommended * 90 / 100) << "of " << recommended;
}

// A day and more of a server's kind of job: hours of work, pauses of minutes to hours, some of which end the day.
std::vector<int> day_of_a_job(std::mt19937_64& dice) {
  std::vector<int> util;
  bool busy = true;
  const std::uint64_t habit = dice() % 3;
  while (util.size() < 160) {
    const std::uint64_t length = busy         ? 6 + dice() % 40
                                 : habit == 0 ? 1 + dice() % 2
                                 : habit == 1 ? 1 + dice() % 8
                                              : 60 + dice() % 100;
    util.insert(util.end(), length, busy ? 40 + static_cast<int>(dice() % 60) : 0);
    busy = !busy;
  }
  util.resize(160);
  return util;
}

std::string text_of(const std::vector<std::vector<int>>& jobs) {
  std::string text = "time,gpu,uuid,util_percent\n";
  for (std::size_t i = 0; i < jobs[0].size(); ++i) {
    const std::string time = trace::format_time((1'700'000'000 + 600 * static_cast<std::int64_t>(i)) * 1'000'000'000);
    for (std::size_t gpu = 0; gpu < jobs.size(); ++gpu)
      text += fmt::format("{},{},GPU-{},{}\n", time, gpu, gpu, jobs[gpu][i]);
  }
  return text;
}

TEST(Statements, AnotherDrawOfTheJobsStaysWithinTheIntervalOfTheRecommendation) {
  int inside = 0;
  int draws = 0;
  for (const std::uint64_t seed : {7U, 8U, 9U}) {
    std::mt19937_64 dice(seed);
    std::vector<std::vector<int>> jobs(60);
    for (auto& job : jobs) job = day_of_a_job(dice);
    ReplayOptions options;
    options.policy.idle = *parse_rule("util < 1 for 20m");
    options.axes = {{"for", {"20m", "1h", "2h", "4h"}}};
    options.lose = 0.1;
    const ReplayResult given = replay_of(text_of(jobs), options);
    ASSERT_TRUE(given.recommendation) << given.recommendation_missing;
    const Totals& told = given.main_row()->totals;
    ASSERT_TRUE(told.lost_low && told.lost_high);
    EXPECT_LT(*told.lost_low, *told.lost_high);
    for (int draw = 0; draw < 30; ++draw) {
      std::vector<std::vector<int>> drawn;
      for (std::size_t i = 0; i < jobs.size(); ++i) drawn.push_back(jobs[dice() % jobs.size()]);
      const ReplayResult again = replay_of(text_of(drawn), options);
      for (const SweepRow& row : again.sweep)
        if (row.values[0] == given.recommendation->value) {
          const double lost = row.totals.lost_ratio().value_or(0);
          ++draws;
          inside += *told.lost_low <= lost && lost <= *told.lost_high ? 1 : 0;
        }
    }
  }
  EXPECT_GE(inside, draws * 85 / 100);  // 95 of 100 are expected
}

}  // namespace
}  // namespace lull::replay
