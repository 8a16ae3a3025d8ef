#include "lease/visibility.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <functional>
#include <set>

#include "base/text.h"

namespace lull {
namespace {

// Who made the card, from its place on the bus; NVML's own GPUs where that cannot be seen.
enum class Maker : std::uint8_t { nvidia, amd, intel };

Maker maker_of(const Device& device, const Root& root) {
  if (device.pci.size() < 12) return Maker::nvidia;
  // NVML writes the domain with 8 digits, sysfs with 4, and in small letters.
  std::string address = device.pci.substr(device.pci.size() - 12);
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto vendor = read_file(root.sys + "/bus/pci/devices/" + address + "/vendor");
  if (!vendor) return Maker::nvidia;
  if (trim(*vendor) == "0x1002") return Maker::amd;
  if (trim(*vendor) == "0x8086") return Maker::intel;
  return Maker::nvidia;
}

std::string joined(const Picked& picked, const std::function<std::string(const Device&)>& text) {
  std::string result;
  for (const std::size_t position : picked.devices)
    result += (result.empty() ? "" : ",") + text(picked.snapshot.inventory->devices[position]);
  return result;
}

}  // namespace

std::string visible_value(const Picked& picked, bool uuid) {
  const auto any = [&](const auto& condition) {
    return std::ranges::any_of(
        picked.devices, [&](std::size_t position) { return condition(picked.snapshot.inventory->devices[position]); });
  };
  // CUDA knows MIG devices by their UUIDs only; a UUID that several GPUs have names none, and both ways do not mix.
  const bool mig = any([](const Device& device) { return device.kind == DeviceKind::mig; });
  const bool shared = any([](const Device& device) { return device.shares_uuid; });
  return joined(picked, [&](const Device& device) { return (uuid && !shared) || mig ? device.uuid : device.label(); });
}

std::vector<std::pair<std::string, std::string>> visibility(const Picked& picked, bool uuid, const Root& root) {
  std::set<Maker> makers;
  for (const std::size_t position : picked.devices)
    makers.insert(maker_of(picked.snapshot.inventory->devices[position], root));
  const std::string value = visible_value(picked, uuid);
  std::vector<std::pair<std::string, std::string>> variables;
  if (makers.contains(Maker::nvidia)) {
    variables.emplace_back("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    variables.emplace_back("CUDA_VISIBLE_DEVICES", value);
  }
  if (makers.contains(Maker::amd)) {
    // ROCr hides first and HIP counts what is left, so only one of the two may say it.
    variables.emplace_back(uuid ? "ROCR_VISIBLE_DEVICES" : "HIP_VISIBLE_DEVICES", value);
  }
  if (makers.contains(Maker::intel)) {
    variables.emplace_back("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE");
    variables.emplace_back("ZE_AFFINITY_MASK", joined(picked, [](const Device& device) { return device.label(); }));
  }
  return variables;
}

}  // namespace lull
