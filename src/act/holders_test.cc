// kill=holders on real processes: those that were seen, and nobody else.

#include "act/holders.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "act/child_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

Holder holder_of(const Child& child) {
  const auto entry = read_process_entry(child.pid);
  return {.pid = child.pid,
          .start_ticks = entry ? entry->start_ticks : 0,
          .user = 0,
          .user_name = {},
          .name = {},
          .job = {},
          .job_title = {}};
}

struct Ended {
  Outcome outcome;
  bool killed = false;
  bool works_again = false;
};
Ended end(std::vector<Holder> who, Ending::Options options = {}, Action::LastLook last_look = nullptr) {
  const SystemClock clock;
  auto loop = *Loop::create(clock);
  Ended ended;
  EndHolders action(*loop, "kill=holders", options, [&] { return who; });
  action.ask_before_kill(std::move(last_look));
  loop->in(Duration::zero(), [&] {
    action.start(
        {},
        [&](const Outcome& outcome) {
          ended.outcome = outcome;
          loop->stop();
        },
        [&](const News& news) {
          ended.killed |= std::holds_alternative<Killing>(news);
          ended.works_again |= std::holds_alternative<WorksAgain>(news);
        });
  });
  EXPECT_TRUE(loop->run());
  return ended;
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
  const Ended spared = end({holder_of(stubborn)}, {.grace = 100ms}, [](const auto& answer) { answer(true); });
  EXPECT_TRUE(spared.outcome.called_off && spared.works_again && !spared.killed);
  EXPECT_EQ(stubborn.ended_by(), 0);
  const Ended killed = end({holder_of(stubborn)}, {.grace = 100ms}, [](const auto& answer) { answer(false); });
  EXPECT_TRUE(killed.outcome.ok && killed.killed && !killed.outcome.called_off);
}

TEST(EndHoldersTest, WithinTheGraceTheKillCanBeCalledOff) {
  Child stubborn(true);
  const SystemClock clock;
  auto loop = *Loop::create(clock);
  bool done = false;
  EndHolders action(*loop, "kill=holders", {.grace = 100ms}, [&] { return std::vector{holder_of(stubborn)}; });
  loop->in(Duration::zero(), [&] {
    action.start({}, [&](const Outcome&) { done = true; }, [](const News&) {});
    EXPECT_TRUE(action.undo());
  });
  loop->in(500ms, [&] { loop->stop(); });
  EXPECT_TRUE(loop->run());
  EXPECT_FALSE(done);
  EXPECT_EQ(stubborn.ended_by(), 0);
}

TEST(EndHoldersTest, ANumberThatIsSomebodyElsesByNowIsLeftAlone) {
  Child later;
  Holder seen = holder_of(later);
  seen.start_ticks -= 1;  // who had this number before
  EXPECT_TRUE(end({seen}).outcome.ok);
  EXPECT_EQ(later.ended_by(), 0);
}

TEST(EndHoldersTest, NeverLullItself) {
  const auto self = read_process_entry(::getpid());
  ASSERT_TRUE(self);
  EXPECT_TRUE(end({{.pid = ::getpid(),
                    .start_ticks = self->start_ticks,
                    .user = 0,
                    .user_name = {},
                    .name = {},
                    .job = {},
                    .job_title = {}}})
                  .outcome.ok);
}

}  // namespace
}  // namespace lull
