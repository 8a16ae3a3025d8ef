#include "sense/nvml/gpm_meter.h"

#include <algorithm>
#include <utility>

#include "gpu/metric.h"

namespace lull {
namespace {

using nvml::Return;

struct Wanted {
  unsigned id;
  GpmValue GpmTake::* value;
};
constexpr std::array kWanted = {Wanted{nvml::kGpmGraphicsUtil, &GpmTake::graphics},
                                Wanted{nvml::kGpmSmUtil, &GpmTake::sm}, Wanted{nvml::kGpmTensorUtil, &GpmTake::tensor},
                                Wanted{nvml::kGpmDramUtil, &GpmTake::dram}};

GpmTake without(Return code, Absence why) {
  GpmTake take;
  for (const Wanted& wanted : kWanted) (take.*wanted.value).absence = why;
  take.code = code;
  return take;
}

// Each has an answer of its own. What the driver did not fill in is not an answer.
GpmValue value_of(const nvml::GpmMetric& metric, unsigned id) {
  if (metric.result != Return::success) return {kUnknown, absence_of(metric.result)};
  if (metric.id != id || !plausible(Metric::util, metric.value)) return {kUnknown, Absence::implausible};
  return {metric.value, Absence::none};
}

}  // namespace

Return GpmMeter::look_for_support(const NvmlCalls& calls, nvml::Device card) {
  if (!supported_) {
    nvml::GpmSupport support{nvml::kGpmVersion, 0};
    const Return code = ask(calls.GpmQueryDeviceSupport, card, &support);
    if (code != Return::success && code != Return::not_supported) return code;  // asked again the next time
    supported_ = code == Return::success && support.supported != 0;
  }
  return *supported_ ? Return::success : Return::not_supported;
}

Return GpmMeter::fill_spare(const NvmlCalls& calls, const Target& target, const Clock& clock) {
  if (const Return code = look_for_support(calls, target.card); code != Return::success) return code;
  spare_.taken.reset();
  if (spare_.buffer == nullptr) {
    nvml::GpmSample made = nullptr;
    const Return code = ask(calls.GpmSampleAlloc, &made);
    if (code != Return::success) return code;
    if (made == nullptr) return Return::unknown;
    spare_.buffer = {made, GpmFree{calls.GpmSampleFree}};
  }
  const Instant begin = clock.now();
  const Return code = target.instance ? ask(calls.GpmMigSampleGet, target.card, *target.instance, spare_.buffer.get())
                                      : ask(calls.GpmSampleGet, target.card, spare_.buffer.get());
  if (code == Return::success) spare_.taken = {begin, clock.now()};
  return code;
}

bool GpmMeter::begin(const NvmlCalls& calls, const Target& target, const Clock& clock) {
  if (std::exchange(begun_, true) || fill_spare(calls, target, clock) != Return::success) return false;
  std::swap(newer_, spare_);
  return waited_ = true;
}

GpmTake GpmMeter::take(const NvmlCalls& calls, const Target& target, const Clock& clock) {
  const bool first = std::exchange(waited_, false);
  if (const Return code = fill_spare(calls, target, clock); code != Return::success) {
    restart();  // else the next one would be of this time as well, and might be mostly of this
    return without(code, absence_of(code));
  }
  const Instant now = spare_.taken->begin;
  const bool apart = newer_.taken && now - newer_.taken->end >= kShortest;
  const GpmBuffer& from = apart ? newer_ : older_;
  if (!from.taken) {
    if (!newer_.taken) std::swap(newer_, spare_);
    return without(Return::success, Absence::no_baseline);
  }
  nvml::GpmMetricsGet get{};
  get.version = nvml::kGpmVersion;
  get.count = kWanted.size();
  get.first = from.buffer.get();
  get.second = spare_.buffer.get();
  for (std::size_t i = 0; i < kWanted.size(); ++i) {
    get.metrics[i].id = kWanted[i].id;
    get.metrics[i].result = Return::unknown;
    get.metrics[i].value = kUnknown;
  }
  const Return code = ask(calls.GpmMetricsGet, &get);
  GpmTake take = without(code, absence_of(code));
  if (code == Return::success) {
    for (std::size_t i = 0; i < kWanted.size(); ++i) take.*kWanted[i].value = value_of(get.metrics[i], kWanted[i].id);
    take.span = spare_.taken->end - from.taken->begin;
    take.first = first;
  }
  if (apart) {
    std::swap(older_, spare_);
    std::swap(older_, newer_);
  }
  return take;
}

}  // namespace lull
