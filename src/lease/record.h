#pragma once
// What a file in the lease folder says: who holds a GPU (or waits for one), with
// what, since when. It is `key: value` lines that a person can read with cat. The
// words inform; the lock on the file is the truth, and the file's owner, which
// the kernel vouches for, is the user.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/process.h"
#include "gpu/snapshot.h"

namespace lull {

enum class LeaseKind : std::uint8_t {
  job,         // `lull pick -- CMD`: until the last process of the job is gone
  hold,        // `--hold 10m`
  process,     // `--hold-pid`
  collecting,  // a waiter keeps it until it has all that it asked for
};
std::string_view name_of(LeaseKind kind);

// A process that can be told from a later one with the same number.
struct ProcessMark {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;    // since boot; 0: could not be read
  std::uint64_t pid_namespace = 0;  // in which pid counts; 0: could not be read
  bool operator==(const ProcessMark&) const = default;

  static ProcessMark of(pid_t pid);  // 0: this process
  static ProcessMark of(const Process& process);
};
// no: it is gone. nothing: it counts in another pid namespace, or cannot be seen.
std::optional<bool> alive(const ProcessMark& mark);
// It surely is: by a signal, Ctrl-Z for one.
bool stopped(const ProcessMark& mark);

struct LeaseRecord {
  std::string gpu;    // UUID
  std::string label;  // "3", "3:1": for people
  std::string id;     // of the lease; one for all GPUs of a job
  LeaseKind kind = LeaseKind::job;
  std::string user;    // name, or the number where there is none
  ProcessMark holder;  // the job; with `hold` the lease holder
  std::string command;
  std::optional<WallTime> since;
  std::optional<WallTime> until;  // `hold` only
  std::string within;             // id of the lease that this one narrows; empty: none
  unsigned share = 1;             // at most this many holders, itself included; 1: exclusive
  bool operator==(const LeaseRecord&) const = default;
};

// The place of a waiter in the queue. Files of others are read, so nothing in it is trusted for safety.
struct TicketRecord {
  std::uint64_t number = 0;  // smaller came first
  int priority = 0;          // greater goes first
  unsigned count = 0;        // GPUs asked for
  unsigned missing = 0;      // of these, not yet collected
  std::vector<std::string> wants;
  std::vector<std::string> scope;  // all that it would take if they were idle: what fills a GPU yields to it
  unsigned share = 1;              // would be one of so many holders at most
  std::string within;
  std::string user;
  ProcessMark waiter;
  std::string command;
  std::optional<WallTime> since;
  bool operator==(const TicketRecord&) const = default;
};

inline constexpr int kGreatestPriority = 1000;
inline constexpr unsigned kMostHolders = 1000;  // of one GPU

// Whose turn comes before whose: greater priority, then whoever came first. When a ticket came is the kernel's word,
// the time at which its file was made: nothing that is written into it later changes that. Where the file system does
// not keep that time (0), and among those who came in the same tick of the clock, the number says it.
struct Turn {
  int priority = 0;
  std::int64_t born = 0;  // nanoseconds
  std::uint64_t number = 0;
  bool before(const Turn& other) const {
    if (priority != other.priority) return priority > other.priority;
    if (born != 0 && other.born != 0 && born != other.born) return born < other.born;
    return number < other.number;
  }
};

std::string write_record(const LeaseRecord& record);
std::string write_record(const TicketRecord& record);
// A half-written or foreign file gives nothing.
std::optional<LeaseRecord> read_lease(std::string_view text);
std::optional<TicketRecord> read_ticket(std::string_view text);

// A word that can be part of a file name: letters, digits, '-'. UUIDs are.
bool plain_word(std::string_view text);
std::string random_id();
std::string join_command(std::span<const std::string> arguments);

// By which name a GPU is leased: its UUID, or its PCI address where another GPU has the same UUID. A process that sees
// only one of two such GPUs (in a container) leases it by the UUID: that lease holds both, since it is unknown which is
// meant.
//
// Empty: nothing can be read that would name it.
std::string lease_name(const Device& device);

// Every name under which it may be leased, lease_name() first.
std::vector<std::string> lease_names(const Device& device);

bool is_leased_as(const Device& device, std::string_view name);

}  // namespace lull
