#include "base/process_start.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include "base/fd.h"
#include "base/never_delivered_test.h"
#include "base/process.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

Instant now() { return SystemClock().now(); }

// Orphans come to us for as long as this is there: a task is seen by its parent then.
struct Subreaper {
  Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;
  ~Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 0); }
};

// Tasks of ours that have not ended, as a subreaper sees them.
std::size_t timed_tasks_under_way() {
  const auto is_one = [](const ProcessEntry& one) {
    return one.parent == ::getpid() && one.name == "lull-task" && !one.ended();
  };
  return static_cast<std::size_t>(std::ranges::count_if(read_all_processes(), is_one));
}

[[noreturn]] void hang_forever() {
  for (;;) ::pause();
}

TEST(TimedTask, OneInASleepThatKillDoesNotEndIsLeftBehindAndWeExit) {
  const NeverDelivered never;
  if (!never.mounted()) GTEST_SKIP() << "no FUSE here, or not root";
  const Instant begin = now();
  // A program of its own, to see that its end does not wait for the task either.
  const pid_t program = ::fork();
  if (program == 0) {
    const Subreaper orphans;
    const auto answer = run_with_timeout([&] { return *read_file(never.file()); }, 300ms);
    const auto next = run_with_timeout([] { return std::string("next"); }, 10s);
    ::_exit(!answer && answer.error().errno_value == ETIMEDOUT && timed_tasks_under_way() == 1 && next == "next" ? 0
                                                                                                                 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(program, &status, 0), program);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "it was not stuck, or we were";
  EXPECT_LT(now() - begin, 10s);
}

TEST(TimedTask, BringsTheAnswer) {
  const auto answer = run_with_timeout([] { return "pid " + std::to_string(::getpid()); }, 10s);
  ASSERT_TRUE(answer);
  EXPECT_NE(*answer, "pid " + std::to_string(::getpid())) << "it was asked in another process";
  EXPECT_EQ(*run_with_timeout([] { return std::string(); }, 10s), "");
  const std::string big(3U << 20, 'x');
  EXPECT_EQ(*run_with_timeout([&] { return big; }, 10s), big);
}

TEST(TimedTask, AQuestionThatNeverReturnsIsGivenUpInTime) {
  const Subreaper orphans;
  const Instant begin = now();
  const auto answer = run_with_timeout([]() -> std::string { hang_forever(); }, 300ms);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().errno_value, ETIMEDOUT);
  EXPECT_GE(now() - begin, 300ms);
  EXPECT_LT(now() - begin, 5s);
  EXPECT_EQ(timed_tasks_under_way(), 0U) << "one that can be killed is";
}

TEST(TimedTask, OneThatHangsDoesNotCostTheOthers) {
  const auto answers = run_each_with_timeout(
      5,
      [](std::size_t i) {
        if (i == 1 || i == 3) hang_forever();
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

TEST(TimedTask, TheLimitIsForAllOfThem) {
  const Instant begin = now();
  const auto answers = run_each_with_timeout(100, [](std::size_t) -> std::string { hang_forever(); }, 200ms, 500ms);
  EXPECT_LT(now() - begin, 5s);
  for (const auto& answer : answers) EXPECT_FALSE(answer);
}

TEST(TimedTask, ChildThatDiesCostsItsOwnAnswerOnly) {
  const auto answers = run_each_with_timeout(
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
TEST(TimedTask, HasNoDescriptorsButItsOwn) {
  const auto listed = run_with_timeout(
      [] {
        std::string names;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
          names += entry.path().filename().string() + " ";
        return names;
      },
      10s);
  ASSERT_TRUE(listed);
  EXPECT_EQ(std::ranges::count(*listed, ' '), 3) << *listed;  // its pipe, its lifeline, and the listing itself
}

TEST(TimedTask, NoWaitSeesIt) {
  ASSERT_TRUE(run_with_timeout([] { return std::string("x"); }, 10s));
  ASSERT_FALSE(run_with_timeout([]() -> std::string { hang_forever(); }, 100ms));
  errno = 0;
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace lull
