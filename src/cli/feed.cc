#include "cli/feed.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "sense/presence.h"

namespace lull {
namespace {

std::vector<Metric> signals_of(const Policy& policy) {
  std::vector<Metric> signals = policy.idle.signals();
  if (policy.arm)
    for (const Metric metric : policy.arm->signals()) signals.push_back(metric);
  return signals;
}

}  // namespace

bool policy_uses(const Policy& policy, std::initializer_list<Metric> metrics) {
  const auto signals = signals_of(policy);
  return std::ranges::any_of(signals, [&](Metric metric) { return std::ranges::count(metrics, metric) > 0; });
}

bool policy_uses(const Policy& policy, Of of) {
  return std::ranges::any_of(signals_of(policy), [&](Metric metric) { return info(metric).of == of; });
}

Feed::Feed(Loop& loop, FeedOptions options)
    : loop_(loop),
      options_(std::move(options)),
      scope_({.gpus = options_.gpus,
              .environment = options_.of_job ? JobEnvironment::of_this_process() : JobEnvironment{},
              .is_ours = options_.is_ours,
              .needs_gpu = policy_uses(options_.policy, Of::gpu)}),
      wants_people_(policy_uses(options_.policy, {Metric::user_idle})) {}

void Feed::start_sampler() {
  if (sampler_) return;
  SamplerOptions options;
  if (!options_.everything) {
    options.want_only(signals_of(options_.policy));
    options.memory = true;
  }
  options.tenants = options.tenants || scope_.needs_tenants();
  sampler_ = std::make_unique<LoopSampler>(loop_, std::move(options), [this](Snapshot& snapshot) { take(snapshot); });
}

std::optional<std::string> Feed::look() {
  start_sampler();
  const Snapshot& snapshot = sampler_->sample_here();
  scope_.find(snapshot);
  const DriverState& driver = snapshot.driver;
  if (driver.absence == Absence::none && !snapshot.inventory->devices.empty()) return std::nullopt;
  if (!driver.detail.empty()) return printable(driver.detail);
  return driver.absence != Absence::none ? std::string(words(driver.absence)) : "the driver shows none";
}

void Feed::begin() {
  start_sampler();
  stop();
  start_ = loop_.now();
  tick_ = 0;
  tick();
}

void Feed::stop() {
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
}

// On a grid from the beginning; what was missed (we were stopped) is missed.
void Feed::tick() {
  const auto passed = static_cast<std::uint64_t>((loop_.now() - start_) / options_.every);
  const std::uint64_t now = std::exchange(tick_, std::max(tick_, passed) + 1);
  timer_ = loop_.at(start_ + static_cast<std::int64_t>(tick_) * options_.every, [this] { tick(); });
  sampler_->request();
  if (on_tick) on_tick(std::max(now, passed));
}

void Feed::take(Snapshot& snapshot) {
  const Scope& scope = scope_.find(snapshot);
  if (wants_people_) fill_presence(snapshot, user_idle_seconds({}, loop_.clock()));
  if (on_sample) on_sample(snapshot, scope);
}

}  // namespace lull
