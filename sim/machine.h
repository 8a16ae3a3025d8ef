#pragma once
// The files that a machine with NVIDIA's driver has besides the library, under the
// folder of a simulation (lull looks there instead of under / while LULL_SIM is set):
//
//   proc/driver/nvidia/version                        while the driver is loaded
//   proc/driver/nvidia/gpus/0000:17:00.0/information  what the card is
//   sys/bus/pci/devices/0000:17:00.0/{vendor,device,class,power/runtime_status}
//
// `version` is gone while a fault says that the driver is not loaded. `runtime_status` is
// "active", or "suspended" for a GPU that was put to sleep; any NVML call about such a GPU,
// finding it included, turns it to "active": whoever must not wake it can be caught.

#include <string>

#include "base/result.h"
#include "sim/writer.h"

namespace lull::sim {

// For tests too: after create_state() in the same folder.
Result<> furnish_machine(const std::string& folder, const Plan& plan);

// There, or not. Only a change does anything: what was removed by hand stays away. Nothing happens in a folder that was
// not furnished.
void show_driver(const std::string& folder, State& state, bool loaded);

// Puts a GPU to sleep, or wakes it without a call. Only in a furnished folder. (Writer::put_to_sleep)
Result<> set_runtime_status(const std::string& folder, State& state, unsigned gpu, bool asleep);

std::string pci_address(const Gpu& gpu);

}  // namespace lull::sim
