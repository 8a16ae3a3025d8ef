#include "session/control.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

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
  // The first there is.
  std::filesystem::path socket_file() const {
    for (const auto& one : std::filesystem::recursive_directory_iterator(folder_))
      if (one.is_socket()) return one.path();
    return {};
  }
  std::string folder_ = testing::TempDir() + "/control-XXXXXX";
  SystemClock clock_;
  std::unique_ptr<Loop> loop_ = *Loop::create(clock_);
};

// A watcher that has as many callers as it takes is asked again until the limit.
TEST_F(ControlTest, AFullQueueIsTriedAgain) {
  const auto watcher = Control::listen(*loop_, ControlOf::watch, [](const std::string&) { return "yes"; });
  ASSERT_TRUE(watcher) << watcher.error().message();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(socket_file().string().copy(address.sun_path, sizeof address.sun_path), sizeof address.sun_path);
  std::vector<Fd> others;
  int why = 0;
  while (why == 0 && others.size() < 1000) {
    others.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(others.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) why = errno;
  }
  ASSERT_EQ(why, EAGAIN);
  const auto us = ::gettid();
  std::atomic<bool> over = false;
  std::jthread answers([&] {
    // We wait by now, since the queue is full.
    const std::string file = fmt::format("/proc/self/task/{}/syscall", us);
    const auto waits = [&] {
      const std::string call = read_file(file).value_or("");
      return call.starts_with(fmt::format("{} ", SYS_epoll_wait)) ||
             call.starts_with(fmt::format("{} ", SYS_epoll_pwait));
    };
    while (!over && !waits()) std::this_thread::yield();
    while (!over) {
      loop_->in(5ms, [&] { loop_->stop(); });
      (void)loop_->run();
    }
  });
  const std::vector<Reply> replies = ask_all(ControlOf::watch, {}, 10s);
  over = true;
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].line, "yes");
  EXPECT_EQ(replies[0].watcher, std::to_string(::getpid()));
}

TEST_F(ControlTest, AnAnswerStaysWhileAnotherIsWaitedFor) {
  const auto watcher = Control::listen(*loop_, ControlOf::watch, [](const std::string&) { return "yes"; });
  ASSERT_TRUE(watcher) << watcher.error().message();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string silent = socket_file().parent_path() / "watch.2.0";
  ASSERT_LT(silent.copy(address.sun_path, sizeof address.sun_path), sizeof address.sun_path);
  const Fd other(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(other.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(other.get(), 4), 0);
  std::vector<Reply> replies;
  const Asking asking(
      *loop_, ControlOf::watch, "",
      [&](const std::vector<Reply>& all) {
        replies = all;
        loop_->stop();
      },
      200ms);
  ASSERT_TRUE(loop_->run());
  ASSERT_EQ(replies.size(), 2U);
  for (const Reply& reply : replies) EXPECT_EQ(reply.line, reply.watcher == "2" ? "no answer" : "yes");
}

TEST_F(ControlTest, NobodyIsAskedWhereAWatcherWasKilled) {
  {
    const auto killed = Control::listen(*loop_, ControlOf::watch, [](const std::string&) { return "yes"; });
    ASSERT_TRUE(killed);
    std::filesystem::create_hard_link(socket_file(), socket_file().string() + "left");  // it takes its own away
  }
  ASSERT_FALSE(socket_file().empty());
  EXPECT_TRUE(ask_all(ControlOf::watch, {}, 10s).empty());
}

}  // namespace
}  // namespace lull
