#pragma once
// For tests of sessions that judge Slurm jobs: allocation files, and a Slurm in which job 22 runs.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "session/each_session_test.h"

namespace lull {

class EachSlurmTest : public ::testing::Test {
 protected:
  EachSlurmTest() {
    std::string name = (std::filesystem::temp_directory_path() / "lull-each-slurm-XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~EachSlurmTest() override { std::filesystem::remove_all(folder); }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root's files are believed";
  }
  void give(slurm::Allocation job) {
    details_[std::to_string(job.job)] = fmt::format(
        "JobId={} JobName=x\n   JobState=RUNNING\n   StartTime={} EndTime=Unknown\n   SuspendTime=None "
        "SecsPreSuspend=0\n"
        "     Nodes={} CPU_IDs=0 Mem=0 GRES=gpu:{}(IDX:{})\n",
        job.job, slurm_start_, job.nodes, job.gpus.size(), fmt::join(job.gpus, ","));
    job.uid = 1000;
    job.user = "ada";
    job.node = "n1";
    ASSERT_TRUE(slurm::write_allocation(folder, job));
  }
  EachSettings settings(const std::string& action = "slurm=requeue") const {
    EachSettings made = each(Per::job, {{"util < 1 for 60s", action}});
    made.slurm = slurm_settings(folder);
    made.slurm->node = "n1";
    made.slurm->gpus.emplace();  // in the order of their files
    for (unsigned number = 0; number < 8; ++number) made.slurm->gpus->push_back(slurm::GpuFile{number});
    return made;
  }
  static HelperResult done(std::string output = "", int code = 0) {
    HelperResult result;
    result.status = ExitStatus{.code = code};
    result.output = std::move(output);
    return result;
  }
  // What squeue says of job 22.
  static std::string row(const std::string& nodes = "n1", unsigned count = 1, const std::string& batch = "1",
                         const std::string& qos = "normal") {
    return fmt::format("{:24}{:24}{:16}{:8}{:8}{:24}{:64}{:24}{:16}{:<12}{:64}{:64}{:64}{:256}{}\n", "22", "RUNNING",
                       "0", batch, "1", "22", "N/A", "N/A", "1000", count, "main", qos, "physics", "cpu=1", nodes);
  }
  // A Slurm in which job 22 runs, and gave each job what its file says.
  std::function<HelperResult(const std::vector<std::string>&)> running(const std::string& answers = "") {
    return [this, answers](const std::vector<std::string>& command) {
      if (const auto known = details_.find(command.back()); command[0] == "env" && known != details_.end())
        return done(known->second);
      if (command[0] == "squeue") return done(row());
      if (command[0] == "runuser") return done(answers);
      if (command[0] != "env" && command[1] != "update") verbs.push_back(command[0] + " " + command[1]);
      return done();
    };
  }
  // The same, where the job's Comment is so by then.
  std::function<HelperResult(const std::vector<std::string>&)> commented(std::function<HelperResult()> comment) {
    return [slurm = running(), comment = std::move(comment)](const std::vector<std::string>& command) {
      return command.back() == "--format=%A %k" ? comment() : slurm(command);
    };
  }
  static Script with_util(std::function<double(Instant, unsigned)> util) { return held_by({}, std::move(util)); }

  std::string folder;
  std::map<std::string, std::string> details_;  // by job: what `scontrol show job -d` says
  unsigned slurm_start_ = 1;                    // when Slurm began it, in seconds
  std::vector<std::string> verbs;
};

}  // namespace lull
