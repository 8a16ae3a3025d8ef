#include "sense/nvml/sleep.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "sense/source.h"

namespace lull {
namespace {

std::string first_line(const std::string& path) {
  const auto text = read_file(AT_FDCWD, path, 4096);
  return text ? std::string(trim(std::string_view(*text).substr(0, text->find('\n')))) : std::string();
}

// "00000000:3B:00.0" -> "0000:3b:00.0", as the kernel writes it.
std::string kernel_address(std::string_view pci) {
  const std::size_t colon = pci.find(':');
  if (colon != std::string_view::npos && colon > 4) pci.remove_prefix(colon - 4);
  return lowered(pci);
}

}  // namespace

Sleepers::Sleepers(const Root& root) : root_(root) {
  // The kernel driver's own list: a look through all that is on the PCI bus would cost a server milliseconds.
  Directory folder(root.driver + "/gpus");
  while (const char* name = folder.next()) {
    Card& card = cards_.emplace_back();
    card.address = name;
    const std::string power = root.sys + "/bus/pci/devices/" + card.address + "/power";
    // "on": its power is never taken away, there is nothing to look at.
    if (first_line(power + "/control") == "on") continue;
    auto status = open_file(power + "/runtime_status", O_RDONLY);
    if (!status) continue;
    card.status = power + "/runtime_status";
    card.open = *std::move(status);
  }
  std::ranges::sort(cards_, {}, &Card::address);
}

bool Sleepers::asleep(std::size_t card) const {
  const Card& one = cards_[card];
  if (one.status.empty()) return false;
  std::array<char, 64> text{};
  const ssize_t got = ::pread(one.open.get(), text.data(), text.size(), 0);
  struct stat file{};
  // The kernel's file stays the same; a simulated one may have been replaced.
  if (got <= 0 || ::fstat(one.open.get(), &file) != 0 || file.st_nlink == 0)
    return first_line(one.status) == "suspended";
  return trim(std::string_view(text.data(), static_cast<std::size_t>(got))) == "suspended";
}

std::int64_t Sleepers::awake_ms(std::size_t card) const {
  return awake_time(root_.sys + "/bus/pci/devices/" + cards_[card].address + "/power");
}

bool Sleepers::all_asleep() const {
  for (std::size_t i = 0; i < cards_.size(); ++i)
    if (!asleep(i)) return false;
  return !cards_.empty();
}

std::optional<std::size_t> Sleepers::find(std::string_view pci) const {
  const auto found = std::ranges::find(cards_, kernel_address(pci), &Card::address);
  return found == cards_.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - cards_.begin()));
}

Device Sleepers::device(std::size_t card) const {
  Device device;
  device.pci = "0000" + cards_[card].address;
  std::ranges::transform(device.pci, device.pci.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const auto text = read_file(root_.driver + "/gpus/" + cards_[card].address + "/information");
  for (const std::string_view line : split(text ? std::string_view(*text) : std::string_view(), '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = trim(line.substr(0, colon));
    const std::string value(trim(line.substr(colon + 1)));
    if (key == "Model") device.name = value;
    if (key == "GPU UUID" && value.find('?') == std::string::npos) device.uuid = value;
    if (key == "Device Minor")
      if (const auto minor = to_unsigned(value)) device.minor = static_cast<unsigned>(*minor);
  }
  if (device.name.empty()) device.name = "NVIDIA GPU";
  return device;
}

}  // namespace lull
