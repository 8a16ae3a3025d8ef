#include "act/log_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
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

TEST_F(LogFiles, ALineThatIsOneByteTooLongBeginsAnotherFile) {
  auto log = LogFile::open(folder_ / "log", 10, 2);
  log->append("a\n");
  log->append("1234567\n");
  EXPECT_EQ(text("log"), "a\n1234567\n") << "as many as there is room for";
  log = LogFile::open(folder_ / "other", 10, 2);
  log->append("a\n");
  log->append("12345678\n");
  EXPECT_EQ(text("other"), "12345678\n");
  EXPECT_EQ(text("other.1"), "a\n");
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

TEST_F(LogFiles, GoesOnInTheSameFileWhereItCannotBeRotated) {
  const std::string longest(254, 'x');  // ".1" does not fit behind it
  fs::create_directories(folder_ / "log.1");
  for (const std::string& name : {std::string("log"), longest}) {
    auto log = LogFile::open(folder_ / name, 10, 1);
    ASSERT_TRUE(log);
    std::string all;
    for (int i = 0; i < 20; ++i) {
      log->append("12345\n");
      all += "12345\n";
    }
    EXPECT_EQ(text(name), all);
    EXPECT_EQ(log->rotation_error(), name == "log" ? EEXIST : ENAMETOOLONG);
    EXPECT_EQ(log->write_error(), 0);
  }
  EXPECT_TRUE(fs::is_directory(folder_ / "log.1")) << "what is not ours stays";
}

TEST_F(LogFiles, AFolderAmongTheOldOnesStaysWhereItIs) {
  fs::create_directories(folder_ / "log.1");
  auto log = LogFile::open(folder_ / "log", 4, 3);
  log->append("one\n");
  log->append("two\n");
  EXPECT_EQ(text("log"), "one\ntwo\n");
  EXPECT_TRUE(fs::is_directory(folder_ / "log.1"));
  EXPECT_FALSE(fs::exists(folder_ / "log.2"));
}

TEST_F(LogFiles, IsRotatedOnceThatIsPossibleAgain) {
  fs::create_directories(folder_ / "log.1");
  auto log = LogFile::open(folder_ / "log", 4, 1);
  log->append("one\n");
  log->append("two\n");
  fs::remove(folder_ / "log.1");
  log->append("three");
  EXPECT_EQ(text("log"), "three") << text("log.1");
  EXPECT_EQ(text("log.1"), "one\ntwo\n");
  EXPECT_EQ(log->rotation_error(), EEXIST) << "the first time is kept";
}

TEST_F(LogFiles, TheSameFileGrowsOnWhereNoNewOneCanBeOpened) {
  auto log = LogFile::open(folder_ / "log", 4, 1);
  log->append("one\n");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  log->append("two\n");
  log->append("three\n");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(log->rotation_error(), EMFILE);
  EXPECT_EQ(text("log"), "one\ntwo\nthree\n");
  EXPECT_FALSE(fs::exists(folder_ / "log.1"));
}

TEST_F(LogFiles, WhatCannotBeWrittenIsLostAndNoted) {
  auto full = LogFile::open("/dev/full", 4, 1);
  ASSERT_TRUE(full);
  full->append("one\n");
  EXPECT_EQ(full->write_error(), ENOSPC);
  EXPECT_EQ(full->rotation_error(), 0);
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  EXPECT_FALSE(LogFile::open(folder_ / "fifo", 4, 1)) << "nobody reads it";
  const Fd reader(::open((folder_ / "fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  auto fifo = LogFile::open(folder_ / "fifo", 4, 1);
  ASSERT_TRUE(fifo);
  for (int i = 0; i < 100 && fifo->write_error() == 0; ++i) fifo->append(std::string(4096, 'x'));
  EXPECT_EQ(fifo->write_error(), EAGAIN) << "nobody takes anything out of it";
}

}  // namespace
}  // namespace lull
