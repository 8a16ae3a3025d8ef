#include "base/beside.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <memory>
#include <utility>

namespace lull {
namespace {

constexpr int kFirst = 3;
constexpr int kAbove = 64;  // ours are moved there first, so that none lies where another is to go
constexpr std::size_t kStack = std::size_t{64} << 10;

// What the two children of a birth share with us: our memory is theirs until the second has become the program, and
// we wait for that.
struct Birth {
  const char* path = nullptr;
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  std::span<const int> given;  // all above kAbove
  std::byte* stack = nullptr;  // of the second
  pid_t pid = -1;              // likewise
  int pidfd = -1;              // likewise; the first shares our descriptors, so this is one of ours
  int error = 0;
};

// Stacks grow downwards, from an address that suits any processor.
void* top_of(std::byte* stack) {
  return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(stack) + kStack) & ~std::uintptr_t{63});
}

// Both do system calls alone: another thread may hold any lock there is.
int second_child(void* data) {
  auto& birth = *static_cast<Birth*>(data);
  int next = kFirst;
  for (const int fd : birth.given) {
    if (::dup2(fd, next++) < 0) {
      birth.error = errno;
      ::_exit(1);
    }
  }
  ::close_range(static_cast<unsigned>(next), ~0U, CLOSE_RANGE_CLOEXEC);
  ::execve(birth.path, birth.argv, birth.envp);
  birth.error = errno;
  ::_exit(1);
}

// A process that has called exec gives SIGCHLD at its end, whatever it was made with. This one does not, and is between
// us and the program, whose parent it thus is not for long.
int first_child(void* data) {
  auto& birth = *static_cast<Birth*>(data);
  birth.pid = ::clone(second_child, top_of(birth.stack), CLONE_VM | CLONE_VFORK | CLONE_PIDFD, &birth, &birth.pidfd);
  if (birth.pid < 0) birth.error = errno;
  ::_exit(0);
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& one : strings) out.push_back(const_cast<char*>(one.c_str()));
  out.push_back(nullptr);
  return out;
}

}  // namespace

Result<Process> start_beside(const Beside& what, std::span<const int> descriptors) {
  std::vector<Fd> moved;
  std::vector<int> given;
  for (const int fd : descriptors) {
    moved.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, kAbove));
    if (!moved.back()) return fail(errno, what.program);
    given.push_back(moved.back().get());
  }
  const std::vector<char*> argv = pointers(what.arguments);
  const std::vector<char*> envp = pointers(what.environment);
  const std::unique_ptr<std::byte[]> stacks(new std::byte[2 * kStack]);
  Birth birth;
  birth.path = what.program.c_str();
  birth.argv = argv.data();
  birth.envp = envp.data();
  birth.given = given;
  birth.stack = stacks.get();
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of ours may run in the children
  const int between = ::clone(first_child, top_of(stacks.get() + kStack), CLONE_VM | CLONE_VFORK | CLONE_FILES, &birth);
  const int why = between < 0 ? errno : birth.error;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (between > 0)
    while (::waitpid(between, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  Fd pidfd(birth.pidfd);
  if (why != 0) return fail(why, what.program);
  return Process::adopt(birth.pid, std::move(pidfd));
}

}  // namespace lull
