// The one identity of a GPU: never empty, so that cards of which nothing could be read are never taken for one.

#include <gtest/gtest.h>

#include "gpu/snapshot.h"

namespace lull {
namespace {

TEST(DeviceIdTest, IsTheUuidWhereThereIsOne) {
  Device device;
  device.uuid = "GPU-1";
  device.index = 3;
  Device moved = device;
  moved.index = 0;
  moved.pci = "00000000:3B:00.0";
  EXPECT_EQ(device.id(), moved.id()) << "another place, the same card";
}

TEST(DeviceIdTest, WithoutUuidIsThePlaceAndNeverEmpty) {
  Device first;
  Device second;
  second.index = 1;
  EXPECT_NE(first.id(), second.id());
  EXPECT_FALSE(first.id().value.empty());
  Device part = first;
  part.kind = DeviceKind::mig;
  EXPECT_NE(part.id(), first.id()) << "a MIG device is not its parent";
  first.pci = second.pci = "00000000:3B:00.0";
  EXPECT_EQ(first.id(), second.id()) << "the address says more than the number";
}

TEST(DeviceIdTest, APlaceNamesTheCardUntilItsUuidCanBeRead) {
  Device before;
  before.index = 1;
  Device now = before;
  now.uuid = "GPU-1";
  now.pci = "00000000:3B:00.0";
  EXPECT_NE(before.id(), now.id());
  EXPECT_TRUE(now.is(before.id())) << "the one that could not be read";
  EXPECT_FALSE(before.is(now.id())) << "whether it is that card, nobody knows";
  Device other = now;
  other.index = 2;
  EXPECT_FALSE(other.is(before.id()));
}

TEST(DeviceIdTest, ASnapshotFindsItsReadingOrNone) {
  auto inventory = std::make_shared<Inventory>();
  inventory->devices.resize(2);
  inventory->devices[1].index = 1;
  Snapshot snapshot;
  snapshot.inventory = inventory;
  snapshot.readings.resize(2);
  EXPECT_EQ(snapshot.find(inventory->devices[1].id()), &snapshot.readings[1]);
  EXPECT_EQ(snapshot.find({"GPU-1"}), nullptr);
}

TEST(DeviceIdTest, ASharedUuidNamesNobody) {
  Device first;
  first.uuid = "GPU-1";
  first.pci = "00000000:3B:00.0";
  first.shares_uuid = true;
  Device second = first;
  second.index = 1;
  second.pci = "00000000:5E:00.0";
  EXPECT_NE(first.id(), second.id());
  EXPECT_FALSE(first.is({"GPU-1"}));
  EXPECT_TRUE(first.is(first.id()));
  EXPECT_FALSE(first.is(second.id()));
  EXPECT_FALSE(first.has_own_uuid());
}

TEST(InventoryTest, WarnsOfSharedUuidsAndOfGpusThatAreNotRead) {
  Inventory inventory;
  inventory.devices.resize(4);
  for (unsigned i = 0; i < 4; ++i) {
    inventory.devices[i].index = i;
    inventory.devices[i].pci = "00000000:0" + std::to_string(i) + ":00.0";
    inventory.devices[i].uuid = "GPU-" + std::to_string(i / 2);
    inventory.devices[i].shares_uuid = i < 2;
  }
  EXPECT_EQ(inventory.warnings(),
            (std::vector<std::string>{"the same UUID GPU-0 on GPU 0 (00000000:00:00.0), GPU 1 (00000000:01:00.0): they "
                                      "are told apart by PCI address"}));
  inventory.devices[0].shares_uuid = inventory.devices[1].shares_uuid = false;
  inventory.devices[3].absence = Absence::too_many;
  EXPECT_EQ(inventory.warnings(), (std::vector<std::string>{"this machine has 4 GPUs, and lull reads the first 3; "
                                                            "nothing is known of the others"}));
}

}  // namespace
}  // namespace lull
