// The machine's files: what the driver and the kernel tell beside NVML, and what wakes a card.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "sim/library/library_test.h"
#include "sim/machine.h"

namespace {

using namespace lull::sim;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Machine : public OnSim {
 protected:
  static Plan plan() {
    Plan plan = plan_of({"H100", "RTX 4090"});
    plan.gpus[1].gpu.begins_asleep = 1;
    return plan;
  }
  Machine() : OnSim(plan()) { EXPECT_TRUE(furnish_machine(sim_.folder(), plan())); }
  std::string status(unsigned gpu) const {
    const std::string place = gpu == 0 ? "0000:0b:00.0" : "0000:13:00.0";
    return text_of(sim_.folder() + "/sys/bus/pci/devices/" + place + "/power/runtime_status");
  }
};

TEST_F(Machine, HasTheFilesOfTheDriverAndTheCards) {
  const std::string device = sim_.folder() + "/sys/bus/pci/devices/0000:0b:00.0/";
  EXPECT_EQ(text_of(device + "vendor"), "0x10de\n");
  EXPECT_EQ(text_of(device + "class"), "0x030200\n");
  EXPECT_EQ(text_of(device + "device"), "0x2330\n");
  const std::string driver = sim_.folder() + "/proc/driver/nvidia/";
  EXPECT_NE(text_of(driver + "version").find("535.261.03"), std::string::npos);
  const std::string information = text_of(driver + "gpus/0000:13:00.0/information");
  for (const char* part : {"Model: \t\t NVIDIA GeForce RTX 4090\n", "GPU UUID: \t GPU-", "Device Minor: \t 1\n"})
    EXPECT_NE(information.find(part), std::string::npos) << information;
}

TEST_F(Machine, TheDriversVersionIsGoneWhileItIsNotLoaded) {
  const std::string file = sim_.folder() + "/proc/driver/nvidia/version";
  auto writer = sim_.writer();
  ASSERT_TRUE(writer.add_faults({fault_on(kWholeDriver, kDriverNotLoaded)}));
  EXPECT_EQ(text_of(file), "");
  EXPECT_NE(::access(file.c_str(), F_OK), 0);
  ASSERT_TRUE(writer.clear());
  EXPECT_NE(text_of(file), "");
  ASSERT_EQ(::unlink(file.c_str()), 0);
  ASSERT_TRUE(writer.set({{0, Metric::util, 5}}));
  EXPECT_EQ(text_of(file), "") << "removed by hand, it stays away";
}

TEST_F(Machine, ACallWakesOnlyItsGpuAndInitNone) {
  unsigned count = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetCount_v2", &count), kSuccess);
  EXPECT_EQ(status(0), "active\n");
  EXPECT_EQ(status(1), "suspended\n");
  device_[0] = device(0);
  EXPECT_EQ(status(1), "suspended\n");
  device_[1] = device(1);
  EXPECT_EQ(status(1), "active\n") << "finding it wakes it";
  auto writer = sim_.writer();
  ASSERT_TRUE(writer.put_to_sleep(1, true));
  EXPECT_EQ(status(1), "suspended\n");
  EXPECT_EQ(util_result(0), kSuccess);
  EXPECT_EQ(status(1), "suspended\n");
  EXPECT_EQ(util_result(1), kSuccess);
  EXPECT_EQ(status(1), "active\n");
  ASSERT_TRUE(writer.put_to_sleep(1, true));
  ASSERT_TRUE(writer.put_to_sleep(1, false));
  EXPECT_EQ(status(1), "active\n");
}

}  // namespace
