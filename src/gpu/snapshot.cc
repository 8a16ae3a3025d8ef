#include "gpu/snapshot.h"

#include <fmt/format.h>

namespace lull {

std::string_view words(Absence absence) {
  switch (absence) {
    case Absence::none: return "known";
    case Absence::not_asked: return "not asked for";
    case Absence::not_supported: return "not supported";
    case Absence::lost: return "GPU is lost";
    case Absence::reset_required: return "GPU requires reset; lull has let go of it";
    case Absence::no_permission: return "no permission";
    case Absence::no_symbol: return "not in this driver's library";
    case Absence::no_driver: return "driver is not loaded";
    case Absence::mismatch: return "driver and library versions differ";
    case Absence::no_answer: return "driver does not answer";
    case Absence::no_baseline: return "needs two samples";
    case Absence::failed: return "unknown error";
    case Absence::not_covered: return "not measured for the whole interval";
    case Absence::implausible: return "not a plausible value";
    case Absence::asleep: return "asleep";
    case Absence::hidden: return "the driver does not show processes of other containers";
    case Absence::looking: return "still looking through the open files of all processes";
    case Absence::waking: return "still waking up";
    case Absence::no_beat: return "the program has not called beat()";
  }
  return "unknown error";
}

namespace {

std::string part_of(const Device& device) {
  return device.kind == DeviceKind::mig ? fmt::format("/{}", device.mig_index) : "";
}
DeviceId by_address(const Device& device) { return {"pci:" + device.pci + part_of(device)}; }
DeviceId by_index(const Device& device) { return {fmt::format("index:{}{}", device.index, part_of(device))}; }

}  // namespace

DeviceId Device::id() const {
  if (!uuid.empty()) return {uuid};
  return pci.empty() ? by_index(*this) : by_address(*this);
}

bool Device::is(const DeviceId& other) const {
  return id() == other || by_address(*this) == other || by_index(*this) == other;
}

std::optional<std::size_t> Inventory::place_of(const DeviceId& id) const {
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (devices[i].is(id)) return i;
  return std::nullopt;
}

const Reading* Snapshot::find(const DeviceId& id) const {
  const auto place = inventory->place_of(id);
  return place && *place < readings.size() ? &readings[*place] : nullptr;
}

std::string Device::label() const {
  return kind == DeviceKind::mig ? fmt::format("{}:{}", index, mig_index) : fmt::format("{}", index);
}

std::string ProcessInfo::command_line() const {
  if (arguments.empty()) return "[" + name + "]";
  std::string line;
  for (const std::string& argument : arguments) {
    if (!line.empty()) line += ' ';
    line += argument;
  }
  return line;
}

void Reading::miss_all(Absence why) {
  for (const MetricInfo& row : kMetricTable)
    if (row.of == Of::gpu) miss(row.metric, why);
  device_absence = why;
  unanswered = {};
  tenants.reset();
  energy_joules.reset();
  mem_clock_mhz.reset();
  throttle_reasons.reset();
  mig_mode.reset();
  display_active.reset();
  attached_for.reset();
  asleep = memory_estimated = processes_hidden = false;
}

}  // namespace lull
