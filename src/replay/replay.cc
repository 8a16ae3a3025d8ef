#include "replay/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "replay/intervals.h"
#include "replay/judging.h"
#include "replay/survey.h"

namespace lull::replay {
namespace {

std::vector<Metric> rule_signals(const ReplayOptions& options) {
  std::vector<Metric> signals = options.policy.idle.signals();
  if (options.policy.arm)
    for (const Metric metric : options.policy.arm->signals())
      if (std::find(signals.begin(), signals.end(), metric) == signals.end()) signals.push_back(metric);
  return signals;
}

std::vector<Metric> wanted_signals(const ReplayOptions& options) {
  std::vector<Metric> wanted = rule_signals(options);
  const auto add = [&](Metric metric) {
    if (std::find(wanted.begin(), wanted.end(), metric) == wanted.end()) wanted.push_back(metric);
  };
  // What work is, and what tells that a job has gone.
  for (const Metric metric : {Metric::util, Metric::mem_used, Metric::procs}) add(metric);
  if (options.picture_columns > 0) add(Metric::power);
  return wanted;
}

// What a page shows: signals of GPUs that the trace has, the best known first.
std::vector<Metric> pictured(const std::vector<Metric>& available) {
  std::vector<Metric> metrics = available;
  std::sort(metrics.begin(), metrics.end());
  if (metrics.size() > 4) metrics.resize(4);
  return metrics;
}

// How far apart the ticks of all GPUs together are: the median GPU decides.
Duration tick_of(std::vector<std::int64_t> medians) {
  std::erase(medians, 0);
  if (medians.empty()) return std::chrono::seconds(1);
  const auto middle = medians.begin() + static_cast<std::ptrdiff_t>(medians.size() / 2);
  std::nth_element(medians.begin(), middle, medians.end());
  return Duration(*middle / 2);
}

JudgingOptions judging_options(const ReplayOptions& options, const trace::TraceReader& reader) {
  JudgingOptions judging;
  judging.policies.push_back(options.policy);
  judging.regret = options.regret;
  judging.missing = options.missing;
  judging.most_firings = options.most_firings;
  judging.gap = options.gap;
  judging.every = options.every;
  judging.delay = options.delay;
  judging.start = reader.first();
  judging.memory = options.memory / 2;
  judging.metrics = reader.available();
  judging.who = reader.tells_who();
  judging.per = options.per;
  judging.picture_columns = options.picture_columns;
  judging.pictured = pictured(reader.available());
  return judging;
}

// All GPUs as one: who they are and how far their ticks are apart must be known before.
Result<> put_together(const ReplayOptions& options, trace::TraceReader& reader, JudgingOptions& judging) {
  trace::TraceReport report;
  const std::vector<std::int64_t> medians = TRY(survey(reader, &report));
  trace::TraceOptions& how = reader.options();
  how.together = true;
  how.gpus = medians.size();
  how.tick = tick_of(medians);
  for (const std::int64_t median : medians) how.gaps.push_back(options.gap ? *options.gap : Duration(gap_of(median)));
  judging.together_gap = options.gap ? *options.gap : longest_gap(how.tick);
  judging.gpus = medians.size();
  if (options.per == Per::all) return {};
  how.who = judging.who = true;  // tells at which ticks a GPU showed itself
  std::map<std::string, std::size_t> numbers;
  for (std::size_t gpu = 0; gpu < report.gpus.size() && options.per == Per::host; ++gpu) {
    const auto [entry, fresh] = numbers.try_emplace(report.gpus[gpu].host, judging.hosts.size());
    if (fresh) judging.hosts.emplace_back();
    judging.hosts[entry->second].push_back(gpu);
    if (fresh) judging.host_names.push_back(report.gpus[gpu].host);
  }
  for (const trace::TraceGpu& gpu : report.gpus) judging.host_of.push_back(gpu.host);
  return {};
}

void mark_knees(ReplayResult& result, double most_lost) {
  std::size_t axis = 0;
  while (axis < result.axes.size() && result.axes[axis].name != "for") ++axis;
  if (axis == result.axes.size()) return;
  std::size_t stride = 1;  // from one `for` to the next, all else being equal
  for (std::size_t a = axis + 1; a < result.axes.size(); ++a) stride *= result.axes[a].values.size();
  const std::size_t count = result.axes[axis].values.size();
  for (std::size_t start = 0; start < result.sweep.size(); ++start) {
    if (start / stride % count != 0) continue;
    std::vector<Outcome> outcomes;
    for (std::size_t i = 0; i < count; ++i) {
      const Totals& totals = result.sweep[start + i * stride].totals;
      outcomes.push_back({totals.saved_seconds, totals.lost_ratio()});
    }
    if (const auto knee = find_knee(outcomes, most_lost)) result.sweep[start + *knee * stride].knee = true;
  }
}

}  // namespace

std::optional<double> Totals::lost_ratio() const {
  return work_seconds > 0 ? std::optional(lost_seconds / work_seconds) : std::nullopt;
}

Totals& Totals::operator+=(const Totals& more) {
  jobs += more.jobs;
  ended += more.ended;
  worked_again += more.worked_again;
  work_seconds += more.work_seconds;
  lost_seconds += more.lost_seconds;
  saved_seconds += more.saved_seconds;
  back += more.back;
  firings += more.firings;
  came_back += more.came_back;
  regretted += more.regretted;
  stretches += more.stretches;
  idle_seconds += more.idle_seconds;
  reclaimed_seconds += more.reclaimed_seconds;
  return *this;
}

bool ReplayResult::has_for_axis() const {
  return std::any_of(axes.begin(), axes.end(), [](const Axis& axis) { return axis.name == "for"; });
}

Result<ReplayResult> replay(ReplayOptions options) {
  TRY(start_from_first(options.policy, options.axes));
  std::vector<Combination> combinations = TRY(combine(options.policy, options.axes));
  auto reader = TRY(open_traces(options, wanted_signals(options), rule_signals(options), options.memory / 4));
  if (options.per == Per::job && !reader.tells_who())
    return fail(
        "--per job: the trace does not say which job has a GPU; `lull record` writes who does, and --columns "
        "job=COLUMN "
        "or pids=COLUMN says which column tells");
  if (reader.counted()) options.every.reset();  // it said how far apart the samples are, and so they are judged
  if (options.every && options.per == Per::job)
    return fail("--every does not work with --per job: leave it out, and jobs are judged as they were recorded");

  JudgingOptions judging = judging_options(options, reader);
  for (const Combination& one : combinations) judging.policies.push_back(one.policy);
  if (options.per != Per::gpu) TRY(put_together(options, reader, judging));
  Judging sink(std::move(judging));
  trace::TraceReport report;
  for (std::size_t done = 0; done <= combinations.size();) {
    const std::size_t next = sink.take_policies(done);
    report = TRY(reader.read(sink));
    if (!sink.guessed_gaps()) {
      std::vector<std::int64_t> gaps = TRY(survey(reader));
      for (std::int64_t& gap : gaps) gap = gap_of(gap);
      sink.know_gaps(std::move(gaps));
      continue;
    }
    if (sink.guessed_start()) done = next;
  }
  ReplayResult result = sink.finish(std::move(report));
  result.name = name_of(options.paths);
  result.rule = options.policy.idle.text;
  if (options.policy.arm) result.arm = options.policy.arm->text;
  result.per = options.per;
  result.tells_work = std::ranges::count(reader.available(), Metric::util) > 0;
  result.regret = options.regret;
  result.lose = options.lose;
  result.span = options.policy.idle.span();
  result.axes = std::move(options.axes);
  for (std::size_t i = 0; i < combinations.size(); ++i) {
    SweepRow& row = result.sweep[i];
    row.rule = combinations[i].policy.idle.text;
    for (std::size_t a = 0; a < result.axes.size(); ++a)
      row.values.push_back(result.axes[a].values[combinations[i].choice[a]]);
  }
  mark_knees(result, options.lose);
  return result;
}

}  // namespace lull::replay
