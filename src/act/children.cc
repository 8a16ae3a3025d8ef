#include "act/children.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "base/kin.h"

namespace lull {

bool Children::become_subreaper() { return ::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0; }

void Children::expect(const Process& child, Ended ended, Stopped stopped) {
  waiting_[child.pid()] = {std::move(ended), std::move(stopped)};
}

// Where nobody takes them, they are put together.
void Children::note_orphan(pid_t pid, const rusage& used) {
  constexpr std::size_t kMost = 4096;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  const double cpu = seconds(used.ru_utime) + seconds(used.ru_stime);
  if (orphans_.size() >= kMost)
    orphans_.back() = {.pid = 0, .cpu_seconds = orphans_.back().cpu_seconds + cpu};
  else
    orphans_.push_back({.pid = pid, .cpu_seconds = cpu});
}

void Children::sweep() {
  for (;;) {
    siginfo_t info{};
    rusage used{};
    // The system call itself, since libc's waitid leaves out the rusage.
    if (::syscall(SYS_waitid, P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG, &used) != 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (info.si_pid == 0) return;
    const auto found = waiting_.find(info.si_pid);
    if (found == waiting_.end()) {
      if (info.si_code != CLD_STOPPED && info.si_code != CLD_CONTINUED) note_orphan(info.si_pid, used);
      continue;
    }
    // Handlers may expect and forget others: nothing of the map is held while they run.
    if (info.si_code == CLD_STOPPED || info.si_code == CLD_CONTINUED) {
      const Stopped stopped = found->second.stopped;
      if (stopped) stopped(info.si_code == CLD_STOPPED ? info.si_status : 0);
      continue;
    }
    const Ended ended = std::move(found->second.ended);
    waiting_.erase(found);
    ExitStatus status;
    (info.si_code == CLD_EXITED ? status.code : status.signal) = info.si_status;
    status.core_dumped = info.si_code == CLD_DUMPED;
    if (ended) ended(status);
  }
}

std::set<std::pair<pid_t, std::uint64_t>> own_children() {
  std::set<std::pair<pid_t, std::uint64_t>> children;
  // One read where the kernel offers it: this stands before the start of every job.
  if (const auto list = read_children(::getpid(), ::gettid()); list && ::gettid() == ::getpid()) {
    for (const pid_t pid : *list)
      if (const auto stat = read_process_entry(pid)) children.emplace(stat->pid, stat->start_ticks);
    return children;
  }
  for (const ProcessEntry& one : read_all_processes())
    if (one.parent == ::getpid()) children.emplace(one.pid, one.start_ticks);
  return children;
}

}  // namespace lull
