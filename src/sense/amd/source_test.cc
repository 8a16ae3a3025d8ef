#include <gtest/gtest.h>

#include "sense/amd/gpu_metrics.h"
#include "sense/card_tree_test.h"
#include "sense/files.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

TEST(AmdGpus, EveryValueWithItsUnit) {
  CardTree cards;
  cards.add_navi();
  SampledCards gpus(cards, make_amd_source);
  ASSERT_EQ(gpus.source->count(), 1U);
  const Reading& reading = gpus.sample();
  EXPECT_EQ(gpus.device().vendor, Vendor::amd);
  EXPECT_EQ(gpus.device().uuid, "GPU-6f3a1c77d4ee90b0");
  EXPECT_EQ(gpus.device().pci, "00000000:03:00.0");
  EXPECT_EQ(gpus.device().name, "AMD Radeon RX 7900 XTX");
  EXPECT_EQ(gpus.device().render_minor, 128U);
  EXPECT_EQ(reading.device_absence, Absence::none);
  EXPECT_EQ(reading[Metric::util], 0);
  EXPECT_EQ(reading.util_basis, Basis::instant);
  EXPECT_EQ(reading[Metric::mem_util], 0);
  EXPECT_EQ(reading[Metric::mem_used], 60 << 20);
  EXPECT_EQ(reading[Metric::mem_total], 25753026560);
  EXPECT_EQ(reading[Metric::mem_free], 25753026560 - (60 << 20));
  EXPECT_DOUBLE_EQ(reading[Metric::power], 17);
  EXPECT_DOUBLE_EQ(reading[Metric::power_limit], 327);
  EXPECT_DOUBLE_EQ(reading[Metric::temp], 44);
  EXPECT_DOUBLE_EQ(reading[Metric::clock], 500);
  EXPECT_EQ(reading.mem_clock_mhz, 96);
  EXPECT_DOUBLE_EQ(reading[Metric::fan], 20);
  EXPECT_EQ(reading.why_missing(Metric::pstate), Absence::not_supported);
}

TEST(AmdGpus, AFileThatIsMissingEmptyOrNonsenseCostsItsOwnValueAndIsNeverZero) {
  for (const char* text : {"", "\n", "abc\n", "101\n", "-1\n", "5 %\n", "0x10\n", "18446744073709551615\n"}) {
    CardTree cards;
    const std::string device = cards.add_navi();
    cards.tree.write(device + "/gpu_busy_percent", text);
    SampledCards gpus(cards, make_amd_source);
    const Reading& reading = gpus.sample();
    EXPECT_EQ(reading.why_missing(Metric::util), Absence::implausible) << text;
    EXPECT_EQ(reading[Metric::mem_used], 60 << 20) << text;
    EXPECT_EQ(reading.device_absence, Absence::none);
    cards.tree.write(device + "/mem_info_vram_used", "99999999999999\n");
    EXPECT_EQ(gpus.sample(1s).why_missing(Metric::mem_used), Absence::implausible) << "more than there is";
  }
  CardTree cards;
  cards.remove(cards.add_navi() + "/gpu_busy_percent");
  SampledCards gpus(cards, make_amd_source);
  EXPECT_EQ(gpus.sample().why_missing(Metric::util), Absence::not_supported);
}

TEST(AmdGpus, ErrorsOfTheDriverAreReasons) {
  EXPECT_EQ(absence_of_errno(EBUSY), Absence::busy);
  EXPECT_EQ(absence_of_errno(EPERM), Absence::no_permission);
  EXPECT_EQ(absence_of_errno(524), Absence::not_supported);
  EXPECT_EQ(absence_of_errno(EINVAL), Absence::not_supported);
  EXPECT_EQ(absence_of_errno(ENODEV), Absence::lost);
  EXPECT_EQ(absence_of_errno(EIO), Absence::failed);
}

TEST(AmdGpus, WorkBetweenTwoSamplesIsInTheMean) {
  CardTree cards;
  const std::string device = cards.add_navi();
  SampledCards gpus(cards, make_amd_source);
  gpus.sample();
  EXPECT_LE(gpus.source->look_within(0), 200ms) << "a moment's value has to be looked at often";
  for (int i = 0; i < 24; ++i) {
    cards.write(device, "gpu_busy_percent", i < 12 ? 80 : 0);
    gpus.look(200ms);
  }
  const Reading& reading = gpus.sample(200ms);
  EXPECT_NEAR(reading[Metric::util], 38.4, 1);
  EXPECT_EQ(reading.util_basis, Basis::moments);
  EXPECT_GE(reading.util_coverage, 0.9);
  EXPECT_EQ(reading.util_newest.high, 0) << "the newest data are those of now";
  EXPECT_LE(reading.newest_span, 2s);
}

TEST(AmdGpus, AnIntervalThatNobodyLookedAtIsNotCovered) {
  CardTree cards;
  cards.add_navi();
  SampledCards gpus(cards, make_amd_source);
  gpus.sample();
  EXPECT_EQ(gpus.sample(30s).why_missing(Metric::util), Absence::not_covered);
}

TEST(AmdGpus, ASuspendedCardIsAsleepAndNothingElseIsReadOfIt) {
  CardTree cards;
  const std::string device = cards.add_navi();
  cards.tree.write(device + "/power/runtime_status", "suspended\n");
  cards.write(device, "gpu_busy_percent", 99);
  SampledCards gpus(cards, make_amd_source);
  const Reading& reading = gpus.sample();
  EXPECT_TRUE(reading.asleep);
  EXPECT_EQ(reading[Metric::util], 0);
  EXPECT_EQ(reading.why_missing(Metric::power), Absence::asleep);
  for (const char* other : {"suspending\n", "resuming\n", "error\n", "unsupported\n", ""}) {
    cards.tree.write(device + "/power/runtime_status", other);
    gpus.sample(1s);  // what it did since it slept is not known
    EXPECT_EQ(gpus.sample(1s)[Metric::util], 99) << other;
  }
}

TEST(AmdGpus, ACardThatWasAwakeSinceTheSampleBeforeIsNotIdleForSure) {
  CardTree cards;
  const std::string device = cards.add_navi();
  const auto be = [&](const char* state) { cards.tree.write(device + "/power/runtime_status", state); };
  SampledCards gpus(cards, make_amd_source);
  gpus.sample();
  be("suspended\n");
  EXPECT_EQ(gpus.sample(1s).why_missing(Metric::util), Absence::not_covered) << "it was awake at the sample before";
  EXPECT_TRUE(gpus.answer.gpu.asleep);
  EXPECT_EQ(gpus.sample(1s)[Metric::util], 0);
  be("active\n");
  gpus.look(100ms);
  be("suspended\n");
  EXPECT_EQ(gpus.sample(1s).why_missing(Metric::util), Absence::not_covered) << "a look saw it";
  EXPECT_EQ(gpus.sample(1s)[Metric::util], 0);
  cards.tree.write(device + "/power/runtime_active_time", "1000\n");
  EXPECT_EQ(gpus.sample(1s)[Metric::util], 0);
  cards.tree.write(device + "/power/runtime_active_time", "1500\n");
  EXPECT_EQ(gpus.sample(1s).why_missing(Metric::util), Absence::not_covered) << "the kernel counted it";
  be("active\n");
  EXPECT_EQ(gpus.sample(1s).why_missing(Metric::power), Absence::not_covered) << "a moment is not of the time before";
  EXPECT_DOUBLE_EQ(gpus.sample(1s)[Metric::power], 17);
  be("suspended\n");
  gpus.sample(1s);
  EXPECT_EQ(gpus.sample(1s)[Metric::util], 0);
}

TEST(AmdGpus, OneWithoutAnIdIsToldFromOneWhoseIdCannotBeRead) {
  CardTree cards;
  const std::string device = cards.add_navi();
  const auto without_uuid = [&] {
    SampledCards gpus(cards, make_amd_source);
    gpus.sample();
    return gpus.device().without_uuid;
  };
  EXPECT_FALSE(without_uuid());
  cards.tree.write(device + "/unique_id", "");
  EXPECT_FALSE(without_uuid()) << "it may be read later";
  cards.remove(device + "/unique_id");
  EXPECT_TRUE(without_uuid());
}

TEST(AmdGpus, ACardThatVanishesIsLost) {
  CardTree cards;
  const std::string device = cards.add_navi();
  SampledCards gpus(cards, make_amd_source);
  gpus.sample();
  cards.remove(device);
  EXPECT_EQ(gpus.sample(1s).device_absence, Absence::lost);
  EXPECT_EQ(gpus.answer.gpu.why_missing(Metric::util), Absence::lost);
}

// An MI300X hides its edge temperature, tells power by another name, and has cards that are no GPUs beside it.
TEST(AmdGpus, OfAnMi300HiddenSensorsAreReplacedAndItsPlatformCardsAreNoGpus) {
  CardTree cards;
  const std::string device = cards.add_navi(0, "0000:65:00.0");
  const std::string hwmon = device + "/hwmon/hwmon0";
  cards.remove(hwmon + "/temp1_input");
  cards.remove(hwmon + "/power1_average");
  cards.write(hwmon, "power1_input", 141'000'000);
  cards.tree.write("sys/devices/platform/amdgpu_xcp_0/drm/card1/dev", "226:1\n");
  cards.tree.link("sys/devices/platform/amdgpu_xcp_0/drm/card1/device", "../../../amdgpu_xcp_0");
  cards.tree.link("sys/class/drm/card1", "../../devices/platform/amdgpu_xcp_0/drm/card1");
  cards.tree.link("sys/class/drm/card0-DP-1", "../../devices");
  SampledCards gpus(cards, make_amd_source);
  EXPECT_EQ(gpus.source->count(), 1U);
  EXPECT_DOUBLE_EQ(gpus.sample()[Metric::temp], 52);
  EXPECT_DOUBLE_EQ(gpus.sample(1s)[Metric::power], 141);
}

TEST(AmdGpus, AScreenThatIsDrawnOnIsToldByItsOutputs) {
  CardTree cards;
  const std::string card = cards.add_navi() + "/drm/card0";
  const auto screen = [&](const char* status, const char* enabled) {
    cards.tree.write(card + "/card0-DP-1/status", std::string(status) + "\n");
    cards.tree.write(card + "/card0-DP-1/enabled", std::string(enabled) + "\n");
  };
  EXPECT_FALSE(SampledCards(cards, make_amd_source).sample().display_active) << "it has no outputs";
  cards.tree.link("sys/class/drm/card0-DP-1", "../../devices/pci0000:00/0000:03:00.0/drm/card0/card0-DP-1");
  screen("disconnected", "disabled");
  SampledCards gpus(cards, make_amd_source);
  EXPECT_EQ(gpus.sample().display_active, false);
  screen("connected", "enabled");
  EXPECT_EQ(gpus.sample(11s).display_active, true);
  screen("connected", "disabled");
  EXPECT_EQ(gpus.sample(11s).display_active, false);
}

TEST(AmdGpus, PowerOfZeroIsNotTold) {  // the second die of an MI250X
  CardTree cards;
  const std::string device = cards.add_navi();
  cards.write(device + "/hwmon/hwmon0", "power1_average", 0);
  cards.write(device + "/hwmon/hwmon0", "power1_cap", 0);
  SampledCards gpus(cards, make_amd_source);
  const Reading& reading = gpus.sample();
  EXPECT_EQ(reading.why_missing(Metric::power), Absence::not_supported);
  EXPECT_EQ(reading.why_missing(Metric::power_limit), Absence::not_supported);
}

TEST(AmdGpus, AnApuCountsTheMachinesMemoryToo) {
  CardTree cards;
  const std::string device = cards.add_navi();
  std::string blob = MetricsBlob().bytes();
  blob[2] = 2;  // v2_x is of APUs
  cards.tree.write(device + "/gpu_metrics", blob);
  cards.write(device, "mem_info_vram_total", 512 << 20);
  cards.write(device, "mem_info_gtt_used", 3 << 20);
  cards.write(device, "mem_info_gtt_total", 1 << 30);
  SampledCards gpus(cards, make_amd_source);
  const Reading& reading = gpus.sample();
  EXPECT_EQ(reading[Metric::mem_used], 63 << 20);
  EXPECT_EQ(reading[Metric::mem_total], (512 << 20) + (1 << 30));
  gpus.sample(1s);
  EXPECT_FALSE(gpus.device().integrated) << "without outputs it is there to compute";
}

TEST(AmdGpus, AnApuWithOutputsIsIntegrated) {
  CardTree cards;
  const std::string device = cards.add_navi();
  cards.tree.write("sys/class/drm/card0-HDMI-A-1/status", "disconnected\n");
  {
    SampledCards card(cards, make_amd_source);
    card.sample();
    card.sample(1s);
    EXPECT_FALSE(card.device().integrated) << "a card of its own";
  }
  std::string blob = MetricsBlob().bytes();
  blob[2] = 2;
  cards.tree.write(device + "/gpu_metrics", blob);
  SampledCards gpus(cards, make_amd_source);
  gpus.sample();
  gpus.sample(1s);
  EXPECT_TRUE(gpus.device().integrated);
}

TEST(AmdGpus, NonsenseForItsMetricsMakesNoApuOfACardAndIsForgotten) {
  CardTree cards;
  const std::string device = cards.add_navi();
  cards.write(device, "mem_info_gtt_used", 3 << 20);
  cards.write(device, "mem_info_gtt_total", 1 << 30);
  cards.tree.write(device + "/gpu_metrics", "18446744073709551615\n");
  SampledCards gpus(cards, make_amd_source);
  EXPECT_EQ(gpus.sample()[Metric::mem_total], 25753026560);
  cards.tree.write(device + "/gpu_metrics", MetricsBlob().bytes());
  EXPECT_TRUE(gpus.sample(1s).energy_joules) << "this time it is one";
}

// A card in KFD's topology.
class ComputeCard {
 public:
  ComputeCard() {
    gpus.needs.processes = true;
    cards.tree.link("proc/self/ns/pid", "pid:[4026531836]");
    std::filesystem::create_directories(cards.tree.at(kKfd + "proc"));
    cards.tree.write(node(0) + "gpu_id", "0\n");
    cards.tree.write("dev/dri/renderD128", "");
  }
  static std::string node(unsigned number) { return kKfd + "topology/nodes/" + std::to_string(number) + "/"; }
  void add_node(unsigned number, unsigned gpu, unsigned function = 0) const {
    cards.tree.write(node(number) + "properties",
                     "simd_count 304\ngfx_target_version 90402\ndomain 0\nunique_id 77\nlocation_id " +
                         std::to_string(0x300 + function) + "\ndrm_render_minor " + std::to_string(128 + function) +
                         "\n");
    cards.tree.write(node(number) + "gpu_id", std::to_string(gpu) + "\n");
  }
  void compute(pid_t pid, unsigned gpu) const {
    const std::string process = kKfd + "proc/" + std::to_string(pid);
    std::filesystem::create_directories(cards.tree.at(process + "/queues"));
    cards.tree.write(process + "/vram_" + std::to_string(gpu), "4096\n");
    cards.tree.write("proc/" + std::to_string(pid) + "/stat",
                     std::to_string(pid) +
                         " (x) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 "
                         "20 0 1 0 100 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n");
  }

  inline static const std::string kKfd = "sys/class/kfd/kfd/";
  CardTree cards;
  std::string device = cards.add_navi();
  SampledCards gpus{cards, make_amd_source};
};

TEST(AmdGpus, OneThatKfdMayKnowHasComputeProcessesThatNobodyTells) {
  ComputeCard card;
  card.compute(10, 11);
  card.cards.tree.write(ComputeCard::node(1) + "gpu_id", "");
  const Reading& reading = card.gpus.sample();
  EXPECT_EQ(reading.why_missing(Metric::procs), Absence::failed) << "not 0";
  EXPECT_TRUE(reading.processes_hidden);
  card.add_node(1, 11);
  card.gpus.sample(11s);
  EXPECT_EQ(card.gpus.sample(1s)[Metric::procs], 1) << "as soon as it can be read";
  EXPECT_EQ(card.gpus.device().kfd_rank, 0U);
}

TEST(AmdGpus, OneThatIsSplitWhileLullRunsIsNotReadAsItWas) {
  ComputeCard card;
  card.add_node(1, 11);
  EXPECT_EQ(card.gpus.sample()[Metric::procs], 0);
  EXPECT_FALSE(card.gpus.device().partition);
  card.add_node(1, 21);
  card.add_node(2, 22, 1);
  card.compute(10, 22);
  card.gpus.sample(11s);
  EXPECT_TRUE(card.gpus.device().partition);
  ASSERT_EQ(card.gpus.answer.parts.size(), 2U);
  EXPECT_EQ(card.gpus.answer.parts[0][Metric::procs], 0);
  EXPECT_EQ(card.gpus.answer.parts[1][Metric::procs], 1);
  EXPECT_EQ(card.gpus.answer.parts[1].why_missing(Metric::util), Absence::partition);
}

TEST(AmdGpus, OfASplitCardOnePartitionAloneIsNotTheCard) {
  ComputeCard card;
  card.add_node(1, 11);
  card.cards.tree.write(card.device + "/current_compute_partition", "CPX\n");
  card.gpus.sample();
  EXPECT_TRUE(card.gpus.device().partition) << "others are closed to us";
  EXPECT_EQ(card.gpus.answer.parts.size(), 1U);
}

TEST(AmdGpus, RdnaIsToldByItsBlocksAndInDoubtByWhatItIsMadeFor) {
  CardTree cards;
  const std::string device = cards.add_navi();
  const auto is_rdna = [&] {
    SampledCards gpus(cards, make_amd_source);
    gpus.sample();
    return gpus.device().idle_looks_hung;
  };
  EXPECT_TRUE(is_rdna()) << "a graphics card that does not say";
  cards.write(device, "class", 0, "0x120000");
  EXPECT_FALSE(is_rdna());
  cards.write(device, "ip_discovery/die/0/GC/0/major", 11);
  EXPECT_TRUE(is_rdna());
  cards.write(device, "class", 0, "0x030000");
  cards.write(device, "ip_discovery/die/0/GC/0/major", 9);
  EXPECT_FALSE(is_rdna());
}

// ---- gpu_metrics

TEST(AmdGpuMetrics, OnlyOneVersionOfOneSizeIsRead) {
  const std::string good = MetricsBlob{.gfx = 98, .watts = 287}.bytes();
  ASSERT_TRUE(parse_gpu_metrics(good));
  EXPECT_EQ(parse_gpu_metrics(good)->gfx_percent, 98);
  EXPECT_EQ(parse_gpu_metrics(good)->watts, 287);
  for (const auto& [at, byte] : {std::pair{0, 119}, {2, 2}, {3, 4}, {3, 2}}) {
    std::string other = good;
    other[static_cast<std::size_t>(at)] = static_cast<char>(byte);
    EXPECT_FALSE(parse_gpu_metrics(other)) << at;
  }
  EXPECT_FALSE(parse_gpu_metrics(good + "x"));
  EXPECT_FALSE(parse_gpu_metrics(good.substr(0, 119)));
  EXPECT_FALSE(parse_gpu_metrics(""));
}

TEST(AmdGpuMetrics, AllOnesIsUnknown) {
  const auto metrics = parse_gpu_metrics(MetricsBlob{
      .gfx = 0xffff, .umc = 0xffff, .watts = 0xffff, .energy = ~0ULL, .activity = ~0U, .firmware_time = ~0ULL}
                                             .bytes());
  ASSERT_TRUE(metrics);
  EXPECT_FALSE(metrics->gfx_percent || metrics->umc_percent || metrics->watts || metrics->energy || metrics->activity ||
               metrics->firmware_time);
}

// As the sensor looks: power twice a second.
class MeteredNavi {
 public:
  MeteredNavi() { write(); }
  void write() const { cards.tree.write(device + "/gpu_metrics", blob.bytes()); }
  // So long at so many watts, by the counter and by the moment's value.
  const Reading& run(double watts, double seen, bool counts = true) {
    cards.write(device + "/hwmon/hwmon0", "power1_average", static_cast<std::int64_t>(seen * 1e6));
    for (int i = 0; i < 25; ++i) {
      blob.firmware_time += 20'000'000;  // 200 ms
      if (counts) blob.energy += static_cast<std::uint64_t>(watts * 0.2 / 15.259e-6);
      write();
      gpus.look(200ms);
    }
    return gpus.sample();
  }
  CardTree cards;
  std::string device = cards.add_navi();
  MetricsBlob blob;
  SampledCards gpus{cards, make_amd_source};
};

TEST(AmdGpuMetrics, TheMeanPowerIsTheCountersOnceItAgreesWithTheMoments) {
  MeteredNavi navi;
  navi.gpus.sample();
  navi.run(100, 100);
  const Reading& reading = navi.run(120, 118);
  EXPECT_NEAR(reading[Metric::power], 120, 1);
  EXPECT_EQ(reading.power_basis, Basis::mean);
  EXPECT_NEAR(reading.energy_joules.value_or(0), static_cast<double>(navi.blob.energy) * 15.259e-6, 1);
}

TEST(AmdGpuMetrics, AnEnergyCounterThatStopsOrRunsBackwardsIsNotUsed) {
  MeteredNavi navi;
  navi.gpus.sample();
  navi.run(100, 100);
  EXPECT_NEAR(navi.run(0, 250, false)[Metric::power], 250, 1) << "the moments' mean";
  EXPECT_NEAR(navi.run(50, 250)[Metric::power], 250, 1) << "a counter that stood still in between, unseen";
  navi.blob.energy -= 5'000'000;
  navi.write();
  EXPECT_NEAR(navi.run(0, 240, false)[Metric::power], 240, 1);
}

TEST(AmdGpuMetrics, WorkThatOnlyTheActivityCounterSawCountsAlsoWhereItWraps) {
  MeteredNavi navi;
  navi.blob.activity = 0xffff'f000U;
  navi.write();
  navi.gpus.sample();
  EXPECT_EQ(navi.run(20, 20)[Metric::util], 0);
  navi.blob.activity += 100 * 2500;  // % x ms: half of the next 5 s
  const Reading& reading = navi.run(20, 20);
  EXPECT_NEAR(reading[Metric::util], 50, 1);
  EXPECT_NEAR(reading.util_newest.high, 50, 1);
}

}  // namespace
}  // namespace lull
