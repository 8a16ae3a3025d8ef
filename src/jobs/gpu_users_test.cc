// Who holds a GPU and of which job, on a made-up /proc.

#include "jobs/gpu_users.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/users.h"
#include "gpu/inventory_test.h"
#include "jobs/subject_tracker.h"

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

std::vector<GpuProcess> those(const GpuUse& use, bool (*is_one)(const GpuProcess&)) {
  std::vector<GpuProcess> found;
  std::ranges::copy_if(use.processes, std::back_inserter(found), is_one);
  return found;
}
std::vector<GpuProcess> holders(const GpuUse& use) { return those(use, holds); }
std::vector<GpuProcess> drawers(const GpuUse& use) { return those(use, draws); }
std::vector<pid_t> strangers(const GpuUse& use) {
  std::vector<pid_t> pids;
  for (const GpuProcess& one : those(use, is_unknown)) pids.push_back(one.pid);
  return pids;
}

class GpuUsersTest : public ::testing::Test {
 protected:
  GpuUsersTest() {
    std::string name = (fs::temp_directory_path() / "lull-users-XXXXXX").string();
    root.proc = ::mkdtemp(name.data());
    make({.pid = 1, .parent = 0, .name = "systemd", .user = 0, .cgroup = "/init.scope", .start = 1});
    fs::create_directory(root.proc + "/self");
    std::ofstream(root.proc + "/self/cgroup") << "0::/system.slice/lull.service\n";
  }
  ~GpuUsersTest() override { fs::remove_all(root.proc); }

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
    std::ofstream(folder + "/cgroup") << (one.cgroup.starts_with('/') ? "0::" : "") << one.cgroup << "\n";
    std::ofstream(folder + "/comm") << one.name << "\n";
    std::ofstream cmdline(folder + "/cmdline");
    for (const std::string& word : one.arguments.empty() ? std::vector{one.name} : one.arguments)
      cmdline << word << '\0';
  }

  static Snapshot snapshot(std::vector<std::vector<GpuProcess>> processes) {
    Snapshot made;
    made.inventory = gpus_for_test(static_cast<unsigned>(processes.size()));
    for (auto& list : processes) {
      Reading reading;
      reading.set(Metric::mem_used, 1e9);
      reading.processes = std::move(list);
      made.readings.push_back(std::move(reading));
    }
    return made;
  }
  static GpuProcess process(pid_t pid) {
    GpuProcess made;
    made.pid = pid;
    made.compute = true;
    return made;
  }

  std::string job_of(pid_t pid, GpuUsers::Leases leases = nullptr) const {
    GpuUsers users(root, std::move(leases));
    const auto uses = users.look(snapshot({{process(pid)}}), UserDetail::jobs);
    return holders(uses[0]).empty() ? "" : holders(uses[0])[0].job;
  }

  Root root;
};

TEST_F(GpuUsersTest, ATreeBeginsBelowTheShellThatItWasStartedFrom) {
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
TEST_F(GpuUsersTest, ALauncherThatLeadsTheSessionOfATerminalIsPartOfItsJob) {
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

TEST_F(GpuUsersTest, TwoJobsTypedIntoOneShellAreTwoAndAPipelineIsOne) {
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
TEST_F(GpuUsersTest, WorkersWhoseLauncherHasEndedBeforeAreOneJobByTheirProcessGroup) {
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

TEST_F(GpuUsersTest, AnOrphanBelongsToTheLauncherThatLeadsItsGroupOrItsSession) {
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

TEST_F(GpuUsersTest, AWorkerThatComesAfterItsLauncherHasEndedJoinsThoseWhoWereSeenBefore) {
  make({.pid = 20, .parent = 1, .name = "launch.sh", .session = 9});
  make({.pid = 21, .parent = 20, .session = 9, .group = 20});
  make({.pid = 22, .parent = 20, .session = 9, .group = 20});
  GpuUsers users(root);
  EXPECT_EQ(holders(users.look(snapshot({{process(21)}, {}}), UserDetail::jobs)[0])[0].job, "tree:20@100");
  fs::remove_all(root.proc + "/20");
  for (const pid_t pid : {21, 22}) make({.pid = pid, .parent = 1, .session = 9, .group = 20});
  EXPECT_EQ(holders(users.look(snapshot({{process(21)}, {process(22)}}), UserDetail::jobs)[1])[0].job, "tree:20@100");
  make({.pid = 23, .parent = 1, .session = 9, .group = 25});  // of another job that was typed into the same shell
  EXPECT_EQ(holders(users.look(snapshot({{process(22)}, {process(23)}}), UserDetail::jobs)[1])[0].job,
            "tree:25@session-9");
}

// A script of root's that starts workers as nobody: a job is left alone as a whole.
TEST_F(GpuUsersTest, ProcessesOfTwoUsersInOneProcessGroupAreOneJob) {
  make({.pid = 20, .parent = 1, .name = "launch.sh", .user = 0});
  make({.pid = 21, .parent = 20, .user = 0, .session = 20, .group = 20});
  make({.pid = 22, .parent = 20, .user = 65534, .session = 20, .group = 20});
  EXPECT_EQ(job_of(21), "tree:20@100");
  EXPECT_EQ(job_of(22), "tree:20@100");
  GpuUsers users(root);
  const auto uses = users.look(snapshot({{process(22)}, {process(21)}}), UserDetail::jobs);
  SubjectTracker tracker({.per = Per::job, .only = {65534}});
  EXPECT_TRUE(tracker.look(gpus_for_test(2)->devices, uses).empty());
  // Of a service that starts jobs of users, each has a group of its own.
  make({.pid = 30, .parent = 1, .name = "pbs_mom", .user = 0});
  make({.pid = 31, .parent = 30});
  make({.pid = 32, .parent = 30, .user = 1001});
  EXPECT_EQ(job_of(31), "tree:31@100");
  EXPECT_EQ(job_of(32), "tree:32@100");
}

// The script that started them is gone: what is one job stays one, whoever of it comes to a GPU later.
TEST_F(GpuUsersTest, AJobStaysOneWhenTheTopOfItsTreeHasEnded) {
  const auto only_job = [](const std::vector<GpuUse>& uses) {
    std::set<std::string> jobs;
    for (const GpuUse& use : uses)
      for (const GpuProcess& one : holders(use)) jobs.insert(one.job);
    return jobs.size() == 1 ? *jobs.begin() : std::to_string(jobs.size()) + " jobs";
  };
  for (const pid_t first : {20, 21}) {
    make({.pid = 10, .name = "launch.sh"});
    make({.pid = 20, .parent = 10});
    make({.pid = 21, .parent = 20});
    GpuUsers users(root);
    EXPECT_EQ(only_job(users.look(snapshot({{process(first)}, {}}), UserDetail::jobs)), "tree:10@100");
    fs::remove_all(root.proc + "/10");
    make({.pid = 20, .parent = 1});
    EXPECT_EQ(only_job(users.look(snapshot({{process(20)}, {process(21)}}), UserDetail::jobs)), "tree:10@100")
        << first << " came first";
    make({.pid = 22, .parent = 20});
    EXPECT_EQ(only_job(users.look(snapshot({{process(20)}, {process(22)}}), UserDetail::jobs)), "tree:10@100");
  }
}

TEST_F(GpuUsersTest, SlurmJobsAndContainersAreJobsAndOursIsNone) {
  const std::string id(64, 'a');
  make({.pid = 10, .cgroup = "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"});
  EXPECT_EQ(job_of(10), "slurm:4711");
  make({.pid = 11, .cgroup = "/system.slice/docker-" + id + ".scope"});
  EXPECT_EQ(job_of(11), "container:" + id.substr(0, 12));
  GpuUsers users(root);
  const auto uses = users.look(snapshot({{process(10)}, {process(11)}}), UserDetail::jobs);
  EXPECT_EQ(holders(uses[0])[0].job_title, "Slurm job 4711");
  EXPECT_EQ(holders(uses[1])[0].job_title, "container " + id.substr(0, 12));
  std::ofstream(root.proc + "/self/cgroup") << "0::/system.slice/docker-" << id << ".scope\n";
  EXPECT_EQ(job_of(11), "tree:11@100") << "all that we see is in the container that we are in";
}

TEST_F(GpuUsersTest, ALeaseIsOfItsOwnersProcessesOnly) {
  make({.pid = 10});
  make({.pid = 11, .parent = 10});
  LeaseInfo lease;
  lease.owner = 1000;
  lease.record.id = "abc";
  lease.record.kind = LeaseKind::job;
  lease.record.holder = {.pid = 10, .start_ticks = 100};
  const auto leases = [&]() -> Result<std::vector<LeaseInfo>> { return std::vector{lease}; };
  EXPECT_EQ(job_of(11, leases), "lease:abc");
  lease.owner = 1001;
  EXPECT_EQ(job_of(11, leases), "tree:10@100") << "somebody wrote a stranger's process into his lease";
  lease.owner = 1000;
  lease.record.holder.start_ticks = 99;
  EXPECT_EQ(job_of(11, leases), "tree:10@100") << "that was another process with this number";
}

// Everybody can read the id of another's lease, and write it into one of their own.
TEST_F(GpuUsersTest, TheIdOfALeaseDoesNotJoinJobsOfTwoUsers) {
  make({.pid = 10, .user = 1000});
  make({.pid = 20, .user = 1001});
  const auto lease = [](uid_t owner, pid_t holder) {
    LeaseInfo made;
    made.owner = owner;
    made.record.id = "abc";
    made.record.kind = LeaseKind::job;
    made.record.holder = {.pid = holder, .start_ticks = 100};
    return made;
  };
  GpuUsers users(root,
                 [&]() -> Result<std::vector<LeaseInfo>> { return std::vector{lease(1000, 10), lease(1001, 20)}; });
  const Snapshot seen = snapshot({{process(10)}, {process(20)}});
  for (int time = 0; time < 2; ++time) {
    const auto uses = users.look(seen, UserDetail::jobs);
    EXPECT_EQ(holders(uses[0])[0].job, "lease:abc");
    EXPECT_EQ(holders(uses[1])[0].job, "lease:abc-2");
  }
}

// It may be of any job, as long as that cannot be told.
TEST_F(GpuUsersTest, AnUnprovenProcessMayBeOfEveryJobWhereLeasesCannotBeRead) {
  make({.pid = 10});
  make({.pid = 11});
  GpuProcess unproven = process(11);
  unproven.proof = Proof::unproven;
  unproven.start_ticks = 100;
  for (const bool readable : {true, false}) {
    GpuUsers users(root, [&]() -> Result<std::vector<LeaseInfo>> {
      if (!readable) return fail("no permission");
      return std::vector<LeaseInfo>();
    });
    const auto uses = users.look(snapshot({{unproven}}), UserDetail::jobs);
    EXPECT_TRUE(uses[0].unproven);
    EXPECT_EQ(uses[0].may_have_job("tree:10@100"), !readable);
    EXPECT_TRUE(uses[0].may_have_job("tree:11@100"));
  }
}

TEST_F(GpuUsersTest, AJobIsUnknownWhereLeasesCannotBeRead) {
  make({.pid = 10});
  make({.pid = 11, .parent = 10});
  make({.pid = 20, .cgroup = "/system.slice/slurmstepd.scope/job_7/step_0"});
  bool readable = false;
  GpuUsers users(root, [&]() -> Result<std::vector<LeaseInfo>> {
    if (!readable) return fail("no permission");
    return std::vector<LeaseInfo>();
  });
  const Snapshot seen = snapshot({{process(11)}, {process(20)}, {}});
  const std::vector<Device> scope = seen.inventory->devices;
  auto uses = users.look(seen, UserDetail::jobs);
  EXPECT_NE(users.trouble().find("no permission"), std::string::npos);
  ASSERT_EQ(holders(uses[0]).size(), 1U);
  EXPECT_EQ(holders(uses[0])[0].job, "");
  EXPECT_FALSE(uses[0].complete);
  SubjectTracker tracker({.per = Per::job});
  const auto& subjects = tracker.look(scope, uses);
  ASSERT_EQ(subjects.size(), 1U) << "the Slurm job needs no lease to be known";
  EXPECT_EQ(subjects[0].job, "slurm:7");
  EXPECT_EQ(subjects[0].subject.scope.devices.size(), 2U) << "it may be the one on the first GPU as well";
  EXPECT_EQ(SubjectTracker({.per = Per::gpu}).look(scope, uses).size(), 2U) << "whose job it is makes no difference";
  readable = true;
  uses = users.look(seen, UserDetail::jobs);
  EXPECT_EQ(users.trouble(), "");
  EXPECT_EQ(holders(uses[0])[0].job, "tree:10@100") << "what was unknown is not remembered";
}

TEST_F(GpuUsersTest, WhoOnlyLooksOrServesIsNoHolder) {
  make({.pid = 10, .name = "nvidia-smi"});
  make({.pid = 11, .name = "Xorg", .user = 0});
  make({.pid = 12, .name = "nvidia-cuda-mps", .user = 0});
  make({.pid = 13});
  GpuProcess draws = process(11);
  draws.compute = false;
  draws.graphics = true;
  GpuProcess serves = process(12);
  serves.mps_server = true;
  GpuUsers users(root);
  const auto uses = users.look(snapshot({{process(10), draws, serves, process(13)}}), UserDetail::jobs);
  ASSERT_EQ(holders(uses[0]).size(), 1U);
  EXPECT_EQ(holders(uses[0])[0].pid, 13);
  EXPECT_TRUE(uses[0].listed && uses[0].complete);
}

TEST_F(GpuUsersTest, WhoDrawsIsNoHolderAndOfTheJobOfItsTree) {
  make({.pid = 20, .name = "train.sh"});
  make({.pid = 21, .parent = 20, .session = 20, .group = 20});
  make({.pid = 22, .parent = 20, .name = "blender", .session = 20, .group = 20});
  GpuProcess draws = process(22);
  draws.compute = false;
  draws.graphics = true;
  GpuUsers users(root);
  auto uses = users.look(snapshot({{process(21)}, {draws}}), UserDetail::jobs);
  ASSERT_EQ(drawers(uses[1]).size(), 1U);
  EXPECT_TRUE(holders(uses[1]).empty() && uses[1].complete);
  EXPECT_EQ(drawers(uses[1])[0].job, holders(uses[0])[0].job);
  draws.here = false;
  uses = users.look(snapshot({{process(21)}, {draws}}), UserDetail::jobs);
  EXPECT_TRUE(strangers(uses[1]).empty() && drawers(uses[1]).empty());
  EXPECT_FALSE(uses[1].complete) << "whose that is cannot be seen";
}

TEST_F(GpuUsersTest, ANumberThatMeansNothingHereIsAStrangerAndTheListIsNotComplete) {
  make({.pid = 13});
  GpuProcess foreign = process(13);
  foreign.here = false;
  GpuUsers users(root);
  const auto uses = users.look(snapshot({{foreign}}), UserDetail::jobs);
  EXPECT_TRUE(holders(uses[0]).empty());
  EXPECT_EQ(strangers(uses[0]), std::vector<pid_t>{13});
  EXPECT_TRUE(uses[0].listed);
  EXPECT_FALSE(uses[0].complete);
}

TEST_F(GpuUsersTest, OnlyAProvenProcessIsAHolder) {
  make({.pid = 13, .user = 0});
  for (const Proof proof : {Proof::unproven, Proof::stale}) {
    GpuProcess one = process(13);
    one.proof = proof;
    one.here = proof == Proof::unproven;
    GpuUsers users(root);
    const auto uses = users.look(snapshot({{one}}), UserDetail::jobs);
    EXPECT_TRUE(holders(uses[0]).empty()) << to_string(proof);
    EXPECT_EQ(strangers(uses[0]), std::vector<pid_t>{13});
    EXPECT_FALSE(uses[0].complete);
    for (const Per per : {Per::gpu, Per::job})
      EXPECT_TRUE(SubjectTracker({.per = per, .free_too = true}).look(gpus_for_test(1)->devices, uses).empty())
          << "neither somebody's nor free";
  }
}

TEST_F(GpuUsersTest, WhoHasTheNumberNowIsNotWhoWasListed) {
  make({.pid = 13, .start = 200});
  GpuProcess one = process(13);
  one.start_ticks = 100;
  GpuUsers users(root);
  const auto uses = users.look(snapshot({{one}}), UserDetail::jobs);
  EXPECT_TRUE(holders(uses[0]).empty());
  EXPECT_EQ(strangers(uses[0]), std::vector<pid_t>{13});
  EXPECT_FALSE(uses[0].complete);
}

TEST_F(GpuUsersTest, InASnapshotOnlyWhoIsIdentifiedStaysProven) {
  make({.pid = 13, .start = 100});
  make({.pid = 14, .start = 200});
  make({.pid = 16, .state = 'Z'});
  GpuProcess another = process(14);  // has its number by now
  another.start_ticks = 100;
  GpuProcess unproven = process(13);
  unproven.proof = Proof::unproven;
  GpuProcess served = process(17);
  served.mps_server = true;
  Snapshot seen = snapshot({{process(13), process(15), another, process(16)}, {served, unproven}, {}});
  seen.readings[2].processes.reset();
  GpuUsers(root).identify_in(seen);
  const auto& first = *seen.readings[0].processes;
  ASSERT_EQ(first.size(), 4U) << "their memory is in use, whoever they are";
  EXPECT_TRUE(first[0].proven());
  EXPECT_EQ(first[0].start_ticks, 100U);
  for (const std::size_t ended : {1U, 3U}) {
    EXPECT_EQ(first[ended].proof, Proof::stale);
    EXPECT_FALSE(first[ended].here);
  }
  EXPECT_EQ(first[2].proof, Proof::unproven);
  const auto& second = *seen.readings[1].processes;
  EXPECT_EQ(second[0].proof, Proof::stale);
  EXPECT_FALSE(second[0].mps_server) << "whoever is there counts";
  EXPECT_EQ(second[1].pid, 13);
  EXPECT_EQ(second[1].proof, Proof::unproven);
  EXPECT_FALSE(seen.readings[2].processes);
}

// Whose files cannot be looked at may be a process that has the number of one of the job's that has ended.
TEST_F(GpuUsersTest, AGpuOfUnprovenProcessesMayBeAJobsThatHoldsItsFile) {
  make({.pid = 13});
  make({.pid = 14, .user = 1001});
  const std::string dev = root.proc + "/dev";
  fs::create_directories(dev);
  for (const char* name : {"/nvidia0", "/nvidia1"}) std::ofstream(dev + name) << "";
  root.dev = dev;
  fs::create_directories(root.proc + "/13/fd");
  GpuProcess unproven = process(14);
  unproven.proof = Proof::unproven;
  for (const bool holds : {false, true}) {
    if (holds) fs::create_symlink(dev + "/nvidia1", root.proc + "/13/fd/5");
    Snapshot seen = snapshot({{process(13)}, {unproven}});
    auto inventory = std::make_shared<Inventory>(*seen.inventory);
    for (unsigned i = 0; i < 2; ++i) inventory->devices[i].minor = i;
    seen.inventory = inventory;
    GpuUsers users(root);
    SubjectTracker tracker({.per = Per::job});
    const auto& members = tracker.look(seen.inventory->devices, users.look(seen, UserDetail::jobs));
    ASSERT_EQ(members.size(), 1U);
    EXPECT_EQ(members[0].subject.scope.devices.size(), holds ? 2U : 1U);
    ASSERT_EQ(members[0].holders.size(), 1U);
    EXPECT_EQ(members[0].holders[0].pid, 13);
  }
}

TEST_F(GpuUsersTest, OfManyProcessesAllAreReadAgainWithinAWhileAndAtOnceWhereAsked) {
  std::vector<GpuProcess> many;
  for (pid_t pid = 1000; pid < 1700; ++pid) {
    make({.pid = pid});
    many.push_back(process(pid));
    many.back().start_ticks = 100;
  }
  GpuUsers users(root);
  const auto stopped = [&](bool fresh) {
    const auto uses = users.look(snapshot({many}), UserDetail::jobs, fresh);
    EXPECT_EQ(holders(uses[0]).size(), 700U);
    return std::ranges::count(holders(uses[0]), true, &GpuProcess::stopped);
  };
  EXPECT_EQ(stopped(false), 0);
  for (pid_t pid = 1000; pid < 1700; ++pid) make({.pid = pid, .state = 'T'});
  const auto some = stopped(false);
  EXPECT_GT(some, 0);
  EXPECT_LT(some, 700) << "what is known is not read with every look";
  EXPECT_EQ(stopped(false), 700) << "but within two of them";
  for (pid_t pid = 1000; pid < 1700; ++pid) make({.pid = pid});
  EXPECT_EQ(stopped(true), 0) << "all of it, where that is asked for";
  make({.pid = 1000, .start = 200});
  const auto uses = users.look(snapshot({many}), UserDetail::jobs, true);
  EXPECT_EQ(holders(uses[0]).size(), 699U);
  EXPECT_EQ(strangers(uses[0]), std::vector<pid_t>{1000});
}

TEST_F(GpuUsersTest, WhatCannotBeListedIsNotEmpty) {
  Snapshot made = snapshot({{}, {}});
  made.readings[0].processes.reset();
  made.readings[1].miss_all(Absence::lost);
  made.readings[1].device_absence = Absence::lost;
  GpuUsers users(root);
  const auto uses = users.look(made, UserDetail::jobs);
  EXPECT_FALSE(uses[0].listed || uses[0].complete);
  EXPECT_TRUE(uses[0].reachable);
  EXPECT_FALSE(uses[1].listed || uses[1].reachable) << "it was lost from the beginning: nobody can be there";
}

TEST_F(GpuUsersTest, AJobStaysTheSameWhenItsParentGoesAndAReusedNumberIsAnother) {
  make({.pid = 10, .name = "torchrun"});
  make({.pid = 11, .parent = 10});
  GpuUsers users(root);
  EXPECT_EQ(holders(users.look(snapshot({{process(11)}}), UserDetail::jobs)[0])[0].job, "tree:10@100");
  fs::remove_all(root.proc + "/10");
  make({.pid = 11, .parent = 1});
  EXPECT_EQ(holders(users.look(snapshot({{process(11)}}), UserDetail::jobs)[0])[0].job, "tree:10@100");
  make({.pid = 11, .parent = 1, .start = 200});
  EXPECT_EQ(holders(users.look(snapshot({{process(11)}}), UserDetail::jobs)[0])[0].job, "tree:11@200");
}

// A made-up hierarchy of cgroups; who owns a folder in it is who made it.
class NamedByOthers : public GpuUsersTest {
 protected:
  NamedByOthers() {
    std::ofstream(root.proc + "/self/mountinfo") << "41 31 0:38 / " << root.proc << "/cg rw - cgroup2 cgroup2 rw\n";
  }
  void cgroup(const std::string& path, uid_t maker) const {
    fs::create_directories(root.proc + "/cg" + path);
    ASSERT_EQ(::chown((root.proc + "/cg" + path).c_str(), maker, maker), 0);
  }
  std::vector<std::string> jobs_of(const std::vector<pid_t>& pids) const {
    GpuUsers users(root);
    std::vector<GpuProcess> all;
    for (const pid_t pid : pids) all.push_back(process(pid));
    std::vector<std::string> jobs;
    const auto uses = users.look(snapshot({all}), UserDetail::jobs);
    for (const GpuProcess& one : holders(uses[0])) jobs.push_back(one.job);
    return jobs;
  }
  const std::string id = std::string(64, 'a');
  const std::string short_id = std::string(12, 'a');
  const std::string theirs = "/user.slice/user-1001.slice/user@1001.service";
};

TEST_F(NamedByOthers, AContainerMadeByRootIsOneJobWhoeverRunsInIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  const std::string docker = "/system.slice/docker-" + id + ".scope";
  cgroup(docker + "/init", 0);
  make({.pid = 10, .user = 0, .cgroup = docker});
  make({.pid = 11, .user = 1000, .cgroup = docker + "/init"});
  EXPECT_EQ(jobs_of({10, 11}), std::vector<std::string>(2, "container:" + short_id));
}

TEST_F(NamedByOthers, ACopiedContainerNameJoinsNobody) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  const std::string docker = "/system.slice/docker-" + id + ".scope";
  const std::string copy = theirs + "/docker-" + id + ".scope";
  cgroup(docker, 0);
  cgroup(theirs, 1001);
  cgroup(copy, 1001);
  make({.pid = 10, .user = 1000, .cgroup = docker});
  make({.pid = 20, .user = 1001, .cgroup = copy});
  make({.pid = 21, .user = 1001, .cgroup = copy});
  make({.pid = 22, .user = 1000, .cgroup = copy});  // whoever put it there
  for (const auto& pids : {std::vector<pid_t>{10, 20, 21, 22}, std::vector<pid_t>{22, 21, 20, 10}}) {
    std::map<pid_t, std::string> jobs;
    const auto found = jobs_of(pids);
    ASSERT_EQ(found.size(), 4U);
    for (std::size_t i = 0; i < pids.size(); ++i) jobs[pids[i]] = found[i];
    EXPECT_EQ(jobs[10], "container:" + short_id);
    EXPECT_EQ(jobs[20], "container:" + user_name(1001) + "/" + short_id);
    EXPECT_EQ(jobs[21], jobs[20]);
    EXPECT_EQ(jobs[22], "tree:22@100") << "the cgroup of another user says nothing about this one";
  }
}

// What it costs is theirs: none of their own is judged by itself.
TEST_F(NamedByOthers, AUserCanJoinTheirOwnProcessesByTheNameOfAContainer) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  const std::string made_up = theirs + "/docker-" + id + ".scope";
  cgroup(theirs, 1001);
  cgroup(made_up, 1001);
  make({.pid = 20, .user = 1001, .cgroup = made_up});
  make({.pid = 21, .user = 1001, .cgroup = made_up});
  make({.pid = 22, .user = 1001, .cgroup = theirs});
  const auto jobs = jobs_of({20, 21, 22});
  EXPECT_EQ(jobs[0], "container:" + user_name(1001) + "/" + short_id);
  EXPECT_EQ(jobs[1], jobs[0]);
  EXPECT_EQ(jobs[2], "tree:22@100");
}

TEST_F(NamedByOthers, AUserCanFreezeTheirOwnJob) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  cgroup(theirs, 1001);
  for (const char* name : {"/frozen", "/runs"}) cgroup(theirs + name, 1001);
  std::ofstream(root.proc + "/cg" + theirs + "/frozen/cgroup.events") << "populated 1\nfrozen 1\n";
  std::ofstream(root.proc + "/cg" + theirs + "/runs/cgroup.events") << "populated 1\nfrozen 0\n";
  make({.pid = 20, .user = 1001, .cgroup = theirs + "/frozen"});
  make({.pid = 21, .user = 1001, .cgroup = theirs + "/runs"});
  GpuUsers users(root);
  const auto uses = users.look(snapshot({{process(20), process(21)}}), UserDetail::jobs);
  ASSERT_EQ(holders(uses[0]).size(), 2U);
  EXPECT_TRUE(holders(uses[0])[0].stopped);
  EXPECT_FALSE(holders(uses[0])[1].stopped);
}

TEST_F(NamedByOthers, AFolderOfRootsBelowOneOfAUsersIsTheUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  cgroup(theirs, 1001);
  cgroup(theirs + "/docker-" + id + ".scope", 0);
  make({.pid = 10, .user = 1000, .cgroup = theirs + "/docker-" + id + ".scope"});
  make({.pid = 11, .user = 1001, .cgroup = theirs + "/docker-" + id + ".scope"});
  const auto jobs = jobs_of({10, 11});
  EXPECT_EQ(jobs[0], "tree:10@100");
  EXPECT_TRUE(jobs[1].starts_with("container:"));
}

TEST_F(NamedByOthers, ACopiedSlurmPathIsNoSlurmJob) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  cgroup("/system.slice/slurmstepd.scope/job_7/step_0", 0);
  cgroup(theirs, 1001);
  cgroup(theirs + "/slurm/job_7", 1001);
  make({.pid = 10, .user = 1000, .cgroup = "/system.slice/slurmstepd.scope/job_7/step_0"});
  make({.pid = 20, .user = 1001, .cgroup = theirs + "/slurm/job_7"});
  EXPECT_EQ(jobs_of({10, 20}), (std::vector<std::string>{"slurm:7", "tree:20@100"}));
}

// One that is idle does not fire alone.
TEST_F(NamedByOthers, AllContainersOfAPodAreOneJob) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  const std::string pod = "/kubepods.slice/kubepods-pod1_2.slice";
  const std::string other = std::string(64, 'b');
  for (const std::string& one : {id, other}) cgroup(pod + "/cri-containerd-" + one + ".scope", 0);
  make({.pid = 10, .user = 0, .cgroup = pod + "/cri-containerd-" + id + ".scope"});
  make({.pid = 11, .user = 1000, .cgroup = pod + "/cri-containerd-" + other + ".scope"});
  EXPECT_EQ(jobs_of({10, 11}), std::vector<std::string>(2, "pod:1-2"));
}

TEST_F(NamedByOthers, ACopiedPodJoinsNobody) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  const std::string pod = "/kubepods.slice/kubepods-pod1234.slice/cri-containerd-" + id + ".scope";
  cgroup(pod, 0);
  cgroup(theirs, 1001);
  cgroup(theirs + pod, 1001);
  make({.pid = 10, .user = 0, .cgroup = pod});
  make({.pid = 11, .user = 1000, .cgroup = pod});
  make({.pid = 20, .user = 1001, .cgroup = theirs + pod});
  const auto jobs = jobs_of({10, 11, 20});
  EXPECT_EQ(jobs[0], "pod:1234");
  EXPECT_EQ(jobs[1], jobs[0]);
  EXPECT_EQ(jobs[2], "pod:" + user_name(1001) + "/1234");
}

TEST_F(NamedByOthers, AContainerInASlurmJobIsTheJobs) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  const std::string job = "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0";
  cgroup(job, 0);
  cgroup(job + "/libpod-" + id + ".scope", 1000);
  make({.pid = 10, .user = 1000, .cgroup = job + "/libpod-" + id + ".scope"});
  make({.pid = 11, .user = 1000, .cgroup = job});
  EXPECT_EQ(jobs_of({10, 11}), std::vector<std::string>(2, "slurm:7"));
}

// On a hybrid machine a user's unified cgroup may have any name: the one that slurmd made counts.
TEST_F(NamedByOthers, ACopiedSlurmPathHidesNoJob) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  std::ofstream(root.proc + "/self/mountinfo", std::ios::app)
      << "42 31 0:39 / " << root.proc << "/v1 rw - cgroup cgroup rw,freezer\n";
  cgroup(theirs, 1001);
  cgroup(theirs + "/slurm/job_7", 1001);
  fs::create_directories(root.proc + "/v1/slurm/uid_1001/job_8/step_0");
  make({.pid = 10, .user = 1001, .cgroup = "0::" + theirs + "/slurm/job_7\n3:freezer:/slurm/uid_1001/job_8/step_0"});
  EXPECT_EQ(jobs_of({10}), (std::vector<std::string>{"slurm:8"}));
}

TEST_F(NamedByOthers, AJobThatIsNamedByItsSluidHasTheNumberThatSlurmstepdShows) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  const std::string path = "/system.slice/slurmstepd.scope/s8FXKTA79XAR00/step_batch";
  cgroup(path, 0);
  make({.pid = 9, .name = "slurmstepd", .user = 0, .cgroup = path, .arguments = {"slurmstepd: [4711.batch]"}});
  make({.pid = 10, .parent = 9, .name = "bash", .user = 1000, .cgroup = path});
  make({.pid = 11, .parent = 10, .user = 1000, .cgroup = path});
  make({.pid = 12, .parent = 1, .user = 1000, .cgroup = path});  // its parent has ended
  EXPECT_EQ(jobs_of({11, 12}), std::vector<std::string>(2, "slurm:4711"));
  // A process of the user's may have any name and title.
  make({.pid = 9, .name = "slurmstepd", .user = 1000, .cgroup = path, .arguments = {"slurmstepd: [4711.batch]"}});
  EXPECT_EQ(jobs_of({11, 12}), std::vector<std::string>(2, "slurm:s8FXKTA79XAR00"));
}

TEST_F(NamedByOthers, TheSluidOfAnAllocationNamesTheJob) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  const std::string path = "/system.slice/slurmstepd.scope/s8FXKTA79XAR00/step_batch";
  cgroup(path, 0);
  make({.pid = 9, .name = "slurmstepd", .user = 0, .cgroup = path, .arguments = {"slurmstepd: [4711.batch]"}});
  make({.pid = 10, .parent = 9, .user = 1000, .cgroup = path});
  make({.pid = 11, .parent = 1, .user = 1000, .cgroup = path});
  GpuUsers users(root);
  users.set_sluids({{"s8FXKTA79XAR00", 22}, {"sOTHER", 23}});
  const auto uses = users.look(snapshot({{process(10), process(11)}}), UserDetail::jobs);
  for (const GpuProcess& one : holders(uses[0])) EXPECT_EQ(one.job, "slurm:22");
  EXPECT_EQ(holders(uses[0]).size(), 2U);
}

// proctrack/pgid and proctrack/linuxproc: the cgroup names no job.
TEST_F(GpuUsersTest, WithoutCgroupsOfSlurmsAProcessIsOfTheJobOfTheSlurmstepdAboveIt) {
  make({.pid = 8, .name = "slurmd", .user = 0});
  make({.pid = 9, .parent = 8, .name = "slurmstepd", .user = 0, .arguments = {"slurmstepd: [4711.batch]"}});
  make({.pid = 10, .parent = 9, .name = "slurm_script"});
  make({.pid = 11, .parent = 10, .session = 11, .cgroup = "/docker/" + std::string(64, 'a')});
  make({.pid = 12, .parent = 11});
  make({.pid = 19, .parent = 8, .name = "slurmstepd", .user = 0, .arguments = {"slurmstepd: [4712.0]"}});
  make({.pid = 20, .parent = 19});
  GpuUsers users(root);
  const Snapshot seen = snapshot({{process(10), process(11), process(12), process(20)}});
  std::vector<std::string> jobs;
  for (const GpuProcess& one : holders(users.look(seen, UserDetail::jobs)[0])) jobs.push_back(one.job);
  EXPECT_EQ(jobs, (std::vector<std::string>{"slurm:4711", "slurm:4711", "slurm:4711", "slurm:4712"}));
  // A program of root's that a user started under that name.
  fs::create_symlink("/usr/bin/sudo", root.proc + "/9/exe");
  EXPECT_EQ(job_of(12), "tree:10@100");
  fs::remove(root.proc + "/9/exe");
  for (const char* program : {"/usr/sbin/slurmstepd (deleted)", "/usr/sbin/slurmstepd-wlm"}) {
    fs::create_symlink(program, root.proc + "/9/exe");
    EXPECT_EQ(job_of(12), "slurm:4711") << program;
    fs::remove(root.proc + "/9/exe");
  }
}

TEST_F(NamedByOthers, WhereNobodyCanSeeWhoMadeItUsersAreNotJoined) {
  const std::string docker = "/system.slice/docker-" + id + ".scope";  // there is no such folder
  make({.pid = 10, .user = 1000, .cgroup = docker});
  make({.pid = 11, .user = 1000, .cgroup = docker});
  make({.pid = 20, .user = 1001, .cgroup = docker});
  EXPECT_EQ(jobs_of({10, 11, 20}), (std::vector<std::string>{"container:" + short_id, "container:" + short_id,
                                                             "container:" + short_id + "-2"}));
}

TEST_F(NamedByOthers, ContainersWithTheSameDigitsAreToldApart) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  const std::string other = short_id + std::string(52, 'b');
  cgroup("/docker/" + id, 0);
  cgroup("/docker/" + other, 0);
  make({.pid = 10, .cgroup = "/docker/" + id});
  make({.pid = 11, .cgroup = "/docker/" + other});
  EXPECT_EQ(jobs_of({10, 11}), (std::vector<std::string>{"container:" + short_id, "container:" + short_id + "-2"}));
}

TEST_F(GpuUsersTest, EachJobBehindSuIsAJobOfItsOwn) {
  make({.pid = 10, .name = "sshd", .user = 0});
  make({.pid = 11, .parent = 10, .name = "bash", .user = 0, .session = 11, .terminal = kTerminal});
  for (const std::string name : {"su", "sudo", "login"}) {
    make({.pid = 12, .parent = 11, .name = name, .user = 0, .session = 11, .terminal = kTerminal});
    make({.pid = 13, .parent = 12, .name = "bash", .session = 11, .terminal = kTerminal, .arguments = {"-bash"}});
    make({.pid = 14, .parent = 13, .session = 11, .terminal = kTerminal});
    make({.pid = 15, .parent = 14, .session = 11, .group = 14, .terminal = kTerminal});
    make({.pid = 16, .parent = 13, .session = 11, .terminal = kTerminal});
    EXPECT_EQ(job_of(14), "tree:14@100") << name;
    EXPECT_EQ(job_of(15), "tree:14@100") << name;
    EXPECT_EQ(job_of(16), "tree:16@100") << name;
  }
  // A launcher that only has such a name, and does not run as root: its workers belong together.
  make({.pid = 12, .parent = 11, .name = "su", .user = 1000, .session = 11, .terminal = kTerminal});
  EXPECT_EQ(job_of(14), job_of(16));
}

}  // namespace
}  // namespace lull
