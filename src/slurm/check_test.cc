// What `lull slurm check` says of a node: each thing that can be missing, missing once.

#include "slurm/check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using State = CheckItem::State;

class CheckTest : public ::testing::Test {
 protected:
  CheckTest() {
    std::string name = (fs::temp_directory_path() / "lull-check-XXXXXX").string();
    folder = ::mkdtemp(name.data());
    script("prolog", "#!/bin/sh\n/usr/bin/lull slurm prolog\n");
    script("epilog", "#!/bin/sh\n/usr/bin/lull slurm epilog\n");
    fs::create_directory(folder + "/run");
    fs::permissions(folder + "/run", fs::perms(0755));
    scontrol = done(configuration(folder + "/prolog", "Alloc"));
  }
  ~CheckTest() override { fs::remove_all(folder); }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root's files are believed";
  }
  void script(const std::string& name, const std::string& text, mode_t mode = 0755) const {
    std::ofstream(folder + "/" + name) << text;
    ::chmod((folder + "/" + name).c_str(), mode);
  }
  static std::string at(WallTime time) {
    const std::time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
    std::tm parts{};
    ::localtime_r(&seconds, &parts);
    std::array<char, 32> text{};
    (void)std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    return text.data();
  }
  std::string configuration(const std::string& prolog, const std::string& flags, Duration behind = 0s) const {
    return fmt::format(
        "Configuration data as of {}\nEpilog                  = {}/epilog\nEpilogMsgTime           = 2000 usec\n"
        "Prolog                  = {}\nPrologEpilogTimeout     = 65534\nPrologFlags             = {}\n",
        at(clock.wall() - std::chrono::duration_cast<Duration>(behind)), folder, prolog, flags);
  }
  void give(Allocation job) const {
    job.uid = 1000;
    job.node = "n1";
    ASSERT_TRUE(write_allocation(folder + "/run", job));
  }
  static HelperResult done(std::string output = "", int code = 0) {
    HelperResult result;
    result.status = ExitStatus{.code = code};
    result.output = std::move(output);
    if (code != 0) result.trouble = fmt::format("exit status {}", code);
    return result;
  }
  std::map<std::string, CheckItem> check(bool root = true) {
    std::map<std::string, CheckItem> found;
    commands.clear();
    NodeCheck checking(
        [&](const Command& command, Duration limit, const Helpers::Done& then) {
          EXPECT_LE(limit, 5s);
          commands.push_back(command);
          then(command[0] == "scontrol" ? scontrol
               : command[0] == "getent" ? getent
               : command[0] == "slurmd" ? slurmd
               : command[0] == "squeue" ? squeue
                                        : srun);
        },
        clock, folder + "/run", root, counted,
        [&](const std::vector<CheckItem>& items) {
          all = items;
          for (const CheckItem& item : items) found[item.name] = item;
        },
        [this] { return facts; });
    checking.start();
    EXPECT_EQ(found.size(), 10U);
    for (const auto& [name, item] : found) {
      EXPECT_FALSE(item.text.empty()) << name;
      EXPECT_TRUE(item.state != State::missing || !item.fix.empty()) << name;
      EXPECT_TRUE((item.state != State::ok && item.state != State::untried) || item.fix.empty()) << name;
    }
    return found;
  }

  std::string folder;
  SystemClock clock;
  HelperResult scontrol;
  HelperResult getent = done("ada:x:1000:1000::/home/ada:/bin/sh\n");
  HelperResult srun = done();
  HelperResult slurmd = done("slurmd: Gres Name=gpu Type=(null) Count=1 Index=0 ID=7 File=/dev/null (null)\n");
  HelperResult squeue = done("22 RUNNING\n23 RUNNING\n");
  GpuOrder counted = {GpuFile{0}};
  GresFacts facts{.changed = WallTime(1s), .slurmd = SlurmdStart{WallTime(2s), 2}};
  std::vector<Command> commands;
  std::vector<CheckItem> all;
};

TEST_F(CheckTest, ANodeThatHasAllIsFine) {
  give({.job = 22, .user = "ada", .nodes = "n[1-2]", .restarts = 0});
  give({.job = 23, .user = "ada", .nodes = "n1", .restarts = 0});
  for (const auto& [name, item] : check())
    EXPECT_EQ(item.state, name == "gpu-order" ? State::untried : State::ok) << name << ": " << item.text;
  EXPECT_EQ(status_of(all), 0);
  // One user is looked up once, and the job that asks most of srun is tried.
  EXPECT_EQ(commands.size(), 5U);
  EXPECT_EQ(commands[4], ask_command(22, "ada", 2, {"true"}));
}

TEST_F(CheckTest, WithoutAJobThereIsNothingToTry) {
  auto found = check();
  EXPECT_EQ(found["users"].state, State::untried);
  EXPECT_EQ(found["srun"].state, State::untried);
  EXPECT_EQ(status_of(all), 0);
}

TEST_F(CheckTest, WhatSlurmConfLacks) {
  struct Case {
    std::string prolog;
    std::string flags;
    std::string item;
    std::string said;
  };
  script("other", "#!/bin/sh\nlogger job\n");
  script("asleep", "#!/bin/sh\nlull slurm prolog\n", 0644);
  for (const Case& one : {Case{"(null)", "Alloc", "prolog", "slurm.conf has no Prolog"},
                          Case{"/nonexistent/prolog", "Alloc", "prolog", "no such file"},
                          Case{folder + "/other", "Alloc", "prolog", "does not mention `lull slurm prolog`"},
                          Case{folder + "/asleep", "Alloc", "prolog", "cannot be run"},
                          Case{folder + "/prolog", "(null)", "prolog-flags", "no PrologFlags"},
                          Case{folder + "/prolog", "NoHold", "prolog-flags", "has no Alloc"}}) {
    scontrol = done(configuration(one.prolog, one.flags));
    auto found = check();
    EXPECT_EQ(found[one.item].state, State::missing) << one.said;
    EXPECT_NE(found[one.item].text.find(one.said), std::string::npos) << found[one.item].text;
    EXPECT_EQ(status_of(all), 1);
    EXPECT_EQ(std::ranges::count(all, State::missing, &CheckItem::state), 1);
  }
}

TEST_F(CheckTest, AFolderOfScriptsAndNumberedScriptsCount) {
  fs::create_directory(folder + "/prolog.d");
  script("prolog.d/10-site", "#!/bin/sh\ntrue\n");
  script("prolog.d/50-lull", "#!/bin/sh\nlull slurm prolog\n");
  scontrol = done(configuration(folder + "/prolog.d/*", "Contain"));
  EXPECT_EQ(check()["prolog"].state, State::ok);
  std::string text = configuration("(null)", "X11,Contain");
  text += fmt::format("Prolog[0]               = {0}/prolog.d/10-site\nProlog[1]               = {0}/prolog\n", folder);
  scontrol = done(text);
  EXPECT_EQ(check()["prolog"].state, State::ok);
}

TEST_F(CheckTest, ClocksThatDiffer) {
  for (const Duration behind : {Duration(60s), Duration(-60s)}) {
    scontrol = done(configuration(folder + "/prolog", "Alloc", behind));
    auto found = check();
    EXPECT_EQ(found["clock"].state, State::missing);
    EXPECT_NE(found["clock"].text.find(behind > 0s ? "ahead of" : "behind"), std::string::npos) << found["clock"].text;
  }
  scontrol = done("Prolog = x\n");
  EXPECT_EQ(check()["clock"].state, State::unknown);
}

TEST_F(CheckTest, AControllerThatIsSilentCannotBeTold) {
  scontrol = {};
  scontrol.timed_out = true;
  scontrol.trouble = "took longer than 5s";
  auto found = check();
  for (const char* name : {"prolog", "epilog", "prolog-flags", "clock"})
    EXPECT_EQ(found[name].state, State::unknown) << name;
  EXPECT_EQ(status_of(all), 125);
}

TEST_F(CheckTest, AFolderThatIsNotRootsAlone) {
  fs::permissions(folder + "/run", fs::perms(0777));
  EXPECT_EQ(check()["folder"].state, State::missing);
  fs::permissions(folder + "/run", fs::perms(0755));
  std::ofstream(folder + "/run/22") << "job = nonsense\n";
  EXPECT_EQ(check()["folder"].state, State::missing);
  fs::remove_all(folder + "/run");
  auto found = check();
  EXPECT_EQ(found["folder"].state, State::missing);
  EXPECT_NE(found["folder"].fix.find("install -d"), std::string::npos);
}

TEST_F(CheckTest, WhichGpusSlurmMeansHasToBeKnown) {
  give({.job = 22, .user = "ada", .gpus = {0}, .nodes = "n1", .restarts = 0, .start = WallTime(3s)});
  auto found = check();
  EXPECT_EQ(found["gpus"].state, State::missing) << "of /dev/null nothing is known";
  EXPECT_NE(found["gpus"].text.find("job 22 is not judged"), std::string::npos) << found["gpus"].text;
  facts.changed = WallTime(3s);
  fs::remove(folder + "/run/gpus");
  EXPECT_NE(check()["gpus"].text.find("restart slurmd"), std::string::npos);
  slurmd = done("slurmd: Gres Name=gpu Type=(null) Count=1 Index=0 ID=7 File=(null)\n");
  EXPECT_NE(check()["gpus"].text.find("names no File"), std::string::npos);
  EXPECT_EQ(status_of(all), 1);
  slurmd = {};
  slurmd.trouble = "slurmd: not found";
  EXPECT_EQ(check()["gpus"].state, State::unknown);
}

// Device files of a test, by their numbers. Root alone can make them.
TEST_F(CheckTest, SaysWhetherExportersCountGpusAsSlurmDoes) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make device files";
  for (unsigned i = 0; i < 2; ++i)
    if (::mknod(fmt::format("{}/nvidia{}", folder, i).c_str(), S_IFCHR | 0600, makedev(195, i)) != 0)
      GTEST_SKIP() << "no device files here";
  slurmd = done(
      fmt::format("slurmd: Gres Name=gpu Type=(null) Count=2 Index=0 ID=7 File={0}/nvidia1,{0}/nvidia0\n", folder));
  counted = {GpuFile{1}, GpuFile{0}};
  EXPECT_EQ(check()["gpu-order"].state, State::ok);
  for (const GpuOrder& other : {GpuOrder{GpuFile{0}, GpuFile{1}}, GpuOrder{GpuFile{1}},
                                GpuOrder{GpuFile{1}, GpuFile{0}, GpuFile{2}}, GpuOrder{GpuFile{1}, std::nullopt}}) {
    counted = other;
    EXPECT_EQ(check()["gpu-order"].state, State::differs);
    EXPECT_EQ(status_of(all), 0) << "watchers on nodes go by the files";
  }
  counted.clear();
  EXPECT_EQ(check()["gpu-order"].state, State::untried);
  counted = {GpuFile{1}, GpuFile{0}};
  slurmd = done("slurmd: Gres Name=gpu Type=(null) Count=1 Index=0 ID=7 File=(null)\n");
  EXPECT_EQ(check()["gpu-order"].state, State::untried);
}

TEST_F(CheckTest, AFileThatAnEpilogLeftBehind) {
  give({.job = 22, .user = "ada", .nodes = "n1", .restarts = 0});
  give({.job = 23, .user = "ada", .nodes = "n1", .restarts = 0});
  squeue = done("22 RUNNING\n");
  auto found = check();
  EXPECT_EQ(found["stale"].state, State::missing);
  EXPECT_NE(found["stale"].text.find("job 23"), std::string::npos);
  squeue = done("22 RUNNING\n23 COMPLETED\n");
  EXPECT_EQ(check()["stale"].state, State::missing);
  squeue = done("22 COMPLETING\n23 SUSPENDED\n");
  EXPECT_EQ(check()["stale"].state, State::ok);
  squeue = done("slurm_load_jobs error: Unable to contact slurm controller", 1);
  EXPECT_EQ(check()["stale"].state, State::unknown);
  squeue = done("slurm_load_jobs error: Invalid job id specified", 1);
  EXPECT_EQ(check()["stale"].state, State::missing);
}

TEST_F(CheckTest, AUserWhoIsNotKnownHere) {
  give({.job = 22, .user = "ada", .nodes = "n1", .restarts = 0});
  getent = done("", 2);
  EXPECT_NE(check()["users"].text.find("ada of job 22 is not known"), std::string::npos);
  EXPECT_EQ(status_of(all), 1);
  getent = done("ada:x:1001:1001::/home/ada:/bin/sh\n");
  EXPECT_NE(check()["users"].text.find("another uid"), std::string::npos);
  getent = {};
  getent.trouble = "took longer than 5s";
  EXPECT_EQ(check()["users"].state, State::unknown);
  give({.job = 23, .nodes = "n1", .restarts = 0});
  EXPECT_EQ(check()["users"].state, State::missing) << "a job whose user Slurm does not name";
}

TEST_F(CheckTest, AnSrunThatDoesNotWork) {
  give({.job = 22, .user = "ada", .nodes = "n[1-2]", .restarts = 0});
  srun = done("srun: error: Unable to create step for job 22: Step limit reached for this job\nsrun: x\n", 1);
  auto found = check();
  EXPECT_EQ(found["srun"].state, State::missing);
  EXPECT_NE(found["srun"].text.find("Step limit reached"), std::string::npos);
  EXPECT_EQ(found["srun"].text.find('\n'), std::string::npos);
  srun = done("srun: error: Unable to contact slurm controller (connect failure)", 1);
  EXPECT_EQ(check()["srun"].state, State::unknown);
  EXPECT_EQ(check(false)["srun"].state, State::unknown) << "only root can try it";
  EXPECT_EQ(status_of(all), 125);
}

}  // namespace
}  // namespace lull::slurm
