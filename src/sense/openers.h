#pragma once
// Who holds a GPU's device file open. A scan of /proc/*/fd, by device number, so
// that a container's own node of the same device is seen too; in a simulation,
// where device files are plain files, by file system and inode. Our own process
// is left out, since looking opens the file as well.
//
// A process whose files we may not look at could hold any GPU. Then the count is
// unknown, not a smaller number: "nobody seen" must not read as "nobody there".

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "gpu/snapshot.h"

namespace lull {

struct Openers {
  std::vector<std::vector<pid_t>> holders;  // for each device of the inventory
  std::vector<Absence> absence;             // none: the list is complete (empty where it is not)
  std::vector<pid_t> hidden;                // processes whose files could not be looked at
};

// `ignore` are exact names of programs (nvidia-persistenced); their processes do not count.
// A MIG device has no file of its own: not_supported.
Openers find_openers(const Root& root, const Inventory& inventory, std::span<const std::string> ignore = {});

// The same into the metric `openers` of every reading.
void count_openers(Snapshot& snapshot, const Root& root, std::span<const std::string> ignore = {});

}  // namespace lull
