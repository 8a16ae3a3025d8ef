// The last look before SIGKILL of a tree, on a real process that does not mind SIGTERM.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "act/actions.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
using Answer = std::function<void(bool)>;

class EndTreeTest : public testing::Test {
 protected:
  EndTreeTest() {
    int ready[2] = {-1, -1};
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::signal(SIGTERM, SIG_IGN);
      (void)!::write(ready[1], "x", 1);
      while (true) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~EndTreeTest() override {
    ::kill(pid_, SIGKILL);
    if (!reaped_) ::waitpid(pid_, nullptr, 0);
  }

  // What came of it; nothing: it was still waiting after `limit`.
  std::optional<Outcome> end(const Action::LastLook& last_look, Duration limit = 30s) {
    const Process root = *Process::open(pid_);
    const Tree tree = Tree::of_job(root, nullptr, {});
    std::optional<Outcome> outcome;
    EndTree action(*loop_, "end the job", {.grace = 100ms}, tree, root, [this] { reap(); });
    action.ask_before_kill(last_look);
    loop_->in(Duration::zero(), [&] {
      action.start(
          {},
          [&](const Outcome& end) {
            outcome = end;
            loop_->stop();
          },
          [&](const News& news) {
            killed_ |= std::holds_alternative<Killing>(news);
            works_again_ |= std::holds_alternative<WorksAgain>(news);
          });
    });
    loop_->in(limit, [&] { loop_->stop(); });
    EXPECT_TRUE(loop_->run());
    return outcome;
  }
  void reap() { reaped_ = reaped_ || ::waitpid(pid_, nullptr, WNOHANG) == pid_; }

  const SystemClock clock_;
  std::unique_ptr<Loop> loop_ = *Loop::create(clock_);
  pid_t pid_ = 0;
  bool reaped_ = false;
  bool killed_ = false;
  bool works_again_ = false;
};

TEST_F(EndTreeTest, WhoWorksAgainIsNotKilled) {
  int asked = 0;
  const auto outcome = end([&](const Answer& answer) {
    ++asked;
    loop_->in(10ms, [answer] { answer(true); });
  });
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->called_off && works_again_ && !killed_);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(::waitpid(pid_, nullptr, WNOHANG), 0);  // it lives
}

TEST_F(EndTreeTest, WhoDoesNotIsKilled) {
  const auto outcome = end([&](const Answer& answer) { loop_->in(10ms, [answer] { answer(false); }); });
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->ok && !outcome->called_off && killed_ && !works_again_);
}

TEST_F(EndTreeTest, AnAnswerMayComeAtOnce) {
  const auto spared = end([](const Answer& answer) { answer(true); });
  ASSERT_TRUE(spared);
  EXPECT_TRUE(spared->called_off && !killed_);
  const auto killed = end([](const Answer& answer) { answer(false); });
  ASSERT_TRUE(killed);
  EXPECT_TRUE(killed->ok && killed_);
}

// While nobody has answered, nobody is killed: until the look has taken too long (kLongestLastLook).
TEST_F(EndTreeTest, NobodyIsKilledBeforeTheAnswer) {
  EXPECT_FALSE(end([](const Answer&) {}, 2s));
  EXPECT_FALSE(killed_);
  EXPECT_EQ(::waitpid(pid_, nullptr, WNOHANG), 0);
}

}  // namespace
}  // namespace lull
