#include "sense/arrange.h"

#include <algorithm>

namespace lull {
namespace {

constexpr std::size_t kNobody = Row::kNobody;

// Which of the found GPUs is this one? A UUID decides wherever both have one; else the place of the one that has none.
std::size_t match(const Device& old, std::span<const FoundGpu> found, const std::vector<bool>& taken, bool by_uuid) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Device& candidate = *found[i].gpu;
    if (taken[i]) continue;
    if (by_uuid ? !old.uuid.empty() && candidate.id() == old.id()
                : (old.uuid.empty() && candidate.is(old.id())) || (candidate.uuid.empty() && old.is(candidate.id())))
      return i;
  }
  return kNobody;
}

}  // namespace

Arrangement arrange(std::span<const Device> before, std::span<const FoundGpu> found) {
  std::vector<const Device*> old;
  for (const Device& device : before)
    if (device.kind == DeviceKind::gpu) old.push_back(&device);

  std::vector<bool> taken(found.size(), false);
  std::vector<std::size_t> place(old.size(), kNobody);
  for (const bool by_uuid : {true, false})
    for (std::size_t i = 0; i < old.size(); ++i) {
      if (place[i] != kNobody) continue;
      place[i] = match(*old[i], found, taken, by_uuid);
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
  return result;
}

}  // namespace lull
