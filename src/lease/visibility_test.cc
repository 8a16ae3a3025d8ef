#include "lease/visibility.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "sense/file_tree_test.h"

namespace lull {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;
using Names = std::vector<std::string>;

// Three GPUs of one vendor, of which the first and the last were picked.
class VisibilityTest : public testing::Test {
 protected:
  void SetUp() override { fill(Vendor::nvidia); }
  void fill(Vendor vendor) {
    inventory_.devices.clear();
    for (unsigned i = 0; i < 3; ++i) add(vendor, i);
  }
  Device& add(Vendor vendor, unsigned i) {
    Device& device = inventory_.devices.emplace_back();
    device.vendor = vendor;
    device.index = static_cast<unsigned>(inventory_.devices.size()) - 1;
    device.pci = "00000000:0" + std::to_string(i) + ":00.0";
    device.uuid = "GPU-" + std::string(1, static_cast<char>('a' + i));
    if (vendor == Vendor::amd) {
      device.uuid = "GPU-5d1f00000000000" + std::to_string(i);
      device.kfd_rank = 2 - i;  // KFD counts them otherwise
    }
    if (vendor == Vendor::amd || vendor == Vendor::intel) {
      device.render_minor = 128 + i;
      tree_.write("dev/dri/renderD" + std::to_string(128 + i), "");
    }
    if (vendor == Vendor::intel) device.uuid.clear();
    return device;
  }
  Result<Visibility> of(bool uuid = false) {
    return visibility(inventory_, picked_, uuid, tree_.root(), [this](const char* name) -> std::optional<std::string> {
      const auto found = environment_.find(name);
      return found != environment_.end() ? std::optional(found->second) : std::nullopt;
    });
  }
  std::string refused() {
    const auto all = of();
    return all ? "" : all.error().message();
  }

  TestTree tree_;
  Inventory inventory_;
  std::vector<std::size_t> picked_ = {0, 2};
  std::map<std::string, std::string> environment_;
};

TEST_F(VisibilityTest, OfNvidia) {
  EXPECT_EQ(of()->set, (Variables{{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}, {"CUDA_VISIBLE_DEVICES", "0,2"}}));
  EXPECT_TRUE(of()->removed.empty());
  EXPECT_EQ(of(true)->set[1].second, "GPU-a,GPU-c");
  fill(Vendor::tegra);
  EXPECT_EQ(of()->set[1].second, "0,2");
}

TEST_F(VisibilityTest, OfAmdByUuidAndCountedFromZeroInWhatThatLeaves) {
  fill(Vendor::amd);
  EXPECT_EQ(of()->set, (Variables{{"ROCR_VISIBLE_DEVICES", "GPU-5d1f000000000000,GPU-5d1f000000000002"},
                                  {"HIP_VISIBLE_DEVICES", "0,1"}}));
  EXPECT_EQ(of()->removed, (Names{"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}));
}

TEST_F(VisibilityTest, OfAmdByKfdsOrderWhereAUuidNamesSeveralOrNone) {
  fill(Vendor::amd);
  inventory_.devices[0].partition = true;
  EXPECT_EQ(of()->set[0].second, "2,GPU-5d1f000000000002");
  inventory_.devices[2].uuid = "GPU-5d1f";  // a beginning could mean another, too
  EXPECT_EQ(of()->set[0].second, "2,0");
  inventory_.devices[2].uuid.clear();
  EXPECT_EQ(of()->set[0].second, "2,0");
  inventory_.devices[2].kfd_rank.reset();
  EXPECT_NE(refused().find("GPU 2: ROCm does not count it"), std::string::npos) << refused();
}

TEST_F(VisibilityTest, OfIntelInTheOrderOfTheBus) {
  fill(Vendor::intel);
  std::swap(inventory_.devices[0].pci, inventory_.devices[1].pci);
  EXPECT_EQ(of()->set, (Variables{{"ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"},
                                  {"ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1"},
                                  {"ZE_AFFINITY_MASK", "1,2"}}));
}

TEST_F(VisibilityTest, OfIntelWithoutThoseThatLevelZeroDoesNotSee) {
  fill(Vendor::intel);
  std::filesystem::remove(tree_.at("dev/dri/renderD129"));
  EXPECT_EQ(of()->set[2].second, "0,1");
  picked_ = {1};
  EXPECT_NE(refused().find("renderD129 may not be opened"), std::string::npos) << refused();
  inventory_.devices[0].render_minor.reset();
  picked_ = {2};
  EXPECT_NE(refused().find("the order of"), std::string::npos) << "GPU 0 may come before it";
}

TEST_F(VisibilityTest, WhatTheCallersEnvironmentContradictsIsRefused) {
  fill(Vendor::intel);
  for (const auto& [name, value] : std::multimap<std::string, std::string>{{"ZE_FLAT_DEVICE_HIERARCHY", "FLAT"},
                                                                           {"ZE_ENABLE_PCI_ID_DEVICE_ORDER", "0"},
                                                                           {"ONEAPI_DEVICE_SELECTOR", "level_zero:1"},
                                                                           {"ONEAPI_DEVICE_SELECTOR", "opencl:gpu"}}) {
    environment_ = {{name, value}};
    EXPECT_NE(refused().find(name + "=" + value), std::string::npos) << name;
  }
  environment_ = {{"ZE_FLAT_DEVICE_HIERARCHY", "composite"},
                  {"ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1"},
                  {"ONEAPI_DEVICE_SELECTOR", "level_zero:gpu"},
                  {"ZE_AFFINITY_MASK", "7"}};
  EXPECT_EQ(refused(), "");
  fill(Vendor::amd);
  environment_ = {{"ZE_FLAT_DEVICE_HIERARCHY", "FLAT"}};
  EXPECT_EQ(refused(), "") << "no matter where there is no Intel GPU";
}

TEST_F(VisibilityTest, OfTwoVendorsThatWereNamedEachHasItsOwn) {
  add(Vendor::amd, 0);
  add(Vendor::intel, 1);
  picked_ = {1, 3, 4};
  EXPECT_EQ(of()->set, (Variables{{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                                  {"CUDA_VISIBLE_DEVICES", "1"},
                                  {"ROCR_VISIBLE_DEVICES", "GPU-5d1f000000000000"},
                                  {"HIP_VISIBLE_DEVICES", "0"},
                                  {"ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"},
                                  {"ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1"},
                                  {"ZE_AFFINITY_MASK", "0"}}));
  EXPECT_EQ(of()->removed, Names{"GPU_DEVICE_ORDINAL"}) << "HIP reads its own variable first";
}

// A runtime that is told nothing takes its vendor's first GPU, which is somebody else's.
TEST_F(VisibilityTest, GpusOfVendorsThatWereNotPickedAreHidden) {
  add(Vendor::amd, 0);
  add(Vendor::intel, 1);
  picked_ = {1};
  EXPECT_EQ(
      of()->set,
      (Variables{{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}, {"CUDA_VISIBLE_DEVICES", "1"}, {"ROCR_VISIBLE_DEVICES", ""}}))
      << "Level Zero takes an empty mask for all";
  picked_ = {3};
  EXPECT_EQ(of()->set, (Variables{{"CUDA_VISIBLE_DEVICES", ""},
                                  {"ROCR_VISIBLE_DEVICES", "GPU-5d1f000000000000"},
                                  {"HIP_VISIBLE_DEVICES", "0"}}));
  EXPECT_EQ(of()->removed, Names{"GPU_DEVICE_ORDINAL"});
  picked_ = {4};
  EXPECT_EQ(of()->set[0], (std::pair<std::string, std::string>{"CUDA_VISIBLE_DEVICES", ""}));
  EXPECT_EQ(of()->set[1], (std::pair<std::string, std::string>{"ROCR_VISIBLE_DEVICES", ""}));
}

TEST_F(VisibilityTest, AUuidThatTwoGpusHaveIsNotUsed) {
  for (unsigned i = 0; i < 2; ++i) {
    inventory_.devices[i].uuid = "GPU-a";
    inventory_.devices[i].shares_uuid = true;
  }
  const std::vector<std::size_t> both = {1, 2};
  EXPECT_EQ(visible_value(inventory_, both, true), "1,2") << "CUDA takes either numbers or UUIDs";
  EXPECT_EQ(visible_value(inventory_, std::vector<std::size_t>{2}, true), "GPU-c");
}

}  // namespace
}  // namespace lull
