#include "act/evidence.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/calendar.h"
#include "base/fd.h"

namespace lull {
namespace {

namespace fs = std::filesystem;

class EvidenceFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "lull-evidence-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    facts_.at = WallTime(std::chrono::seconds(1'700'000'000));
    facts_.job = 4711;
    expected_ = root_ + "/" + format_local(facts_.at, "%Y%m%d-%H%M%S") + "-4711";
  }
  void TearDown() override { fs::remove_all(root_); }

  // Where it went, and what was wrong.
  std::pair<std::string, std::string> collect() {
    const SystemClock clock;
    const auto loop = Loop::create(clock);
    Children children;
    Helpers helpers(**loop, children);
    const InheritedSignals signals;
    std::pair<std::string, std::string> result;
    Evidence::collect(root_, facts_, Recorder(), helpers, signals, nullptr,
                      [&](const EvidenceWritten& written) { result = {written.folder, written.trouble}; });
    return result;
  }

  std::string root_;
  std::string expected_;
  FiringFacts facts_;
};

TEST_F(EvidenceFolder, IsANewOneThatOnlyWeMayEnter) {
  const auto [where, trouble] = collect();
  EXPECT_EQ(where, expected_);
  EXPECT_EQ(trouble, "");
  EXPECT_FALSE(read_file(where + "/facts.json")->empty());
  EXPECT_EQ(fs::status(where).permissions(), fs::perms::owner_all);
}

TEST_F(EvidenceFolder, NothingIsWrittenThroughLinksOfOthers) {
  const std::string victim = root_ + "/victim";
  std::ofstream(victim) << "precious";
  fs::create_directory(expected_);
  for (const char* name : {"facts.json", "readings.csv", "tree.txt", "kernel.txt"})
    fs::create_symlink(victim, expected_ + "/" + name);
  const auto [where, trouble] = collect();
  EXPECT_EQ(*read_file(victim), "precious");
  EXPECT_NE(where, expected_);
  EXPECT_EQ(trouble, "");
  EXPECT_FALSE(read_file(where + "/facts.json")->empty());
}

TEST_F(EvidenceFolder, ALinkInPlaceOfTheFolderIsNotFollowed) {
  fs::create_directory(root_ + "/elsewhere");
  fs::create_directory_symlink(root_ + "/elsewhere", expected_);
  const auto [where, trouble] = collect();
  EXPECT_TRUE(fs::is_empty(root_ + "/elsewhere"));
  EXPECT_NE(where, expected_);
  EXPECT_EQ(trouble, "");
}

TEST_F(EvidenceFolder, OneThatCannotBeMadeIsSaid) {
  const std::string folder = root_;
  root_ += "/missing";
  const auto [where, trouble] = collect();
  EXPECT_NE(trouble, "");
  root_ = folder;
}

TEST(EvidenceRecorder, BytesAreNotRounded) {
  Snapshot snapshot;
  auto inventory = std::make_shared<Inventory>();
  inventory->devices.resize(1);
  snapshot.inventory = inventory;
  snapshot.readings.resize(1);
  snapshot.readings[0].set(Metric::mem_used, 85'899'345'921.0);
  Recorder recorder;
  recorder.add(snapshot, Facts(), Facts());
  EXPECT_NE(recorder.csv().find(",85899345921,"), std::string::npos) << recorder.csv();
}

TEST(Evidence, AStackWithoutNamesSaysWhatIsMissing) {
  const std::string stack =
      "Thread 1 (LWP 7):\n#0  0x00007f in ?? () from /lib/libc.so.6\n#1  0x00007e in poll () from /lib/libc.so.6\n"
      "#2  0x0000000000000000 in ?? ()\n";
  EXPECT_EQ(tidied_stack(stack),
            "2 of 3 frames are left out, since gdb finds no symbols for them\n\n"
            "Thread 1 (LWP 7):\n#1  0x00007e in poll () from /lib/libc.so.6\n");
  const std::string good = "#0  main () at train.c:3\n";
  EXPECT_EQ(tidied_stack(good), good);
  const std::string refused = "ptrace: Operation not permitted.\n";
  EXPECT_EQ(tidied_stack(refused), refused);
}

}  // namespace
}  // namespace lull
