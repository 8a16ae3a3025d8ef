#pragma once
// How this program starts processes of its own (sensor, task, lease holder, guard). Jobs and hooks: act/spawn.h.
//
// A process without other threads calls libc's fork(), so that libc in the child knows the child's own thread id: a
// robust mutex that the child takes (in a driver's library, say) names the right owner, and is given back when the
// child is killed. A process with threads (Python) cannot do so, since another thread may hold any lock: it starts a
// program, and nothing but system calls is made between the clone and the exec.
//
// All of them are noted as our own (base/process.h): they do not belong to a job.

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/result.h"

namespace lull {

// A child of ours, which ends when `body` returns. Unless it outlives us, the kernel kills it when we end.
Result<Process> start_child(const std::function<void()>& body, bool outlives_us = false);

// A grandchild whose parent has ended: no wait() finds it, not ours and not that of a program that we become by exec.
// (A subreaper gets it as a child all the same.) We and it hold one end each of a pair of sockets.
struct ApartProcess {
  Process process;
  Fd socket;
};
Result<ApartProcess> start_apart(const std::function<void(Fd socket)>& body);

// In a process that was started apart: the kernel kills it (SIGKILL) when no process holds the other end. Nothing
// may be sent to it on this socket or pipe.
void end_with(int lifeline);

// A program, from a process that may have threads and children of its own. No child of ours: no wait() finds it, no
// SIGCHLD comes of it. It has our standard descriptors and, from 3 on, `descriptors`; no other.
// Fails with exec's own errno.
struct ProgramStart {
  std::string program;                   // its path
  std::vector<std::string> arguments;    // with argv[0]
  std::vector<std::string> environment;  // "NAME=value": as it was when it was safe to look
};
Result<Process> start_program(const ProgramStart& what, std::span<const int> descriptors);

// The strings as exec takes them: good as long as they are.
std::vector<char*> exec_pointers(const std::vector<std::string>& strings);

// The status of a child that was started here, once it has ended. Nothing also where that is not ours to know.
std::optional<ExitStatus> reap(const Process& process);
// For who collects whatever child ends (act/children.h). True: it was started here, and reap() will find the status.
bool keep_status(pid_t pid, const ExitStatus& status);

// Waits for a child, at most so long. False: it is still there.
bool wait_for_child(pid_t pid, Duration limit, int* status = nullptr);

// Closes all descriptors from `first` on but these.
void close_all_but(std::initializer_list<int> kept, unsigned first = 0);

// A message over a unix socket that may carry one descriptor (below 0: none). Results as sendmsg() and recvmsg().
ssize_t send_with_descriptor(int socket, const void* data, std::size_t size, int descriptor, int flags);
// `descriptor` is empty if the message carried none, or this process has no descriptor left.
ssize_t receive_with_descriptor(int socket, void* data, std::size_t size, Fd& descriptor, int flags);

// Questions that may hang: reading /proc/PID/cmdline, environ or stack of a process waits for locks that a driver in
// trouble may hold for ever, where not even SIGKILL helps. A process of our own that is started apart asks them. It has
// a limit, and is left where it is stuck when that is over. Only for a program without other threads: it is a fork.
// ETIMEDOUT where the answer did not come within the limit.
Result<std::string> run_with_timeout(const std::function<std::string()>& question, Duration limit);
// The answers of question(0) … question(count - 1), asked one after the other. One that takes longer than `each` is
// passed over, and a new process asks the others, all within the limit. Nothing: no answer in time.
std::vector<std::optional<std::string>> run_each_with_timeout(std::size_t count,
                                                              const std::function<std::string(std::size_t)>& question,
                                                              Duration each, Duration limit);

}  // namespace lull
