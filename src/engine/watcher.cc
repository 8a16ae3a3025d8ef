#include "engine/watcher.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

std::string labels(const std::vector<Device>& devices) {
  std::string text;
  for (const Device& device : devices) text += (text.empty() ? "" : ", ") + device.label();
  return (devices.size() == 1 ? "GPU " : "GPUs ") + text;
}

bool same(const std::vector<Device>& a, const std::vector<Device>& b) {
  return std::ranges::equal(a, b, [](const Device& x, const Device& y) {
    return x.uuid == y.uuid && x.index == y.index && x.kind == y.kind && x.mig_index == y.mig_index;
  });
}

// A first sample lacks what needs two: nothing to tell anybody.
bool only_first_sample(const std::vector<MissingSignal>& missing) {
  return std::ranges::all_of(missing, [](const MissingSignal& one) { return one.why == Absence::no_baseline; });
}

}  // namespace

Watcher::Watcher(WatcherOptions options, Instant start) : options_(std::move(options)), start_(start) {
  if (!options_.judge.max_gap) options_.judge.max_gap = longest_gap(options_.judge.interval);
  verdict_.armed = !options_.policy.arm;
}

Judge& Watcher::use_scope(const Scope& scope, bool judged_again, std::vector<Intent>& out) {
  const bool first = !judge_;
  const bool other = first || !same(scope.devices, scope_);
  if (other) {
    scope_ = scope.devices;
    if (first)
      judge_.emplace(options_.policy, scope_, options_.judge);
    else
      judge_->set_scope(scope_);
    firing_ = false;
  }
  if (!scope_.empty() && ((other && !first) || (judged_again && !reasons_said_.empty())))
    out.emplace_back(Say{Say::About::scope, "now watching " + labels(scope_) + " (" + scope.why + ")"});
  return *judge_;
}

void Watcher::say_about_driver(const Snapshot& snapshot, std::vector<Intent>& out) {
  const bool none = snapshot.driver.absence != Absence::none || snapshot.inventory->devices.empty();
  if (none) {
    if (no_gpu_said_ && snapshot.at - *no_gpu_said_ < options_.remind) return;
    no_gpu_said_ = snapshot.at;
    std::string why = printable(snapshot.driver.detail);
    if (why.empty())
      why = snapshot.driver.absence != Absence::none ? std::string(words(snapshot.driver.absence))
                                                     : "the driver shows none";
    out.emplace_back(Say{Say::About::no_gpu, "no GPU can be read (" + why + "); nothing is judged, still looking"});
  } else if (no_gpu_said_) {
    no_gpu_said_.reset();
    const bool watching = !not_judged_ && !scope_.empty();
    out.emplace_back(
        Say{Say::About::gpu_back, "GPUs can be read now" + (watching ? ": watching " + labels(scope_) : "")});
  }
}

void Watcher::say_about_missing(const Judge& judge, const Snapshot& snapshot, std::vector<Intent>& out) {
  if (no_gpu_said_) return;
  const bool unknown = verdict_.condition == Truth::unknown;
  if (!unknown) {
    if (missing_said_) out.emplace_back(Say{Say::About::can_judge, "the rule can be judged again"});
    missing_said_.reset();
    missing_text_.clear();
    return;
  }
  const std::vector<MissingSignal> missing = judge.missing();
  if (missing.empty() || only_first_sample(missing)) return;
  std::string text = missing_line(missing);
  const bool again = missing_said_ && snapshot.at - *missing_said_ < options_.remind;
  if (again && text == missing_text_) return;
  missing_said_ = snapshot.at;
  missing_text_ = text;
  out.emplace_back(Say{Say::About::cannot_judge, std::move(text)});
}

std::vector<Intent> Watcher::observe(const Snapshot& snapshot, const Scope& scope) {
  std::vector<Intent> out;
  const bool was_not_judged = std::exchange(not_judged_, !scope.not_judged.empty());
  if (not_judged_) {
    if (!was_not_judged) begin_anew();
    say_about_driver(snapshot, out);
    if (!delayed(snapshot.at)) say_not_judged(scope.not_judged, out);
    return out;
  }
  Judge& judge = use_scope(scope, was_not_judged, out);
  say_about_driver(snapshot, out);
  if (delayed(snapshot.at) || stopped_) return out;

  const Duration gap = last_at_ ? snapshot.at - *last_at_ : Duration::zero();
  const bool lost_streak = gap > options_.judge.max_gap && verdict_.held > Duration::zero();
  last_at_ = snapshot.at;
  const auto verdict = judge.observe(snapshot);
  if (!verdict) return out;  // time went backwards: nothing can be said of this sample
  verdict_ = *verdict;
  if (lost_streak)
    out.emplace_back(Say{Say::About::gap, "nothing was seen for " +
                                              format_duration(std::chrono::floor<std::chrono::milliseconds>(gap)) +
                                              " (suspended, or starved): the count begins anew"});
  if (options_.policy.arm && verdict_.armed && !was_armed_)
    out.emplace_back(Say{Say::About::armed, "armed: " + options_.policy.arm->text});
  was_armed_ = verdict_.armed;
  say_about_missing(judge, snapshot, out);
  // The first value of all is of the moment: nothing before it was seen, so it does not act alone.
  const bool alone = seen_++ == 0;
  const bool fires = verdict_.fires || (std::exchange(put_off_, false) && verdict_.truth == Truth::yes);
  put_off_ = alone && fires;
  if (fires && !firing_ && !time_up_ && !alone) {
    firing_ = true;
    out.emplace_back(Fire{judge.explain()});
  }
  return out;
}

void Watcher::say_not_judged(const std::string& why, std::vector<Intent>& out) {
  if (no_gpu_said_ || !reasons_said_.insert(why).second) return;
  out.emplace_back(Say{Say::About::not_judged, why});
}

void Watcher::begin_anew() {
  if (judge_) judge_->begin_anew();
  verdict_.held = {};
  verdict_.held_samples = 0;
  verdict_.condition = verdict_.truth = Truth::unknown;
  last_at_.reset();
}

void Watcher::job_stopped(bool stopped) {
  stopped_ = stopped;
  begin_anew();
}

void Watcher::acted() { firing_ = false; }

std::optional<Instant> Watcher::next_time() const {
  if (!options_.max_time || time_up_) return std::nullopt;
  return start_ + *options_.max_time;
}

std::vector<Intent> Watcher::time_is(Instant now) {
  std::vector<Intent> out;
  if (const auto next = next_time(); next && now >= *next) {
    time_up_ = true;
    out.emplace_back(TimeUp{*next - start_});
  }
  return out;
}

}  // namespace lull
