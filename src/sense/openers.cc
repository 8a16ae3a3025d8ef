#include "sense/openers.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string_view>

#include "base/process.h"
#include "base/text.h"
#include "sense/device_file.h"
#include "sense/processes.h"

namespace lull {
namespace {

constexpr std::size_t kCommSize = 15;  // the kernel keeps no more of a name

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

class Scan {
 public:
  Scan(const Root& root, const Inventory& inventory, std::span<const std::string> ignore)
      : root_(root), ignore_(ignore), files_(inventory.devices.size()) {
    openers_.holders.resize(inventory.devices.size());
    openers_.absence.resize(inventory.devices.size(), Absence::none);
    for (std::size_t i = 0; i < inventory.devices.size(); ++i) {
      const Device& device = inventory.devices[i];
      if (device.kind == DeviceKind::mig) {
        openers_.absence[i] = Absence::not_supported;
        continue;
      }
      if (device.minor) files_[i] = file_id(AT_FDCWD, (root.dev + "/nvidia" + std::to_string(*device.minor)).c_str());
      if (!files_[i]) openers_.absence[i] = device.absence != Absence::none ? device.absence : Absence::failed;
    }
  }

  Openers run() {
    const pid_t self = ::getpid();
    const bool any = std::ranges::any_of(files_, [](const auto& file) { return file.has_value(); });
    if (any)
      for (const pid_t pid : process_ids(root_))
        if (pid != self) look_at(pid);
    if (!openers_.hidden.empty())
      for (std::size_t i = 0; i < files_.size(); ++i) {
        if (openers_.absence[i] == Absence::none) openers_.absence[i] = Absence::no_permission;
        openers_.holders[i].clear();
      }
    return std::move(openers_);
  }

 private:
  void look_at(pid_t pid) {
    const std::string folder = root_.proc + "/" + std::to_string(pid);
    const std::unique_ptr<DIR, int (*)(DIR*)> files(::opendir((folder + "/fd").c_str()), ::closedir);
    if (files == nullptr) {
      if ((errno == EACCES || errno == EPERM) && has_files(folder)) openers_.hidden.push_back(pid);
      return;  // gone
    }
    std::vector<std::size_t> held;
    while (const dirent* entry = ::readdir(files.get())) {
      if (entry->d_name[0] == '.') continue;
      const auto file = file_id(::dirfd(files.get()), entry->d_name);
      if (!file) continue;
      for (std::size_t i = 0; i < files_.size(); ++i)
        if (files_[i] == file && std::ranges::find(held, i) == held.end()) held.push_back(i);
    }
    if (held.empty() || ignored(folder)) return;
    for (const std::size_t i : held) openers_.holders[i].push_back(pid);
  }

  // Threads of the kernel and those that ended hold nothing: that we may not look at them hides nothing.
  static bool has_files(const std::string& folder) {
    const auto text = read_file(folder + "/stat");
    if (!text) return text.error().errno_value != ENOENT && text.error().errno_value != ESRCH;
    const auto stat = parse_process_entry(*text);
    return !stat || (!stat->kernel_thread && !stat->ended());
  }

  bool ignored(const std::string& folder) const {
    const auto in_lists = [&](const auto& is_it) {
      return std::ranges::any_of(kIgnoredOpeners, is_it) || std::ranges::any_of(ignore_, is_it);
    };
    if (const auto program = program_of(folder)) {
      if (*program == "lull") return !plays_a_job(folder);
      return in_lists([&](std::string_view name) { return name == *program; });
    }
    auto comm = read_file(folder + "/comm");
    if (!comm) return false;
    if (comm->ends_with('\n')) comm->pop_back();
    return in_lists([&](std::string_view name) { return is_called(name, *comm, folder); });
  }

  // The base name of the executable; nothing where the kernel does not tell.
  static std::optional<std::string> program_of(const std::string& folder) {
    std::array<char, 4096> target{};
    const ssize_t length = ::readlink((folder + "/exe").c_str(), target.data(), target.size());
    if (length <= 0 || static_cast<std::size_t>(length) == target.size()) return std::nullopt;
    std::string_view path(target.data(), static_cast<std::size_t>(length));
    // Of a program that was replaced while it runs, as an update of the driver does.
    constexpr std::string_view kDeleted = " (deleted)";
    if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
    return std::string(base_name(path));
  }

  // `lull sim load` stands for somebody's program on a simulated GPU; everything else of ours only looks.
  static bool plays_a_job(const std::string& folder) {
    const auto text = read_file(folder + "/cmdline");
    if (!text) return false;
    const std::vector<std::string_view> words = split(*text, '\0');
    return words.size() > 2 && words[1] == "sim" && words[2] == "load";
  }

  // A long name is cut by the kernel; then the program's own words must confirm it.
  static bool is_called(std::string_view name, std::string_view comm, const std::string& folder) {
    if (name.size() <= kCommSize) return comm == name;
    if (comm != name.substr(0, kCommSize)) return false;
    const auto arguments = read_file(folder + "/cmdline");
    return arguments && base_name(std::string_view(*arguments).substr(0, arguments->find('\0'))) == name;
  }

  const Root& root_;
  std::span<const std::string> ignore_;
  std::vector<std::optional<FileId>> files_;
  Openers openers_;
};

}  // namespace

Openers find_openers(const Root& root, const Inventory& inventory, std::span<const std::string> ignore) {
  return Scan(root, inventory, ignore).run();
}

void count_openers(Snapshot& snapshot, const Root& root, std::span<const std::string> ignore) {
  const Openers openers = find_openers(root, *snapshot.inventory, ignore);
  for (std::size_t i = 0; i < snapshot.readings.size(); ++i) {
    if (openers.absence[i] == Absence::none)
      snapshot.readings[i].set(Metric::openers, static_cast<double>(openers.holders[i].size()));
    else
      snapshot.readings[i].miss(Metric::openers, openers.absence[i]);
  }
}

}  // namespace lull
