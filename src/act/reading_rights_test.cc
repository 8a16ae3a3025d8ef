#include "act/reading_rights.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "act/python_stack.h"

namespace lull {
namespace {

bool says(const ReadingRights& rights, std::string_view what) {
  const std::string text = forbidden_text(rights);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  return text.find(what) != std::string::npos;
}

TEST(ReadingRights, TheSettingThatForbidsItIsNamed) {
  for (const unsigned scope : {1U, 2U, 3U})
    EXPECT_TRUE(says({.pid = 7, .ours = 1000, .owner = 1000, .yama = scope},
                     "kernel.yama.ptrace_scope is " + std::to_string(scope) + ": "));
  EXPECT_TRUE(says({.pid = 7, .ours = 0, .owner = 1000, .may_trace = true, .yama = 3}, "not even root"));
  EXPECT_TRUE(says({.pid = 7, .ours = 1000, .owner = 1001, .yama = 1}, "only root and its user (1001)"));
  EXPECT_TRUE(says({.pid = 7, .ours = 0, .owner = 1000}, "CAP_SYS_PTRACE"));
  EXPECT_TRUE(says({.pid = 7, .ours = 1000, .owner = 1000, .same_namespace = false}, "user namespace"));
  EXPECT_TRUE(says({.pid = 7, .ours = 1000, .owner = 1000, .filtered = true}, "seccomp"));
  EXPECT_TRUE(says({.pid = 7, .ours = 1000, .owner = 1000}, "PR_SET_DUMPABLE"));
  EXPECT_TRUE(says({.pid = 7, .ours = 1000}, "PR_SET_DUMPABLE"));
}

TEST(ReadingRights, AreThoseOfTheTwoProcesses) {
  const ReadingRights rights = reading_rights(::getpid());
  EXPECT_EQ(rights.pid, ::getpid());
  EXPECT_EQ(rights.ours, ::geteuid());
  EXPECT_EQ(rights.owner, ::getuid());
  EXPECT_NE(rights.same_namespace, false);
  EXPECT_FALSE(reading_rights(0x3FFFFFFF).owner);
}

// A process that lets nobody read its memory, asked by its own user.
TEST(ReadingRights, OneThatIsNotDumpableIsNotRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another";
  int ready[2] = {-1, -1};
  ASSERT_EQ(::pipe(ready), 0);
  const auto as_nobody = [] { return ::setresgid(65534, 65534, 65534) == 0 && ::setresuid(65534, 65534, 65534) == 0; };
  const pid_t shy = ::fork();
  if (shy == 0) {
    if (!as_nobody()) ::_exit(2);
    ::prctl(PR_SET_DUMPABLE, 0);
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const pid_t child = ::fork();
  if (child == 0) {
    if (!as_nobody()) ::_exit(2);
    const auto read = read_python_stacks(shy);
    ::_exit(!read && read.error().errno_value == EPERM && read.error().what.ends_with("read its stack") ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::kill(shy, SIGKILL);
  ::waitpid(shy, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace lull
