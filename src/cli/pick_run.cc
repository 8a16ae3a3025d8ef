// What comes of a pick: what is said of it, the command and its environment.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/fd.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/pick.h"
#include "rule/reason.h"

namespace lull {

namespace {

// Scripts use the low descriptors for themselves; ours start above.
constexpr int kFirstInherited = 100;

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

int run_failure(const std::string& name, int why) {
  complain(fmt::format("{}: {}", printable(name), std::strerror(why)));
  return why == ENOENT ? kExitNotFound : kExitCannotRun;
}

// "fits by procs, mem_used (a desktop draws on it)"
std::string fits(const Judgement& judgement) {
  std::string text = "fits";
  for (const Metric metric : judgement.judged_by)
    text += fmt::format("{}{}", text == "fits" ? " by " : ", ", info(metric).name);
  if (!judgement.note.empty()) text += fmt::format(" ({})", judgement.note);
  return text;
}

bool runnable(const std::string& path, int& why) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) why = errno;
    return false;
  }
  if (S_ISDIR(status.st_mode) || ::faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) != 0) {
    why = EACCES;
    return false;
  }
  return true;
}

}  // namespace

std::vector<std::string> debug_lines(const Picker& picker) {
  const Snapshot& snapshot = picker.snapshot();
  std::vector<std::string> lines;
  lines.push_back(fmt::format("GPU count: {}", snapshot.inventory ? snapshot.inventory->devices.size() : 0));
  for (const Picker::Choice& choice : picker.choices()) {
    const auto position = picker.position_of(choice.uuid);
    std::string text = fmt::format("Device {}: ", choice.label);
    if (position) {
      const Reading& reading = snapshot.readings[*position];
      text += fmt::format(
          "name={}, util={}, mem_util={}, processes={}: ", printable(snapshot.inventory->devices[*position].name),
          value_text(Metric::util, reading[Metric::util]), value_text(Metric::mem_util, reading[Metric::mem_util]),
          value_text(Metric::procs, reading[Metric::procs]));
    }
    lines.push_back(text + (choice.judgement.fits ? fits(choice.judgement) : choice.judgement.why));
  }
  return lines;
}

std::string visible_value(const Picked& picked, bool uuid) {
  // CUDA knows MIG devices by their UUIDs only.
  const bool mig = std::any_of(picked.devices.begin(), picked.devices.end(), [&](std::size_t position) {
    return picked.snapshot.inventory->devices[position].kind == DeviceKind::mig;
  });
  return joined(picked, [&](const Device& device) { return uuid || mig ? device.uuid : device.label(); });
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

int say_refusal(const Refusal& refusal) {
  std::string text = fmt::format("lull: {}\n", refusal.what);
  for (const std::string& reason : refusal.reasons) text += reason + '\n';
  (void)write_all(STDERR_FILENO, text);
  return refusal.kind == Refusal::usage ? kExitUsage : refusal.kind == Refusal::late ? kExitIdle : kExitFailure;
}

// Before anything is chosen or waited for: a typo should not show after three hours.
std::optional<int> cannot_run(const std::string& name) {
  int why = ENOENT;
  if (name.find('/') != std::string::npos) {
    if (runnable(name, why)) return {};
    return run_failure(name, why);
  }
  const char* path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "/bin:/usr/bin" : path;
  for (const std::string_view folder : split(folders, ':'))
    if (runnable((folder.empty() ? std::string(".") : std::string(folder)) + "/" + name, why)) return {};
  return run_failure(name, why);
}

int run_picked(Picker& picker, const Picked& picked, const PickOutput& output) {
  const PickSettings& settings = picker.settings();
  for (const auto& [name, value] : visibility(picked, output.uuid, Root::machine()))
    ::setenv(name.c_str(), value.c_str(), 1);
  if (!picked.locks.empty()) {
    ::setenv("LULL_LEASE", picked.lease.c_str(), 1);
    // Inside the job that lease is looked for where it is, also when there is a /run/lull one day.
    if (const LeasePlace place = LeasePlace::of_environment(); place.alone)
      ::setenv("LULL_LEASES", place.path.c_str(), 1);
    // Without a keeper the lease still holds for as long as the job keeps what it inherits.
    if (const auto kept = picker.hand_to_keeper(picked); !kept && !output.quiet)
      complain(kept.error().message() + "; the lease ends when the command closes it");
    for (const LockedFile& file : picked.locks)
      if (::fcntl(file.fd.get(), F_DUPFD, kFirstInherited) < 0 && ::fcntl(file.fd.get(), F_SETFD, 0) < 0)
        return complain(fmt::format("pass the lease on to the command: {}", std::strerror(errno)));
  }
  std::vector<char*> arguments;
  for (const std::string& argument : settings.command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  ::execvp(arguments[0], arguments.data());
  return run_failure(settings.command[0], errno);
}

}  // namespace lull
