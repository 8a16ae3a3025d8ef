// A real guard and its filler, owned by a process that stands for lull and can be killed.
#include "act/guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>

#include "base/text.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr int kLimit = 15000;  // milliseconds, for anything to happen

// Answers until something is written, and then never again.
void serve_until_a_write(int fuse) {
  std::vector<char> in(1 << 17);
  for (;;) {
    const ssize_t got = ::read(fuse, in.data(), in.size());
    if (got < 0 && (errno == EPERM || errno == ENOENT || errno == EINTR)) {  // not mounted yet, or taken back
      ::usleep(10'000);
      continue;
    }
    if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) ::_exit(0);
    fuse_in_header head{};
    std::memcpy(&head, in.data(), sizeof head);
    fuse_attr attributes{};
    attributes.ino = head.nodeid;
    attributes.nlink = 1;
    attributes.mode = head.nodeid == FUSE_ROOT_ID && head.opcode != FUSE_LOOKUP ? S_IFDIR | 0755 : S_IFREG | 0644;
    std::string body;
    const auto answer = [&](const auto& out) { body.assign(reinterpret_cast<const char*>(&out), sizeof out); };
    fuse_out_header out{.len = 0, .error = 0, .unique = head.unique};
    switch (head.opcode) {
      case FUSE_INIT: {
        fuse_init_out init{};
        init.major = FUSE_KERNEL_VERSION;
        init.minor = 31;
        init.max_write = 65536;
        answer(init);
        break;
      }
      case FUSE_LOOKUP: {
        fuse_entry_out entry{};
        entry.nodeid = attributes.ino = 2;
        entry.attr_valid = entry.entry_valid = 1000;
        entry.attr = attributes;
        answer(entry);
        break;
      }
      case FUSE_GETATTR: {
        fuse_attr_out attr{};
        attr.attr_valid = 1000;
        attr.attr = attributes;
        answer(attr);
        break;
      }
      case FUSE_OPEN: {
        fuse_open_out open{};
        open.fh = 1;
        answer(open);
        break;
      }
      case FUSE_WRITE:
        for (;;) ::pause();
      default: out.error = -ENOSYS;
    }
    out.len = static_cast<std::uint32_t>(sizeof out + body.size());
    body.insert(0, reinterpret_cast<const char*>(&out), sizeof out);
    (void)!::write(fuse, body.data(), body.size());
  }
}

class GuardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "lull-guard-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    ::chmod(folder_.c_str(), 0777);
    options_.use_cgroup = false;
    options_.log = folder_ / "log";
    options_.command = {"sh", "-c",
                        "i=0; while [ $i -lt 500 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done;"
                        " touch " +
                            (folder_ / "done").string() + "; exec sleep 1000"};
  }
  void TearDown() override {
    kill_owner();
    for (const Process& one : left_) (void)one.signal(SIGKILL);
    if (server_ > 0) {
      ::kill(server_, SIGKILL);
      ::waitpid(server_, nullptr, 0);
    }
    fs::remove_all(folder_);
  }
  void kill_owner() {
    if (owner_ <= 0) return;
    ::kill(owner_, SIGKILL);
    ::waitpid(owner_, nullptr, 0);
    owner_ = 0;
  }

  // Stands for lull: starts the filler, tells of it line by line, ends it when it is told to.
  void begin(const std::function<void()>& before = nullptr) {
    int told[2] = {-1, -1};
    int orders[2] = {-1, -1};
    ASSERT_EQ(::pipe2(told, O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(orders, O_CLOEXEC), 0);
    owner_ = ::fork();
    if (owner_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (before) before();
      own(told[1], orders[0]);
    }
    ::close(told[1]);
    ::close(orders[0]);
    told_ = Fd(told[0]);
    orders_ = Fd(orders[1]);
  }
  [[noreturn]] void own(int told, int orders) {
    const SystemClock clock;
    auto loop = *Loop::create(clock);
    Children children;
    Children::become_subreaper();
    const auto tell = [told](const std::string& line) { (void)!::write(told, (line + "\n").data(), line.size() + 1); };
    auto guard = Guard::start(*loop, children, options_,
                              {.started = [&](pid_t pid) { tell("started " + std::to_string(pid)); },
                               .gone = [&](const GuardEnd& how) { tell("gone " + how.not_started); },
                               .stuck = nullptr,
                               .still = [&] { tell("still"); },
                               .log_trouble = [&](const std::string& what) { tell("log " + what); }});
    if (!guard) tell("failed");
    (void)loop->on_ready(orders, [&] {
      char order = 0;
      if (::read(orders, &order, 1) != 1) return loop->forget(orders);
      if (order == 'e') (*guard)->end({.signal = SIGTERM, .grace = 1s});
      if (order == 'h') (*guard)->halt();
      if (order == 'g') (*guard)->go_on();
    });
    for (;;) {
      loop->in(10ms, [] {});
      (void)loop->turn();
      children.sweep();
    }
  }
  void order(char one) { (void)!::write(orders_.get(), &one, 1); }

  // The next line that begins so; others are passed over.
  std::string line(std::string_view begin) {
    for (;;) {
      const auto end = heard_.find('\n');
      if (end != std::string::npos) {
        const std::string one = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        if (one.starts_with(begin)) return one;
        continue;
      }
      std::array<char, 4096> bytes;
      pollfd ready{told_.get(), POLLIN, 0};
      const ssize_t got = ::poll(&ready, 1, kLimit) == 1 ? ::read(told_.get(), bytes.data(), bytes.size()) : 0;
      if (got <= 0) return "nothing in time";
      heard_.append(bytes.data(), static_cast<std::size_t>(got));
    }
  }
  void started() {
    const std::string said = line("started ");
    const auto pid = to_pid(std::string_view(said).substr(std::min<std::size_t>(said.size(), 8)));
    ASSERT_TRUE(pid) << said;
    auto filler = Process::open(*pid);
    ASSERT_TRUE(filler);
    const auto entry = read_process_entry(*pid);
    ASSERT_TRUE(entry);
    auto guard = Process::open(entry->parent);
    ASSERT_TRUE(guard);
    left_.push_back(*std::move(filler));
    left_.push_back(*std::move(guard));
  }
  void wait_for(const std::string& file) {
    for (int i = 0; i < kLimit / 10 && !fs::exists(folder_ / file); ++i) ::usleep(10'000);
    EXPECT_TRUE(fs::exists(folder_ / file));
  }
  // The filler and its guard, however that one is doing.
  void expect_gone() {
    for (const Process& one : left_) {
      pollfd over{one.fd(), POLLIN, 0};
      EXPECT_EQ(::poll(&over, 1, kLimit), 1) << one.pid() << " lives";
    }
  }
  // Both ways to end: of its own, and with lull.
  void ends_and_dies_with_lull() {
    for (const bool killed : {false, true}) {
      fs::remove(folder_ / "done");
      begin();
      started();
      wait_for("done");
      if (killed)
        kill_owner();
      else
        order('e');
      expect_gone();
      if (!killed) {
        EXPECT_EQ(line("gone"), "gone ");
        kill_owner();
      }
      left_.clear();
    }
  }

  fs::path folder_;
  GuardOptions options_;
  pid_t owner_ = 0;
  pid_t server_ = 0;
  Fd told_;
  Fd orders_;
  std::string heard_;
  std::vector<Process> left_;
};

TEST_F(GuardTest, SleepsWhileItWaitsForTheGrace) {
  options_.log.clear();
  options_.command = {"sh", "-c",
                      "trap '' TERM; touch " + (folder_ / "done").string() + "; while :; do sleep 1000; done"};
  begin();
  started();
  wait_for("done");
  order('e');
  // Who polls without end never gives the processor up of its own accord; how much of it that takes the machine says.
  const Process& guard = left_[1];
  constexpr std::string_view kWord = "\nvoluntary_ctxt_switches:\t";
  std::optional<std::uint64_t> first;
  std::uint64_t last = 0;
  while (!guard.ended()) {
    const std::string status = read_file(fmt::format("/proc/{}/status", guard.pid())).value_or("");
    if (const std::size_t at = status.find(kWord); at != std::string::npos) {
      const std::string_view rest = std::string_view(status).substr(at + kWord.size());
      last = to_unsigned(rest.substr(0, rest.find('\n'))).value_or(last);
      first = first.value_or(last);
    }
    ::usleep(10'000);
  }
  ASSERT_TRUE(first);
  EXPECT_GE(last - *first, 5U) << "it has slept";
  expect_gone();
}

TEST_F(GuardTest, WhatAKilledGuardLeavesIsKilled) {
  options_.log.clear();
  options_.command = {"sh", "-c",
                      "setsid sleep 1000 & echo $! >" + (folder_ / "pid").string() + "; touch " +
                          (folder_ / "done").string() + "; wait"};
  begin();
  started();
  wait_for("done");
  const auto pid = to_pid(trim(read_file(folder_ / "pid").value_or("")));
  ASSERT_TRUE(pid);
  auto left = Process::open(*pid);
  ASSERT_TRUE(left);
  left_.push_back(*std::move(left));
  ASSERT_TRUE(left_[1].signal(SIGKILL));
  EXPECT_EQ(line("gone"), "gone ");
  expect_gone();
}

TEST(WhatPreventsStart, IsSaidOfTheLogOnlyWhereItCannotBeWritten) {
  GuardOptions options;
  options.command = {"/bin/true"};
  options.log = (fs::temp_directory_path() / "lull-log-of-nobody").string();
  EXPECT_EQ(what_prevents_start(options), std::vector<std::string>());
  options.log = fs::temp_directory_path().string();
  const std::vector<std::string> said = what_prevents_start(options);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said[0].find("Is a directory"), std::string::npos) << said[0];
}

TEST_F(GuardTest, WritesTheLogToItsEnd) {
  options_.command = {"sh", "-c", "echo one; echo two >&2"};
  begin();
  EXPECT_EQ(line("gone"), "gone ");
  EXPECT_EQ(read_file(folder_ / "log").value_or(""), "one\ntwo\n");
}

TEST_F(GuardTest, ALogThatCannotBeRotatedIsSaidOnceAndKeepsNobody) {
  fs::create_directories(folder_ / "log.1");
  options_.log_size = 1000;
  options_.log_keep = 1;
  begin();
  started();
  EXPECT_NE(line("log ").find("cannot be rotated: File exists; it grows"), std::string::npos);
  wait_for("done");
  order('e');
  EXPECT_EQ(line(""), "gone ") << "said once";
  EXPECT_EQ(fs::file_size(folder_ / "log"), 500U * 41);
  kill_owner();
  left_.clear();
  ends_and_dies_with_lull();
}

TEST_F(GuardTest, AFullDiskKeepsNobody) {
  options_.log = "/dev/full";
  begin();
  EXPECT_NE(line("log ").find("cannot be written: No space left on device; output is lost"), std::string::npos);
  kill_owner();
  ends_and_dies_with_lull();
}

TEST_F(GuardTest, AFifoThatNobodyEmptiesKeepsNobody) {
  ASSERT_EQ(::mkfifo(options_.log.c_str(), 0600), 0);
  begin();
  EXPECT_EQ(line("gone"), "gone its log " + options_.log + ": No such device or address") << "nobody reads it";
  kill_owner();
  const Fd reader(::open(options_.log.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  options_.command[2] = "head -c 200000 /dev/zero; " + options_.command[2];
  ends_and_dies_with_lull();
}

TEST_F(GuardTest, AHangingLogDoesNotKeepTheFillerAlive) {
  for (const bool killed : {false, true}) {
    const Fd fuse(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!fuse) GTEST_SKIP() << "no FUSE here";
    server_ = ::fork();
    if (server_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      serve_until_a_write(fuse.get());
    }
    fs::create_directories(folder_ / "fuse");
    options_.log = folder_ / "fuse/log";
    begin([&] {
      const std::string data = "fd=" + std::to_string(fuse.get()) + ",rootmode=40000,user_id=0,group_id=0";
      if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount("lull", (folder_ / "fuse").c_str(), "fuse", 0, data.c_str()) != 0)
        ::_exit(1);
    });
    int status = 0;
    ::usleep(100'000);
    if (::waitpid(owner_, &status, WNOHANG) == owner_) {
      owner_ = 0;
      GTEST_SKIP() << "no mounts here";
    }
    started();
    wait_for("done");  // less than a pipe holds
    if (killed) {
      kill_owner();
    } else {
      order('h');
      EXPECT_EQ(line("still"), "still") << "it is paused as ever";
      order('g');
      order('e');
    }
    expect_gone();
    if (!killed) {
      EXPECT_EQ(line("gone"), "gone ");
    }
    kill_owner();
    left_.clear();
    fs::remove(folder_ / "done");
    ::kill(server_, SIGKILL);
    ::waitpid(server_, nullptr, 0);
    server_ = 0;
  }
}

TEST_F(GuardTest, ALogWriterThatIsKilledCostsTheLogAlone) {
  options_.command = {"sh", "-c",
                      "while [ ! -e " + (folder_ / "go").string() +
                          " ]; do sleep 0.01; done; head -c 300000 /dev/zero; touch " + (folder_ / "done").string() +
                          "; exec sleep 1000"};
  begin();
  started();
  ASSERT_EQ(left_.size(), 2U);
  pid_t writer = 0;
  for (const ProcessEntry& one : read_all_processes())
    if (one.parent == left_[1].pid() && one.pid != left_[0].pid()) writer = one.pid;
  ASSERT_GT(writer, 0);
  ::kill(writer, SIGKILL);
  fs::create_directories(folder_ / "go");
  wait_for("done");  // neither SIGPIPE nor a full pipe
  kill_owner();
  expect_gone();
}

// The orphans of a filler come to its guard. Nobody else can reap them.
TEST_F(GuardTest, DeadOrphansOfAFillerAreReapedWhileItRunsAndWhileItIsPaused) {
  options_.command = {"sh", "-c",
                      "i=0; while [ $i -lt 100 ]; do (sh -c : &); i=$((i+1)); done; touch " +
                          (folder_ / "done").string() + "; exec sleep 1000"};
  const auto zombies = [&] {
    return std::ranges::count_if(read_all_processes(),
                                 [&](const ProcessEntry& one) { return one.parent == left_[1].pid() && one.ended(); });
  };
  for (const bool paused : {false, true}) {
    fs::remove(folder_ / "done");
    begin();
    started();
    wait_for("done");
    if (paused) {
      order('h');
      EXPECT_EQ(line("still"), "still");
    }
    for (int i = 0; i < kLimit / 10 && zombies() > 0; ++i) ::usleep(10'000);
    EXPECT_EQ(zombies(), 0) << (paused ? "paused" : "running");
    kill_owner();
    expect_gone();
    left_.clear();
  }
}

TEST_F(GuardTest, TheLogIsOpenedWithTheRightsOfItsUserAlone) {
  if (::getuid() != 0) GTEST_SKIP() << "only root may become another user";
  options_.user = "nobody";
  fs::create_directories(folder_ / "ours");
  ::chmod((folder_ / "ours").c_str(), 0770);  // root's group
  options_.log = folder_ / "ours/log";
  begin();
  EXPECT_EQ(line("gone"), "gone its log " + options_.log + ": Permission denied");
  EXPECT_FALSE(fs::exists(options_.log));
  kill_owner();
  options_.log = folder_ / "log";
  ends_and_dies_with_lull();
  struct stat status{};
  ASSERT_EQ(::stat(options_.log.c_str(), &status), 0);
  EXPECT_NE(status.st_uid, 0U);
}

TEST_F(GuardTest, WhereItCannotBecomeTheUserNothingIsOpened) {
  if (::getuid() != 0) GTEST_SKIP() << "only root may become another user";
  options_.user = "nobody";
  begin([] {
    __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {};
    ::syscall(SYS_capget, &head, data);
    data[0].effective &= ~(1U << CAP_SETUID);
    data[0].permitted &= ~(1U << CAP_SETUID);
    ::syscall(SYS_capset, &head, data);
  });
  EXPECT_EQ(line("gone"), "gone its log " + options_.log + ": Operation not permitted");
  EXPECT_FALSE(fs::exists(options_.log));
}

}  // namespace
}  // namespace lull
