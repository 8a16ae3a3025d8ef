#include "sim/files.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/fd.h"
#include "base/text.h"
#include "sim/machine.h"
#include "sim/testing.h"

namespace lull::sim {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kOneSecond = 1'000'000'000;
constexpr std::int64_t kBegin = 1000 * kOneSecond;

Plan by_hand(const std::vector<std::string>& models) {
  Plan plan = plan_of(models);
  plan.manual_boot_ns = kBegin;
  return plan;
}

class Files {
 public:
  explicit Files(const Plan& plan) : sim_(plan), writer_(sim_.writer()) {
    const auto made = furnish_machine(sim_.folder(), plan);
    if (!made) throw std::runtime_error(made.error().message());
  }
  explicit Files(const std::vector<std::string>& models) : Files(by_hand(models)) {}

  Writer& writer() { return writer_; }
  std::string folder() const { return sim_.folder(); }
  std::string sys(const std::string& path) const { return sim_.folder() + "/sys/" + path; }
  bool has(const std::string& path) const { return fs::exists(sys(path)); }
  std::string text(const std::string& path) const { return read_file(sys(path)).value_or("(missing)"); }
  double number(const std::string& path) const { return to_double(trim(text(path))).value_or(-1); }
  // The folder of sensors of a card.
  std::string hwmon(const std::string& device) const {
    return device + "/hwmon/" + fs::directory_iterator(sys(device + "/hwmon"))->path().filename().string();
  }
  void pass(std::int64_t ns) {
    writer_.set_time(boot_now_ns(writer_.state()) + ns);
    writer_.refresh();
  }
  void set(unsigned gpu, Metric metric, double to) { ASSERT_TRUE(writer_.set({{gpu, metric, to}})); }

 private:
  TestSim sim_;
  Writer writer_;
};

template <class T>
T field(const std::string& blob, std::size_t at) {
  T value{};
  if (at + sizeof value <= blob.size()) std::memcpy(&value, blob.data() + at, sizeof value);
  return value;
}

constexpr const char* kCard0 = "class/drm/card0/device";

TEST(SimulatedFiles, HaveTheKernelsPaths) {
  const Files files({"MI300X", "MI300X"});
  EXPECT_EQ(files.text("class/drm/card0/device/vendor"), "0x1002\n");
  EXPECT_EQ(files.text("class/drm/card8/device/vendor"), "0x1002\n");
  EXPECT_EQ(files.text("class/drm/renderD136/dev"), "226:136\n");
  EXPECT_EQ(fs::canonical(files.sys(kCard0)).filename(), "0000:0b:00.0");
  EXPECT_TRUE(fs::equivalent(files.sys(kCard0), files.sys("bus/pci/devices/0000:0b:00.0")));
  EXPECT_EQ(fs::read_symlink(files.sys("class/drm/card0")), "../../devices/pci0000:00/0000:0b:00.0/drm/card0");
  EXPECT_EQ(fs::canonical(files.sys("class/drm/card0/subsystem")), fs::canonical(files.sys("class/drm")));
  EXPECT_EQ(files.text("dev/char/226:128/uevent"), "MAJOR=226\nMINOR=128\nDEVNAME=dri/renderD128\nDEVTYPE=drm_minor\n");
  EXPECT_TRUE(fs::exists(files.folder() + "/dev/dri/renderD128"));
  EXPECT_TRUE(fs::exists(files.folder() + "/dev/kfd"));
}

TEST(SimulatedFiles, OfMI300HideSensorsAndHavePlatformCards) {
  const Files files({"MI300X"});
  const std::string sensors = files.hwmon(kCard0);
  EXPECT_FALSE(files.has(sensors + "/temp1_input"));
  EXPECT_EQ(files.number(sensors + "/temp2_input"), 38000);
  EXPECT_FALSE(files.has(sensors + "/power1_average"));
  EXPECT_EQ(files.number(sensors + "/power1_input"), 141e6);
  EXPECT_TRUE(files.has("class/drm/card3/device/uevent"));
  EXPECT_FALSE(files.has("class/drm/card3/device/vendor"));
  EXPECT_EQ(field<std::uint8_t>(files.text(std::string(kCard0) + "/gpu_metrics"), 3), 6);
}

TEST(SimulatedFiles, OfKfdAreNotInTheOrderOfTheBus) {
  const Files files({"MI210", "MI210", "MI210", "MI210", "MI210"});
  std::vector<std::string> order;
  for (const int node : {2, 3, 4, 5, 6})
    order.emplace_back(
        trim(files.text("class/kfd/kfd/topology/nodes/" + std::to_string(node) + "/properties").substr(0)));
  const auto bus = [&](std::size_t i) {
    const std::string& text = order[i];
    const auto at = text.find("location_id ") + 12;
    return to_unsigned(std::string_view(text).substr(at, text.find('\n', at) - at)).value_or(0) >> 8;
  };
  EXPECT_EQ((std::vector{bus(0), bus(1), bus(2), bus(3), bus(4)}),
            (std::vector<std::uint64_t>{0x23, 0x1b, 0x0b, 0x13, 0x2b}));
  EXPECT_EQ(files.text("class/kfd/kfd/topology/nodes/0/gpu_id"), "0\n");
}

TEST(SimulatedFiles, FollowWhatIsSet) {
  Files files({"RX 7900 XTX"});
  files.set(0, Metric::util, 37);
  files.set(0, Metric::power, 210);
  files.set(0, Metric::temp, 61);
  files.set(0, Metric::mem_used, 8.0 * (1 << 30));
  const std::string device = kCard0;
  const std::string sensors = files.hwmon(device);
  EXPECT_EQ(files.number(device + "/gpu_busy_percent"), 37);
  EXPECT_EQ(files.number(sensors + "/power1_average"), 210e6);
  EXPECT_EQ(files.number(sensors + "/power1_cap"), 327e6);
  EXPECT_EQ(files.number(sensors + "/temp1_input"), 61000);
  EXPECT_EQ(files.number(device + "/mem_info_vram_used"), 8.0 * (1 << 30) + 60 * (1 << 20));
  const std::string blob = files.text(device + "/gpu_metrics");
  ASSERT_EQ(blob.size(), 120U);
  EXPECT_EQ(field<std::uint16_t>(blob, 0), 120);
  EXPECT_EQ(field<std::uint16_t>(blob, 16), 37);
  EXPECT_EQ(field<std::uint16_t>(blob, 22), 210);
  EXPECT_EQ(field<std::uint32_t>(blob, 80), 0xFFFFFFFF) << "a graphics chip does not count its activity";
}

TEST(SimulatedFiles, CannotBeReadWhereAValueIsNotThere) {
  Files files({"A770"});
  const std::string sensors = files.hwmon(kCard0);
  EXPECT_GT(files.number(sensors + "/temp1_input"), 0);
  files.set(0, Metric::temp, kUnsupported);
  EXPECT_EQ(files.text(sensors + "/temp1_input"), "");
}

TEST(SimulatedFiles, CountEnergyAndActivityThatWraps) {
  Plan plan = by_hand({"MI210"});
  plan.gpus[0].gpu.wrap_in_ns = 10 * kOneSecond;
  Files files(plan);
  files.set(0, Metric::util, 50);
  files.set(0, Metric::power, 200);
  const std::string path = std::string(kCard0) + "/gpu_metrics";
  const std::string before = files.text(path);
  files.pass(10 * kOneSecond);
  const std::string after = files.text(path);
  const double joules =
      static_cast<double>(field<std::uint64_t>(after, 24) - field<std::uint64_t>(before, 24)) * 15.259e-6;
  EXPECT_NEAR(joules, 2000, 1);
  EXPECT_NEAR(static_cast<double>(field<std::uint32_t>(after, 80) - field<std::uint32_t>(before, 80)), 500'000, 10);
  EXPECT_EQ(field<std::uint64_t>(after, 96) - field<std::uint64_t>(before, 96), 10U * 100'000'000);
  files.pass(10 * kOneSecond);
  EXPECT_LT(field<std::uint32_t>(files.text(path), 80), field<std::uint32_t>(after, 80)) << "20 s at 50 %: it wraps";
  files.pass(kOneSecond);
  EXPECT_NEAR(field<std::uint32_t>(files.text(path), 80), 50'000, 10);
}

TEST(SimulatedFiles, CountIdleTimeThatWraps) {
  Plan plan = by_hand({"B580", "A770"});
  plan.gpus[0].gpu.wrap_in_ns = 10 * kOneSecond;
  Files files(plan);
  const std::string xe = std::string(kCard0) + "/tile0/gt0/gtidle/idle_residency_ms";
  const std::string i915 = "class/drm/card1/gt/gt0/rc6_residency_ms";
  files.set(1, Metric::util, 75);
  const double i915_before = files.number(i915);
  EXPECT_NEAR(files.number(xe), 5'497'558 - 10'000, 1);
  files.pass(4 * kOneSecond);
  EXPECT_NEAR(files.number(xe), 5'497'558 - 6'000, 1);
  EXPECT_NEAR(files.number(i915) - i915_before, 1000, 1) << "a quarter of the time";
  EXPECT_EQ(files.text("class/drm/card1/power/rc6_residency_ms"), files.text(i915));
  files.pass(8 * kOneSecond);
  EXPECT_NEAR(files.number(xe), 2000, 1);
}

TEST(SimulatedFiles, OfIdleTimeMayStand) {
  Plan plan = by_hand({"B580"});
  plan.gpus[0].gpu.quirks |= kResidencyStands;
  Files files(plan);
  const std::string xe = std::string(kCard0) + "/tile0/gt0/gtidle/idle_residency_ms";
  const double before = files.number(xe);
  files.pass(4 * kOneSecond);
  EXPECT_EQ(files.number(xe), before);
}

TEST(SimulatedFiles, OfAJetsonHaveLoadAndRails) {
  Files files({"Orin"});
  EXPECT_EQ(files.number("class/devfreq/17000000.gpu/device/load"), 0);
  EXPECT_EQ(files.text("class/devfreq/17000000.gpu/device/power/runtime_status"), "suspended\n");
  files.set(0, Metric::util, 42);
  files.set(0, Metric::power, 30);
  EXPECT_EQ(files.number("class/devfreq/17000000.gpu/device/load"), 420);
  EXPECT_EQ(files.text("class/devfreq/17000000.gpu/device/of_node/name"), std::string("gpu\0", 4));
  const std::string sensors = "class/hwmon/hwmon0/";
  EXPECT_EQ(files.text(sensors + "in1_label"), "VDD_GPU_SOC\n");
  EXPECT_NEAR(files.number(sensors + "in1_input") * files.number(sensors + "curr1_input") / 1e6, 30, 0.05);
}

TEST(SimulatedFiles, SayThatACardSleeps) {
  Files files({"MI210"});
  const std::string status = std::string(kCard0) + "/power/runtime_status";
  EXPECT_EQ(files.text(status), "active\n");
  ASSERT_TRUE(files.writer().put_to_sleep(0, true));
  EXPECT_EQ(files.text(status), "suspended\n");
  const auto load = files.writer().hold(load_on(0, 10));
  EXPECT_EQ(files.text(status), "active\n") << "a process wakes it";
}

TEST(SimulatedFiles, OfRdnaReadBusyWhileSomebodyHoldsTheCard) {
  Plan plan = by_hand({"RX7900XTX", "RX7900XTX"});
  plan.gpus[0].gpu.quirks |= kPhantomBusy;
  plan.gpus[1].gpu.idle_util = 4;
  Files files(plan);
  const auto busy = [&](int card) {
    return files.number("class/drm/card" + std::to_string(card) + "/device/gpu_busy_percent");
  };
  EXPECT_EQ(busy(0), 0);
  EXPECT_EQ(busy(1), 0);
  auto first = files.writer().hold(load_on(0, 0));
  const auto second = files.writer().hold(load_on(1, 0));
  EXPECT_EQ(busy(0), 100);
  EXPECT_EQ(files.number(std::string(kCard0) + "/mem_busy_percent"), 0);
  EXPECT_EQ(files.number(files.hwmon(kCard0) + "/power1_average"), 44e6) << "at rest all the same";
  const double one = busy(1);
  files.pass(kOneSecond);
  const double other = busy(1);
  EXPECT_EQ(std::max(one, other), 4);
  EXPECT_EQ(std::min(one, other), 3);
  first->release();
  files.pass(kOneSecond);
  EXPECT_EQ(busy(0), 0);
}

TEST(SimulatedFiles, OfKfdFollowProcesses) {
  Files files({"MI210", "MI210"});
  const std::string at = "class/kfd/kfd/proc/" + std::to_string(::getpid());
  EXPECT_FALSE(files.has(at));
  const State& state = files.writer().state();
  const auto id = [&](unsigned gpu) { return std::to_string(state.gpus[gpu].kfd_id); };
  auto hold = files.writer().hold(load_on(1, 50, std::uint64_t{3} << 30));
  EXPECT_EQ(files.number(at + "/vram_" + id(1)), 3.0 * (1 << 30));
  EXPECT_EQ(files.number(at + "/vram_" + id(0)), 0) << "a file for every card that it may open";
  EXPECT_EQ(files.text(at + "/queues/0/gpuid"), id(1));
  EXPECT_TRUE(files.has(at + "/queues/1/gpuid"));
  EXPECT_FALSE(files.has(at + "/queues/2"));
  files.pass(kOneSecond);
  hold->release();
  files.pass(kOneSecond);
  EXPECT_FALSE(files.has(at));
}

TEST(SimulatedFiles, OfKfdDoNotHaveWhoDraws) {
  Files files({"RX7900XTX"});
  const auto hold = files.writer().hold(load_on(0, 50, 1 << 30, kGraphics));
  EXPECT_FALSE(files.has("class/kfd/kfd/proc/" + std::to_string(::getpid())));
}

class Fdinfo : public Files {
 public:
  explicit Fdinfo(const std::string& model, std::uint32_t kind = kCompute) : Files(std::vector{model}) {
    Load load = load_on(0, 50, std::uint64_t{2} << 30, kind);
    load.drm_fds[0] = 7;
    load.drm_fds[1] = 9;
    hold_ = writer().hold(load).value();
  }
  std::string shown(int fd) const {
    return read_file(folder() + "/proc/" + std::to_string(::getpid()) + "/fdinfo/" + std::to_string(fd))
        .value_or("(missing)");
  }
  std::string value(std::string_view key) const {
    std::istringstream lines(shown(7));
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(std::string(key) + ":")) return std::string(trim(line.substr(key.size() + 1)));
    return "(missing)";
  }
  void end() { hold_.release(); }

 private:
  Hold hold_;
};

TEST(SimulatedFdinfo, OfI915CountsNanoseconds) {
  Fdinfo info("A770");
  EXPECT_EQ(info.value("drm-driver"), "i915");
  EXPECT_EQ(info.value("drm-pdev"), "0000:0b:00.0");
  EXPECT_EQ(info.value("drm-engine-compute"), "0 ns");
  info.pass(4 * kOneSecond);
  EXPECT_EQ(info.value("drm-engine-compute"), "2000000000 ns");
  EXPECT_EQ(info.value("drm-engine-render"), "0 ns");
  EXPECT_EQ(info.value("drm-total-local0"), "2097152 KiB");
  EXPECT_EQ(info.shown(7), info.shown(9)) << "one client by two descriptors";
  info.end();
  info.pass(kOneSecond);
  EXPECT_EQ(info.shown(7), "(missing)");
}

TEST(SimulatedFdinfo, OfXeCountsCycles) {
  Fdinfo info("B580");
  info.pass(4 * kOneSecond);
  EXPECT_EQ(info.value("drm-driver"), "xe");
  EXPECT_EQ(info.value("drm-cycles-ccs"), "38400000");
  EXPECT_EQ(info.value("drm-total-cycles-ccs"), "76800000");
  EXPECT_EQ(info.value("drm-resident-vram0"), "2097152 KiB");
}

TEST(SimulatedFdinfo, OfAmdgpuHasGraphicsAlone) {
  Fdinfo computes("RX7900XTX");
  Fdinfo draws("RX7900XTX", kGraphics);
  computes.pass(2 * kOneSecond);
  draws.pass(2 * kOneSecond);
  EXPECT_EQ(computes.value("drm-engine-gfx"), "0 ns");
  EXPECT_EQ(computes.value("drm-memory-vram"), "0 KiB");
  EXPECT_EQ(draws.value("drm-engine-gfx"), "1000000000 ns");
  EXPECT_EQ(draws.value("drm-memory-vram"), "2097152 KiB");
}

TEST(SimulatedFiles, MayBeHidden) {
  Plan plan = by_hand({"RX7900XTX"});
  copy_text(plan.gpus[0].gpu.hidden, ",power1_cap,gpu_metrics,");
  const Files files(plan);
  EXPECT_FALSE(files.has(std::string(kCard0) + "/gpu_metrics"));
  EXPECT_FALSE(files.has(files.hwmon(kCard0) + "/power1_cap"));
  EXPECT_TRUE(files.has(files.hwmon(kCard0) + "/power1_cap_max"));
}

TEST(SimulatedFiles, FailWithAFault) {
  Files files({"MI210"});
  const auto look = [&](const std::string& name) {
    const State& state = files.writer().state();
    const auto entries = file_entries(state);
    const auto entry =
        std::ranges::find_if(entries, [&](const FileEntry& each) { return each.path.ends_with("/" + name); });
    return files.writer().mapping().read([&](const Live& live) {
      return content_of(*entry, {const_cast<State&>(state), false, live, files.writer().mapping().now_ns()});
    });
  };
  Fault fault{.gpu = 0, .kind = FaultKind::file, .code = EBUSY, .from_ns = -1};
  copy_text(fault.function, "gpu_busy*");
  ASSERT_TRUE(files.writer().add_faults({fault}));
  EXPECT_EQ(look("gpu_busy_percent").error, EBUSY);
  EXPECT_EQ(look("mem_busy_percent").error, 0);
  EXPECT_EQ(files.text(std::string(kCard0) + "/gpu_busy_percent"), "") << "a plain file can only be empty";
  ASSERT_TRUE(files.writer().add_faults({{.gpu = 0, .code = 15, .from_ns = -1}}));  // NVML's "GPU is lost"
  EXPECT_EQ(look("mem_busy_percent").error, ENODEV);
  EXPECT_EQ(look("runtime_status").error, 0) << "the kernel's own";
  ASSERT_TRUE(files.writer().clear_faults(kEveryGpu));
  EXPECT_EQ(look("gpu_busy_percent").text, "0\n");
}

TEST(SimulatedFiles, AreNotOfNvidiasCards) {
  const Files files({"H100", "T4"});
  EXPECT_FALSE(files.has("devices"));
  EXPECT_FALSE(files.has("class"));
}

TEST(Models, OfOtherVendorsAreFoundByTheirNames) {
  EXPECT_EQ(model("7900 xtx").value().vendor, Vendor::amd);
  EXPECT_EQ(model("navi31").value().pci_device_id, 0x744c1002U);
  EXPECT_EQ(model("arc a770").value().vendor, Vendor::intel);
  EXPECT_EQ(model("Orin").value().vendor, Vendor::tegra);
}

}  // namespace
}  // namespace lull::sim
