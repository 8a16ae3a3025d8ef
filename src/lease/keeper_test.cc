#include "lease/keeper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <optional>

#include "base/process.h"
#include "lease/folder_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// A keeper for a real process that closes all it inherited.
TEST_F(Lease, TheKeeperHoldsWhileTheProcessLives) {
  const LeaseFolder leases = folder();
  std::optional<Keeper> keeper = must(Keeper::start(leases));
  std::array<int, 2> hold{};
  ASSERT_EQ(::pipe2(hold.data(), O_CLOEXEC), 0);
  LockedFile file = must(leases.take(must(leases.enter()), record("GPU-1")));
  const pid_t job = ::fork();
  if (job == 0) {
    ::close(file.fd.get());
    ::close(hold[1]);
    char byte = 0;
    (void)!::read(hold[0], &byte, 1);
    ::_exit(0);
  }
  ::close(hold[0]);
  const Process process = must(Process::open(job));
  must(keeper->keep_while(process.fd(), {&file, 1}));
  file.fd.reset();
  EXPECT_EQ(must(read_leases(place_)).size(), 1U);
  const Process keeping = must(Process::open(keeper->pid()));
  keeper.reset();    // its parent has nothing more to say
  ::close(hold[1]);  // the job ends
  pollfd ended{keeping.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 20000), 1);  // and the keeper with it
  EXPECT_TRUE(files().empty());
  ::waitpid(job, nullptr, 0);
}

// What is slow to close is closed by the keeper and not by us, and not only when the job has ended.
TEST_F(Lease, TheKeeperClosesWhatIsSlowToClose) {
  const LeaseFolder leases = folder();
  std::optional<Keeper> keeper = must(Keeper::start(leases));
  must(keeper->stand_by());
  std::array<int, 2> slow{};
  ASSERT_EQ(::pipe2(slow.data(), O_CLOEXEC), 0);
  const Fd end(slow[0]);
  const Process keeping = must(Process::open(keeper->pid()));
  ASSERT_EQ(::kill(keeper->pid(), SIGSTOP), 0);
  keeper->close_for_us(Fd(slow[1]));
  pollfd closed{end.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&closed, 1, 0), 0) << "we closed it";
  ASSERT_EQ(::kill(keeper->pid(), SIGCONT), 0);
  const Process us = must(Process::open(::getpid()));
  must(keeper->keep_while(us.fd(), {}));
  keeper.reset();
  EXPECT_EQ(::poll(&closed, 1, 20000), 1);
  pollfd ended{keeping.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 0), 0) << "the job still runs, and its keeper with it";
  must(keeping.signal(SIGTERM));
}

TEST_F(Lease, TheKeeperEndsWhenItsParentGivesUp) {
  const LeaseFolder leases = folder();
  std::optional<Keeper> keeper = must(Keeper::start(leases));
  {
    const LockedFile dead = must(leases.take(must(leases.enter()), record("GPU-1")));
  }
  const Process handle = must(Process::open(keeper->pid()));
  keeper.reset();
  pollfd ended{handle.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 20000), 1);
  EXPECT_TRUE(files().empty());
}

TEST_F(Lease, AHoldEndsByItself) {
  const LeaseFolder leases = folder();
  std::optional<Keeper> keeper = must(Keeper::start(leases));
  const Process handle = must(Process::open(keeper->pid()));
  LockedFile file = must(leases.take(must(leases.enter()), record("GPU-1")));
  must(keeper->keep_for(300ms, {&file, 1}));
  file.fd.reset();
  keeper.reset();
  EXPECT_EQ(must(read_leases(place_)).size(), 1U);
  pollfd ended{handle.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 20000), 1);
  EXPECT_TRUE(must(read_leases(place_)).empty());
}

}  // namespace
}  // namespace lull
