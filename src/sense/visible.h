#pragma once
// CUDA_VISIBLE_DEVICES as CUDA reads it: which of the machine's GPUs a job sees,
// and in which order. CUDA is lenient in its own way (trailing junk is ignored,
// an invalid entry hides itself and all after it, a device named twice hides
// everything), and a watcher that reads the variable differently from the job
// watches the wrong GPUs. Where CUDA's answer cannot be known from here, the
// result says so instead of guessing silently.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/snapshot.h"

namespace lull {

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

// Why nothing is seen, in a sentence without its end; empty: something is, or nobody says what.
std::string why_none_is_visible(const Visible& visible, std::optional<std::string_view> cuda_visible_devices);

// As this process's environment says.
Visible visible_devices(const Inventory& inventory);

}  // namespace lull
