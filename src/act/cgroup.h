#pragma once
// A cgroup of our own holds a job and all its descendants: no process leaves it by accident, and one write ends
// all. It needs the unified hierarchy and the right to make a folder in it; where either is missing, create() fails and
// the caller walks the process tree instead.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace lull {

// Where in the file system the cgroup of this process is, by the two texts of /proc; nothing where there is no unified
// hierarchy or it shows another part of the tree.
std::optional<std::string> find_own_cgroup(std::string_view mountinfo, std::string_view self_cgroup);

// Who made the cgroup `path` and those above it, which others may have named as they liked: root (0), or the one user
// who owns some of them. `cgroups` is the text of /proc/PID/cgroup of a process in it. Nothing: its folder cannot be
// seen from here; kSeveralMakers: more than one user.
std::optional<uid_t> maker_of_cgroup(std::string_view cgroups, std::string_view path, const Root& root = {});
inline constexpr uid_t kSeveralMakers = static_cast<uid_t>(-1);

// The same folder or one below it, as whole paths.
bool is_in_folder(std::string_view path, std::string_view folder);

// Whether one of these processes is in a cgroup that is frozen, of either version.
bool is_any_frozen(const std::vector<pid_t>& pids, const Root& root = {});

class Cgroup {
 public:
  // A new, empty cgroup below our own, named after this process.
  static Result<Cgroup> create(const Root& root = {});
  // Removes those beside it that dead lulls left behind empty.
  void remove_abandoned(const Root& root = {}) const;
  // The cgroup this process is in. Never removed, never killed as a whole.
  static Result<Cgroup> own(const Root& root = {});

  Cgroup() = default;
  Cgroup(Cgroup&&) = default;
  Cgroup& operator=(Cgroup&&) = default;
  ~Cgroup() = default;

  explicit operator bool() const { return static_cast<bool>(dir_); }
  int fd() const { return dir_.get(); }  // for CLONE_INTO_CGROUP
  const std::string& path() const { return path_; }
  // Is this process in it, or in one below it?
  bool holds(pid_t pid, const Root& root = {}) const;
  bool holds(std::string_view cgroups) const;  // the same, of the text of its /proc/PID/cgroup

  std::vector<pid_t> members() const;  // also of cgroups the job made below; zombies included
  // Microseconds of CPU that its processes have used, the ended ones included.
  std::optional<std::uint64_t> cpu_microseconds() const;
  bool populated() const;  // also if it is unknown
  bool frozen() const;     // by itself or by one above it
  Result<> kill() const;   // every member, at once (Linux 5.14)
  // Asks the kernel to freeze every member, or thaw it; frozen() says when all do.
  Result<> set_frozen(bool frozen) const;
  Result<> move_here(pid_t pid) const;
  // Moves what is left of it to the cgroup above and removes it, with the empty ones that its job left below it and
  // the abandoned ones above it that it was the last in.
  void remove();

 private:
  Fd dir_;
  std::string path_;
  std::string name_;  // as in /proc/PID/cgroup
};

}  // namespace lull
