#pragma once
// Giving leases back before their time: a hold that is no longer needed, what a job left behind,
// and by force what a living job keeps.

#include <string>
#include <vector>

#include "base/result.h"
#include "lease/folder.h"

namespace lull {

// What came of one lease that was meant, in a line.
struct Release {
  bool released = false;
  std::string text;
};

// What a person writes, "0,2" or "0-3 5", as words for release(); a list that cannot be meant is a mistake.
Result<std::vector<std::string>> release_options(const std::vector<std::string>& written);

// `words`: index, range of indices, UUID or lease, or all. Only one's own, as root any; `force`: also if the holder
// lives, who is not ended.
Result<std::vector<Release>> release(const LeaseFolder& folder, const std::vector<std::string>& words, bool force);

}  // namespace lull
