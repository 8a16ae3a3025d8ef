#pragma once
// What is parked, as a file that outlives us: which processes, how much memory of which GPUs, and which step was
// reached. It is written before each step (a new file, fsync, rename), so that whoever comes after a crash knows what
// may have happened. A file `ID` with `key: value` lines, and `ID.lock`, which is locked by whoever works on it: an
// entry that is in the middle of something and whose lock is free was left by one who died.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/result.h"

namespace lull {

enum class ParkStep : std::uint8_t {
  locking,        // some may be locked
  checkpointing,  // all were locked; some may be checkpointed
  parked,         // at rest: all are checkpointed
  restoring,      // some may be restored, and locked
  unlocking,      // none is checkpointed; some may be locked
};
std::string_view to_string(ParkStep step);

struct ParkedMemory {
  std::string gpu;    // UUID
  std::string label;  // for people, as it was
  std::uint64_t bytes = 0;
  bool operator==(const ParkedMemory&) const = default;
};

struct ParkedProcess {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;
  std::vector<ParkedMemory> memory = {};
  ProcessId id() const { return {pid, start_ticks}; }
  bool operator==(const ParkedProcess&) const = default;
};

struct GivenLease {
  std::string id;
  uid_t owner = 0;
  bool operator==(const GivenLease&) const = default;
};

struct ParkRecord {
  std::string id;
  std::string boot;  // the boot of the machine, and its pid namespace, in which the pids count
  ParkStep step = ParkStep::locking;
  pid_t owner = 0;  // who works on it, or did when it was written
  std::uint64_t owner_start = 0;
  std::string tool;  // path of cuda-checkpoint
  std::string name;  // for people: what was parked
  pid_t root = 0;    // the process that stands for the job: the lease is held while it lives
  std::uint64_t root_start = 0;
  unsigned share = 0;                         // of the lease that was given up, and is taken again; 0: there was none
  std::vector<std::string> kept_leases = {};  // ids of leases that cover the job and were not given up
  std::vector<GivenLease> given_leases = {};  // those that go when it is parked; until then they cover it
  std::string lease = {};                     // id of the one that was taken again, on the way back; empty: none
  std::optional<WallTime> since = {};
  std::vector<ParkedProcess> processes = {};
  bool operator==(const ParkRecord&) const = default;

  bool has(pid_t pid, std::uint64_t start_ticks) const;
};

std::string write_record(const ParkRecord& record);
std::optional<ParkRecord> read_park_record(std::string_view text);  // nothing: incomplete, or not ours
std::string boot_id();  // of this boot of the machine, in this pid namespace; empty: cannot be read

// "40 GiB of GPU 3, 2 GiB of GPU 4"
std::string memory_text(const ParkRecord& record);

class ParkFolder {
 public:
  // $LULL_PARK; in a simulation its own; for root /run/lull-park, else below the user's state folder.
  static std::string place();
  // Makes it (0700) where it is not there. It must be ours alone.
  static Result<ParkFolder> open();
  // For those who only look: nothing where there is none.
  static Result<std::optional<ParkFolder>> look();

  // The right to work on an entry, and to make a new one. Held until it is destroyed.
  struct Lock {
    Fd fd;
  };
  // EAGAIN: another lull works on it.
  Result<Lock> lock(const std::string& id) const;

  // Those of this boot and pid namespace. One that cannot be read is left alone, and counted.
  Result<std::vector<ParkRecord>> all(std::size_t* unreadable = nullptr) const;
  Result<ParkRecord> read(const std::string& id) const;
  // On disk when it returns.
  Result<> write(const ParkRecord& record) const;
  void remove(const std::string& id) const;  // with its lock

 private:
  ParkFolder(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Fd fd_;
  std::string path_;
};

// Entries that a killed lull left in the middle of a step.
bool any_interrupted();

}  // namespace lull
