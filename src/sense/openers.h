#pragma once
// Who holds a GPU's device file open: a scan of /proc/*/fd. Our own process is left out.
//
// A process whose files we may not look at could hold any GPU: then the count is unknown, not a smaller number. Open is
// not use: programs of kIgnoredOpeners and lull's own never count. A program is known by its executable
// (/proc/PID/exe): any user may choose what a process calls itself.

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "gpu/snapshot.h"

namespace lull {

// What tells one device file from another, however it was reached: its device number, so that a container's own node of
// the same device is the same; in a simulation, where device files are plain files, file system and inode.
struct FileId {
  bool device = false;
  unsigned major = 0;
  unsigned minor = 0;
  std::uint64_t inode = 0;
  bool operator==(const FileId&) const = default;
};

// Never waits for a network file system: what is cached will do, a device node is local.
std::optional<FileId> file_id(int dir, const char* path);

// The files that a program opens to use a GPU: /dev/nvidiaN; /dev/dri/renderDN (AMD, Intel) and, for AMD's compute,
// /dev/kfd, which is one for all AMD GPUs: who opens it may use any of them, or none.
struct GpuFile {
  std::string path;  // below Root::dev
  bool shared = false;
  bool operator==(const GpuFile&) const = default;
};
// Without its own where the number of that is not known, and of a MIG device, which has none.
std::vector<GpuFile> gpu_files(const Device& device, const Root& root);

// The file of one GPU, also where its node was removed while processes hold it: then the driver's own device number
// stands for it, and in a simulation the path that /proc still tells.
class DeviceFile {
 public:
  // Of the GPUs of a vendor: /dev/nvidiaN, /dev/dri/renderDN.
  DeviceFile(const Root& root, unsigned number, Vendor vendor = Vendor::nvidia);
  // Of any GPU of that vendor whose node is gone.
  static DeviceFile any_removed(const Root& root, Vendor vendor = Vendor::nvidia);
  // /dev/kfd, /dev/dri/cardN.
  static DeviceFile kfd(const Root& root);
  static DeviceFile drm_card(const Root& root, unsigned number);

  // Whether an entry of /proc/PID/fd (by the handle of that folder) is this file.
  bool is(int folder, const char* entry) const { return is(folder, entry, file_id(folder, entry)); }
  bool is(int folder, const char* entry, const std::optional<FileId>& id) const;
  // Its holders are unknown: it has no node here, and never had one with a known name.
  bool unknown() const { return !id_ && deleted_.empty(); }
  const std::optional<FileId>& id() const { return id_; }
  bool operator==(const DeviceFile&) const = default;

 private:
  DeviceFile() = default;
  DeviceFile(const Root& root, const std::string& folder, const std::string& name, std::optional<FileId> number);
  std::optional<FileId> id_;
  std::string deleted_;  // where the node is gone: what the link of one who holds it reads
  bool any_ = false;     // that is how it begins
};

// The files of which one must be held by whoever uses the device: its own, the DRM card that belongs to it, /dev/kfd.
std::vector<DeviceFile> proof_files(const Device& device, const Root& root);
// M of the /dev/dri/cardM that is the same device as /dev/dri/renderDN.
std::optional<unsigned> drm_card_of(unsigned render_minor, const Root& root);

// Whether programs of ours may open this device (a place in the inventory), and so could be at work there: what
// access(2) says of its file, which asks file modes, the control group's list of devices and security modules, and
// opens nothing. Where its number is not known, any file that is no other device's may be its own. Of a MIG device it
// is the files of its capabilities that count. What cannot be found out is a yes.
bool open_to_us(const Inventory& inventory, std::size_t device, const Root& root = {});

struct Openers {
  std::vector<std::vector<pid_t>> holders;  // for each device of the inventory
  std::vector<Absence> absence;             // none: the list is complete (empty where it is not)
  std::vector<pid_t> hidden;                // processes whose files could not be looked at
  Instant began{};                          // all of it is newer
};

// Exact names of programs that look at GPUs, keep them ready or draw on them.
inline constexpr auto kIgnoredOpeners = std::to_array<std::string_view>({
    "nvidia-persistenced",
    "nv-hostengine",
    "dcgm-exporter",
    "nvidia-smi",
    "nvtop",
    "rocm-smi",
    "amd-smi",
    "amd_smi_exporter",
    "gpuagent",  // of AMD's device metrics exporter
    "amdgpu_top",
    "radeontop",
    "umr",
    "intel_gpu_top",
    "xpu-smi",
    "xpumd",
    "xpumcli",
    "lsgpu",
    "Xorg",
    "Xwayland",
    "gnome-shell",
    "kwin_x11",
    "kwin_wayland",
    "mutter",
    "weston",
    "sway",
    "Hyprland",
    "cosmic-comp",
    "labwc",
    "wayfire",
    "niri",
    "systemd-logind",  // keeps the display's file for the compositor
    "seatd",
    "plymouthd",
    "lull",
    "lull-sensor",
    "lull-serve",
});

// Whether this process is none that counts, by the executable that it runs. `ignore`: more exact names.
bool is_ignored_opener(pid_t pid, std::span<const std::string> ignore, const Root& root = {});
// The name of the executable that it runs; empty where the kernel does not tell.
std::string program_of(pid_t pid, const Root& root = {});
// Whether it goes by one of these names: its executable, what it calls itself (ps and fuser show it, cut to 15
// characters), or the script that an interpreter runs. Any user may choose the last two.
bool is_called(pid_t pid, std::span<const std::string> names, const Root& root = {});

// Who holds the files of these devices (places in the inventory) at this moment, by one look at every process; whoever
// is ignored does not count. A device whose number is not known, since the driver says nothing of it, may be any file
// that is no other device's. For what the driver itself does not tell of a GPU that is lost or closed to us.
struct FileHolders {
  std::vector<std::vector<pid_t>> holders;  // for each of the devices
  std::vector<pid_t> hidden;                // processes whose files could not be looked at
  Duration rest{};                          // not again within it: the look took a twentieth of that
};
FileHolders file_holders(const Inventory& inventory, std::span<const std::size_t> devices, const Root& root = {});

// Looks through the descriptors of all processes again and again, each time for a while. A pass that is not done by
// then goes on at the next look; until the first one is done the counts are unknown (Absence::looking), and later
// those of the last whole pass are good for kOldestPass. A process that slept all the time since it was looked at
// cannot have opened anything, and is not looked at again.
class OpenerScan {
 public:
  static constexpr Duration kOldestPass = std::chrono::seconds(10);

  // `ignore` are more exact names of programs whose processes do not count.
  OpenerScan(Root root, std::vector<std::string> ignore, const Clock& clock);
  OpenerScan(const OpenerScan&) = delete;
  OpenerScan& operator=(const OpenerScan&) = delete;
  ~OpenerScan();

  // A MIG device has no file of its own: not_supported. `hidden_count`: where files of some processes cannot be looked
  // at, no count is known; else it is that of those who can be looked at.
  Openers look(const Inventory& inventory, Duration budget, bool hidden_count = true);

 private:
  class Pass;
  struct Seen;
  using Seens = std::map<std::pair<pid_t, std::uint64_t>, Seen>;

  Root root_;
  std::vector<std::string> ignore_;
  const Clock& clock_;
  std::unique_ptr<Seens> seen_;
  std::unique_ptr<Pass> pass_;  // under way
  std::optional<Openers> last_;
  Instant last_began_{};
  std::vector<std::optional<FileId>> last_files_;
};

}  // namespace lull
