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

// Of those that free something the one that may lose least.
const Candidate& closest_of(const std::vector<Candidate>& all) {
  return *std::ranges::min_element(all, {}, [](const Candidate& one) {
    return one.totals->freed_seconds() > 0 ? one.totals->lost_high.value_or(2) : 3;
  });
}

// Why none of them is good enough: how far the closest is from that, and what to do about it.
std::string loses_too_much(const std::vector<Candidate>& all, double lose) {
  const Candidate& least = closest_of(all);
  const Totals& best = *least.totals;
  if (best.jobs == 1) return "one job is too few to say how sure the work lost is";
  if (!best.lost_high) return "no work was recorded, so the work lost is not known";
  const double high = *best.lost_high;
  const std::string value =
      least.row != nullptr && least.row->values.size() > 1 ? "`" + least.rule + "`" : to_text(least.span);
  const std::string accept = fmt::format("--lose {:.0f}%", std::ceil(100 * high - 1e-9));
  if (all.size() > 1)
    return fmt::format(
        "each value may lose more than {:g} % of the work (--lose); the closest is {}, up to {} ({} accepts it)",
        100 * lose, value, limit_text(high), accept);
  std::string text =
      fmt::format("{} may lose up to {} of the work, more than {:g} % (--lose)", value, limit_text(high), 100 * lose);
  if (least.span.time > Duration::zero())
    text += fmt::format("; --sweep for={},{},{} tries longer ones", to_text(Span{2 * least.span.time}),
                        to_text(Span{4 * least.span.time}), to_text(Span{8 * least.span.time}));
  return text;
}

std::string weak_since(const ReplayResult& result, const Totals& totals) {
  if (recorded(result) < kFirmRecorded) return covers_text(result);
  if (totals.jobs < kFirmJobs)
    return fmt::format("it rests on {}, firm needs {}", count_of(totals.jobs, "job"), kFirmJobs);
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
  const bool frees = std::ranges::any_of(all, [](const Candidate& one) { return one.totals->freed_seconds() > 0; });
  const std::string too_much = frees ? loses_too_much(all, result.lose) : "";
  SweepRow* const closest = frees && closest_of(all).totals->lost_high ? closest_of(all).row : nullptr;
  std::erase_if(all, [&](const Candidate& one) {
    return one.totals->lost_high.value_or(2) > result.lose || one.totals->freed_seconds() <= 0;
  });
  std::string& missing = result.recommendation_missing;
  missing = unsuited(result);
  if (!missing.empty()) return;
  if (!any)
    missing = "the rule has no `for`";
  else if (!frees)
    missing = result.sweep.empty() ? "the rule frees nothing" : "no value frees anything";
  else if (all.empty()) {
    missing = too_much;
    result.loses_too_much = true;
    if (closest != nullptr) closest->closest = true;
  }
  if (!missing.empty()) return;
  const Candidate& best = *std::ranges::max_element(all, {}, rank);
  const std::string weak = weak_since(result, *best.totals);
  result.recommendation = {to_text(best.span), best.rule, weak.empty(), weak.empty() ? covers_text(result) : weak};
  if (best.row != nullptr) best.row->recommended = true;
}

// ---- who would be hurt

std::vector<Hurt> hurt_owners(const ReplayResult& result) {
  std::map<std::tuple<std::string, std::string, std::string>, Hurt> by_name;
  for (const End& end : result.ends) {
    if (!(end.holder > trace::kNobody)) continue;
    const trace::RecordedJob& holder = result.trace.holders[end.holder];
    std::string user = holder.user_text();
    // Without a user or a command, the job or the processes are the best name there is.
    if (user.empty() && holder.command.empty()) user = holder.job;
    for (const std::string& pid : holder.pids)
      if (user.empty() && holder.command.empty()) user = "process " + pid;
    Hurt& hurt = by_name[{user, holder.command, holder.host}];
    hurt.user = user;
    hurt.command = holder.command;
    hurt.host = holder.host;
    ++hurt.ended;
    hurt.worked_again += end.back ? 1 : 0;
    hurt.lost_seconds += end.lost_seconds;
    hurt.freed_seconds += end.freed_seconds;
  }
  std::vector<Hurt> all;
  for (auto& [name, hurt] : by_name) all.push_back(std::move(hurt));
  std::stable_sort(all.begin(), all.end(), [](const Hurt& a, const Hurt& b) {
    return std::tie(a.lost_seconds, a.worked_again, a.ended) > std::tie(b.lost_seconds, b.worked_again, b.ended);
  });
  return all;
}

}  // namespace lull::replay
