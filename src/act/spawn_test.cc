#include "act/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "base/never_delivered_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

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

TEST(Spawn, WhatIsToBeUnsetIsNotInherited) {
  ::setenv("LULL_TEST_UNSET", "before", 1);
  EXPECT_EQ(
      output_of({.arguments = {"sh", "-c", "printf '%s' \"${LULL_TEST_UNSET-none}\""}, .unset = {"LULL_TEST_UNSET"}}),
      "none");
  ::unsetenv("LULL_TEST_UNSET");
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

// As old sandboxes do, whose list of allowed calls is older than clone3.
bool forbid_clone3(int answer) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(answer)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(filter), .filter = filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Spawn, WhereClone3IsForbidden) {
  for (const int answer : {ENOSYS, EPERM}) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (!forbid_clone3(answer)) ::_exit(77);
      const auto spawned = spawn({.arguments = {"sh", "-c", "exit 7"}});
      if (!spawned || spawned->process.fd() < 0 || status_of(spawned->process) != 7) ::_exit(1);
      const auto none = spawn({.arguments = {"no-such-command-anywhere"}});
      if (none || none.error().errno_value != ENOENT) ::_exit(2);
      ::_exit(::waitpid(-1, nullptr, 0) == -1 && errno == ECHILD ? 0 : 3);  // nobody was left to be reaped
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp here";
    EXPECT_EQ(status, 0) << answer;
  }
}

TEST(Spawn, ClosedStandardDescriptorsAreGuarded) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDIN_FILENO);
    ::close(STDOUT_FILENO);
    guard_standard_descriptors();
    struct stat nothing{};
    struct stat one{};
    bool right = ::stat("/dev/null", &nothing) == 0;
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO})
      right = right && ::fstat(fd, &one) == 0 && one.st_rdev == nothing.st_rdev && ::fcntl(fd, F_GETFD) == FD_CLOEXEC;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Spawn, FindsExecutables) {
  EXPECT_TRUE(is_executable("sh"));
  EXPECT_TRUE(is_executable("/bin/sh"));
  EXPECT_FALSE(is_executable("/etc/passwd"));
  EXPECT_FALSE(is_executable("no-such-command-anywhere"));
}

// A question to logind or systemctl, asked before anything is watched: it may hang in the kernel.
TEST(Spawn, WaitsForACommandThatKillDoesNotEndForALimitedTime) {
  const NeverDelivered never;
  if (!never.mounted()) GTEST_SKIP() << "no FUSE here, or not root";
  const Instant begin = SystemClock().now();
  const auto answer = run_and_wait({.arguments = {"cat", never.file()}}, 200ms);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().errno_value, ETIMEDOUT);
  EXPECT_LT(SystemClock().now() - begin, 15s);
}

// As execvp(3) does it: through PATH, past what may not be executed, and by the shell where a script does not say who
// runs it.
TEST(Spawn, FindsTheProgramAsExecvpDoes) {
  std::string folder = (std::filesystem::temp_directory_path() / "lull-spawn-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  for (const char* name : {"/first", "/second"}) std::filesystem::create_directory(folder + name);
  const auto write = [&](const std::string& name, mode_t mode) {
    const Fd file(::open((folder + name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, mode));
    ASSERT_TRUE(write_all(file.get(), "echo \"$1 by $0\"\nexit 5\n"));
  };
  write("/first/lull-spawn-script", 0600);
  write("/second/lull-spawn-script", 0700);
  const std::string before = std::getenv("PATH");
  ::setenv("PATH", (folder + "/none:" + folder + "/first:" + folder + "/second:" + before).c_str(), 1);
  const auto script = run_and_wait({.arguments = {"lull-spawn-script", "word"}}, 10s);
  std::filesystem::remove(folder + "/second/lull-spawn-script");
  const auto forbidden = spawn({.arguments = {"lull-spawn-script"}});
  ::setenv("PATH", before.c_str(), 1);
  ASSERT_TRUE(script) << script.error().message();
  EXPECT_EQ(script->status, 5);
  EXPECT_EQ(script->text, "word by " + folder + "/second/lull-spawn-script\n");
  ASSERT_FALSE(forbidden);
  // Root could execute what has no x bit no more than anybody else.
  EXPECT_EQ(forbidden.error().errno_value, EACCES);
  std::filesystem::remove_all(folder);
}

// In a namespace in which the users are others.
TEST(AccountTest, AllGroupsOfAUserAreFound) {
  constexpr int kNoNamespace = 77;
  std::string groups = (std::filesystem::temp_directory_path() / "lull-groups-XXXXXX").string();
  const Fd file(::mkstemp(groups.data()));
  ASSERT_TRUE(write_all(file.get(), "root:x:0:\nvideo:x:44:root\nrender:x:105:root\n"));
  ASSERT_EQ(::fchmod(file.get(), 0644), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(groups.c_str(), "/etc/group", nullptr, MS_BIND, nullptr) != 0)
      ::_exit(kNoNamespace);
    auto account = Account::find("root");
    if (!account) ::_exit(1);
    std::ranges::sort(account->groups);
    ::_exit(account->groups == std::vector<gid_t>{0, 44, 105} ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ::unlink(groups.c_str());
  if (WEXITSTATUS(status) == kNoNamespace) GTEST_SKIP() << "no namespaces here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lull
