#include "act/evidence.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
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
    page_.clear();
    bool done = false;
    Evidence::collect(root_, facts_, Recorder(), helpers, signals, nullptr, Evidence::Debugger::gdb,
                      [&](const EvidenceWritten& written) {
                        result = {written.folder, written.trouble};
                        page_ = written.page;
                        done = true;
                        (*loop)->stop();
                      });
    if (!done) {
      EXPECT_TRUE((*loop)->run());  // while gdb runs
    }
    return result;
  }

  std::string root_;
  std::string expected_;
  std::string page_;
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

TEST_F(EvidenceFolder, HasAPageThatShowsAllOfIt) {
  const std::string hostile = "<script>alert(1)</script>\"'><img src=http://evil.example/x>\xff\x1b[2J";
  facts_.command = {"train", hostile};
  facts_.why.rule = "util < 1 for 20m";
  MemberView gone;
  gone.entry.pid = 0x3FFFFFFF;  // has ended meanwhile
  gone.command = hostile;
  facts_.members = {gone};
  const auto [where, trouble] = collect();
  EXPECT_EQ(trouble, "");
  EXPECT_EQ(page_, where + "/index.html");
  const std::string page = read_file(page_).value_or("");
  for (const char* part : {"util &lt; 1 for 20m", "4711", "tree.txt", "kernel.txt", "readings.csv", "facts.json",
                           "proc-1073741823.txt", "&lt;script&gt;"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  for (const char bad : {'\xff', '\x1b'}) EXPECT_EQ(page.find(bad), std::string::npos);
  EXPECT_EQ(fs::status(page_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

// As where the disk is full: a file takes so many bytes and no more.
TEST_F(EvidenceFolder, WithoutSpaceItSaysWhatIsMissingAndLeavesNoHalfPage) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  for (const rlim_t room : {0, 1000}) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit little{room, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
    facts_.command.assign(100, "word");
    const auto [where, trouble] = collect();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    std::signal(SIGXFSZ, SIG_DFL);
    EXPECT_TRUE(where.starts_with(expected_)) << where;
    EXPECT_NE(trouble.find("File too large"), std::string::npos) << trouble;
    EXPECT_EQ(page_, "");
    EXPECT_FALSE(fs::exists(where + "/index.html"));
  }
}

TEST(EvidencePage, IsOfLimitedSize) {
  EvidencePage page;
  for (int i = 0; i < 200; ++i)
    page.files.push_back({"proc-" + std::to_string(i) + ".txt", std::string(kMostFileShown + 1, 'x')});
  page.python = {{.processes = 512, .who = std::string(100'000, 'w'), .stacks = std::string(1U << 20, 's')}};
  const std::string html = evidence_page(page, FiringFacts(), "box", Past());
  EXPECT_LT(html.size(), std::size_t{5} << 20);
  EXPECT_NE(html.find("proc-199.txt"), std::string::npos);
  EXPECT_NE(html.find("The rest of it is in"), std::string::npos);
}

TEST(EvidencePage, ShowsThoseWhoDifferFirstAndWhoWasNotRead) {
  EvidencePage page;
  page.where = "at <b>train.py</b>:16";
  page.python_trouble = "process 7: CPython 3.8 is not known\nprocess 8 was not read in time\n";
  page.python = {{.processes = 1, .differs = true, .who = "rank 3 (process 103)", .stacks = "load.py:9 in <lambda>"},
                 {.processes = 7, .differs = false, .who = "rank 0", .stacks = "train.py:16"}};
  const std::string html = evidence_page(page, FiringFacts(), "<host>", Past());
  for (const char* part :
       {"the job is at &lt;b&gt;train.py&lt;/b&gt;:16.", "process 7: CPython 3.8 is not known\n", "in &lt;lambda&gt;",
        "1 of 8 Python processes, which differs from the rest: rank 3 (process 103)", "&lt;host&gt;"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  EXPECT_LT(html.find("rank 3"), html.find("rank 0"));
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
