// Which GPUs the variables of ROCm and Level Zero mean.
#include "sense/select.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

using Places = std::vector<std::size_t>;

class RuntimeVisible : public testing::Test {
 protected:
  Device& add(Vendor vendor, unsigned bus) {
    Device& device = inventory_.devices.emplace_back();
    device.vendor = vendor;
    device.index = static_cast<unsigned>(inventory_.devices.size()) - 1;
    device.pci = "00000000:0" + std::to_string(bus) + ":00.0";
    return device;
  }
  // Four GPUs whose order for ROCm is the reverse of ours.
  void four_amd() {
    for (unsigned i = 0; i < 4; ++i) {
      Device& device = add(Vendor::amd, i);
      device.uuid = "GPU-5d1f00000000000" + std::to_string(i);
      device.kfd_rank = 3 - i;
    }
  }
  Visible one() const {
    const auto all = visible_by_variables(variables_, inventory_);
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? Visible{} : all[0].visible;
  }
  Places rocr(const std::string& value) {
    variables_ = {.rocr_visible_devices = value};
    return one().devices;
  }

  Inventory inventory_;
  RuntimeVariables variables_;
};

TEST_F(RuntimeVisible, NothingIsSaidWithoutAVariableOrAGpuOfItsVendor) {
  four_amd();
  EXPECT_TRUE(visible_by_variables(variables_, inventory_).empty());
  variables_.ze_affinity_mask = "0";
  variables_.hip_visible_devices = "";
  EXPECT_TRUE(visible_by_variables(variables_, inventory_).empty());
}

TEST_F(RuntimeVisible, RocrCountsInKfdsOrder) {
  four_amd();
  EXPECT_EQ(rocr("0"), Places{3});
  EXPECT_EQ(rocr("1,0"), (Places{2, 3}));
  EXPECT_EQ(rocr("0x2"), Places{1});
  EXPECT_EQ(rocr(" gpu-5d1f000000000000 ,0"), (Places{0, 3}));
  EXPECT_EQ(rocr(""), Places{});
}

TEST_F(RuntimeVisible, WhatRocrDoesNotUnderstandEndsTheList) {
  four_amd();
  EXPECT_EQ(rocr("0,9,1"), Places{3});
  EXPECT_EQ(rocr("0,-1,1"), Places{3});
  EXPECT_EQ(rocr("0,x,1"), Places{3});
  EXPECT_EQ(rocr("0,,1"), Places{3});
  EXPECT_EQ(rocr("0,0,1"), Places{3}) << "named before";
  EXPECT_EQ(rocr("0,GPU-5d1f,1"), Places{3}) << "means several";
  EXPECT_EQ(rocr("0,GPU-ffff,1"), Places{3});
  EXPECT_EQ(rocr("GPU-5d1f0000000000000"), Places{}) << "too long";
}

TEST_F(RuntimeVisible, HipCountsInWhatRocrLeaves) {
  four_amd();
  variables_ = {.rocr_visible_devices = "2,3", .hip_visible_devices = "1"};
  EXPECT_EQ(one().devices, Places{0});
  variables_ = {.hip_visible_devices = "0,7,1"};
  EXPECT_EQ(one().devices, Places{3});
  variables_ = {.hip_visible_devices = "-1"};
  EXPECT_EQ(one().devices, Places{});
  EXPECT_EQ(visible_by_variables(variables_, inventory_)[0].none, "HIP_VISIBLE_DEVICES hides every GPU");
  variables_ = {.cuda_visible_devices = "1"};
  EXPECT_EQ(one().devices, Places{2}) << "HIP reads that as well";
  EXPECT_EQ(visible_by_variables(variables_, inventory_)[0].variable, "CUDA_VISIBLE_DEVICES");
  variables_ = {.cuda_visible_devices = "1", .hip_visible_devices = "0"};
  EXPECT_EQ(one().devices, Places{3}) << "its own first";
}

TEST_F(RuntimeVisible, AnUnknownOrderMayMeanAll) {
  four_amd();
  for (const unsigned rank : {9U, 2U}) {
    inventory_.devices[0].kfd_rank = rank;
    variables_ = {.rocr_visible_devices = "0"};
    EXPECT_EQ(one().devices, (Places{0, 1, 2, 3}));
    EXPECT_FALSE(one().certain);
    EXPECT_FALSE(one().note.empty());
  }
  for (Device& device : inventory_.devices) device.kfd_rank.reset();
  EXPECT_EQ(one().devices, (Places{0, 1, 2, 3}));
  variables_ = {.rocr_visible_devices = ""};
  EXPECT_EQ(one().devices, Places{}) << "in any order";
  EXPECT_TRUE(one().certain);
}

TEST_F(RuntimeVisible, CudaMeansNvidiaGpusAloneWhereThereAreSome) {
  add(Vendor::nvidia, 1);
  add(Vendor::nvidia, 2);
  four_amd();
  variables_ = {.cuda_visible_devices = "1"};
  EXPECT_EQ(one().devices, Places{1});
  variables_.rocr_visible_devices = "0";
  const auto all = visible_by_variables(variables_, inventory_);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].visible.devices, Places{5}) << "and that does not count in ROCm's";
}

TEST_F(RuntimeVisible, TogetherTheyGiveWhatEachGivesAndWithoutAnyAllAreSeen) {
  add(Vendor::nvidia, 1);
  add(Vendor::nvidia, 2);
  four_amd();
  add(Vendor::intel, 6);
  EXPECT_EQ(visible_here({}, inventory_).devices.size(), 7U);
  EXPECT_EQ(visible_here({.cuda_visible_devices = "1"}, inventory_).devices, Places{1}) << "as a job's";
  EXPECT_EQ(visible_here({.cuda_visible_devices = "", .rocr_visible_devices = "0"}, inventory_).devices, Places{5});
  EXPECT_EQ(visible_here({.cuda_visible_devices = "1,0", .ze_affinity_mask = "0"}, inventory_).devices,
            (Places{1, 0, 6}));
  const VisibleHere none = visible_here({.cuda_visible_devices = "", .rocr_visible_devices = "-1"}, inventory_);
  EXPECT_TRUE(none.devices.empty());
  EXPECT_EQ(none.none, "CUDA_VISIBLE_DEVICES hides every GPU, ROCR_VISIBLE_DEVICES hides every GPU");
}

TEST_F(RuntimeVisible, LevelZerosMaskNeedsItsTwoCompanions) {
  add(Vendor::intel, 5);
  variables_ = {.ze_affinity_mask = "0.1"};
  EXPECT_EQ(one().devices, Places{0}) << "there is one";
  add(Vendor::intel, 2);
  EXPECT_FALSE(one().certain);
  EXPECT_EQ(one().devices.size(), 2U);
  variables_ = {.ze_affinity_mask = "1", .ze_flat_device_hierarchy = "COMPOSITE", .ze_enable_pci_id_device_order = "1"};
  EXPECT_TRUE(one().certain);
  EXPECT_EQ(one().devices, Places{0}) << "by the bus it is the second";
  variables_.ze_affinity_mask = "0.1,7,x";
  EXPECT_EQ(one().devices, Places{1});
  variables_.ze_flat_device_hierarchy = "FLAT";
  EXPECT_EQ(one().devices.size(), 2U);
}

}  // namespace
}  // namespace lull
