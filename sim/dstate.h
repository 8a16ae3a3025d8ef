#pragma once
// Calls that sleep where no signal reaches them (D state), as calls into a driver
// that hangs do: SIGKILL does not end such a process.
//
// A small FUSE file system is mounted at FOLDER/dstate. It has one file for each GPU,
// `0`, `1`, …, and `driver` for init and for calls about no GPU. The simulated library
// reads the file of its GPU while a fault of kind FaultKind::dstate is in force; that
// read is taken off the queue and not answered until no such fault concerns the GPU any
// more, until the simulation is over, or until the server is gone.
//
// In a test:
//
//   TestSim sim(plan);                                    // or any folder with a state in it
//   auto server = start_dstate_server(sim.folder());      // after the folder, so that it goes first
//   if (!server) GTEST_SKIP() << server.error().message();
//   writer.add_faults({{.gpu = 0, .kind = FaultKind::dstate, .from_ns = -1}});
//   … a call about GPU 0 sleeps …
//   writer.clear_faults(kEveryGpu);                       // it comes back
//
// Without a server the fault blocks all the same, but killably.

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.h"
#include "sim/fuse.h"

namespace lull::sim {

// Mounts, and serves from a child process until the result is destroyed or our process ends. An error says what is
// missing: /dev/fuse, or the right to mount.
Result<FuseServer> start_dstate_server(const std::string& folder);

// The same for `lull sim`: sees to it that FOLDER/dstate is served, by a process of its own that ends with the
// process `owner`.
Result<> serve_dstate(const std::string& folder, pid_t owner);

// How many calls about a GPU sleep now (-1: init, and calls about no GPU); also the size of the file FOLDER/dstate/GPU.
// Once it is counted here, nothing but the end of the fault ends a call.
unsigned sleepers(const std::string& folder, std::int32_t gpu);

// Takes a mount away that a killed server left behind; nothing, if there is none.
void unmount_dstate(const std::string& folder);

}  // namespace lull::sim
