#include "base/process_start.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <new>

namespace lull {
namespace {

using namespace std::chrono_literals;

bool ends_within(const Process& process, int milliseconds) {
  pollfd one{.fd = process.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, milliseconds) == 1;
}

void expect_no_child() {
  errno = 0;
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child was left behind";
  EXPECT_EQ(errno, ECHILD);
}

[[noreturn]] void hang() {
  for (;;) ::pause();
}

// A robust mutex in memory that all our processes share, as a driver's library may have one.
class SharedLock {
 public:
  SharedLock() {
    void* memory = ::mmap(nullptr, sizeof(pthread_mutex_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    lock_ = new (memory) pthread_mutex_t;
    pthread_mutexattr_t attributes;
    ::pthread_mutexattr_init(&attributes);
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    ::pthread_mutex_init(lock_, &attributes);
  }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;
  ~SharedLock() { ::munmap(lock_, sizeof(pthread_mutex_t)); }
  int take() { return ::pthread_mutex_lock(lock_); }
  int take_within(int seconds) {
    timespec end{};
    ::clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += seconds;
    return ::pthread_mutex_timedlock(lock_, &end);
  }

 private:
  pthread_mutex_t* lock_;
};

TEST(ProcessStart, LockOfAKilledChildIsGivenBack) {
  SharedLock lock;
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd from(ends[0]);
  const Fd to(ends[1]);
  const auto hold = [&] {
    if (lock.take() == 0) (void)!::write(to.get(), "x", 1);
    hang();
  };
  char taken = 0;
  auto child = start_child(hold);
  ASSERT_TRUE(child);
  ASSERT_EQ(::read(from.get(), &taken, 1), 1);
  ASSERT_TRUE(child->signal(SIGKILL));
  EXPECT_EQ(lock.take_within(10), EOWNERDEAD);
  EXPECT_TRUE(wait_for_child(child->pid(), 10s));
}

TEST(ProcessStart, ChildsStatusIsKnownWhoeverReapsIt) {
  auto one = start_child([] { ::_exit(7); });
  ASSERT_TRUE(one);
  ASSERT_TRUE(ends_within(*one, 10'000));
  EXPECT_EQ(reap(*one), (ExitStatus{.code = 7}));
  EXPECT_EQ(reap(*one), std::nullopt) << "once";
  auto other = start_child([] { hang(); });
  ASSERT_TRUE(other);
  EXPECT_EQ(reap(*other), std::nullopt) << "it runs";
  ASSERT_TRUE(other->signal(SIGKILL));
  int status = 0;
  ASSERT_EQ(::waitpid(other->pid(), &status, 0), other->pid());
  EXPECT_TRUE(keep_status(other->pid(), {.signal = SIGKILL}));
  EXPECT_FALSE(keep_status(other->pid(), {.signal = SIGKILL})) << "the number may be somebody else's by now";
  EXPECT_EQ(reap(*other), (ExitStatus{.signal = SIGKILL}));
  EXPECT_FALSE(keep_status(::getpid(), {}));
}

TEST(ProcessStart, ChildIsGoneWithItsParentUnlessItOutlivesIt) {
  for (const bool outlives : {false, true}) {
    auto pids = start_apart([&](const Fd& socket) {
      auto child = start_child([] { hang(); }, outlives);
      const pid_t pid = child ? child->pid() : -1;
      (void)!::write(socket.get(), &pid, sizeof pid);
      char closed = 0;
      (void)!::read(socket.get(), &closed, 1);  // until the other end is closed
    });
    ASSERT_TRUE(pids);
    pid_t pid = 0;
    ASSERT_EQ(::read(pids->socket.get(), &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
    const auto child = Process::open(pid);
    pids->socket.reset();
    if (outlives) {
      ASSERT_TRUE(child);
      EXPECT_TRUE(ends_within(pids->process, 10'000));
      EXPECT_FALSE(child->ended());
      (void)child->signal(SIGKILL);
    } else if (child) {
      EXPECT_TRUE(ends_within(*child, 10'000));
    }
  }
}

TEST(ProcessStart, ApartIsNobodysChildAndItsHandleIsItsOwn) {
  auto apart = start_apart([](const Fd& socket) {
    const pid_t us = ::getpid();
    (void)!::write(socket.get(), &us, sizeof us);
    hang();
  });
  ASSERT_TRUE(apart);
  expect_no_child();
  pid_t pid = 0;
  ASSERT_EQ(::read(apart->socket.get(), &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  EXPECT_EQ(pid, apart->process.pid());
  const auto entry = read_process_entry(pid);
  ASSERT_TRUE(entry);
  EXPECT_TRUE(is_own_process(pid, entry->start_ticks)) << "it is no part of a job";
  ASSERT_TRUE(apart->process.signal(SIGKILL));
  EXPECT_TRUE(ends_within(apart->process, 10'000));
}

TEST(ProcessStart, ApartEndsWhenTheOtherEndCloses) {
  auto apart = start_apart([](const Fd& socket) {
    end_with(socket.get());
    ::kill(::getpid(), SIGSTOP);  // none of its threads can run
    hang();
  });
  ASSERT_TRUE(apart);
  apart->socket.reset();
  EXPECT_TRUE(ends_within(apart->process, 10'000));
}

TEST(ProcessStart, WithoutDescriptorsNothingIsLeftBehind) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer looks at memory through descriptors, and there are none";
#endif
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    int wrong = 0;
    // From none to enough: each descriptor that is made on the way is missing once. (UBSan needs some for itself.)
    for (rlim_t more = 0; more < 6; ++more) {
      const Fd lowest(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      const rlimit limit{static_cast<rlim_t>(lowest.get()) + more, 1024};
      ::setrlimit(RLIMIT_NOFILE, &limit);
      const auto one = start_child([] { hang(); });
      auto two = start_apart([](const Fd& socket) {
        end_with(socket.get());
        hang();
      });
      if (!one && one.error().errno_value == 0) ++wrong;
      if (!two && two.error().errno_value == 0) ++wrong;
      if (one) (void)one->signal(SIGKILL);
      if (two) (void)two->process.signal(SIGKILL);
      const rlimit all{1024, 1024};
      ::setrlimit(RLIMIT_NOFILE, &all);
      // All end; a wait that finds one running for ever fails the test by its alarm.
      ::alarm(20);
      while (::waitpid(-1, nullptr, 0) > 0) {
      }
      ::alarm(0);
    }
    ::_exit(wrong);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ProcessStart, ProgramIsNobodysChildAndHasWhatItWasGiven) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd from(ends[0]);
  Fd to(ends[1]);
  const std::array given = {to.get()};
  auto program = start_program({"/bin/sh", {"sh", "-c", "echo $WORD >&3"}, {"WORD=here"}}, given);
  ASSERT_TRUE(program);
  expect_no_child();
  to.reset();
  std::array<char, 16> text{};
  EXPECT_EQ(::read(from.get(), text.data(), text.size()), 5);
  EXPECT_STREQ(text.data(), "here\n");
  EXPECT_TRUE(ends_within(*program, 10'000));
  const auto missing = start_program({"/no/such/program", {"x"}, {}}, {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().errno_value, ENOENT);
  expect_no_child();
}

TEST(ProcessStart, WaitingForAChildHasALimit) {
  const pid_t child = ::fork();
  if (child == 0) hang();
  EXPECT_FALSE(wait_for_child(child, 50ms));
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_TRUE(wait_for_child(child, 10s, &status));
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(ProcessStart, ClosesAllDescriptorsButThoseThatAreKept) {
  auto apart = start_apart([](const Fd& socket) {
    const int spare = ::fcntl(socket.get(), F_DUPFD, 40);
    close_all_but({spare, -1, socket.get()});
    std::string left;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      left += entry.path().filename().string() + " ";
    (void)!::write(socket.get(), left.data(), left.size());
  });
  ASSERT_TRUE(apart);
  std::array<char, 256> text{};
  const ssize_t got = ::read(apart->socket.get(), text.data(), text.size());
  ASSERT_GT(got, 0);
  EXPECT_EQ(std::count(text.begin(), text.begin() + got, ' '), 3) << text.data();  // with the listing itself
}

}  // namespace
}  // namespace lull
