#include "slurm/running_jobs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;

std::string listed(std::string_view job, std::string_view restarts = "0", std::string_view het = "N/A",
                   std::string_view all = "N/A", std::string_view start = "1795000998") {
  return fmt::format("{:24}{:16}{:16}{:64}{:24}{:24}{:64}{:64}{:64}{:512}\n", job, restarts, 1000, "ada", start, het,
                     "main", "(null)", "(null)", all);
}

TEST(RunningJobs, AreThoseThatSqueueLists) {
  const auto jobs = read_running_jobs("squeue: warning: x\n" + listed("22") + listed("23", "2", "23", "23-24"));
  ASSERT_TRUE(jobs) << jobs.error().message();
  ASSERT_EQ(jobs->size(), 2U);
  EXPECT_EQ((*jobs)[0],
            (RunningJob{.job = 22, .uid = 1000, .user = "ada", .start = WallTime(1795000998s), .partition = "main"}));
  EXPECT_EQ((*jobs)[1].restarts, 2U);
  EXPECT_EQ((*jobs)[1].het_components, (std::vector<std::uint64_t>{23, 24}));
}

TEST(RunningJobs, WhatIsNoSuchListIsRefused) {
  for (const std::string& text :
       {std::string("slurm_load_jobs error: x"), listed("22").substr(0, 60), listed("x"), listed("22", "x"),
        listed("22") + listed("22"), listed("0"), listed("22", "0", "N/A", "N/A", "2026-11-18T11:00:00"),
        listed("22", "0", "N/A", "N/A", "N/A")})
    EXPECT_FALSE(read_running_jobs(text)) << text;
  EXPECT_TRUE(read_running_jobs("")->empty());
}

const RunningJob kJob{.job = 22, .restarts = 1};

TEST(RunningJobs, NodesAreThoseOfThisRun) {
  const auto line = [](int job, int restarts, std::string_view nodes) {
    return fmt::format("{:<24}{:<16}{:8192}\n", job, restarts, nodes);
  };
  EXPECT_EQ(*read_job_nodes(line(21, 0, "x") + line(22, 1, "n[1-2]"), kJob), (std::vector<std::string>{"n1", "n2"}));
  for (const std::string& text : {line(22, 0, "n1"), std::string(), line(22, 1, "n1") + line(22, 1, "n1"),
                                  line(22, 1, std::string(8192, 'n')), line(22, 1, "")})
    EXPECT_FALSE(read_job_nodes(text, kJob)) << text.substr(0, 60);
}

std::string shown(std::string_view name, std::string_view nodes, std::string_view suspended = "None",
                  std::string_view start = "1795000998") {
  return fmt::format(
      "JobId=22 JobName={}\n   UserId=ada(1000)\n   StartTime={} EndTime=1795004598 Deadline=N/A\n"
      "   SuspendTime={} SecsPreSuspend=0\n   JOB_GRES=gpu:3\n{}   MinCPUsNode=1\n\n",
      name, start, suspended, nodes);
}
const std::string kOneLine = "     Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)\n";
const std::vector<std::string> kNodes = {"n1", "n2"};

TEST(RunningJobs, GpusAreThoseOfEachNode) {
  const auto same = read_job_details(shown("x", kOneLine), 22, kNodes);
  ASSERT_TRUE(same) << same.error().message();
  EXPECT_EQ(same->gpus, (std::vector<std::pair<std::string, unsigned>>{{"n1", 0}, {"n1", 1}, {"n2", 0}, {"n2", 1}}));
  EXPECT_EQ(same->since, WallTime(1795000998s));
  const auto other =
      read_job_details("JobId=21 JobName=y\n     Nodes=n9 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)\n\n" +
                           shown("x",
                                 "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:a100:2(IDX:0,3),gpu:t4:1(IDX:5)\n"
                                 "     Nodes=n2 CPU_IDs=0 Mem=0 GRES=\n",
                                 "1795001002"),
                       22, kNodes);
  ASSERT_TRUE(other) << other.error().message();
  EXPECT_EQ(other->gpus, (std::vector<std::pair<std::string, unsigned>>{{"n1", 0}, {"n1", 3}, {"n1", 5}}));
  EXPECT_EQ(other->since, WallTime(1795001002s));
}

TEST(RunningJobs, SinfoSaysHowManyGpusANodeHas) {
  const auto line = [](const std::string& node, const std::string& gres) {
    return fmt::format("{:256}{:512}\n", node, gres);
  };
  const std::string two = line("n1", "gpu:a100:4(S:0-1),gpu:t4:2(S:0,1),shard:8(S:0)") + line("n2", "gpu:8");
  EXPECT_EQ(read_node_gpus(two + two + "sinfo: warning\n" + line("n3", "rubbish:"), kNodes),
            (std::map<std::string, unsigned>{{"n1", 6}, {"n2", 8}}))
      << "in two partitions";
  EXPECT_EQ(read_node_gpus(line("n1", "(null)"), {"n1"}), (std::map<std::string, unsigned>{{"n1", 0}}));
  for (const std::string& text :
       {line("n1", "gpu:8"), two + line("n2", "gpu:7"), line("n1", "gpu:x") + line("n2", "gpu:8"),
        line("n1", "gpu:a100(S:0") + line("n2", "gpu:8"), std::string("sinfo: error")})
    EXPECT_FALSE(read_node_gpus(text, kNodes)) << text;
  EXPECT_EQ(node_gpus_command(kNodes)[3], "--nodes=n1,n2");
}

// As public threads and manuals show them: the lines around those that count have changed from release to release.
TEST(RunningJobs, DetailsOfOtherReleasesAreRead) {
  const auto whole = [](std::string_view preemption, std::string_view suspension, std::string_view tres,
                        std::string_view gres, std::string_view end) {
    return fmt::format(
        "JobId=22 JobName=train\n"
        "   UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A\n"
        "   Priority=1020 Nice=0 Account=physics QOS=normal\n"
        "   JobState=RUNNING Reason=None Dependency=(null)\n"
        "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n"
        "   DerivedExitCode=0:0\n"
        "   RunTime=01:00:03 TimeLimit=7-00:00:00 TimeMin=N/A\n"
        "   SubmitTime=1795000990 EligibleTime=1795000990\n"
        "   AccrueTime=1795000990\n"
        "   StartTime=1795000998 EndTime=1795605798 Deadline=N/A\n"
        "{}   SuspendTime=None SecsPreSuspend=0{}\n"
        "   Partition=main AllocNode:Sid=login1:146065\n"
        "   ReqNodeList=(null) ExcNodeList=(null)\n"
        "   NodeList=n[1-2]\n"
        "   BatchHost=n1\n"
        "   NumNodes=2 NumCPUs=64 NumTasks=2 CPUs/Task=32 ReqB:S:C:T=0:0:*:*\n"
        "{}"
        "   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*\n"
        "   JOB_GRES=gpu:h100:4\n"
        "{}"
        "   MinCPUsNode=32 MinMemoryNode=120G MinTmpDiskNode=0\n"
        "   Features=(null) DelayBoot=00:00:00\n"
        "   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)\n"
        "   Command=/home/ada/job.sh\n"
        "   WorkDir=/home/ada\n"
        "{}\n",
        preemption, suspension, tres, gres, end);
  };
  const std::string together = "     Nodes=n[1-2] CPU_IDs=0-31 Mem=122880 GRES=gpu:h100:2(IDX:0,3)\n";
  const std::string apart =
      "     Nodes=n1 CPU_IDs=0-31 Mem=122880 GRES=gpu:h100:2(IDX:0,3)\n"
      "     Nodes=n2 CPU_IDs=32-63 Mem=122880 GRES=gpu:h100:2(IDX:0,3)\n";
  const std::string outputs =
      "   StdErr=/home/ada/slurm-22.out\n   StdIn=/dev/null\n   StdOut=/home/ada/slurm-22.out\n";
  for (const std::string& text :
       {// 20.11
        whole("", " LastSchedEval=1795000998", "   TRES=cpu=64,mem=240G,node=2,billing=64,gres/gpu=4\n", together,
              outputs + "   Power=\n   TresPerNode=gpu:2\n   NtasksPerTRES:0\n"),
        // 21.08 and 22.05, with preemption
        whole("   PreemptEligibleTime=1795000998 PreemptTime=None\n", " LastSchedEval=1795000998 Scheduler=Main",
              "   TRES=cpu=64,mem=240G,node=2,billing=64,gres/gpu=4,gres/gpu:h100=4\n", apart,
              outputs + "   Power=\n   TresPerNode=gres:gpu:2\n"),
        // 23.02 to 24.05
        whole("", " LastSchedEval=1795000998 Scheduler=Backfill",
              "   ReqTRES=cpu=64,mem=240G,node=2,billing=64,gres/gpu=4\n"
              "   AllocTRES=cpu=64,mem=240G,node=2,billing=64,gres/gpu=4,gres/gpu:h100=4\n",
              together, outputs + "   Power=\n   TresPerNode=gres/gpu:2\n   TresPerTask=cpu=32\n"),
        // 24.11 and later
        whole("   PreemptEligibleTime=1795000998 PreemptTime=None\n", " LastSchedEval=1795000998 Scheduler=Backfill",
              "   ReqTRES=cpu=64,mem=240G,node=2,billing=64,gres/gpu=4\n"
              "   AllocTRES=cpu=64,mem=240G,node=2,billing=64,gres/gpu=4,gres/gpu:h100=4\n",
              apart, outputs + "   TresPerNode=gres/gpu:h100:2\n")}) {
    const auto given = read_job_details(text, 22, kNodes);
    ASSERT_TRUE(given) << given.error().message() << text;
    EXPECT_EQ(given->gpus, (std::vector<std::pair<std::string, unsigned>>{{"n1", 0}, {"n1", 3}, {"n2", 0}, {"n2", 3}}));
    EXPECT_EQ(given->since, WallTime(1795000998s));
  }
}

// The name of a job may hold anything, lines included.
TEST(RunningJobs, ANameThatLooksLikeALineLeavesTheJobAlone) {
  for (const std::string& text : {
           shown("x\n     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)", kOneLine),
           shown("x\n     Nodes=n9 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)", kOneLine),
           shown("x\nJobId=22 JobName=y", kOneLine),
           shown("x\nJobId=23 JobName=y", kOneLine),
           shown("x\n   SuspendTime=1 x", kOneLine),
           shown("x\n   StartTime=1 x", kOneLine),
           shown("x", ""),
           shown("x", kOneLine + kOneLine),
           shown("x", "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)\n"),
           shown("x", "     Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:3(IDX:0-1)\n"),
           shown("x", "     Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=shard:2(0/2,1/2)\n"),
           shown("x", "     Nodes=n[1-2] CPU_IDs=0 Mem=0\n"),
           shown("x", kOneLine, "soon"),
           shown("x", kOneLine, "None", "None"),
           shown("x", kOneLine, "None", "Unknown"),
           std::string("scontrol: error"),
       })
    EXPECT_FALSE(read_job_details(text, 22, kNodes)) << text;
}

}  // namespace
}  // namespace lull::slurm
