#include "sense/visible.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/text.h"

namespace lull {
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

class Reader {
 public:
  Reader(const Inventory& inventory, std::string_view order) : inventory_(inventory) {
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
      for (const std::size_t position : found.positions) {
        if (std::ranges::find(visible_.devices, position) != visible_.devices.end()) {
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
  };

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
      if (!found.positions.empty()) found.positions = through_mig(found.positions.front());
      return found;
    }
    const std::optional<long> number = leading_number(entry);
    if (!number) return {{}, "is no device"};
    if (*number < 0 || static_cast<std::size_t>(*number) >= gpus_.size()) return {{}, "is no device of this machine"};
    numbers = true;
    return {through_mig(gpus_[static_cast<std::size_t>(*number)]), {}};
  }

  Found find_unique(std::string_view prefix, DeviceKind kind) const {
    Found found{{}, "is no device of this machine"};
    for (std::size_t i = 0; i < inventory_.devices.size(); ++i) {
      const Device& device = inventory_.devices[i];
      if (device.kind != kind || !device.uuid.starts_with(prefix)) continue;
      if (device.uuid == prefix) return {{i}, {}};
      found.positions.push_back(i);
    }
    if (found.positions.size() > 1) return {{}, "is the beginning of several devices' names"};
    return found;
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
    for (std::size_t i = parent.positions.front() + 1; i < inventory_.devices.size(); ++i) {
      const Device& device = inventory_.devices[i];
      if (device.kind != DeviceKind::mig) break;
      if (gpu_instance && compute_instance && device.gpu_instance == *gpu_instance &&
          device.compute_instance == *compute_instance)
        return {{i}, {}};
    }
    return whole;
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

std::optional<std::string_view> environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string_view>(value);
}

}  // namespace

Visible visible_devices(std::optional<std::string_view> cuda_visible_devices,
                        std::optional<std::string_view> cuda_device_order, const Inventory& inventory) {
  Reader reader(inventory, cuda_device_order.value_or("FASTEST_FIRST"));
  return cuda_visible_devices ? reader.read(*cuda_visible_devices) : reader.all();
}

Visible visible_devices(const Inventory& inventory) {
  return visible_devices(environment("CUDA_VISIBLE_DEVICES"), environment("CUDA_DEVICE_ORDER"), inventory);
}

std::string why_none_is_visible(const Visible& visible, std::optional<std::string_view> cuda_visible_devices) {
  if (!visible.devices.empty() || !cuda_visible_devices) return {};
  const std::string_view value = trim(*cuda_visible_devices);
  if (value.empty() || value.starts_with("-1")) return "CUDA_VISIBLE_DEVICES hides every GPU";
  return visible.twice ? visible.note : "CUDA_VISIBLE_DEVICES names no GPU of this machine: " + printable(value);
}

}  // namespace lull
