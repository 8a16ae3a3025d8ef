#include "sense/sampler_options.h"

#include <algorithm>
#include <array>

namespace lull {

namespace {
bool nvidia_alone = false;
}
void see_nvidia_only() { nvidia_alone = true; }
bool sees_nvidia_only() { return nvidia_alone; }

void SamplerOptions::want_only(std::span<const Metric> metrics) {
  const auto any = [&](std::span<const Metric> of) {
    return std::ranges::any_of(of, [&](Metric one) { return std::ranges::find(metrics, one) != metrics.end(); });
  };
  memory = any(kMemoryMetrics);
  power = any(kPowerMetrics);
  details = any(kDetailMetrics);
  shares = any(std::array{Metric::job_util});
  counters = any(kCounterMetrics);
  processes = all_clients = any(std::array{Metric::procs});
  pcie = any(std::array{Metric::pcie});
  openers = any(std::array{Metric::openers});
  learned = std::ranges::any_of(metrics, is_learned);
  power = power || learned;
}

Needs SamplerOptions::needs() const {
  Needs needs = *static_cast<const Needs*>(this);
  needs.processes = processes || process_info || shares;
  needs.all_lists = all_lists || process_info || shares;
  return needs;
}

}  // namespace lull
