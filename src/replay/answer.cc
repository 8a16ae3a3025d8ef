#include "replay/answer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "base/units.h"
#include "gpu/snapshot.h"
#include "replay/output.h"
#include "replay/recommend.h"

namespace lull::replay {
namespace {

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
      " Jobs cannot be distinguished in this recording (it does not say who had the GPUs): {} counts as one job{}.",
      one, released ? " until its memory is released" : ", from the first sample to the last");
}

// Of --except-user: most likely misspelt.
std::vector<std::string> users_without_a_job(const ReplayResult& result) {
  std::vector<std::string> absent;
  for (const std::string& user : result.except_users) {
    bool there = false;
    for (std::size_t i = 0; i < result.trace.holders.size() && !there; ++i)
      there = std::ranges::count(result.trace.holders[static_cast<float>(i)].users, user) > 0;
    if (!there) absent.push_back(printable(user));
  }
  return absent;
}

// A desktop's GPU uses memory even without a job.
std::string empty_cards(const ReplayResult& result) {
  std::uint64_t desktops = 0;
  double most = 0;
  for (const GpuResult& gpu : result.gpus) {
    desktops += static_cast<double>(gpu.empty_bytes) > kEmptyCard ? 1 : 0;
    most = std::max(most, static_cast<double>(gpu.empty_bytes));
  }
  if (desktops == 0) return {};
  return fmt::format(" On {} something always draws: up to {:.0f} MiB in use does not count as a job.",
                     count_of(desktops, "GPU"), most / (1 << 20));
}

}  // namespace

std::string count_of(std::uint64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string_view per_text(Per per) { return kPerNames[static_cast<std::size_t>(per)]; }

std::string share_text(std::optional<double> ratio) {
  if (!ratio) return "-";
  const double percent = 100 * *ratio;
  if (percent == 0) return "0 %";
  if (percent < 0.1) return "less than 0.1 %";
  // Never rounded to all of it, nor up to a share that was allowed.
  if (percent >= 99.95 && percent < 100) return "99.9 %";
  return percent < 10 ? fmt::format("{:.1f} %", percent) : fmt::format("{:.0f} %", percent);
}

std::string figure_text(double value) {
  if (value == 0) return "0";
  if (value < 0.0005) return "less than 0.001";
  if (value < 0.1) return fmt::format("{:.3f}", value);
  if (value < 1) return fmt::format("{:.2f}", value);
  return value < 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

std::string hours_text(double seconds) { return figure_text(hours(seconds)); }

std::string length_text(Duration recorded) {
  const double days = std::chrono::duration<double>(recorded).count() / 86400;
  if (days < 0.9995) return follow_up_text(days * 86400);
  // Rounded down: a recording of 6.97 days is none of 7, and not one of 6 either.
  const double shown = std::floor(10 * days + 0.005) / 10;
  return fmt::format("{:g} {}", shown, shown == 1 ? "day" : "days");
}

// Rounded down: a recording of 23.96 h is none of 24 h.
std::string follow_up_text(double seconds) {
  if (seconds < 60) return fmt::format("{:.0f} s", std::floor(seconds));
  if (seconds < 3600) return fmt::format("{:.0f} min", std::floor(seconds / 60));
  return fmt::format("{:.1f} h", std::floor(seconds / 360) / 10);
}

std::string lost_text(const Totals& totals) {
  std::string text = share_text(totals.lost_ratio());
  // Where no job lost any, or all lost all, every draw of them is the same: an interval of 0.0 to 0.0 would say nothing
  // of other jobs.
  if (totals.lost_low && totals.lost_high && *totals.lost_low < *totals.lost_high)
    text += fmt::format(" ({:.1f}–{:.1f} %)", std::floor(1000 * *totals.lost_low) / 10,
                        std::max(0.0, std::ceil(1000 * *totals.lost_high - 1e-9)) / 10);
  return text;
}

std::string limit_text(double limit) { return fmt::format("{:.1f} %", std::ceil(1000 * limit - 1e-9) / 10); }

namespace {

// "ends 43 of 143 jobs; 37 of them worked again; …"
std::string consequences(const ReplayResult& result, const Totals& totals) {
  const bool one = totals.jobs == 1;
  if (totals.ended == 0)
    return fmt::format("ends {}; nothing is lost and nothing is freed.",
                       one ? "nothing: there was one job" : fmt::format("none of {} jobs", totals.jobs));
  std::string text = one ? "ends the one job, " : fmt::format("ends {} of {} jobs; ", totals.ended, totals.jobs);
  if (one)
    text += totals.worked_again == 0 ? "which was not seen to work again; " : "which worked again; ";
  else
    text += totals.worked_again == 0 ? "none of them was seen to work again; "
                                     : fmt::format("{} of them worked again; ", totals.worked_again);
  text += totals.lost_ratio() && totals.lost_seconds <= 0 && !one
              ? fmt::format("no work lost among {} jobs (up to {:.0f} % of other jobs may lose some); ", totals.jobs,
                            std::ceil(100 * share_up_to(0, totals.jobs)))
          : totals.lost_ratio() ? lost_text(totals) + " of the work lost; "
          : result.tells_work   ? "no work was recorded that could be lost; "
                                : "how much work that loses is not known (no utilisation was recorded); ";
  text += fmt::format("{} GPU-hours freed.", hours_text(totals.freed_seconds()));
  if (const auto followed = totals.follow_up_median())
    text += fmt::format(" {} not seen again {} followed for {}{}.", totals.not_seen_again() == 1 ? "The job" : "Jobs",
                        totals.not_seen_again() == 1 ? "was" : "were",
                        totals.not_seen_again() == 1 ? "" : "a median of ", follow_up_text(*followed));
  return text;
}

// The losses of so few jobs say little of those of others.
std::string few_worked_again(const Totals& totals) {
  const double others = share_up_to(totals.worked_again, totals.jobs);
  if (totals.lost_seconds <= 0 || totals.worked_again >= Survival::kFewest || others <= *totals.lost_high) return {};
  return fmt::format(" So few worked again that up to {:.0f} % of other jobs may.", std::ceil(100 * others));
}

// Where most of what is lost is the work of one user, as that of servers is, which wait for requests.
std::string most_is_lost_by(const ReplayResult& result, double lost_seconds) {
  if (result.per != Per::gpu && result.per != Per::job) return {};  // --except-user does not work there
  std::map<std::string, double> lost;
  for (const Hurt& hurt : hurt_owners(result))
    if (!hurt.user.empty()) lost[hurt.user] += hurt.lost_seconds;
  const auto most = std::ranges::max_element(lost, {}, [](const auto& one) { return one.second; });
  if (most == lost.end() || most->second < lost_seconds / 2 || most->first.find(' ') != std::string::npos) return {};
  const std::string user = printable(most->first);
  return fmt::format(" {} of the lost work is {}'s; --except-user {} leaves those jobs out if they must not be ended.",
                     share_text(most->second / lost_seconds), user, user);
}

}  // namespace

std::string answer(const ReplayResult& result) {
  if (result.totals.jobs == 0 && result.left_out > 0) return "All jobs of this recording are left out (--except-user).";
  if (result.totals.jobs == 0) return "Nobody had a GPU in this recording: there was no job to end.";
  if (const auto& chosen = result.recommendation) {
    const SweepRow* row = result.main_row();
    const std::string what = row != nullptr && row->values.size() > 1 ? "`" + chosen->rule + "`" : chosen->value;
    std::string text = consequences(result, result.main_totals());
    text[0] = 'E';
    return fmt::format("Recommended: {} ({}: {}). {}{}", what, chosen->firm ? "firm" : "weak", chosen->reason, text,
                       few_worked_again(result.main_totals()));
  }
  const SweepRow* row = result.main_row();
  const std::optional<Span> span = row != nullptr ? row->span : result.span;
  std::string subject = span ? fmt::format("After {} the rule", to_text(*span)) : "This rule";
  if (row != nullptr && row->values.size() > 1) subject = "`" + row->rule + "`";
  const Totals& totals = result.main_totals();
  std::string text =
      fmt::format("No recommendation: {}. {} {}", result.recommendation_missing, subject, consequences(result, totals));
  if (result.loses_too_much && totals.lost_seconds > 0) text += most_is_lost_by(result, totals.lost_seconds);
  return text;
}

std::string interval_text(const SamplingIntervals& intervals) {
  const auto text = [](Duration interval) {
    return format_duration(interval < std::chrono::seconds(1) ? interval
                                                              : std::chrono::round<std::chrono::seconds>(interval));
  };
  if (intervals.longer <= 2 * intervals.usual) return text(intervals.usual);
  return fmt::format("{} to {}", text(intervals.usual), text(intervals.longer));
}

std::string readings_text(bool means, const SamplingIntervals& intervals) {
  if (means || intervals.longer <= std::chrono::seconds(1)) return {};
  return fmt::format(" Readings of the moment, every {}: short work between them is not seen.",
                     interval_text(intervals));
}

std::string basis(const ReplayResult& result) {
  std::string text = fmt::format("Judged {}: {}, {} GPU-hours seen", judged_by(result.per),
                                 count_of(result.gpus.size(), "GPU"), hours_text(result.seen_seconds));
  text += result.gap_seconds > 0 ? fmt::format(", {} in gaps", hours_text(result.gap_seconds)) : ", no gaps";
  const std::uint64_t left_out = result.trace.bad_rows + result.trace.duplicates;
  text += left_out > 0 ? fmt::format(", {} left out", count_of(left_out, "row")) : ", no rows left out";
  text += ".";
  if (!result.except_users.empty())
    text += fmt::format(" Left out: {} of {} or of unknown users.", count_of(result.left_out, "job"),
                        fmt::join(result.except_users, ", "));
  if (const std::vector<std::string> absent = users_without_a_job(result); !absent.empty())
    text += fmt::format(" Nobody is called {} in this recording.", fmt::join(absent, " or "));
  if (result.tells_work) text += readings_text(result.means, result.intervals);
  return text + empty_cards(result) + jobs_told_apart(result);
}

}  // namespace lull::replay
