#include "sense/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/fd.h"
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
    const Device& device = inventory.devices[i];
    if (device.uuid == prefix && !device.shares_uuid) return i;
    if (device.uuid.starts_with(prefix)) found.push_back(i);
  }
  if (found.size() == 1) return found[0];
  if (found.empty()) return fail(fmt::format("no GPU has the UUID '{}'; 'lull status' shows them", printable(prefix)));
  const Device& first = inventory.devices[found[0]];
  if (std::ranges::all_of(found, [&](std::size_t i) { return inventory.devices[i].uuid == first.uuid; })) {
    const Device& second = inventory.devices[found[1]];
    return fail(fmt::format("{} GPUs have the UUID '{}' (GPU {} at {}, GPU {} at {}): name one by index or PCI address",
                            found.size(), printable(first.uuid), first.label(), first.pci, second.label(), second.pci));
  }
  return fail(fmt::format("'{}' is the beginning of {} UUIDs (GPUs {} and {}): give more of it", printable(prefix),
                          found.size(), inventory.devices[found[0]].label(), inventory.devices[found[1]].label()));
}

// Domains are written with 4 or 8 digits, letters in either case: compare from the right.
std::optional<std::size_t> by_pci(std::string_view text, const Inventory& inventory) {
  const std::string wanted = lowered(text);
  if (wanted.size() < 7 || wanted.find('.') == std::string::npos) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) {
    const Device& device = inventory.devices[i];
    if (device.kind != DeviceKind::gpu || !lowered(device.pci).ends_with(wanted)) continue;
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

// "amd:0", "intel:0-1", "amd:all".
std::optional<std::pair<Vendor, std::string_view>> vendor_of(std::string_view entry) {
  for (const Vendor vendor : {Vendor::nvidia, Vendor::amd, Vendor::intel, Vendor::tegra})
    if (const std::string_view name = to_string(vendor);
        entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == ':')
      return std::pair(vendor, entry.substr(name.size() + 1));
  return std::nullopt;
}

Result<Positions> of_vendor(Vendor vendor, std::string_view numbers, const Inventory& inventory) {
  const bool all = numbers == "all";
  const std::size_t dash = numbers.find('-');
  const auto first = to_unsigned(numbers.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : to_unsigned(numbers.substr(dash + 1));
  const std::string_view name = to_string(vendor);
  if (!all && (!first || !last || *first > *last))
    return fail(fmt::format("'{0}:{1}' names no GPU: {0}:0, {0}:0-3 or {0}:all would", name, printable(numbers)));
  Positions positions;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) {
    const Device& device = inventory.devices[i];
    if (device.kind != DeviceKind::gpu || device.vendor != vendor) continue;
    ++count;
    if (all || (device.vendor_index >= *first && device.vendor_index <= *last)) positions.push_back(i);
  }
  if (!positions.empty() && (all || positions.size() == *last - *first + 1)) return positions;
  if (count == 0) return fail(fmt::format("no GPU {}:{}: there is none of this vendor", name, printable(numbers)));
  return fail(fmt::format("no GPU {}:{}: there {} {} of this vendor, counted from 0", name, printable(numbers),
                          count == 1 ? "is" : "are", count));
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
  if (const auto named = vendor_of(entry)) return of_vendor(named->first, named->second, inventory);
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
      fmt::format("'{}' names no GPU: an index (0), a range (0-3), one of a vendor's (amd:0), a UUID or its beginning "
                  "(GPU-8932f937), a PCI address or a MIG device (3:1) would",
                  printable(entry)));
}

bool is_set(const std::optional<std::string>& variable) { return variable && !variable->empty(); }

// ---- CUDA

Visible visible_to_cuda(const RuntimeVariables& variables, const Inventory& inventory,
                        const std::vector<std::size_t>& places) {
  Inventory own = inventory;
  std::erase_if(own.devices, [](const Device& device) { return device.runtime() != Vendor::nvidia; });
  Visible visible = visible_devices(variables.cuda_visible_devices, variables.cuda_device_order, own);
  for (std::size_t& place : visible.devices) place = places[place];
  return visible;
}

// ---- ROCm

// Which of the list a name means; nothing: none, several, or it is not a name.
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
  if (variables.rocr_visible_devices && trim(*variables.rocr_visible_devices).empty()) return visible;  // in any order
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

namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

// A number as strtol reads it: blanks, a sign, digits, and whatever follows is ignored.
std::optional<long> leading_number(std::string_view text) {
  text = trim(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || !digit(text.front())) return std::nullopt;
  long number = 0;
  for (const char c : text) {
    if (!digit(c)) break;
    number = std::min(number * 10 + (c - '0'), 1'000'000'000L);
  }
  return negative ? -number : number;
}

class VisibleReader {
 public:
  VisibleReader(const Inventory& inventory, std::string_view order) : inventory_(inventory) {
    for (std::size_t i = 0; i < inventory.devices.size(); ++i)
      if (inventory.devices[i].kind == DeviceKind::gpu) gpus_.push_back(i);
    // CUDA knows exactly one other word; anything else is its default.
    if (order != "PCI_BUS_ID") fastest_first();
  }

  Visible all() {
    for (const std::size_t gpu : gpus_) add_gpu(gpu);
    return finish(true);
  }

  Visible read(std::string_view text) {
    bool numbers = false;
    for (const std::string_view raw : split(text, ',')) {
      const std::string_view entry = trim(raw);
      const Found found = find(entry, numbers);
      if (found.positions.empty()) {
        if (!entry.empty() && entry != "-1")
          note("'" + printable(entry) + "' " + std::string(found.why) + " and hides what follows");
        break;
      }
      if (found.shared) shares_uuid(entry);
      for (const std::size_t position : found.positions) {
        if (std::ranges::find(visible_.devices, position) != visible_.devices.end()) {
          if (found.shared) continue;
          visible_.devices.clear();
          visible_.twice = true;
          note("'" + printable(entry) + "' names a device for the second time, which hides all of them");
          return finish(numbers);
        }
        visible_.devices.push_back(position);
      }
    }
    return finish(numbers);
  }

 private:
  struct Found {
    std::vector<std::size_t> positions;
    std::string_view why;
    bool shared = false;  // all of them have this UUID, and CUDA sees one or the other
  };

  // Which one CUDA takes cannot be known from here: all are given.
  void shares_uuid(std::string_view entry) {
    visible_.certain = visible_.order_certain = false;
    note("'" + printable(entry) + "' is the UUID of several GPUs, so which one CUDA takes is not known");
  }

  void note(const std::string& text) {
    if (!visible_.note.empty()) visible_.note += "; ";
    visible_.note += "CUDA_VISIBLE_DEVICES: " + text;
  }

  void fastest_first() {
    const auto& devices = inventory_.devices;
    const auto differs = [&](std::size_t gpu) { return devices[gpu].name != devices[gpus_.front()].name; };
    const auto nameless = [&](std::size_t gpu) { return devices[gpu].name.empty(); };
    if (gpus_.size() < 2 || (std::ranges::none_of(gpus_, differs) && std::ranges::none_of(gpus_, nameless))) return;
    guessed_ = true;
    std::ranges::stable_sort(gpus_, [&](std::size_t a, std::size_t b) {
      return devices[a].speed.value_or(0) > devices[b].speed.value_or(0);
    });
  }

  // A GPU split into MIG devices is never seen itself. CUDA takes the first of them (newer ones
  // may take more): all are given, since a watcher that looks at too much does less harm.
  std::vector<std::size_t> through_mig(std::size_t gpu) {
    std::vector<std::size_t> parts;
    for (std::size_t i = gpu + 1; i < inventory_.devices.size() && inventory_.devices[i].kind == DeviceKind::mig; ++i)
      parts.push_back(i);
    if (parts.empty()) return {gpu};
    if (parts.size() > 1) {
      visible_.certain = false;
      split_ = true;
    }
    return parts;
  }

  void add_gpu(std::size_t gpu) {
    for (const std::size_t position : through_mig(gpu)) visible_.devices.push_back(position);
  }

  Found find(std::string_view entry, bool& numbers) {
    if (entry.starts_with("MIG-")) return find_mig(entry);
    if (entry.starts_with("GPU-")) {
      Found found = find_unique(entry, DeviceKind::gpu);
      std::vector<std::size_t> parts;
      for (const std::size_t gpu : found.positions)
        for (const std::size_t part : through_mig(gpu)) parts.push_back(part);
      found.positions = std::move(parts);
      return found;
    }
    const std::optional<long> number = leading_number(entry);
    if (!number) return {{}, "is not a device"};
    if (*number < 0 || static_cast<std::size_t>(*number) >= gpus_.size())
      return {{}, "is not a device of this machine"};
    numbers = true;
    return {through_mig(gpus_[static_cast<std::size_t>(*number)]), {}};
  }

  Found find_unique(std::string_view prefix, DeviceKind kind) const {
    Found found{{}, "is not a device of this machine"};
    for (std::size_t i = 0; i < inventory_.devices.size(); ++i) {
      const Device& device = inventory_.devices[i];
      if (device.kind != kind || !device.uuid.starts_with(prefix)) continue;
      if (device.uuid == prefix && !device.shares_uuid) return {{i}, {}};
      found.positions.push_back(i);
    }
    if (found.positions.size() < 2) return found;
    found.shared = std::ranges::all_of(found.positions, [&](std::size_t i) {
      return inventory_.devices[i].uuid == inventory_.devices[found.positions[0]].uuid;
    });
    return found.shared ? found : Found{{}, "is the beginning of several devices' names"};
  }

  // MIG-<uuid>, or the older MIG-GPU-<uuid of the parent>/<GPU instance>/<compute instance>.
  Found find_mig(std::string_view entry) const {
    if (!entry.starts_with("MIG-GPU-")) return find_unique(entry, DeviceKind::mig);
    Found whole = find_unique(entry, DeviceKind::mig);  // old drivers name the device itself so
    if (!whole.positions.empty()) return whole;
    const std::vector<std::string_view> parts = split(entry.substr(4), '/');
    const Found parent = find_unique(parts[0], DeviceKind::gpu);
    if (parts.size() != 3 || parent.positions.empty()) return whole;
    const auto gpu_instance = to_unsigned(parts[1]);
    const auto compute_instance = to_unsigned(parts[2]);
    Found found{{}, whole.why, parent.shared};
    for (const std::size_t gpu : parent.positions)
      for (std::size_t i = gpu + 1; i < inventory_.devices.size(); ++i) {
        const Device& device = inventory_.devices[i];
        if (device.kind != DeviceKind::mig) break;
        if (gpu_instance && compute_instance && device.gpu_instance == *gpu_instance &&
            device.compute_instance == *compute_instance)
          found.positions.push_back(i);
      }
    return found;
  }

  Visible finish(bool numbers) {
    const std::size_t reachable = gpus_.size();
    if (guessed_ && numbers && !visible_.devices.empty()) {
      visible_.order_certain = false;
      if (visible_.devices.size() < reachable) visible_.certain = false;
      note(
          "CUDA counts the fastest GPU first and these differ, so which index is which is a guess; "
          "set CUDA_DEVICE_ORDER=PCI_BUS_ID or name GPUs by UUID");
    }
    if (split_) note("of a GPU split by MIG CUDA may use the first part only");
    const auto lost = [&](std::size_t i) { return inventory_.devices[i].absence != Absence::none; };
    if (numbers && !visible_.devices.empty() && std::ranges::any_of(gpus_, lost)) {
      visible_.order_certain = false;
      visible_.certain = visible_.certain && visible_.devices.size() >= reachable;
      note("a GPU that cannot be read may be counted differently by CUDA");
    }
    return std::move(visible_);
  }

  const Inventory& inventory_;
  std::vector<std::size_t> gpus_;  // in CUDA's order
  Visible visible_;
  bool guessed_ = false;
  bool split_ = false;
};

}  // namespace

Visible visible_devices(std::optional<std::string_view> cuda_visible_devices,
                        std::optional<std::string_view> cuda_device_order, const Inventory& inventory) {
  VisibleReader reader(inventory, cuda_device_order.value_or("FASTEST_FIRST"));
  return cuda_visible_devices ? reader.read(*cuda_visible_devices) : reader.all();
}

std::string why_none_is_visible(const Visible& visible, std::optional<std::string_view> cuda_visible_devices) {
  if (!visible.devices.empty() || !cuda_visible_devices) return {};
  const std::string_view value = trim(*cuda_visible_devices);
  if (value.empty() || value.starts_with("-1")) return "CUDA_VISIBLE_DEVICES hides every GPU";
  return visible.twice ? visible.note : "CUDA_VISIBLE_DEVICES names no GPU of this machine: " + printable(value);
}

// ---- by the variables of runtimes

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
  const auto nvidia = inventory.places_of(Vendor::nvidia);
  const auto amd = inventory.places_of(Vendor::amd);
  const auto intel = inventory.places_of(Vendor::intel);
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

VisibleHere visible_here(const RuntimeVariables& variables, const Inventory& inventory) {
  const std::vector<VisibleOf> all = visible_by_variables(variables, inventory);
  if (all.empty()) return {visible_devices(std::nullopt, variables.cuda_device_order, inventory).devices};
  VisibleHere here;
  for (const VisibleOf& one : all) {
    here.devices.insert(here.devices.end(), one.visible.devices.begin(), one.visible.devices.end());
    if (!one.none.empty()) here.none += (here.none.empty() ? "" : ", ") + one.none;
  }
  if (!here.devices.empty()) here.none.clear();
  return here;
}

}  // namespace lull
