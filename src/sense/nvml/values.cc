// The values of a GPU at one moment, and the looks between two of them.
#include <algorithm>
#include <utility>

#include "sense/nvml/gpu.h"
#include "sense/nvml/reader.h"

namespace lull {
namespace {

using nvml::Return;

constexpr Duration kLookAgain = std::chrono::seconds(5);   // a GPU that fails may have a new handle
constexpr Duration kLookAtMig = std::chrono::seconds(10);  // MIG devices come and go while we run
constexpr Duration kSeldom = std::chrono::seconds(5);      // a display, the MIG mode

// As new, but the room that its list had is kept.
void clear(Reading& reading) {
  static const Reading kBlank;
  std::vector<Tenant> room;
  if (reading.tenants) room = std::move(*reading.tenants);
  room.clear();
  reading = kBlank;
  reading.tenants.emplace(std::move(room));
}

// Not one value: the device as a whole does not work. What was read earlier does not count.
Absence nothing_read(const Reading& reading, bool tenants_from_memory) {
  Absence why = Absence::none;
  for (const MetricInfo& row : kMetricTable) {
    const Absence absence = reading.why_missing(row.metric);
    if (row.of != Of::gpu || absence == Absence::not_asked) continue;
    if (row.metric == Metric::procs && tenants_from_memory) continue;
    if (absence == Absence::none || absence == Absence::not_covered) return Absence::none;
    if (why == Absence::none || why == Absence::not_supported) why = absence;
  }
  return why;
}

void close(Reading& reading, const Reader& reader, const Needs& needs) {
  if (reader.fatal() != Return::success) return reading.miss_all(absence_of(reader.fatal()));
  if (!needs.tenants) reading.tenants.reset();
  reading.device_absence = nothing_read(reading, reader.from_memory());
  if (reading.device_absence == Absence::none || !reader.from_memory()) return;
  reading.miss(Metric::procs, reading.device_absence);
  reading.tenants.reset();
}

// What seldom changes: whether a screen is drawn on, and whether somebody cut the GPU into MIG devices or put
// it together again, which is a reason to look anew who it is.
void look_seldom(const NvmlCalls& calls, NvmlGpu& gpu, Instant now) {
  if (gpu.seldom_at && now >= *gpu.seldom_at && now - *gpu.seldom_at < kSeldom) return;
  gpu.seldom_at = now;
  unsigned active = 0;
  const Return display = ask(calls.DeviceGetDisplayActive, gpu.handle, &active);
  gpu.display_active = display == Return::success ? std::optional(active == nvml::kFeatureEnabled) : std::nullopt;
  if (!gpu.mig_mode) return;  // it cannot be cut
  unsigned current = 0;
  unsigned pending = 0;
  const Return mode = ask(calls.DeviceGetMigMode, gpu.handle, &current, &pending);
  if (mode == Return::success && (current == nvml::kMigEnabled) != *gpu.mig_mode) gpu.identified = false;
}

// It is gone, or so it seems: whatever it did meanwhile, nobody measured.
void lost_sight(NvmlMemory& memory) {
  memory.util.restart();
  memory.power.restart();
  memory.list.at.reset();
}

bool must_identify(const NvmlGpu& gpu, Instant now) {
  return !gpu.identified || (gpu.mig_mode.value_or(false) && now - gpu.identified_at > kLookAtMig);
}

}  // namespace

void sample_gpu(const NvmlCalls& calls, NvmlGpu& gpu, const Needs& needs, Instant now, NvmlRoom& room, Answer& answer) {
  answer.driver_gone = false;
  Return code = Return::success;
  if (gpu.identified) look_seldom(calls, gpu, now);
  if (must_identify(gpu, now)) {
    code = identify(calls, gpu, now);
    if (code == Return::success) look_seldom(calls, gpu, now);
  }
  answer.parts.resize(gpu.parts.size());
  if (code != Return::success) {
    answer.driver_gone = driver_gone(code);
    lost_sight(gpu.memory);
    answer.gpu.miss_all(absence_of(code));
    for (Reading& part : answer.parts) part.miss_all(absence_of(code));
    return;
  }
  clear(answer.gpu);
  gpu.memory.power_wanted = needs.power;
  Reader reader(calls, gpu.handle, gpu.device, gpu.memory, needs, now, room, answer.gpu);
  reader.gpu(gpu.display_active.value_or(false));
  close(answer.gpu, reader, needs);
  if (answer.gpu.device_absence != Absence::none) lost_sight(gpu.memory);
  answer.gpu.mig_mode = gpu.mig_mode;
  answer.driver_gone = driver_gone(reader.fatal());
  for (std::size_t i = 0; i < gpu.parts.size(); ++i) {
    NvmlPart& mig = gpu.parts[i];
    clear(answer.parts[i]);
    Reader part(calls, mig.handle, mig.device, mig.memory, needs, now, room, answer.parts[i]);
    part.part();
    close(answer.parts[i], part, needs);
    if (part.invalid()) gpu.identified = false;  // the MIG devices are not what they were: look again
    if (gpu.attached_at) answer.parts[i].attached_for = now - *gpu.attached_at;
  }
  if (reader.fatal() == Return::success) {
    answer.gpu.display_active = gpu.display_active;
    if (gpu.attached_at) answer.gpu.attached_for = now - *gpu.attached_at;
  }
  // A GPU that does not answer may do so under a new handle, after it was reset.
  if (answer.gpu.device_absence != Absence::none && now - gpu.identified_at > kLookAgain) gpu.identified = false;
}

void look_gpu(const NvmlCalls& calls, NvmlGpu& gpu, Instant now, NvmlRoom& room) {
  if (!gpu.identified) return;
  static const Needs kNothing{};
  Reading unused;
  Reader(calls, gpu.handle, gpu.device, gpu.memory, kNothing, now, room, unused).look();
}

Duration look_within(const NvmlGpu& gpu) {
  if (!gpu.identified) return kNoLook;
  const Duration power = gpu.memory.power_wanted ? gpu.memory.power.look_within() : kNoLook;
  return std::min(gpu.memory.util.look_within(), power);
}

}  // namespace lull
