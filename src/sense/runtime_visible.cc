#include "sense/runtime_visible.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "base/text.h"

namespace lull {
namespace {

bool is_nvidia(const Device& device) { return device.vendor == Vendor::nvidia || device.vendor == Vendor::tegra; }

std::vector<std::size_t> places_of(const Inventory& inventory, Vendor vendor) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < inventory.devices.size(); ++i)
    if (const Device& device = inventory.devices[i];
        vendor == Vendor::nvidia ? is_nvidia(device) : device.vendor == vendor)
      places.push_back(i);
  return places;
}

bool is_set(const std::optional<std::string>& variable) { return variable && !variable->empty(); }

// ---- CUDA

Visible visible_to_cuda(const RuntimeVariables& variables, const Inventory& inventory,
                        const std::vector<std::size_t>& places) {
  Inventory own = inventory;
  std::erase_if(own.devices, [](const Device& device) { return !is_nvidia(device); });
  Visible visible = visible_devices(variables.cuda_visible_devices, variables.cuda_device_order, own);
  for (std::size_t& place : visible.devices) place = places[place];
  return visible;
}

// ---- ROCm

// Which of the list a name means; nothing: none, several, or it is no name.
std::optional<std::size_t> rocr_place(std::string_view name, const std::vector<std::string>& uuids) {
  constexpr std::size_t kShortestName = 5;
  constexpr std::size_t kLongestName = 20;
  if (name.empty()) return std::nullopt;
  if (name[0] == 'g') {
    if (name.size() < kShortestName || name.size() > kLongestName) return std::nullopt;
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < uuids.size(); ++i) {
      if (!uuids[i].starts_with(name)) continue;
      if (found) return std::nullopt;
      found = i;
    }
    return found;
  }
  char* end = nullptr;
  const std::string text(name);
  const long number = std::strtol(text.c_str(), &end, 0);
  if (*end != '\0' || number < 0 || static_cast<std::size_t>(number) >= uuids.size()) return std::nullopt;
  return static_cast<std::size_t>(number);
}

std::vector<std::size_t> by_rocr(std::string_view value, const std::vector<std::size_t>& ranked,
                                 const Inventory& inventory) {
  std::vector<std::string> uuids;
  for (const std::size_t place : ranked) uuids.push_back(lowered(inventory.devices[place].uuid));
  std::vector<std::size_t> seen;
  for (const std::string_view token : split(value, ',')) {
    const auto place = rocr_place(lowered(trim(token)), uuids);
    if (!place || std::ranges::count(seen, ranked[*place]) > 0) break;
    seen.push_back(ranked[*place]);
  }
  return seen;
}

std::vector<std::size_t> by_hip(std::string_view value, const std::vector<std::size_t>& left) {
  std::vector<std::size_t> seen;
  for (const std::string_view token : split(value, ',')) {
    const std::string text(token);
    const long number = std::strtol(text.c_str(), nullptr, 10);  // "x" is 0 there, too
    if (number < 0 || static_cast<std::size_t>(number) >= left.size()) break;
    const std::size_t place = left[static_cast<std::size_t>(number)];
    if (std::ranges::count(seen, place) == 0) seen.push_back(place);
  }
  return seen;
}

Visible visible_to_rocm(const RuntimeVariables& variables, const Inventory& inventory,
                        const std::vector<std::size_t>& places, const std::optional<std::string>& counted) {
  Visible visible;
  std::vector<std::size_t> ranked;
  for (const std::size_t place : places)
    if (inventory.devices[place].kfd_rank) ranked.push_back(place);
  std::ranges::sort(ranked, {}, [&](std::size_t place) { return *inventory.devices[place].kfd_rank; });
  for (std::size_t i = 0; i < ranked.size(); ++i)
    visible.certain = visible.certain && *inventory.devices[ranked[i]].kfd_rank == i;
  if (ranked.empty() || !visible.certain) {
    visible.devices = places;
    visible.certain = visible.order_certain = false;
    visible.note = "the order in which ROCm counts the AMD GPUs (KFD) cannot be read";
    return visible;
  }
  visible.devices =
      variables.rocr_visible_devices ? by_rocr(*variables.rocr_visible_devices, ranked, inventory) : ranked;
  if (is_set(counted)) visible.devices = by_hip(*counted, visible.devices);
  return visible;
}

// ---- Level Zero

Visible visible_to_level_zero(const RuntimeVariables& variables, const Inventory& inventory,
                              std::vector<std::size_t> places) {
  Visible visible;
  std::ranges::sort(places, {}, [&](std::size_t place) { return inventory.devices[place].pci; });
  // Of a single GPU all numbers are parts; else they mean GPUs only with these two.
  const bool whole =
      is_set(variables.ze_flat_device_hierarchy) && lowered(*variables.ze_flat_device_hierarchy) == "composite";
  const bool ordered = variables.ze_enable_pci_id_device_order == "1";
  if (places.size() == 1 || (whole && ordered)) {
    for (const std::string_view token : split(*variables.ze_affinity_mask, ',')) {
      const auto number = to_unsigned(trim(token.substr(0, token.find('.'))));
      const std::size_t index = places.size() == 1 ? 0 : number.value_or(places.size());
      if (number && index < places.size() && std::ranges::count(visible.devices, places[index]) == 0)
        visible.devices.push_back(places[index]);
    }
    return visible;
  }
  visible.devices = places;
  visible.certain = visible.order_certain = false;
  visible.note =
      "ZE_AFFINITY_MASK without ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE and ZE_ENABLE_PCI_ID_DEVICE_ORDER=1 may mean any "
      "Intel GPU";
  return visible;
}

}  // namespace

RuntimeVariables RuntimeVariables::of_this_process() {
  return {.cuda_visible_devices = environment_variable("CUDA_VISIBLE_DEVICES"),
          .cuda_device_order = environment_variable("CUDA_DEVICE_ORDER"),
          .rocr_visible_devices = environment_variable("ROCR_VISIBLE_DEVICES"),
          .hip_visible_devices = environment_variable("HIP_VISIBLE_DEVICES"),
          .ze_affinity_mask = environment_variable("ZE_AFFINITY_MASK"),
          .ze_flat_device_hierarchy = environment_variable("ZE_FLAT_DEVICE_HIERARCHY"),
          .ze_enable_pci_id_device_order = environment_variable("ZE_ENABLE_PCI_ID_DEVICE_ORDER")};
}

std::vector<VisibleOf> visible_by_variables(const RuntimeVariables& variables, const Inventory& inventory) {
  std::vector<VisibleOf> all;
  const auto nvidia = places_of(inventory, Vendor::nvidia);
  const auto amd = places_of(inventory, Vendor::amd);
  const auto intel = places_of(inventory, Vendor::intel);
  if (variables.cuda_visible_devices && !nvidia.empty()) {
    Visible visible = visible_to_cuda(variables, inventory, nvidia);
    std::string none = why_none_is_visible(visible, variables.cuda_visible_devices);
    const std::size_t count = visible.devices.size();
    all.push_back({Vendor::nvidia, "CUDA_VISIBLE_DEVICES", std::move(visible), std::move(none), count});
  }
  const auto add = [&](Vendor vendor, const char* variable, const std::string& value, Visible visible) {
    std::string none;
    if (visible.devices.empty())
      none = std::string(variable) + (trim(value).empty() || trim(value).starts_with('-')
                                          ? " hides every GPU"
                                          : " names no GPU of this machine: " + printable(value));
    const std::size_t count = visible.certain ? visible.devices.size() : split(value, ',').size();
    all.push_back({vendor, variable, std::move(visible), std::move(none), count});
  };
  if (!amd.empty()) {
    const auto& rocr = variables.rocr_visible_devices;
    const bool hip = is_set(variables.hip_visible_devices);  // empty, it counts as not set
    const bool cuda = !hip && nvidia.empty() && is_set(variables.cuda_visible_devices);
    const std::optional<std::string> counted = hip    ? variables.hip_visible_devices
                                               : cuda ? variables.cuda_visible_devices
                                                      : std::nullopt;
    const char* counting = hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
    if (rocr || counted)
      add(Vendor::amd, rocr ? "ROCR_VISIBLE_DEVICES" : counting, rocr ? *rocr : *counted,
          visible_to_rocm(variables, inventory, amd, counted));
  }
  if (!intel.empty() && is_set(variables.ze_affinity_mask))
    add(Vendor::intel, "ZE_AFFINITY_MASK", *variables.ze_affinity_mask,
        visible_to_level_zero(variables, inventory, intel));
  return all;
}

}  // namespace lull
