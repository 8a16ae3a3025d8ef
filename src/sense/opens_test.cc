#include "sense/opens.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/fd.h"

namespace lull {
namespace {

namespace fs = std::filesystem;

class Opens : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "lull-opens-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<std::string> plain_files(std::size_t count) {
    std::vector<std::string> files;
    for (std::size_t i = 0; i < count; ++i) {
      files.push_back(folder_ / ("nvidia" + std::to_string(i)));
      std::ofstream(files.back()) << "";
    }
    return files;
  }
  // Nodes of real devices that nobody opens by chance: /dev/full and a second of that kind.
  bool make_node(const fs::path& path, unsigned minor) {
    return ::mknod(path.c_str(), S_IFCHR | 0600, ::makedev(1, minor)) == 0;
  }

  static pid_t open_in_child(const std::string& file, const std::function<void()>& before = nullptr) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (before) before();
      const int fd = ::open(file.c_str(), O_RDONLY);
      ::_exit(fd >= 0 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return child;
  }

  static std::vector<DeviceOpen> taken(OpenWatch& watch) {
    pollfd ready{watch.descriptor(), POLLIN, 0};
    std::vector<DeviceOpen> opens;
    bool lost = false;
    if (::poll(&ready, 1, 2000) == 1) watch.take(opens, lost);
    EXPECT_FALSE(lost);
    return opens;
  }

  fs::path folder_;
};

TEST_F(Opens, InotifyTellsWhichFileButNotWho) {
  const auto files = plain_files(3);
  const auto watch = watch_by_inotify(files);
  ASSERT_NE(watch, nullptr);
  open_in_child(files[1]);
  EXPECT_EQ(taken(*watch), (std::vector<DeviceOpen>{{1, 0}}));
}

TEST_F(Opens, FanotifyTellsWhichFileAndWho) {
  const auto files = plain_files(3);
  const auto watch = watch_by_fanotify(files);
  if (!watch) GTEST_SKIP() << "not allowed here";
  const pid_t first = open_in_child(files[2]);
  EXPECT_EQ(taken(*watch), (std::vector<DeviceOpen>{{2, first}}));
  const pid_t second = open_in_child(files[0]);
  EXPECT_EQ(taken(*watch), (std::vector<DeviceOpen>{{0, second}}));
}

TEST_F(Opens, TheKernelProgramSeesEveryNodeOfTheDevice) {
  const std::vector<std::string> files = {folder_ / "nvidia0", folder_ / "nvidia1"};
  const fs::path another = folder_ / "of-a-container";
  if (!make_node(files[0], 7) || !make_node(files[1], 11) || !make_node(another, 7))
    GTEST_SKIP() << "device nodes cannot be made here";
  const auto watch = watch_by_cgroup_device(files);
  if (!watch) GTEST_SKIP() << "not allowed here";
  const pid_t first = open_in_child(files[0]);
  auto opens = taken(*watch);
  ASSERT_FALSE(opens.empty());
  EXPECT_EQ(opens.front(), (DeviceOpen{0, first}));
  const pid_t second = open_in_child(another);
  opens = taken(*watch);
  ASSERT_FALSE(opens.empty());
  EXPECT_EQ(opens.front(), (DeviceOpen{0, second})) << "by its number, whatever the node is called";
  open_in_child("/dev/zero");
  const pid_t third = open_in_child(files[1]);
  opens = taken(*watch);
  ASSERT_FALSE(opens.empty());
  EXPECT_EQ(opens.front(), (DeviceOpen{1, third})) << "other devices are not told";
}

TEST_F(Opens, ManyAtOnceAreAllTold) {
  const auto files = plain_files(2);
  const auto watch = OpenWatch::start(files);
  ASSERT_NE(watch->way(), OpenWay::none);
  for (int i = 0; i < 500; ++i) (void)Fd(::open(files[static_cast<std::size_t>(i) % 2].c_str(), O_RDONLY | O_CLOEXEC));
  // Of opens that are the same the kernel may make one.
  const auto opens = taken(*watch);
  EXPECT_GE(opens.size(), 2U);
}

TEST_F(Opens, TheBestWayThatIsAllowedIsTaken) {
  const auto files = plain_files(1);
  EXPECT_NE(OpenWatch::start(files)->way(), OpenWay::cgroup_device) << "plain files are no devices";
  EXPECT_EQ(OpenWatch::start(files, OpenWay::inotify)->way(), OpenWay::inotify);
  EXPECT_EQ(OpenWatch::start(files, OpenWay::none)->way(), OpenWay::none);
  EXPECT_EQ(OpenWatch::start({}, OpenWay::inotify)->way(), OpenWay::none);
  const std::vector<std::string> missing = {folder_ / "nvidia7"};
  EXPECT_EQ(OpenWatch::start(missing)->way(), OpenWay::none);
  EXPECT_FALSE(parse_open_way("magic"));
  EXPECT_EQ(parse_open_way("bpf"), OpenWay::cgroup_device);
}

}  // namespace
}  // namespace lull
