#pragma once
// Detects an open of a GPU's device file when it happens. Uses the best way that works here:
//
//   cgroup-device program  a few lines of BPF that the kernel runs on every open of a device: sees every process and
//                          every node of the device, a container's own as well. Needs root.
//   fanotify               tells which process; sees this node only. Needs root.
//   inotify                tells that, not who; needs no more than the right to open the file.
//   none                   no events: the caller has to scan (openers.h).
//
// Opening is not using, and what is opened before, or by a way that is not seen, does not show here: this is for being
// quick, and never the only ground to believe that a GPU is free.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull {

enum class OpenWay : std::uint8_t { cgroup_device, fanotify, inotify, none };
std::string_view to_string(OpenWay way);
// "bpf", "fanotify", "inotify", "scan"
Result<OpenWay> parse_open_way(std::string_view text);

struct DeviceOpen {
  std::size_t file = 0;  // which of those that are watched
  pid_t pid = 0;         // 0: not told
  bool operator==(const DeviceOpen&) const = default;
};

class OpenWatch {
 public:
  // `best`: nothing better than this is tried. Never fails: at worst nothing tells.
  static std::unique_ptr<OpenWatch> start(std::span<const std::string> files, OpenWay best = OpenWay::cgroup_device);
  OpenWatch(const OpenWatch&) = delete;
  OpenWatch& operator=(const OpenWatch&) = delete;
  virtual ~OpenWatch() = default;

  virtual OpenWay way() const = 0;
  virtual int descriptor() const = 0;  // readable when there is something to be taken; below 0: never
  // What happened since the last call. `lost`: more than could be kept; everything may have been opened.
  virtual void take(std::vector<DeviceOpen>& opens, bool& lost) = 0;

 protected:
  OpenWatch() = default;
};

// The ways, each: null where it does not work here.
std::unique_ptr<OpenWatch> watch_by_cgroup_device(std::span<const std::string> files);
std::unique_ptr<OpenWatch> watch_by_fanotify(std::span<const std::string> files);
std::unique_ptr<OpenWatch> watch_by_inotify(std::span<const std::string> files);

}  // namespace lull
