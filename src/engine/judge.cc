#include "engine/judge.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "rule/reason.h"

namespace lull {
namespace {

// fmax and fmin leave an unknown out of the choice.
float worse(const Track& track, float a, float b) { return track.high_is_worse ? std::fmax(a, b) : std::fmin(a, b); }

void walk(const Rule& rule, NodeId id, bool inverted, std::vector<Track>& out) {
  const Node& node = rule[id];
  if (const auto* it = std::get_if<Comparison>(&node)) {
    const bool wants_low =
        it->compare == Compare::below || it->compare == Compare::at_most || it->compare == Compare::equal;
    const Duration window = it->window.value_or(Duration::zero());
    const auto same = [&](const Track& t) {
      return t.metric == it->metric && t.share == it->share && t.window == window;
    };
    if (std::none_of(out.begin(), out.end(), same))
      out.push_back(
          {.metric = it->metric, .share = it->share, .window = window, .high_is_worse = wants_low != inverted});
  } else if (const auto* both = std::get_if<And>(&node)) {
    walk(rule, both->left, inverted, out);
    walk(rule, both->right, inverted, out);
  } else if (const auto* either = std::get_if<Or>(&node)) {
    walk(rule, either->left, inverted, out);
    walk(rule, either->right, inverted, out);
  } else if (const auto* opposite = std::get_if<Not>(&node)) {
    walk(rule, opposite->operand, !inverted, out);
  } else if (const auto* held = std::get_if<Held>(&node)) {
    walk(rule, held->operand, inverted, out);
  } else if (const auto* each = std::get_if<Each>(&node)) {
    walk(rule, each->operand, inverted, out);
  }
}

}  // namespace

std::vector<Track> tracks_of(const Rule& rule) {
  std::vector<Track> out;
  if (!rule.nodes.empty()) walk(rule, rule.root(), false, out);
  return out;
}

void History::halve() {
  for (std::size_t t = 0; t < tracks_.size(); ++t) {
    float* cells = cells_.data() + t * kCells;
    for (std::size_t i = 0; i < kCells / 2; ++i) cells[i] = worse(tracks_[t], cells[2 * i], cells[2 * i + 1]);
  }
  used_ = kCells / 2;
  per_cell_ *= 2;
}

void History::add(Instant at, const std::vector<float>& values) {
  const bool first = samples_++ == 0;
  if (first) {
    begin_ = at;
    used_ = 0;
    per_cell_ = 1;
    in_last_ = 1;
  }
  const bool new_cell = first || in_last_ == per_cell_;
  if (new_cell) {
    if (used_ == kCells) halve();
    ++used_;
    in_last_ = 0;
  }
  ++in_last_;
  for (std::size_t t = 0; t < tracks_.size(); ++t) {
    Track& track = tracks_[t];
    const float value = values[t];
    float& cell = cells_[t * kCells + used_ - 1];
    cell = new_cell ? value : worse(track, cell, value);
    track.last = value;
    if (first) {
      track.first = track.worst = value;
      track.worst_at = at;
    } else if (!std::isnan(value) && (std::isnan(track.worst) || worse(track, track.worst, value) != track.worst)) {
      track.worst = value;
      track.worst_at = at;
    }
  }
}

std::vector<float> History::trace(std::size_t track) const {
  if (samples_ == 0) return {};
  const float* cells = cells_.data() + track * kCells;
  return {cells, cells + used_};
}

namespace {

EvaluatorOptions evaluator_options(const JudgeOptions& options, std::size_t gpus) {
  return {.gpus = gpus, .interval = options.interval, .max_gap = options.max_gap, .missing = options.missing};
}

std::uint64_t known_metrics(const Reading& reading) {
  std::uint64_t known = 0;
  for (std::size_t m = 0; m < kMetrics; ++m)
    if (std::isfinite(reading.value[m])) known |= std::uint64_t{1} << m;
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
      of_gpus_(policy_.idle.looks_at_gpus() || (policy_.arm && policy_.arm->looks_at_gpus())),
      decider_(policy_, evaluator_options(options_, of_gpus_ ? scope_.size() : 1)),
      rule_alone_(policy_.idle.of_one_gpu()),
      asks_alone_(policy_.idle.looks_at_gpus() &&
                  (policy_.idle.may_hold_for_some() || options_.missing == WhenMissing::ignore)) {
  signals_ = policy_.idle.signals();
  if (policy_.arm)
    for (const Metric metric : policy_.arm->signals())
      if (std::find(signals_.begin(), signals_.end(), metric) == signals_.end()) signals_.push_back(metric);
  tracks_ = tracks_of(policy_.idle);
  if (options_.had_samples) decider_.had_samples();
  build();
}

void Judge::set_scope(std::vector<Device> scope) {
  const bool same = std::ranges::equal(scope, scope_, {}, &Device::id, &Device::id);
  scope_ = std::move(scope);
  if (!same) begin_anew();
}

void Judge::begin_anew() {
  Decider anew(policy_, evaluator_options(options_, of_gpus_ ? scope_.size() : 1));
  anew.follow(decider_);
  decider_ = std::move(anew);
  build();
}

void Judge::build() {
  lanes_ = of_gpus_ ? scope_.size() : 1;
  at_.resize(1);
  values_.assign(lanes_ * signals_.size(), kUnknownSample);
  lowest_ = highest_ = values_;
  newest_.reset();
  absences_.assign(values_.size(), Absence::not_asked);
  coverages_.assign(values_.size(), kUnknownSample);
  present_.assign(lanes_, 0);
  places_.assign(scope_.size(), kNowhere);
  inventory_.reset();
  blocks_.assign(lanes_, Block{});
  for (std::size_t lane = 0; lane < lanes_; ++lane) {
    blocks_[lane].at = at_;
    for (std::size_t s = 0; s < signals_.size(); ++s)
      blocks_[lane].value[index_of(signals_[s])] = {values_.data() + lane * signals_.size() + s, 1};
  }
  alone_.clear();
  if (asks_alone_)
    for (std::size_t lane = 0; lane < lanes_; ++lane)
      alone_.push_back({.evaluator = Evaluator::compile(rule_alone_, evaluator_options(options_, 1))});
  std::vector<Track> all;
  windows_.clear();
  for (std::size_t lane = 0; lane < lanes_; ++lane)
    for (const Track& track : tracks_) {
      all.push_back(track);
      windows_.emplace_back();
      if (track.window > Duration::zero()) windows_.back().emplace(track.window);
    }
  now_.assign(all.size(), kUnknownSample);
  history_ = History(std::move(all));
  verdict_ = {};
}

void Judge::locate(const Snapshot& snapshot) {
  inventory_ = snapshot.inventory;
  for (std::size_t g = 0; g < scope_.size(); ++g) places_[g] = inventory_->place_of(scope_[g].id()).value_or(kNowhere);
}

void Judge::fill_one(std::size_t lane, std::size_t signal, const Facts* from, Absence gone, const Reading* reading) {
  const std::size_t at = lane * signals_.size() + signal;
  const auto value = from != nullptr ? static_cast<float>((*from)[signals_[signal]]) : kUnknownSample;
  const bool was_known = std::isfinite(values_[at]);
  values_[at] = value;
  const Band newest = reading != nullptr ? reading->newest(signals_[signal]) : Band{value, value};
  lowest_[at] = static_cast<float>(newest.low);
  highest_[at] = static_cast<float>(newest.high);
  if (std::isfinite(value)) [[likely]]
    return;
  const Absence why = from != nullptr ? from->why_missing(signals_[signal]) : gone;
  if (why == Absence::not_covered && (was_known || absences_[at] != Absence::not_covered))
    coverages_[at] = reading != nullptr ? coverage_of(*reading, signals_[signal]) : kUnknownSample;
  absences_[at] = why == Absence::none ? Absence::failed : why;
  present_[lane] = reading == nullptr ? 0 : known_metrics(*reading);
}

void Judge::fill(const Snapshot& snapshot, const Facts& job, const Facts& machine) {
  const Absence gone = snapshot.driver.absence != Absence::none ? snapshot.driver.absence : Absence::lost;
  for (std::size_t lane = 0; lane < lanes_; ++lane) {
    const std::size_t place = of_gpus_ ? places_[lane] : kNowhere;
    const Reading* reading = place < snapshot.readings.size() ? &snapshot.readings[place] : nullptr;
    present_[lane] = 0;
    const bool spins = policy_.idle.for_hangs && reading != nullptr && inventory_->devices[place].idle_looks_hung;
    for (std::size_t s = 0; s < signals_.size(); ++s) {
      switch (info(signals_[s]).of) {
        case Of::gpu:
          if (spins)
            fill_one(lane, s, nullptr, Absence::looks_hung, nullptr);
          else
            fill_one(lane, s, reading, gone, reading);
          break;
        case Of::job: fill_one(lane, s, &job, gone, nullptr); break;
        case Of::machine: fill_one(lane, s, &machine, gone, nullptr); break;
      }
    }
  }
}

Result<> Judge::ask_each_alone() {
  for (std::size_t lane = 0; lane < alone_.size(); ++lane) {
    Alone& one = alone_[lane];
    TRY(one.evaluator.feed(std::span(blocks_).subspan(lane, 1), alone_rule_, &alone_condition_));
    one.rule = alone_rule_[0];
    one.condition = alone_condition_[0];
  }
  return {};
}

// A signal as the rule compares it: in % of its whole, as a mean over a window.
float Judge::track_value(std::size_t lane, std::size_t track, bool gap) {
  const Track& what = tracks_[track];
  const auto value_of = [&](Metric metric) { return blocks_[lane][metric][0]; };
  float value = value_of(what.metric);
  if (what.share) {
    const float whole = value_of(info(what.metric).whole.value_or(what.metric));
    value = whole > 0 ? value / whole * 100 : kUnknownSample;
  }
  auto& window = windows_[lane * tracks_.size() + track];
  return window ? window->push(at_[0], value, gap) : value;
}

// Keeps what the verdict rests on: the window begins anew when the condition starts or ceases to hold. A condition with
// a `for` inside has begun to matter when that one started to run.
void Judge::remember(bool gap) {
  for (std::size_t lane = 0; lane < lanes_; ++lane)
    for (std::size_t t = 0; t < tracks_.size(); ++t) now_[lane * tracks_.size() + t] = track_value(lane, t, gap);
  history_.add(at_[0], now_);
}

Result<Verdict> Judge::observe(const Snapshot& snapshot, const Facts& job, const Facts& machine, bool counts) {
  if (begun_ && snapshot.at < at_[0]) {
    verdict_.truth = verdict_.condition = Truth::unknown;  // an earlier answer does not count now
    return fail("time goes backwards");
  }
  begun_ = true;
  newest_.reset();
  at_[0] = snapshot.at;
  if (snapshot.inventory != inventory_) locate(snapshot);
  fill(snapshot, job, machine);
  wall_ = snapshot.wall;
  if (snapshot.driver.absence != driver_.absence || snapshot.driver.detail != driver_.detail) driver_ = snapshot.driver;
  const Truth condition_before = verdict_.condition;
  const bool inside_before = evaluator().idle().any_streak_inside();
  verdict_ = {.needed = policy_.idle.span().value_or(Span{})};
  verdict_.armed = evaluator().armed();
  bool gap = false;
  decider_.count(counts);
  for (Alone& one : alone_) one.evaluator.count(counts);
  if (lanes_ > 0) {
    TRY(decider_.feed(blocks_, answers_));
    TRY(ask_each_alone());
    verdict_.truth = answers_.rule[0];
    verdict_.condition = answers_.condition[0];
    verdict_.armed = bit(answers_.armed, 0);
    verdict_.fires = bit(answers_.fires, 0);
    gap = bit(answers_.gaps, 0);
    if (const Progress progress = evaluator().progress(); progress.running) {
      verdict_.held = progress.held;
      verdict_.held_samples = progress.samples;
    }
  }
  const bool turned = (verdict_.condition == Truth::yes) != (condition_before == Truth::yes);
  const bool inside = evaluator().idle().any_streak_inside();
  if (gap || (inside ? !inside_before : turned || inside_before)) history_.restart();
  remember(gap);
  return verdict_;
}

Truth Judge::newest() const {
  if (!newest_) newest_ = judge_newest();
  return *newest_;
}

// Signals go up and down by themselves, so each is tried at its lowest with the others at their highest, and so on.
Truth Judge::judge_newest() const {
  if (lanes_ == 0 || !begun_) return Truth::unknown;
  const Rule rule = at_one_moment(policy_.idle);
  const std::vector<Metric> used = rule.signals();
  std::vector<std::size_t> wide;  // signals of which there is more than one value
  for (std::size_t s = 0; s < signals_.size(); ++s) {
    if (std::ranges::find(used, signals_[s]) == used.end()) continue;
    bool differs = false;
    for (std::size_t at = s; at < values_.size(); at += signals_.size()) {
      if (std::isfinite(values_[at]) && !std::isfinite(highest_[at])) return Truth::unknown;
      differs = differs || lowest_[at] < highest_[at];
    }
    if (differs) wide.push_back(s);
  }
  Truth all = Truth::yes;
  for (std::size_t choice = 0; choice < std::size_t{1} << wide.size(); ++choice) {
    std::vector<float> values = highest_;
    for (std::size_t i = 0; i < wide.size(); ++i)
      for (std::size_t at = wide[i]; (choice >> i & 1) != 0 && at < values.size(); at += signals_.size())
        values[at] = lowest_[at];
    std::vector<Block> blocks = blocks_;
    for (std::size_t lane = 0; lane < lanes_; ++lane)
      for (std::size_t s = 0; s < signals_.size(); ++s)
        blocks[lane].value[index_of(signals_[s])] = {values.data() + lane * signals_.size() + s, 1};
    Answers answers{};
    if (!Evaluator::compile(rule, evaluator_options(options_, lanes_)).feed(blocks, answers)) return Truth::unknown;
    if (answers[0] == Truth::no) return Truth::no;
    if (answers[0] == Truth::unknown) all = Truth::unknown;
  }
  return all;
}

std::vector<MissingSignal> Judge::missing() const {
  std::vector<MissingSignal> out;
  for (std::size_t lane = 0; lane < lanes_; ++lane) {
    for (std::size_t s = 0; s < signals_.size(); ++s) {
      const std::size_t at = lane * signals_.size() + s;
      const bool of_gpu = info(signals_[s]).of == Of::gpu;
      if (std::isfinite(values_[at]) || (!of_gpu && lane > 0) || absences_[at] == Absence::looks_hung) continue;
      MissingSignal lacking{
          .gpu = of_gpu ? scope_[lane].label() : "", .metric = signals_[s], .why = absences_[at], .instead = {}};
      if (lacking.why == Absence::not_covered) lacking.coverage = static_cast<double>(coverages_[at]);
      for (const Metric other : instead_of(signals_[s]))
        if ((present_[lane] >> index_of(other) & 1) != 0) lacking.instead.push_back(other);
      out.push_back(std::move(lacking));
    }
  }
  return out;
}

// The GPUs for which the rule holds: with any(…) not all of those in scope, and not one that gave no value and was
// ignored. Where it holds for none by itself (they took turns, or a mean over them is compared), all are meant.
std::vector<std::size_t> Judge::holding() const {
  std::vector<std::size_t> lanes;
  if (!policy_.idle.looks_at_gpus()) return lanes;
  if (asks_alone_ && verdict_.truth == Truth::yes) {
    const bool some = policy_.idle.may_hold_for_some();
    for (std::size_t lane = 0; lane < alone_.size(); ++lane)
      if (some ? alone_[lane].rule == Truth::yes : alone_[lane].condition != Truth::unknown) lanes.push_back(lane);
    if (!lanes.empty()) return lanes;
  }
  for (std::size_t lane = 0; lane < lanes_; ++lane) lanes.push_back(lane);
  return lanes;
}

Story Judge::story(std::size_t lane, std::size_t track_index) const {
  const std::size_t at = lane * tracks_.size() + track_index;
  const Track& track = history_.tracks()[at];
  return {.gpu = info(track.metric).of == Of::gpu ? scope_[lane].label() : "",
          .metric = track.metric,
          .share = track.share,
          .window = track.window,
          .high_is_worse = track.high_is_worse,
          .first = static_cast<double>(track.first),
          .last = static_cast<double>(track.last),
          .worst = static_cast<double>(track.worst),
          .worst_ago = at_[0] - track.worst_at,
          .trace = history_.trace(at)};
}

Explanation Judge::explain() const {
  const std::vector<std::size_t> named = holding();
  // Where the outermost part is no `for`, those inside say since when: all that run have held at least so long.
  Progress held = evaluator().progress();
  if (!held.running && verdict_.truth == Truth::yes) {
    held = evaluator().idle().shortest_streak();
    if (asks_alone_)
      for (const std::size_t lane : named)
        if (const Progress one = alone_[lane].evaluator.shortest_streak(); one.running && one.held >= held.held)
          held = one;
  }
  const Rule& rule = policy_.idle.span() ? policy_.idle : rule_alone_;
  Explanation out{.truth = verdict_.truth,
                  .armed = verdict_.armed || verdict_.fires,  // after a firing it may have to arm again
                  .fires = verdict_.fires,
                  .rule = policy_.idle.text,
                  .arm = policy_.arm ? policy_.arm->text : "",
                  .of_gpus = policy_.idle.looks_at_gpus(),
                  .gpus = {},
                  .ids = {},
                  .since = wall_ - (at_[0] - history_.begin()),
                  .window = at_[0] - history_.begin(),
                  .running = held.running,
                  .held = held.held,
                  .samples = held.samples,
                  .needed = rule.span().value_or(Span{}),
                  .stories = {},
                  .missing = missing(),
                  .driver = driver_};
  if (held.running) out.since = wall_ - held.held;
  for (const std::size_t lane : named) {
    out.gpus.push_back(scope_[lane].label());
    out.ids.push_back(scope_[lane].id());
    for (std::size_t t = 0; t < tracks_.size(); ++t)
      if (info(tracks_[t].metric).of == Of::gpu) out.stories.push_back(story(lane, t));
  }
  for (std::size_t t = 0; t < tracks_.size() && lanes_ > 0; ++t)  // of the job and the machine: the same for all
    if (info(tracks_[t].metric).of != Of::gpu) out.stories.push_back(story(0, t));
  return out;
}

}  // namespace lull
