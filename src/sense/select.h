#pragma once
// Which devices of the inventory are meant, by --gpus and by CUDA_VISIBLE_DEVICES. --gpus is strict: whatever is not
// understood is an error in one line, since a typo must not silently watch other GPUs.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gpu/snapshot.h"

namespace lull {

// "0,2", "0-3", "amd:0", "amd:0-3" (by the vendor's own count), "amd:all", "GPU-8932f937" (a UUID or its beginning),
// "3:1" (second MIG device of GPU 3), "MIG-…", "00000000:3B:00.0" (PCI), "all". Positions in Inventory::devices in the
// order given; a device named twice is there once.
Result<std::vector<std::size_t>> select_devices(std::string_view spec, const Inventory& inventory);

// The indices of the GPUs that it names where it does so by numbers alone, which is known before any driver is asked.
// Nothing: it names some in another way, or cannot be understood. Numbers beyond `most` are no GPU's.
std::optional<std::vector<unsigned>> named_by_number(std::string_view spec, unsigned most);

// CUDA_VISIBLE_DEVICES as CUDA reads it: which GPUs a job sees, and in which order. CUDA is lenient in its own way
// (trailing junk is ignored, an invalid entry hides itself and all after it, a device named twice hides everything).
// Where CUDA's answer cannot be known from here, the result says so instead of guessing silently.
struct Visible {
  std::vector<std::size_t> devices;  // positions in Inventory::devices, in the order in which CUDA counts them
  bool order_certain = true;         // position i is surely CUDA's device i
  bool certain = true;               // these, and no others, are surely the devices seen
  bool twice = false;                // a device is named twice, which hides all of them
  std::string note;                  // one line for a person; empty: nothing to say
};

// nullopt is an unset variable. A GPU in MIG mode is seen through its MIG devices.
Visible visible_devices(std::optional<std::string_view> cuda_visible_devices,
                        std::optional<std::string_view> cuda_device_order, const Inventory& inventory);

// Why nothing is seen, in a sentence without its end; empty: something is, or it is unknown.
std::string why_none_is_visible(const Visible& visible, std::optional<std::string_view> cuda_visible_devices);

// ---- by the variables of all runtimes

// Which GPUs a program sees by the variables that its runtime reads: CUDA's (above), ROCm's and Level Zero's. Each
// is read as its runtime does, which ends a list at the first name that it does not understand, without a word. Where
// its answer cannot be known from here, the result says so: then all that may be meant are in it.
struct RuntimeVariables {
  std::optional<std::string> cuda_visible_devices = {};
  std::optional<std::string> cuda_device_order = {};
  std::optional<std::string> rocr_visible_devices = {};
  std::optional<std::string> hip_visible_devices = {};
  std::optional<std::string> ze_affinity_mask = {};
  std::optional<std::string> ze_flat_device_hierarchy = {};
  std::optional<std::string> ze_enable_pci_id_device_order = {};

  static RuntimeVariables of_this_process();
};

// By the vendor whose GPUs are meant.
struct VisibleOf {
  Vendor vendor = Vendor::nvidia;
  std::string variable;   // that says so: "ROCR_VISIBLE_DEVICES"
  Visible visible;        // positions in the inventory
  std::string none;       // for a person: why that is no GPU; empty: it is one
  std::size_t count = 0;  // how many are meant, at most
};

// One for each vendor that has a GPU here and of whose GPUs a variable speaks. HIP reads CUDA_VISIBLE_DEVICES as well:
// that is meant for it where there is no NVIDIA GPU.
std::vector<VisibleOf> visible_by_variables(const RuntimeVariables& variables, const Inventory& inventory);

// What they give together, as to a job; where none is set, all GPUs.
struct VisibleHere {
  std::vector<std::size_t> devices;  // positions in the inventory
  std::string none = {};             // for a person: why that is no GPU; empty: it is one, or nobody says what
};
VisibleHere visible_here(const RuntimeVariables& variables, const Inventory& inventory);

}  // namespace lull
