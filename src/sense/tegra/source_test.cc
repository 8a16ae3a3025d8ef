#include <gtest/gtest.h>

#include "sense/card_tree_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

class Orin {
 public:
  Orin() {
    gpu();
    cards.tree.write("sys/firmware/devicetree/base/model", std::string_view("NVIDIA Jetson AGX Orin\0", 23));
    for (const auto& [rail, label, millivolts, milliamperes] :
         {std::tuple{1, "VDD_CPU_CV", 19300, 40}, {2, "VDD_GPU_SOC", 19300, 120}, {3, "VIN_SYS_5V0", 5040, 520}}) {
      const std::string number = std::to_string(rail);
      cards.tree.write(hwmon + "/in" + number + "_label", std::string(label) + "\n");
      cards.write(hwmon, "in" + number + "_input", millivolts);
      cards.write(hwmon, "curr" + number + "_input", milliamperes);
    }
    cards.tree.write(hwmon + "/name", "ina3221\n");
    cards.tree.write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\n");
  }
  void gpu() const {
    cards.write(device, "load", 0);
    cards.tree.write(device + "/power/runtime_status", "active\n");
    cards.tree.write(device + "/of_node/name", std::string_view("gpu\0", 4));
    cards.tree.write(device + "/of_node/compatible", std::string_view("nvidia,ga10b\0", 13));
    cards.write(device, "devfreq/17000000.gpu/cur_freq", 306'000'000);
    cards.tree.link(device + "/devfreq/17000000.gpu/device", "../../../17000000.gpu");
    cards.tree.link("sys/class/devfreq/17000000.gpu", "../../devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu");
  }
  CardTree cards;
  std::string device = "sys/devices/platform/bus@0/17000000.gpu";
  std::string hwmon = "sys/class/hwmon/hwmon3";
};

TEST(Jetsons, LoadIsPerMilleAndPowerThatOfTheGpusRail) {
  Orin orin;
  orin.cards.write(orin.device, "load", 425);
  SampledCards gpus(orin.cards, make_tegra_source);
  ASSERT_EQ(gpus.source->count(), 1U);
  const Reading& reading = gpus.sample();
  EXPECT_DOUBLE_EQ(reading[Metric::util], 42.5);
  EXPECT_NEAR(reading[Metric::power], 19.3 * 0.12, 1e-9);
  EXPECT_EQ(reading.why_missing(Metric::power_limit), Absence::not_supported);
  EXPECT_DOUBLE_EQ(reading[Metric::clock], 306);
  EXPECT_EQ(reading[Metric::mem_free], 600 * 1024) << "it has no memory of its own";
  EXPECT_TRUE(reading.memory_estimated);
  EXPECT_EQ(reading.why_missing(Metric::mem_used), Absence::not_supported);
  EXPECT_EQ(gpus.device().name, "NVIDIA Jetson AGX Orin");
  EXPECT_EQ(gpus.device().vendor, Vendor::tegra);
  EXPECT_LE(gpus.source->look_within(0), 200ms);
}

TEST(Jetsons, NegativeVoltsTimesNegativeAmperesAreNoPower) {
  Orin orin;
  orin.cards.write(orin.hwmon, "in2_input", -19300);
  orin.cards.write(orin.hwmon, "curr2_input", -1);
  SampledCards gpus(orin.cards, make_tegra_source);
  EXPECT_EQ(gpus.sample().why_missing(Metric::power), Absence::implausible);
}

TEST(Jetsons, OlderKernelsNameTheRailElsewhere) {
  Orin orin;
  orin.cards.remove(orin.hwmon);
  const std::string chip = "sys/bus/i2c/drivers/ina3221x/7-0040/iio:device0";
  orin.cards.tree.write(chip + "/rail_name_0", "POM_5V_IN\n");
  orin.cards.tree.write(chip + "/rail_name_1", "POM_5V_GPU\n");
  orin.cards.write(chip, "in_voltage1_input", 5000);
  orin.cards.write(chip, "in_current1_input", 300);
  SampledCards gpus(orin.cards, make_tegra_source);
  EXPECT_DOUBLE_EQ(gpus.sample()[Metric::power], 1.5);
}

TEST(Jetsons, AGpuThatAppearsLateAtBootIsUnknownUntilThen) {
  Orin orin;
  orin.cards.remove("sys/class/devfreq");
  orin.cards.remove(orin.device);
  orin.cards.tree.write("sys/firmware/devicetree/base/compatible",
                        std::string_view("nvidia,p3701-0000\0nvidia,tegra234\0", 34));
  SampledCards gpus(orin.cards, make_tegra_source);
  ASSERT_EQ(gpus.source->count(), 1U);
  EXPECT_EQ(gpus.sample().device_absence, Absence::no_driver);
  orin.gpu();
  EXPECT_EQ(gpus.sample(1s)[Metric::util], 0);
}

TEST(Jetsons, NoLoadIsUnknownAndThorsGpuIsNoneOfOurs) {
  Orin orin;
  orin.cards.remove(orin.device + "/load");
  SampledCards gpus(orin.cards, make_tegra_source);
  ASSERT_EQ(gpus.source->count(), 1U);
  EXPECT_EQ(gpus.sample().why_missing(Metric::util), Absence::not_supported);
  orin.cards.tree.write(orin.device + "/of_node/compatible", std::string_view("nvidia,gb10b\0", 13));
  EXPECT_EQ(SampledCards(orin.cards, make_tegra_source).source->count(), 0U);
  orin.cards.write(orin.device, "load", 0);
  orin.cards.tree.write(orin.device + "/of_node/compatible", std::string_view("arm,mali-valhall\0", 17));
  EXPECT_EQ(SampledCards(orin.cards, make_tegra_source).source->count(), 0U) << "another maker's";
}

}  // namespace
}  // namespace lull
