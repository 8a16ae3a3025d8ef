#pragma once
// Which process a number in the driver's list of processes stands for. A driver goes on listing a process that has
// ended while others hold what it opened, and the kernel gives its number away: so a pid alone is not an identity. A
// process is proven to use a GPU if it holds the GPU's device file and has had its number since the driver first
// listed it.
//
// The sensor looks at /proc (ProcessProofs). The sampler remembers who had a number when it was first listed
// (FirstReports): a sensor may be restarted, the memory may not.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "gpu/snapshot.h"
#include "sense/openers.h"

namespace lull {

// Of one device. Looks at every process when it is first listed, and later at some of them with each list, in turn:
// all of them where there are few (kFew). So a list costs what has changed in it, and not what is there.
class ProcessProofs {
 public:
  static constexpr std::size_t kFew = 64;
  static constexpr std::size_t kInTurn = 32;
  static constexpr Duration kLongest = std::chrono::milliseconds(500);  // the rest is unproven until the next list

  struct How {
    std::span<const DeviceFile> files = {};  // one of which its users hold; empty: the device's number is not known
    bool numbers_are_ours = true;            // the driver's numbers are those of our own pid namespace
    bool has_mps_server = false;             // then who has no file of its own may work through the server
    bool all = false;                        // scan all processes now
  };
  void begin_list() { ++list_; }  // also the same list again, with something learned of it
  // Fills in here, proof, start_ticks and mps_server. To be called for each part of a list.
  void look(std::span<GpuProcess> processes, const How& how, const Root& root);
  void end_list();                                   // forgets those that the list did not name
  bool found_stale() const { return found_stale_; }  // in the last list: one that was not stale in the list before

 private:
  struct Known {
    std::uint64_t start_ticks = 0;
    std::uint64_t list = 0;     // that named it last
    std::uint64_t checked = 0;  // the list with which it was looked at
    Proof proof = Proof::unproven;
    bool here = false;
    bool mps_server = false;
    bool again = false;      // it could not be looked at, for want of time
    bool was_stale = false;  // at the end of the last list
  };
  static Known check(const GpuProcess& process, const How& how, const Root& root);

  std::unordered_map<pid_t, Known> known_;
  std::uint64_t list_ = 0;
  std::size_t next_ = 0;  // whose turn it is
  bool found_stale_ = false;
};

// Who had each number when the driver first listed it. A process that got the number later is stale, for as long as
// the driver goes on listing the number.
class FirstReports {
 public:
  // One list that could be read. What cannot be read changes nothing.
  void check(const DeviceId& device, std::vector<GpuProcess>& processes, Instant at);
  // Outside the first pid namespace some drivers report the host's numbers, which are local processes' as well. A
  // number that no process here has shows such a driver: from then on none of its numbers is proof.
  void doubt_foreign_numbers(std::span<Reading> readings);

 private:
  struct First {
    std::uint64_t start_ticks = 0;  // 0: not seen
    Instant at{};
    std::uint64_t list = 0;
    bool stale = false;  // once stale, no process inherits the pid
  };
  struct Reports {
    std::unordered_map<pid_t, First> by_pid;
    std::uint64_t list = 0;
  };
  std::map<DeviceId, Reports> devices_;
  bool foreign_numbers_ = false;
};

}  // namespace lull
