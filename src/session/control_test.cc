#include "session/control.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "session/control_place.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

class ControlTest : public testing::Test {
 protected:
  ControlTest() {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    ::setenv("LULL_CONTROL", folder_.c_str(), 1);
  }
  ~ControlTest() override {
    ::unsetenv("LULL_CONTROL");
    std::filesystem::remove_all(folder_);
  }
  std::string folder_ = testing::TempDir() + "/control-XXXXXX";
};

// A watcher that has as many callers as it takes is asked again until the limit.
TEST_F(ControlTest, AFullQueueIsTriedAgain) {
  const auto watcher = make_socket(ControlOf::watch);
  ASSERT_TRUE(watcher) << watcher.error().message();
  std::vector<Fd> others;
  int why = 0;
  while (why == 0 && others.size() < 1000) {
    others.push_back(new_socket());
    why = connect_to(others.back().get(), watcher->folder.get(), watcher->name);
  }
  ASSERT_EQ(why, EAGAIN);
  const auto us = ::gettid();
  std::atomic<bool> over = false;
  std::jthread answers([&] {
    // We wait by now, since the queue is full.
    const std::string file = fmt::format("/proc/self/task/{}/syscall", us);
    while (!over && !read_file(file).value_or("").starts_with(std::to_string(SYS_poll) + " "))
      std::this_thread::yield();
    std::vector<Fd> callers;
    while (!over) {
      pollfd one{.fd = watcher->fd.get(), .events = POLLIN, .revents = 0};
      if (::poll(&one, 1, 5) != 1) continue;
      callers.emplace_back(::accept4(watcher->fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
      (void)!::send(callers.back().get(), "yes", 3, MSG_NOSIGNAL);
    }
  });
  const std::vector<Reply> replies = ask_all(ControlOf::watch, {}, 10s);
  over = true;
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].line, "yes");
  EXPECT_EQ(replies[0].watcher, std::to_string(::getpid()));
}

TEST_F(ControlTest, NobodyIsAskedWhereAWatcherWasKilled) {
  {
    const auto killed = make_socket(ControlOf::watch);
  }
  EXPECT_TRUE(ask_all(ControlOf::watch, {}, 10s).empty());
}

}  // namespace
}  // namespace lull
