#include "act/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace lull {
namespace {

int status_of(const Process& process) {
  int status = 0;
  EXPECT_EQ(::waitpid(process.pid(), &status, 0), process.pid());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string output_of(SpawnOptions options) {
  const Fd file(::memfd_create("out", MFD_CLOEXEC));
  options.standard_output = file.get();
  const auto spawned = spawn(options);
  EXPECT_TRUE(spawned);
  if (!spawned) return "";
  EXPECT_EQ(status_of(spawned->process), 0);
  return *read_file("/proc/self/fd/" + std::to_string(file.get()));
}

TEST(Spawn, MissingAndUnexecutableAreErrorsNotChildren) {
  const auto missing = spawn({.arguments = {"no-such-command-anywhere"}});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().errno_value, ENOENT);
  EXPECT_EQ(status_of_failed_exec(missing.error()), 127);
  const auto folder = spawn({.arguments = {"/tmp"}});
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().errno_value, EACCES);
  EXPECT_EQ(status_of_failed_exec(folder.error()), 126);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child was left behind";
  EXPECT_FALSE(spawn({}));
}

TEST(Spawn, ArgumentsAndEnvironmentArriveAsGiven) {
  ::setenv("LULL_TEST_KEPT", "kept", 1);
  ::setenv("LULL_TEST_CHANGED", "before", 1);
  EXPECT_EQ(output_of({.arguments = {"sh", "-c", "printf '%s|' \"$LULL_TEST_KEPT\" \"$LULL_TEST_CHANGED\" \"$@\"", "0",
                                     "", "a b", "*", "\xff"},
                       .environment = {{"LULL_TEST_CHANGED", "after"}}}),
            "kept|after||a b|*|\xff|");
}

TEST(Spawn, NoDescriptorOfOursLeaks) {
  const Fd ours = *open_file("/dev/null", O_RDONLY);
  const std::string number = std::to_string(ours.get());
  EXPECT_EQ(output_of({.arguments = {"sh", "-c", "test -e /proc/$$/fd/" + number + " || echo closed"}}), "closed\n");
}

TEST(Spawn, InputFromMemoryNeverBlocks) {
  const std::string large(1 << 20, 'x');
  const auto input = memory_file(large);
  ASSERT_TRUE(input);
  EXPECT_EQ(output_of({.arguments = {"wc", "-c"}, .standard_input = input->get()}), "1048576\n");
  ::lseek(input->get(), 0, SEEK_SET);
  const auto spawned = spawn({.arguments = {"true"}, .standard_input = input->get()});
  ASSERT_TRUE(spawned);
  EXPECT_EQ(status_of(spawned->process), 0);
}

TEST(Spawn, SignalsAreAsWeWereGivenThem) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  const auto inherited = InheritedSignals::take();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  const std::string status =
      output_of({.arguments = {"grep", "-E", "SigBlk|SigIgn", "/proc/self/status"}, .signals = &inherited});
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  EXPECT_EQ(status.find("SigBlk:\t0000000000000000"), 0U) << status;
  EXPECT_NE(status.find("SigIgn:\t0000000000000000"), std::string::npos) << status;
}

TEST(Spawn, FindsExecutables) {
  EXPECT_TRUE(is_executable("sh"));
  EXPECT_TRUE(is_executable("/bin/sh"));
  EXPECT_FALSE(is_executable("/etc/passwd"));
  EXPECT_FALSE(is_executable("no-such-command-anywhere"));
}

}  // namespace
}  // namespace lull
