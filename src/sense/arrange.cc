#include "sense/arrange.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>

namespace lull {
namespace {

constexpr std::size_t kNobody = Row::kNobody;

enum class By : std::uint8_t { uuid_and_place, uuid, place };

bool same_place(const Device& a, const Device& b) {
  return a.pci.empty() || b.pci.empty() ? a.index == b.index : a.pci == b.pci;
}

// How many GPUs have it.
std::size_t count_of(const std::string& uuid, std::span<const Device* const> gpus) {
  return static_cast<std::size_t>(std::ranges::count(gpus, uuid, &Device::uuid));
}

bool matches(const Device& old, const Device& now, By by) {
  const bool one_uuid = !old.uuid.empty() && now.uuid == old.uuid;
  switch (by) {
    case By::uuid_and_place: return one_uuid && same_place(old, now);
    case By::uuid: return one_uuid;
    case By::place: break;
  }
  return (old.uuid.empty() && now.is(old.id())) || (now.uuid.empty() && old.is(now.id()));
}

// A UUID that several have does not tell them apart.
void mark_shared_uuids(std::vector<Device>& devices) {
  std::map<std::string_view, std::size_t> count;
  for (const Device& device : devices)
    if (!device.uuid.empty()) ++count[device.uuid];
  for (Device& device : devices) device.shares_uuid = !device.uuid.empty() && count[device.uuid] > 1;
}

}  // namespace

Arrangement arrange(std::span<const Device> before, std::span<const FoundGpu> found) {
  std::vector<const Device*> old;
  for (const Device& device : before)
    if (device.kind == DeviceKind::gpu) old.push_back(&device);

  std::vector<const Device*> now;
  for (const FoundGpu& one : found) now.push_back(one.gpu);

  // A UUID decides wherever both have one, and where it is of one card only; else the place.
  std::vector<bool> taken(found.size(), false);
  std::vector<std::size_t> place(old.size(), kNobody);
  for (const By by : {By::uuid_and_place, By::uuid, By::place})
    for (std::size_t i = 0; i < old.size(); ++i) {
      if (place[i] != kNobody) continue;
      if (by == By::uuid && (count_of(old[i]->uuid, old) > 1 || count_of(old[i]->uuid, now) > 1)) continue;
      for (std::size_t gpu = 0; gpu < now.size() && place[i] == kNobody; ++gpu)
        if (!taken[gpu] && matches(*old[i], *now[gpu], by)) place[i] = gpu;
      if (place[i] != kNobody) taken[place[i]] = true;
    }

  Arrangement result;
  const auto add = [&](std::size_t gpu, const Device* known) {
    result.devices.push_back(*found[gpu].gpu);
    result.rows.push_back({gpu, kNobody});
    // Found by its index only, and it cannot be read now: it is still the one that we knew.
    if (known != nullptr && result.devices.back().uuid.empty() && !known->uuid.empty()) result.devices.back() = *known;
    for (std::size_t part = 0; part < found[gpu].parts.size(); ++part) {
      result.devices.push_back(*found[gpu].parts[part]);
      result.rows.push_back({gpu, part});
    }
  };
  for (std::size_t i = 0; i < old.size(); ++i) {
    if (place[i] != kNobody) {
      add(place[i], old[i]);
      continue;
    }
    result.devices.push_back(*old[i]);
    result.devices.back().absence = Absence::lost;
    result.rows.push_back({});
  }
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!taken[i]) add(i, nullptr);
  mark_shared_uuids(result.devices);
  return result;
}

Topology topology_of(std::span<const Row> rows, const Topology& found) {
  Topology topology(rows.size());
  for (std::size_t a = 0; a < rows.size(); ++a)
    for (std::size_t b = a + 1; b < rows.size(); ++b)
      topology.set(a, b,
                   rows[a].gpu == rows[b].gpu ? Join{0, Nearness::shared} : found.between(rows[a].gpu, rows[b].gpu));
  return topology;
}

}  // namespace lull
