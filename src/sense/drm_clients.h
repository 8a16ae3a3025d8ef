#pragma once
// Who uses a GPU through DRM: /proc/PID/fdinfo/N of every descriptor of a DRM device (major 226), for AMD's graphics
// and for all of Intel. A descriptor may be copied and passed on: a client counts once, by its id.
//
// A process whose files we may not look at could be a client of any GPU: then who uses it is not known, and no sum is.
// Which process holds which device is looked up once for all GPUs; fdinfo, which the GPU's driver answers, is read for
// the one GPU that is asked for, so that a driver that hangs costs that GPU alone.
//
// Each open file of a DRM device, and each buffer that was exported from one, holds a reference to the driver's module
// (drm_stub_open() and drm_gem_prime_export() of the kernel): a module without references has no client, and then no
// process is looked at. More than 0 says nothing, since others hold references, too.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "gpu/snapshot.h"

namespace lull {

// What one engine has done for a client, since the client began. Some drivers count time, some cycles.
struct DrmEngine {
  std::optional<std::uint64_t> nanoseconds;
  std::optional<std::uint64_t> cycles;
  std::optional<std::uint64_t> total_cycles;  // that the engine has run in all, with `cycles`
  unsigned capacity = 1;                      // engines of this name
  bool operator==(const DrmEngine&) const = default;
};

// The text of one fdinfo.
struct DrmInfo {
  std::string driver;  // "amdgpu", "i915", "xe"
  std::string pci;     // "0000:03:00.0"
  std::uint64_t client = 0;
  std::map<std::string, DrmEngine> engines;
  std::optional<std::uint64_t> memory_bytes;  // on the card; an integrated GPU has none of its own: what it uses
  bool worked() const;                        // some engine has run for it
};
// Nothing: it is no DRM client's, or says neither device nor client.
std::optional<DrmInfo> parse_drm_info(std::string_view text);

struct DrmClient {
  DrmInfo info;
  std::vector<pid_t> holders;  // ascending; more than one where the descriptor was inherited or passed on
};

struct DrmUse {
  // Other than none: there may be more clients. no_permission: files of others cannot be looked at; hidden: processes
  // are not shown at all; not_supported: the driver writes nothing of its clients.
  Absence absence = Absence::none;
  std::vector<DrmClient> clients;  // each once
};

// All may be called by several threads at once.
class DrmClients {
 public:
  DrmClients(Root root, const Clock& clock);
  DrmClients(const DrmClients&) = delete;
  DrmClients& operator=(const DrmClients&) = delete;
  ~DrmClients();

  // Of the device with this render node, of a driver that is this module; empty: not known. All of it is newer than
  // `not_before`, unless a scan of all processes' files took so long that another would cost more than a twentieth of
  // the time; `exactly`: then as well.
  DrmUse of(unsigned render_minor, std::string_view pci, const std::string& module, Instant not_before, bool exactly);

 private:
  struct Holders;
  struct References {
    Instant at{};
    bool none = false;
  };
  std::shared_ptr<const Holders> holders(Instant not_before, bool exactly);
  bool is_unused(const std::string& module, Instant not_before);

  Root root_;
  const Clock& clock_;
  std::mutex mutex_;
  std::shared_ptr<const Holders> holders_;
  std::map<std::string, References> references_;  // to modules
};

}  // namespace lull
