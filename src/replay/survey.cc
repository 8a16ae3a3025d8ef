#include "replay/survey.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "trace/history.h"
#include "trace/rows.h"

namespace lull::replay {
namespace {

// Reads the trace for its times alone, as often as it takes to know every median.
class Survey final : public trace::TraceSink {
 public:
  void restart() override { gpus_.clear(); }
  void block(std::size_t gpu, const Block& block) override {
    while (gpu >= gpus_.size()) {
      gpus_.emplace_back(0);
      if (gpus_.size() <= closer_.size()) gpus_.back().look_closer(closer_[gpus_.size() - 1]);
    }
    gpus_[gpu].feed(block.at);
  }
  void frames(std::span<const Block>) override {}

  // True: all are known. False: read again.
  bool settle(std::vector<Sampling>& found) {
    bool all = true;
    found.clear();
    closer_.clear();
    for (Intervals& gpu : gpus_) {
      const auto bracket = gpu.median().median();
      const std::int64_t twice = bracket ? bracket->low_twice : 0;
      found.push_back({twice, gpu.paces(twice), gpu.sampled()});
      all = all && (!bracket || bracket->exact());
      closer_.push_back(bracket && bracket->exact() ? MedianFinder() : gpu.median().closer());
    }
    return all;
  }

 private:
  std::vector<Intervals> gpus_;
  std::vector<MedianFinder> closer_;
};

// Which recording would have it.
std::string_view recorders_of(Metric metric) {
  if (!trace::is_recorded_unasked(metric)) return "`lull record --signals` writes it where it is named";
  if (info(metric).of == Of::gpu) return "`lull record` writes it";
  return "`lull run --record FILE` writes the signals of a job and of the machine";
}

Result<> check_signals(const std::vector<Metric>& needed, const trace::TraceReader& reader) {
  const std::vector<Metric> there = reader.available();
  for (const Metric metric : needed) {
    if (is_own(metric) || std::find(there.begin(), there.end(), metric) != there.end()) continue;
    std::string columns;
    for (const std::string& name : reader.columns()) {
      if (columns.size() > 200) break;
      columns += (columns.empty() ? "" : ", ") + printable(name);
    }
    return fail(fmt::format(
        "the trace has no {}, which the rule looks at: {}; or --columns {}=NAME says which column is; it has {}",
        info(metric).name, recorders_of(metric), info(metric).name, columns));
  }
  return {};
}

}  // namespace

Result<std::vector<Sampling>> survey(trace::TraceReader& reader, trace::TraceReport* report) {
  Survey survey;
  std::vector<Sampling> gpus;
  for (;;) {
    trace::TraceReport read = TRY(reader.read(survey));
    if (report != nullptr) *report = std::move(read);
    if (survey.settle(gpus)) return gpus;
  }
}

void note_missing_own(const std::vector<Metric>& needed, const trace::TraceReader& reader, trace::TraceReport& report) {
  const std::vector<Metric> there = reader.available();
  for (const Metric metric : needed)
    if (is_own(metric) && std::find(there.begin(), there.end(), metric) == there.end())
      report.notes.push_back(
          fmt::format("the trace has no {}: {} is unknown in it; --columns {}=NAME says which column is",
                      info(metric).field, info(metric).name, info(metric).name));
}

Result<trace::TraceReader> open_traces(const TracesToRead& traces, std::vector<Metric> wanted,
                                       const std::vector<Metric>& needed, std::size_t memory) {
  wanted = made_of(wanted);
  trace::TraceOptions options;
  for (const std::string& path : traces.paths) {
    if (!trace::is_folder(path)) {
      options.paths.push_back(path);
      continue;
    }
    std::vector<std::string> days = TRY(trace::days_within(path, traces.range));
    options.paths.insert(options.paths.end(), days.begin(), days.end());
  }
  options.range = traces.range;
  if (traces.prometheus) {
    trace::PrometheusAnswers answers =
        TRY(trace::fetch_prometheus(*traces.prometheus, wanted, traces.columns, traces.progress));
    options.paths = {std::move(answers.path)};
    options.keeps = std::move(answers.file);
  }
  options.columns = traces.columns;
  options.metrics = std::move(wanted);
  options.every = traces.every;
  options.threads = traces.threads;
  options.memory = memory;
  options.progress = traces.progress;
  auto reader = TRY(trace::TraceReader::open(std::move(options)));
  TRY(check_signals(must_have(needed), reader));
  reader.options().who = reader.has_owners();
  reader.options().metrics = reader.available();
  return reader;
}

std::string name_of(const TracesToRead& traces) {
  if (traces.prometheus) return trace::host_of_url(traces.prometheus->url);
  const std::vector<std::string>& paths = traces.paths;
  const std::string first = paths[0] == "-" ? "standard input" : paths[0].substr(paths[0].rfind('/') + 1);
  return printable(first) + (paths.size() > 1 ? fmt::format(" and {} more", paths.size() - 1) : "");
}

// ---- learning

std::vector<Metric> must_have(const std::vector<Metric>& signals) {
  std::vector<Metric> all = made_of(signals);
  if (any_learned(signals)) std::erase(all, Metric::power_limit);
  return all;
}

Learning::Gpu& Learning::at(std::size_t gpu) {
  if (gpu >= gpus_.size()) gpus_.resize(gpu + 1);
  if (!gpus_[gpu]) gpus_[gpu] = std::make_unique<Gpu>();
  return *gpus_[gpu];
}

void Learning::block(std::size_t gpu, const Block& block) { next_.block(gpu, at(gpu).add(block)); }

void Learning::frames(std::span<const Block> gpus) {
  blocks_.clear();
  for (std::size_t i = 0; i < gpus.size(); ++i) blocks_.push_back(at(i).add(gpus[i]));
  next_.frames(blocks_);
}

}  // namespace lull::replay
