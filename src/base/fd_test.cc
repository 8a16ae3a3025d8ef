#include "base/fd.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

namespace lull {
namespace {

// A pipe whose other end nobody opens makes an open wait, and a timer interrupts it again and again.
TEST(OpenAt, WhatIsAlwaysInterruptedIsAnError) {
  std::string folder = testing::TempDir() + "lull-fd-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(::mkfifo((folder + "/pipe").c_str(), 0600), 0);
  struct sigaction count{};
  count.sa_handler = [](int) {};
  struct sigaction before{};
  ASSERT_EQ(::sigaction(SIGALRM, &count, &before), 0);
  constexpr itimerval kEveryMillisecond{.it_interval = {.tv_sec = 0, .tv_usec = 1000},
                                        .it_value = {.tv_sec = 0, .tv_usec = 1000}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &kEveryMillisecond, nullptr), 0);
  const auto began = std::chrono::steady_clock::now();
  const auto opened = open_at(AT_FDCWD, folder + "/pipe", O_RDONLY);
  const auto took = std::chrono::steady_clock::now() - began;
  constexpr itimerval kNever{};
  EXPECT_EQ(::setitimer(ITIMER_REAL, &kNever, nullptr), 0);
  EXPECT_EQ(::sigaction(SIGALRM, &before, nullptr), 0);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().errno_value, EINTR);
  EXPECT_GE(took, std::chrono::milliseconds(50)) << "it does try again";
  std::filesystem::remove_all(folder);
}

TEST(Directory, GivesHiddenNamesWhenAsked) {
  std::string folder = testing::TempDir() + "lull-fd-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  for (const char* name : {"/plain", "/.hidden", "/..both"}) ASSERT_TRUE(open_file(folder + name, O_CREAT | O_WRONLY));
  const auto names = [&](bool hidden) {
    std::set<std::string> found;
    Directory directory(folder);
    while (const char* name = directory.next(hidden)) found.insert(name);
    return found;
  };
  EXPECT_EQ(names(false), (std::set<std::string>{"plain"}));
  EXPECT_EQ(names(true), (std::set<std::string>{"plain", ".hidden", "..both"}));
  std::filesystem::remove_all(folder);
}

TEST(Directory, SaysThatThereMayBeMoreNames) {
  std::string folder = testing::TempDir() + "lull-fd-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  Directory removed(folder);
  std::filesystem::remove(folder);
  EXPECT_EQ(removed.error(), 0);
  EXPECT_EQ(removed.next(), nullptr);
  EXPECT_EQ(removed.error(), ENOENT);
  EXPECT_EQ(Directory(folder).error(), ENOENT) << "nor can it be opened";
}

// A simulation that has ended leaves a shell with $LULL_SIM behind: the GPUs of this machine are not its GPUs.
TEST(Root, OfASimulationIsNeverThisMachines) {
  ::setenv("LULL_SIM", "/nonexistent/simulation", 1);
  const Root root = Root::machine();
  ::unsetenv("LULL_SIM");
  EXPECT_EQ(root.sys, "/nonexistent/simulation/sys");
  EXPECT_EQ(root.driver, "");
  EXPECT_EQ(Root::machine().sys, "/sys");
}

}  // namespace
}  // namespace lull
