#include "trace/rollup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/fd.h"
#include "trace/history.h"
#include "trace/test_trace.h"
#include "trace/writer.h"

namespace lull::trace {
namespace {

constexpr const char* kRolledHeader = "time,gpu,uuid,util_percent,power_watts,host,users,command\n";

class RollUpTest : public testing::Test {
 protected:
  RollUpTest() {
    std::string name = testing::TempDir() + "rollup-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~RollUpTest() override { std::filesystem::remove_all(folder_); }

  static constexpr const char* kName = "2026-11-17.csv.zst";
  std::string path() const { return folder_ + "/" + kName; }

  static std::string day_of(int ticks, int level) {
    std::string text = kRolledHeader;
    std::mt19937 dice(static_cast<unsigned>(ticks));
    for (int tick = 0; tick < ticks; ++tick)
      for (int gpu = 0; gpu < 3; ++gpu) {
        const int seconds = tick * 5 % 86400;
        const std::string util = dice() % 50 == 0 ? "" : fmt::format("{}.{}", level + dice() % 10, dice() % 10);
        const std::string who = dice() % 1000 < 3 ? "none," : R"(ada,"a, ""b"" x)" + std::to_string(tick / 500) + '"';
        text += fmt::format("2026-11-17T{:02}:{:02}:{:02}.{:03}Z,{},GPU-{},{},{},n1,{}\n", seconds / 3600,
                            seconds / 60 % 60, seconds % 60, dice() % 4, gpu, gpu, util, 60 + dice() % 300, who);
      }
    return text;
  }
  void write(const std::string& text, bool append = false) const {
    if (!append) std::filesystem::remove(path());
    auto writer = TraceWriter::open(
        {.path = path(), .format = Format::csv, .packing = Packing::zstd, .header = kRolledHeader, .like = {}});
    ASSERT_TRUE(writer);
    writer->add(append ? text : text.substr(text.find('\n') + 1));
    ASSERT_TRUE(writer->flush());
    ASSERT_TRUE(writer->close());
  }
  std::string read(unsigned threads = 1) const {
    TraceOptions options;
    options.paths = {path()};
    options.metrics = {Metric::util, Metric::power};
    options.who = true;
    options.threads = threads;
    auto back = read_back(std::move(options));
    if (!back) return back.error().message();
    std::string text;
    for (const auto& [label, samples] : back->of)
      for (const Sample& sample : samples)
        text += fmt::format("{} {} {} {}\n", label, sample.at, sample.values[0], sample.values[1]);
    const TraceReport& report = back->report;
    for (std::size_t i = 0; i < report.holders.size(); ++i)
      text += report.holders[static_cast<float>(i)].command + report.holders[static_cast<float>(i)].user_text() + "\n";
    return text + fmt::format("{} {} {} {}", report.samples, report.bad_rows, report.duplicates, report.bytes);
  }
  // Another day's rows behind its back: with the size and the time that the roll-up was made of.
  void replace_unseen(const std::string& text) const {
    struct stat was{};
    ASSERT_EQ(::stat(path().c_str(), &was), 0);
    write(text);
    const auto fd = open_file(path(), O_WRONLY);
    ASSERT_LE(std::filesystem::file_size(path()), static_cast<std::uintmax_t>(was.st_size));
    ASSERT_EQ(::ftruncate(fd->get(), was.st_size), 0);
    const timespec times[] = {was.st_atim, was.st_mtim};
    ASSERT_EQ(::futimens(fd->get(), times), 0);
  }
  bool rolled() const { return std::filesystem::exists(rollup_path(path())); }

  std::string folder_;
};

TEST_F(RollUpTest, GivesTheRowsOfItsDayOnAnyNumberOfThreads) {
  write(day_of(60'000, 40));  // several blocks
  const std::string before = read();
  ASSERT_TRUE(roll_up(path()));
  ASSERT_TRUE(rolled());
  EXPECT_EQ(read(), before);
  EXPECT_EQ(read(3), before);
}

TEST_F(RollUpTest, IsReadInPlaceOfTheRows) {
  write(day_of(3000, 40));
  const std::string before = read();
  ASSERT_TRUE(roll_up(path()));
  replace_unseen(day_of(1000, 80));
  EXPECT_EQ(read(), before);
  std::filesystem::remove(rollup_path(path()));
  EXPECT_NE(read(), before);
}

// In a folder where all may make files anybody could put one there.
TEST_F(RollUpTest, OneThatOthersMayWriteIsNotReadAndIsRemade) {
  const std::string rollup = rollup_path(path());
  write(day_of(3000, 40));
  ASSERT_TRUE(roll_up(path()));
  ASSERT_EQ(::chmod(rollup.c_str(), 0666), 0);
  ASSERT_TRUE(roll_up(path()));
  EXPECT_EQ(std::filesystem::status(rollup).permissions(), std::filesystem::status(path()).permissions());
  const std::string right = read();
  replace_unseen(day_of(1000, 80));
  EXPECT_EQ(read(), right);
  ASSERT_EQ(::chmod(rollup.c_str(), 0666), 0);
  EXPECT_NE(read(), right);
  ASSERT_EQ(::chmod(rollup.c_str(), 0600), 0);
  EXPECT_EQ(read(), right);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(rollup.c_str(), 65534, 65534), 0);
    EXPECT_NE(read(), right);
  }
  std::filesystem::remove(rollup);
  ASSERT_EQ(::mkfifo(rollup.c_str(), 0600), 0);
  EXPECT_NE(read(), right) << "nobody waits for a writer";
}

TEST_F(RollUpTest, OfADayThatWasWrittenToSinceIsRemade) {
  write(day_of(3000, 40));
  ASSERT_TRUE(roll_up(path()));
  write("2026-11-17T23:59:59.000Z,0,GPU-0,7,7,n1,bob,x\n", true);
  const std::string changed = read();
  EXPECT_NE(changed.find("bob"), std::string::npos) << "the row is there before anybody remakes it";
  ASSERT_TRUE(roll_up(path()));
  EXPECT_EQ(read(), changed);
  replace_unseen(day_of(1000, 80));
  EXPECT_EQ(read(), changed) << "it was remade";
}

TEST_F(RollUpTest, OneThatIsCurrentStays) {
  write(day_of(100, 40));
  ASSERT_TRUE(roll_up(path()));
  struct stat first{};
  struct stat second{};
  ASSERT_EQ(::stat(rollup_path(path()).c_str(), &first), 0);
  ASSERT_TRUE(roll_up(path()));
  ASSERT_EQ(::stat(rollup_path(path()).c_str(), &second), 0);
  EXPECT_EQ(first.st_ino, second.st_ino);
}

TEST_F(RollUpTest, DamageCostsNothingButTime) {
  write(day_of(300, 40));
  const std::string right = read();
  ASSERT_TRUE(roll_up(path()));
  const std::string rollup = rollup_path(path());
  const std::string whole = *read_file(rollup);
  std::mt19937 dice(1);
  for (int i = 0; i < 300; ++i) {
    std::string changed = whole;
    if (i % 3 == 0)
      changed.resize(dice() % whole.size());
    else
      for (int k = 0; k < (i % 3 == 1 ? 1 : 20); ++k) changed[dice() % changed.size()] = static_cast<char>(dice());
    std::ofstream(rollup, std::ios::binary) << changed;
    ASSERT_EQ(read(1 + i % 2), right) << i;
  }
}

TEST_F(RollUpTest, ADayWithARowThatCannotBeReadHasNone) {
  write(day_of(100, 40) + "2026-11-17T23:59:59.000Z,0,GPU-0,no number,7,n1,bob,x\n");
  ASSERT_TRUE(roll_up(path()));
  EXPECT_FALSE(rolled());
  EXPECT_TRUE(read().contains(" 1 0 ")) << "the row is counted";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "nothing is left behind";
}

TEST_F(RollUpTest, WhatTheDayLacksIsNotLookedForInIt) {
  write(day_of(100, 40));
  ASSERT_TRUE(roll_up(path()));
  TraceOptions options;
  options.paths = {path()};
  options.metrics = {Metric::util, Metric::temp};
  const auto back = read_back(options);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->report.samples, 300U);
}

TEST_F(RollUpTest, CanBeReadByWhoCanReadTheDayAndGoesWithIt) {
  write(day_of(100, 40));
  ::chmod(path().c_str(), 0640);
  ASSERT_TRUE(repack_days(folder_, Day(std::chrono::year(2026) / 11 / 18)));
  ASSERT_TRUE(rolled());
  EXPECT_EQ(static_cast<unsigned>(std::filesystem::status(rollup_path(path())).permissions()), 0640U);
  EXPECT_EQ(list_days(folder_)->size(), 1U) << "it is no day";
  std::filesystem::copy(rollup_path(path()), folder_ + "/.2026-11-16.csv.zst.rollup");
  ASSERT_TRUE(repack_days(folder_, Day(std::chrono::year(2026) / 11 / 18)));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/.2026-11-16.csv.zst.rollup")) << "of a day that is gone";
  std::filesystem::copy(path(), folder_ + "/2026-11-18.csv.zst");
  ASSERT_EQ(*remove_old_days(folder_, 1), 1U);
  EXPECT_FALSE(rolled());
}

TEST_F(RollUpTest, WhatCannotBeWrittenIsSaidAndLeavesTheDayAsItIs) {
  write(day_of(100, 40));
  const std::string right = read();
  ASSERT_EQ(::mkdir((rollup_path(path()) + ".new").c_str(), 0700), 0);  // stands in for it: the file cannot be made
  EXPECT_FALSE(roll_up(path()));
  EXPECT_FALSE(rolled());
  EXPECT_EQ(read(), right);
}

}  // namespace
}  // namespace lull::trace
