#include "act/actions.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace lull {
namespace {

TEST(LeftInWords, TellsWhoIsStuckFromWhoIsNotOurs) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    for (;;) ::pause();
  }
  std::vector<ProcessEntry> left{*read_process_entry(child)};
  const std::string number = std::to_string(child);
  EXPECT_EQ(left_in_words(left), number + " (stuck in the kernel)");
  left.push_back(left[0]);
  EXPECT_EQ(left_in_words(left), number + " " + number + " (stuck in the kernel)");
  EXPECT_EQ(left_in_words({}), "");

  if (::geteuid() == 0) {
    const pid_t somebody = ::fork();
    if (somebody == 0) {
      if (::setresuid(65534, 65534, 65534) != 0) ::_exit(9);
      left.pop_back();
      ::_exit(left_in_words(left) == number + " (not ours to end)" ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(somebody, &status, 0), somebody);
    EXPECT_EQ(status, 0);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace lull
