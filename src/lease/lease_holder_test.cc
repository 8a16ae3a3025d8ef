#include "lease/lease_holder.h"

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

// A lease holder for a real process that closes all it inherited.
TEST_F(Lease, TheLeaseHolderKeepsTheLeaseWhileTheProcessLives) {
  const LeaseFolder leases = folder();
  std::optional<LeaseHolder> lease_holder = must(LeaseHolder::start(leases));
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
  must(lease_holder->keep_while(process.fd(), {&file, 1}));
  file.fd.reset();
  EXPECT_EQ(must(read_leases(place_)).size(), 1U);
  const Process keeping = must(Process::open(lease_holder->pid()));
  lease_holder.reset();  // its parent has nothing more to say
  ::close(hold[1]);      // the job ends
  pollfd ended{keeping.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 20000), 1);  // and the lease holder with it
  EXPECT_TRUE(files().empty());
  ::waitpid(job, nullptr, 0);
}

// What is slow to close is closed by the lease holder and not by us, and not only when the job has ended.
TEST_F(Lease, TheLeaseHolderClosesWhatIsSlowToClose) {
  const LeaseFolder leases = folder();
  std::optional<LeaseHolder> lease_holder = must(LeaseHolder::start(leases));
  must(lease_holder->stand_by());
  std::array<int, 2> slow{};
  ASSERT_EQ(::pipe2(slow.data(), O_CLOEXEC), 0);
  const Fd end(slow[0]);
  const Process keeping = must(Process::open(lease_holder->pid()));
  ASSERT_EQ(::kill(lease_holder->pid(), SIGSTOP), 0);
  lease_holder->close_for_us(Fd(slow[1]));
  pollfd closed{end.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&closed, 1, 0), 0) << "we closed it";
  ASSERT_EQ(::kill(lease_holder->pid(), SIGCONT), 0);
  const Process us = must(Process::open(::getpid()));
  must(lease_holder->keep_while(us.fd(), {}));
  lease_holder.reset();
  EXPECT_EQ(::poll(&closed, 1, 20000), 1);
  pollfd ended{keeping.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 0), 0) << "the job still runs, and its lease holder with it";
  must(keeping.signal(SIGTERM));
}

TEST_F(Lease, TheLeaseHolderEndsWhenItsParentGivesUp) {
  const LeaseFolder leases = folder();
  std::optional<LeaseHolder> lease_holder = must(LeaseHolder::start(leases));
  {
    const LockedFile dead = must(leases.take(must(leases.enter()), record("GPU-1")));
  }
  const Process handle = must(Process::open(lease_holder->pid()));
  lease_holder.reset();
  pollfd ended{handle.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 20000), 1);
  EXPECT_TRUE(files().empty());
}

// Who reads what a job writes until the job has ended must not wait for its lease holder.
TEST_F(Lease, TheLeaseHolderKeepsNoOutputOpen) {
  const LeaseFolder leases = folder();
  std::array<int, 2> output{};
  ASSERT_EQ(::pipe2(output.data(), O_CLOEXEC), 0);
  const Fd end(output[0]);
  Fd begin(output[1]);
  const Fd ours(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10));
  ASSERT_EQ(::dup2(begin.get(), STDOUT_FILENO), STDOUT_FILENO);
  auto lease_holder = LeaseHolder::start(leases);
  ::dup2(ours.get(), STDOUT_FILENO);
  begin.reset();
  ASSERT_TRUE(lease_holder);
  must(lease_holder->stand_by());
  pollfd closed{end.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&closed, 1, 20000), 1);
  EXPECT_NE(closed.revents & POLLHUP, 0);
}

TEST_F(Lease, AHoldEndsByItself) {
  const LeaseFolder leases = folder();
  std::optional<LeaseHolder> lease_holder = must(LeaseHolder::start(leases));
  const Process handle = must(Process::open(lease_holder->pid()));
  LockedFile file = must(leases.take(must(leases.enter()), record("GPU-1")));
  must(lease_holder->keep_for(300ms, {&file, 1}));
  file.fd.reset();
  lease_holder.reset();
  EXPECT_EQ(must(read_leases(place_)).size(), 1U);
  pollfd ended{handle.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 20000), 1);
  EXPECT_TRUE(must(read_leases(place_)).empty());
}

}  // namespace
}  // namespace lull
