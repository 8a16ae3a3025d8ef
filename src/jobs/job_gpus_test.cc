#include "jobs/scope.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "lease/folder.h"
#include "sense/file_tree_test.h"

namespace lull {
namespace {

constexpr double kMiB = 1024.0 * 1024;

Device gpu(unsigned index, std::string name = "H100") {
  Device device;
  device.index = index;
  device.uuid = "GPU-" + std::to_string(index);
  device.pci = "00000000:0" + std::to_string(index) + ":00.0";
  device.minor = index;
  device.name = std::move(name);
  return device;
}

std::shared_ptr<const Inventory> machine(std::vector<Device> devices) {
  auto inventory = std::make_shared<Inventory>();
  inventory->devices = std::move(devices);
  return inventory;
}

// Our own process stands for one of the job's, our parent for a stranger.
GpuProcess process(pid_t pid) {
  GpuProcess one;
  one.pid = pid;
  one.compute = true;
  return one;
}
GpuProcess ours() { return process(::getpid()); }
GpuProcess stranger() { return process(::getppid()); }
bool is_ours(pid_t pid) { return pid == ::getpid(); }
bool is_parent(pid_t pid) { return pid == ::getppid(); }

Reading reading(std::optional<std::vector<GpuProcess>> processes, double memory = 1000 * kMiB) {
  Reading one;
  one.set(Metric::util, 0);
  one.set(Metric::mem_used, memory);
  one.processes = std::move(processes);
  return one;
}
Reading missing(Absence why) {
  Reading one;
  one.miss_all(why);
  return one;
}

Snapshot snapshot(std::shared_ptr<const Inventory> inventory, std::vector<Reading> readings) {
  Snapshot one;
  one.inventory = std::move(inventory);
  one.readings = std::move(readings);
  return one;
}

std::string names(const std::vector<Device>& devices) {
  std::string text;
  for (const Device& device : devices) text += device.label();
  return text;
}

class Contexts : public testing::Test {
 protected:
  std::shared_ptr<const Inventory> two_ = machine({gpu(0), gpu(1)});
  ScopeFinder finder_{{.is_ours = is_ours}};
};

TEST_F(Contexts, WhatCannotBeLookedAtStaysInScope) {
  const Snapshot both = snapshot(two_, {reading({{ours()}}), reading({{ours()}})});
  ASSERT_EQ(names(finder_.find(both).devices), "01");
  for (const Absence why : {Absence::lost, Absence::reset_required, Absence::no_answer, Absence::failed,
                            Absence::no_permission, Absence::no_driver, Absence::asleep}) {
    EXPECT_EQ(names(finder_.find(snapshot(two_, {reading({{ours()}}), missing(why)})).devices), "01") << to_string(why);
  }
  EXPECT_EQ(names(finder_.find(snapshot(two_, {reading({{ours()}}), reading(std::nullopt)})).devices), "01")
      << "its list alone";
  // A successful look lets it go.
  EXPECT_EQ(names(finder_.find(snapshot(two_, {reading({{ours()}}), reading({{stranger()}})})).devices), "0");
}

TEST_F(Contexts, AnotherInventoryForgetsNothing) {
  finder_.find(snapshot(two_, {reading({{ours()}}), reading({{ours()}})}));
  // No driver, then one that shows one GPU only, then both in another order.
  EXPECT_EQ(names(finder_.find(snapshot(machine({}), {})).devices), "01");
  EXPECT_EQ(names(finder_.find(snapshot(machine({gpu(0)}), {reading({{ours()}})})).devices), "01");
  Device moved = gpu(1);
  moved.index = 0;
  Device other = gpu(0);
  other.index = 1;
  const auto turned = machine({moved, other});
  const Scope& scope = finder_.find(snapshot(turned, {reading(std::nullopt), reading(std::nullopt)}));
  ASSERT_EQ(scope.devices.size(), 2U);
  EXPECT_EQ(scope.devices[0].uuid, "GPU-1");
  EXPECT_EQ(scope.devices[0].index, 0U);
  // One that lost its UUID is known by its place on the bus.
  Device nameless = gpu(1);
  nameless.uuid.clear();
  nameless.absence = Absence::lost;
  EXPECT_EQ(
      names(finder_.find(snapshot(machine({gpu(0), nameless}), {reading({{ours()}}), missing(Absence::lost)})).devices),
      "00")
      << "the old name and number of the second";
  EXPECT_EQ(finder_.find(snapshot(two_, {reading({{ours()}}), reading({{stranger()}})})).devices.size(), 1U);
}

TEST_F(Contexts, WhereAllGpusCountOneThatIsGoneFromTheListStillDoes) {
  for (const char* gpus : {"", "all"}) {
    ScopeFinder watch({.gpus = gpus});
    EXPECT_EQ(names(watch.find(snapshot(two_, {reading({{}}), reading({{}})})).devices), "01");
    watch.find(snapshot(machine({}), {}));  // the driver was reloaded
    EXPECT_EQ(names(watch.find(snapshot(machine({gpu(0)}), {reading({{}})})).devices), "01") << gpus;
    EXPECT_EQ(names(watch.find(snapshot(two_, {reading({{}}), reading({{}})})).devices), "01");
    EXPECT_EQ(names(watch.find(snapshot(machine({gpu(0), gpu(1), gpu(2)}), {})).devices), "012") << "one more";
  }
}

TEST_F(Contexts, WhereAllGpusCountAnIntegratedOneDoesNotBesideAnotherUnlessItIsNamed) {
  Device integrated = gpu(1);
  integrated.vendor = Vendor::intel;
  integrated.integrated = true;
  const Snapshot now = snapshot(machine({gpu(0), integrated}), {reading({{}}), reading({{}})});
  ScopeFinder watch({.without_integrated = true});
  EXPECT_EQ(names(watch.find(now).devices), "0");
  const auto notes = watch.take_notes();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0], "GPU 1: integrated, and left out beside other GPUs (--gpus all takes it in)");
  watch.find(now);
  EXPECT_TRUE(watch.take_notes().empty()) << "once";
  for (const char* named : {"all", "1,0"})
    EXPECT_EQ(ScopeFinder({.gpus = named, .without_integrated = true}).find(now).devices.size(), 2U) << named;
  const Snapshot alone = snapshot(machine({integrated}), {reading({{}})});
  EXPECT_EQ(names(ScopeFinder({.without_integrated = true}).find(alone).devices), "1") << "there is no other";
  EXPECT_EQ(names(ScopeFinder({}).find(now).devices), "01") << "each for itself (--per)";
  ScopeFinder job({.is_ours = is_ours, .without_integrated = true});
  EXPECT_EQ(names(job.find(snapshot(now.inventory, {reading({{ours()}}), reading({{ours()}})})).devices), "01")
      << "the job works there";
}

TEST_F(Contexts, PartsOfAGpuThatIsWholeAgainAreNotMissed) {
  Device part = gpu(1);
  part.kind = DeviceKind::mig;
  part.uuid = "MIG-1";
  ScopeFinder watch({});
  EXPECT_EQ(names(watch.find(snapshot(machine({gpu(0), gpu(1), part}), {})).devices), "01:0");
  EXPECT_EQ(names(watch.find(snapshot(two_, {})).devices), "01");
  EXPECT_EQ(names(watch.find(snapshot(machine({gpu(0)}), {})).devices), "01") << "gone as a whole";
}

TEST_F(Contexts, WhatCouldNeverBeLookedAtMayBeTheJobs) {
  EXPECT_EQ(names(finder_.find(snapshot(two_, {reading({{ours()}}), reading(std::nullopt)})).devices), "01");
  ScopeFinder lost({.is_ours = is_ours});  // nobody can begin anything on one that is lost
  EXPECT_EQ(names(lost.find(snapshot(two_, {reading({{ours()}}), missing(Absence::lost)})).devices), "0");
}

TEST_F(Contexts, NumbersOfAnotherNamespaceAreNobodys) {
  GpuProcess elsewhere = ours();
  elsewhere.here = false;
  const Scope& scope = finder_.find(snapshot(two_, {reading({{elsewhere}}), reading({{}})}));
  EXPECT_TRUE(scope.devices.empty());
  EXPECT_NE(scope.not_judged, "");
  // Nor do they prove that the job has left.
  finder_.find(snapshot(two_, {reading({{ours()}}), reading({{}})}));
  EXPECT_EQ(names(finder_.find(snapshot(two_, {reading({{elsewhere}}), reading({{}})})).devices), "0");
  Reading hidden = reading({{stranger()}});
  hidden.processes_hidden = true;
  EXPECT_EQ(names(finder_.find(snapshot(two_, {hidden, reading({{}})})).devices), "0");
  hidden.set(Metric::mem_used, 3 * kMiB);  // nobody has a context on an empty card
  EXPECT_TRUE(finder_.find(snapshot(two_, {hidden, reading({{}})})).devices.empty());
}

TEST_F(Contexts, NotJudgedWithoutAContext) {
  const Scope& scope = finder_.find(snapshot(two_, {reading({{stranger()}}), reading({{}})}));
  EXPECT_TRUE(scope.devices.empty());
  EXPECT_NE(scope.not_judged.find("no GPU context yet: not judged until it has one"), std::string::npos);
  EXPECT_EQ(names(finder_.find(snapshot(two_, {reading({{}}), reading({{ours()}})})).devices), "1");
  EXPECT_EQ(finder_.find(snapshot(two_, {reading({{}}), reading({{ours()}})})).not_judged, "");
  finder_.find(snapshot(two_, {reading({{}}), reading({{}})}));
  EXPECT_NE(scope.not_judged.find("any more"), std::string::npos);
  finder_.forget_job();
  finder_.find(snapshot(two_, {reading({{}}), reading({{}})}));
  EXPECT_NE(scope.not_judged.find("yet"), std::string::npos);
  // Where no list can be read, that is what is said.
  ScopeFinder blind({.is_ours = is_ours});
  EXPECT_NE(blind.find(snapshot(two_, {reading(std::nullopt), reading(std::nullopt)})).not_judged.find("are unknown"),
            std::string::npos);
}

TEST_F(Contexts, ByAllGpusUntilTheJobHasItsOwnWhereThatIsAskedFor) {
  ScopeFinder finder({.is_ours = is_ours, .all_without_context = true});
  const Scope& scope = finder.find(snapshot(two_, {reading({{stranger()}}), reading({{}})}));
  EXPECT_EQ(names(scope.devices), "01");
  EXPECT_EQ(scope.not_judged, "");
  EXPECT_EQ(names(finder.find(snapshot(two_, {reading({{}}), reading({{ours()}})})).devices), "1");
  EXPECT_EQ(names(finder.find(snapshot(two_, {reading({{}}), reading({{}})})).devices), "01") << "it has none any more";
  const auto unread = snapshot(two_, {reading(std::nullopt), reading(std::nullopt)});
  ScopeFinder blind({.is_ours = is_ours, .all_without_context = true});
  EXPECT_EQ(names(blind.find(unread).devices), "01") << "one GPU more can only make it stricter";
  ScopeFinder any({.is_ours = is_ours, .all_without_context = true, .stricter_with_more = false});
  EXPECT_NE(any.find(unread).not_judged, "") << "one GPU that idles may be another than the job's";
  EXPECT_EQ(names(any.find(snapshot(two_, {reading({{}}), reading({{}})})).devices), "01");
  ScopeFinder given(
      {.environment = {.variables = {.cuda_visible_devices = "0"}}, .is_ours = is_ours, .all_without_context = true});
  EXPECT_EQ(names(given.find(snapshot(two_, {reading({{}}), reading({{}})})).devices), "0");
}

TEST_F(Contexts, ARuleOnTheJobAloneNeedsNoGpu) {
  ScopeFinder finder({.is_ours = is_ours, .needs_gpu = false});
  const Scope& scope = finder.find(snapshot(two_, {reading({{}}), reading({{}})}));
  EXPECT_EQ(names(scope.devices), "01");
  EXPECT_EQ(scope.not_judged, "");
}

TEST_F(Contexts, WhatIsSeenWins) {
  ScopeFinder finder({.environment = {.variables = {.cuda_visible_devices = "0"}}, .is_ours = is_ours});
  EXPECT_EQ(names(finder.find(snapshot(two_, {reading({{}}), reading({{}})})).devices), "0");
  EXPECT_EQ(names(finder.find(snapshot(two_, {reading({{}}), reading({{ours()}})})).devices), "01");
  ScopeFinder none({.environment = {.variables = {.cuda_visible_devices = "-1"}}, .is_ours = is_ours});
  EXPECT_NE(none.find(snapshot(two_, {reading({{}}), reading({{}})})).not_judged, "");
  EXPECT_EQ(names(none.find(snapshot(two_, {reading({{}}), reading({{ours()}})})).devices), "1");
  // A person's own word for this run is kept, and what it leaves out is said.
  ScopeFinder named({.gpus = "0", .is_ours = is_ours});
  EXPECT_EQ(names(named.find(snapshot(two_, {reading({{}}), reading({{ours()}})})).devices), "0");
  EXPECT_EQ(named.take_notes().size(), 1U);
}

TEST_F(Contexts, AmdAndIntelGpusAreGivenByTheirOwnVariables) {
  std::vector<Device> devices = {gpu(0), gpu(1), gpu(2), gpu(3), gpu(4)};
  for (const std::size_t i : {1U, 2U}) {
    devices[i].vendor = Vendor::amd;
    devices[i].kfd_rank = 2 - i;
  }
  for (const std::size_t i : {3U, 4U}) devices[i].vendor = Vendor::intel;
  const auto all = machine(devices);
  const auto idle = snapshot(all, std::vector<Reading>(5, reading({{}})));
  const auto given = [&](RuntimeVariables variables) {
    ScopeFinder finder({.environment = {.variables = std::move(variables)}, .is_ours = is_ours});
    return names(finder.find(idle).devices);
  };
  EXPECT_EQ(given({.rocr_visible_devices = "0"}), "2") << "KFD counts it first";
  EXPECT_EQ(given({.cuda_visible_devices = "0"}), "0");
  EXPECT_EQ(given({.ze_affinity_mask = "1"}), "34") << "the order is not certain";
  EXPECT_EQ(
      given({.ze_affinity_mask = "1", .ze_flat_device_hierarchy = "COMPOSITE", .ze_enable_pci_id_device_order = "1"}),
      "4");
  EXPECT_EQ(given({.cuda_visible_devices = "0", .rocr_visible_devices = "1"}), "01");
  EXPECT_EQ(given({.cuda_visible_devices = "-1", .rocr_visible_devices = "1"}), "1");
  ScopeFinder leased(
      {.environment = {.variables = {.cuda_visible_devices = "", .rocr_visible_devices = "0"}}, .is_ours = is_ours});
  EXPECT_EQ(leased.find(idle).why, "ROCR_VISIBLE_DEVICES") << "who hides a vendor's GPUs gives none";
}

TEST_F(Contexts, AnUncertainOrderTakesAllUntilContextsSettleIt) {
  const auto mixed = machine({gpu(0, "T4"), gpu(1, "H100"), gpu(2, "H100")});
  ScopeFinder finder({.environment = {.variables = {.cuda_visible_devices = "0"}}, .is_ours = is_ours});
  EXPECT_EQ(finder.find(snapshot(mixed, {reading({{}}), reading({{}}), reading({{}})})).devices.size(), 3U);
  EXPECT_EQ(finder.take_notes().size(), 1U);
  EXPECT_EQ(names(finder.find(snapshot(mixed, {reading({{}}), reading({{ours()}}), reading({{}})})).devices), "1");
  EXPECT_TRUE(finder.take_notes().empty());
  EXPECT_EQ(finder.find(snapshot(mixed, {reading({{}}), reading({{}}), reading({{}})})).devices.size(), 3U);
}

TEST_F(Contexts, Hardware_21_NoPermissionIsLeftOutUnlessItWasReadBefore) {
  const TestTree tree;
  tree.write("dev/nvidia0", "");  // all that we were given
  ScopeFinder all({.users = std::make_shared<GpuUsers>(tree.root())});
  EXPECT_EQ(names(all.find(snapshot(two_, {reading({{}}), missing(Absence::no_permission)})).devices), "0");
  EXPECT_EQ(all.take_notes().size(), 1U);
  EXPECT_EQ(names(all.find(snapshot(two_, {reading({{}}), reading({{}})})).devices), "01");
  EXPECT_EQ(names(all.find(snapshot(two_, {reading({{}}), missing(Absence::no_permission)})).devices), "01");
  EXPECT_TRUE(all.take_notes().empty());
  ScopeFinder asked({.gpus = "all"});
  EXPECT_EQ(names(asked.find(snapshot(two_, {reading({{}}), missing(Absence::no_permission)})).devices), "01");
}

// Where a program of ours may be at work, or somebody is seen to be, what cannot be read is unknown.
TEST_F(Contexts, Hardware_21_NoPermissionCountsWhereSomebodyMayWork) {
  for (const bool numbered : {true, false}) {  // the driver may not tell which of the files it is
    const TestTree tree;
    tree.write("dev/nvidia0", "");
    Fd file(::open(tree.at("dev/nvidia1").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    Device dark = gpu(1);
    if (!numbered) dark.minor.reset();
    Snapshot now = snapshot(machine({gpu(0), dark}), {reading({{}}), missing(Absence::no_permission)});
    ScopeFinder all({.users = std::make_shared<GpuUsers>(Root{.dev = tree.at("dev")})});
    EXPECT_EQ(names(all.find(now).devices), "01") << "it can be opened";
    ASSERT_EQ(all.take_notes().size(), 1U);
    // Its node is not there any more; those who hold it are.
    std::filesystem::remove(tree.at("dev/nvidia1"));
    now.at += std::chrono::hours(1);
    EXPECT_EQ(names(all.find(now).devices), "01");
    file.reset();
    now.at += std::chrono::hours(1);
    EXPECT_EQ(names(all.find(now).devices), "0");
    EXPECT_EQ(all.take_notes().size(), 1U);
  }
}

TEST_F(Contexts, NoPermissionCountsWhereWeMayOpenItThoughNobodyHoldsIt) {
  const TestTree tree;
  for (const char* name : {"dev/nvidia0", "dev/nvidia1"}) tree.write(name, "");
  ScopeFinder all({.users = std::make_shared<GpuUsers>(Root{.dev = tree.at("dev")})});
  EXPECT_EQ(names(all.find(snapshot(two_, {reading({{}}), missing(Absence::no_permission)})).devices), "01");
}

// In a process of its own: to the superuser every file is open.
std::string scope_of_nobody(const Snapshot& now, const Root& root, ScopeOptions options = {}) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr unsigned kNobody = 65534;
    if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0))
      ::_exit(2);
    ::prctl(PR_SET_DUMPABLE, 1);  // or our own files are closed to us, too
    options.users = std::make_shared<GpuUsers>(root);
    const std::string found = names(ScopeFinder(options).find(now).devices);
    ::_exit(::write(ends[1], found.data(), found.size()) < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  const Fd answer(ends[0]);
  std::string text(64, '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(answer.get(), text.data(), text.size()))));
  ::waitpid(child, nullptr, 0);
  return text;
}

TEST_F(Contexts, Hardware_21_NoPermissionCountsWhereSomebodyHoldsIt) {
  const TestTree tree;
  for (const char* name : {"dev/nvidia0", "dev/nvidia1"}) tree.write(name, "");
  Fd held(::open(tree.at("dev/nvidia1").c_str(), O_RDWR | O_CLOEXEC));
  namespace fs = std::filesystem;
  fs::permissions(tree.path(), fs::perms(0755));
  fs::permissions(tree.at("dev/nvidia1"), fs::perms::none);
  const Snapshot now = snapshot(two_, {reading({{}}), missing(Absence::no_permission)});
  EXPECT_EQ(scope_of_nobody(now, {.dev = tree.at("dev")}), "01");
  held.reset();
  EXPECT_EQ(scope_of_nobody(now, tree.root()), "0") << "neither open to us nor held";
}

// Another user's process whose files we may not look at may hold it: it counts as unknown, and is not left out.
TEST_F(Contexts, NoPermissionCountsWhereSomebodyMayHoldItWhomWeMayNotLookAt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs processes of two users";
  const TestTree tree;
  for (const char* name : {"dev/nvidia0", "dev/nvidia1"}) tree.write(name, "");
  namespace fs = std::filesystem;
  fs::permissions(tree.path(), fs::perms(0755));
  fs::permissions(tree.at("dev/nvidia1"), fs::perms::none);
  const Snapshot now = snapshot(two_, {reading({{}}), missing(Absence::no_permission)});
  EXPECT_EQ(scope_of_nobody(now, {.dev = tree.at("dev")}), "01") << "we ourselves, root, are closed to nobody";
}

TEST_F(Contexts, OnlyAProvenProcessIsTheJobs) {
  for (const Proof proof : {Proof::unproven, Proof::stale}) {
    GpuProcess one = ours();
    one.proof = proof;
    one.here = proof == Proof::unproven;
    ScopeFinder finder({.is_ours = is_ours});
    const Scope& scope = finder.find(snapshot(two_, {reading({{one}}), reading({{}})}));
    EXPECT_TRUE(scope.devices.empty()) << to_string(proof);
    EXPECT_FALSE(scope.not_judged.empty()) << "no context of the job's is proven";
    // Nor is it a reason to leave a GPU out that the job may be on.
    EXPECT_EQ(names(finder.find(snapshot(two_, {reading({{one}}), reading({{ours()}})})).devices), "10");
  }
}

TEST_F(Contexts, AProcessThatStartedAtAnotherTimeIsNotTheOneThatWasListed) {
  GpuProcess one = ours();
  one.start_ticks = 1;
  EXPECT_TRUE(finder_.find(snapshot(two_, {reading({{one}}), reading({{}})})).devices.empty());
  one.start_ticks = read_process_entry(::getpid())->start_ticks;
  EXPECT_EQ(names(finder_.find(snapshot(two_, {reading({{one}}), reading({{}})})).devices), "0");
}

// Of another user mostly. One of the job's may have ended, and the number be another's by now.
TEST_F(Contexts, AnUnprovenProcessIsAStrangersWhereTheJobHoldsNoFileOrIsNew) {
  const TestTree tree;
  for (const char* name : {"dev/nvidia0", "dev/nvidia1"}) tree.write(name, "");
  const Root root{.dev = tree.at("dev")};
  GpuProcess other = stranger();
  other.proof = Proof::unproven;
  const Snapshot now = snapshot(two_, {reading({{ours()}}), reading({{other}})});
  EXPECT_EQ(names(ScopeFinder({.is_ours = is_ours, .users = std::make_shared<GpuUsers>(root)}).find(now).devices), "0");
  const Fd file(::open(tree.at("dev/nvidia1").c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(names(ScopeFinder({.is_ours = is_ours, .users = std::make_shared<GpuUsers>(root)}).find(now).devices), "01")
      << "it may be there";
  EXPECT_EQ(names(ScopeFinder({.is_ours = is_ours, .job_is_new = true, .users = std::make_shared<GpuUsers>(root)})
                      .find(now)
                      .devices),
            "0");
  other.proof = Proof::stale;
  other.here = false;
  EXPECT_EQ(names(ScopeFinder({.is_ours = is_ours, .job_is_new = true, .users = std::make_shared<GpuUsers>(root)})
                      .find(snapshot(two_, {reading({{ours()}}), reading({{other}})}))
                      .devices),
            "01")
      << "whoever holds what it left";
}

TEST_F(Contexts, Hardware_21_APartOfAGpuIsOpenByItsCapabilities) {
  const TestTree tree;
  tree.write("dev/nvidia0", "");
  tree.write("dev/nvidia-caps/nvidia-cap12", "");
  tree.write("dev/nvidia-caps/nvidia-cap13", "");
  const Root root{.dev = tree.at("dev"), .driver = tree.at("driver")};
  Device part = gpu(0);
  part.kind = DeviceKind::mig;
  part.uuid = "MIG-0";
  part.gpu_instance = 1;
  part.compute_instance = 0;
  const Snapshot now = snapshot(machine({gpu(0), part}), {reading({{}}), missing(Absence::no_permission)});
  const auto scope = [&](const Snapshot& seen) {
    return names(ScopeFinder({.users = std::make_shared<GpuUsers>(root)}).find(seen).devices);
  };
  EXPECT_EQ(scope(now), "") << "as in a container that was given another part";
  tree.write("driver/capabilities/gpu0/mig/gi1/access", "DeviceFileMinor: 12\nDeviceFileMode: 292\n");
  tree.write("driver/capabilities/gpu0/mig/gi1/ci0/access", "DeviceFileMinor: 99\nDeviceFileMode: 292\n");
  EXPECT_EQ(scope(now), "") << "no such file";
  tree.write("driver/capabilities/gpu0/mig/gi1/ci0/access", "DeviceFileMinor: 13\nDeviceFileMode: 292\n");
  EXPECT_EQ(scope(now), "0:0");
  part.gpu_instance.reset();
  std::filesystem::remove_all(tree.at("driver"));
  EXPECT_EQ(scope(snapshot(machine({gpu(0), part}), {reading({{}}), missing(Absence::no_permission)})), "0:0")
      << "which part it is cannot be told";
}

TEST_F(Contexts, ASplitGpuCountsAsItsParts) {
  const auto part = [](unsigned number) {
    Device device = gpu(0);
    device.kind = DeviceKind::mig;
    device.mig_index = number;
    device.uuid = "MIG-" + std::to_string(number);
    return device;
  };
  const auto split = machine({gpu(0), part(0), part(1)});
  const auto find = [&](ScopeFinder& finder, Reading whole, Reading first, Reading second) {
    return names(finder.find(snapshot(split, {std::move(whole), std::move(first), std::move(second)})).devices);
  };
  EXPECT_EQ(find(finder_, reading({{ours()}}), reading({{}}), reading({{ours()}})), "0:1");
  ScopeFinder given({.environment = {.variables = {.cuda_visible_devices = "MIG-1"}}, .is_ours = is_ours});
  EXPECT_EQ(find(given, reading({{ours()}}), reading({{}}), reading({{ours()}})), "0:1");
  ScopeFinder silent({.is_ours = is_ours});  // the parts' own lists cannot be read
  EXPECT_EQ(find(silent, reading({{ours()}}), reading(std::nullopt), reading(std::nullopt)), "0:00:1");
}

TEST_F(Contexts, NamedGpusAreTheOnesOfTheBeginning) {
  ScopeFinder named({.gpus = "1"});
  named.find(snapshot(two_, {reading({{}}), reading({{}})}));
  Device moved = gpu(0);
  moved.index = 1;
  EXPECT_EQ(named.find(snapshot(machine({moved}), {reading({{}})})).devices.front().uuid, "GPU-1");
  EXPECT_EQ(named.trouble(), "");
  ScopeFinder wrong({.gpus = "7"});
  wrong.find(snapshot(two_, {reading({{}}), reading({{}})}));
  EXPECT_NE(wrong.trouble().find("--gpus"), std::string::npos);
  ScopeFinder others({.gpus = "0,7", .absent_left_out = true});
  EXPECT_EQ(names(others.find(snapshot(two_, {reading({{}}), reading({{}})})).devices), "0");
  EXPECT_EQ(others.trouble(), "");
  const auto notes = others.take_notes();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("GPU 7 is not on this system"), std::string::npos) << notes[0];
}

TEST_F(Contexts, SlurmNumbersAreThoseOfDeviceFiles) {
  Device third = gpu(1);
  third.minor = 3;
  const auto inside = machine({gpu(0), third});  // of a job that sees two of the machine's GPUs
  ScopeFinder finder({.environment = {.slurm = "3"}, .is_ours = is_ours});
  EXPECT_EQ(names(finder.find(snapshot(inside, {reading({{}}), reading({{}})})).devices), "1");
  for (const char* text : {"gpu:2", "3-0", "0-", "0-5000"}) {
    ScopeFinder odd({.environment = {.slurm = text}, .is_ours = is_ours});
    EXPECT_NE(odd.find(snapshot(inside, {reading({{}}), reading({{}})})).not_judged, "") << text;
  }
  ScopeFinder several({.environment = {.slurm = "0,2-3"}, .is_ours = is_ours});
  const auto four = machine({gpu(0), gpu(1), gpu(2), gpu(3)});
  EXPECT_EQ(names(several.find(snapshot(four, {reading({{}}), reading({{}}), reading({{}}), reading({{}})})).devices),
            "023");
}

TEST_F(Contexts, AStoppedProcessWithAContextIsFound) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    for (;;) ::pause();
  }
  const auto of_child = [&](pid_t pid) { return pid == child; };
  JobGpus contexts;
  contexts.look(snapshot(two_, {reading({{process(child)}}), reading({{}})}), of_child);
  EXPECT_FALSE(contexts.stopped(true));
  ::kill(child, SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  // Also between two looks at the lists.
  contexts.look(snapshot(two_, {reading(std::nullopt), reading(std::nullopt)}), of_child);
  ASSERT_TRUE(contexts.stopped(false));
  EXPECT_EQ(contexts.stopped(false)->pid, child);
  ::kill(child, SIGCONT);
  ASSERT_EQ(::waitpid(child, &status, WCONTINUED), child);
  EXPECT_FALSE(contexts.stopped(true));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(contexts.stopped(true));
}

// Process 77 in this state, begun at that time.
void write_process_77(const TestTree& tree, char state, unsigned start) {
  tree.write("proc/77/stat", std::string("77 (python3) ") + state + " 1 77 77 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 " +
                                 std::to_string(start) + " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n");
}

TEST_F(Contexts, AProcessWithAnotherStartTimeIsNotTheStoppedOne) {
  const TestTree tree;
  write_process_77(tree, 'T', 100);
  JobGpus contexts(std::make_shared<GpuUsers>(tree.root()));
  contexts.look(snapshot(two_, {reading({{process(77)}}), reading({{}})}), [](pid_t pid) { return pid == 77; });
  ASSERT_TRUE(contexts.stopped(false));
  write_process_77(tree, 'T', 200);
  EXPECT_FALSE(contexts.stopped(false)) << "another process, with the number of one that has ended";
}

TEST_F(Contexts, AProcessWithAnotherStartTimeIsNotTheFrozenOne) {
  const TestTree tree;
  tree.write("proc/self/mountinfo", "41 31 0:38 / " + tree.at("v2") + " rw - cgroup2 cgroup2 rw\n");
  tree.write("proc/77/cgroup", "0::/job\n");
  tree.write("v2/job/cgroup.events", "populated 1\nfrozen 1\n");
  write_process_77(tree, 'S', 100);
  JobGpus contexts(std::make_shared<GpuUsers>(tree.root()));
  EXPECT_FALSE(contexts.frozen({}));
  contexts.look(snapshot(two_, {reading({{process(77)}}), reading({{}})}), [](pid_t pid) { return pid == 77; });
  ASSERT_TRUE(contexts.frozen({}));
  write_process_77(tree, 'S', 200);
  EXPECT_FALSE(contexts.frozen({})) << "another process, with the number of one that has ended";
}

TEST_F(Contexts, TheListOfAGpuThatIsAbsentSaysNothing) {
  ASSERT_EQ(names(finder_.find(snapshot(two_, {reading({{ours()}}), reading({{ours()}})})).devices), "01");
  Reading absent = reading({{}});
  absent.device_absence = Absence::lost;
  EXPECT_EQ(names(finder_.find(snapshot(two_, {reading({{ours()}}), absent})).devices), "01");
}

// ---- what the job was given, and what is seen of it

TEST_F(Contexts, TheLeaseOfAnotherUserGivesTheJobNothing) {
  const TestTree tree;
  const LeasePlace place{tree.at("leases"), false};
  const auto folder = LeaseFolder::open(place);
  ASSERT_TRUE(folder);
  LeaseRecord record;
  record.gpu = "GPU-1";
  record.id = "0123456789abcdef";
  const auto folder_lock = folder->enter();
  ASSERT_TRUE(folder_lock);
  const auto held = folder->take(*folder_lock, record);
  ASSERT_TRUE(held);
  ASSERT_EQ(::setenv("LULL_LEASES", place.path.c_str(), 1), 0);
  const Snapshot now = snapshot(two_, {reading({{}}), reading({{}})});
  const auto scope = [&] {
    return names(ScopeFinder({.environment = {.lease = record.id}, .is_ours = is_ours}).find(now).devices);
  };
  EXPECT_EQ(scope(), "1");
  if (::geteuid() == 0) {
    ASSERT_EQ(::fchown(held->fd.get(), 65534, 65534), 0);
    EXPECT_EQ(scope(), "") << "whoever sets a variable gets nothing by it";
  }
  ::unsetenv("LULL_LEASES");
}

TEST_F(Contexts, AnUncertainOrderStaysOpenWhereProcessesCannotBeSeen) {
  const auto mixed = machine({gpu(0, "T4"), gpu(1, "H100"), gpu(2, "H100")});
  ScopeFinder finder({.environment = {.variables = {.cuda_visible_devices = "0"}}, .is_ours = is_ours});
  EXPECT_EQ(
      names(finder.find(snapshot(mixed, {reading({{}}), reading({{ours()}}), reading(std::nullopt)})).devices).size(),
      3U)
      << "the one that was meant may be the one whose processes cannot be seen";
  EXPECT_EQ(names(finder.find(snapshot(mixed, {reading({{}}), reading({{ours()}}), reading({{}})})).devices), "1");
}

TEST_F(Contexts, AnUncertainOrderIsNotJudgedByARuleThatMoreGpusMakeLooser) {
  const auto mixed = machine({gpu(0, "T4"), gpu(1, "H100"), gpu(2, "H100")});
  ScopeFinder finder(
      {.environment = {.variables = {.cuda_visible_devices = "0"}}, .is_ours = is_ours, .stricter_with_more = false});
  EXPECT_NE(finder.find(snapshot(mixed, {reading({{}}), reading({{}}), reading({{}})})).not_judged, "")
      << "one that idles and is not the job's would do";
  EXPECT_EQ(finder.find(snapshot(mixed, {reading({{}}), reading({{ours()}}), reading({{}})})).not_judged, "");
}

TEST_F(Contexts, AGpuThatWasGivenBringsThoseThatCannotBeSeen) {
  const Snapshot now = snapshot(two_, {reading({{ours()}}), reading(std::nullopt)});
  ScopeFinder given({.environment = {.variables = {.cuda_visible_devices = "0"}}, .is_ours = is_ours});
  EXPECT_EQ(names(given.find(now).devices), "01") << "the job may work there, too";
  ScopeFinder looser(
      {.environment = {.variables = {.cuda_visible_devices = "0"}}, .is_ours = is_ours, .stricter_with_more = false});
  const Scope& scope = looser.find(now);
  EXPECT_EQ(names(scope.devices), "0") << "more GPUs would make the rule hold sooner";
  EXPECT_NE(scope.not_judged, "");
  ScopeFinder contexts({.is_ours = is_ours, .stricter_with_more = false});
  EXPECT_NE(contexts.find(now).not_judged, "");
  EXPECT_EQ(contexts.find(snapshot(two_, {reading({{ours()}}), reading({{}})})).not_judged, "");
}

// A GPU that was lost, or closed to us, before the first look tells nothing of who is there; its device file does.
TEST(ContextsByFile, WhoHasOpenedACardThatWasNeverReachedMayBeThere) {
  for (const Absence why : {Absence::lost, Absence::reset_required, Absence::no_permission}) {
    for (const bool numbered : {true, false}) {  // of a lost card not even the number may be known
      const TestTree tree;
      tree.write("dev/nvidia0", "");
      tree.write("dev/nvidia1", "");
      tree.write("dev/nvidiactl", "");
      Device dark = gpu(1);
      if (!numbered) dark.minor.reset();
      const auto inventory = machine({gpu(0), dark});
      Snapshot now = snapshot(inventory, {reading({{ours()}}), missing(why)});
      JobGpus contexts(std::make_shared<GpuUsers>(Root{.dev = tree.at("dev")}));
      contexts.look(now, is_ours);
      EXPECT_EQ(names(contexts.unseen()), "") << "nobody has opened it";
      Fd file(::open(tree.at("dev/nvidia1").c_str(), O_RDONLY | O_CLOEXEC));
      ASSERT_TRUE(file);
      now.at += std::chrono::hours(1);
      contexts.look(now, [](pid_t) { return false; });
      EXPECT_EQ(names(contexts.unseen()), "") << "somebody else has";
      now.at += std::chrono::hours(1);
      contexts.look(now, is_ours);
      EXPECT_EQ(names(contexts.unseen()), "1") << to_string(why);
      EXPECT_EQ(names(contexts.closed()), "");
      file.reset();
      now.at += std::chrono::hours(1);
      contexts.look(now, is_ours);
      EXPECT_EQ(names(contexts.unseen()), "");
    }
  }
}

// A GPU that is used through its render node alone, such as an integrated one: that the files of others are closed to
// us says nothing of the job's own.
TEST(ContextsByFile, AGpuWhoseListIsNotCompleteIsTheJobsOnlyWhereTheJobHoldsItsNode) {
  const TestTree tree;
  for (const char* name : {"dev/nvidia0", "dev/dri/renderD128", "dev/dri/card1"}) tree.write(name, "");
  tree.write("sys/class/drm/renderD128/device/drm/card1/dev", "226:1\n");
  Device other = gpu(1);
  other.vendor = Vendor::intel;
  other.minor.reset();
  other.render_minor = 128;
  Reading hidden = reading({{}});
  hidden.miss(Metric::mem_used, Absence::no_permission);
  hidden.processes_hidden = true;
  Snapshot now = snapshot(machine({gpu(0), other}), {reading({{ours()}}), hidden});
  const auto users = std::make_shared<GpuUsers>(Root{.sys = tree.at("sys"), .dev = tree.at("dev")});
  ScopeFinder finder({.is_ours = is_ours, .users = users});
  EXPECT_EQ(names(finder.find(now).devices), "0");
  for (const char* node : {"dev/dri/renderD128", "dev/dri/card1"}) {
    Fd file(::open(tree.at(node).c_str(), O_RDWR | O_CLOEXEC));
    now.at += std::chrono::hours(1);
    EXPECT_EQ(names(finder.find(now).devices), "01") << "it may be there";
    file.reset();
    now.at += std::chrono::hours(1);
    EXPECT_EQ(names(finder.find(now).devices), "0");
  }
  if (::geteuid() != 0) return;
  std::filesystem::permissions(tree.path(), std::filesystem::perms(0755));
  EXPECT_EQ(scope_of_nobody(now, {.sys = tree.at("sys"), .dev = tree.at("dev")}, {.is_ours = is_parent}), "01")
      << "the files of one of the job's own are closed to us";
}

// Looking at everybody's files is not for every sample, and what was found is not for other GPUs.
TEST(UnreachableGpus, AreLookedAtNowAndThenAndOthersOrFreshOnesAtOnce) {
  const TestTree tree;
  for (const char* name : {"dev/nvidia0", "dev/nvidia1"}) tree.write(name, "");
  GpuUsers users({.dev = tree.at("dev")});
  Snapshot now = snapshot(machine({gpu(0), gpu(1)}), {});
  const auto holders = [&](std::size_t gpu, bool fresh = false) {
    users.look(now, UserDetail::none, fresh);
    return users.file_holders({gpu}).holders[0];
  };
  ASSERT_TRUE(holders(0).empty());
  const Duration rest = users.file_holders({0}).rest;
  ASSERT_GT(rest, Duration::zero());
  const std::vector<pid_t> us = {::getpid()};
  const Fd zero(::open(tree.at("dev/nvidia0").c_str(), O_RDONLY | O_CLOEXEC));
  const Fd one(::open(tree.at("dev/nvidia1").c_str(), O_RDONLY | O_CLOEXEC));
  now.at += rest / 2;
  EXPECT_TRUE(holders(0).empty()) << "it was looked at just now";
  EXPECT_EQ(holders(1), us);
  EXPECT_TRUE(holders(0).empty()) << "the other one is nothing to it";
  EXPECT_EQ(holders(0, true), us) << "before anything is done it is looked at anew";
  now.at += std::chrono::hours(1);
  EXPECT_EQ(holders(0), us);
}

TEST_F(Contexts, ALeaseThatCannotBeReadMayGiveAnyGpu) {
  const TestTree tree;
  tree.write("leases", "no folder");
  ASSERT_EQ(::setenv("LULL_LEASES", tree.at("leases").c_str(), 1), 0);
  const Snapshot now = snapshot(two_, {reading({{}}), reading({{}})});
  ScopeFinder finder({.environment = {.lease = "0123456789abcdef"}, .is_ours = is_ours});
  EXPECT_EQ(names(finder.find(now).devices), "01");
  ASSERT_EQ(finder.take_notes().size(), 1U);
  std::filesystem::remove(tree.at("leases"));
  EXPECT_NE(finder.find(now).not_judged, "") << "there is none: not judged before it has a context";
  ::unsetenv("LULL_LEASES");
}

}  // namespace
}  // namespace lull
