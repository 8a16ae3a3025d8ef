#include "base/errand.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include "base/fd.h"
#include "base/process.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

Instant now() { return SystemClock().now(); }

[[noreturn]] void hang() {
  for (;;) ::pause();
}

TEST(Errand, BringsTheAnswer) {
  const auto answer = ask_aside([] { return "pid " + std::to_string(::getpid()); }, 10s);
  ASSERT_TRUE(answer);
  EXPECT_NE(*answer, "pid " + std::to_string(::getpid())) << "it was asked in another process";
  EXPECT_EQ(*ask_aside([] { return std::string(); }, 10s), "");
  const std::string big(3U << 20, 'x');
  EXPECT_EQ(*ask_aside([&] { return big; }, 10s), big);
}

TEST(Errand, Faults_D5_AQuestionThatNeverReturnsIsGivenUpInTime) {
  const Instant begin = now();
  const auto answer = ask_aside([]() -> std::string { hang(); }, 300ms);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().errno_value, ETIMEDOUT);
  EXPECT_GE(now() - begin, 300ms);
  EXPECT_LT(now() - begin, 5s);
  EXPECT_EQ(errands_abandoned(), 0U) << "one that can be killed is";
}

TEST(Errand, Faults_D5_OneThatHangsDoesNotCostTheOthers) {
  const auto answers = ask_each(
      5,
      [](std::size_t i) {
        if (i == 1 || i == 3) hang();
        return std::to_string(i);
      },
      300ms, 20s);
  ASSERT_EQ(answers.size(), 5U);
  EXPECT_EQ(answers[0], "0");
  EXPECT_EQ(answers[1], std::nullopt);
  EXPECT_EQ(answers[2], "2");
  EXPECT_EQ(answers[3], std::nullopt);
  EXPECT_EQ(answers[4], "4");
}

TEST(Errand, Faults_D5_TheLimitIsForAllOfThem) {
  const Instant begin = now();
  const auto answers = ask_each(100, [](std::size_t) -> std::string { hang(); }, 200ms, 500ms);
  EXPECT_LT(now() - begin, 5s);
  for (const auto& answer : answers) EXPECT_FALSE(answer);
}

TEST(Errand, ChildThatDiesCostsItsOwnAnswerOnly) {
  const auto answers = ask_each(
      3,
      [](std::size_t i) {
        if (i == 1) ::_exit(0);
        return std::to_string(i);
      },
      10s, 20s);
  EXPECT_EQ(answers[0], "0");
  EXPECT_FALSE(answers[1]);
  EXPECT_EQ(answers[2], "2");
}

// What it inherits would keep a pipe of ours open for as long as it is stuck.
TEST(Errand, HasNoDescriptorsButItsOwn) {
  const auto listed = ask_aside(
      [] {
        std::string names;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
          names += entry.path().filename().string() + " ";
        return names;
      },
      10s);
  ASSERT_TRUE(listed);
  EXPECT_EQ(std::ranges::count(*listed, ' '), 2) << *listed;  // its pipe, and the listing itself
}

TEST(Errand, NoWaitSeesItAndNoSignalComesOfIt) {
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &child, &before);
  ASSERT_TRUE(ask_aside([] { return std::string("x"); }, 10s));
  ASSERT_FALSE(ask_aside([]() -> std::string { hang(); }, 100ms));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  const timespec none{};
  EXPECT_EQ(::sigtimedwait(&child, nullptr, &none), -1);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace lull
