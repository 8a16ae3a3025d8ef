#include "sim/folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace lull::sim {
namespace {

namespace fs = std::filesystem;

class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    std::string name = fs::temp_directory_path() / "lull-folder-test-XXXXXX";
    base_ = ::mkdtemp(name.data());
  }
  ~FolderTest() override { fs::remove_all(base_); }

  std::size_t entries() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(base_), {})); }

  std::string base_;
};

TEST_F(FolderTest, IsFurnishedAndGoneAtTheEnd) {
  {
    const auto folder = Folder::create(base_, 3);
    ASSERT_TRUE(folder) << folder.error().message();
    struct stat status{};
    ASSERT_EQ(::stat(folder->path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, ::geteuid() == 0 ? 0755U : 0700U) << "others may use the GPUs that root simulates";
    EXPECT_TRUE(fs::exists(device_file(folder->path(), 2)));
    EXPECT_FALSE(fs::exists(device_file(folder->path(), 3)));
    EXPECT_TRUE(fs::exists(folder->dev() + "/nvidiactl"));
    EXPECT_EQ(fs::read_symlink(folder->dev() + "/pts"), "/dev/pts");
    EXPECT_TRUE(fs::is_directory(folder->leases()));
    EXPECT_EQ(sweep(base_), 0U);  // in use
    EXPECT_TRUE(fs::exists(folder->path()));
  }
  EXPECT_EQ(entries(), 0U);
}

TEST_F(FolderTest, OfAKilledOneIsSwept) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto folder = Folder::create(base_, 1);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(entries(), 1U);
  EXPECT_EQ(sweep(base_), 1U);
  EXPECT_EQ(entries(), 0U);
}

TEST_F(FolderTest, SweepLeavesAloneWhatIsNotItsOwn) {
  fs::create_directory(base_ + "/lull-sim-mine");         // no owner file in it
  fs::create_directory(base_ + "/.lull-sim-new-abcdef");  // just being made
  fs::create_directory_symlink("/", base_ + "/lull-sim-link");
  EXPECT_EQ(sweep(base_), 0U);
  EXPECT_EQ(entries(), 3U);
}

TEST_F(FolderTest, ThatCannotBeMadeIsAnError) {
  const auto folder = Folder::create(base_ + "/not/there", 1);
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().message().find(base_), std::string::npos);
}

}  // namespace
}  // namespace lull::sim
