// What is asked right before each signal to a tree, on a real process that does not mind SIGTERM.

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "act/actions.h"
#include "act/child_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
using Answer = std::function<void(Truth)>;

class EndTreeTest : public testing::Test {
 protected:
  // What came of it; nothing: it was still waiting after `limit`.
  std::optional<Outcome> end(const Action::PreKillCheck& pre_kill_check, Duration limit = 30s,
                             const Action::Leave& leave = {}, int signal = SIGTERM) {
    const Process root = *Process::open(child_.pid);
    const Tree tree = Tree::of_job(root, nullptr, {});
    std::optional<Outcome> outcome;
    EndTree action(*loop_, "end the job", {.signal = signal, .grace = 100ms}, tree, root,
                   [this] { child_.ended_by(); });
    action.ask_before_kill(pre_kill_check);
    action.ask_before_acting(leave);
    loop_->in(Duration::zero(), [&] {
      action.start(
          {},
          [&](const Outcome& end) {
            outcome = end;
            loop_->stop();
          },
          [&](const ActionEvent& action_event) {
            killed_ |= std::holds_alternative<Killing>(action_event);
            works_again_ |= std::holds_alternative<WorksAgain>(action_event);
            gone_ += static_cast<int>(std::holds_alternative<TreeGone>(action_event));
            waits_ += static_cast<int>(std::holds_alternative<KillWaits>(action_event));
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
  int gone_ = 0;
  int waits_ = 0;
};

// What became of a child of root's, told by a process that `hinders` itself first: 0, or which of these went wrong.
template <class Told>
int end_hindered(const std::function<bool()>& hinder, const std::string& trouble) {
  const Child child(true);
  const pid_t other = ::fork();
  if (other == 0) {
    if (!hinder()) ::_exit(77);
    const SystemClock clock;
    const auto loop = *Loop::create(clock);
    const Process root = *Process::open(child.pid);
    const Tree tree = Tree::of_process(root);
    EndTree action(*loop, "end the job", {.grace = 20ms, .give_up = 50ms}, tree, root, [] {});
    std::optional<Outcome> outcome;
    int told = 0;
    int gone = 0;
    loop->in(Duration::zero(), [&] {
      action.start(
          {},
          [&](const Outcome& end) {
            outcome = end;
            action.look();  // whoever is told may: there is nothing to look at any more
            loop->stop();
          },
          [&](const ActionEvent& action_event) {
            told += static_cast<int>(std::holds_alternative<Told>(action_event));
            gone += static_cast<int>(std::holds_alternative<TreeGone>(action_event));
          });
    });
    loop->in(30s, [&] { loop->stop(); });
    if (!loop->run() || !outcome) ::_exit(2);
    ::_exit(outcome->ok ? 3 : told != 1 ? 4 : gone != 0 ? 5 : outcome->trouble.starts_with(trouble) ? 0 : 6);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(other, &status, 0), other);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(EndTreeTest, WhoWorksAgainIsNotKilled) {
  int asked = 0;
  const auto outcome = end([&](const Answer& answer) {
    ++asked;
    loop_->in(10ms, [answer] { answer(Truth::yes); });
  });
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->called_off && works_again_ && !killed_);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(gone_, 0);
  EXPECT_EQ(child_.ended_by(), 0);
}

TEST_F(EndTreeTest, WhoDoesNotIsKilled) {
  const auto outcome = end([&](const Answer& answer) { loop_->in(10ms, [answer] { answer(Truth::no); }); });
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->ok && !outcome->called_off && killed_ && !works_again_);
  EXPECT_EQ(gone_, 1);
}

TEST_F(EndTreeTest, AnAnswerMayComeAtOnce) {
  const auto spared = end([](const Answer& answer) { answer(Truth::yes); });
  ASSERT_TRUE(spared);
  EXPECT_TRUE(spared->called_off && !killed_);
  const auto killed = end([](const Answer& answer) { answer(Truth::no); });
  ASSERT_TRUE(killed);
  EXPECT_TRUE(killed->ok && killed_);
}

// While nobody has answered, nobody is killed.
TEST_F(EndTreeTest, NobodyIsKilledBeforeTheAnswer) {
  EXPECT_FALSE(end([](const Answer&) {}, 2s));
  EXPECT_FALSE(killed_);
  EXPECT_EQ(child_.ended_by(), 0);
}

// Nor while the answer is that nobody can see what it does: it is asked again, and said once.
TEST_F(EndTreeTest, NobodyIsKilledWhileNobodyCanTellWhetherItWorks) {
  int asked = 0;
  const auto outcome = end([&](const Answer& answer) {
    ++asked;
    loop_->in(10ms, [&, answer] { answer(asked < 5 ? Truth::unknown : Truth::no); });
  });
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->ok && killed_);
  EXPECT_EQ(asked, 5);
  EXPECT_EQ(waits_, 1);
}

// We were stopped between the confirmation and the signal: it is confirmed again, once we know to whom it goes.
TEST_F(EndTreeTest, NobodyIsSignalledWithoutALeaveOfThisMoment) {
  for (const int signal : {SIGTERM, 0}) {
    int asked = 0;
    Action::Leave leave;
    leave.holds = [] { return false; };
    leave.again = [&](std::function<void()> then) {
      if (++asked < 3) loop_->in(1ms, std::move(then));
    };
    EXPECT_FALSE(end(nullptr, 500ms, leave, signal));
    EXPECT_EQ(asked, 3);
    EXPECT_EQ(child_.ended_by(), 0);
  }
}

TEST_F(EndTreeTest, AfterAnotherConfirmationItIsSignalled) {
  bool holds = false;
  Action::Leave leave;
  leave.holds = [&] { return holds; };
  leave.again = [&](const std::function<void()>& then) {
    holds = true;
    then();
  };
  const auto outcome = end(nullptr, 30s, leave);
  EXPECT_TRUE(outcome && outcome->ok && killed_);
}

// The answer of the pre-kill check is too old by the time that we could act on it: there is another look.
TEST_F(EndTreeTest, NobodyIsKilledByAnOldAnswer) {
  int asked = 0;
  Action::Leave leave;
  leave.holds = [] { return true; };
  leave.may_kill = [] { return false; };
  const auto outcome = end(
      [&](const Answer& answer) {
        ++asked;
        loop_->in(10ms, [&, answer] { answer(asked == 3 ? Truth::yes : Truth::no); });
      },
      30s, leave);
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(outcome && outcome->called_off && works_again_ && !killed_);
  EXPECT_EQ(child_.ended_by(), 0);
}

TEST(EndTree, WhoCannotBeEndedIsSaidToBeThere) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs a second user";
  EXPECT_EQ(end_hindered<TreeStuck>([] { return ::setresuid(65534, 65534, 65534) == 0; }, "still there: "), 0);
}

TEST(EndTree, WhereNobodyCanBeSeenNobodyIsProvenGone) {
  const int came = end_hindered<TreeUnproven>(
      [] {
        return ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               ::mount("none", "/proc", "tmpfs", 0, nullptr) == 0;
      },
      "it has ended, but lull cannot check all its processes");
  if (came == 77) GTEST_SKIP() << "no mount namespace to be had";
  EXPECT_EQ(came, 0);
}

}  // namespace
}  // namespace lull
