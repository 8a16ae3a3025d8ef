#include "act/log_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/fd.h"

namespace lull {
namespace {

namespace fs = std::filesystem;

class LogFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "lull-log-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string text(const std::string& name) { return read_file(folder_ / name).value_or("-"); }
  fs::path folder_;
};

TEST_F(LogFiles, IsAppendedToAndBegunAnewAtItsSize) {
  for (int run = 0; run < 2; ++run) {
    auto log = LogFile::open(folder_ / "log", 10, 2);
    ASSERT_TRUE(log);
    log->append("12345");
  }
  EXPECT_EQ(text("log"), "1234512345");
  auto log = LogFile::open(folder_ / "log", 10, 2);
  log->append("a");
  EXPECT_EQ(text("log"), "a");
  EXPECT_EQ(text("log.1"), "1234512345");
  log->append("bcdefghij");
  log->append("k");
  log->append("0123456789abc");  // more than the size, in one piece
  EXPECT_EQ(text("log"), "0123456789abc");
  EXPECT_EQ(text("log.1"), "k");
  EXPECT_EQ(text("log.2"), "abcdefghij");
  EXPECT_FALSE(fs::exists(folder_ / "log.3"));
}

TEST_F(LogFiles, LinesStayWhole) {
  auto log = LogFile::open(folder_ / "log", 10, 9);
  log->append("one\ntwo\nthree\na line that is too long\nx\n");
  EXPECT_EQ(text("log.3"), "one\ntwo\n");
  EXPECT_EQ(text("log.2"), "three\n");
  EXPECT_EQ(text("log.1"), "a line that is too long\n");
  EXPECT_EQ(text("log"), "x\n");
}

TEST_F(LogFiles, WithoutALimitItGrowsAndWithoutOldOnesItIsEmptied) {
  auto endless = LogFile::open(folder_ / "endless", 0, 3);
  for (int i = 0; i < 100; ++i) endless->append("12345");
  EXPECT_EQ(text("endless").size(), 500U);
  auto none = LogFile::open(folder_ / "none", 5, 0);
  none->append("12345");
  none->append("6");
  EXPECT_EQ(text("none"), "6");
  EXPECT_FALSE(fs::exists(folder_ / "none.1"));
}

TEST_F(LogFiles, AFolderThatIsNotThereIsAnError) {
  EXPECT_FALSE(LogFile::open(folder_ / "nowhere/log", 10, 1));
  auto null = LogFile::open("/dev/null", 2, 1);
  ASSERT_TRUE(null);
  null->append("12345");
  EXPECT_FALSE(fs::exists("/dev/null.1"));
}

}  // namespace
}  // namespace lull
