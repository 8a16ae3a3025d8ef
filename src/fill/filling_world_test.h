#pragma once
// For tests of Filling: one machine with a few GPUs, seen second by second.

#include <memory>
#include <string>
#include <vector>

#include "fill/filling.h"

namespace lull {

constexpr double kGiB = 1024.0 * 1024 * 1024;

inline const GpuProcess kStranger{.pid = 4711, .start_ticks = 99, .program = "python3"};

using Kinds = std::vector<FillOrder::Kind>;
inline Kinds kinds(const std::vector<FillOrder>& orders) {
  Kinds found;
  for (const FillOrder& order : orders) found.push_back(order.kind);
  return found;
}

class FillingWorld {
 public:
  explicit FillingWorld(std::vector<FillerSettings> fillers, std::size_t gpus = 1,
                        Duration confirm = std::chrono::seconds(3)) {
    std::vector<FillUnit> units;
    for (std::size_t i = 0; i < gpus; ++i) observations.push_back(observation(i));
    for (std::size_t f = 0; f < fillers.size(); ++f) {
      FillUnit all{f, {}};
      for (const GpuObservation& one : observations) {
        if (fillers[f].per_gpu) units.push_back({f, {one.gpu}});
        all.gpus.push_back(one.gpu);
      }
      if (!fillers[f].per_gpu) units.push_back(all);
    }
    filling = std::make_unique<Filling>(std::move(fillers), std::move(units), confirm);
  }
  static GpuObservation observation(std::size_t number) {
    GpuObservation one{.gpu = {"GPU-" + std::to_string(number)}, .label = std::to_string(number)};
    one.temp = 40;
    one.mem_used = 0;
    one.mem_free = one.mem_total = 16 * kGiB;
    one.openers.emplace();
    return one;
  }
  static FillerSettings filler(bool per_gpu = true) {
    FillerSettings settings;
    settings.command = {"work"};
    settings.per_gpu = per_gpu;
    return settings;
  }

  std::vector<FillOrder> sample(Duration after = std::chrono::seconds(1)) {
    now += after;
    return filling->sampled(now, now, observations, waiters, minute);
  }
  // Samples until the decision has been made.
  std::vector<FillOrder> decision() {
    for (int i = 0; i < 40; ++i)
      if (auto orders = sample(std::chrono::milliseconds(100)); !orders.empty()) return orders;
    return {};
  }
  std::vector<FillOrder> open(std::size_t gpu, const GpuProcess& who) {
    observations[gpu].openers->push_back(who);
    return filling->opened(now, observations[gpu].gpu, who);
  }
  void close(std::size_t gpu) { observations[gpu].openers->clear(); }
  Filling::State state(std::size_t unit = 0) const { return filling->state(unit); }

  Instant now = Instant(std::chrono::hours(1));
  std::vector<GpuObservation> observations;
  std::vector<Waiter> waiters;
  int minute = 12 * 60;
  std::unique_ptr<Filling> filling;
};

}  // namespace lull
