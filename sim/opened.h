#pragma once
// The simulation that $LULL_SIM names, for whoever changes or shows it while it runs,
// and which of its GPUs and values a person means.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/mapping.h"
#include "sim/scenario.h"
#include "sim/writer.h"

namespace lull::sim {

// $LULL_SIM, with clear words where it is not set or no longer there.
Result<std::string> simulation_folder();
Result<Writer> open_simulation();

// Whether these GPUs can fail so: `of_file` says that one file was named.
Result<> check_file_fault(const FaultSpec& fault, bool of_file, const State& state);
// Sees to it that they can hang: in D state, and at the read of a file.
Result<> serve_hangs(const FaultSpec& fault, const State& state);

// "0", "0,2", "1-3", "amd:0", "all", "GPU-5c6a" (a unique beginning of a UUID).
Result<std::vector<std::size_t>> resolve_gpus(std::string_view text, const State& state);

// One NAME=VALUE as changes of each GPU (pcie is two values).
Result<std::vector<Change>> parse_change(std::string_view word, const std::vector<std::size_t>& gpus,
                                         const State& state);
// "asleep=on", "asleep=1", …
Result<bool> parse_switch(std::string_view word);
// Ends the faults of these GPUs and gives what was set back to the scenario.
Result<> take_back(Writer& writer, const std::vector<std::size_t>& gpus);

// A process that uses a simulated GPU: through the library, as a load, or with its
// device file open. A GPU can be reset only when there is none.
struct DeviceUser {
  std::uint32_t pid = 0;
  std::string name;  // /proc/PID/comm; empty: not to be seen from here
};

// In the order of their pids, each once.
std::vector<DeviceUser> device_users(Mapping& mapping, const std::string& folder, unsigned gpu);

}  // namespace lull::sim
