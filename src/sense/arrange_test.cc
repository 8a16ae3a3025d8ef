#include "sense/arrange.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

constexpr std::size_t kNobody = Row::kNobody;

Device gpu(unsigned index, std::string uuid, Absence absence = Absence::none) {
  Device device;
  device.index = index;
  device.uuid = std::move(uuid);
  device.absence = absence;
  return device;
}

Device part(unsigned index, unsigned mig_index, std::string uuid) {
  Device device = gpu(index, std::move(uuid));
  device.kind = DeviceKind::mig;
  device.mig_index = mig_index;
  return device;
}

std::vector<FoundGpu> found(const std::vector<Device>& devices) {
  std::vector<FoundGpu> all;
  for (const Device& device : devices) {
    if (device.kind == DeviceKind::gpu)
      all.emplace_back().gpu = &device;
    else
      all.back().parts.push_back(&device);
  }
  return all;
}

TEST(Arrange, TheFirstTimeAsFound) {
  const std::vector<Device> now = {gpu(0, "A"), part(0, 0, "A0"), gpu(1, "B")};
  const Arrangement result = arrange({}, found(now));
  EXPECT_EQ(result.devices, now);
  EXPECT_EQ(result.rows[1].part, 0U);
  EXPECT_EQ(result.rows[2].gpu, 1U);
  EXPECT_EQ(result.rows[2].part, kNobody);
}

TEST(Arrange, AGpuKeepsItsPlaceWhenTheOrderChanges) {
  const std::vector<Device> before = {gpu(0, "A"), gpu(1, "B"), gpu(2, "C")};
  const std::vector<Device> now = {gpu(0, "C"), gpu(1, "A"), gpu(2, "B")};
  const Arrangement result = arrange(before, found(now));
  EXPECT_EQ(result.devices, (std::vector<Device>{gpu(1, "A"), gpu(2, "B"), gpu(0, "C")}));
  EXPECT_EQ(result.rows[0].gpu, 1U);
}

TEST(Arrange, AVanishedGpuIsLostAndNobodyTakesItsPlace) {
  const std::vector<Device> before = {gpu(0, "A"), gpu(1, "B"), gpu(2, "C")};
  const std::vector<Device> now = {gpu(0, "A"), gpu(1, "C"), gpu(2, "D")};
  const Arrangement result = arrange(before, found(now));
  ASSERT_EQ(result.devices.size(), 4U);
  EXPECT_EQ(result.devices[1].uuid, "B");
  EXPECT_EQ(result.devices[1].absence, Absence::lost);
  EXPECT_EQ(result.rows[1].gpu, kNobody);
  EXPECT_EQ(result.devices[2].uuid, "C");
  EXPECT_EQ(result.devices[3].uuid, "D");
}

TEST(Arrange, WhatCouldNotBeReadIsMatchedByIndex) {
  // Lost at the start, then it says who it is.
  const std::vector<Device> before = {gpu(0, "A"), gpu(1, "", Absence::lost)};
  const std::vector<Device> now = {gpu(0, "A"), gpu(1, "B")};
  EXPECT_EQ(arrange(before, found(now)).devices, now);
  // Known, then it cannot be read after the driver came back: still the one we knew.
  const std::vector<Device> later = {gpu(0, "A"), gpu(1, "", Absence::lost)};
  EXPECT_EQ(arrange(now, found(later)).devices, now);
}

TEST(Arrange, MigDevicesFollowTheirGpu) {
  const std::vector<Device> before = {gpu(0, "A"), part(0, 0, "A0"), gpu(1, "B")};
  const std::vector<Device> now = {gpu(0, "A"), part(0, 0, "A0"), part(0, 1, "A1"), gpu(1, "B")};
  const Arrangement result = arrange(before, found(now));
  EXPECT_EQ(result.devices, now);
  const std::vector<Device> merged = {gpu(0, "A"), gpu(1, "B")};
  EXPECT_EQ(arrange(now, found(merged)).devices, merged);
}

}  // namespace
}  // namespace lull
