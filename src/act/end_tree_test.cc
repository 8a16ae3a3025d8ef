// The last look before SIGKILL of a tree, on a real process that does not mind SIGTERM.

#include <gtest/gtest.h>

#include "act/actions.h"
#include "act/child_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
using Answer = std::function<void(bool)>;

class EndTreeTest : public testing::Test {
 protected:
  // What came of it; nothing: it was still waiting after `limit`.
  std::optional<Outcome> end(const Action::LastLook& last_look, Duration limit = 30s) {
    const Process root = *Process::open(child_.pid);
    const Tree tree = Tree::of_job(root, nullptr, {});
    std::optional<Outcome> outcome;
    EndTree action(*loop_, "end the job", {.grace = 100ms}, tree, root, [this] { child_.ended_by(); });
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

  const SystemClock clock_;
  std::unique_ptr<Loop> loop_ = *Loop::create(clock_);
  Child child_{true};
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
  EXPECT_EQ(child_.ended_by(), 0);
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
  EXPECT_EQ(child_.ended_by(), 0);
}

}  // namespace
}  // namespace lull
