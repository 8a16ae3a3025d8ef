#include "lease/visibility.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/text.h"

namespace lull {
namespace {

using Devices = std::vector<Device>;

std::string comma_joined(const std::vector<std::string>& texts) { return fmt::format("{}", fmt::join(texts, ",")); }

// ---- NVIDIA

std::string names_of(const Devices& devices, bool uuid) {
  // CUDA knows MIG devices by their UUIDs only; a UUID that several GPUs have names none, and both ways do not mix.
  const bool mig = std::ranges::any_of(
      devices, [](const Device& device) { return device.kind == DeviceKind::mig && device.vendor == Vendor::nvidia; });
  const bool all_have_one = std::ranges::all_of(devices, &Device::has_own_uuid);
  std::vector<std::string> names;
  for (const Device& device : devices) names.push_back((uuid && all_have_one) || mig ? device.uuid : device.label());
  return comma_joined(names);
}

// ---- AMD

// As ROCm writes it: "GPU-" and 16 digits. It takes a beginning as well, so that a shorter one could mean several.
bool is_rocm_uuid(std::string_view text) {
  constexpr std::string_view kPrefix = "GPU-";
  constexpr std::size_t kDigits = 16;
  return text.starts_with(kPrefix) && text.size() == kPrefix.size() + kDigits &&
         text.find_first_not_of("0123456789abcdefABCDEF", kPrefix.size()) == std::string_view::npos;
}

// A name that means no GPU, or several, ends ROCm's list without a word: whatever is not certain is refused.
Result<> add_amd(const Devices& devices, Visibility& all) {
  std::vector<std::string> names;
  std::vector<std::string> ordinals;
  for (const Device& device : devices) {
    if (!device.kfd_rank)
      return fail(
          fmt::format("GPU {}: ROCm does not count it, or its place in ROCm's order (KFD) cannot be read: "
                      "ROCR_VISIBLE_DEVICES cannot name it",
                      device.label()));
    const bool by_uuid = !device.partition && device.has_own_uuid() && is_rocm_uuid(device.uuid);
    names.push_back(by_uuid ? device.uuid : std::to_string(*device.kfd_rank));
    ordinals.push_back(std::to_string(ordinals.size()));
  }
  all.set.emplace_back("ROCR_VISIBLE_DEVICES", comma_joined(names));
  all.set.emplace_back("HIP_VISIBLE_DEVICES", comma_joined(ordinals));
  all.removed.emplace_back("GPU_DEVICE_ORDINAL");
  return {};
}

// ---- Intel

constexpr const char* kHierarchy = "ZE_FLAT_DEVICE_HIERARCHY";
constexpr const char* kPciOrder = "ZE_ENABLE_PCI_ID_DEVICE_ORDER";
constexpr const char* kMask = "ZE_AFFINITY_MASK";

// Level Zero leaves out a GPU that it may not open.
bool level_zero_sees(const Device& device, const Root& root) {
  const std::string file = fmt::format("{}/dri/renderD{}", root.dev, *device.render_minor);
  return ::access(file.c_str(), R_OK | W_OK) == 0;
}

Result<> check_intel_environment(const EnvironmentOf& environment) {
  const auto hierarchy = environment(kHierarchy);
  if (hierarchy && !hierarchy->empty() && lowered(*hierarchy) != "composite")
    return fail(fmt::format("{}={} changes what the numbers of {} mean, and lull needs COMPOSITE: unset it", kHierarchy,
                            printable(*hierarchy), kMask));
  const auto order = environment(kPciOrder);
  if (order && !order->empty() && *order != "1")
    return fail(fmt::format("{}={} changes the order that {} counts in, and lull needs 1: unset it", kPciOrder,
                            printable(*order), kMask));
  // "level_zero:1" counts in what the mask leaves, and "opencl:…" does not go by the mask.
  constexpr const char* kSelector = "ONEAPI_DEVICE_SELECTOR";
  const auto selector = environment(kSelector);
  if (selector &&
      (selector->find_first_of("0123456789!") != std::string::npos || lowered(*selector).contains("opencl")))
    return fail(
        fmt::format("{}={} also chooses GPUs, in addition to {}: unset it", kSelector, printable(*selector), kMask));
  return {};
}

Result<> add_intel(const Devices& devices, const Inventory& inventory, const Root& root,
                   const EnvironmentOf& environment, Visibility& all) {
  TRY(check_intel_environment(environment));
  Devices seen;
  for (const Device& device : inventory.devices) {
    if (device.vendor != Vendor::intel || device.kind != DeviceKind::gpu) continue;
    if (device.pci.empty() || !device.render_minor)
      return fail(
          fmt::format("GPU {}: its PCI address or render node cannot be read, so the order of {} is "
                      "unknown",
                      device.label(), kMask));
    if (level_zero_sees(device, root)) seen.push_back(device);
  }
  std::ranges::sort(seen, {}, &Device::pci);  // digits of the same length
  std::vector<std::string> numbers;
  for (const Device& device : devices) {
    const auto place = std::ranges::find(seen, device.pci, &Device::pci);
    if (place == seen.end())
      return fail(fmt::format("GPU {}: /dev/dri/renderD{} may not be opened, so your programs would not see it",
                              device.label(), device.render_minor.value_or(0)));
    numbers.push_back(std::to_string(place - seen.begin()));
  }
  all.set.emplace_back(kHierarchy, "COMPOSITE");
  all.set.emplace_back(kPciOrder, "1");
  all.set.emplace_back(kMask, comma_joined(numbers));
  return {};
}

}  // namespace

std::string visible_value(const Inventory& inventory, std::span<const std::size_t> devices, bool uuid) {
  Devices all;
  for (const std::size_t position : devices) all.push_back(inventory.devices[position]);
  return names_of(all, uuid);
}

Result<Visibility> visibility(const Inventory& inventory, std::span<const std::size_t> devices, bool uuid,
                              const Root& root, const EnvironmentOf& environment) {
  Devices nvidia;
  Devices amd;
  Devices intel;
  for (const std::size_t position : devices) {
    const Device& device = inventory.devices[position];
    (device.vendor == Vendor::amd ? amd : device.vendor == Vendor::intel ? intel : nvidia).push_back(device);
  }
  const auto is_there = [&](Vendor vendor) { return !inventory.places_of(vendor).empty(); };
  Visibility all;
  if (!nvidia.empty()) {
    all.set.emplace_back("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    all.set.emplace_back("CUDA_VISIBLE_DEVICES", names_of(nvidia, uuid));
  } else if (is_there(Vendor::nvidia)) {
    all.set.emplace_back("CUDA_VISIBLE_DEVICES", "");
  } else if (!amd.empty()) {
    all.removed.emplace_back("CUDA_VISIBLE_DEVICES");
  }
  if (!amd.empty())
    TRY(add_amd(amd, all));
  else if (is_there(Vendor::amd))
    all.set.emplace_back("ROCR_VISIBLE_DEVICES", "");
  if (!intel.empty()) TRY(add_intel(intel, inventory, root, environment, all));
  return all;
}

}  // namespace lull
