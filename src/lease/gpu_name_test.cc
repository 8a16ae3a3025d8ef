#include "lease/record.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

Device card(const std::string& bus, bool shares) {
  Device device;
  device.uuid = "GPU-1";
  device.pci = "00000000:" + bus + ":00.0";
  device.shares_uuid = shares;
  return device;
}

TEST(LeaseName, IsTheUuid) { EXPECT_EQ(lease_name(card("3B", false)), "GPU-1"); }

TEST(LeaseName, OfAGpuWhoseUuidIsSharedIsItsPlace) {
  EXPECT_EQ(lease_name(card("3B", true)), "PCI-00000000-3B-00-0");
  EXPECT_TRUE(plain_word(lease_name(card("3B", true)))) << "it is part of a file's name";
  EXPECT_NE(lease_name(card("3B", true)), lease_name(card("5E", true)));
  Device part = card("3B", true);
  part.kind = DeviceKind::mig;
  EXPECT_EQ(lease_name(part), "") << "CUDA knows it by its UUID alone";
}

TEST(LeaseName, BothNamesAreKnownWhoeverSeesOneCardOnly) {
  EXPECT_TRUE(is_leased_as(card("3B", false), "PCI-00000000-3B-00-0"));
  EXPECT_TRUE(is_leased_as(card("3B", true), "GPU-1")) << "which of the two is meant, nobody knows";
  EXPECT_FALSE(is_leased_as(card("3B", true), "PCI-00000000-5E-00-0"));
  EXPECT_FALSE(is_leased_as(Device(), ""));
  EXPECT_EQ(lease_names(card("3B", true)), (std::vector<std::string>{"PCI-00000000-3B-00-0", "GPU-1"}));
  EXPECT_TRUE(lease_names(Device()).empty());
}

}  // namespace
}  // namespace lull
