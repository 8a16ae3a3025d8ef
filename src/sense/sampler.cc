// The sampler as its owner sees it.
#include "sense/sampler.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>

#include "sense/sampler_core.h"

namespace lull {

void SamplerOptions::want_only(std::span<const Metric> metrics) {
  const auto any = [&](std::span<const Metric> of) {
    return std::ranges::any_of(of, [&](Metric one) { return std::ranges::find(metrics, one) != metrics.end(); });
  };
  memory = any(kMemoryMetrics);
  power = any(kPowerMetrics);
  details = any(kDetailMetrics);
  tenants = any(std::array{Metric::procs});
  pcie = any(std::array{Metric::pcie});
  openers = any(std::array{Metric::openers});
}

std::unique_ptr<Sampler> Sampler::start(SamplerOptions options) {
  return std::unique_ptr<Sampler>(new Sampler(std::make_unique<Core>(std::move(options))));
}

Sampler::Sampler(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Sampler::~Sampler() = default;

void Sampler::request(bool fresh_lists) {
  if (core_->under_way()) return;
  core_->request(fresh_lists);
  if (!core_->under_way()) (void)::eventfd_write(core_->bell.get(), 1);  // there was nobody to ask
}

int Sampler::event_fd() { return core_->bell.get(); }

Instant Sampler::look_by() const { return core_->under_way() ? core_->look_by() : Instant::max(); }

bool Sampler::take(Snapshot& into) {
  eventfd_t rings = 0;
  (void)::eventfd_read(core_->bell.get(), &rings);  // does not wait
  core_->advance();
  if (core_->taken == core_->done) return false;
  core_->hand_over(into);
  return true;
}

void Sampler::wait(Snapshot& into) { (void)wait_for(into, Duration::max()); }

bool Sampler::wait_for(Snapshot& into, Duration limit) {
  Core& core = *core_;
  const Instant began = SystemClock().now();
  for (core.advance(); core.under_way(); core.advance()) {
    const Instant at = SystemClock().now();
    if (at - began >= limit) return false;
    const Duration left = std::min(core.look_by() - at, limit - (at - began));
    const timespec pause{.tv_sec = 0, .tv_nsec = std::clamp(left, Duration::zero(), Duration(999'999'999)).count()};
    std::array<pollfd, 2> events{{{core.bell.get(), POLLIN, 0}, {core.sensor.fd(), POLLIN, 0}}};
    (void)::ppoll(events.data(), events.size(), &pause, nullptr);
    eventfd_t rings = 0;
    (void)::eventfd_read(core.bell.get(), &rings);
  }
  if (core.taken < core.done) core.hand_over(into);
  return true;
}

void Sampler::sample(Snapshot& into) {
  request();
  wait(into);
}

Snapshot Sampler::sample() {
  Snapshot snapshot;
  sample(snapshot);
  return snapshot;
}

void Sampler::let_go() { core_->let_go(); }

}  // namespace lull
