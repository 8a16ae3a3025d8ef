#include "sense/openers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "sense/file_tree_test.h"

namespace lull {
namespace {

using Pids = std::vector<pid_t>;

// One whole pass, however long it takes.
Openers find_openers(const Root& root, const Inventory& inventory, const std::vector<std::string>& ignore = {}) {
  const SystemClock clock;
  return OpenerScan(root, ignore, clock).look(inventory, std::chrono::hours(1));
}

// Two GPUs and a MIG device; device files are plain files, as in a simulation.
class OpenersOf : public testing::Test {
 protected:
  void SetUp() override {
    inventory_.devices.resize(3);
    inventory_.devices[0].minor = 0;
    inventory_.devices[1].minor = 1;
    inventory_.devices[2].kind = DeviceKind::mig;
    tree_.write("dev/nvidia0", "");
    tree_.write("dev/nvidia1", "");
    tree_.write("dev/other", "");
  }
  void process(pid_t pid, const std::string& name, const std::vector<std::string>& files,
               const std::string& flags = "4194560", const std::string& state = "S") {
    // Without a link to its executable: the name that the process bears is all there is.
    const std::string folder = "proc/" + std::to_string(pid);
    tree_.write(folder + "/stat", std::to_string(pid) + " (" + name.substr(0, 15) + ") " + state + " 1 1 1 0 -1 " +
                                      flags + " 1 2 3 4 5 6 7 8 20 0 1 0 5 1 1");
    tree_.write(folder + "/comm", name.substr(0, 15) + "\n");
    tree_.write(folder + "/cmdline", std::string("/usr/bin/") + name + '\0');
    std::filesystem::create_directories(tree_.at(folder + "/fd"));
    for (std::size_t i = 0; i < files.size(); ++i)
      tree_.link(folder + "/fd/" + std::to_string(i), tree_.at("dev/" + files[i]));
  }
  Openers find(const std::vector<std::string>& ignore = {}) { return find_openers(tree_.root(), inventory_, ignore); }

  TestTree tree_;
  Inventory inventory_;
};

TEST_F(OpenersOf, EachHolderOnce) {
  process(10, "python3", {"nvidia0", "other", "nvidia0"});
  process(11, "worker", {"nvidia0", "nvidia1"});
  process(12, "shell", {"other", "gone"});
  const Openers openers = find();
  EXPECT_EQ(openers.holders[0], (Pids{10, 11}));
  EXPECT_EQ(openers.holders[1], (Pids{11}));
  EXPECT_EQ(openers.absence[0], Absence::none);
  EXPECT_EQ(openers.absence[2], Absence::not_supported) << "a MIG device has no file of its own";
}

TEST_F(OpenersOf, ACardWithoutANumberIsWhateverFileIsNobodyElses) {
  inventory_.devices[1].minor.reset();
  process(10, "python3", {"nvidia0"});
  process(11, "python3", {"nvidia1"});
  const FileHolders found = file_holders(inventory_, std::vector<std::size_t>{0, 1}, tree_.root());
  EXPECT_EQ(found.holders[0], Pids{10});
  EXPECT_EQ(found.holders[1], Pids{11});
}

// An AMD GPU and an Intel GPU: render nodes, and the one file of all AMD GPUs.
class RenderNodes : public OpenersOf {
 protected:
  void SetUp() override {
    inventory_.devices.resize(2);
    inventory_.devices[0].vendor = Vendor::amd;
    inventory_.devices[0].render_minor = 128;
    inventory_.devices[1].vendor = Vendor::intel;
    inventory_.devices[1].render_minor = 129;
    for (const char* file : {"dri/renderD128", "dri/renderD129", "dri/card0", "kfd", "nvidia0"})
      tree_.write(std::string("dev/") + file, "");
  }
};

TEST_F(RenderNodes, AreTheFilesOfAmdAndIntel) {
  process(10, "python3", {"dri/renderD128", "kfd"});
  process(11, "python3", {"kfd", "nvidia0"});
  process(12, "python3", {"dri/renderD129"});
  const Openers openers = find();
  EXPECT_EQ(openers.holders[0], Pids{10}) << "/dev/kfd tells nothing of a single GPU";
  EXPECT_EQ(openers.holders[1], Pids{12});
  const FileHolders found = file_holders(inventory_, std::vector<std::size_t>{0, 1}, tree_.root());
  EXPECT_EQ(found.holders[0], Pids{10});
  EXPECT_EQ(found.holders[1], Pids{12});
}

TEST_F(RenderNodes, AndKfdIsAFileOfEveryAmdGpu) {
  const std::string dev = tree_.at("dev");
  EXPECT_EQ(gpu_files(inventory_.devices[0], tree_.root()),
            (std::vector<GpuFile>{{dev + "/dri/renderD128"}, {dev + "/kfd", true}}));
  EXPECT_EQ(gpu_files(inventory_.devices[1], tree_.root()), (std::vector<GpuFile>{{dev + "/dri/renderD129"}}));
}

TEST_F(RenderNodes, OfAGpuWithoutANumberAreThoseOfNobodyElse) {
  inventory_.devices[1].render_minor.reset();
  process(10, "python3", {"dri/renderD128"});
  process(11, "python3", {"dri/renderD129"});
  EXPECT_EQ(file_holders(inventory_, std::vector<std::size_t>{1}, tree_.root()).holders[0], Pids{11});
  EXPECT_TRUE(open_to_us(inventory_, 1, tree_.root()));
  std::filesystem::remove(tree_.at("dev/dri/renderD129"));
  EXPECT_FALSE(open_to_us(inventory_, 1, tree_.root()));
  EXPECT_TRUE(open_to_us(inventory_, 0, tree_.root()));
}

TEST_F(RenderNodes, MonitorsAndCompositorsDoNotCount) {
  pid_t pid = 10;
  for (const char* program : {"amd-smi", "amdgpu_top", "intel_gpu_top", "xpu-smi", "xpumd", "nvtop", "kwin_wayland",
                              "sway", "systemd-logind"}) {
    process(pid, "x", {"dri/renderD128", "dri/renderD129"});
    tree_.link("proc/" + std::to_string(pid++) + "/exe", std::string("/usr/bin/") + program);
  }
  EXPECT_TRUE(find().holders[0].empty());
  EXPECT_TRUE(find().holders[1].empty());
}

TEST_F(RenderNodes, ProveAUserByOneOfThem) {
  tree_.write("sys/class/drm/renderD128/device/drm/card0/dev", "226:0\n");
  EXPECT_EQ(drm_card_of(128, tree_.root()), 0U);
  EXPECT_EQ(drm_card_of(129, tree_.root()), std::nullopt);
  EXPECT_EQ(proof_files(inventory_.devices[0], tree_.root()).size(), 3U) << "its node, its card, /dev/kfd";
  EXPECT_EQ(proof_files(inventory_.devices[1], tree_.root()).size(), 1U);
  inventory_.devices[1].render_minor.reset();
  EXPECT_TRUE(proof_files(inventory_.devices[1], tree_.root()).empty());
}

TEST_F(OpenersOf, IgnoredByExactNameOnly) {
  process(10, "nvidia-smi", {"nvidia0"});
  process(11, "nvidia-smi2", {"nvidia0"});
  process(12, "n", {"nvidia0"});
  process(13, "nvidia-persistenced", {"nvidia0"});
  process(14, "nvidia-persiste", {"nvidia0"});
  EXPECT_EQ(find({"nvidia-smi", "nvidia-persistenced"}).holders[0], (Pids{11, 12, 14}));
}

TEST_F(OpenersOf, KnownByTheirExecutableAndNotByWhatTheyCallThemselves) {
  const auto runs = [&](pid_t pid, const std::string& program) {
    tree_.link("proc/" + std::to_string(pid) + "/exe", program);
  };
  process(10, "nvtop", {"nvidia0"});
  runs(10, "/usr/bin/python3.11");  // renamed itself
  process(11, "MainThread", {"nvidia0"});
  runs(11, "/usr/bin/nv-hostengine");
  process(12, "nvidia-persistenced", {"nvidia0"});
  runs(12, "/usr/bin/nvidia-persistenced (deleted)");  // the driver was updated
  process(13, "X", {"nvidia0"});
  runs(13, "/usr/lib/xorg/Xorg");
  process(14, "Xorg", {"nvidia0"});
  runs(14, "/home/mallory/Xorg2");
  process(15, "exporter", {"nvidia0"});
  runs(15, "/opt/site/exporter");
  EXPECT_EQ(find().holders[0], (Pids{10, 14, 15}));
  EXPECT_EQ(find({"exporter"}).holders[0], (Pids{10, 14}));
}

TEST_F(OpenersOf, CalledByItsExecutableItsNameOrItsScript) {
  process(10, "mygpustat", {});
  tree_.link("proc/10/exe", "/usr/bin/python3.11");
  tree_.write("proc/10/cmdline", std::string("/usr/bin/python3\0-S\0/opt/stat.py\0nvidia-smi\0", 43));
  const auto called = [&](pid_t pid, const std::string& name) {
    return is_called(pid, std::vector<std::string>{"x", name}, tree_.root());
  };
  EXPECT_TRUE(called(10, "mygpustat"));
  EXPECT_TRUE(called(10, "python3.11"));
  EXPECT_TRUE(called(10, "stat.py"));
  for (const char* other : {"python", "mygpu", "nvidia-smi", "stat", "-S", ""})
    EXPECT_FALSE(called(10, other)) << other;
  process(11, "nvidia-persistenced", {});
  EXPECT_TRUE(called(11, "nvidia-persistenced")) << "the kernel keeps 15 characters";
  process(12, "train", {});
  tree_.link("proc/12/exe", "/usr/bin/train");
  tree_.write("proc/12/cmdline", std::string("train\0nvidia-smi\0", 17));
  EXPECT_FALSE(called(12, "nvidia-smi")) << "it is no interpreter";
  EXPECT_FALSE(called(0, "x"));
  EXPECT_FALSE(called(99, "x"));
}

TEST_F(OpenersOf, ThoseThatOnlyLookNeverCount) {
  pid_t pid = 20;
  for (const std::string_view name : kIgnoredOpeners) process(pid++, std::string(name), {"nvidia0", "nvidia1"});
  process(pid, "python3", {"nvidia0"});
  const Openers openers = find();
  EXPECT_EQ(openers.holders[0], (Pids{pid}));
  EXPECT_TRUE(openers.holders[1].empty());
}

// lull itself may be linked under another name, and its sensor calls itself something else.
TEST_F(OpenersOf, LullOnlyLooksButASimulatedLoadStandsForAJob) {
  const auto lull = [&](pid_t pid, const std::string& name, const std::vector<std::string>& words) {
    process(pid, name, {"nvidia0"});
    tree_.link("proc/" + std::to_string(pid) + "/exe", "/usr/bin/lull");
    std::string line;
    for (const std::string& word : words) line += word + '\0';
    tree_.write("proc/" + std::to_string(pid) + "/cmdline", line);
  };
  lull(10, "lull-sensor", {"lull", "run", "--", "sim", "load"});
  lull(11, "gpuselect", {"gpuselect", "-c", "1"});
  lull(12, "lull", {"lull", "sim", "load", "--gpu", "0"});
  lull(13, "lull", {"lull"});
  lull(14, "python", {"python train.py --epochs 90"});  // sim load --as …
  EXPECT_EQ(find().holders[0], (Pids{12, 14}));
}

TEST_F(OpenersOf, OurselvesAreLeftOut) {
  process(::getpid(), "lull", {"nvidia0"});
  process(11, "worker", {"nvidia0"});
  EXPECT_EQ(find().holders[0], (Pids{11}));
}

TEST_F(OpenersOf, AMissingDeviceFileIsUnknownNotUnused) {
  std::filesystem::remove(tree_.at("dev/nvidia1"));
  inventory_.devices[0].minor.reset();
  const Openers openers = find();
  EXPECT_EQ(openers.absence[0], Absence::failed);
  EXPECT_EQ(openers.absence[1], Absence::failed);
}

TEST_F(OpenersOf, CountsGoIntoTheReadings) {
  process(10, "python3", {"nvidia0"});
  const Openers openers = find();
  EXPECT_EQ(openers.holders[0].size(), 1U);
  EXPECT_EQ(openers.absence[0], Absence::none);
  EXPECT_EQ(openers.holders[1].size(), 0U);
  EXPECT_EQ(openers.absence[1], Absence::none);
  EXPECT_EQ(openers.absence[2], Absence::not_supported);
}

// What may not be looked at could hold any GPU. Root may look everywhere, so ask as somebody else.
TEST_F(OpenersOf, AProcessWeMayNotLookAtMakesTheCountUnknown) {
  process(10, "secret", {"nvidia0"});
  process(11, "kworker/0:1", {}, "69238880");
  process(12, "zombie", {}, "4228364", "Z");
  const auto allow = [&](const char* pid, std::filesystem::perms who) {
    std::filesystem::permissions(tree_.at(std::string("proc/") + pid + "/fd"), who);
  };
  for (const char* pid : {"10", "11", "12"}) allow(pid, std::filesystem::perms::none);
  std::filesystem::permissions(tree_.path(), std::filesystem::perms::all);
  const auto as_nobody = [&](auto&& check) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(9);
      ::_exit(check() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(as_nobody([&] {
              const Openers openers = find();
              return openers.absence[0] == Absence::no_permission && openers.hidden == Pids{10} &&
                     openers.holders[0].empty();
            }),
            0);
  allow("10", std::filesystem::perms::owner_all);  // who is not root removes only what can be read
  std::filesystem::remove_all(tree_.at("proc/10"));
  EXPECT_EQ(as_nobody([&] { return find().absence[0] == Absence::none; }), 0)
      << "kernel threads and zombies hold no files";
  for (const char* pid : {"11", "12"}) allow(pid, std::filesystem::perms::owner_all);
}

// Every look at this clock takes a millisecond.
class SlowClock : public Clock {
 public:
  Instant now() const override { return now_ += std::chrono::milliseconds(1); }
  WallTime wall() const override { return {}; }
  void advance(Duration by) { now_ += by; }

 private:
  mutable Instant now_{};
};

TEST_F(OpenersOf, APassThatTakesLongGoesOnAtTheNextLook) {
  for (pid_t pid = 10; pid < 40; ++pid) process(pid, "server", {"other", pid == 39 ? "nvidia0" : "other"});
  const SlowClock clock;
  OpenerScan scan(tree_.root(), {}, clock);
  int looks = 1;
  Openers openers = scan.look(inventory_, std::chrono::milliseconds(8));
  EXPECT_EQ(openers.absence[0], Absence::looking);
  EXPECT_EQ(openers.absence[2], Absence::not_supported);
  for (; openers.absence[0] == Absence::looking && looks < 30; ++looks)
    openers = scan.look(inventory_, std::chrono::milliseconds(8));
  EXPECT_EQ(openers.holders[0], (Pids{39}));
  EXPECT_EQ(openers.absence[1], Absence::none);
  EXPECT_GT(looks, 2);
  // While the next pass is under way, the last one is good.
  EXPECT_EQ(scan.look(inventory_, std::chrono::milliseconds(8)).holders[0], (Pids{39}));
}

TEST_F(OpenersOf, TheLastPassIsNotGoodForEver) {
  for (pid_t pid = 10; pid < 40; ++pid) process(pid, "server", {"nvidia0"});
  SlowClock clock;
  OpenerScan scan(tree_.root(), {}, clock);
  EXPECT_EQ(scan.look(inventory_, std::chrono::seconds(5)).holders[0].size(), 30U);
  clock.advance(2 * OpenerScan::kOldestPass);
  EXPECT_EQ(scan.look(inventory_, std::chrono::milliseconds(8)).absence[0], Absence::looking);
}

TEST_F(OpenersOf, WhoSleptAllTheTimeIsNotLookedAtAgain) {
  const auto ran = [&](const std::string& state, int times) {
    tree_.write("proc/10/task/10/status",
                "Name:\tserver\nState:\t" + state + "\nvoluntary_ctxt_switches:\t" + std::to_string(times) + "\n");
  };
  process(10, "server", {"nvidia0", "other", "other", "other", "other", "other", "other", "other"});
  ran("S (sleeping)", 7);
  const SystemClock clock;
  OpenerScan scan(tree_.root(), {}, clock);
  const auto holders = [&](std::size_t gpu) { return scan.look(inventory_, std::chrono::hours(1)).holders[gpu]; };
  EXPECT_EQ(holders(1), Pids{});
  EXPECT_EQ(holders(1), Pids{}) << "now it is known to be worth it";
  tree_.link("proc/10/fd/9", tree_.at("dev/nvidia1"));
  EXPECT_EQ(holders(1), Pids{}) << "nobody can open a file asleep, so nobody looks";
  EXPECT_EQ(holders(0), Pids{10}) << "and what it had it has";
  ran("S (sleeping)", 8);
  EXPECT_EQ(holders(1), Pids{10});
  std::filesystem::remove(tree_.at("proc/10/fd/9"));
  ran("R (running)", 8);
  EXPECT_EQ(holders(1), Pids{});
}

TEST(OpenersOfThisMachine, AChildThatHoldsAFileIsSeenByInodeAndADeviceByNumber) {
  const TestTree tree;
  tree.write("dev/nvidia0", "");
  // Another node of the same device: by number, wherever it lies.
  std::filesystem::create_directories(tree.at("dev"));
  const bool node = ::mknod(tree.at("dev/nvidia1").c_str(), S_IFCHR | 0600, makedev(1, 5)) == 0;  // as /dev/zero
  int gate[2];
  int ready[2];
  ASSERT_EQ(::pipe(gate), 0);
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const int file = ::open(tree.at("dev/nvidia0").c_str(), O_RDONLY);
    const int device = ::open("/dev/zero", O_RDONLY);
    char byte = 0;
    ::close(gate[1]);
    (void)!::write(ready[1], &byte, 1);
    (void)!::read(gate[0], &byte, 1);
    ::_exit(file + device < 0 ? 1 : 0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  Root root;
  root.dev = tree.at("dev");
  Inventory inventory;
  inventory.devices.resize(2);
  inventory.devices[0].minor = 0;
  inventory.devices[1].minor = 1;
  const Openers openers = find_openers(root, inventory);
  for (const int fd : {gate[0], gate[1], ready[0], ready[1]}) ::close(fd);
  ::waitpid(child, nullptr, 0);
  if (!openers.hidden.empty()) GTEST_SKIP() << "not allowed to look at every process here";
  EXPECT_EQ(openers.holders[0], (Pids{child}));
  EXPECT_EQ(std::ranges::count(openers.holders[1], child), node ? 1 : 0);
}

}  // namespace
}  // namespace lull
