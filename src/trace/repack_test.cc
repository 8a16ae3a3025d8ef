#include "trace/history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "trace/bytes.h"
#include "trace/writer.h"

namespace lull::trace {
namespace {

constexpr const char* kDayHeader = "time,gpu,util_percent\n";

class RepackTest : public testing::Test {
 protected:
  RepackTest() {
    std::string name = testing::TempDir() + "repack-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~RepackTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  WriterOptions options(const std::string& name) const {
    return {.path = path(name), .format = Format::csv, .packing = Packing::zstd, .header = kDayHeader, .like = {}};
  }
  // A frame per row, as a recorder flushes it. All of its text.
  std::string record(const std::string& name, int rows, int from = 0) const {
    auto writer = TraceWriter::open(options(name));
    EXPECT_TRUE(writer);
    std::string text = from == 0 ? kDayHeader : "";
    for (int i = from; i < from + rows; ++i) {
      const std::string row = fmt::format("2026-11-17T00:00:{:09.3f}Z,0,{}\n", i * 0.001, i * 7919 % 101);
      writer->add(row);
      EXPECT_TRUE(writer->flush());
      text += row;
    }
    EXPECT_TRUE(writer->close());
    return text;
  }
  std::string text_of(const std::string& name) const {
    auto source = ByteSource::open(path(name));
    EXPECT_TRUE(source);
    std::string text(64U << 20, '\0');
    const auto got = source->read(text.data(), text.size());
    EXPECT_TRUE(got);
    text.resize(*got);
    EXPECT_EQ(source->damage(), "");
    return text;
  }
  static Day day(unsigned number) { return std::chrono::year(2026) / 11 / static_cast<int>(number); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::string folder_;
};

TEST_F(RepackTest, TheRowsStayAndTakeLessSpace) {
  const std::string text = record("2026-11-17.csv.zst", 3000);
  const std::string file = path("2026-11-17.csv.zst");
  const auto before = std::filesystem::file_size(file);
  const auto written = std::filesystem::last_write_time(file);
  ::chmod(file.c_str(), 0640);
  EXPECT_TRUE(*has_small_frames(file));
  ASSERT_TRUE(repack(file));
  EXPECT_EQ(text_of("2026-11-17.csv.zst"), text);
  EXPECT_LT(std::filesystem::file_size(file) * 3, before);
  EXPECT_EQ(std::filesystem::last_write_time(file), written);
  EXPECT_EQ(static_cast<unsigned>(std::filesystem::status(file).permissions()), 0640U);
  EXPECT_FALSE(*has_small_frames(file));
  EXPECT_EQ(files(), 1U);
}

TEST_F(RepackTest, ManyLargeFramesAreOneFile) {
  auto writer = TraceWriter::open(options("2026-11-17.csv.zst"));
  std::string text = kDayHeader;
  for (int i = 0; i < 40; ++i) {
    std::string rows;
    while (rows.size() < 300'000) rows += fmt::format("2026-11-17T00:00:00.000Z,0,{}\n", text.size() + rows.size());
    writer->add(rows);
    ASSERT_TRUE(writer->flush());
    text += rows;
  }
  ASSERT_TRUE(writer->close());
  writer = fail("closed");
  ASSERT_TRUE(repack(path("2026-11-17.csv.zst")));
  EXPECT_EQ(text_of("2026-11-17.csv.zst"), text);
}

TEST_F(RepackTest, ARecorderCanGoOnWithTheFile) {
  std::string text = record("2026-11-17.csv.zst", 50);
  ASSERT_TRUE(repack(path("2026-11-17.csv.zst")));
  text += record("2026-11-17.csv.zst", 50, 50);
  EXPECT_EQ(text_of("2026-11-17.csv.zst"), text);
}

TEST_F(RepackTest, WhatACrashCutOffGoesAndAllWholeRowsStay) {
  const std::string text = record("2026-11-17.csv.zst", 300);
  const std::string file = path("2026-11-17.csv.zst");
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 5);
  ASSERT_TRUE(repack(file));
  const std::string left = text_of("2026-11-17.csv.zst");
  EXPECT_TRUE(text.starts_with(left));
  EXPECT_EQ(left.size(), text.rfind('\n', text.size() - 2) + 1) << "all but the last row";
}

TEST_F(RepackTest, ADamagedFileStaysAsItIs) {
  record("2026-11-17.csv.zst", 300);
  const std::string file = path("2026-11-17.csv.zst");
  {
    const auto fd = open_file(file, O_WRONLY);
    ASSERT_EQ(::pwrite(fd->get(), "garbage garbage garbage", 23, 4000), 23);
  }
  const auto before = read_file(file);
  EXPECT_FALSE(repack(file));
  EXPECT_EQ(*read_file(file), *before);
  EXPECT_EQ(files(), 1U) << "nothing is left behind";
}

TEST_F(RepackTest, AFileThatSomebodyWritesStaysAsItIs) {
  record("2026-11-17.csv.zst", 30);
  const auto writer = TraceWriter::open(options("2026-11-17.csv.zst"));
  ASSERT_TRUE(writer);
  EXPECT_FALSE(repack(path("2026-11-17.csv.zst")));
}

TEST_F(RepackTest, WhatCannotBeWrittenLeavesTheFileAsItIs) {
  const std::string text = record("2026-11-17.csv.zst", 300);
  ASSERT_EQ(::mkdir(path(".2026-11-17.csv.zst.new").c_str(), 0700), 0);  // stands in for it: the file cannot be made
  EXPECT_FALSE(repack(path("2026-11-17.csv.zst")));
  EXPECT_EQ(text_of("2026-11-17.csv.zst"), text);
}

TEST_F(RepackTest, OnlyDaysThatAreOverAndNeedIt) {
  const std::string old = record("2026-11-15.csv.zst", 100);
  record("2026-11-17.csv.zst", 100);
  std::ofstream(path(".2026-11-14.csv.zst.new")) << "left by a kill";
  std::ofstream(path(".mine.new")) << "of somebody else";
  std::ofstream(path("2026-11-16.csv.zst")) << "";
  ASSERT_TRUE(repack_days(folder_, day(17)));
  EXPECT_FALSE(*has_small_frames(path("2026-11-15.csv.zst")));
  EXPECT_EQ(text_of("2026-11-15.csv.zst"), old);
  EXPECT_TRUE(*has_small_frames(path("2026-11-17.csv.zst")));
  EXPECT_FALSE(std::filesystem::exists(path(".2026-11-14.csv.zst.new")));
  EXPECT_TRUE(std::filesystem::exists(path(".mine.new")));
}

TEST(RecorderStateTest, IsReadAsItWasWritten) {
  const RecorderState state{RecorderState::Kind::failed, WallTime(std::chrono::seconds(1'790'000'000)),
                            std::chrono::seconds(5), "write x: No space left\n on device"};
  const RecorderState read = RecorderState::parse(state.to_text());
  EXPECT_EQ(read.kind, state.kind);
  EXPECT_EQ(read.since, state.since);
  EXPECT_EQ(read.every, state.every);
  EXPECT_EQ(read.why.find('\n'), std::string::npos) << "one line";
  for (const char* other :
       {"", "\n", "failed\n", "failed\n1\n2\n", "other\n1\n2\n\n", "failed\n-1\n2\n\n", "\xff\xfe\n\n\n\n"})
    EXPECT_EQ(RecorderState::parse(other).kind, RecorderState::Kind::none) << other;
}

}  // namespace
}  // namespace lull::trace
