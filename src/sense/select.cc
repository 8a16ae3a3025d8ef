#include "sense/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/text.h"

namespace lull {
namespace {

using Positions = std::vector<std::size_t>;

// "0 to 3", "none", "0, 2 and 5": what would have been right.
std::string present(const Inventory& inventory) {
  std::vector<unsigned> indices;
  for (const Device& device : inventory.devices)
    if (device.kind == DeviceKind::gpu) indices.push_back(device.index);
  if (indices.empty()) return "no GPU was found";
  if (indices.size() == 1) return fmt::format("there is only GPU {}", indices[0]);
  if (indices.back() - indices.front() + 1 == indices.size())
    return fmt::format("there are GPUs {} to {}", indices.front(), indices.back());
  std::string text = "there are GPUs ";
  for (std::size_t i = 0; i < indices.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == indices.size() ? " and " : ", ", indices[i]);
  return text;
}

std::optional<std::size_t> gpu_at(std::uint64_t index, const Inventory& inventory) {
  for (std::size_t i = 0; i < inventory.devices.size(); ++i)
    if (inventory.devices[i].kind == DeviceKind::gpu && inventory.devices[i].index == index) return i;
  return std::nullopt;
}

Result<std::size_t> by_index(std::uint64_t index, const Inventory& inventory) {
  if (const auto found = gpu_at(index, inventory)) return *found;
  return fail(fmt::format("no GPU {}: {}", index, present(inventory)));
}

Result<std::size_t> by_mig_index(std::uint64_t index, std::uint64_t part, const Inventory& inventory) {
  const std::size_t gpu = TRY(by_index(index, inventory));
  std::size_t parts = 0;
  for (std::size_t i = gpu + 1; i < inventory.devices.size() && inventory.devices[i].kind == DeviceKind::mig; ++i) {
    if (inventory.devices[i].mig_index == part) return i;
    ++parts;
  }
  if (parts == 0) return fail(fmt::format("no MIG device {}:{}: GPU {} has no MIG devices", index, part, index));
  return fail(fmt::format("no MIG device {}:{}: GPU {} has {} of them", index, part, index, parts));
}

Result<std::size_t> by_uuid(std::string_view prefix, const Inventory& inventory) {
  Positions found;
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) {
    const std::string& uuid = inventory.devices[i].uuid;
    if (uuid == prefix) return i;
    if (uuid.starts_with(prefix)) found.push_back(i);
  }
  if (found.size() == 1) return found[0];
  if (found.empty()) return fail(fmt::format("no GPU has the UUID '{}'; 'lull status' shows them", printable(prefix)));
  return fail(fmt::format("'{}' is the beginning of {} UUIDs (GPUs {} and {}): give more of it", printable(prefix),
                          found.size(), inventory.devices[found[0]].label(), inventory.devices[found[1]].label()));
}

// Domains are written with 4 or 8 digits, letters in either case: compare from the right.
std::optional<std::size_t> by_pci(std::string_view text, const Inventory& inventory) {
  const auto lower = [](std::string_view address) {
    std::string out(address);
    for (char& c : out) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
    return out;
  };
  const std::string wanted = lower(text);
  if (wanted.size() < 7 || wanted.find('.') == std::string::npos) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) {
    const Device& device = inventory.devices[i];
    if (device.kind != DeviceKind::gpu || !lower(device.pci).ends_with(wanted)) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

Result<Positions> range(std::uint64_t first, std::uint64_t last, std::string_view entry, const Inventory& inventory) {
  if (first > last) return fail(fmt::format("'{}' runs backwards: write {}-{}", printable(entry), last, first));
  Positions positions;
  for (std::uint64_t index = first; index <= last; ++index) positions.push_back(TRY(by_index(index, inventory)));
  return positions;
}

Result<Positions> select_one(std::string_view entry, const Inventory& inventory) {
  if (entry == "all") {
    Positions positions;
    for (std::size_t i = 0; i < inventory.devices.size(); ++i)
      if (inventory.devices[i].kind == DeviceKind::gpu) positions.push_back(i);
    return positions;
  }
  if (const auto index = to_unsigned(entry)) return Positions{TRY(by_index(*index, inventory))};
  if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) return Positions{TRY(by_uuid(entry, inventory))};
  if (const auto pci = by_pci(entry, inventory)) return Positions{*pci};
  if (const std::size_t colon = entry.find(':'); colon != std::string_view::npos) {
    const auto index = to_unsigned(entry.substr(0, colon));
    const auto part = to_unsigned(entry.substr(colon + 1));
    if (index && part) return Positions{TRY(by_mig_index(*index, *part, inventory))};
  }
  if (const std::size_t dash = entry.find('-'); dash != std::string_view::npos) {
    const auto first = to_unsigned(entry.substr(0, dash));
    const auto last = to_unsigned(entry.substr(dash + 1));
    if (first && last) return range(*first, *last, entry, inventory);
  }
  return fail(
      fmt::format("'{}' names no GPU: an index (0), a range (0-3), a UUID or its beginning (GPU-8932f937) "
                  "or a MIG device (3:1) would",
                  printable(entry)));
}

}  // namespace

Result<std::vector<std::size_t>> select_devices(std::string_view spec, const Inventory& inventory) {
  Positions chosen;
  for (const std::string_view raw : split(spec, ',')) {
    const std::string_view entry = trim(raw);
    if (entry.empty()) {
      if (trim(spec).empty()) return fail("an empty list names no GPU: 0,2 or a UUID would");
      return fail(fmt::format("'{}' has an empty entry: write it as 0,2", printable(spec)));
    }
    for (const std::size_t position : TRY(select_one(entry, inventory)))
      if (std::ranges::find(chosen, position) == chosen.end()) chosen.push_back(position);
  }
  return chosen;
}

std::optional<std::vector<unsigned>> named_by_number(std::string_view spec, unsigned most) {
  std::vector<unsigned> numbers;
  for (const std::string_view raw : split(spec, ',')) {
    const std::string_view entry = trim(raw);
    const std::size_t cut = entry.find_first_of(":-");
    const auto first = to_unsigned(entry.substr(0, cut));
    const auto second = cut == std::string_view::npos ? first : to_unsigned(entry.substr(cut + 1));
    if (!first || !second) return std::nullopt;
    const bool part = cut != std::string_view::npos && entry[cut] == ':';
    const std::uint64_t last = part ? *first : *second;
    for (std::uint64_t number = *first; number <= last && number < most; ++number)
      numbers.push_back(static_cast<unsigned>(number));
  }
  return numbers;
}

}  // namespace lull
