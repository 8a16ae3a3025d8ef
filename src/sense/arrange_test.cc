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

Device gpu_at(unsigned index, std::string uuid, const std::string& bus) {
  Device device = gpu(index, std::move(uuid));
  device.pci = "00000000:" + bus + ":00.0";
  return device;
}

TEST(Arrange, GpusWithTheSameUuidAreKnownByTheirPlace) {
  const std::vector<Device> now = {gpu_at(0, "A", "3B"), gpu_at(1, "A", "5E"), gpu_at(2, "B", "AF")};
  const Arrangement first = arrange({}, found(now));
  EXPECT_TRUE(first.devices[0].shares_uuid && first.devices[1].shares_uuid);
  EXPECT_FALSE(first.devices[2].shares_uuid);
  EXPECT_NE(first.devices[0].id(), first.devices[1].id());
  // Found again in another order: each keeps its position by its place.
  const std::vector<Device> turned = {gpu_at(0, "A", "5E"), gpu_at(1, "A", "3B"), gpu_at(2, "B", "AF")};
  const Arrangement again = arrange(first.devices, found(turned));
  ASSERT_EQ(again.devices.size(), 3U);
  EXPECT_EQ(again.rows[0].gpu, 1U);
  EXPECT_EQ(again.rows[1].gpu, 0U);
  EXPECT_EQ(again.devices[0].id(), first.devices[0].id());
}

TEST(Arrange, AUuidIsSharedFromTheMomentASecondGpuShowsIt) {
  const std::vector<Device> one = {gpu_at(0, "A", "3B"), gpu(1, "", Absence::waking)};
  const Arrangement first = arrange({}, found(one));
  EXPECT_FALSE(first.devices[0].shares_uuid);
  const std::vector<Device> both = {gpu_at(0, "A", "3B"), gpu_at(1, "A", "5E")};
  const Arrangement second = arrange(first.devices, found(both));
  ASSERT_EQ(second.devices.size(), 2U);
  EXPECT_EQ(second.rows[0].gpu, 0U);
  EXPECT_EQ(second.rows[1].gpu, 1U);
  EXPECT_TRUE(second.devices[0].shares_uuid && second.devices[1].shares_uuid);
  // One of them vanishes: the other is not taken for it.
  const std::vector<Device> left = {gpu_at(0, "A", "5E")};
  const Arrangement third = arrange(second.devices, found(left));
  ASSERT_EQ(third.devices.size(), 2U);
  EXPECT_EQ(third.devices[0].absence, Absence::lost);
  EXPECT_EQ(third.rows[0].gpu, kNobody);
  EXPECT_EQ(third.rows[1].gpu, 0U);
}

TEST(Arrange, OfTwoWithOneUuidThatMovedNeitherIsTakenForTheOther) {
  const std::vector<Device> before = {gpu_at(0, "A", "3B"), gpu_at(1, "A", "5E")};
  const Arrangement first = arrange({}, found(before));
  const std::vector<Device> moved = {gpu_at(0, "A", "11"), gpu_at(1, "A", "12")};
  const Arrangement second = arrange(first.devices, found(moved));
  ASSERT_EQ(second.devices.size(), 4U);
  EXPECT_EQ(second.rows[0].gpu, kNobody);
  EXPECT_EQ(second.rows[1].gpu, kNobody);
}

}  // namespace
}  // namespace lull
