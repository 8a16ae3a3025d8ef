#include "replay/recommend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/units.h"
#include "replay/answer.h"

namespace lull::replay {
namespace {

std::string covers_text(const ReplayResult& result) {
  return fmt::format("the recording covers {}", length_text(recorded(result)));
}

// Why the recording supports no recommendation, whatever was tried; nothing where it may.
std::string unsuited(const ReplayResult& result) {
  if (!result.tells_work) return "no utilisation is recorded, so the work lost is not known";
  if (recorded(result) < kLeastRecorded) return covers_text(result) + ", a recommendation needs 24 h";
  if (!result.means && std::chrono::round<std::chrono::seconds>(result.intervals.longer) > kLongestMomentary)
    return fmt::format("the readings are of the moment and {} apart: short work between them is not seen",
                       interval_text(result.intervals));
  return {};
}

struct Candidate {
  const Totals* totals = nullptr;
  Span span;
  std::string rule;
  SweepRow* row = nullptr;  // nothing: the rule as given
};

std::vector<Candidate> candidates(ReplayResult& result) {
  std::vector<Candidate> all;
  for (SweepRow& row : result.sweep)
    if (row.span) all.push_back({&row.totals, *row.span, row.rule, &row});
  if (result.sweep.empty() && result.span) all.push_back({&result.totals, *result.span, result.rule});
  return all;
}

// Most freed first; of those that free the same the one that loses least, then the longest.
auto rank(const Candidate& one) {
  return std::tuple(one.totals->freed_seconds(), -one.totals->lost_high.value_or(1), one.span.time, one.span.samples);
}

std::string weak_since(const ReplayResult& result, const Totals& totals) {
  if (recorded(result) < kFirmRecorded) return covers_text(result);
  const auto follow_up = totals.follow_up_median();
  if (follow_up && *follow_up < std::chrono::duration<double>(kFirmFollowUp).count())
    return fmt::format("jobs not seen again were followed for a median of {} only", follow_up_text(*follow_up));
  return {};
}

}  // namespace

Duration recorded(const ReplayResult& result) {
  Duration longest{};
  for (const GpuResult& gpu : result.gpus) longest = std::max(longest, gpu.seen);
  return longest == Duration::zero() ? longest : longest + result.intervals.usual;
}

void recommend(ReplayResult& result) {
  result.recommendation.reset();
  std::vector<Candidate> all = candidates(result);
  const bool any = !all.empty();
  // Where none is good enough: how far the best of them is from that.
  std::string closest;
  if (const auto least =
          std::ranges::min_element(all, {}, [](const Candidate& one) { return one.totals->lost_high.value_or(2); });
      least != all.end() && all.size() > 1 && least->totals->lost_high)
    closest = fmt::format("; the closest is {}, up to {:.1f} %",
                          least->row->values.size() > 1 ? "`" + least->rule + "`" : to_text(least->span),
                          std::ceil(1000 * *least->totals->lost_high - 1e-9) / 10);
  const bool frees = std::ranges::any_of(all, [](const Candidate& one) { return one.totals->freed_seconds() > 0; });
  std::erase_if(all, [&](const Candidate& one) {
    return !one.totals->lost_high || *one.totals->lost_high > result.lose || one.totals->freed_seconds() <= 0;
  });
  std::string& missing = result.recommendation_missing;
  missing = unsuited(result);
  if (!missing.empty()) return;
  if (!any)
    missing = "the rule has no `for`";
  else if (result.totals.jobs < Survival::kFewest)
    missing = fmt::format("{} {} too few to say how sure the work lost is", result.totals.jobs,
                          result.totals.jobs == 1 ? "job is" : "jobs are");
  else if (!frees)
    missing = "no value frees anything";
  else if (all.empty())
    missing = fmt::format("no value keeps the work lost within {:g} % (--lose) at the upper end of its interval{}",
                          100 * result.lose, closest);
  if (!missing.empty()) return;
  const Candidate& best = *std::ranges::max_element(all, {}, rank);
  const std::string weak = weak_since(result, *best.totals);
  result.recommendation = {to_text(best.span), best.rule, weak.empty(), weak.empty() ? covers_text(result) : weak};
  if (best.row != nullptr) best.row->recommended = true;
}

}  // namespace lull::replay
