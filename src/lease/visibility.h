#pragma once
// What makes a program see the GPUs that were picked and no others: the variables that each vendor's runtime reads.
//
//   NVIDIA  CUDA_VISIBLE_DEVICES, in the order of the PCI bus (CUDA_DEVICE_ORDER).
//   AMD     ROCR_VISIBLE_DEVICES by UUID, or by KFD's order where several devices share a UUID (partitions), and
//           HIP_VISIBLE_DEVICES, which counts in what that leaves. CUDA_VISIBLE_DEVICES and GPU_DEVICE_ORDINAL, which
//           HIP reads as well, are removed.
//   Intel   ZE_AFFINITY_MASK, whose numbers are those of whole GPUs in the order of the PCI bus with
//           ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE and ZE_ENABLE_PCI_ID_DEVICE_ORDER=1.
//
// Of a vendor that has GPUs here and none of them was picked, its variable is empty: a runtime that is told nothing
// takes its first GPU. Level Zero cannot be told so, since an empty mask leaves all.

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "lease/picker.h"

namespace lull {

struct Visibility {
  std::vector<std::pair<std::string, std::string>> set;
  std::vector<std::string> removed;  // variables that would say otherwise
};

// The value of a variable of whoever asks; nothing: not set.
using EnvironmentOf = std::function<std::optional<std::string>(const char*)>;

// An error where the order in which a runtime counts is not known, or what the caller's environment asks for
// contradicts it.
// `devices`: positions in the inventory. `uuid`: NVIDIA GPUs are named by UUID.
Result<Visibility> visibility(const Inventory& inventory, std::span<const std::size_t> devices, bool uuid,
                              const Root& root, const EnvironmentOf& environment = environment_variable);
inline Result<Visibility> visibility(const Picked& picked, bool uuid, const Root& root) {
  return visibility(*picked.snapshot.inventory, picked.devices, uuid, root);
}
// "0,3", or UUIDs where asked for or where there are MIG devices. Of NVIDIA GPUs that is CUDA_VISIBLE_DEVICES.
std::string visible_value(const Inventory& inventory, std::span<const std::size_t> devices, bool uuid);
inline std::string visible_value(const Picked& picked, bool uuid) {
  return visible_value(*picked.snapshot.inventory, picked.devices, uuid);
}

}  // namespace lull
