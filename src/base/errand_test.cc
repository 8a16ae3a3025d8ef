#include "base/errand.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/fd.h"
#include "base/process.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

Instant now() { return SystemClock().now(); }

// Children of ours that were sent on an errand and have not ended.
std::size_t errands_under_way() {
  const auto is_one = [](const ProcessEntry& one) {
    return one.parent == ::getpid() && one.name == "lull-errand" && !one.ended();
  };
  return static_cast<std::size_t>(std::ranges::count_if(read_all_processes(), is_one));
}

[[noreturn]] void hang() {
  for (;;) ::pause();
}

// A file system with one file that is never delivered: whoever reads it waits in a sleep that SIGKILL does not end,
// until the process that should deliver it is gone.
class NeverDelivered {
 public:
  NeverDelivered() {
    std::string name = (std::filesystem::temp_directory_path() / "lull-never-XXXXXX").string();
    place_ = ::mkdtemp(name.data());
    Fd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    const std::string options = "fd=" + std::to_string(device.get()) + ",rootmode=40000,user_id=0,group_id=0";
    mounted_ = device && ::mount("never", place_.c_str(), "fuse", 0, options.c_str()) == 0;
    if (!mounted_) return;
    server_ = ::fork();
    if (server_ == 0) serve(device.get());
  }
  NeverDelivered(const NeverDelivered&) = delete;
  NeverDelivered& operator=(const NeverDelivered&) = delete;
  ~NeverDelivered() {
    if (server_ > 0) {
      ::kill(server_, SIGKILL);
      ::waitpid(server_, nullptr, 0);
    }
    if (mounted_) ::umount2(place_.c_str(), MNT_DETACH);
    ::rmdir(place_.c_str());
  }
  bool mounted() const { return mounted_; }
  std::string file() const { return place_ + "/file"; }

 private:
  static fuse_attr attributes(std::uint64_t node) {
    fuse_attr attr{};
    attr.ino = node;
    attr.size = 4096;
    attr.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
    attr.nlink = 1;
    return attr;
  }
  template <class Body>
  static void reply(int device, std::uint64_t unique, const Body& body) {
    struct {
      fuse_out_header header;
      Body body;
    } out{};
    out.header = {.len = sizeof out, .error = 0, .unique = unique};
    out.body = body;
    (void)!::write(device, &out, sizeof out);
  }
  [[noreturn]] static void serve(int device) {
    ::alarm(120);
    std::vector<char> bytes(1U << 17);
    while (::read(device, bytes.data(), bytes.size()) > 0) {
      fuse_in_header in{};
      std::memcpy(&in, bytes.data(), sizeof in);
      if (in.opcode == FUSE_INIT) {
        fuse_init_out out{};
        out.major = FUSE_KERNEL_VERSION;
        out.minor = FUSE_KERNEL_MINOR_VERSION;
        out.max_write = 65536;
        reply(device, in.unique, out);
      } else if (in.opcode == FUSE_LOOKUP) {
        fuse_entry_out out{};
        out.nodeid = 2;
        out.entry_valid = out.attr_valid = 3600;
        out.attr = attributes(2);
        reply(device, in.unique, out);
      } else if (in.opcode == FUSE_GETATTR) {
        fuse_attr_out out{};
        out.attr_valid = 3600;
        out.attr = attributes(in.nodeid);
        reply(device, in.unique, out);
      } else if (in.opcode == FUSE_OPEN) {
        reply(device, in.unique, fuse_open_out{});
      } else if (in.opcode != FUSE_READ) {
        const fuse_out_header no{.len = sizeof no, .error = -ENOSYS, .unique = in.unique};
        (void)!::write(device, &no, sizeof no);
      }
    }
    ::_exit(0);
  }

  std::string place_;
  bool mounted_ = false;
  pid_t server_ = -1;
};

TEST(Errand, Faults_D5_OneInASleepThatKillDoesNotEndIsLeftBehindAndWeExit) {
  const NeverDelivered never;
  if (!never.mounted()) GTEST_SKIP() << "no FUSE here, or not root";
  const Instant begin = now();
  // A program of its own, to see that its end does not wait for the errand either.
  const pid_t program = ::fork();
  if (program == 0) {
    const auto answer = ask_aside([&] { return *read_file(never.file()); }, 300ms);
    const auto next = ask_aside([] { return std::string("next"); }, 10s);
    ::_exit(!answer && answer.error().errno_value == ETIMEDOUT && errands_under_way() == 1 && next == "next" ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(program, &status, 0), program);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "it was not stuck, or we were";
  EXPECT_LT(now() - begin, 10s);
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
  EXPECT_EQ(errands_under_way(), 0U) << "one that can be killed is";
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
