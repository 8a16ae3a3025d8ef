#include "session/background.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace lull {
namespace {

using namespace std::chrono_literals;

class BackgroundTest : public testing::Test {
 protected:
  Result<std::string> run(const Background::Work& work, const BackgroundLimits& limits = {}) {
    Background background(*loop_);
    std::optional<Result<std::string>> answer;
    background.start(work, limits, [&](Result<std::string> got) { answer = std::move(got); });
    EXPECT_FALSE(answer) << "not before start() returns";
    EXPECT_TRUE(background.running());
    while (!answer)
      if (!loop_->turn()) break;
    EXPECT_FALSE(background.running());
    return answer.value_or(fail("no answer"));
  }
  SystemClock clock_;
  std::unique_ptr<Loop> loop_ = *Loop::create(clock_);
};

TEST_F(BackgroundTest, ItsAnswerComesBackFromAnotherProcessAtTheLowestPriority) {
  const pid_t us = ::getpid();
  const auto answer = run([us]() -> Result<std::string> {
    return std::string(::getpid() == us ? "here" : "there") + (::sched_getscheduler(0) == SCHED_IDLE ? " idle" : "");
  });
  ASSERT_TRUE(answer);
  EXPECT_EQ(*answer, "there idle");
}

TEST_F(BackgroundTest, ItIsTheFirstToGoWhereMemoryIsShort) {
  const auto of_us = read_file("/proc/self/oom_score_adj");
  EXPECT_EQ(run([] { return read_file("/proc/self/oom_score_adj"); }).value_or(""), "1000\n");
  EXPECT_EQ(read_file("/proc/self/oom_score_adj").value_or("-"), of_us.value_or(""));
}

TEST_F(BackgroundTest, ALongAnswerComesWhole) {
  const auto answer = run([]() -> Result<std::string> { return std::string(5'000'000, 'x'); });
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->size(), 5'000'000U);
}

TEST_F(BackgroundTest, FailuresAreSaid) {
  EXPECT_EQ(run([]() -> Result<std::string> { return fail("there is no day"); }).error().message(), "there is no day");
  EXPECT_FALSE(run([]() -> Result<std::string> {
    ::raise(SIGKILL);
    return std::string("never");
  }));
  EXPECT_FALSE(run([]() -> Result<std::string> { return std::string(100, 'x'); }, {.answer = 99}));
}

TEST_F(BackgroundTest, WhatTakesTooLongIsEnded) {
  const auto answer = run(
      []() -> Result<std::string> {
        std::this_thread::sleep_for(1h);
        return std::string("never");
      },
      {.time = 50ms});
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().message().find("not done after"), std::string::npos);
}

TEST_F(BackgroundTest, AProgramAnswersAsAForkDoes) {
  const auto shell = [&](const std::string& script, const BackgroundLimits& limits = {}) {
    Background background(*loop_);
    std::optional<Result<std::string>> answer;
    background.start(ProgramStart{"/bin/sh", {"sh", "-c", script}, {}}, limits,
                     [&](Result<std::string> got) { answer = std::move(got); });
    while (!answer)
      if (!loop_->turn()) break;
    return answer.value_or(fail("no answer"));
  };
  EXPECT_EQ(shell("printf +yes >&3").value_or(""), "yes");
  EXPECT_EQ(shell("printf -- '-there is no day' >&3").error().message(), "there is no day");
  EXPECT_FALSE(shell("exit 0"));
  const auto late = shell("read -r nothing <&4", {.time = 50ms});  // until its line closes
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().message().find("not done after"), std::string::npos);
}

TEST_F(BackgroundTest, WhatIsStoppedTellsNothing) {
  bool told = false;
  {
    Background background(*loop_);
    background.start([]() -> Result<std::string> { return std::string("soon"); }, {},
                     [&](const auto&) { told = true; });
    background.stop();
    EXPECT_FALSE(background.running());
  }
  EXPECT_FALSE(told);
}

}  // namespace
}  // namespace lull
