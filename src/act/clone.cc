#include "act/clone.h"

#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

namespace lull {
namespace {

struct Start {
  ChildMain child = nullptr;
  const void* argument = nullptr;
  bool in_cgroup = false;
};

[[noreturn]] void run(const Start* start) {
  start->child(start->argument, start->in_cgroup);
  ::_exit(127);
}

// Sanitizers keep books about each stack, and a borrowed one is not in them.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

constexpr std::uint64_t kSharing = CLONE_VM | CLONE_VFORK;

// The child comes back from the system call on its own, empty stack: it must not go on
// in this function, whose frame is ours, so it jumps to run() at once.
long clone3_into(clone_args& args, const Start& start) {
  long result = 0;  // NOLINT(misc-const-correctness): written by the assembly below
  register const Start* start_register asm("r12") = &start;
  register void (*run_register)(const Start*) asm("r13") = &run;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "mov %%r12, %%rdi\n\t"
      "call *%%r13\n\t"
      "hlt\n"
      "1:"
      : "=a"(result)
      : "a"(SYS_clone3), "D"(&args), "S"(sizeof args), "r"(start_register), "r"(run_register)
      : "rcx", "r11", "memory", "cc");
  return result;
}

#else

constexpr std::uint64_t kSharing = 0;

long clone3_into(clone_args& args, const Start& start) {
  const long result = ::syscall(SYS_clone3, &args, sizeof args);
  if (result == 0) run(&start);
  return result < 0 ? -errno : result;
}

#endif

}  // namespace

Cloned clone_process(int cgroup, ChildMain child, const void* argument, std::size_t stack_size) {
  Cloned cloned;
  Start start{child, argument, cgroup >= 0};
  int pidfd = -1;
  clone_args args{};
  args.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
  args.exit_signal = SIGCHLD;
  void* stack = nullptr;
  if (kSharing != 0) {
    stack = ::mmap(nullptr, stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) return cloned;
    args.stack = reinterpret_cast<std::uintptr_t>(stack);
    args.stack_size = stack_size;
  }
  if (cgroup >= 0) {
    args.flags = kSharing | CLONE_PIDFD | CLONE_INTO_CGROUP;
    args.cgroup = static_cast<std::uint64_t>(cgroup);
    cloned.pid = clone3_into(args, start);
    cloned.in_cgroup = cloned.pid > 0;
  }
  if (cloned.pid < 0) {
    start.in_cgroup = false;
    args.flags = kSharing | CLONE_PIDFD;
    args.cgroup = 0;
    cloned.pid = clone3_into(args, start);
  }
  const long why = cloned.pid;
  if (stack != nullptr) ::munmap(stack, stack_size);
  if (cloned.pid > 0) {
    cloned.pidfd = Fd(pidfd);
    return cloned;
  }
  if (why != -ENOSYS && why != -EPERM) {
    errno = static_cast<int>(-why);
    cloned.pid = -1;
    return cloned;
  }
  // Sandboxes often forbid clone3. Our child is not reaped yet, so its pid is its own.
  cloned.pid = ::fork();
  if (cloned.pid == 0) run(&start);
  if (cloned.pid > 0) cloned.pidfd = Fd(static_cast<int>(::syscall(SYS_pidfd_open, cloned.pid, 0)));
  return cloned;
}

}  // namespace lull
