#include "session/fleet_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"
#include "gpu/power_learner.h"
#include "rule/timeline.h"
#include "trace/reader.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLeastSamples = 4;  // within the time that a rule asks for; fewer tell too little of it

class FleetSink final : public trace::TraceSink {
 public:
  explicit FleetSink(const std::vector<Metric>& metrics) : metrics_(metrics) {}
  void restart() override {
    gpus_.clear();
    learners_.clear();
  }
  void block(std::size_t gpu, const Block& read) override {
    // So much is learned as the rule looks back: mostly nothing, and then `learned` says so.
    const Block block = columns_.add(learners_[gpu], read);
    if (gpus_.size() <= gpu) gpus_.resize(gpu + 1);
    FleetGpu& one = gpus_[gpu];
    one.at.insert(one.at.end(), block.at.begin(), block.at.end());
    for (const Metric metric : metrics_) {
      std::vector<float>& column = one.value[index_of(metric)];
      const std::span<const float> values = block[metric];
      column.insert(column.end(), values.begin(), values.end());
      column.resize(one.at.size(), kUnknownSample);
    }
  }
  void frames(std::span<const Block>) override {}
  std::vector<FleetGpu> take() { return std::move(gpus_); }

 private:
  const std::vector<Metric>& metrics_;
  std::vector<FleetGpu> gpus_;
  std::map<std::size_t, PowerLearner> learners_;
  LearnedColumns columns_;
};

// One GPU of the job: where its samples are that count.
struct Lane {
  const FleetGpu* gpu = nullptr;
  std::size_t next = 0;
  std::size_t end = 0;
  Duration interval{};
  Duration gap{};
};

Duration median_interval(std::span<const Instant> at) {
  std::vector<Duration> all;
  for (std::size_t i = 1; i < at.size(); ++i) all.push_back(at[i] - at[i - 1]);
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::ranges::nth_element(all, middle);
  return *middle;
}

// "gpu1.cluster:9400" -> "gpu1.cluster"
std::string_view without_port(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  return colon != std::string_view::npos && to_unsigned(host.substr(colon + 1)) ? host.substr(0, colon) : host;
}

// "gpu1.cluster:9400" -> "cluster"; empty: it has none, or is an address.
std::string_view domain_of(std::string_view host) {
  host = without_port(host);
  const std::size_t dot = host.find('.');
  if (dot == std::string_view::npos || host.find_first_not_of("0123456789.") == std::string_view::npos) return {};
  return host.substr(dot + 1);
}

std::string rounded_text(Duration time) {
  return format_duration(std::chrono::ceil<std::chrono::seconds>(std::max(time, Duration::zero())));
}

// The samples of all lanes in order of time: at each of them every GPU shows what it showed last, as long as that is
// no gap of its own.
class Merging {
 public:
  Merging(std::vector<Lane> lanes, std::vector<Metric> metrics)
      : lanes_(std::move(lanes)), metrics_(std::move(metrics)), last_(lanes_.size()) {
    values_.resize(lanes_.size() * metrics_.size());
  }

  // Up to kBlockSamples of them; false: that was all.
  bool fill() {
    at_.clear();
    for (std::vector<float>& column : values_) column.clear();
    while (at_.size() < kBlockSamples) {
      std::optional<Instant> now;
      for (const Lane& lane : lanes_)
        if (lane.next < lane.end) now = std::min(now.value_or(Instant::max()), lane.gpu->at[lane.next]);
      if (!now) break;
      for (std::size_t i = 0; i < lanes_.size(); ++i)
        for (Lane& lane = lanes_[i]; lane.next < lane.end && lane.gpu->at[lane.next] == *now; ++lane.next)
          last_[i] = lane.next;
      at_.push_back(*now);
      for (std::size_t i = 0; i < lanes_.size(); ++i)
        for (std::size_t m = 0; m < metrics_.size(); ++m) column(i, m).push_back(value(i, metrics_[m], *now));
    }
    return !at_.empty();
  }
  std::vector<Block> blocks() {
    std::vector<Block> all(lanes_.size());
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      all[i].at = at_;
      for (std::size_t m = 0; m < metrics_.size(); ++m) all[i].value[index_of(metrics_[m])] = column(i, m);
    }
    return all;
  }

 private:
  std::vector<float>& column(std::size_t lane, std::size_t metric) { return values_[lane * metrics_.size() + metric]; }
  float value(std::size_t lane, Metric metric, Instant now) const {
    const FleetGpu& gpu = *lanes_[lane].gpu;
    const std::vector<float>& all = gpu.value[index_of(metric)];
    if (!last_[lane] || all.empty() || now - gpu.at[*last_[lane]] > lanes_[lane].gap) return kUnknownSample;
    return all[*last_[lane]];
  }

  std::vector<Lane> lanes_;
  std::vector<Metric> metrics_;
  std::vector<std::optional<std::size_t>> last_;
  std::vector<Instant> at_;
  std::vector<std::vector<float>> values_;
};

bool is_fresh(const FleetGpu& gpu, Duration interval, Instant now) {
  return now - gpu.at.back() <= std::max<Duration>(interval * 3 / 2, interval + 2s);
}

// Why a number of Slurm's may be another GPU of the exporter's; empty: it is not.
std::string why_other_gpu(const FleetQuestion& question, const std::vector<FleetGpu>& fleet) {
  std::map<std::string, unsigned> given;
  for (const auto& [node, number] : question.gpus) ++given[node];
  for (const auto& [node, count] : given) {
    const std::string name = printable(node);
    const auto has = question.node_gpus.find(node);
    if (has == question.node_gpus.end()) return fmt::format("how many GPUs Slurm has on {} is unknown", name);
    const auto shown = static_cast<unsigned>(std::ranges::count_if(fleet, [&](const FleetGpu& gpu) {
      return gpu.at.size() > 1 && is_host_of(gpu.host, node) && is_fresh(gpu, median_interval(gpu.at), question.now);
    }));
    if (shown != has->second)
      return fmt::format("Slurm has {} GPUs on {}, and series of now tell of {}", has->second, name, shown);
    if (count != has->second && !question.same_order)
      return fmt::format(
          "the exporter of {} may number GPUs in another order than Slurm: `lull slurm check` there shows it, and "
          "--slurm-order says that they agree",
          name);
  }
  return "";
}

// Nothing: the reason is in `why`.
std::optional<Lane> lane_of(const std::pair<std::string, unsigned>& which, const FleetQuestion& question,
                            const std::vector<FleetGpu>& fleet, Duration asked, std::string& why) {
  const std::string name = fmt::format("GPU {} of {}", which.second, printable(which.first));
  const FleetGpu* found = nullptr;
  for (const FleetGpu& gpu : fleet) {
    if (gpu.number != which.second || !is_host_of(gpu.host, which.first)) continue;
    if (found != nullptr) {
      why = fmt::format("{} may be any of several series", name);
      return std::nullopt;
    }
    found = &gpu;
  }
  if (found == nullptr || found->at.empty()) {
    why = fmt::format("no series tells of {}", name);
    return std::nullopt;
  }
  // Two clusters may each have a gpu1, and the exporter of ours may be down.
  if (without_port(found->host) != which.first)
    for (const FleetGpu& gpu : fleet)
      if (const std::string_view domain = domain_of(gpu.host); !domain.empty() && domain != domain_of(found->host)) {
        why = fmt::format("{} may be of another cluster: there are hosts of {} and of {}; --match chooses", name,
                          printable(domain_of(found->host)), printable(domain));
        return std::nullopt;
      }
  // What was before the job had it tells of others, and the first sample after that, too.
  const auto begin = std::ranges::upper_bound(found->at, question.from);
  Lane lane{.gpu = found};
  lane.next = static_cast<std::size_t>(begin - found->at.begin());
  lane.end = found->at.size();
  if (lane.end - lane.next < kLeastSamples) {
    why = fmt::format("{} has not been seen often enough since the job has it", name);
    return std::nullopt;
  }
  lane.interval = median_interval(std::span(found->at).subspan(lane.next));
  lane.gap = longest_gap(lane.interval);
  ++lane.next;
  if (lane.interval * static_cast<std::int64_t>(kLeastSamples) > asked) {
    why = fmt::format("{} is scraped every {}, too seldom for {}", name, rounded_text(lane.interval),
                      format_duration(asked));
    return std::nullopt;
  }
  if (!is_fresh(*found, lane.interval, question.now)) {
    why = fmt::format("{} was seen last at {}", name, format_rfc3339(WallTime(found->at.back().time_since_epoch()), 0));
    return std::nullopt;
  }
  return lane;
}

}  // namespace

bool is_host_of(std::string_view host, std::string_view node) {
  host = without_port(host);
  return host == node || host.substr(0, host.find('.')) == node;
}

Result<std::vector<FleetGpu>> read_fleet(const std::string& path, const std::vector<Metric>& metrics,
                                         const std::vector<trace::ColumnChoice>& labels) {
  trace::TraceOptions options;
  options.paths = {path};
  options.metrics = made_of(metrics);
  options.columns = labels;
  // By host and number alone, as Slurm knows them: two machines whose GPUs have one UUID would be one GPU else.
  options.columns.push_back({.role = "uuid", .column = "", .unit = ""});
  auto reader = TRY(trace::TraceReader::open(std::move(options)));
  FleetSink sink(metrics);
  trace::TraceReport report = TRY(reader.read(sink));
  std::vector<FleetGpu> gpus = sink.take();
  gpus.resize(report.gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    gpus[i].host = report.gpus[i].host;
    std::string_view label = report.gpus[i].label;
    const std::string prefix = gpus[i].host + "/";
    if (label.starts_with(prefix)) label.remove_prefix(prefix.size());
    if (const auto number = to_unsigned(label); number && *number < 4096)
      gpus[i].number = static_cast<unsigned>(*number);
  }
  return gpus;
}

std::string why_no_fleet_rule(const Rule& rule) {
  const std::optional<Span> span = rule.span();
  if (!span) return "a rule without 'for' would act on a single sample of Prometheus; add a time";
  for (const Node& node : rule.nodes)
    if (const auto* held = std::get_if<Held>(&node); held != nullptr && held->span.samples > 0)
      return fmt::format("'for {}': how often Prometheus scrapes is not lull's; say a time", to_text(held->span));
  for (const Metric metric : rule.signals())
    if (info(metric).of != Of::gpu)
      return fmt::format("{} is read on the machine that runs the job, and no exporter has it", info(metric).name);
  return "";
}

Duration reach_of(const Rule& rule) {
  Duration reach{};
  for (const Node& node : rule.nodes) {
    if (const auto* held = std::get_if<Held>(&node)) reach += held->span.time;
    if (const auto* compared = std::get_if<Comparison>(&node)) reach += compared->window.value_or(Duration::zero());
  }
  return reach;
}

FleetVerdict judge_fleet_job(const Rule& rule, const FleetQuestion& question, const std::vector<FleetGpu>& fleet,
                             WhenMissing missing) {
  FleetVerdict verdict;
  const Duration asked = rule.span().value_or(Span{}).time;
  std::vector<Lane> lanes;
  verdict.newest = Instant::max();
  for (const auto& which : question.gpus) {
    const auto lane = lane_of(which, question, fleet, asked, verdict.why);
    if (!lane) return verdict;
    verdict.interval = std::max(verdict.interval, lane->interval);
    verdict.newest = std::min(verdict.newest, lane->gpu->at.back());
    lanes.push_back(*lane);
  }
  if (lanes.empty()) {
    verdict.why = "it has no GPU";
    return verdict;
  }
  if (verdict.why = why_other_gpu(question, fleet); !verdict.why.empty()) return verdict;
  const Duration gap = longest_gap(verdict.interval);
  Evaluator evaluator = Evaluator::compile(
      rule, {.gpus = lanes.size(), .interval = verdict.interval, .max_gap = gap, .missing = missing});
  Merging merging(std::move(lanes), rule.signals());
  Answers answers{};
  Answers conditions{};
  while (merging.fill()) {
    const std::vector<Block> blocks = merging.blocks();
    if (const auto fed = evaluator.feed(blocks, answers, &conditions); !fed) {
      verdict.why = fed.error().message();
      return verdict;
    }
    const std::size_t last = blocks[0].size() - 1;
    verdict.truth = answers[last];
    verdict.condition = conditions[last];
  }
  const Progress progress = evaluator.progress();
  if (progress.running) {
    verdict.held = progress.held;
    verdict.since = progress.since;
  }
  if (verdict.truth == Truth::unknown && verdict.condition == Truth::unknown)
    verdict.why = "Prometheus has no value of a signal that the rule asks for";
  return verdict;
}

}  // namespace lull
