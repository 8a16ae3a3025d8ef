// From a fork to a process that has nothing of ours but the board and the bell.
#include "sense/sensor.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace lull {
namespace {

constexpr int kBell = 3;
constexpr int kPipe = 4;
constexpr int kParent = 5;

// Ends the sensor when one of its lifelines does. The kernel does it by SIGKILL where the pipe ends: also one that
// somebody has stopped, none of whose threads can run. And a thread, since the others may hang: the pipe may have ended
// already, or a child of the parent's may hold it. Without either nobody would ever end the sensor.
void watch_lifelines(bool has_parent) {
  ::fcntl(kPipe, F_SETOWN, ::getpid());
  ::fcntl(kPipe, F_SETSIG, SIGKILL);
  ::fcntl(kPipe, F_SETFL, O_ASYNC);
  static const nfds_t count = has_parent ? 2 : 1;
  pthread_t thread{};
  const auto body = [](void*) -> void* {
    pollfd ends[2] = {{kPipe, POLLIN, 0}, {kParent, POLLIN, 0}};
    while (::poll(ends, count, -1) < 0) {
    }
    ::_exit(0);
  };
  if (::pthread_create(&thread, nullptr, body, nullptr) != 0) ::_exit(1);
}

// Of one that is no child of the parent, which cannot see what ended us: we say it.
Board* asked_on = nullptr;
void let_go(int) {
  asked_on->let_go = 1;
  ::_exit(0);
}

// Not fork(): that cannot leave out the signal at the child's end, by which wait() would find it. Where there are no
// threads a raw clone is as good. 0: we are the child.
long make_child(int* pidfd) {
  return ::syscall(SYS_clone, pidfd != nullptr ? CLONE_PIDFD : 0, nullptr, pidfd, nullptr, 0);
}

Error cannot_start(int why) { return Error{"no process can be started to ask the driver", why}; }

// As a child, gone when we are.
Result<Sensor> start_child(Board& board, int bell, const SensorTask& task) {
  const pid_t parent = ::getpid();
  int pidfd = -1;
  const long pid = make_child(&pidfd);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);  // it died before we asked to be told
    become_sensor(board, bell, {}, task);
  }
  if (pid < 0) return std::unexpected(cannot_start(errno));
  note_own_process(static_cast<pid_t>(pid));  // it is no part of a job
  return Sensor{Process::adopt(static_cast<pid_t>(pid), Fd(pidfd)), Fd()};
}

// As a grandchild whose parent has ended: whatever we become has no child that it did not make.
Result<Sensor> start_apart(Board& board, int bell, const SensorTask& task) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::unexpected(cannot_start(errno));
  Fd theirs(ends[0]);
  Fd ours(ends[1]);
  int pidfd = -1;
  const long between = make_child(&pidfd);
  if (between == 0) {
    const long pid = make_child(nullptr);
    if (pid == 0) become_sensor(board, bell, {.pipe = theirs.get()}, task);
    board.pid = static_cast<std::int32_t>(pid);
    ::_exit(0);
  }
  if (between < 0) return std::unexpected(cannot_start(errno));
  const Fd handle(pidfd);
  siginfo_t info{};
  while (::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(handle.get()), &info, WEXITED | __WALL) != 0 &&
         errno == EINTR) {
  }
  if (board.pid <= 0) return std::unexpected(cannot_start(EAGAIN));
  auto process = Process::open(board.pid);
  if (!process) return std::unexpected(cannot_start(EAGAIN));
  return Sensor{*std::move(process), std::move(ours)};
}

}  // namespace

// What the child lets go of. Later it may be stuck for ever with whatever it holds.
void become_sensor(Board& board, int bell, Lifelines lifelines, const SensorTask& task) {
  ::setsid();  // no Ctrl-C, no Ctrl-Z, no hangup
  show_as("lull-sensor");
  sigset_t blocked;
  ::sigfillset(&blocked);
  // SIGUSR1 means "let go of the driver": the parent sees what ended us. The others are faults, or somebody's wish.
  for (const int number : {SIGUSR1, SIGTERM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS}) {
    ::sigdelset(&blocked, number);
    if (number == SIGUSR1 || number == SIGTERM) std::signal(number, SIG_DFL);
  }
  if (lifelines.pipe >= 0) {
    asked_on = &board;
    std::signal(SIGUSR1, let_go);
  }
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  std::atexit([] { ::_exit(1); });  // the parent's exit handlers are not ours, should the driver call exit
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kStandard = 2;  // what the sanitizer has to say must be heard
#else
  constexpr int kStandard = 3;  // who reads our output to its end must not wait for a stuck sensor
#endif
  // Out of the way first: their numbers may be those of standard descriptors that were closed.
  const int safe_bell = ::fcntl(bell, F_DUPFD_CLOEXEC, 10);
  const int safe_pipe = lifelines.pipe >= 0 ? ::fcntl(lifelines.pipe, F_DUPFD_CLOEXEC, 10) : -1;
  const int safe_parent = lifelines.parent >= 0 ? ::fcntl(lifelines.parent, F_DUPFD_CLOEXEC, 10) : -1;
  if (safe_bell < 0 || (lifelines.pipe >= 0 && safe_pipe < 0)) ::_exit(1);  // too few descriptors are allowed
  for (int stdio = 0; stdio < kStandard; ++stdio) ::dup2(null, stdio);
  ::close_range(kBell, 9, 0);
  ::dup2(safe_bell, kBell);
  if (safe_pipe >= 0) ::dup2(safe_pipe, kPipe);
  if (safe_parent >= 0) ::dup2(safe_parent, kParent);
  ::close_range(kParent + 1, ~0U, 0);  // locks, sockets, timers
  if (safe_pipe >= 0) watch_lifelines(safe_parent >= 0);
  serve_board(board, kBell, task);
}

Result<Sensor> start_sensor(Board& board, int bell, const SensorTask& task) {
  return task.apart ? start_apart(board, bell, task) : start_child(board, bell, task);
}

}  // namespace lull
