#pragma once
// Which GPUs a program sees by the variables that its runtime reads: CUDA's (select.h), ROCm's and Level Zero's. Each
// is read as its runtime does, which ends a list at the first name that it does not understand, without a word. Where
// its answer cannot be known from here, the result says so: then all that may be meant are in it.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gpu/snapshot.h"
#include "sense/select.h"

namespace lull {

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

}  // namespace lull
