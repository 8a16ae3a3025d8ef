#include "sense/processes.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "sense/file_tree_test.h"

namespace lull {
namespace {

class Processes : public testing::Test {
 protected:
  void SetUp() override { tree_.unpack("proc/hostile.txt", "proc"); }
  ProcessInfo read(pid_t pid) const {
    auto info = read_process(tree_.root(), pid);
    EXPECT_TRUE(info) << (info ? "" : info.error().message());
    return info.value_or(ProcessInfo{});
  }
  TestTree tree_;
};

TEST_F(Processes, ANameThatLooksLikeTheEndOfTheName) {
  const ProcessInfo info = read(100);
  EXPECT_EQ(info.name, "foo) Z ");
  EXPECT_EQ(info.state, 'S');
  EXPECT_EQ(info.parent, 1);
  EXPECT_EQ(info.start_ticks, 12345U);
  EXPECT_EQ(info.uid, 1001U) << "the effective user";
  EXPECT_EQ(info.arguments, (std::vector<std::string>{"python3", "train.py", "--name", "foo) Z "}));
  EXPECT_EQ(info.cgroup, "/user.slice/user-1000.slice/session-3.scope");
  EXPECT_EQ(info.container, "");
}

TEST_F(Processes, NewlinesEscapesAndBrokenUtf8AreKeptAsTheyAre) {
  const ProcessInfo info = read(101);
  EXPECT_EQ(info.name, "a\n1 (b) R 7");
  EXPECT_EQ(info.parent, 100);
  EXPECT_EQ(info.uid, 0U);
  EXPECT_EQ(info.user, "root");
  EXPECT_EQ(info.arguments, (std::vector<std::string>{"\n\x1b[2J", "Uid:\t0", "\xff\xfe"}));
  EXPECT_EQ(info.container, "0123456789ab");
}

TEST_F(Processes, FourKibibytesOfArgumentsAndAUserWithoutName) {
  const ProcessInfo info = read(102);
  ASSERT_EQ(info.arguments.size(), 4U);
  EXPECT_EQ(info.arguments[2], std::string(4096, 'x'));
  EXPECT_EQ(info.arguments[3], "last");
  EXPECT_EQ(info.user, "424242");
  EXPECT_EQ(info.container, "slurm:4711");
}

TEST_F(Processes, KernelThreadsAndZombies) {
  EXPECT_EQ(read(2).command_line(), "[kthreadd]");
  EXPECT_EQ(read(103).state, 'Z');
  EXPECT_TRUE(read(103).arguments.empty());
  EXPECT_EQ(read(103).cgroup, "");
}

TEST_F(Processes, GoneCutShortOrNonsenseIsAnErrorNotAProcess) {
  for (const pid_t pid : {99, 104, 105, 106, 107, 108}) EXPECT_FALSE(read_process(tree_.root(), pid)) << pid;
  EXPECT_EQ(read_process(tree_.root(), 99).error().errno_value, ENOENT);
}

TEST_F(Processes, NoPermissionCostsOnlyWhatIsHidden) {
  tree_.write("proc/200/stat", "200 (other) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 5 1 1");
  std::filesystem::create_directory(tree_.at("proc/200/cmdline"));  // reads fail, for root too
  const ProcessInfo info = read(200);
  EXPECT_EQ(info.name, "other");
  EXPECT_EQ(info.user, "") << "no status, no user";
  EXPECT_FALSE(info.uid) << "and not root";
  EXPECT_TRUE(info.arguments.empty());
}

TEST_F(Processes, TheFixtureIsATreeParentsFirst) {
  std::vector<pid_t> pids;
  for (const ProcessEntry& entry : descendants(read_all_processes(tree_.root()), 100)) pids.push_back(entry.pid);
  EXPECT_EQ(pids, (std::vector<pid_t>{100, 101, 102, 103}));
}

TEST(ProcessesOfThisMachine, SeeOurselves) {
  const auto self = read_process(Root{}, ::getpid());
  ASSERT_TRUE(self);
  EXPECT_EQ(self->parent, ::getppid());
  EXPECT_EQ(self->uid, ::geteuid());
  EXPECT_FALSE(self->arguments.empty());
  ASSERT_TRUE(self->started);
  const auto age = SystemClock().wall() - *self->started;
  EXPECT_GT(age, -std::chrono::seconds(2));
  EXPECT_LT(age, std::chrono::hours(1));
}

TEST(Cgroup, TheContainerOfEachRuntime) {
  const std::string id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  const std::pair<std::string, std::string> cases[] = {
      {"0::/system.slice/docker-" + id + ".scope\n", "0123456789ab"},
      {"12:devices:/docker/" + id + "\n0::/\n", "0123456789ab"},
      {"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/cri-containerd-" + id + ".scope\n",
       "pod:1"},
      {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f2e_41_7.slice/crio-" + id + ".scope\n",
       "pod:6f2e-41-7"},
      {"0::/kubepods.slice/kubepods-pod6f2e.slice/cri-containerd-" + id + ".scope\n", "pod:6f2e"},
      {"5:cpu:/kubepods/burstable/pod6f2e-41-7/" + id + "\n", "pod:6f2e-41-7"},
      {"5:cpu:/kubepods/pod6f2e\n", "pod:6f2e"},
      {"0::/system.slice/pod6f2e/docker-" + id + ".scope\n", "0123456789ab"},
      {"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope/container\n",
       "0123456789ab"},
      {"0::/machine.slice/libpod-" + id + ".scope\n", "0123456789ab"},
      {"0::/kubepods.slice/crio-" + id + ".scope\n", "0123456789ab"},
      {"0::/lxc.payload.web/system.slice/cron.service\n", "web"},
      {"4:memory:/lxc/web\n", "web"},
      {"0::/machine.slice/machine-debian.scope/payload\n", "debian"},
      {"0::/system.slice/slurmstepd.scope/job_815/step_0/user/task_0\n", "slurm:815"},
      {"0::/system.slice/node1_slurmstepd.scope/job_815/step_batch/user/task_0\n", "slurm:815"},
      {"0::/system.slice/slurmstepd.scope/job_815/docker-" + id + ".scope\n", "slurm:815"},
      {"0::/lxc.payload.node/system.slice/slurmstepd.scope/job_815/step_0\n", "slurm:815"},
      // v1, and hybrid: the unified hierarchy or another controller has a path of its own, and a longer one.
      {"9:freezer:/slurm/uid_1000/job_815/step_0\n8:cpu:/\n0::/\n", "slurm:815"},
      {"4:memory:/slurm_gpu1/uid_1000/job_815/step_batch/task_0\n0::/system.slice/slurmd.service\n", "slurm:815"},
      {"9:pids:/system.slice/a-service-with-a-name-that-is-long.service\n4:devices:/slurm/uid_0/job_815/step_0\n",
       "slurm:815"},
      {"4:devices:/docker/" + id + "\n3:cpu:/slurm/uid_0/job_815\n", "slurm:815"},
      // By its SLUID, since 25.11.
      {"0::/system.slice/slurmstepd.scope/s8FXKTA79XAR00/step_batch/user/task_0\n", "slurm:s8FXKTA79XAR00"},
      {"0::/system.slice/slurmstepd.scope/system\n", ""},
      {"0::/system.slice/s8FXKTA79XAR00/step_batch\n", ""},
      // What a job names below its own cgroup is no other job.
      {"0::/system.slice/slurmstepd.scope/job_815/step_0/user/slurm/job_4\n", "slurm:815"},
      {"0::/slurm/job_x/step_0\n", ""},
      {"0::/user.slice/user-1000.slice/user@1000.service/app.slice/slurmstepd.scope/job_815/step_0\n", ""},
      {"0::/system.slice/ssh.service\n", ""},
      {"0::/system.slice/job_815\n", ""},
      {"", ""},
      {"rubbish", ""},
  };
  for (const auto& [text, container] : cases) EXPECT_EQ(container_of(text), container) << text;
}

}  // namespace
}  // namespace lull
