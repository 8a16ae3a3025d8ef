#pragma once
// A process is identified by its pid and its start time together, and held by a
// pidfd. A bare pid may be reused as soon as its process is reaped, so nothing in
// this program signals one.
//
// Besides the pidfd: what /proc/PID/stat says (the part that walking a process
// tree needs) and the walk itself.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace lull {

inline constexpr std::size_t kCommSize = 15;  // the kernel keeps no more of a name

// A process for good: its pid, and when it started in ticks since boot.
using ProcessId = std::pair<pid_t, std::uint64_t>;

// One line of /proc/PID/stat. The name may contain anything, ") Z " included.
struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  char state = '?';
  std::string name;
  std::uint64_t cpu_ticks = 0;           // own, user and system
  std::uint64_t children_cpu_ticks = 0;  // of children that were waited for
  std::uint64_t start_ticks = 0;         // since boot
  unsigned threads = 1;
  bool kernel_thread = false;
  dev_t terminal = 0;  // the device number of its controlling terminal; 0: it has none

  ProcessId id() const { return {pid, start_ticks}; }
  // A zombie whose other threads still run has not ended.
  bool ended() const { return (state == 'Z' || state == 'X' || state == 'x') && threads <= 1; }
};

// The number of a process as text; nothing for one that the kernel cannot have given.
std::optional<pid_t> to_pid(std::string_view text);

std::optional<ProcessEntry> parse_process_entry(std::string_view line);  // nothing: not as the kernel writes it
Result<ProcessEntry> read_process_entry(pid_t pid, const Root& root = {});

// Goes up from a process through its parents, itself first and init left out, until `visit` returns true: then the
// result is true. Ends also where one cannot be read, and at a parent younger than its child: that number is another's.
bool climb(const ProcessEntry& from, const std::function<bool(const ProcessEntry&)>& visit, const Root& root = {});
bool climb(pid_t from, const std::function<bool(const ProcessEntry&)>& visit, const Root& root = {});

// A line of /proc/PID/cgroup, "N:CONTROLLERS:PATH". The path is last and may have colons in it.
struct CgroupLine {
  std::string_view controllers;  // empty: of the unified hierarchy
  std::string_view path;
};
std::vector<CgroupLine> cgroup_lines(std::string_view text);
Result<std::string> read_cgroups(pid_t pid, const Root& root = {});  // that file; 0: our own

// What follows "NAME:" in a file as /proc/PID/status is, without the blanks around it; nothing where that is not there.
std::optional<std::string_view> status_field(std::string_view text, std::string_view name);
// The same of a mask in hexadecimal digits, such as CapEff.
std::optional<std::uint64_t> status_mask(std::string_view text, std::string_view name);

// Every process that /proc shows, in order of pid. One that ends meanwhile is left out.
std::vector<ProcessEntry> read_all_processes(const Root& root = {});

// `root_pid` first if it is among them, then its descendants, parents before
// children. What `skip` says yes to is left out, with all below it.
std::vector<ProcessEntry> descendants(const std::vector<ProcessEntry>& all, pid_t root_pid,
                                      const std::function<bool(const ProcessEntry&)>& skip = nullptr);

// Children of ours that are machinery and never part of a job (a sensor, a task), by pid and start time. To be noted
// as soon as one is made, while it cannot have been reaped; forgotten when it is gone.
void note_own_process(pid_t pid);
bool is_own_process(pid_t pid, std::uint64_t start_ticks);

// How a child ended, in waitid's words.
struct ExitStatus {
  int code = 0;    // of exit(), where signal is 0
  int signal = 0;  // that ended it
  bool core_dumped = false;

  int shell_status() const { return signal != 0 ? 128 + signal : code; }
  bool operator==(const ExitStatus&) const = default;
};

// A process that was reaped: how much CPU it used in its life, with the children that it waited for.
struct Reaped {
  pid_t pid = 0;
  double cpu_seconds = 0;
};

class Process {
 public:
  Process() = default;

  // Fails with ESRCH where there is no such process (a zombie still is one).
  static Result<Process> open(pid_t pid);
  // The process that was seen as `seen`, or ESRCH if its pid now belongs to another process.
  static Result<Process> open(const ProcessId& seen);
  static Result<Process> open(const ProcessEntry& seen) { return open(seen.id()); }
  // A child just made, with the pidfd that the kernel gave for it.
  static Process adopt(pid_t pid, Fd pidfd);
  static Process self();

  pid_t pid() const { return pid_; }
  int fd() const { return fd_.get(); }  // readable once the process has ended
  std::uint64_t start_ticks() const { return start_ticks_; }
  ProcessId id() const { return {pid_, start_ticks_}; }
  explicit operator bool() const { return static_cast<bool>(fd_); }

  bool ended() const;  // a zombie has ended
  // ESRCH where it has ended: the signal did not and could not reach another process.
  Result<> signal(int number) const;

 private:
  pid_t pid_ = 0;
  std::uint64_t start_ticks_ = 0;
  Fd fd_;
};

// "TERM", "SIGTERM", "15" or 0. The name as people say it: "SIGTERM", "SIGRTMIN+3".
Result<int> parse_signal(std::string_view text);
std::string signal_name(int number);
std::vector<std::string_view> signal_names();  // as parse_signal() takes them

// What ps shows of this process from now on: not the command line that it was started with, which is a job's as well
// and by which `pkill -f` would find both.
void show_as(const char* name);
inline constexpr const char* kGuardName = "fill-guard";  // of the process above each filler

// The letter of /proc/PID/stat for the process as a whole: 'T' or 't' (by a debugger) only if no thread can run. That
// file is of the first thread, which may have ended before the others (pthread_exit in main).
char run_state(const ProcessEntry& one, const Root& root = {});
// By a signal or by a debugger.
bool is_stopped(const ProcessEntry& one, const Root& root = {});
// Whether a process could not be read since it has ended; else nothing is known of it.
bool has_ended(const Error& not_read);

// Those of `from` that there are and all their descendants, in order of pid, by the kernel's lists of children
// (/proc/PID/task/TID/children): the cost does not depend on how many other processes there are. Such a list may miss a
// child while another ends, so they are walked until a walk finds no new process. What `skip` says yes to is left out,
// with what is below it. Nothing where the kernel has no such lists, where they do not come to rest, and where it would
// take more than `most` of them: then reading all processes is as good.
std::optional<std::vector<ProcessEntry>> read_descendants(std::span<const pid_t> from, std::size_t most,
                                                          const std::function<bool(const ProcessEntry&)>& skip,
                                                          const Root& root = {});

// About how many processes there are, without reading them; 0 if unknown.
std::size_t count_processes(const Root& root = {});

// The children of one thread, zombies included.
Result<std::vector<pid_t>> read_children(pid_t pid, pid_t thread, const Root& root = {});

// From boot to a moment of ProcessEntry::start_ticks.
Duration since_boot(std::uint64_t ticks);
// The same by the wall clock, which may have been set since.
WallTime started_at(std::uint64_t start_ticks);

}  // namespace lull
