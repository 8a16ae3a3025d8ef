#include "park/record.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>

namespace lull {
namespace {

ParkRecord some_record() {
  ParkRecord record;
  record.id = "0123456789abcdef";
  record.boot = boot_id();
  record.step = ParkStep::checkpointing;
  record.tool = "/usr/bin/cuda-checkpoint";
  record.name = "4711";
  record.root = 4711;
  record.root_start = 99;
  record.share = 2;
  record.kept_leases = {"abc"};
  record.given_leases = {{"def", 1000}};
  record.lease = "def";
  record.since = WallTime(std::chrono::seconds(1'700'000'000));
  record.processes = {{4712, 100, {{"GPU-a", "0", 5ULL << 30}, {"GPU-b", "1", 7}}}, {4713, 101, {{"GPU-a", "0", 1}}}};
  return record;
}

TEST(ParkRecord, ReadsBackWhatWasWritten) {
  const ParkRecord record = some_record();
  EXPECT_EQ(read_park_record(write_record(record)), record);
}

TEST(ParkRecord, NoPartOfAFileIsTakenForTheWhole) {
  const std::string text = write_record(some_record());
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(read_park_record(text.substr(0, size))) << text.substr(0, size);
  EXPECT_FALSE(read_park_record(text + "more: 1\n"));
}

TEST(ParkRecord, AWordThatIsNotOursIsRefused) {
  const std::string text = write_record(some_record());
  for (const auto& [from, to] : {std::pair{"step: checkpointing", "step: finished"},
                                 {"process: 4712 100", "process: -1 100"},
                                 {"memory: GPU-a 0 1\n", "memory: GPU-a 0 -1\n"},
                                 {"id: 0123", "id: ../0123"},
                                 {"tool: /", "tool: "},
                                 {"share: 2", "share: two"}}) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, std::string(from).size(), to);
    EXPECT_FALSE(read_park_record(changed)) << to;
  }
}

class ParkFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "park-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
    ::setenv("LULL_PARK", (path_ + "/entries").c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("LULL_PARK");
    std::filesystem::remove_all(path_);
  }
  std::string path_;
};

TEST_F(ParkFolderTest, AnEntryIsInterruptedWhereItsOwnerHasEnded) {
  EXPECT_FALSE(any_interrupted());
  const auto folder = ParkFolder::open();
  ASSERT_TRUE(folder);
  ParkRecord record = some_record();
  record.owner = Process::self().pid();
  record.owner_start = Process::self().start_ticks();
  {
    const auto lock = folder->lock(record.id);
    ASSERT_TRUE(lock);
    ASSERT_TRUE(folder->write(record));
    EXPECT_FALSE(any_interrupted());
    const auto second = folder->lock(record.id);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().errno_value, EAGAIN);
  }
  record.owner_start += 1;  // the number is another's by now
  ASSERT_TRUE(folder->write(record));
  EXPECT_TRUE(any_interrupted());
  record.step = ParkStep::parked;
  ASSERT_TRUE(folder->write(record));
  EXPECT_FALSE(any_interrupted()) << "it is at rest";
  EXPECT_EQ(folder->all()->size(), 1U);
  folder->remove(record.id);
  EXPECT_TRUE(folder->all()->empty());
}

TEST_F(ParkFolderTest, EntriesOfAnotherBootAreLeftAlone) {
  const auto folder = ParkFolder::open();
  ASSERT_TRUE(folder);
  ParkRecord record = some_record();
  record.boot = "another";
  ASSERT_TRUE(folder->write(record));
  EXPECT_TRUE(folder->all()->empty());
  EXPECT_TRUE(folder->read(record.id)) << "it is still there";
}

TEST_F(ParkFolderTest, AFolderThatOthersCanWriteIsNotBelieved) {
  ASSERT_TRUE(ParkFolder::open());
  ASSERT_EQ(::chmod((path_ + "/entries").c_str(), 0777), 0);
  EXPECT_FALSE(ParkFolder::look());
  EXPECT_FALSE(ParkFolder::open());
}

}  // namespace
}  // namespace lull
