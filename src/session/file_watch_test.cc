#include "session/file_watch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/clock.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

class FileWatchTest : public testing::Test {
 protected:
  FileWatchTest() { EXPECT_NE(::mkdtemp(folder_.data()), nullptr); }
  ~FileWatchTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name) const { std::ofstream(folder_ + "/" + name) << "text\n"; }
  void wait_for(const int& count) {
    const Instant limit = clock_.now() + 30s;
    while (count == 0 && clock_.now() < limit) {
      loop_->in(5ms, [] {});
      ASSERT_TRUE(loop_->turn());
    }
  }

  std::string folder_ = testing::TempDir() + "/watched-XXXXXX";
  SystemClock clock_;
  std::unique_ptr<Loop> loop_ = *Loop::create(clock_);
  int changed_ = 0;
  int lost_ = 0;
};

TEST_F(FileWatchTest, AChangeIsSeenBehindThoseOfOtherFiles) {
  const FileWatch watch(*loop_, folder_ + "/lull.toml", [this] { ++changed_; }, [this] { ++lost_; });
  for (const char* name : {"other", "lull.toml~", "lull.toml", "lull.toml", "another"}) write(name);
  wait_for(changed_);
  EXPECT_EQ(changed_, 1) << "what comes within a short time is one change";
  EXPECT_EQ(lost_, 0);
}

TEST_F(FileWatchTest, AFolderThatGoesIsLostOnce) {
  const FileWatch watch(*loop_, folder_ + "/lull.toml", [this] { ++changed_; }, [this] { ++lost_; });
  std::filesystem::remove_all(folder_);
  wait_for(lost_);
  EXPECT_EQ(lost_, 1);
  EXPECT_EQ(changed_, 0);
  const FileWatch none(*loop_, folder_ + "/lull.toml", [] {}, [this] { ++lost_; });
  EXPECT_EQ(lost_, 2) << "there is nothing to watch";
}

}  // namespace
}  // namespace lull
