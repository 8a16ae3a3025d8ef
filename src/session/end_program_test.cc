// lull-end as Python's lull.watch(do="kill") starts it: it asks for a confirmation and acts by it, once, if the offer
// still stands.

#include "session/end_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

class EndProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    target_ = ::fork();
    if (target_ == 0) {
      ::alarm(120);
      for (;;) ::pause();
    }
    std::array<int, 2> ends = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    line_ = Fd(ends[0]);
    const Fd far(ends[1]);
    const Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, target_, 0)));
    program_ = ::fork();
    if (program_ != 0) return;
    std::array<int, 3> given = {handle.get(), far.get(), offer_.fd()};
    for (int& one : given) one = ::fcntl(one, F_DUPFD, 10);
    line_.reset();
    for (int i = 0; i < 3; ++i) ::dup2(given[static_cast<std::size_t>(i)], 3 + i);
    std::vector<std::string> words = {"lull-end", std::to_string(target_), "0ms", "10s", "util < 1", "", "unknown",
                                      "ask"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    ::_exit(end_program(static_cast<int>(argv.size()), argv.data(), [](const std::string&) {}).status);
  }
  void TearDown() override {
    line_.reset();
    for (const pid_t pid : {program_, target_}) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  // The next word that it says; 0: it says nothing.
  char hear() const {
    pollfd ready{line_.get(), POLLIN, 0};
    char word = 0;
    return ::poll(&ready, 1, 60'000) == 1 && ::recv(line_.get(), &word, 1, 0) == 1 ? word : '\0';
  }
  void confirm() const {
    const std::int64_t until = (SystemClock().now() + 60s).time_since_epoch().count();
    EXPECT_EQ(::send(line_.get(), &until, sizeof until, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof until));
  }

  SharedOffer offer_ = *SharedOffer::make();
  Fd line_;
  pid_t target_ = -1;
  pid_t program_ = -1;
};

TEST_F(EndProgramTest, WhatWasWithdrawnAfterTheConfirmationIsNotDone) {
  ASSERT_EQ(hear(), 'c');
  offer_.put();
  EXPECT_TRUE(offer_.withdraw());
  confirm();  // it came just before that
  EXPECT_EQ(hear(), 'c') << "another one, please";
  EXPECT_EQ(::waitpid(target_, nullptr, WNOHANG), 0) << "it lives";
}

TEST_F(EndProgramTest, WhatIsConfirmedAndOfferedIsDoneOnce) {
  ASSERT_EQ(hear(), 'c');
  offer_.put();
  confirm();
  EXPECT_EQ(hear(), 's');
  EXPECT_FALSE(offer_.withdraw());
  int status = 0;
  EXPECT_EQ(::waitpid(target_, &status, 0), target_);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

TEST_F(EndProgramTest, WhereItsStarterHangsUpNothingIsDone) {
  ASSERT_EQ(hear(), 'c');
  offer_.put();
  line_.reset();
  int status = 0;
  EXPECT_EQ(::waitpid(program_, &status, 0), program_);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(::waitpid(target_, nullptr, WNOHANG), 0) << "it lives";
}

}  // namespace
}  // namespace lull
