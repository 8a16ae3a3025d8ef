#include "rule/promql.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace lull {
namespace {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

constexpr double kMiB = 1 << 20;
// How long a GPU of a job or host that is not seen any more is waited for.
constexpr Duration kMemory = 24h;

struct PromMetric {
  Metric metric;
  std::string_view name;
  double scale;  // times this, its value is in the unit of the metric
};
constexpr std::array kDcgm = {
    PromMetric{Metric::util, "DCGM_FI_DEV_GPU_UTIL", 1},
    PromMetric{Metric::mem_util, "DCGM_FI_DEV_MEM_COPY_UTIL", 1},
    PromMetric{Metric::mem_used, "DCGM_FI_DEV_FB_USED", kMiB},
    PromMetric{Metric::mem_free, "DCGM_FI_DEV_FB_FREE", kMiB},
    PromMetric{Metric::mem_total, "DCGM_FI_DEV_FB_TOTAL", kMiB},
    PromMetric{Metric::power, "DCGM_FI_DEV_POWER_USAGE", 1},
    PromMetric{Metric::power_limit, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 1},
    PromMetric{Metric::temp, "DCGM_FI_DEV_GPU_TEMP", 1},
    PromMetric{Metric::clock, "DCGM_FI_DEV_SM_CLOCK", 1},
    PromMetric{Metric::pstate, "DCGM_FI_DEV_PSTATE", 1},
    PromMetric{Metric::fan, "DCGM_FI_DEV_FAN_SPEED", 1},
    PromMetric{Metric::sm, "DCGM_FI_PROF_SM_ACTIVE", 100},
    PromMetric{Metric::tensor, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 100},
    PromMetric{Metric::dram, "DCGM_FI_PROF_DRAM_ACTIVE", 100},
};
constexpr std::array kLull = {
    PromMetric{Metric::util, "lull_gpu_utilization_ratio", 100},
    PromMetric{Metric::mem_util, "lull_gpu_memory_activity_ratio", 100},
    PromMetric{Metric::mem_used, "lull_gpu_memory_used_bytes", 1},
    PromMetric{Metric::mem_total, "lull_gpu_memory_total_bytes", 1},
    PromMetric{Metric::power, "lull_gpu_power_watts", 1},
    PromMetric{Metric::power_limit, "lull_gpu_power_limit_watts", 1},
    PromMetric{Metric::temp, "lull_gpu_temperature_celsius", 1},
    PromMetric{Metric::clock, "lull_gpu_clock_hertz", 1e-6},
    PromMetric{Metric::procs, "lull_gpu_processes", 1},
    PromMetric{Metric::effort, "lull_gpu_effort_ratio", 100},
    PromMetric{Metric::learned, "lull_gpu_learned_seconds", 1},
    PromMetric{Metric::idle_power, "lull_gpu_idle_power_watts", 1},
};
constexpr std::string_view kJobInfo = "lull_gpu_job_info";

const PromMetric* find(Metric metric, PromNames names) {
  const auto in = [&](const auto& table) -> const PromMetric* {
    const auto found = std::ranges::find(table, metric, &PromMetric::metric);
    return found == table.end() ? nullptr : &*found;
  };
  return names == PromNames::dcgm ? in(kDcgm) : in(kLull);
}

// Whole seconds where they are; Prometheus takes no fraction.
std::string span_text(Duration time) {
  const auto ms = std::chrono::ceil<milliseconds>(time).count();
  return ms % 1000 == 0 ? fmt::format("{}s", ms / 1000) : fmt::format("{}ms", ms);
}

Compare negated(Compare compare) {
  switch (compare) {
    case Compare::below: return Compare::at_least;
    case Compare::at_most: return Compare::above;
    case Compare::above: return Compare::at_most;
    case Compare::at_least: return Compare::below;
    case Compare::equal: return Compare::unequal;
    case Compare::unequal: return Compare::equal;
  }
  std::unreachable();
}
Over negated(Over over) { return over == Over::all ? Over::any : over == Over::any ? Over::all : over; }

class Translation {
 public:
  Translation(const Rule& rule, const PromOptions& options) : rule_(rule), options_(options) {
    step_ = std::chrono::ceil<milliseconds>(options.interval / 3);
    hole_ = 3 * options.interval - step_;
    fresh_ = options.interval + options.interval / 2;
  }

  Result<std::string> query();
  Result<> check() const;
  const std::vector<std::string>& group() const { return group_; }

 private:
  Result<> check_signals() const;
  // A signal that is absent in some samples of a GPU that works, such as effort at 0 %. It counts at the times of the
  // first signal alone, and a comparison without it is not a yes: not for its GPU, and not for all GPUs.
  bool is_optional(Metric metric) const;
  bool is_optional(const Comparison& comparison) const;
  // The others, and first one that every sample of a GPU has.
  std::vector<Metric> always_there() const;
  void choose_labels();
  std::string selector(Metric metric) const;
  // Those values of a signal, one a GPU, that are younger than `age` and can be true.
  std::string known(Metric metric, Duration age, std::string_view pick) const;
  std::string values(const Comparison& comparison, Duration age, std::string_view pick) const;
  std::string leaf(const Comparison& comparison, const std::vector<std::string>& by, Duration age, bool no) const;
  std::string condition(NodeId id, const std::vector<std::string>& by, Duration age, bool no) const;
  std::string one_time(Metric metric) const;
  std::string one_scrape() const;
  std::string jobs_now() const;  // of lull's own names: who has which GPU
  std::string all_there(Duration window) const;

  const Rule& rule_;
  const PromOptions& options_;
  Duration step_{};
  Duration hole_{};
  Duration fresh_{};
  std::vector<std::string> gpu_;    // labels that tell GPUs apart
  std::vector<std::string> job_;    // and jobs
  std::vector<std::string> one_;    // what is one series of values: a GPU, or a GPU of a job
  std::vector<std::string> group_;  // what is judged
  bool joined_ = false;             // jobs are in a series of their own
};

std::string by(const std::vector<std::string>& labels) { return fmt::format("by ({})", fmt::join(labels, ", ")); }

void Translation::choose_labels() {
  const bool dcgm = options_.names == PromNames::dcgm;
  gpu_ =
      dcgm ? std::vector<std::string>{"Hostname", "gpu", "UUID"} : std::vector<std::string>{"instance", "gpu", "uuid"};
  job_ = !options_.job_labels.empty() ? options_.job_labels : std::vector<std::string>{dcgm ? "hpc_job" : "job_id"};
  joined_ = !dcgm && options_.per == PromPer::job;
  one_ = gpu_;
  // A GPU that goes from one job to the next begins anew: no job is judged by the one before it.
  if (options_.per == PromPer::job || (options_.per == PromPer::gpu && dcgm))
    one_.insert(one_.end(), job_.begin(), job_.end());
  group_ = options_.per == PromPer::gpu ? one_ : options_.per == PromPer::job ? job_ : std::vector{gpu_[0]};
}

bool Translation::is_optional(Metric metric) const {
  const std::vector<Metric> all = rule_.signals();
  return is_learned(metric) || (metric == Metric::power_limit && std::ranges::any_of(all, is_learned));
}

bool Translation::is_optional(const Comparison& comparison) const {
  return is_optional(comparison.metric) || comparison.over_idle ||
         (comparison.share && is_optional(*info(comparison.metric).whole));
}

std::vector<Metric> Translation::always_there() const {
  std::vector<Metric> found;
  for (const Metric metric : rule_.signals())
    if (!is_optional(metric)) found.push_back(metric);
  if (found.empty()) found.push_back(Metric::util);  // what is learned is known only where that is
  return found;
}

Result<> Translation::check_signals() const {
  for (const Metric metric : rule_.signals())
    if (find(metric, options_.names) == nullptr)
      return fail(fmt::format("'{}' cannot be translated: {}", info(metric).name,
                              is_learned(metric) ? "lull learns it of each card, and dcgm-exporter does not have it; "
                                                   "--metrics lull has it, of lull serve"
                              : info(metric).of == Of::gpu
                                  ? (options_.names == PromNames::dcgm ? "dcgm-exporter has no such metric"
                                                                       : "lull serve has no such metric")
                                  : "it is read on the machine that runs the job, and no exporter has it"));
  return {};
}

Result<> Translation::check() const {
  const auto span = rule_.span();
  if (!span) return fail("a rule without 'for' cannot be translated: it would answer on a single sample; add a time");
  if (span->samples != 0)
    return fail(fmt::format("'for {}' cannot be translated: Prometheus counts no samples; say a time", to_text(*span)));
  for (NodeId id = 0; id < rule_.nodes.size(); ++id) {
    if (const auto* held = std::get_if<Held>(&rule_[id]); held != nullptr && id != rule_.root())
      return fail(fmt::format("'for {}' inside the rule cannot be translated: only the whole rule can be 'for' a time",
                              to_text(held->span)));
    const auto* comparison = std::get_if<Comparison>(&rule_[id]);
    if (comparison != nullptr && comparison->window)
      return fail(
          fmt::format("'{}' cannot be translated: avg_over_time counts samples, and lull weighs them by time; "
                      "compare the signal itself",
                      to_text(*comparison)));
    const bool together = comparison != nullptr && comparison->over != Over::all && comparison->over != Over::any;
    if (together && is_optional(*comparison))
      return fail(
          fmt::format("'{}' cannot be translated: it may be unknown of one of the GPUs, and a query would leave "
                      "that one out; write all(…) or any(…)",
                      to_text(*comparison)));
  }
  return check_signals();
}

std::string Translation::selector(Metric metric) const {
  std::string labels;
  if (options_.per == PromPer::job && !joined_)
    for (const std::string& label : job_) labels += fmt::format("{}{}!=\"\"", labels.empty() ? "" : ",", label);
  const std::string_view name = find(metric, options_.names)->name;
  return labels.empty() ? std::string(name) : fmt::format("{}{{{}}}", name, labels);
}

std::string Translation::known(Metric metric, Duration age, std::string_view pick) const {
  const MetricRange range = info(metric).range;
  const double scale = find(metric, options_.names)->scale;
  const auto& labels = joined_ ? gpu_ : one_;
  std::string of_gpu = fmt::format("{} {} (last_over_time({}[{}]) >= {} <= {})", pick, by(labels), selector(metric),
                                   span_text(age), range.lowest / scale, range.highest / scale);
  if (is_optional(metric))
    of_gpu = fmt::format("({0} and on ({1}) (max {2} (timestamp({3})) == max {2} (timestamp({4}))))", of_gpu,
                         fmt::join(labels, ", "), by(labels), selector(metric), selector(always_there()[0]));
  if (!joined_) return of_gpu;
  return fmt::format("(max {} (last_over_time({}{{job_id!=\"\"}}[{}])) * on ({}) group_left () {})", by(one_), kJobInfo,
                     span_text(age), fmt::join(gpu_, ", "), of_gpu);
}

std::string Translation::values(const Comparison& comparison, Duration age, std::string_view pick) const {
  const std::string_view other = pick == "max" ? "min" : "max";
  if (comparison.over_idle)
    return fmt::format("({} - on ({}) {})", known(comparison.metric, age, pick), fmt::join(one_, ", "),
                       known(Metric::idle_power, age, other));
  if (!comparison.share) return known(comparison.metric, age, pick);
  const Metric whole = *info(comparison.metric).whole;
  const double scale = find(comparison.metric, options_.names)->scale / find(whole, options_.names)->scale;
  return fmt::format("({} * {} / {})", 100 * scale, known(comparison.metric, age, pick), known(whole, age, other));
}

std::string Translation::leaf(const Comparison& comparison, const std::vector<std::string>& labels, Duration age,
                              bool no) const {
  const Compare compare = no ? negated(comparison.compare) : comparison.compare;
  const Over over = no ? negated(comparison.over) : comparison.over;
  const double limit =
      comparison.share ? comparison.limit : comparison.limit / find(comparison.metric, options_.names)->scale;
  const std::string against = fmt::format("{} {}", symbol(compare), limit);
  const bool up = compare == Compare::above || compare == Compare::at_least;
  const bool alike = compare == Compare::equal || compare == Compare::unequal;
  const bool optional = is_optional(comparison);
  // Of several series of one GPU the one counts that is hardest on the rule.
  const std::string value = values(comparison, age, up ? "min" : "max");
  if (optional && labels == one_) return fmt::format("({} {})", value, against);
  if ((alike || optional) && over == Over::all)
    return fmt::format("(count {0} ({1} {2}) == count {0} ({3}))", by(labels), value, against,
                       optional ? known(always_there()[0], age, "max") : value);
  if ((alike || optional) && over == Over::any)
    return fmt::format("(count {} ({} {}) > 0)", by(labels), value, against);
  std::string_view pick = "avg";
  if (over == Over::max || (over == Over::all && !up) || (over == Over::any && up)) pick = "max";
  if (over == Over::min || (over == Over::all && up) || (over == Over::any && !up)) pick = "min";
  if (labels == one_) return fmt::format("({} {})", value, against);
  return fmt::format("({} {} ({}) {})", pick, by(labels), value, against);
}

std::string Translation::condition(NodeId id, const std::vector<std::string>& labels, Duration age, bool no) const {
  const Node& node = rule_[id];
  const auto two = [&](NodeId left, NodeId right, bool both) {
    return fmt::format("({} {} {})", condition(left, labels, age, no), both ? "and" : "or",
                       condition(right, labels, age, no));
  };
  if (const auto* comparison = std::get_if<Comparison>(&node)) return leaf(*comparison, labels, age, no);
  if (const auto* both = std::get_if<And>(&node)) return two(both->left, both->right, !no);
  if (const auto* either = std::get_if<Or>(&node)) return two(either->left, either->right, no);
  if (const auto* not_so = std::get_if<Not>(&node)) return condition(not_so->operand, labels, age, !no);
  if (const auto* held = std::get_if<Held>(&node)) return condition(held->operand, labels, age, no);
  const Each& each = std::get<Each>(node);
  const std::string of_one = condition(each.operand, one_, age, no);
  if (labels == one_) return of_one;
  if (each.all == no) return fmt::format("(count {} ({}) > 0)", by(labels), of_one);
  return fmt::format("(count {0} ({1}) == count {0} ({2}))", by(labels), of_one, known(always_there()[0], age, "max"));
}

std::string Translation::jobs_now() const {
  return fmt::format("max {} (last_over_time({}{{job_id!=\"\"}}[{}]))", by(one_), kJobInfo, span_text(hole_));
}

// Each of them has a sample at each time that the first signal has one.
std::string Translation::one_time(Metric metric) const {
  const auto& labels = joined_ ? gpu_ : one_;
  const std::string first = fmt::format("max {} (timestamp({}))", by(labels), selector(always_there()[0]));
  const std::string same = fmt::format("({} == max {} (timestamp({})))", first, by(labels), selector(metric));
  if (labels == group_) return same;
  if (!joined_) return fmt::format("(count {0} {1} == count {0} ({2}))", by(group_), same, first);
  return fmt::format("(count {0} ({1} and on ({2}) {3}) == count {0} ({1}))", by(group_), jobs_now(),
                     fmt::join(gpu_, ", "), same);
}

// Each GPU of a host has a sample at each time that one of them has. A host is scraped as a whole, so their times are
// the same; where one is missing, lull does not know all.
std::string Translation::one_scrape() const {
  std::vector<std::string> host = {gpu_[0]};
  if (options_.per == PromPer::job && !joined_) host.insert(host.end(), job_.begin(), job_.end());
  const std::string newest = fmt::format("max {} (timestamp({}))", by(host), selector(always_there()[0]));
  const std::string same =
      fmt::format("({0} == min {1} (timestamp({2})))", newest, by(host), selector(always_there()[0]));
  if (host == group_) return same;
  if (!joined_) return fmt::format("(count {0} {1} == count {0} ({2}))", by(group_), same, newest);
  return fmt::format("(count {0} ({1} and on ({2}) {3}) == count {0} ({1}))", by(group_), jobs_now(), gpu_[0], same);
}

// Every GPU of the group, at every step and now.
std::string Translation::all_there(Duration window) const {
  std::string text;
  for (const Metric metric : always_there())
    text += fmt::format("{}min_over_time((count {} ({}))[{}:{}])\n    == count {} ({})",
                        text.empty() ? "" : "\n    == ", by(group_), known(metric, hole_, "max"), span_text(window),
                        span_text(step_), by(group_), known(metric, fresh_, "max"));
  const std::string had = joined_ ? fmt::format("{}{{job_id!=\"\"}}", kJobInfo) : selector(always_there()[0]);
  return text + fmt::format("\n    == count {} (group {} (last_over_time({}[{}])))", by(group_), by(one_), had,
                            span_text(std::max(kMemory, window)));
}

Result<std::string> Translation::query() {
  TRY(check());
  choose_labels();
  const Duration window = rule_.span()->time + step_ + fresh_;
  const NodeId root = rule_.condition();
  const std::string over = fmt::format("[{}:{}]", span_text(window), span_text(step_));
  const std::vector<Metric> signals = always_there();
  std::string each = condition(root, group_, hole_, false);
  if (group_ != one_) each += "\n      and " + one_scrape();
  for (std::size_t i = 1; i < signals.size(); ++i) each += "\n      and " + one_time(signals[i]);
  std::string text =
      fmt::format("count_over_time((\n      {}\n    ){}) >= scalar(count_over_time(vector(1){}))\n", each, over, over);
  text += fmt::format("  and {}\n", condition(root, group_, fresh_, false));
  if (group_ != one_) text += fmt::format("  and {}\n", all_there(window));
  std::string crowded = fmt::format("count {} (count_over_time({}[{}]) > 1)", by(joined_ ? gpu_ : group_),
                                    selector(signals[0]), span_text(step_));
  if (joined_)
    crowded = fmt::format("count {} ({} and on ({}) {})", by(group_), jobs_now(), fmt::join(gpu_, ", "), crowded);
  return text + fmt::format("  unless count_over_time(({}){})\n", crowded, over);
}

std::string yaml_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "''" : std::string(1, c);
  return out + "'";
}

// What `{{` would begin in an annotation is written so that it stays text.
std::string of_template(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '{' ? "{{ \"{\" }}" : std::string(1, c);
  return out;
}

}  // namespace

Result<std::string> to_promql(const Rule& rule, const PromOptions& options) {
  // Of one GPU, any(…) and all(…) are the condition itself.
  const Rule one = options.per == PromPer::gpu ? rule.of_one_gpu() : rule;
  return Translation(one, options).query();
}

Result<std::string> to_prometheus_alert(const Rule& rule, const PromOptions& options, const std::string& alert) {
  const Rule one = options.per == PromPer::gpu ? rule.of_one_gpu() : rule;
  Translation translation(one, options);
  const std::string query = TRY(translation.query());
  std::string text = "groups:\n  - name: lull\n";
  // Twice an interval: it must not be late by a whole one where a scrape is missing.
  text += fmt::format("    interval: {}\n    rules:\n", span_text(options.interval / 2));
  text += fmt::format("      - alert: {}\n        expr: |\n", yaml_quoted(alert));
  for (const std::string_view line : split(std::string_view(query).substr(0, query.size() - 1), '\n'))
    text += fmt::format("          {}\n", line);
  std::string who;
  for (const std::string& label : translation.group())
    who += fmt::format("{}{} {{{{ $labels.{} }}}}", who.empty() ? "" : ", ", label, label);
  text += "        labels:\n          severity: warning\n        annotations:\n";
  return text + fmt::format("          summary: {}\n", yaml_quoted(who + ": " + of_template(rule.text)));
}

}  // namespace lull
