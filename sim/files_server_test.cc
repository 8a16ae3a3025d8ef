#include "sim/files_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <filesystem>
#include <thread>

#include "base/fd.h"
#include "base/text.h"
#include "sim/machine.h"
#include "sim/models.h"
#include "sim/testing.h"

namespace lull::sim {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSecondOfNs = 1'000'000'000;

class ServedFiles : public testing::Test {
 protected:
  ServedFiles() : plan_(plan_of({"MI210", "A770"})) { plan_.manual_boot_ns = 1000 * kSecondOfNs; }

  void SetUp() override {
    sim_.emplace(plan_);
    ASSERT_TRUE(furnish_machine(sim_->folder(), plan_));
    auto server = start_files_server(sim_->folder());
    if (!server) GTEST_SKIP() << server.error().message();
    server_.emplace(*std::move(server));
    writer_.emplace(sim_->writer());
  }

  std::string at(const std::string& path) const { return sim_->folder() + "/sys/" + path; }
  std::string busy() const { return at("class/drm/card0/device/gpu_busy_percent"); }
  std::string text(const std::string& path) const {
    const auto content = read_file(path);
    return content ? *content : "errno " + std::to_string(content.error().errno_value);
  }
  void fault(int error, const char* file, FaultKind kind = FaultKind::file) {
    Fault made{.gpu = 0, .kind = kind, .code = error, .from_ns = -1};
    copy_text(made.function, file);
    ASSERT_TRUE(writer_->add_faults({made}));
  }

  Plan plan_;
  std::optional<TestSim> sim_;
  std::optional<FuseServer> server_;  // goes before the folder does
  std::optional<Writer> writer_;
};

TEST_F(ServedFiles, AreMadeAsTheyAreRead) {
  EXPECT_EQ(text(busy()), "0\n");
  const Fd kept = open_file(busy(), O_RDONLY).value();
  ASSERT_TRUE(writer_->set({{0, Metric::util, 100}}));
  EXPECT_EQ(text(busy()), "100\n");
  char bytes[16] = {};
  EXPECT_EQ(::pread(kept.get(), bytes, sizeof bytes, 0), 4) << "also by a descriptor that was open before";
  const double before = to_double(trim(text(at("class/drm/card1/gt/gt0/rc6_residency_ms")))).value_or(-1);
  writer_->set_time(boot_now_ns(writer_->state()) + 3 * kSecondOfNs);
  EXPECT_EQ(to_double(trim(text(at("class/drm/card1/gt/gt0/rc6_residency_ms")))), before + 3000)
      << "the time alone changes them";
}

TEST_F(ServedFiles, HaveFoldersAndLinks) {
  EXPECT_EQ(fs::canonical(at("class/drm/card0/device")).filename(), "0000:0b:00.0");
  EXPECT_EQ(fs::canonical(at("class/drm/card0/subsystem")), fs::canonical(at("class/drm")));
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(at("devices/pci0000:00/0000:0b:00.0")))
    names.insert(entry.path().filename());
  EXPECT_TRUE(names.contains("drm") && names.contains("hwmon") && names.contains("gpu_metrics"));
  EXPECT_EQ(fs::file_size(busy()), 4096U) << "as sysfs says";
  EXPECT_EQ(open_file(busy(), O_RDWR).error().errno_value, EACCES);
  EXPECT_FALSE(fs::exists(at("devices/pci0000:00/0000:0b:00.0/nothing")));
}

TEST_F(ServedFiles, FailAsTheKernelDoes) {
  for (const int error : {EBUSY, EPERM, EINVAL, ENOENT}) {
    fault(error, "gpu_busy_percent");
    EXPECT_EQ(text(busy()), "errno " + std::to_string(error));
    EXPECT_EQ(text(at("class/drm/card0/device/mem_busy_percent")), "0\n") << "that one alone";
    ASSERT_TRUE(writer_->clear_faults(kEveryGpu));
    EXPECT_EQ(text(busy()), "0\n");
  }
  fault(0, "gpu_busy_percent");
  EXPECT_EQ(text(busy()), "");
  ASSERT_TRUE(writer_->set({{0, Metric::temp, kUnsupported}}));
  const std::string sensors = at("class/drm/card0/device/hwmon/hwmon0");
  EXPECT_EQ(text(sensors + "/temp1_input"), "errno " + std::to_string(EOPNOTSUPP));
}

TEST_F(ServedFiles, HangUntilTheFaultIsOver) {
  fault(0, "gpu_busy_percent", FaultKind::dstate);
  std::atomic<bool> done = false;
  std::string got;
  std::thread reader([&] {
    got = text(busy());
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(done);
  EXPECT_EQ(text(at("class/drm/card1/device/vendor")), "0x8086\n") << "nobody else waits";
  ASSERT_TRUE(writer_->clear_faults(kEveryGpu));
  reader.join();
  EXPECT_EQ(got, "0\n");
}

TEST_F(ServedFiles, OfACardThatSleepsWakeIt) {
  const std::string status = at("class/drm/card0/device/power/runtime_status");
  ASSERT_TRUE(writer_->put_to_sleep(0, true));
  EXPECT_EQ(text(status), "suspended\n");
  EXPECT_EQ(text(at("class/drm/card0/device/vendor")), "0x1002\n");
  EXPECT_EQ(text(status), "suspended\n") << "neither of these touches the card";
  EXPECT_EQ(text(busy()), "0\n");
  EXPECT_EQ(text(status), "active\n");
}

TEST_F(ServedFiles, FollowProcesses) {
  const std::string kfd = at("class/kfd/kfd/proc");
  const std::string own = kfd + "/" + std::to_string(::getpid());
  EXPECT_TRUE(fs::is_empty(kfd));
  auto computes = writer_->hold(load_on(0, 50, std::uint64_t{1} << 30)).value();
  EXPECT_EQ(text(own + "/vram_" + std::to_string(writer_->state().gpus[0].kfd_id)), "1073741824\n");
  EXPECT_EQ(fs::directory_iterator(kfd)->path().filename(), std::to_string(::getpid()));
  EXPECT_TRUE(fs::exists(own + "/queues/0/gpuid"));
  Load load = load_on(1, 100);
  load.drm_fds[0] = 5;
  auto draws = writer_->hold(load).value();
  const std::string info = sim_->folder() + "/proc/" + std::to_string(::getpid()) + "/fdinfo/5";
  writer_->set_time(boot_now_ns(writer_->state()) + kSecondOfNs);
  EXPECT_NE(text(info).find("drm-engine-compute:\t1000000000 ns"), std::string::npos) << text(info);
  computes.release();
  draws.release();
  writer_->set_time(boot_now_ns(writer_->state()) + kSecondOfNs);
  EXPECT_TRUE(fs::is_empty(kfd));
  EXPECT_FALSE(fs::exists(info));
}

}  // namespace
}  // namespace lull::sim
