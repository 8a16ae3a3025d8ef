#include "session/feed.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "engine/subject_state.h"
#include "lease/choice.h"
#include "rule/fitting.h"
#include "sense/openers.h"
#include "sense/presence.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kSlowAttach = 500ms;
constexpr unsigned kSlowSamples = 3;
constexpr Duration kLongestLists = 5s;
constexpr Duration kShortestLists = 1s;            // a list costs a driver milliseconds under its one lock
constexpr Duration kShortestConfirmation = 200ms;  // for CPU time and bytes of a job, of which no driver tells
constexpr Duration kSampleIsThere = 10ms;          // after a sample of the driver's has ended
constexpr Duration kShortestRetry = 50ms;

std::vector<Metric> signals_of(const Policy& policy) {
  std::vector<Metric> signals = policy.idle.signals();
  if (policy.arm)
    for (const Metric metric : policy.arm->signals()) signals.push_back(metric);
  return signals;
}

// The lists of processes say which GPUs are the job's. Between two of them a job may begin to work elsewhere, so a
// short rule wants them more often than one of half an hour: this often. A recording of everything wants them with
// every sample: one that came later would lack the rows of the job's first seconds, and of a short job all of them.
Duration lists_wanted_every(const FeedOptions& options) {
  const std::optional<Span> span = options.policy.idle.span();
  if (!span) return Duration::zero();
  const Duration whole = span->samples > 0 ? options.every * static_cast<std::int64_t>(span->samples) : span->time;
  return std::min(options.everything ? options.every : kLongestLists, std::min(kLongestLists, whole / 10));
}

}  // namespace

bool policy_uses(const Policy& policy, std::initializer_list<Metric> metrics) {
  const auto signals = signals_of(policy);
  return std::ranges::any_of(signals, [&](Metric metric) { return std::ranges::count(metrics, metric) > 0; });
}

bool policy_uses(const Policy& policy, Of of) {
  return std::ranges::any_of(signals_of(policy), [&](Metric metric) { return info(metric).of == of; });
}

namespace {
bool confirms(const FeedOptions& options, Metric metric) {
  return policy_uses(options.policy, {metric}) || std::ranges::count(options.more_signals, metric) > 0;
}
}  // namespace

Feed::Feed(World& world, FeedOptions options)
    : world_(world),
      options_(std::move(options)),
      scope_({.gpus = options_.gpus,
              .option = options_.gpus_option,
              .absent_left_out = options_.absent_left_out,
              .environment = options_.of_job ? JobEnvironment::of_this_process() : JobEnvironment{},
              .is_ours = options_.is_ours,
              .job_is_new = options_.job_is_new,
              .without_integrated = options_.without_integrated,
              .all_without_context = options_.all_without_context,
              .stricter_with_more = options_.policy.idle.stricter_with_more_gpus(),
              .needs_gpu = policy_uses(options_.policy, Of::gpu) || policy_uses(options_.policy, {Metric::job_util}),
              .users = world.users()}),
      wants_people_(policy_uses(options_.policy, {Metric::user_idle})),
      confirms_shares_(confirms(options_, Metric::job_util)),
      confirms_openers_(confirms(options_, Metric::openers)),
      ticker_(world.loop(), options_.every, [this](std::uint64_t tick) {
        in_turn_ = true;
        if (own_) own_->ask();
        ask(fresh_lists_next_ || confirming());
        if (on_tick) on_tick(tick);
      }) {
  make_own_signals();
}

// A rule's signal without a source is unknown for that reason.
void Feed::make_own_signals() {
  std::vector<Metric> used = signals_of(options_.policy);
  used.insert(used.end(), options_.more_signals.begin(), options_.more_signals.end());
  if (options_.warn_by)
    for (const Metric metric : options_.warn_by->signals()) used.push_back(metric);
  for (const Metric metric : used)
    if (is_own(metric)) machine_.miss(metric, Absence::no_source);
  std::vector<SignalSource> sources = options_.all_signals ? options_.signals : sources_of(options_.signals, used);
  if (sources.empty()) return;
  own_.emplace(world_, sources, options_.every);
  own_->on_note = [this](const std::string& text) {
    if (on_note) on_note("signal", text);
  };
  own_->on_read = [this] {
    if (confirming()) ask_to_confirm();
  };
}

// A sample is asked for once, by whoever comes first.
void Feed::ask(bool fresh_lists) {
  if (!std::exchange(under_way_, true)) asked_lists_ = fresh_lists;
  sampler_->request(fresh_lists);
}

void Feed::start_sampler() {
  if (sampler_) return;
  SamplerOptions options;
  std::vector<Metric> signals = signals_of(options_.policy);
  signals.insert(signals.end(), options_.more_signals.begin(), options_.more_signals.end());
  if (options_.warn_by)
    for (const Metric metric : options_.warn_by->signals()) signals.push_back(metric);
  options.want_only(signals);
  options.memory = true;
  // But what is dear to read: that is read for a rule alone.
  if (options_.everything) options.power = options.details = options.processes = options.learned = true;
  wants_shares_ = options.shares = options.shares || (options_.everything && scope_.needs_processes());
  options.processes = options.processes || scope_.needs_processes() || options_.holders;
  options.all_lists = scope_.needs_processes() || options_.holders;  // who draws works there, too
  options.lists_every = std::max(kShortestLists, lists_wanted_every(options_));
  sampler_ = world_.sampler(std::move(options), [this](const Snapshot& snapshot) { take(snapshot); });
}

std::optional<std::string> Feed::look(Duration limit) {
  start_sampler();
  under_way_ = !sampler_->sample_here(limit);
  if (under_way_) return std::nullopt;
  const Snapshot& snapshot = sampler_->newest();
  scope_.find(snapshot);
  const DriverState& driver = snapshot.driver;
  if (driver.absence == Absence::none && !snapshot.inventory->devices.empty()) return std::nullopt;
  return driver.detail.empty() && driver.absence == Absence::none ? "the driver shows none" : printable(driver.text());
}

std::optional<SessionEnd> refuse_without_gpus(Feed& feed, Sink& sink, const WithoutGpus& asked) {
  if (!asked.require_gpu && !asked.named) return std::nullopt;
  const auto none = feed.look(asked.require_gpu ? Duration::max() : asked.limit);
  if (none && asked.require_gpu) {
    sink.note(Level::important, "no-gpu", "no GPU can be read: " + *none);
    return SessionEnd{asked.status};
  }
  if (feed.trouble().empty()) return std::nullopt;
  if (asked.complains) return SessionEnd{kExitUsage, feed.trouble()};
  sink.note(Level::important, "gpus", feed.trouble());
  return SessionEnd{kExitUsage};
}

void Feed::begin() {
  start_sampler();
  began_ = world_.clock().now();
  ticker_.begin();
}

void Feed::stop() {
  began_.reset();
  ticker_.stop();
  waiting_.clear();
  confirmed_.clear();
  confirm_timer_.cancel();
}

// The first sample of all comes a little late, since GPUs have to be attached, and a rule of two intervals would then
// take three: the grid goes by it. One that is late by a whole interval has had others on the old grid.
void Feed::follow_first(Instant at) {
  if (began_ && world_.clock().now() < *began_ + options_.every) ticker_.follow(at);
  began_.reset();
}

bool Feed::is_fresh() const { return age() <= longest_gap(options_.every); }

std::string persistence_hint(const Snapshot& snapshot) {
  if (snapshot.attach_took < kSlowAttach) return {};
  return "waking the GPUs took " +
         format_duration(std::chrono::round<std::chrono::milliseconds>(snapshot.attach_took)) +
         "; with persistence mode (nvidia-smi -pm 1, or nvidia-persistenced) they are always ready";
}

std::vector<SamplingCosts::Note> SamplingCosts::see(const Snapshot& snapshot, Duration every, Duration handled) {
  std::vector<Note> notes;
  if (std::string hint = persistence_hint(snapshot); !hint.empty() && !std::exchange(attach_said_, true))
    notes.push_back({"attach", std::move(hint)});
  slow_ = (snapshot.took + handled) * 10 > every ? slow_ + 1 : 0;
  if (slow_ < kSlowSamples || std::exchange(slow_said_, true)) return notes;
  if (handled > snapshot.took) {
    notes.push_back({"slow", "looking at the processes on the GPUs takes " +
                                 format_duration(std::chrono::round<std::chrono::milliseconds>(handled)) +
                                 " of every " + format_duration(every) + "; a longer --every costs less"});
    return notes;
  }
  notes.push_back({"slow", "reading the GPUs takes " +
                               format_duration(std::chrono::round<std::chrono::milliseconds>(snapshot.took)) +
                               " of every " + format_duration(every) +
                               ", and keeps the driver from others; a longer --every costs less"});
  return notes;
}

std::string desktop_note(const Rule& idle, const Snapshot& snapshot, const Scope& scope) {
  std::string gpu;
  for (std::size_t i = 0; i < snapshot.readings.size() && gpu.empty(); ++i) {
    const Device& device = snapshot.inventory->devices[i];
    const bool in_scope = std::ranges::find(scope.devices, device.id(), &Device::id) != scope.devices.end();
    if (in_scope && snapshot.readings[i].display_active == true) gpu = device.label();
  }
  if (gpu.empty() || std::ranges::any_of(idle.nodes, [](const Node& one) { return std::holds_alternative<Not>(one); }))
    return {};
  Rule wider = idle;
  std::string narrow;
  for (Node& node : wider.nodes) {
    auto* it = std::get_if<Comparison>(&node);
    if (it == nullptr || (it->metric != Metric::util && it->metric != Metric::mem_util) || it->limit >= kDrawing ||
        (it->compare != Compare::below && it->compare != Compare::at_most))
      continue;
    if (narrow.empty()) narrow = to_text(*it);
    it->limit = kDrawing;
  }
  if (narrow.empty()) return {};
  return "GPU " + gpu + " drives a display, and what it draws counts as work: `" + narrow +
         "` may never hold there; --idle '" + to_text(wider) +
         "' allows for it, but then a job that works less than that counts as idle";
}

std::string not_confirmed_text(const Snapshot& snapshot, const std::vector<Device>& scope, const Rule& rule,
                               bool covered) {
  const std::string said = "not confirmed: ";
  const auto scan_is_old = [&](const Device& device) {
    const Reading* reading = snapshot.find(device.id());
    return reading != nullptr && reading->openers_span > Duration::zero();
  };
  if (!covered && std::ranges::any_of(scope, scan_is_old)) return said + "the scan of all processes takes too long";
  if (!covered) return said + "the driver has given no new sample within " + format_duration(kLongestConfirmation);
  for (const Metric metric : rule.signals()) {
    const bool percent = metric == Metric::util || metric == Metric::mem_util;
    if (!percent && metric != Metric::power) continue;
    double most = -1;
    std::string busiest;
    for (const Device& device : scope) {
      const Reading* reading = snapshot.find(device.id());
      const Band newest = reading != nullptr ? reading->newest(metric) : Band{};
      if (std::isnan(newest.high)) return said + "GPU " + device.label() + " cannot be read now";
      if (newest.high <= most) continue;
      most = newest.high;
      busiest = device.label();
    }
    if (busiest.empty()) continue;
    return said + "GPU " + busiest + " at " + std::to_string(std::lround(most)) + (percent ? " % now" : " W now");
  }
  return said + "the rule does not hold now";
}

void Feed::take(const Snapshot& snapshot) {
  under_way_ = false;
  newest_lists_ = std::exchange(asked_lists_, false);
  newest_in_turn_ = std::exchange(in_turn_, false);
  if (began_) follow_first(snapshot.at);
  for (const SamplingCosts::Note& note : costs_.see(snapshot, options_.every, handled_))
    if (on_note) on_note(note.event, note.text);
  const Instant begun = world_.clock().now();
  const Scope& scope = scope_.find(snapshot, confirming());
  scope_now_ = &scope;
  if (std::string text = desktop_said_ ? "" : desktop_note(options_.policy.idle, snapshot, scope); !text.empty()) {
    desktop_said_ = true;
    if (on_note) on_note("desktop", text);
  }
  log_card_notes(scope);
  if (wants_people_) add_presence(machine_, world_.user_idle());
  if (own_) own_->add_to(machine_);
  if (on_sample) on_sample(snapshot, scope);
  handled_ = world_.clock().now() - begun;
  call_back();
}

void Feed::log_scope_trouble(Sink& sink) {
  if (trouble() != std::exchange(logged_trouble_, trouble()) && !trouble().empty())
    sink.note(Level::warning, "scope", trouble());
  for (const std::string& text : scope_.take_notes()) sink.note(Level::warning, "scope", text);
}

void Feed::log_card_notes(const Scope& scope) {
  for (const Rule* rule : {&options_.policy.idle, options_.warn_by ? &*options_.warn_by : nullptr}) {
    if (rule == nullptr) continue;
    for (const std::string& text : card_notes(*rule, scope.devices))
      if (card_notes_.insert(text).second && on_note) on_note("card", text);
  }
}

void Feed::call_back() {
  if (waiting_.empty()) return;
  const Instant now = world_.clock().now();
  for (Waiting& one : std::exchange(waiting_, {})) {
    one.covered = has_covered(one);
    one.asked = now;
    const bool over = one.covered || (one.covering && now >= one.from + longest_confirmation());
    (over ? confirmed_ : waiting_).push_back(std::move(one));
  }
  ask_to_confirm();
  while (!confirmed_.empty()) {  // which one of them may stop
    const Waiting one = std::move(confirmed_.front());
    confirmed_.erase(confirmed_.begin());
    covers_ = one.covered;
    one.then();
  }
}

void Feed::may_fire_next(bool may) { fresh_lists_next_ = may && options_.every >= kShortestLists; }

void Feed::confirm(std::function<void()> then, bool covering) {
  const Instant now = world_.clock().now();
  waiting_.push_back({.then = std::move(then), .from = now, .asked = now, .covering = covering});
  covers_ = false;
  if (own_) own_->ask_since(now);
  ask_to_confirm();
}

// A source of the user's own has its timeout, and so has a scan of all processes.
Duration Feed::longest_confirmation() const {
  return kLongestConfirmation + (own_ ? own_->longest_timeout() : Duration::zero()) +
         (confirms_openers_ ? OpenerScan::kOldestPass : Duration::zero());
}

template <class Do>
void Feed::each_reading(Do act) const {
  if (scope_now_ == nullptr) return;
  for (const Device& device : scope_now_->devices)
    if (const Reading* reading = newest().find(device.id());
        reading && reading->device_absence == Absence::none && !reading->asleep)
      act(*reading);
}

// What could not be read at all is unknown to the rule: there is nothing to wait for.
bool Feed::has_covered(const Waiting& one) const {
  const Instant asked = newest().asked;
  if (asked < one.from || !newest_lists_ || (own_ && !own_->read_since(one.from))) return false;
  if (!one.covering) return true;
  bool all = asked - kShortestConfirmation >= one.from;
  each_reading([&](const Reading& reading) {
    all = all && asked - std::max(reading.newest_span, reading.counters_span) >= one.from;
    // Of many processes a sample may tell what the last whole scan has found.
    if (confirms_openers_) all = all && asked - reading.openers_span >= one.from;
    if (!wants_shares_ || !confirms_shares_) return;
    // The driver's samples of processes may come later than those of the GPU.
    all = all && (reading.shares_absence != Absence::none || asked - reading.shares_span >= one.from);
  });
  return all;
}

// When the newest data will be of the time from then on: with the end of the first sample of the driver's that begins
// after it. Drivers tell of a sample some time after its end, so it may be asked for more than once.
Instant Feed::due(const Waiting& one) const {
  Instant at = one.from;
  Duration retry{};
  if (one.covering) {
    at += kShortestConfirmation;
    retry = kShortestRetry;
    each_reading([&](const Reading& reading) {
      const Duration period = reading.newest_period;
      if (period <= Duration::zero()) {
        at = std::max(at, one.from + reading.newest_span);
        return;
      }
      const Instant began = newest().at - reading.newest_span;
      const Duration left = std::max(Duration::zero(), one.from - began);
      at = std::max(at, began + ((left + period - Duration(1)) / period + 1) * period + kSampleIsThere);
      retry = std::max(retry, period / 2);
    });
  }
  // When the sources have answered, that is asked again (on_read).
  if (own_ && !own_->read_since(one.from)) at = std::max(at, one.from + longest_confirmation());
  return one.asked > one.from ? std::max(at, one.asked + retry) : at;
}

void Feed::ask_to_confirm() {
  confirm_timer_.cancel();
  if (waiting_.empty()) return;
  Instant at = Instant::max();
  for (const Waiting& one : waiting_) at = std::min(at, due(one));
  if (at <= world_.clock().now()) return ask(true);
  confirm_timer_.at(at, [this] { ask(true); });
}

}  // namespace lull
