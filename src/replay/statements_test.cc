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
    options.policy.idle = *parse_rule("util < 5 for 20s");
    options.gap = std::chrono::seconds(5);  // the median of a part may be another
    options.axes = {{"for", {"5s", "1m"}}};
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
  for (std::size_t i = 0; i < jobs[0].size(); ++i)
    for (std::size_t gpu = 0; gpu < jobs.size(); ++gpu)
      text += fmt::format("{},{},GPU-{},{}\n", 1'700'000'000 + 600 * i, gpu, gpu, jobs[gpu][i]);
  return text;
}

TEST(Statements, AnotherDrawOfTheJobsStaysWithinTheIntervalOfTheRecommendation) {
  std::mt19937_64 dice(7);
  std::vector<std::vector<int>> jobs(60);
  for (auto& job : jobs) job = day_of_a_job(dice);
  ReplayOptions options;
  options.policy.idle = *parse_rule("util < 1 for 20m");
  options.axes = {{"for", {"20m", "1h", "2h", "4h"}}};
  options.lose = 0.1;
  const ReplayResult given = replay_of(text_of(jobs), options);
  ASSERT_TRUE(given.recommendation) << given.recommendation_missing;
  const Totals& told = given.recommended_row()->totals;
  ASSERT_TRUE(told.lost_low && told.lost_high);
  EXPECT_LT(*told.lost_low, *told.lost_high);
  int inside = 0;
  constexpr int kDraws = 60;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<std::vector<int>> drawn;
    for (std::size_t i = 0; i < jobs.size(); ++i) drawn.push_back(jobs[dice() % jobs.size()]);
    const ReplayResult again = replay_of(text_of(drawn), options);
    for (const SweepRow& row : again.sweep)
      if (row.values[0] == given.recommendation->value) {
        const double lost = row.totals.lost_ratio().value_or(0);
        inside += *told.lost_low <= lost && lost <= *told.lost_high ? 1 : 0;
      }
  }
  EXPECT_GE(inside, kDraws * 85 / 100);  // 95 of 100 are expected
}

}  // namespace
}  // namespace lull::replay
