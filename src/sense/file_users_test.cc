// Who uses a GPU by DRM's fdinfo and by KFD, on a made-up machine.
#include "sense/file_users.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "sense/file_tree_test.h"
#include "sense/sampler_options.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr const char* kAmdgpu =
    "pos:\t0\nflags:\t02100002\ndrm-driver:\tamdgpu\ndrm-client-id:\t7\ndrm-pdev:\t0000:03:00.0\n"
    "drm-memory-vram:\t2048 KiB\ndrm-memory-gtt: \t16 KiB\ndrm-engine-gfx:\t1200 ns\n";

TEST(DrmInfoText, OfThreeDrivers) {
  const auto amd = parse_drm_info(kAmdgpu);
  ASSERT_TRUE(amd);
  EXPECT_EQ(amd->driver, "amdgpu");
  EXPECT_EQ(amd->pci, "0000:03:00.0");
  EXPECT_EQ(amd->client, 7U);
  EXPECT_EQ(amd->memory_bytes, 2U << 20);
  EXPECT_EQ(amd->engines.at("gfx").nanoseconds, 1200U);
  EXPECT_TRUE(amd->worked());

  const auto xe = parse_drm_info(
      "drm-driver:\txe\ndrm-client-id:\t42\ndrm-pdev:\t0000:04:00.0\ndrm-total-vram0:\t64 MiB\n"
      "drm-resident-vram0:\t32 MiB\ndrm-total-gtt:\t8 MiB\ndrm-cycles-ccs:\t0\ndrm-total-cycles-ccs:\t99\n"
      "drm-cycles-bcs:\t5\ndrm-total-cycles-bcs:\t99\ndrm-engine-capacity-ccs:\t4\n");
  ASSERT_TRUE(xe);
  EXPECT_EQ(xe->memory_bytes, 32U << 20) << "what is resident, not what is reserved";
  EXPECT_EQ(xe->engines.at("ccs").capacity, 4U);
  EXPECT_EQ(xe->engines.at("ccs").total_cycles, 99U);
  EXPECT_EQ(xe->engines.at("bcs").cycles, 5U);
  EXPECT_TRUE(xe->worked());

  const auto i915 = parse_drm_info(
      "drm-driver:\ti915\ndrm-client-id:\t9\ndrm-pdev:\t0000:00:02.0\ndrm-total-system0:\t512 KiB\n"
      "drm-engine-render:\t0 ns\ndrm-engine-capacity-video:\t2\n");
  ASSERT_TRUE(i915);
  EXPECT_EQ(i915->memory_bytes, 512U << 10) << "it has no memory of its own";
  EXPECT_FALSE(i915->worked());
}

TEST(DrmInfoText, OfNobody) {
  EXPECT_FALSE(parse_drm_info("pos:\t0\nflags:\t02\n"));
  EXPECT_FALSE(parse_drm_info("drm-driver:\ti915\n"));
  EXPECT_FALSE(parse_drm_info("drm-client-id:\tx\ndrm-pdev:\t0000:03:00.0\n"));
  EXPECT_FALSE(parse_drm_info(""));
  const auto odd =
      parse_drm_info("drm-client-id:\t1\ndrm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t99999999999999999999 MiB\n");
  ASSERT_TRUE(odd);
  EXPECT_FALSE(odd->memory_bytes);
}

class FileUsersTest : public testing::Test {
 protected:
  FileUsersTest() {
    device_.vendor = Vendor::amd;
    device_.render_minor = 128;
    device_.pci = "00000000:03:00.0";
    tree_.write("dev/dri/renderD128", "");
    tree_.write("dev/dri/renderD129", "");
    tree_.write("dev/dri/card0", "");
    tree_.write("dev/kfd", "");
    tree_.write("sys/class/drm/renderD128/device/drm/card0/dev", "226:0\n");
    tree_.link("proc/self/ns/pid", "pid:[4026531836]");
    needs_.lists_every = Duration::zero();
  }
  void make(pid_t pid, const std::vector<std::string>& files, std::uint64_t start = 100,
            const std::string& program = "/usr/bin/python3") const {
    const std::string folder = "proc/" + std::to_string(pid);
    std::filesystem::remove_all(tree_.at(folder));
    tree_.write(folder + "/stat", std::to_string(pid) + " (python3) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 " +
                                      std::to_string(start) + " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n");
    tree_.write(folder + "/comm", "python3\n");
    tree_.link(folder + "/exe", program);
    tree_.link(folder + "/fd/0", "/dev/null");
    for (std::size_t i = 0; i < files.size(); ++i)
      tree_.link(folder + "/fd/" + std::to_string(i + 3), tree_.at("dev/" + files[i]));
  }
  void info(pid_t pid, unsigned fd, const std::string& text) const {
    tree_.write("proc/" + std::to_string(pid) + "/fdinfo/" + std::to_string(fd), text);
  }
  static std::string client(unsigned id, const std::string& more, const std::string& pci = "0000:03:00.0") {
    return "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t" + std::to_string(id) + "\ndrm-pdev:\t" + pci + "\n" + more;
  }
  void kfd(pid_t pid, const std::string& file, const std::string& text) const {
    tree_.write("sys/class/kfd/kfd/proc/" + std::to_string(pid) + "/" + file, text);
  }
  Reading sample(std::optional<std::uint32_t> gpu = 11) {
    Reading reading;
    users_->sample(device_, gpu, needs_, clock_.now(), reading);
    return reading;
  }
  Reading sample_intel() {
    device_.vendor = Vendor::intel;
    return sample(std::nullopt);
  }

  TestTree tree_;
  Root root_ = [this] {
    Root root = tree_.root();
    root.driver = tree_.at("sim/proc/driver/nvidia");
    return root;
  }();
  Device device_;
  Needs needs_;
  SystemClock clock_;
  std::unique_ptr<FileUsers> users_ =
      std::make_unique<FileUsers>(root_, std::make_shared<DrmClients>(root_, clock_), "amdgpu");
};

TEST_F(FileUsersTest, AKfdProcessIsProvenByItsDeviceFile) {
  make(10, {"kfd", "dri/renderD128"});
  kfd(10, "vram_11", "4096\n");
  info(10, 4, client(1, ""));
  make(11, {});
  kfd(11, "vram_11", "4096\n");  // its number is another's by now
  const Reading reading = sample();
  ASSERT_TRUE(reading.processes);
  ASSERT_EQ(reading.processes->size(), 2U);
  EXPECT_EQ((*reading.processes)[0].proof, Proof::proven);
  EXPECT_EQ((*reading.processes)[0].start_ticks, 100U);
  EXPECT_EQ((*reading.processes)[0].memory_bytes, 4096U);
  EXPECT_EQ((*reading.processes)[1].proof, Proof::stale);
  EXPECT_FALSE(reading.processes_hidden);
}

TEST_F(FileUsersTest, AKfdProcessIsNotOnEveryGpuWhoseRenderNodeItOpens) {
  make(10, {"kfd", "dri/renderD128", "dri/renderD129"});
  kfd(10, "vram_11", "0\n");
  kfd(10, "vram_12", "4096\n");
  info(10, 4, client(1, "drm-memory-vram:\t4 KiB\n"));  // a page table
  const Reading reading = sample(11);
  ASSERT_TRUE(reading.processes);
  EXPECT_TRUE(reading.processes->empty());
  EXPECT_EQ(reading[Metric::procs], 0);
  EXPECT_EQ(sample(12)[Metric::procs], 1);
}

TEST_F(FileUsersTest, AClientCountsOnceHoweverManyHoldIt) {
  tree_.write("sys/class/kfd/kfd/proc/1/vram_11", "0\n");
  make(10, {"dri/renderD128", "dri/renderD128"});
  info(10, 3, client(7, "drm-memory-vram:\t2048 KiB\n"));
  info(10, 4, client(7, "drm-memory-vram:\t2048 KiB\n"));
  make(11, {"dri/renderD128"});  // a child that inherited it
  info(11, 3, client(7, "drm-memory-vram:\t2048 KiB\n"));
  make(12, {"dri/renderD128"});
  info(12, 3, client(8, "drm-memory-vram:\t0\ndrm-engine-gfx:\t0 ns\n"));  // opened, and no more
  make(13, {"dri/renderD129"});
  info(13, 3, client(9, "drm-memory-vram:\t2048 KiB\n", "0000:04:00.0"));
  const Reading reading = sample();
  ASSERT_EQ(reading.processes->size(), 2U);
  EXPECT_EQ((*reading.processes)[0].pid, 10);
  EXPECT_EQ((*reading.processes)[0].memory_bytes, 2U << 20);
  EXPECT_EQ((*reading.processes)[0].proof, Proof::proven);
  EXPECT_EQ((*reading.processes)[1].pid, 11);
  EXPECT_EQ((*reading.processes)[1].memory_bytes, std::nullopt);
}

TEST_F(FileUsersTest, WhoOnlyDrawsIsNoComputeProcess) {
  tree_.write("sys/class/kfd/kfd/proc/1/vram_11", "0\n");
  make(10, {"dri/card0"}, 100, "/usr/lib/xorg/Xorg");
  info(10, 3, client(1, "drm-engine-gfx:\t100 ns\n"));
  make(11, {"dri/card0"}, 100, "/usr/lib/systemd/systemd-logind");
  info(11, 3, client(1, "drm-engine-gfx:\t100 ns\n"));
  make(12, {"dri/renderD128"}, 100, "/usr/lib/xorg/Xorg");  // made by the display server, for 13
  info(12, 3, client(2, "drm-engine-gfx:\t100 ns\n"));
  make(13, {"dri/renderD128"});
  info(13, 3, client(2, "drm-engine-gfx:\t100 ns\n"));
  const Reading reading = sample();
  EXPECT_EQ(reading[Metric::procs], 1);
  ASSERT_EQ(reading.processes->size(), 3U);
  EXPECT_TRUE((*reading.processes)[0].graphics);
  EXPECT_FALSE((*reading.processes)[0].compute);
  EXPECT_EQ((*reading.processes)[2].pid, 13);
  EXPECT_TRUE((*reading.processes)[2].compute);
}

TEST_F(FileUsersTest, OneUnreadableProcessMakesTheListOfAnIntelGpuIncomplete) {
  make(10, {"dri/renderD128"});
  info(10, 3, client(1, "drm-total-local0:\t8 MiB\ndrm-engine-render:\t5 ns\n"));
  EXPECT_EQ(sample_intel()[Metric::procs], 1);
  EXPECT_FALSE(sample_intel().processes_hidden);
  make(11, {});
  std::filesystem::remove_all(tree_.at("proc/11/fd"));
  tree_.write("proc/11/fd", "");  // root may read everything: this cannot be, for anybody
  const Reading reading = sample_intel();
  EXPECT_EQ(reading.why_missing(Metric::procs), Absence::no_permission);
  EXPECT_TRUE(reading.processes_hidden);
  EXPECT_EQ(reading.processes->size(), 1U) << "who is seen is there";
}

TEST_F(FileUsersTest, ADriverWithoutReferencesHasNoClientAndNobodyIsLookedAt) {
  make(10, {"dri/renderD128"});
  info(10, 3, client(1, "drm-total-local0:\t8 MiB\ndrm-engine-render:\t5 ns\n"));
  make(11, {});
  std::filesystem::remove_all(tree_.at("proc/11/fd"));
  tree_.write("proc/11/fd", "");  // cannot be looked at
  for (const char* references : {"1\n", "-1\n", "", "\n", "none\n", "00\n"}) {
    tree_.write("sys/module/amdgpu/refcnt", references);
    EXPECT_EQ(sample_intel().processes->size(), 1U) << references;
  }
  tree_.write("sys/module/amdgpu/refcnt", "0\n");
  const Reading reading = sample_intel();
  EXPECT_TRUE(reading.processes->empty());
  EXPECT_FALSE(reading.processes_hidden);
  EXPECT_EQ(reading[Metric::procs], 0) << "also where somebody's files cannot be looked at";
  tree_.write("sys/module/i915/refcnt", "0\n");
  tree_.write("sys/module/amdgpu/refcnt", "1\n");
  EXPECT_EQ(sample_intel().processes->size(), 1U) << "another driver's are no matter";
}

// The machine's own processes: one that holds the node, and one whose first thread has ended while another holds it.
TEST_F(FileUsersTest, WhoHoldsTheNodeIsFoundAmongTheMachinesProcesses) {
  root_.proc = Root{}.proc;
  const auto start = [&](bool first_thread_ends) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::alarm(60);
    ::dup2(::open(tree_.at("dev/dri/renderD128").c_str(), O_RDWR), 77);
    static const auto wait = [](void*) -> void* {
      for (;;) ::pause();
    };
    pthread_t worker{};
    if (!first_thread_ends) wait(nullptr);
    ::pthread_create(&worker, nullptr, wait, nullptr);
    ::syscall(SYS_exit, 0);
    ::_exit(1);
  };
  const std::vector<pid_t> children = {start(false), start(true)};
  const std::string working = client(1, "drm-engine-render:\t5 ns\n");
  tree_.link("sim/proc/self/ns/pid", "pid:[4026531836]");
  users_ = std::make_unique<FileUsers>(root_, std::make_shared<DrmClients>(root_, clock_), "amdgpu");
  const auto found = [&](pid_t pid) {
    const std::string process = "/proc/" + std::to_string(pid);
    tree_.write("sim" + process + "/fdinfo/77", working);
    Directory threads(process + "/task");
    while (const char* thread = threads.next())
      tree_.write("sim" + process + "/task/" + thread + "/fdinfo/77", working);
    const Reading reading = sample_intel();
    return reading.processes && std::ranges::count(*reading.processes, pid, &GpuProcess::pid) == 1;
  };
  for (const pid_t child : children) {
    bool is_found = false;
    for (int tries = 0; tries < 200 && !is_found; ++tries, std::this_thread::sleep_for(10ms)) is_found = found(child);
    EXPECT_TRUE(is_found) << child;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_FALSE(found(child));
  }
}

TEST_F(FileUsersTest, AHolderOfWhomTheDriverSaysNothingMayBeAtWork) {
  make(10, {"dri/renderD128"});
  info(10, 3, "pos:\t0\nflags:\t02\n");
  EXPECT_EQ(sample_intel().why_missing(Metric::procs), Absence::not_supported);
}

TEST_F(FileUsersTest, WhoDrawsIsLookedForOnlyWhereThatIsWanted) {
  tree_.write("sys/class/kfd/kfd/proc/1/vram_11", "0\n");
  make(10, {"dri/renderD128"});
  info(10, 3, client(1, "drm-engine-gfx:\t5 ns\n"));
  needs_.all_lists = false;
  EXPECT_TRUE(sample().processes->empty());
  Reading reading;
  reading.display_active = true;
  users_->sample(device_, 11, needs_, clock_.now(), reading);
  EXPECT_EQ(reading.processes->size(), 1U);
  EXPECT_EQ(sample_intel()[Metric::procs], 1) << "there is no other list";
}

TEST_F(FileUsersTest, ARuleOnProcessesCountsWhoComputesWithoutRocmOrGetsNoNumber) {
  tree_.write("sys/class/kfd/kfd/proc/1/vram_11", "0\n");
  make(10, {"dri/renderD128"});
  info(10, 3, client(1, "drm-engine-compute:\t5 ns\n"));  // Vulkan
  SamplerOptions options;
  options.want_only(std::array{Metric::procs});
  needs_ = options.needs();
  needs_.lists_every = Duration::zero();
  EXPECT_EQ(sample()[Metric::procs], 1);
  make(11, {});
  std::filesystem::remove_all(tree_.at("proc/11/fd"));
  tree_.write("proc/11/fd", "");  // cannot be looked at
  const Reading reading = sample();
  EXPECT_EQ(reading.why_missing(Metric::procs), Absence::no_permission);
  EXPECT_FALSE(reading.processes_hidden) << "KFD has told of all that it knows";
  tree_.write("sys/module/amdgpu/refcnt", "0\n");
  EXPECT_EQ(sample()[Metric::procs], 0);
}

TEST_F(FileUsersTest, OnACardThatCannotDrawOthersAreLookedForWhereSomethingIsUnexplained) {
  make(10, {"kfd"});
  kfd(10, "vram_11", "4096\n");
  make(11, {"dri/renderD128"});  // decodes a film
  info(11, 3, client(1, "drm-memory-vram:\t600 MiB\ndrm-engine-dec:\t5 ns\n"));
  needs_.if_unexplained = true;
  const auto found = [&](double used, double util) {
    Reading reading;
    if (used >= 0) reading.set(Metric::mem_used, used);
    if (util >= 0) reading.set(Metric::util, util);
    users_->sample(device_, 11, needs_, clock_.now(), reading);
    return reading.processes->size();
  };
  constexpr double kReserved = 300 << 20;
  EXPECT_EQ(found(kReserved, 90), 1U) << "KFD's process works, and all memory is its own";
  EXPECT_EQ(found(kReserved + (600 << 20), 0), 2U);
  EXPECT_EQ(found(-1, 0), 2U) << "its memory cannot be read";
  kfd(10, "vram_11", "0\n");
  EXPECT_EQ(found(kReserved, 3), 1U) << "somebody works, and KFD knows nobody";
  EXPECT_EQ(found(kReserved, -1), 1U);
  EXPECT_EQ(found(kReserved, 0), 0U);
  needs_.if_unexplained = false;
  EXPECT_EQ(found(kReserved, 0), 1U) << "who asks for all gets all";
}

TEST_F(FileUsersTest, KfdThatCannotBeReadLeavesNoList) {
  kfd(10, "vram_11", "");
  const Reading reading = sample();
  EXPECT_FALSE(reading.processes);
  EXPECT_EQ(reading.why_missing(Metric::procs), Absence::failed);
}

TEST_F(FileUsersTest, InAnotherPidNamespaceNumbersProveNothing) {
  std::filesystem::remove(tree_.at("proc/self/ns/pid"));
  tree_.link("proc/self/ns/pid", "pid:[4026531999]");
  make(10, {});
  kfd(10, "vram_11", "4096\n");
  const Reading reading = sample();
  EXPECT_TRUE(reading.processes_hidden);
  EXPECT_EQ(reading.why_missing(Metric::procs), Absence::hidden);
  ASSERT_EQ(reading.processes->size(), 1U);
  EXPECT_FALSE((*reading.processes)[0].here);
}

TEST_F(FileUsersTest, ASimulationsFdinfoStandsForTheKernels) {
  make(10, {"dri/renderD128"});
  info(10, 3, "pos:\t0\n");
  tree_.write("sim/proc/10/fdinfo/3", client(1, "drm-engine-ccs:\t5 ns\n"));
  EXPECT_EQ(sample_intel()[Metric::procs], 1);
}

TEST_F(FileUsersTest, AnAnswerServesForAWhile) {
  needs_.lists_every = 1h;
  make(10, {"dri/renderD128"});
  info(10, 3, client(1, "drm-engine-ccs:\t5 ns\n"));
  EXPECT_EQ(sample_intel()[Metric::procs], 1);
  std::filesystem::remove_all(tree_.at("proc/10"));
  EXPECT_EQ(sample_intel()[Metric::procs], 1);
  needs_.lists_every = Duration::zero();
  EXPECT_EQ(sample_intel()[Metric::procs], 0);
}

}  // namespace
}  // namespace lull
