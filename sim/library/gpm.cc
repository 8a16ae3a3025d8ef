// GPM, the chip's own counters: a value is of the time between two samples. Hopper and newer have it.
#include <cmath>
#include <limits>
#include <new>

#include "sim/library/client.h"

namespace lull::nvml {

// What a sample holds: sums up to its moment.
struct GpmSampleBuffer {
  std::uint64_t magic = 0;
  std::int32_t gpu = -1;                // -1: nothing yet
  std::uint32_t instance = sim::kNone;  // of the card as a whole
  std::int64_t boot_ns = 0;
  sim::Ledger sums;
};

}  // namespace lull::nvml

using namespace lull::sim;
namespace nvml = lull::nvml;

namespace {

constexpr std::uint64_t kSampleMagic = 0x6c756c6c67706d31;
constexpr std::int64_t kShortestNs = 100'000'000;
constexpr double kNonsense[] = {std::numeric_limits<double>::quiet_NaN(), -1, 37100,
                                std::numeric_limits<double>::infinity()};

bool is_sample(nvml::GpmSample sample) { return sample != nullptr && sample->magic == kSampleMagic; }

bool has_counters(const Look& look) {
  return look.card.architecture >= nvml::kArchHopper && !look.has(kUnifiedMemory) && !look.has(kIdentityOnly);
}

struct Counter {
  unsigned id;
  Metric metric;
  const char* short_name;
  const char* long_name;
};
constexpr Counter kCounterTable[] = {{nvml::kGpmGraphicsUtil, Metric::util, "GRACT", "Graphics engine activity"},
                                     {nvml::kGpmSmUtil, Metric::sm, "SMACT", "SM activity"},
                                     {nvml::kGpmTensorUtil, Metric::tensor, "TENSO", "Tensor core activity"},
                                     {nvml::kGpmDramUtil, Metric::dram, "DRAMA", "DRAM activity"}};

double sum_of(const Ledger& sums, Metric metric) {
  for (unsigned i = 0; i < kCounters; ++i)
    if (kCounterMetrics[i] == metric) return sums.counters[i];
  return sums.util;
}

// Between samples that are too near each other: a value that is not valid, and does not look so.
double percent_of(const Look& look, const Counter& counter, const nvml::GpmSampleBuffer& first,
                  const nvml::GpmSampleBuffer& second) {
  if (second.boot_ns - first.boot_ns < kShortestNs) return 0;
  const double sum = first.instance == kNone ? sum_of(second.sums, counter.metric) - sum_of(first.sums, counter.metric)
                                             : instance_integral(look.scene, look.gpu, first.instance, counter.metric,
                                                                 first.sums.at_ns, second.sums.at_ns);
  const double percent = sum / (static_cast<double>(second.sums.at_ns - first.sums.at_ns) * 1e-9);
  return percent < 0 ? 0 : percent > 100 ? 100 : percent;
}

Return fill(const Look& look, std::uint32_t instance, nvml::GpmSample sample) {
  if (!is_sample(sample)) return Return::invalid_argument;
  sample->gpu = static_cast<std::int32_t>(look.gpu);
  sample->instance = instance;
  sample->boot_ns = boot_time(look.scene.state, look.now);
  sample->sums = ledger_at(look.scene, look.gpu, look.now);
  return Return::success;
}

void put(const Look& look, const nvml::GpmSampleBuffer& first, const nvml::GpmSampleBuffer& second, unsigned place,
         nvml::GpmMetric& metric) {
  for (const Counter& counter : kCounterTable) {
    if (counter.id != metric.id) continue;
    const bool there = first.instance != kNone || std::isfinite(look.value(counter.metric));
    metric.result = there ? Return::success : Return::not_supported;
    metric.value = look.garbage ? kNonsense[place % std::size(kNonsense)] : percent_of(look, counter, first, second);
    metric.short_name = counter.short_name;
    metric.long_name = counter.long_name;
    metric.unit = "%";
    return;
  }
  metric.result = Return::not_supported;
}

}  // namespace

LULL_EXPORT Return nvmlGpmQueryDeviceSupport(Device device, nvml::GpmSupport* support) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (support == nullptr) return Return::invalid_argument;
    if (support->version != nvml::kGpmVersion) return Return::argument_version_mismatch;
    support->supported = has_counters(look) ? 1 : 0;
    return Return::success;
  });
}

LULL_EXPORT Return nvmlGpmSampleAlloc(nvml::GpmSample* sample) {
  const Return result =
      on_driver(__func__, [&](const Look&) { return sample == nullptr ? Return::invalid_argument : Return::success; });
  if (result != Return::success) return result;
  *sample = new (std::nothrow) nvml::GpmSampleBuffer{.magic = kSampleMagic, .sums = {}};
  return *sample == nullptr ? Return::memory : Return::success;
}

LULL_EXPORT Return nvmlGpmSampleFree(nvml::GpmSample sample) {
  const bool known = is_sample(sample);
  const Return result =
      on_driver(__func__, [&](const Look&) { return known ? Return::success : Return::invalid_argument; });
  if (!known) return result;
  sample->magic = 0;
  delete sample;
  return result;
}

LULL_EXPORT Return nvmlGpmSampleGet(Device device, nvml::GpmSample sample) {
  return on_gpu(__func__, device, [&](const Look& look) {
    return !has_counters(look) || look.mig() ? Return::not_supported : fill(look, kNone, sample);
  });
}

LULL_EXPORT Return nvmlGpmMigSampleGet(Device device, unsigned gpu_instance, nvml::GpmSample sample) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (!has_counters(look) || !look.mig()) return Return::not_supported;
    for (unsigned i = 0; i < look.card.mig_count; ++i)
      if (look.card.mig[i].gpu_instance == gpu_instance) return fill(look, gpu_instance, sample);
    return Return::invalid_argument;
  });
}

LULL_EXPORT Return nvmlGpmMetricsGet(nvml::GpmMetricsGet* get) {
  const bool sound = get != nullptr && is_sample(get->first) && is_sample(get->second) && get->second->gpu >= 0 &&
                     get->first->gpu == get->second->gpu && get->first->instance == get->second->instance &&
                     get->count > 0 && get->count <= nvml::kGpmMetrics;
  if (!sound) return on_driver(__func__, [](const Look&) { return Return::invalid_argument; });
  return on_target(__func__, Target{get->second->gpu, kNone}, false, [&](const Look& look) {
    if (get->version != nvml::kGpmVersion) return Return::argument_version_mismatch;
    for (unsigned i = 0; i < get->count; ++i) put(look, *get->first, *get->second, i, get->metrics[i]);
    return Return::success;
  });
}
