// Who holds a GPU and of which job, on a made-up /proc.

#include "jobs/census.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "gpu/inventory_test.h"
#include "jobs/roster.h"

namespace lull {
namespace {

namespace fs = std::filesystem;

struct Made {
  pid_t pid = 0;
  pid_t parent = 1;
  std::string name = "python3";
  uid_t user = 1000;
  pid_t session = 0;
  pid_t group = 0;  // its own
  int terminal = 0;
  std::string cgroup = "/user.slice";
  std::uint64_t start = 100;
  char state = 'S';
  std::vector<std::string> arguments = {};  // none: its name
};

class CensusTest : public ::testing::Test {
 protected:
  CensusTest() {
    std::string name = (fs::temp_directory_path() / "lull-census-XXXXXX").string();
    root.proc = ::mkdtemp(name.data());
    make({.pid = 1, .parent = 0, .name = "systemd", .user = 0, .cgroup = "/init.scope", .start = 1});
    fs::create_directory(root.proc + "/self");
    std::ofstream(root.proc + "/self/cgroup") << "0::/system.slice/lull.service\n";
  }
  ~CensusTest() override { fs::remove_all(root.proc); }

  void make(const Made& one) const {
    const std::string folder = root.proc + "/" + std::to_string(one.pid);
    fs::create_directories(folder);
    std::ofstream(folder + "/stat") << one.pid << " (" << one.name << ") " << one.state << " " << one.parent << " "
                                    << (one.group == 0 ? one.pid : one.group) << " "
                                    << (one.session == 0 ? one.pid : one.session) << " " << one.terminal
                                    << " -1 0 0 0 0 0 1 1 0 0 20 0 1 0 " << one.start
                                    << " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
    std::ofstream(folder + "/status") << "Name:\t" << one.name << "\nUid:\t" << one.user << "\t" << one.user << "\t"
                                      << one.user << "\t" << one.user << "\n";
    std::ofstream(folder + "/cgroup") << "0::" << one.cgroup << "\n";
    std::ofstream(folder + "/comm") << one.name << "\n";
    std::ofstream cmdline(folder + "/cmdline");
    for (const std::string& word : one.arguments.empty() ? std::vector{one.name} : one.arguments)
      cmdline << word << '\0';
  }

  static Snapshot snapshot(std::vector<std::vector<Tenant>> tenants) {
    Snapshot made;
    made.inventory = gpus_for_test(static_cast<unsigned>(tenants.size()));
    for (auto& list : tenants) {
      Reading reading;
      reading.set(Metric::mem_used, 1e9);
      reading.tenants = std::move(list);
      made.readings.push_back(std::move(reading));
    }
    return made;
  }
  static Tenant tenant(pid_t pid) {
    Tenant made;
    made.pid = pid;
    made.compute = true;
    return made;
  }

  std::string job_of(pid_t pid, Census::Leases leases = nullptr) const {
    Census census(root, std::move(leases));
    const auto cards = census.look(snapshot({{tenant(pid)}}));
    return cards[0].holders.empty() ? "" : cards[0].holders[0].job;
  }

  Root root;
};

TEST_F(CensusTest, ATreeBeginsBelowTheShellThatItWasStartedFrom) {
  make({.pid = 10, .name = "sshd", .user = 0});
  make({.pid = 11, .parent = 10, .name = "bash", .session = 11, .terminal = 34816});
  make({.pid = 12, .parent = 11, .name = "train.sh", .session = 11, .terminal = 34816});
  make({.pid = 13, .parent = 12, .name = "torchrun", .session = 11, .terminal = 34816});
  make({.pid = 14, .parent = 13, .session = 14});  // workers have sessions of their own
  make({.pid = 15, .parent = 13, .session = 15});
  EXPECT_EQ(job_of(14), "tree:12@100");
  EXPECT_EQ(job_of(15), "tree:12@100");
  make({.pid = 20, .parent = 1});
  EXPECT_EQ(job_of(20), "tree:20@100");
  make({.pid = 30, .name = "jupyter-lab"});
  make({.pid = 31, .parent = 30});
  EXPECT_EQ(job_of(31), "tree:31@100") << "each kernel by itself";
  make({.pid = 41, .parent = 12, .user = 1001});
  EXPECT_EQ(job_of(41), "tree:41@100") << "a tree is one user's";
}

constexpr int kTerminal = 34816;

// tmux new -d "…", screen -dm …, ssh -t host …, script -c …: what leads the session is the launcher.
TEST_F(CensusTest, ALauncherThatLeadsTheSessionOfATerminalIsPartOfItsJob) {
  make({.pid = 10, .name = "tmux: server"});
  const auto is_one_job = [&](const Made& launcher, pid_t workers_group) {
    make(launcher);
    for (const pid_t pid : {21, 22})
      make({.pid = pid,
            .parent = 20,
            .session = 20,
            .group = workers_group == 0 ? pid : workers_group,
            .terminal = kTerminal});
    return job_of(21) == "tree:20@100" && job_of(22) == "tree:20@100";
  };
  const Made bash{.pid = 20, .parent = 10, .name = "bash", .terminal = kTerminal};
  const auto with = [&](std::vector<std::string> arguments) {
    Made made = bash;
    made.arguments = std::move(arguments);
    return made;
  };
  EXPECT_TRUE(is_one_job(with({"bash", "train.sh"}), 20));
  EXPECT_TRUE(is_one_job(with({"bash", "train.sh"}), 0)) << "set -m";
  EXPECT_TRUE(is_one_job(with({"bash", "-lc", "a & b"}), 0));
  EXPECT_TRUE(is_one_job(with({"bash", "-o", "pipefail", "train.sh"}), 0));
  EXPECT_TRUE(is_one_job(with({""}), 0)) << "what it runs cannot be seen";
  EXPECT_TRUE(is_one_job(with({"bash"}), 20)) << "it has no job control: whether somebody types is not known";
  Made script = bash;
  script.name = "train.sh";  // #!/bin/bash
  EXPECT_TRUE(is_one_job(script, 20));
  EXPECT_TRUE(is_one_job(script, 0));
  script.name = "python3";
  EXPECT_TRUE(is_one_job(script, 20));
  EXPECT_TRUE(is_one_job(script, 0));
  for (const pid_t pid : {21, 22}) make({.pid = pid, .parent = 20, .session = pid});  // as torchrun's
  EXPECT_EQ(job_of(21), "tree:20@100");
  EXPECT_EQ(job_of(22), "tree:20@100");
  make(with({"bash", "train.sh"}));
  EXPECT_EQ(job_of(21), "tree:20@100") << "what an interactive shell starts is in its session";
}

TEST_F(CensusTest, TwoJobsTypedIntoOneShellAreTwoAndAPipelineIsOne) {
  make({.pid = 10, .name = "sshd", .user = 0});
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"-bash"}, {"bash"}, {"/bin/bash", "-l"}, {"bash", "--init-file", "vscode.sh"}, {"zsh", "-i"}}) {
    make({.pid = 20,
          .parent = 10,
          .name = arguments[0] == "zsh" ? "zsh" : "bash",
          .terminal = kTerminal,
          .arguments = arguments});
    make({.pid = 21, .parent = 20, .session = 20, .terminal = kTerminal});
    make({.pid = 22, .parent = 20, .session = 20, .terminal = kTerminal});
    make({.pid = 23, .parent = 20, .session = 20, .group = 22, .terminal = kTerminal});
    EXPECT_EQ(job_of(21), "tree:21@100") << arguments[0];
    EXPECT_EQ(job_of(22), "tree:22@100");
    EXPECT_EQ(job_of(23), "tree:22@100");
  }
}

// The verdict must not depend on when lull was started.
TEST_F(CensusTest, WorkersWhoseLauncherHasEndedBeforeAreOneJobByTheirProcessGroup) {
  make({.pid = 21, .parent = 1, .session = 20, .group = 20});
  make({.pid = 22, .parent = 1, .session = 20, .group = 20});
  EXPECT_EQ(job_of(21), job_of(22));
  EXPECT_TRUE(job_of(21).starts_with("tree:20@"));
  make({.pid = 5, .name = "systemd"});  // --user, which takes orphans
  make({.pid = 22, .parent = 5, .session = 20, .group = 20});
  EXPECT_EQ(job_of(21), job_of(22));
  make({.pid = 31, .parent = 1});
  make({.pid = 32, .parent = 1});
  EXPECT_NE(job_of(31), job_of(32)) << "daemons, each with a session of its own";
  make({.pid = 41, .parent = 1, .session = 40});
  make({.pid = 42, .parent = 1, .session = 40});
  EXPECT_NE(job_of(41), job_of(42)) << "two that were typed into a shell that has ended";
  // A launcher in a container whose first process it is.
  make({.pid = 51, .parent = 1, .session = 1, .group = 1});
  make({.pid = 52, .parent = 1, .session = 1, .group = 1});
  EXPECT_EQ(job_of(51), job_of(52));
}

TEST_F(CensusTest, AnOrphanBelongsToTheLauncherThatLeadsItsGroupOrItsSession) {
  make({.pid = 20, .parent = 1, .name = "train.sh"});
  make({.pid = 21, .parent = 1, .session = 20, .group = 20});  // (worker &)
  make({.pid = 22, .parent = 20, .session = 20, .group = 20});
  make({.pid = 23, .parent = 1, .session = 20});  // set -m; (worker &)
  for (const pid_t pid : {21, 22, 23}) EXPECT_EQ(job_of(pid), "tree:20@100") << pid;
  make({.pid = 30, .name = "bash", .terminal = kTerminal});  // somebody types into this one
  make({.pid = 31, .parent = 1, .session = 30, .terminal = kTerminal});
  make({.pid = 32, .parent = 1, .session = 30, .terminal = kTerminal});
  EXPECT_EQ(job_of(31), "tree:31@100");
  EXPECT_EQ(job_of(32), "tree:32@100");
}

TEST_F(CensusTest, AWorkerThatComesAfterItsLauncherHasEndedJoinsThoseWhoWereSeenBefore) {
  make({.pid = 20, .parent = 1, .name = "launch.sh", .session = 9});
  make({.pid = 21, .parent = 20, .session = 9, .group = 20});
  make({.pid = 22, .parent = 20, .session = 9, .group = 20});
  Census census(root);
  EXPECT_EQ(census.look(snapshot({{tenant(21)}, {}}))[0].holders[0].job, "tree:20@100");
  fs::remove_all(root.proc + "/20");
  for (const pid_t pid : {21, 22}) make({.pid = pid, .parent = 1, .session = 9, .group = 20});
  EXPECT_EQ(census.look(snapshot({{tenant(21)}, {tenant(22)}}))[1].holders[0].job, "tree:20@100");
}

// A script of root's that starts workers as nobody: a job is left alone as a whole.
TEST_F(CensusTest, ProcessesOfTwoUsersInOneProcessGroupAreOneJob) {
  make({.pid = 20, .parent = 1, .name = "launch.sh", .user = 0});
  make({.pid = 21, .parent = 20, .user = 0, .session = 20, .group = 20});
  make({.pid = 22, .parent = 20, .user = 65534, .session = 20, .group = 20});
  EXPECT_EQ(job_of(21), "tree:20@100");
  EXPECT_EQ(job_of(22), "tree:20@100");
  Census census(root);
  const auto cards = census.look(snapshot({{tenant(22)}, {tenant(21)}}));
  Roster roster({.per = Per::job, .only = {65534}});
  EXPECT_TRUE(roster.look(gpus_for_test(2)->devices, cards).empty());
  // Of a service that starts jobs of users, each has a group of its own.
  make({.pid = 30, .parent = 1, .name = "pbs_mom", .user = 0});
  make({.pid = 31, .parent = 30});
  make({.pid = 32, .parent = 30, .user = 1001});
  EXPECT_EQ(job_of(31), "tree:31@100");
  EXPECT_EQ(job_of(32), "tree:32@100");
}

// The script that started them is gone: what is one job stays one, whoever of it comes to a GPU later.
TEST_F(CensusTest, AJobStaysOneWhenTheTopOfItsTreeHasEnded) {
  const auto only_job = [](const std::vector<Card>& cards) {
    std::set<std::string> jobs;
    for (const Card& card : cards)
      for (const Holder& one : card.holders) jobs.insert(one.job);
    return jobs.size() == 1 ? *jobs.begin() : std::to_string(jobs.size()) + " jobs";
  };
  for (const pid_t first : {20, 21}) {
    make({.pid = 10, .name = "launch.sh"});
    make({.pid = 20, .parent = 10});
    make({.pid = 21, .parent = 20});
    Census census(root);
    EXPECT_EQ(only_job(census.look(snapshot({{tenant(first)}, {}}))), "tree:10@100");
    fs::remove_all(root.proc + "/10");
    make({.pid = 20, .parent = 1});
    EXPECT_EQ(only_job(census.look(snapshot({{tenant(20)}, {tenant(21)}}))), "tree:10@100") << first << " came first";
    make({.pid = 22, .parent = 20});
    EXPECT_EQ(only_job(census.look(snapshot({{tenant(20)}, {tenant(22)}}))), "tree:10@100");
  }
}

TEST_F(CensusTest, SlurmJobsAndContainersAreJobsAndOursIsNone) {
  const std::string id(64, 'a');
  make({.pid = 10, .cgroup = "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"});
  EXPECT_EQ(job_of(10), "slurm:4711");
  make({.pid = 11, .cgroup = "/system.slice/docker-" + id + ".scope"});
  EXPECT_EQ(job_of(11), "container:" + id.substr(0, 12));
  std::ofstream(root.proc + "/self/cgroup") << "0::/system.slice/docker-" << id << ".scope\n";
  EXPECT_EQ(job_of(11), "tree:11@100") << "all that we see is in the container that we are in";
}

TEST_F(CensusTest, ALeaseIsOfItsOwnersProcessesOnly) {
  make({.pid = 10});
  make({.pid = 11, .parent = 10});
  LeaseInfo lease;
  lease.owner = 1000;
  lease.record.id = "abc";
  lease.record.kind = LeaseKind::job;
  lease.record.holder = {.pid = 10, .start_ticks = 100};
  const auto leases = [&] { return std::vector{lease}; };
  EXPECT_EQ(job_of(11, leases), "lease:abc");
  lease.owner = 1001;
  EXPECT_EQ(job_of(11, leases), "tree:10@100") << "somebody wrote a stranger's process into his lease";
  lease.owner = 1000;
  lease.record.holder.start_ticks = 99;
  EXPECT_EQ(job_of(11, leases), "tree:10@100") << "that was another process with this number";
}

TEST_F(CensusTest, WhoOnlyLooksOrServesIsNoHolder) {
  make({.pid = 10, .name = "nvidia-smi"});
  make({.pid = 11, .name = "Xorg", .user = 0});
  make({.pid = 12, .name = "nvidia-cuda-mps", .user = 0});
  make({.pid = 13});
  Tenant draws = tenant(11);
  draws.compute = false;
  draws.graphics = true;
  Tenant serves = tenant(12);
  serves.mps_server = true;
  Census census(root);
  const auto cards = census.look(snapshot({{tenant(10), draws, serves, tenant(13)}}));
  ASSERT_EQ(cards[0].holders.size(), 1U);
  EXPECT_EQ(cards[0].holders[0].pid, 13);
  EXPECT_TRUE(cards[0].listed && cards[0].complete);
}

TEST_F(CensusTest, WhoDrawsIsNoHolderAndOfTheJobOfItsTree) {
  make({.pid = 20, .name = "train.sh"});
  make({.pid = 21, .parent = 20, .session = 20, .group = 20});
  make({.pid = 22, .parent = 20, .name = "blender", .session = 20, .group = 20});
  Tenant draws = tenant(22);
  draws.compute = false;
  draws.graphics = true;
  Census census(root);
  auto cards = census.look(snapshot({{tenant(21)}, {draws}}));
  ASSERT_EQ(cards[1].drawers.size(), 1U);
  EXPECT_TRUE(cards[1].holders.empty() && cards[1].complete);
  EXPECT_EQ(cards[1].drawers[0].job, cards[0].holders[0].job);
  draws.here = false;
  cards = census.look(snapshot({{tenant(21)}, {draws}}));
  EXPECT_TRUE(cards[1].strangers.empty() && cards[1].drawers.empty());
  EXPECT_FALSE(cards[1].complete) << "whose that is cannot be seen";
}

TEST_F(CensusTest, ANumberThatMeansNothingHereIsAStrangerAndTheListIsNotComplete) {
  make({.pid = 13});
  Tenant foreign = tenant(13);
  foreign.here = false;
  Census census(root);
  const auto cards = census.look(snapshot({{foreign}}));
  EXPECT_TRUE(cards[0].holders.empty());
  EXPECT_EQ(cards[0].strangers, std::vector<pid_t>{13});
  EXPECT_TRUE(cards[0].listed);
  EXPECT_FALSE(cards[0].complete);
}

TEST_F(CensusTest, WhatCannotBeListedIsNotEmpty) {
  Snapshot made = snapshot({{}, {}});
  made.readings[0].tenants.reset();
  made.readings[1].miss_all(Absence::lost);
  made.readings[1].device_absence = Absence::lost;
  Census census(root);
  const auto cards = census.look(made);
  EXPECT_FALSE(cards[0].listed || cards[0].complete);
  EXPECT_TRUE(cards[0].reachable);
  EXPECT_FALSE(cards[1].listed || cards[1].reachable) << "it was lost from the beginning: nobody can be there";
}

TEST_F(CensusTest, AJobStaysTheSameWhenItsParentGoesAndAReusedNumberIsAnother) {
  make({.pid = 10, .name = "torchrun"});
  make({.pid = 11, .parent = 10});
  Census census(root);
  EXPECT_EQ(census.look(snapshot({{tenant(11)}}))[0].holders[0].job, "tree:10@100");
  fs::remove_all(root.proc + "/10");
  make({.pid = 11, .parent = 1});
  EXPECT_EQ(census.look(snapshot({{tenant(11)}}))[0].holders[0].job, "tree:10@100");
  make({.pid = 11, .parent = 1, .start = 200});
  EXPECT_EQ(census.look(snapshot({{tenant(11)}}))[0].holders[0].job, "tree:11@200");
}

}  // namespace
}  // namespace lull
