#pragma once
// For tests that end processes: a child that sleeps, or one that does not mind SIGTERM. It is gone with this object.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace lull {

class Child {
 public:
  explicit Child(bool stubborn = false) {
    int ready[2] = {-1, -1};
    EXPECT_EQ(::pipe(ready), 0);
    pid = ::fork();
    if (pid == 0) {
      if (stubborn) ::signal(SIGTERM, SIG_IGN);
      (void)!::write(ready[1], "x", 1);
      while (true) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Child() {
    if (reaped_) return;  // the number may be somebody else's by now
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The signal that ended it; 0: it lives.
  int ended_by() {
    if (!reaped_) reaped_ = ::waitpid(pid, &status_, WNOHANG) == pid;
    return reaped_ && WIFSIGNALED(status_) ? WTERMSIG(status_) : 0;
  }
  pid_t pid = 0;

 private:
  int status_ = 0;
  bool reaped_ = false;
};

}  // namespace lull
