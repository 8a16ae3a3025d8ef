#pragma once
// What is to be picked, each value as it was written at the command line, and the settings that come of it.

#include <string>
#include <vector>

#include "base/result.h"
#include "lease/picker.h"

namespace lull {

// Everything as text first, so that every mistake is told in the same words.
struct PickOptions {
  std::string count = "1", gpus, vendor, name, util, mem_util, mem_free, mem_used, procs, temp, where, best, format;
  std::string hold, hold_pid, wait, tolerate, priority = "0", share = "1", joinable;
  bool waits = false, mine_ok = false, uuid = false, no_lease = false, quiet = false;
};
// The error names the option.
Result<PickSettings> settle(const PickOptions& options, std::vector<std::string> command);

}  // namespace lull
