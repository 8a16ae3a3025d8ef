#include "lease/visibility.h"

#include <gtest/gtest.h>

#include "sense/file_tree_test.h"

namespace lull {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Two GPUs of a machine of three, the first and the last, by this maker's PCI number.
class Visibility : public testing::Test {
 protected:
  Variables of(const std::string& vendor, bool uuid = false) {
    auto inventory = std::make_shared<Inventory>();
    for (unsigned i = 0; i < 3; ++i) {
      Device& device = inventory->devices.emplace_back();
      device.index = i;
      device.uuid = "GPU-" + std::string(1, static_cast<char>('a' + i));
      device.pci = "00000000:0" + std::to_string(i) + ":00.0";
      if (!vendor.empty())
        tree_.write("sys/bus/pci/devices/0000:0" + std::to_string(i) + ":00.0/vendor", vendor + "\n");
    }
    Picked picked;
    picked.snapshot.inventory = inventory;
    picked.snapshot.readings.resize(3);
    picked.devices = {0, 2};
    return visibility(picked, uuid, tree_.root());
  }
  TestTree tree_;
};

TEST_F(Visibility, OfNvidiaAndOfWhomeverNobodyKnows) {
  const Variables cuda = {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}, {"CUDA_VISIBLE_DEVICES", "0,2"}};
  EXPECT_EQ(of("0x10de"), cuda);
  EXPECT_EQ(of(""), cuda) << "in a container /sys may be missing";
  EXPECT_EQ(of("0x10de", true)[1].second, "GPU-a,GPU-c");
}

TEST_F(Visibility, OfAmdOnlyOneOfTheTwoSaysIt) {
  EXPECT_EQ(of("0x1002"), (Variables{{"HIP_VISIBLE_DEVICES", "0,2"}}));
  EXPECT_EQ(of("0x1002", true), (Variables{{"ROCR_VISIBLE_DEVICES", "GPU-a,GPU-c"}}));
}

TEST_F(Visibility, OfIntelByNumberInEitherCase) {
  const Variables mask = {{"ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"}, {"ZE_AFFINITY_MASK", "0,2"}};
  EXPECT_EQ(of("0x8086"), mask);
  EXPECT_EQ(of("0x8086", true), mask);
}

TEST_F(Visibility, AUuidThatTwoGpusHaveIsNotUsed) {
  auto inventory = std::make_shared<Inventory>();
  inventory->devices.resize(3);
  for (unsigned i = 0; i < 3; ++i) {
    inventory->devices[i].index = i;
    inventory->devices[i].uuid = i < 2 ? "GPU-a" : "GPU-c";
    inventory->devices[i].shares_uuid = i < 2;
  }
  Picked picked;
  picked.snapshot.inventory = inventory;
  picked.devices = {1, 2};
  EXPECT_EQ(visible_value(picked, true), "1,2") << "CUDA takes either numbers or UUIDs";
  picked.devices = {2};
  EXPECT_EQ(visible_value(picked, true), "GPU-c");
}

}  // namespace
}  // namespace lull
