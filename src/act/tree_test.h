#pragma once
// For tests of process trees: a job of processes that the test makes, with and without a
// cgroup of its own.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>

#include "act/cgroup.h"
#include "act/children.h"
#include "act/tree.h"

namespace lull {

// Children that a test makes write one byte when they stand; and hold the pipe
// open as long as they live, so that its end is the proof that all are gone.
class TreeTest : public testing::TestWithParam<bool> {
 protected:
  TreeTest() {
    EXPECT_TRUE(Children::become_subreaper());
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_ = Fd(ends[0]);
    write_ = Fd(ends[1]);
    if (GetParam()) {
      auto made = Cgroup::create();
      if (made) cgroup_ = *std::move(made);
    }
  }
  ~TreeTest() override {
    cgroup_.remove();
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  }

  bool lacks_cgroup() const { return GetParam() && !cgroup_; }

  void start(const std::function<void()>& job) {
    earlier_ = own_children();
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (cgroup_) (void)cgroup_.move_here(::getpid());
      job();
      ::_exit(0);
    }
    root_ = *Process::open(pid);
    children_.expect(root_, [this](const ExitStatus& status) { status_ = status; });
  }
  // One process, deaf to SIGTERM.
  void start_one_that_stays();
  void ready() const { (void)!::write(write_.get(), "x", 1); }
  void wait_ready(int count) {
    char byte = 0;
    for (int i = 0; i < count; ++i) {
      pollfd one{.fd = read_.get(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(::poll(&one, 1, 20'000), 1) << "only " << i << " of " << count << " processes came up";
      ASSERT_EQ(::read(read_.get(), &byte, 1), 1);
    }
  }
  // All writers are gone: the pipe says end of file.
  bool all_gone(int milliseconds) {
    write_.reset();
    pollfd one{.fd = read_.get(), .events = POLLIN, .revents = 0};
    char byte = 0;
    while (::poll(&one, 1, milliseconds) == 1)
      if (::read(read_.get(), &byte, 1) == 0) return true;
    return false;
  }
  Tree tree() const { return Tree::of_job(root_, cgroup_ ? &cgroup_ : nullptr, earlier_); }

  Duration finish(Ending& ending) {
    const Instant begin = clock_.now();
    while (const auto next = ending.step(clock_.now())) {
      children_.sweep();
      std::this_thread::sleep_for(*next - clock_.now());
    }
    const Duration took = clock_.now() - begin;
    children_.sweep();
    return took;
  }

  SystemClock clock_;
  Fd read_;
  Fd write_;
  Cgroup cgroup_;
  Process root_;
  std::set<ProcessId> earlier_;
  Children children_;
  std::optional<ExitStatus> status_;
};

inline void ignore_term() { ::signal(SIGTERM, SIG_IGN); }
[[noreturn]] inline void wait_for_ever() {
  ::alarm(60);  // whatever happens to the test, nothing stays behind
  for (;;) ::pause();
}

inline void TreeTest::start_one_that_stays() {
  start([&] {
    ignore_term();
    ready();
    wait_for_ever();
  });
  wait_ready(1);
}

}  // namespace lull
