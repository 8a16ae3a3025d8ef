// Which GPU Slurm means by a number: by what slurmd prints, and only if the slurmd that runs has read the same.

#include "slurm/gres.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "slurm/allocation.h"

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;

// /dev/nvidiaN and /dev/dri/renderDN, without any.
std::optional<GpuFile> by_name(const std::string& path) {
  const std::size_t digits = path.find_last_not_of("0123456789") + 1;
  if (digits == path.size() || path.find("caps") != std::string::npos) return std::nullopt;
  return GpuFile{static_cast<unsigned>(std::stoul(path.substr(digits))), path.starts_with("/dev/dri/render")};
}
GpuFile nvidia(unsigned number) { return {number, false}; }

HelperResult printed(std::string output) {
  HelperResult result;
  result.status = ExitStatus{.code = 0};
  result.output = std::move(output);
  return result;
}

// As slurmd 22.05 prints it for two types, the second named first in gres.conf: Slurm's GPU 0 is /dev/nvidia3.
constexpr const char* kOtherOrder =
    "slurmd: Gres Name=gpu Type=a Count=2 Index=1 ID=7696487 File=/dev/nvidia3,/dev/nvidia1 (null)\n"
    "slurmd: Gres Name=gpu Type=b Count=2 Index=0 ID=7696487 File=/dev/nvidia2,/dev/nvidia0 (null)\n";
constexpr const char* kInOrder =
    "slurmd-n1: Gres Name=gpu Type=(null) Count=4 Index=0 ID=7 File=/dev/nvidia[0-3] (null)\n";

TEST(Gres, SlurmCountsInItsOwnOrder) {
  EXPECT_EQ(read_gres(kOtherOrder, by_name), (GpuOrder{nvidia(3), nvidia(1), nvidia(2), nvidia(0)}));
  EXPECT_EQ(read_gres("slurmd: Gres Name=gpu Type=x Count=3 Index=1 ID=7 File=/dev/nvidia[1-3] Links=(null)", by_name),
            (GpuOrder{nvidia(1), nvidia(2), nvidia(3)}));
}

TEST(Gres, ReadsWhatLaterReleasesPrint) {
  EXPECT_EQ(
      read_gres("[2025-01-01T00:00:00.000] Gres Name=nic Type=(null) Count=1 Index=0 ID=9 File=/dev/nic0\n"
                "slurmd: Gres Name=gpu Type=a100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 "
                "Cores=0-15 CoreCnt=64 Links=-1,4 Flags=HAS_FILE,HAS_TYPE,ENV_NVML\n"
                "slurmd: Gres Name=gpu Type=mi210 Count=1 Index=1 ID=7696487 File=/dev/dri/renderD129 Links=4,-1\n"
                "slurmd: Gres Name=shard Type=(null) Count=8 Index=0 ID=7 File=/dev/nvidia0\n",
                by_name),
      (GpuOrder{nvidia(0), GpuFile{129, true}}));
}

TEST(Gres, PartsAndSeveralFilesAreNoWholeGpu) {
  EXPECT_EQ(read_gres("Gres Name=gpu Type=1g.5gb Count=1 Index=0 ID=7 "
                      "File=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap66,/dev/nvidia-caps/nvidia-cap67 Links=0\n"
                      "Gres Name=gpu Type=a100 Count=1 Index=1 ID=7 File=/dev/nvidia1 Links=0",
                      by_name),
            (GpuOrder{std::nullopt, nvidia(1)}));
}

TEST(Gres, WhatIsNotUnderstoodSaysNothing) {
  for (const char* text : {"Gres Name=gpu Type=(null) Count=4 Index=0 ID=7 File=(null) (null)",
                           "Gres Name=gpu Type=a Count=4 Index=0 ID=7", "Gres Name=gpu Count=3 File=/dev/nvidia[0-3]",
                           "Gres Name=gpu Count=x File=/dev/nvidia0", "Gres Name=gpu Count=1 File=/dev/nvidia[0",
                           "Gres Name=gpu Count=1 File=/dev/nvidia0\nGres Name=gpu Count=1 File=/dev/nvidia0"})
    EXPECT_FALSE(read_gres(text, by_name)) << text;
}

TEST(Gres, ANodeWithoutGpusHasNone) {
  EXPECT_EQ(read_gres("", by_name), GpuOrder());
  EXPECT_EQ(read_gres("slurmd: Gres Name=nic Count=1 File=/dev/nic0", by_name), GpuOrder());
}

TEST(Gres, AFileIsKnownByItsDeviceNumber) {
  EXPECT_FALSE(gpu_file("/dev/null")) << "of another driver";
  EXPECT_FALSE(gpu_file("/nonexistent/nvidia0"));
  EXPECT_FALSE(gpu_file("/etc/passwd"));
}

class GpuNumbersTest : public ::testing::Test {
 protected:
  GpuNumbersTest() {
    std::string name = (std::filesystem::temp_directory_path() / "lull-gres-XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~GpuNumbersTest() override { std::filesystem::remove_all(folder); }
  GpuNumbers make() {
    return GpuNumbers(folder, [this] { return facts; });
  }
  static bool look(GpuNumbers& numbers, const HelperResult& result, Instant now = {}) {
    if (!numbers.wants_look(now)) return false;
    numbers.looked(result, now, by_name);
    return true;
  }
  static WallTime at(int seconds) { return WallTime(std::chrono::seconds(1'000'000 + seconds)); }
  static SlurmdStart began(int seconds) { return {.at = at(seconds), .ticks = static_cast<std::uint64_t>(seconds)}; }

  std::string folder;
  GresFacts facts{.changed = at(10), .slurmd = began(20)};
};

TEST_F(GpuNumbersTest, NothingIsGuessedBeforeSlurmdHasSaidIt) {
  GpuNumbers numbers = make();
  EXPECT_FALSE(numbers.files_of({0}, at(30)));
  EXPECT_TRUE(look(numbers, printed(kOtherOrder)));
  EXPECT_EQ(numbers.files_of({0, 2}, at(30)), (std::vector{nvidia(3), nvidia(2)}));
  EXPECT_FALSE(numbers.files_of({4}, at(30)));
  EXPECT_FALSE(look(numbers, printed(kInOrder))) << "once is enough";
}

TEST_F(GpuNumbersTest, WhatFailsIsTriedAgainAfterAWhile) {
  GpuNumbers numbers = make();
  HelperResult missing;
  missing.trouble = "slurmd: not found";
  EXPECT_TRUE(look(numbers, missing));
  EXPECT_FALSE(numbers.known());
  EXPECT_NE(numbers.why().find("not found"), std::string::npos);
  EXPECT_FALSE(look(numbers, printed(kInOrder), Instant(59s)));
  EXPECT_TRUE(look(numbers, printed(kInOrder), Instant(61s)));
  EXPECT_TRUE(numbers.known());
}

TEST_F(GpuNumbersTest, ASlurmdThatIsOlderThanGresConfMayCountInAnotherWay) {
  facts.slurmd = began(5);
  GpuNumbers numbers = make();
  EXPECT_TRUE(look(numbers, printed(kOtherOrder)));
  EXPECT_FALSE(numbers.files_of({0}, at(30)));
  facts.slurmd = began(40);  // it was restarted
  EXPECT_TRUE(look(numbers, printed(kOtherOrder), Instant(61s)));
  EXPECT_TRUE(numbers.files_of({0}, at(41)));
  facts.changed.reset();
  GpuNumbers another = make();
  std::filesystem::remove(folder + "/gpus");
  EXPECT_TRUE(look(another, printed(kOtherOrder)));
  EXPECT_FALSE(another.known()) << "when gres.conf was changed is not known";
}

TEST_F(GpuNumbersTest, AJobFromBeforeAChangeOfTheOrderIsToldNothing) {
  GpuNumbers numbers = make();
  EXPECT_TRUE(look(numbers, printed(kInOrder)));
  EXPECT_TRUE(numbers.files_of({0}, at(30)));
  EXPECT_FALSE(numbers.files_of({0}, at(9)));
  facts = {.changed = at(50), .slurmd = began(60)};
  EXPECT_TRUE(look(numbers, printed(kOtherOrder), Instant(1s))) << "gres.conf was changed";
  EXPECT_FALSE(numbers.files_of({0}, at(30)));
  EXPECT_EQ(numbers.files_of({0}, at(61)), (std::vector{nvidia(3)}));
}

// AutoDetect: gres.conf stays as it is, and GPU 0 is lost. The slurmd that runs still counts it.
TEST_F(GpuNumbersTest, AnotherOrderCountsOnlyFromALaterSlurmd) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root's files are believed";
  constexpr const char* kLost = "slurmd: Gres Name=gpu Type=(null) Count=3 Index=1 ID=7 File=/dev/nvidia[1-3] (null)\n";
  GpuNumbers numbers = make();
  EXPECT_TRUE(look(numbers, printed(kInOrder)));
  GpuNumbers restarted = make();  // the watcher
  EXPECT_TRUE(look(restarted, printed(kLost)));
  EXPECT_FALSE(restarted.known());
  EXPECT_NE(restarted.why().find("restart slurmd"), std::string::npos) << restarted.why();
  facts.slurmd->at = at(25);  // the clock was set: it is the same slurmd
  EXPECT_TRUE(look(restarted, printed(kLost), Instant(61s)));
  EXPECT_FALSE(restarted.known());
  facts.slurmd.reset();  // it has ended, and its jobs have not
  EXPECT_TRUE(look(restarted, printed(kLost), Instant(122s)));
  EXPECT_FALSE(restarted.known());
  facts.slurmd = began(40);
  EXPECT_TRUE(look(restarted, printed(kLost), Instant(183s)));
  EXPECT_FALSE(restarted.files_of({0}, at(30))) << "a job of the slurmd before";
  EXPECT_EQ(restarted.files_of({0}, at(41)), (std::vector{nvidia(1)}));
}

TEST_F(GpuNumbersTest, ASlurmdThatBeganAgainIsAskedAgain) {
  GpuNumbers numbers = make();
  EXPECT_TRUE(look(numbers, printed(kInOrder)));
  facts.slurmd->at += 3ms;  // as a clock that is adjusted shows it
  EXPECT_FALSE(look(numbers, printed(kOtherOrder), Instant(1s)));
  facts.slurmd = began(40);
  EXPECT_TRUE(look(numbers, printed(kOtherOrder), Instant(2s)));
  EXPECT_FALSE(numbers.files_of({0}, at(30)));
  EXPECT_EQ(numbers.files_of({0}, at(41)), (std::vector{nvidia(3)}));
}

// Nothing is known of a slurmd before.
TEST_F(GpuNumbersTest, AJobFromBeforeTheFirstSlurmdThatWasSeenIsToldNothing) {
  GpuNumbers numbers = make();
  EXPECT_TRUE(look(numbers, printed(kInOrder)));
  EXPECT_FALSE(numbers.files_of({0}, at(15)));
  EXPECT_TRUE(numbers.files_of({0}, at(21)));
}

TEST_F(GpuNumbersTest, AFileThatWasCopiedWithItsTimeIsNew) {
  const std::string path = folder + "/gres.conf";
  ASSERT_TRUE(write_trusted_file(folder, "gres.conf", "AutoDetect=nvml\n"));
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(24));
  const auto changed = changed_at(path);
  ASSERT_TRUE(changed);
  EXPECT_LT(SystemClock().wall() - *changed, 1h);
  EXPECT_FALSE(changed_at(folder + "/none"));
}

TEST_F(GpuNumbersTest, AChangeThatLeavesTheOrderChangesNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root's files are believed";
  GpuNumbers numbers = make();
  EXPECT_TRUE(look(numbers, printed(kInOrder)));
  facts.changed = at(50);
  EXPECT_TRUE(look(numbers, printed(kInOrder), Instant(1s)));
  EXPECT_TRUE(numbers.files_of({0}, at(30)));
  GpuNumbers restarted = make();  // the watcher
  EXPECT_FALSE(restarted.known());
  EXPECT_TRUE(look(restarted, printed(kInOrder)));
  EXPECT_TRUE(restarted.files_of({0}, at(30)));
  GpuNumbers shown = make();
  shown.use_last();
  EXPECT_EQ(shown.files_of({3}, at(30)), (std::vector{nvidia(3)}));
  ASSERT_TRUE(write_trusted_file(folder, "gpus", "since = 3\n"));
  EXPECT_FALSE(look(numbers, printed(kInOrder), Instant(2s)));
  GpuNumbers broken = make();
  broken.use_last();
  EXPECT_FALSE(broken.known());
}

}  // namespace
}  // namespace lull::slurm
