// Files that say what Slurm gave to a job, and whom they are believed.

#include "slurm/allocation.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/process_start.h"

namespace lull::slurm {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class AllocationTest : public ::testing::Test {
 protected:
  AllocationTest() {
    std::string name = (fs::temp_directory_path() / "lull-slurm-XXXXXX").string();
    base = ::mkdtemp(name.data());
    folder = base + "/run/slurm";
  }
  ~AllocationTest() override { fs::remove_all(base); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(folder);
    std::ofstream(folder + "/" + name) << text;
    fs::permissions(folder + "/" + name, static_cast<fs::perms>(0644));
  }
  static Allocation full() {
    return {.job = 22,
            .node = "gpu1",
            .uid = 1000,
            .user = "ada",
            .gpus = {0, 3},
            .nodes = "gpu[1-2]",
            .restarts = 1,
            .partition = "main",
            .account = "physics",
            .qos = "high",
            .comment = "a \"comment\" = 1\n[x]\\ü",
            .rule = "2h,requeue",
            .start = WallTime(1700000000s)};
  }
  // Us, whoever runs the tests.
  Result<Allocations> read() const { return read_allocations(folder, ::geteuid()); }

  std::string base;
  std::string folder;
};

TEST_F(AllocationTest, WhatIsWrittenIsRead) {
  ASSERT_TRUE(write_allocation(folder, full()));
  ASSERT_TRUE(write_allocation(folder, {.job = 3, .node = "gpu1", .uid = 0}));
  const auto found = read();
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_TRUE(found->refused.empty());
  ASSERT_EQ(found->all.size(), 2U);
  EXPECT_EQ(found->all[0].job, 3U);
  EXPECT_FALSE(found->all[0].restarts) << "not known is not 0";
  Allocation expected = full();
  expected.comment = found->all[1].comment;  // made fit for a screen
  EXPECT_EQ(found->all[1], expected);
  EXPECT_NE(expected.comment.find("\"comment\" = 1"), std::string::npos);
  struct stat status{};
  ASSERT_EQ(::stat((folder + "/22").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0644U);
  ASSERT_TRUE(remove_allocation(folder, 22));
  ASSERT_TRUE(remove_allocation(folder, 22)) << "one that is gone is no trouble";
  EXPECT_EQ(read()->all.size(), 1U);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& one : fs::directory_iterator(folder)) ++files;
  EXPECT_EQ(files, 1U) << "no draft is left";
}

TEST_F(AllocationTest, AFileThatIsNotToBeBelievedDoesNotCount) {
  ASSERT_TRUE(write_allocation(folder, full()));
  write("23", "job = 23\nuid = 1000\n");
  fs::permissions(folder + "/23", static_cast<fs::perms>(0666));  // anybody could have
  write("24", "job = 25\n");                                      // copied
  write("26", "job = 26\nuid = -1\n");
  write("27", "job = 27\ngpus = [0.5]\n");
  write("28", "rubbish");
  write("29", "job = 29\nstart = \"yesterday\"\n");
  write("30", std::string(100000, '#'));
  fs::create_directory(folder + "/31");
  fs::create_symlink(folder + "/22", folder + "/32");
  ASSERT_EQ(::mkfifo((folder + "/33").c_str(), 0644), 0);
  write(".34.new", "job = 34\n");
  write("README", "job = 35\n");
  const auto found = read();
  ASSERT_TRUE(found);
  ASSERT_EQ(found->all.size(), 1U);
  EXPECT_EQ(found->all[0].job, 22U);
  EXPECT_GE(found->refused.size(), 9U);
}

TEST_F(AllocationTest, AnothersFilesDoNotCount) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_TRUE(write_allocation(folder, full()));
  ASSERT_EQ(::chown((folder + "/22").c_str(), 1000, 1000), 0);
  EXPECT_TRUE(read()->all.empty());
  EXPECT_EQ(read()->refused.size(), 1U);
  ASSERT_EQ(::chown((folder + "/22").c_str(), 0, 0), 0);
  ASSERT_EQ(::chown(folder.c_str(), 1000, 1000), 0);
  EXPECT_FALSE(read()) << "whose folder it is can put any file into it";
  ASSERT_EQ(::chown(folder.c_str(), 0, 0), 0);
  fs::permissions(folder, static_cast<fs::perms>(01777));
  EXPECT_FALSE(read());
}

TEST_F(AllocationTest, AFolderThatIsNotThereIsAnError) {
  ASSERT_FALSE(read());
  EXPECT_EQ(read().error().errno_value, ENOENT);
}

TEST_F(AllocationTest, OthersPrologsAreReadWithoutWhatTheyDoNotKnow) {
  write("0", "22 1000\n");
  write("1", "22 1000");
  write("2", "23 1001\n");
  write("3", "");
  write("4", "nonsense\n");
  const Allocations found = read_gpustat(folder, "gpu1", ::geteuid());
  ASSERT_EQ(found.all.size(), 2U);
  EXPECT_EQ(found.all[0].gpus, (std::vector<unsigned>{0, 1}));
  EXPECT_EQ(found.all[0].uid, uid_t{1000});
  EXPECT_FALSE(found.all[0].restarts);
  EXPECT_TRUE(found.all[0].nodes.empty());
  EXPECT_EQ(found.refused.size(), 1U);
  EXPECT_TRUE(read_gpustat(base + "/none", "gpu1").all.empty());
  EXPECT_TRUE(read_gpustat(base + "/none", "gpu1").refused.empty());
}

TEST_F(AllocationTest, TheMappingOfDcgmExporterHasJobsInLines) {
  write("0", "22\n23\n");
  write("1", "22\n");
  write("GPU-5c6a4ad0", "99\n");
  const Allocations found = read_dcgm_mapping(folder, "gpu1", ::geteuid());
  ASSERT_EQ(found.all.size(), 2U);
  EXPECT_EQ(found.all[0].job, 22U);
  EXPECT_EQ(found.all[0].gpus, (std::vector<unsigned>{0, 1}));
  EXPECT_FALSE(found.all[0].uid);
  EXPECT_EQ(found.all[1].gpus, std::vector<unsigned>{0});
}

TEST(GpuNumbers, AreSingleOnesAndRanges) {
  EXPECT_EQ(*parse_gpu_numbers("2,0-1,2"), (std::vector<unsigned>{0, 1, 2}));
  EXPECT_TRUE(parse_gpu_numbers("")->empty());
  for (const char* text : {"a", "1-", "3-1", "-1", "0,,1", "99999", "0x1"})
    EXPECT_FALSE(parse_gpu_numbers(text)) << text;
}

// ---- what slurmd says

Environment environment(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(Prolog, TellsWhatSlurmdTellsIt) {
  const auto one = allocation_from(environment({{"SLURM_JOB_ID", "22"},
                                                {"SLURM_JOB_UID", "1000"},
                                                {"SLURM_JOB_USER", "ada"},
                                                {"SLURM_JOB_GPUS", "2,3"},
                                                {"SLURM_NODELIST", "gpu[1-2]"},
                                                {"SLURM_JOB_RESTART_COUNT", "4"},
                                                {"SLURM_HET_JOB_ID", "21"},
                                                {"SLURM_JOB_PARTITION", "main"},
                                                {"SLURM_JOB_COMMENT", "lull=2h"},
                                                {"SPANK_LULL_GPU_IDLE", "3h"}}),
                                   "gpu1", WallTime(5s));
  ASSERT_TRUE(one);
  EXPECT_EQ(*one, (Allocation{.job = 22,
                              .node = "gpu1",
                              .uid = 1000,
                              .user = "ada",
                              .gpus = {2, 3},
                              .nodes = "gpu[1-2]",
                              .restarts = 4,
                              .het_job = 21,
                              .partition = "main",
                              .comment = "lull=2h",
                              .rule = "3h",
                              .start = WallTime(5s)}));
}

TEST(Prolog, KeepsTheSluidAndTellsWhoSharesGpus) {
  const auto given = [](std::map<std::string, std::string> more) {
    more.insert({{"SLURM_JOB_ID", "22"}, {"SLURM_JOB_UID", "1000"}});
    return *allocation_from(environment(std::move(more)), "gpu1", WallTime(5s));
  };
  EXPECT_EQ(given({{"SLURM_JOB_SLUID", "s8FXKTA79XAR00"}}).sluid, "s8FXKTA79XAR00");
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL"})
    EXPECT_TRUE(given({{name, "0"}}).shares_gpus) << name;
  EXPECT_FALSE(given({}).shares_gpus);
  EXPECT_FALSE(given({{"CUDA_VISIBLE_DEVICES", "NoDevFiles"}}).shares_gpus) << "it has none";
  EXPECT_FALSE(given({{"CUDA_VISIBLE_DEVICES", "0"}, {"SLURM_JOB_GPUS", "0"}}).shares_gpus) << "it has a whole one";
}

TEST_F(AllocationTest, TheFileKeepsTheSluidAndWhoSharesGpus) {
  ASSERT_TRUE(write_allocation(folder, {.job = 3, .node = "gpu1", .shares_gpus = true, .sluid = "s8FXKTA79XAR00"}));
  ASSERT_TRUE(write_allocation(folder, {.job = 4, .node = "gpu1"}));
  const auto found = read();
  ASSERT_TRUE(found && found->all.size() == 2);
  EXPECT_EQ(found->all[0].sluid, "s8FXKTA79XAR00");
  EXPECT_TRUE(found->all[0].shares_gpus);
  EXPECT_TRUE(found->all[1].sluid.empty() && !found->all[1].shares_gpus);
}

TEST(Prolog, WhatIsMissingIsNotMadeUp) {
  const auto bare = allocation_from(environment({{"SLURM_JOB_ID", "22"}, {"SLURM_JOB_UID", "0"}}), "gpu1", WallTime());
  ASSERT_TRUE(bare);
  EXPECT_FALSE(bare->restarts);
  EXPECT_TRUE(bare->nodes.empty() && bare->gpus.empty());
  EXPECT_FALSE(allocation_from(environment({}), "gpu1", WallTime()));
  EXPECT_FALSE(allocation_from(environment({{"SLURM_JOB_ID", "x"}, {"SLURM_JOB_UID", "0"}}), "gpu1", WallTime()));
  EXPECT_FALSE(allocation_from(environment({{"SLURM_JOB_ID", "22"}}), "gpu1", WallTime()));
  EXPECT_FALSE(allocation_from(environment({{"SLURM_JOB_ID", "22"}, {"SLURM_JOB_UID", "0"}, {"SLURM_HET_JOB_ID", "x"}}),
                               "gpu1", WallTime()));
  EXPECT_FALSE(allocation_from(environment({{"SLURM_JOB_ID", "22"}, {"SLURM_JOB_UID", "0"}, {"SLURM_JOB_GPUS", "all"}}),
                               "gpu1", WallTime()));
}

TEST(Prolog, IsOverInTimeWhateverItsBodyDoes) {
  EXPECT_EQ(complaint_within(5s, [] { return Result<>(); }), "");
  EXPECT_EQ(complaint_within(5s, []() -> Result<> { return fail("no space"); }), "no space");
  EXPECT_NE(complaint_within(5s, []() -> Result<> { std::abort(); }), "");
  const SystemClock clock;
  const Instant before = clock.now();
  const std::string said = complaint_within(50ms, []() -> Result<> {
    for (;;) ::pause();
  });
  EXPECT_NE(said.find("not done within"), std::string::npos);
  EXPECT_LT(clock.now() - before, 5s);
}

TEST(Prolog, ItsProcessEndsWithItWhenItIsKilled) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd heard(ends[0]);
  Fd held(ends[1]);  // by the body, for as long as it is there
  const auto prolog = start_child([&] {
    (void)complaint_within(1h, [&]() -> Result<> {
      (void)write_all(held.get(), "x");
      for (;;) ::pause();
    });
  });
  ASSERT_TRUE(prolog);
  held.reset();
  char byte = 0;
  ASSERT_EQ(::read(heard.get(), &byte, 1), 1);
  EXPECT_TRUE(prolog->signal(SIGKILL));
  pollfd ready{heard.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 10'000), 1) << "nobody is left";
  EXPECT_TRUE(wait_for_child(prolog->pid(), 10s));
}

}  // namespace
}  // namespace lull::slurm
