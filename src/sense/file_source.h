#pragma once
// GPUs that are read from files of the kernel's, without a library and without opening a device: AMD and Intel through
// DRM's folders in /sys, a Jetson through devfreq. A vendor implements FileGpu; FileSource makes a Source of its GPUs.
//
// A card that the kernel has suspended is asleep, and nothing else is read of it, since that would wake it. A file that
// cannot be read costs its own value; one that hangs costs the GPU its sample (sensor.h).

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "gpu/snapshot.h"
#include "sense/source.h"

namespace lull {

class DrmClients;

class FileGpu {
 public:
  FileGpu() = default;
  FileGpu(const FileGpu&) = delete;
  FileGpu& operator=(const FileGpu&) = delete;
  virtual ~FileGpu() = default;

  // Its folder in /sys, which is gone with the card; empty: not found yet.
  virtual const std::string& folder() const = 0;
  // Who it is; wakes nothing.
  virtual void identify(Identity& identity) = 0;
  // It is to be identified again, since it was split, or is known better by now. Asked before each sample.
  virtual bool is_other(Instant) { return false; }
  // Into readings that are as new. The card is awake.
  virtual void read(const Needs& needs, Instant now, Answer& answer) = 0;
  // Between samples, as Source::look.
  virtual void look(Instant now) = 0;
  virtual Duration look_within() const = 0;
  // It slept or was gone: what was measured before does not belong to the next mean.
  virtual void restart() = 0;
};

using FileGpus = std::vector<std::unique_ptr<FileGpu>>;

class FileSource final : public Source {
 public:
  using Find = std::function<FileGpus()>;
  // `find` lists the GPUs that are there now. `module`: the kernel module whose version is shown.
  FileSource(Vendor vendor, Find find, std::string module);
  ~FileSource() override;

  DriverState open() override;
  unsigned count() const override;
  std::string driver_version() const override;
  std::string library() const override { return {}; }
  bool attach(unsigned gpu, Instant now) override;
  const Identity& identity(unsigned gpu) override;
  void sample(unsigned gpu, const Needs& needs, Instant now, Answer& answer) override;
  void look(unsigned gpu, Instant now) override;
  Duration look_within(unsigned gpu) const override;
  Topology topology() override;

 private:
  struct Card;
  Vendor vendor_;
  Find find_;
  std::string module_;
  std::vector<Card> cards_;
};

// ---- DRM

// A card as DRM shows it, /sys/class/drm/cardN. Cards that are no PCI device (the partitions of an MI300) are left out.
struct DrmCard {
  std::string card;     // the folder of cardN
  std::string device;   // the folder of its PCI device
  std::string address;  // "0000:03:00.0"
  std::uint64_t vendor = 0;
  std::string driver;  // "amdgpu", "i915", "xe"; empty: not known
  std::optional<unsigned> render_minor;
  bool has_outputs = false;

  std::string pci() const;  // as NVML writes it: "00000000:03:00.0"
  // The folder of its sensors, of a chip of this name; empty: it has none.
  std::string hwmon(std::string_view name) const;
  // A screen is attached and drawn on; nothing: it has no outputs.
  std::optional<bool> display_active() const;
};
// Of PCI.
inline constexpr std::uint64_t kAmdVendor = 0x1002;
inline constexpr std::uint64_t kIntelVendor = 0x8086;
// Whether there is one of them: as soon as one is found.
bool is_any_drm_card(const Root& root, std::initializer_list<std::uint64_t> vendors = {kAmdVendor, kIntelVendor});

// What the sources of AMD and Intel share where they are opened together.
struct DrmMachine {
  std::vector<DrmCard> cards;  // of both, by PCI address
  std::shared_ptr<DrmClients> clients;
};
DrmMachine look_at_drm(const Root& root, const Clock& clock);
std::unique_ptr<Source> make_amd_source(const Root& root, const Clock& clock, const DrmMachine& machine);
std::unique_ptr<Source> make_intel_source(const Root& root, const Clock& clock, const DrmMachine& machine);

// "MemTotal:" and "MemAvailable:" of /proc/meminfo, for a GPU that shares the machine's memory.
void estimate_shared_memory(const Root& root, Reading& reading);

// What the machine's list of PCI devices (pci.ids) calls it, or "AMD GPU 744c".
std::string name_of(const DrmCard& card, const Root& root, std::string_view vendor);

}  // namespace lull
