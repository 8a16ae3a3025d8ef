#pragma once
// Makes the files of AMD, Intel and Jetson GPUs (sim/files.h) as they are read, by FUSE:
// a value is that of the moment of the read, a fault is the errno that the kernel would
// give, a hang blocks, and whoever reads from a card that sleeps has woken it.
//
// Mounted over FOLDER/sys/devices and FOLDER/proc/fdinfo, which are plain files
// otherwise. In a test:
//
//   TestSim sim(plan);
//   furnish_machine(sim.folder(), plan);
//   auto server = start_files_server(sim.folder());
//   if (!server) GTEST_SKIP() << server.error().message();

#include <sys/types.h>

#include <string>

#include "base/result.h"
#include "sim/fuse.h"

namespace lull::sim {

// Mounts, and serves from a child process until the result is destroyed or our process ends.
Result<FuseServer> start_files_server(const std::string& folder);

// The same for `lull sim`, by a process of its own that ends with the process `owner`.
Result<> serve_files(const std::string& folder, pid_t owner);

void unmount_files(const std::string& folder);

}  // namespace lull::sim
