// kill=holders on real processes: those that were seen, and nobody else.

#include "act/actions.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "act/child_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

GpuProcess holder_of(const Child& child) {
  const auto entry = read_process_entry(child.pid);
  return {.pid = child.pid, .start_ticks = entry ? entry->start_ticks : 0};
}

struct Ended {
  Outcome outcome;
  bool killed = false;
  bool works_again = false;
  int waits = 0;
};
Ended end(const std::vector<GpuProcess>& who, Ending::Options options = {},
          Action::PreKillCheck pre_kill_check = nullptr, Action::Leave leave = {}) {
  const SystemClock clock;
  auto loop = *Loop::create(clock);
  Ended ended;
  EndHolders action(*loop, "kill=holders", options, [&] { return who; });
  action.ask_before_kill(std::move(pre_kill_check));
  action.ask_before_acting(std::move(leave));
  loop->in(Duration::zero(), [&] {
    action.start(
        {},
        [&](const Outcome& outcome) {
          ended.outcome = outcome;
          loop->stop();
        },
        [&](const ActionEvent& action_event) {
          ended.killed |= std::holds_alternative<Killing>(action_event);
          ended.works_again |= std::holds_alternative<WorksAgain>(action_event);
          ended.waits += static_cast<int>(std::holds_alternative<KillWaits>(action_event));
        });
  });
  EXPECT_TRUE(loop->run());
  return ended;
}

// Who works elsewhere, or has left the GPU, while it is confirmed again.
TEST(EndHoldersTest, AProcessThatIsNoLongerToBeEndedAfterANewConfirmationIsNotSignalled) {
  Child one;
  Child two;
  std::vector<GpuProcess> who = {holder_of(one), holder_of(two)};
  bool holds = false;
  Action::Leave leave;
  leave.holds = [&] { return holds; };
  leave.again = [&](const std::function<void()>& then) {
    who.pop_back();
    holds = true;
    then();
  };
  EXPECT_TRUE(end(who, {}, nullptr, leave).outcome.ok);
  EXPECT_EQ(one.ended_by(), SIGTERM);
  EXPECT_EQ(two.ended_by(), 0);
}

TEST(EndHoldersTest, EndsWhoWasSeenAndNobodyElse) {
  Child one;
  Child other;
  EXPECT_TRUE(end({holder_of(one)}).outcome.ok);
  EXPECT_EQ(one.ended_by(), SIGTERM);
  EXPECT_EQ(other.ended_by(), 0);
}

TEST(EndHoldersTest, WhoDoesNotGoIsKilledAfterTheGrace) {
  Child stubborn(true);
  const Ended ended = end({holder_of(stubborn)}, {.grace = 200ms});
  EXPECT_TRUE(ended.outcome.ok && ended.killed);
  EXPECT_EQ(stubborn.ended_by(), SIGKILL);
}

TEST(EndHoldersTest, WhoWorksAgainIsNotKilled) {
  Child stubborn(true);
  const Ended spared = end({holder_of(stubborn)}, {.grace = 100ms}, [](const auto& answer) { answer(Truth::yes); });
  EXPECT_TRUE(spared.outcome.called_off && spared.works_again && !spared.killed);
  EXPECT_EQ(stubborn.ended_by(), 0);
  const Ended killed = end({holder_of(stubborn)}, {.grace = 100ms}, [](const auto& answer) { answer(Truth::no); });
  EXPECT_TRUE(killed.outcome.ok && killed.killed && !killed.outcome.called_off);
}

TEST(EndHoldersTest, NobodyIsKilledWhileNobodyCanTellWhetherItWorks) {
  Child stubborn(true);
  int asked = 0;
  const Ended ended = end({holder_of(stubborn)}, {.grace = 100ms}, [&](const auto& answer) {
    EXPECT_EQ(stubborn.ended_by(), 0);
    answer(++asked < 3 ? Truth::unknown : Truth::no);
  });
  EXPECT_TRUE(ended.outcome.ok && ended.killed);
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(ended.waits, 1) << "said once";
}

// We were stopped between the confirmation and the signal, and between the pre-kill check and SIGKILL.
TEST(EndHoldersTest, NobodyIsSignalledWithoutALeaveOfThisMoment) {
  Child one;
  Child two(true);
  int held = 0;
  int confirmed = 0;
  int looked = 0;
  Action::Leave leave;
  leave.holds = [&] { return ++held != 2; };  // the first has its signal, the second waits
  leave.again = [&](const std::function<void()>& then) {
    ++confirmed;
    EXPECT_EQ(held, 2);
    then();
  };
  leave.may_kill = [&] { return looked > 1; };
  const Ended ended = end(
      {holder_of(one), holder_of(two)}, {.grace = 100ms},
      [&](const auto& answer) {
        ++looked;
        answer(Truth::no);
      },
      leave);
  EXPECT_TRUE(ended.outcome.ok && ended.killed);
  EXPECT_EQ(held, 3);
  EXPECT_EQ(confirmed, 1);
  EXPECT_EQ(looked, 2);
  EXPECT_EQ(one.ended_by(), SIGTERM);
  EXPECT_EQ(two.ended_by(), SIGKILL);
}

TEST(EndHoldersTest, WithinTheGraceTheKillCanBeCalledOff) {
  Child stubborn(true);
  const SystemClock clock;
  auto loop = *Loop::create(clock);
  bool done = false;
  EndHolders action(*loop, "kill=holders", {.grace = 100ms}, [&] { return std::vector{holder_of(stubborn)}; });
  loop->in(Duration::zero(), [&] {
    action.start({}, [&](const Outcome&) { done = true; }, [](const ActionEvent&) {});
    EXPECT_TRUE(action.undo());
  });
  loop->in(500ms, [&] { loop->stop(); });
  EXPECT_TRUE(loop->run());
  EXPECT_FALSE(done);
  EXPECT_EQ(stubborn.ended_by(), 0);
}

TEST(EndHoldersTest, ANumberThatIsSomebodyElsesByNowIsLeftAlone) {
  Child later;
  GpuProcess seen = holder_of(later);
  seen.start_ticks -= 1;  // who had this number before
  EXPECT_TRUE(end({seen}).outcome.ok);
  EXPECT_EQ(later.ended_by(), 0);
}

TEST(EndHoldersTest, NeverLullItself) {
  const auto self = read_process_entry(::getpid());
  ASSERT_TRUE(self);
  EXPECT_TRUE(end({{.pid = ::getpid(), .start_ticks = self->start_ticks}}).outcome.ok);
}

}  // namespace
}  // namespace lull
