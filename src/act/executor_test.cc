// What cannot be undone is begun only after a confirmation, and only while it is wanted.

#include "act/executor.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lull {
namespace {

using namespace std::chrono_literals;

// Notes when it began; is done when the test says so.
class Step final : public Action {
 public:
  Step(std::string text, bool final) : text_(std::move(text)), final_(final) {}
  const std::string& text() const override { return text_; }
  void start(const FiringFacts& facts, Done done, Tell) override {
    ++begun;
    evidence = facts.evidence;
    done_ = std::move(done);
  }
  void ask_before_kill(PreKillCheck look) override { pre_kill_check = std::move(look); }
  void ask_before_acting(Leave given) override { leave = std::move(given); }
  bool requires_confirmation() const override { return final_; }
  bool ends_work() const override { return ends; }
  void finish(const Outcome& how = {}) { std::exchange(done_, nullptr)(how); }

  int begun = 0;
  std::string evidence;
  bool ends = false;
  PreKillCheck pre_kill_check;
  Leave leave;

 private:
  std::string text_;
  bool final_;
  Done done_;
};

class ExecutorTest : public testing::Test {
 protected:
  std::unique_ptr<Executor> make(std::vector<Action*> actions, bool confirmed, Executor::Retries retries = {}) {
    return std::make_unique<Executor>(
        *loop_, std::move(actions), retries, FiringFacts{}, confirmed,
        Executor::Calls{.tell = [this](const ActionEvent& action_event) { told_.push_back(action_event); },
                        .still_wanted = [this] { return wanted_; },
                        .works_again = [this] { return works_; },
                        .age = [this] { return age_; },
                        .confirm = [this](std::function<void()> then) { confirm_ = std::move(then); },
                        .done =
                            [this](bool all, bool called_off) {
                              ++done_;
                              all_ = all;
                              called_off_ = called_off;
                            }});
  }
  void confirm() { std::exchange(confirm_, nullptr)(); }
  template <class What>
  bool told() const {
    for (const ActionEvent& one : told_)
      if (std::holds_alternative<What>(one)) return true;
    return false;
  }

  ManualClock clock_;
  std::unique_ptr<Loop> loop_ = *Loop::create_warped(clock_);
  std::vector<ActionEvent> told_;
  std::function<void()> confirm_;
  bool wanted_ = true;
  Truth works_ = Truth::no;
  Duration age_{};
  int done_ = 0;
  bool all_ = false;
  bool called_off_ = false;
};

TEST_F(ExecutorTest, WhatCannotBeUndoneWaitsForAConfirmation) {
  Step end("end", true);
  const auto run = make({&end}, false);
  run->start();
  EXPECT_EQ(end.begun, 0);
  ASSERT_TRUE(confirm_);
  confirm();
  EXPECT_EQ(end.begun, 1);
  end.finish();
  EXPECT_EQ(done_, 1);
  EXPECT_TRUE(all_);
  EXPECT_FALSE(called_off_);
}

// Tells where it wrote.
class Writes final : public Action {
 public:
  explicit Writes(EvidenceWritten written) : written_(std::move(written)) {}
  const std::string& text() const override { return text_; }
  void start(const FiringFacts&, Done done, Tell tell) override {
    tell(written_);
    done({});
  }
  bool requires_confirmation() const override { return false; }

 private:
  std::string text_ = "evidence";
  EvidenceWritten written_;
};

TEST_F(ExecutorTest, WhatComesAfterTheEvidenceIsToldWhereItIs) {
  const std::string folder = "/hangs/1";
  for (const auto& [written, where] : std::vector<std::pair<EvidenceWritten, std::string>>{
           {{.folder = folder, .trouble = "", .where = "", .page = folder + "/index.html"}, folder + "/index.html"},
           {{.folder = folder, .trouble = "No space left", .where = "", .page = ""}, folder},
           {{.folder = "", .trouble = "No space left", .where = "", .page = ""}, ""}}) {
    Writes evidence(written);
    Step hook("hook", false);
    const auto run = make({&evidence, &hook}, true);
    run->start();
    ASSERT_EQ(hook.begun, 1);
    EXPECT_EQ(hook.evidence, where);
    EXPECT_TRUE(told<EvidenceWritten>());
  }
}

// To tell of it took long, as it does on a stopped terminal.
TEST_F(ExecutorTest, WhatWasConfirmedAWhileAgoIsConfirmedAgain) {
  for (const bool still : {true, false}) {
    Step end("end", true);
    const auto run = make({&end}, true);
    age_ = 101ms;
    run->start();
    EXPECT_EQ(end.begun, 0);
    ASSERT_TRUE(confirm_);
    age_ = 0ms;
    wanted_ = still;
    confirm();
    EXPECT_EQ(end.begun, still ? 1 : 0);
    EXPECT_EQ(told<NoLongerWanted>(), !still);
  }
}

// We were stopped after start(), before what cannot be undone.
TEST_F(ExecutorTest, ALeaveHoldsForAMomentAndWhileItIsWanted) {
  Step end("end", true);
  const auto run = make({&end}, true);
  run->start();
  ASSERT_EQ(end.begun, 1);
  EXPECT_TRUE(end.leave.holds());
  EXPECT_EQ(end.leave.until(), clock_.now() + 100ms);
  wanted_ = false;
  EXPECT_FALSE(end.leave.holds());
  wanted_ = true;
  age_ = 101ms;
  EXPECT_FALSE(end.leave.holds());
  int again = 0;
  end.leave.again([&] { ++again; });
  EXPECT_EQ(again, 0);
  confirm();
  EXPECT_EQ(again, 1);
  wanted_ = false;
  end.leave.again([&] { ++again; });
  confirm();
  EXPECT_EQ(again, 1);
  EXPECT_TRUE(told<NoLongerWanted>() && called_off_);
  EXPECT_FALSE(end.leave.holds());
}

// A machine that is so busy that we never come in time: each time we may be later, up to a second.
TEST_F(ExecutorTest, OnABusyMachineALeaveHoldsLongerButNeverLong) {
  Step end("end", true);
  const auto run = make({&end}, true);
  age_ = 700ms;
  run->start();
  int confirmed = 0;
  for (; end.begun == 0 && confirmed < 10; ++confirmed) confirm();
  EXPECT_EQ(end.begun, 1);
  EXPECT_EQ(confirmed, 3);
  age_ = 1001ms;
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(end.leave.holds());
    end.leave.again([] {});
    confirm();
  }
  EXPECT_EQ(end.leave.until(), clock_.now() - 1ms);
}

TEST_F(ExecutorTest, NobodyIsKilledByALookOfAWhileAgo) {
  Step end("end", true);
  end.ends = true;
  const auto run = make({&end}, true);
  run->start();
  end.pre_kill_check([](Truth) {});
  confirm();
  EXPECT_TRUE(end.leave.may_kill());
  age_ = 101ms;
  EXPECT_FALSE(end.leave.may_kill());
  age_ = 0ms;
  works_ = Truth::yes;
  EXPECT_FALSE(end.leave.may_kill());
}

TEST_F(ExecutorTest, WhatIsNotWantedAnyMoreIsNotBegun) {
  Step end("end", true);
  const auto run = make({&end}, false);
  run->start();
  wanted_ = false;
  confirm();
  EXPECT_EQ(end.begun, 0);
  EXPECT_TRUE(called_off_);
  EXPECT_TRUE(told<NoLongerWanted>());
}

TEST_F(ExecutorTest, AConfirmationOfJustNowIsGoodForTheFirstActionAlone) {
  Step first("first", true);
  Step second("second", true);
  const auto run = make({&first, &second}, true);
  run->start();
  EXPECT_EQ(first.begun, 1);
  EXPECT_FALSE(confirm_);
  first.finish();
  EXPECT_EQ(second.begun, 0) << "what came in between took its time";
  ASSERT_TRUE(confirm_);
  confirm();
  EXPECT_EQ(second.begun, 1);
}

TEST_F(ExecutorTest, AHookUsesTheConfirmationUpAndNeedsNone) {
  Step hook("hook", false);
  Step end("end", true);
  for (const bool confirmed : {true, false}) {
    hook.begun = end.begun = 0;
    const auto run = make({&hook, &end}, confirmed);
    run->start();
    EXPECT_EQ(hook.begun, 1) << "it can be left alone";
    EXPECT_FALSE(confirm_);
    hook.finish();
    EXPECT_EQ(end.begun, 0);
    ASSERT_TRUE(confirm_);
    confirm();
    EXPECT_EQ(end.begun, 1);
  }
}

TEST_F(ExecutorTest, EveryAttemptIsConfirmed) {
  Step end("end", true);
  const auto run = make({&end}, true, {.most = 2, .after = 10s});
  run->start();
  end.finish({.ok = false, .trouble = "no"});
  loop_->in(11s, [&] { loop_->stop(); });
  ASSERT_TRUE(loop_->run());
  EXPECT_EQ(end.begun, 1);
  ASSERT_TRUE(confirm_);
  wanted_ = false;
  confirm();
  EXPECT_EQ(end.begun, 1);
  EXPECT_TRUE(called_off_);
}

TEST_F(ExecutorTest, WhatIsCalledOffWhileItIsConfirmedIsNotBegun) {
  Step end("end", true);
  const auto run = make({&end}, false);
  run->start();
  run->call_off();
  EXPECT_TRUE(called_off_);
  confirm();  // which says yes
  EXPECT_EQ(end.begun, 0);
  EXPECT_EQ(done_, 1);
}

TEST_F(ExecutorTest, WhatIsCalledOffWhileItWaitsForAnotherConfirmationDoesNotGoOn) {
  Step command("exec=…", true);  // which is begun and cannot be undone
  const auto run = make({&command}, true);
  run->start();
  ASSERT_EQ(command.begun, 1);
  int again = 0;
  command.leave.again([&] { ++again; });
  run->call_off();
  EXPECT_EQ(done_, 0);
  confirm();  // which says yes
  EXPECT_EQ(again, 0);
  EXPECT_TRUE(told<NoLongerWanted>() && called_off_);
}

TEST_F(ExecutorTest, WhoCancelledItIsKnown) {
  Step warn("warn", false);
  const auto called_off = make({&warn}, true);
  called_off->start();
  EXPECT_FALSE(called_off->cancelled());
  Step end("end", true);
  const auto run = make({&end}, false);
  run->start();
  EXPECT_TRUE(run->cancel("ada"));
  EXPECT_TRUE(run->cancelled());
  EXPECT_TRUE(told<Cancelled>());
}

TEST_F(ExecutorTest, WhatWasCancelledWhileAnotherActionRanIsNotBegun) {
  Step first("first", true);
  Step second("second", true);
  const auto run = make({&first, &second}, true);
  run->start();
  EXPECT_TRUE(run->cancel("ada")) << "what comes after it";
  first.finish();
  if (confirm_) confirm();
  EXPECT_EQ(second.begun, 0);
  EXPECT_TRUE(told<Cancelled>());
}

TEST_F(ExecutorTest, WhatNeedsNoConfirmationIsNotBegunEitherAfterACancel) {
  for (const bool cancel : {true, false}) {
    Step first("first", true);
    Step mail("mail", false);
    const auto run = make({&first, &mail}, true);
    run->start();
    if (cancel)
      EXPECT_TRUE(run->cancel("ada"));
    else
      run->call_off();
    first.finish();
    EXPECT_EQ(mail.begun, 0);
    EXPECT_TRUE(cancel ? told<Cancelled>() : told<NoLongerWanted>());
    EXPECT_TRUE(called_off_);
  }
}

TEST_F(ExecutorTest, WhatWasCancelledWhileItWaitsForAnotherConfirmationDoesNotGoOn) {
  Step first("first", true);
  Step second("second", true);
  const auto run = make({&first, &second}, true);
  run->start();
  int again = 0;
  first.leave.again([&] { ++again; });
  EXPECT_TRUE(run->cancel("ada"));
  confirm();
  EXPECT_EQ(again, 0);
  EXPECT_EQ(second.begun, 0);
  EXPECT_TRUE(told<Cancelled>() && called_off_);
}

TEST_F(ExecutorTest, NobodyIsAnsweredAfterTheEnd) {
  Step end("end", true);
  const auto run = make({&end}, true);
  run->start();
  int answers = 0;
  end.pre_kill_check([&](Truth) { ++answers; });
  end.finish();
  ASSERT_EQ(done_, 1);
  confirm();
  EXPECT_EQ(answers, 0);
}

TEST_F(ExecutorTest, WorkSeenOnceAfterTheSignalSparesWhateverThePreKillCheckShows) {
  for (const bool seen : {false, true}) {
    Step end("end", true);
    end.ends = true;
    works_ = Truth::no;
    const auto run = make({&end}, true);
    run->start();
    ASSERT_TRUE(end.pre_kill_check);
    works_ = seen ? Truth::yes : Truth::no;
    run->judged();
    works_ = Truth::no;
    std::optional<bool> spared;
    end.pre_kill_check([&](Truth works) { spared = works == Truth::yes; });
    if (seen) {
      EXPECT_EQ(spared, true) << "at once: no further sample may ever come";
      continue;
    }
    EXPECT_FALSE(spared) << "before a new sample";
    confirm();
    EXPECT_EQ(spared, false);
    // Also where it is seen while the new sample is waited for.
    end.pre_kill_check([&](Truth works) { spared = works == Truth::yes; });
    works_ = Truth::yes;
    run->judged();
    works_ = Truth::no;
    confirm();
    EXPECT_EQ(spared, true);
  }
}

TEST_F(ExecutorTest, OnlyWhoIsKnownNotToWorkMayBeKilled) {
  Step end("end", true);
  end.ends = true;
  const auto run = make({&end}, true);
  run->start();
  for (const Truth works : {Truth::unknown, Truth::no, Truth::yes}) {
    works_ = works;
    EXPECT_EQ(end.leave.may_kill(), works == Truth::no);
  }
  works_ = Truth::unknown;
  std::optional<Truth> answer;
  end.pre_kill_check([&](Truth given) { answer = given; });
  confirm();
  EXPECT_EQ(answer, Truth::unknown);
}

TEST_F(ExecutorTest, ThePreKillCheckUsesTheNewestSample) {
  Step end("end", true);
  end.ends = true;
  const auto run = make({&end}, true);
  run->start();
  std::optional<bool> spared;
  end.pre_kill_check([&](Truth works) { spared = works == Truth::yes; });
  works_ = Truth::yes;
  confirm();
  EXPECT_EQ(spared, true);
}

// "Not now" is no failure: later, after a confirmation, and as often as needed.
TEST_F(ExecutorTest, WhatSaysNotNowIsTriedAgainAfterLongerAndLongerPauses) {
  Step end("end", true);
  const auto run = make({&end}, true, {.most = 0});
  run->start();
  Duration before{};
  for (int i = 0; i < 12; ++i) {
    ASSERT_EQ(end.begun, i + 1);
    end.finish({.ok = false, .not_now = true});
    const PutOff* said = std::get_if<PutOff>(&told_.back());
    ASSERT_NE(said, nullptr);
    EXPECT_EQ(said->first, i == 0);
    EXPECT_GE(said->again_in, std::min<Duration>(60s, 1s * (1 << std::min(i, 6))));
    EXPECT_LE(said->again_in, std::min<Duration>(60s, 1500ms * (1 << std::min(i, 6))));
    EXPECT_GE(said->again_in, before / 2);
    before = said->again_in;
    const Instant said_at = clock_.now();
    EXPECT_TRUE(loop_->turn());
    EXPECT_EQ(clock_.now() - said_at, before);
    ASSERT_TRUE(confirm_) << "what cannot be undone follows a confirmation";
    confirm();
  }
  EXPECT_FALSE(told<Failed>());
  end.finish();
  EXPECT_EQ(done_, 1);
  EXPECT_TRUE(all_);
}

TEST_F(ExecutorTest, WhatSaysWhenItCouldBeIsNotTriedBefore) {
  Step end("end", true);
  const auto run = make({&end}, true);
  run->start();
  end.finish({.ok = false, .not_now = true, .again_in = 10min});
  EXPECT_GE(std::get<PutOff>(told_.back()).again_in, 10min);
  EXPECT_LE(std::get<PutOff>(told_.back()).again_in, 10min + 1s);
}

TEST_F(ExecutorTest, WhatWasPutOffAndIsNoLongerWantedIsLeftOff) {
  Step end("end", true);
  const auto run = make({&end}, true);
  run->start();
  end.finish({.ok = false, .not_now = true});
  run->call_off();
  EXPECT_EQ(done_, 1);
  EXPECT_TRUE(called_off_);
  EXPECT_EQ(loop_->turn(), false) << "nothing is left to wait for";
  EXPECT_EQ(end.begun, 1);
}

}  // namespace
}  // namespace lull
