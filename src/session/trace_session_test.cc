#include "session/trace_session.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

GpuProcess process_of(pid_t pid, std::uint64_t start_ticks) {
  GpuProcess process;
  process.pid = pid;
  process.start_ticks = start_ticks;
  return process;
}

GpuProcess named(GpuProcess process, const std::string& user, const std::string& command) {
  ProcessInfo info;
  info.pid = process.pid;
  info.start_ticks = process.start_ticks;
  info.user = user;
  info.name = info.arguments.emplace_back(command);
  process.info = std::make_shared<const ProcessInfo>(std::move(info));
  return process;
}

// The rows of one GPU, sample after sample.
class NamesTest : public ::testing::Test {
 protected:
  trace::UserCells row(const std::vector<GpuProcess>& processes) {
    GpuUse use;
    use.processes = processes;
    Reading reading;
    reading.processes = processes;
    UserNames now;
    trace::UserCells cells = user_cells("host", use, reading, {}, names_, now);
    names_ = std::move(now);
    return cells;
  }

 private:
  UserNames names_;
};

TEST_F(NamesTest, StayKnownWhileAProcessIsListedThatCanNoLongerBeRead) {
  EXPECT_EQ(row({named(process_of(7, 100), "ada", "train")}).users, "ada");
  for (int i = 0; i < 3; ++i) {
    const trace::UserCells cells = row({process_of(7, 100)});
    EXPECT_EQ(cells.users, "ada");
    EXPECT_EQ(cells.command, "train");
    EXPECT_EQ(cells.pids, "7");
  }
}

TEST_F(NamesTest, AJobStaysKnownAsItsUserDoes) {
  GpuProcess process = named(process_of(7, 100), "ada", "train");
  process.job = "slurm:22";
  EXPECT_EQ(row({process}).job, "slurm:22");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(row({process_of(7, 100)}).job, "slurm:22");
  EXPECT_EQ(row({process_of(7, 200)}).job, "");
}

TEST_F(NamesTest, AreNotThoseOfAnotherProcessWithTheSameNumber) {
  EXPECT_EQ(row({named(process_of(7, 100), "ada", "train")}).users, "ada");
  EXPECT_EQ(row({process_of(7, 200)}).users, "");
}

TEST_F(NamesTest, AreForgottenWithTheProcess) {
  EXPECT_EQ(row({named(process_of(7, 100), "ada", "train")}).users, "ada");
  EXPECT_EQ(row({}).users, trace::kNobodyText);
  EXPECT_EQ(row({process_of(7, 0)}).users, "");
}

// As `watch` and `keep` name them. Process trees and leases are told by a replay itself.
TEST_F(NamesTest, JobsOfASchedulerHaveTheirWholeName) {
  const auto cell = [&](std::initializer_list<const char*> jobs) {
    std::vector<GpuProcess> all;
    for (const char* job : jobs) {
      all.push_back(named(process_of(static_cast<pid_t>(7 + all.size()), 100), "ada", "train"));
      all.back().job = job;
    }
    return row(all).job;
  };
  EXPECT_EQ(cell({"slurm:21"}), "slurm:21");
  EXPECT_EQ(cell({"slurm:21", "slurm:21"}), "slurm:21");
  EXPECT_EQ(cell({"slurm:21", "slurm:22"}), "") << "one cell is of one job";
  EXPECT_EQ(cell({"pod:1234"}), "pod:1234");
  EXPECT_EQ(cell({"container:0123456789ab"}), "container:0123456789ab");
  EXPECT_EQ(cell({"tree:7"}), "");
  EXPECT_EQ(cell({"slurm:21", "tree:9"}), "");
}

}  // namespace
}  // namespace lull
