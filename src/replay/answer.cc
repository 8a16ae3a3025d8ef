#include "replay/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "replay/output.h"

namespace lull::replay {
namespace {

std::string count_of(std::uint64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string hours_text(double seconds) {
  const double value = hours(seconds);
  if (value == 0) return "0";
  if (value > 0 && value < 0.1) return fmt::format("{:.2f}", value);
  return value < 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

std::string_view judged_by(Per per) {
  switch (per) {
    case Per::gpu: return "each GPU by itself";
    case Per::job: return "each job by itself";
    case Per::host: return "the GPUs of each host together";
    case Per::all: return "all GPUs together";
  }
  return "";
}

// How far the recording tells one job from the next; nothing where it says who had the GPUs.
std::string jobs_told_apart(const ReplayResult& result) {
  if (result.trace.holders.size() > 1 || result.totals.jobs == 0) return {};
  const auto has = [&](Metric metric) {
    return std::ranges::find(result.trace.metrics, metric) != result.trace.metrics.end();
  };
  const bool released = has(Metric::mem_used) || has(Metric::procs);
  if (released && result.per != Per::gpu) return {};
  const std::string_view one = result.per == Per::gpu    ? "what ran on a GPU"
                               : result.per == Per::host ? "what ran on a host"
                                                         : "all that ran";
  return fmt::format(
      " Jobs cannot be told apart in this recording (it does not say who had the GPUs): {} counts as one job{}.", one,
      released ? " until its memory is released" : ", from the first sample to the last");
}

}  // namespace

std::string_view per_text(Per per) {
  switch (per) {
    case Per::gpu: return "gpu";
    case Per::job: return "job";
    case Per::host: return "host";
    case Per::all: return "all";
  }
  return "gpu";
}

std::string share_text(std::optional<double> ratio) {
  if (!ratio) return "-";
  const double percent = 100 * *ratio;
  if (percent == 0) return "0 %";
  if (percent < 0.1) return "less than 0.1 %";
  // Never rounded to all of it, nor up to a share that was allowed.
  if (percent >= 99.95 && percent < 100) return "99.9 %";
  return percent < 10 ? fmt::format("{:.1f} %", percent) : fmt::format("{:.0f} %", percent);
}

std::string answer(const ReplayResult& result) {
  const Totals& totals = result.totals;
  const std::string by = result.span ? "after " + to_text(*result.span) : "by this rule";
  if (totals.jobs == 0) return "Nobody had a GPU in this trace: there was no job to end.";
  const std::string jobs = totals.jobs == 1 ? "the one job" : fmt::format("{} jobs", totals.jobs);
  if (totals.ended == 0)
    return totals.jobs == 1
               ? fmt::format("Ending {} would not have ended the one job, and saved nothing.", by)
               : fmt::format("Ending {} would have ended none of {}, lost no work and saved nothing.", by, jobs);
  std::string text =
      totals.jobs == 1 ? fmt::format("Ending {} would have ended the one job, which {}", by,
                                     totals.worked_again == 1 ? "worked again" : "never worked again")
                       : fmt::format("Ending {} would have ended {} of {}, of which {} worked again", by, totals.ended,
                                     jobs, totals.worked_again == 0 ? "none" : fmt::format("{}", totals.worked_again));
  const auto lost = totals.lost_ratio();
  text += lost ? fmt::format(": {} of the work would have been lost", share_text(lost))
          : result.tells_work
              ? std::string(": there was no work to lose")
              : std::string(": how much work that would have lost is not known (no utilisation was recorded)");
  return text + fmt::format(", {} GPU-hours saved for good.", hours_text(totals.saved_seconds));
}

std::string basis(const ReplayResult& result) {
  std::string text = fmt::format("Judged {}: {}, {} GPU-hours seen", judged_by(result.per),
                                 count_of(result.gpus.size(), "GPU"), hours_text(result.seen_seconds));
  text += result.gap_seconds > 0 ? fmt::format(", {} in gaps", hours_text(result.gap_seconds)) : ", no gaps";
  const std::uint64_t left_out = result.trace.bad_rows + result.trace.duplicates;
  text += left_out > 0 ? fmt::format(", {} left out", count_of(left_out, "row")) : ", no rows left out";
  return text + "." + jobs_told_apart(result);
}

std::vector<std::string> knee_words(const ReplayResult& result) {
  std::vector<std::string> lines;
  const std::string most = fmt::format("{:g} %", 100 * result.lose);
  for (const SweepRow& row : result.sweep) {
    if (!row.knee) continue;
    std::string what;
    for (std::size_t a = 0; a < row.values.size(); ++a)
      what += fmt::format("{}{}={}", a == 0 ? "" : ", ", result.axes[a].name, row.values[a]);
    lines.push_back(fmt::format("knee: {}: saves most for good ({} GPU-hours) with at most {} of the work lost", what,
                                hours_text(row.totals.saved_seconds), most));
  }
  if (lines.empty())
    lines.push_back(
        fmt::format("no knee: none saves anything for good with at most {} of the work lost (--lose)", most));
  return lines;
}

}  // namespace lull::replay
