#include "engine/judge.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lull {
namespace {

EvaluatorOptions evaluator_options(const JudgeOptions& options, std::size_t gpus) {
  return {.gpus = gpus, .interval = options.interval, .max_gap = options.max_gap, .missing = options.missing};
}

bool same_device(const Device& wanted, const Device& found) {
  if (!wanted.uuid.empty() && !found.uuid.empty()) return wanted.uuid == found.uuid;
  return wanted.kind == found.kind && wanted.index == found.index && wanted.mig_index == found.mig_index;
}

std::uint32_t known_metrics(const Reading& reading) {
  std::uint32_t known = 0;
  for (std::size_t m = 0; m < kMetrics; ++m)
    if (std::isfinite(reading.value[m])) known |= std::uint32_t{1} << m;
  return known;
}

// How much of the time a mean would have been of; only two of them are means.
float coverage_of(const Reading& reading, Metric metric) {
  if (metric == Metric::util) return static_cast<float>(reading.util_coverage);
  return metric == Metric::power ? static_cast<float>(reading.power_coverage) : kUnknownSample;
}

}  // namespace

Judge::Judge(Policy policy, std::vector<Device> scope, JudgeOptions options)
    : policy_(std::move(policy)),
      options_(options),
      scope_(std::move(scope)),
      evaluator_(PolicyEvaluator::compile(policy_, evaluator_options(options_, scope_.size()))) {
  signals_ = policy_.idle.signals();
  if (policy_.arm)
    for (const Metric metric : policy_.arm->signals())
      if (std::find(signals_.begin(), signals_.end(), metric) == signals_.end()) signals_.push_back(metric);
  tracks_ = tracks_of(policy_.idle);
  build();
}

void Judge::set_scope(std::vector<Device> scope) {
  if (scope == scope_) return;
  scope_ = std::move(scope);
  begin_anew();
}

void Judge::begin_anew() {
  const bool was_armed = evaluator_.armed();
  evaluator_ = PolicyEvaluator::compile(policy_, evaluator_options(options_, scope_.size()));
  if (was_armed) evaluator_.arm();
  build();
}

void Judge::build() {
  const std::size_t gpus = scope_.size();
  at_.resize(1);
  values_.assign(gpus * signals_.size(), kUnknownSample);
  absences_.assign(values_.size(), Absence::not_asked);
  coverages_.assign(values_.size(), kUnknownSample);
  present_.assign(gpus, 0);
  places_.assign(gpus, kNowhere);
  inventory_.reset();
  blocks_.assign(gpus, Block{});
  for (std::size_t g = 0; g < gpus; ++g) {
    blocks_[g].at = at_;
    for (std::size_t s = 0; s < signals_.size(); ++s)
      blocks_[g].value[index_of(signals_[s])] = {values_.data() + g * signals_.size() + s, 1};
  }
  std::vector<Track> all;
  for (std::size_t g = 0; g < gpus; ++g) all.insert(all.end(), tracks_.begin(), tracks_.end());
  now_.assign(all.size(), kUnknownSample);
  history_ = History(std::move(all));
  verdict_ = {};
}

void Judge::locate(const Snapshot& snapshot) {
  inventory_ = snapshot.inventory;
  const std::vector<Device>& devices = inventory_->devices;
  for (std::size_t g = 0; g < scope_.size(); ++g) {
    const auto found =
        std::find_if(devices.begin(), devices.end(), [&](const Device& d) { return same_device(scope_[g], d); });
    places_[g] = found == devices.end() ? kNowhere : static_cast<std::size_t>(found - devices.begin());
  }
}

void Judge::fill(const Snapshot& snapshot) {
  // A GPU that is not there cannot say how the job does, but any other reading can.
  const Reading* any = snapshot.readings.empty() ? nullptr : &snapshot.readings.front();
  const Absence gone = snapshot.driver.absence != Absence::none ? snapshot.driver.absence : Absence::lost;
  for (std::size_t g = 0; g < scope_.size(); ++g) {
    const Reading* reading = places_[g] < snapshot.readings.size() ? &snapshot.readings[places_[g]] : nullptr;
    bool complete = true;
    for (std::size_t s = 0; s < signals_.size(); ++s) {
      const Reading* from = reading != nullptr || info(signals_[s]).of == Of::gpu ? reading : any;
      const auto value = from != nullptr ? static_cast<float>((*from)[signals_[s]]) : kUnknownSample;
      const std::size_t at = g * signals_.size() + s;
      const bool was_known = std::isfinite(values_[at]);
      values_[at] = value;
      if (std::isfinite(value)) [[likely]]
        continue;
      complete = false;
      const Absence why = from != nullptr ? from->why_missing(signals_[s]) : gone;
      if (why == Absence::not_covered && (was_known || absences_[at] != Absence::not_covered))
        coverages_[at] = coverage_of(*from, signals_[s]);
      absences_[at] = why == Absence::none ? Absence::failed : why;
    }
    present_[g] = complete || reading == nullptr ? 0 : known_metrics(*reading);
  }
}

// Keeps what the verdict rests on: the window begins anew when the condition starts or
// ceases to hold.
void Judge::remember() {
  for (std::size_t g = 0; g < scope_.size(); ++g) {
    for (std::size_t t = 0; t < tracks_.size(); ++t) {
      const auto value_of = [&](Metric metric) { return blocks_[g][metric][0]; };
      float value = value_of(tracks_[t].metric);
      if (tracks_[t].share) {
        const float whole = value_of(info(tracks_[t].metric).whole.value_or(tracks_[t].metric));
        value = whole > 0 ? value / whole * 100 : kUnknownSample;
      }
      now_[g * tracks_.size() + t] = value;
    }
  }
  history_.add(at_[0], now_);
}

Result<Verdict> Judge::observe(const Snapshot& snapshot) {
  if (begun_ && snapshot.at < at_[0]) return fail("time goes backwards");
  begun_ = true;
  at_[0] = snapshot.at;
  if (snapshot.inventory != inventory_) locate(snapshot);
  fill(snapshot);
  wall_ = snapshot.wall;
  if (snapshot.driver.absence != driver_.absence || snapshot.driver.detail != driver_.detail) driver_ = snapshot.driver;
  const Truth condition_before = verdict_.condition;
  verdict_ = {.needed = policy_.idle.span().value_or(Span{})};
  verdict_.armed = evaluator_.armed();
  bool gap = false;
  if (!scope_.empty()) {
    TRY(evaluator_.feed(blocks_, answers_));
    verdict_.truth = answers_.rule[0];
    verdict_.condition = answers_.condition[0];
    verdict_.armed = bit(answers_.armed, 0);
    verdict_.fires = bit(answers_.fires, 0);
    gap = bit(answers_.gaps, 0);
    if (const Progress progress = evaluator_.progress(); progress.running) {
      verdict_.held = progress.held;
      verdict_.held_samples = progress.samples;
    }
  }
  if (gap || (verdict_.condition == Truth::yes) != (condition_before == Truth::yes)) history_.restart();
  remember();
  return verdict_;
}

std::vector<MissingSignal> Judge::missing() const {
  std::vector<MissingSignal> out;
  for (std::size_t g = 0; g < scope_.size(); ++g) {
    for (std::size_t s = 0; s < signals_.size(); ++s) {
      const std::size_t at = g * signals_.size() + s;
      const bool of_gpu = info(signals_[s]).of == Of::gpu;
      if (std::isfinite(values_[at]) || (!of_gpu && g > 0)) continue;
      MissingSignal lacking{.gpu = scope_[g].label(), .metric = signals_[s], .why = absences_[at], .instead = {}};
      if (lacking.why == Absence::not_covered) lacking.coverage = static_cast<double>(coverages_[at]);
      for (const Metric other : instead_of(signals_[s]))
        if ((present_[g] >> index_of(other) & 1) != 0) lacking.instead.push_back(other);
      out.push_back(std::move(lacking));
    }
  }
  return out;
}

Explanation Judge::explain() const {
  Explanation out{.truth = verdict_.truth,
                  .armed = verdict_.armed,
                  .fires = verdict_.fires,
                  .rule = policy_.idle.text,
                  .arm = policy_.arm ? policy_.arm->text : "",
                  .gpus = {},
                  .since = wall_ - (at_[0] - history_.begin()),
                  .window = at_[0] - history_.begin(),
                  .running = verdict_.held_samples > 0,
                  .held = verdict_.held,
                  .samples = verdict_.held_samples,
                  .needed = verdict_.needed,
                  .stories = {},
                  .missing = missing(),
                  .driver = driver_};
  if (verdict_.held_samples > 0) out.since = wall_ - verdict_.held;
  for (std::size_t g = 0; g < scope_.size(); ++g) {
    out.gpus.push_back(scope_[g].label());
    for (std::size_t t = 0; t < tracks_.size(); ++t) {
      const std::size_t at = g * tracks_.size() + t;
      const Track& track = history_.tracks()[at];
      const bool of_gpu = info(track.metric).of == Of::gpu;
      if (!of_gpu && g > 0) continue;  // the same for all
      out.stories.push_back({.gpu = of_gpu ? scope_[g].label() : "",
                             .metric = track.metric,
                             .share = track.share,
                             .high_is_worse = track.high_is_worse,
                             .first = static_cast<double>(track.first),
                             .last = static_cast<double>(track.last),
                             .worst = static_cast<double>(track.worst),
                             .worst_ago = at_[0] - track.worst_at,
                             .trace = history_.trace(at)});
    }
  }
  return out;
}

}  // namespace lull
