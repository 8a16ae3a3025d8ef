#include "sense/select.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

namespace lull {
namespace {

using Positions = std::vector<std::size_t>;

Device gpu(unsigned index, std::string uuid, std::string name = "NVIDIA H100") {
  Device device;
  device.index = index;
  device.uuid = std::move(uuid);
  device.name = std::move(name);
  return device;
}

Device mig(unsigned parent, unsigned index, std::string uuid, unsigned gpu_instance, unsigned compute_instance) {
  Device device = gpu(parent, std::move(uuid));
  device.kind = DeviceKind::mig;
  device.mig_index = index;
  device.gpu_instance = gpu_instance;
  device.compute_instance = compute_instance;
  return device;
}

Inventory four() {
  Inventory inventory;
  inventory.devices = {gpu(0, "GPU-8932f937-d72c"), gpu(1, "GPU-8932aaaa-0000"), gpu(2, "GPU-11111111-2222"),
                       gpu(3, "GPU-33333333-4444")};
  return inventory;
}

Inventory with_mig() {
  Inventory inventory;
  inventory.devices = {gpu(0, "GPU-aaaa1111-0000"), mig(0, 0, "MIG-c0ffee00-1111", 1, 0),
                       mig(0, 1, "MIG-c0ffee01-2222", 2, 0), gpu(1, "GPU-bbbb2222-0000")};
  return inventory;
}

Positions seen(std::string_view variable, const Inventory& inventory = four()) {
  return visible_devices(variable, "PCI_BUS_ID", inventory).devices;
}

TEST(Visible, UnsetIsAllAndEmptyIsNone) {
  EXPECT_EQ(visible_devices(std::nullopt, std::nullopt, four()).devices, (Positions{0, 1, 2, 3}));
  EXPECT_EQ(seen(""), Positions{});
  EXPECT_EQ(seen("  "), Positions{});
  EXPECT_EQ(seen("-1"), Positions{});
  EXPECT_EQ(seen("NoDevFiles"), Positions{});
  EXPECT_EQ(seen(","), Positions{});
}

TEST(Visible, KeepsTheOrderGiven) {
  EXPECT_EQ(seen("2,1"), (Positions{2, 1}));
  EXPECT_EQ(seen("3,0,1"), (Positions{3, 0, 1}));
}

TEST(Visible, AnInvalidEntryHidesItselfAndAllAfterIt) {
  EXPECT_EQ(seen("0,2,-1,1"), (Positions{0, 2}));
  EXPECT_EQ(seen("1,99,0"), (Positions{1}));
  EXPECT_EQ(seen("1,,0"), (Positions{1}));
  EXPECT_EQ(seen("1,GPU-ffff,0"), (Positions{1}));
  EXPECT_EQ(seen("99999999999999999999999,0"), Positions{});
  EXPECT_NE(visible_devices("1,99,0", "PCI_BUS_ID", four()).note.find("'99'"), std::string::npos);
}

TEST(Visible, NumbersAreReadAsStrtolReadsThem) {
  EXPECT_EQ(seen("1gpu2,2ampere"), (Positions{1, 2}));
  EXPECT_EQ(seen(" 1 , 2 "), (Positions{1, 2}));
  EXPECT_EQ(seen("+1"), (Positions{1}));
  EXPECT_EQ(seen("x1"), Positions{});
}

TEST(Visible, ADeviceNamedTwiceHidesAll) {
  EXPECT_EQ(seen("0,0"), Positions{});
  EXPECT_EQ(seen("0,1,0"), Positions{});
  EXPECT_EQ(seen("GPU-1111,GPU-11111111"), Positions{});
  EXPECT_EQ(seen("0,-1,0"), (Positions{0}));  // never reached
}

TEST(Visible, UuidsAndUniqueBeginnings) {
  EXPECT_EQ(seen("GPU-33333333-4444,GPU-8932f"), (Positions{3, 0}));
  EXPECT_EQ(seen("GPU-8932"), Positions{});  // two begin so
  EXPECT_EQ(seen("GPU-33,GPU-8932,GPU-11"), (Positions{3}));
  EXPECT_EQ(seen("GPU-33, GPU-11"), (Positions{3, 2}));
  EXPECT_EQ(seen("gpu-33"), Positions{});
}

TEST(Visible, AFullUuidThatBeginsAnotherIsNotAmbiguous) {
  Inventory inventory;
  inventory.devices = {gpu(0, "GPU-12"), gpu(1, "GPU-1234")};
  EXPECT_EQ(seen("GPU-12", inventory), (Positions{0}));
}

TEST(Visible, MigDevicesByEitherName) {
  EXPECT_EQ(seen("MIG-c0ffee01-2222", with_mig()), (Positions{2}));
  EXPECT_EQ(seen("MIG-c0ffee00", with_mig()), (Positions{1}));
  EXPECT_EQ(seen("MIG-c0ffee", with_mig()), Positions{});
  EXPECT_EQ(seen("MIG-GPU-aaaa1111-0000/2/0", with_mig()), (Positions{2}));
  EXPECT_EQ(seen("MIG-GPU-aaaa/1/0", with_mig()), (Positions{1}));
  EXPECT_EQ(seen("MIG-GPU-aaaa/7/0", with_mig()), Positions{});
  EXPECT_EQ(seen("MIG-GPU-aaaa/x/0", with_mig()), Positions{});
  EXPECT_EQ(seen("MIG-GPU-aaaa", with_mig()), Positions{});
}

TEST(Visible, AGpuInMigModeIsSeenThroughItsParts) {
  EXPECT_EQ(seen("1", with_mig()), (Positions{3}));
  const Visible split = visible_devices("0", "PCI_BUS_ID", with_mig());
  EXPECT_EQ(split.devices, (Positions{1, 2}));
  EXPECT_FALSE(split.certain);
  EXPECT_NE(split.note, "");
  EXPECT_EQ(visible_devices(std::nullopt, std::nullopt, with_mig()).devices, (Positions{1, 2, 3}));
}

TEST(Visible, EqualGpusHaveACertainOrder) {
  const Visible visible = visible_devices("1,0", std::nullopt, four());
  EXPECT_TRUE(visible.order_certain);
  EXPECT_TRUE(visible.certain);
  EXPECT_EQ(visible.note, "");
}

TEST(Visible, UnequalGpusAreCountedFastestFirstAndThatIsAGuess) {
  Inventory inventory = four();
  inventory.devices.resize(2);
  inventory.devices[0].name = "Tesla T4";
  inventory.devices[0].speed = 2560.0 * 1590;
  inventory.devices[1].speed = 16896.0 * 1980;
  const Visible first = visible_devices("0", std::nullopt, inventory);
  EXPECT_EQ(first.devices, (Positions{1}));
  EXPECT_FALSE(first.order_certain);
  EXPECT_FALSE(first.certain);
  EXPECT_NE(first.note.find("PCI_BUS_ID"), std::string::npos);
  const Visible both = visible_devices("0,1", "FASTEST_FIRST", inventory);
  EXPECT_FALSE(both.order_certain);
  EXPECT_TRUE(both.certain) << "whatever the order, it is both of them";
  const Visible by_bus = visible_devices("0", "PCI_BUS_ID", inventory);
  EXPECT_EQ(by_bus.devices, (Positions{0}));
  EXPECT_TRUE(by_bus.certain);
  const Visible by_uuid = visible_devices("GPU-8932f937", std::nullopt, inventory);
  EXPECT_EQ(by_uuid.devices, (Positions{0}));
  EXPECT_TRUE(by_uuid.order_certain);
}

TEST(Visible, ALostGpuMakesIndicesUncertain) {
  Inventory inventory = four();
  inventory.devices[1].absence = Absence::lost;
  EXPECT_FALSE(visible_devices("2", "PCI_BUS_ID", inventory).certain);
  EXPECT_TRUE(visible_devices("GPU-3333", "PCI_BUS_ID", inventory).certain);
}

// Whatever the text: no crash, every position is real, none twice, no bare parent of MIG devices.
TEST(Visible, AnyTextIsReadWithoutHarm) {
  const Inventory inventory = with_mig();
  EXPECT_TRUE(rc::check("visible_devices is total", [&] {
    const auto piece = rc::gen::element<std::string>("0", "1", "2", "-1", " ", ",", ",", "GPU-", "GPU-aaaa", "MIG-",
                                                     "MIG-GPU-aaaa/1/0", "/", "x", "+", "99999999999999999999",
                                                     "MIG-c0ffee0", "\xff", "\n");
    std::string text;
    for (const std::string& part : *rc::gen::container<std::vector<std::string>>(piece)) text += part;
    if (*rc::gen::inRange(0, 4) == 0) text = *rc::gen::arbitrary<std::string>();
    const Visible visible =
        visible_devices(text, *rc::gen::element<std::string>("PCI_BUS_ID", "FASTEST_FIRST", ""), inventory);
    const std::set<std::size_t> once(visible.devices.begin(), visible.devices.end());
    RC_ASSERT(once.size() == visible.devices.size());
    RC_ASSERT(std::ranges::all_of(once, [](std::size_t i) { return i == 1 || i == 2 || i == 3; }));
  }));
}

TEST(Visible, AUuidThatTwoGpusHaveMayMeanEither) {
  Inventory inventory = four();
  inventory.devices[1].uuid = inventory.devices[0].uuid;
  inventory.devices[0].shares_uuid = inventory.devices[1].shares_uuid = true;
  for (const char* variable : {"GPU-8932f937-d72c", "GPU-8932", "GPU-8932f937-d72c,GPU-8932f937-d72c"}) {
    const Visible visible = visible_devices(variable, "PCI_BUS_ID", inventory);
    EXPECT_EQ(visible.devices, (Positions{0, 1})) << variable;
    EXPECT_FALSE(visible.certain || visible.order_certain) << variable;
    EXPECT_NE(visible.note.find("the UUID of several GPUs"), std::string::npos) << visible.note;
  }
  EXPECT_EQ(visible_devices("GPU-8932f937-d72c,GPU-33333333-4444", "PCI_BUS_ID", inventory).devices,
            (Positions{0, 1, 3}));
  EXPECT_TRUE(visible_devices("1", "PCI_BUS_ID", inventory).certain);
}

TEST(Visible, APartOfAGpuWhoseUuidIsSharedMayBeOfEither) {
  Inventory inventory = with_mig();
  inventory.devices[3].uuid = inventory.devices[0].uuid;
  inventory.devices.push_back(mig(1, 0, "MIG-c0ffee02-3333", 1, 0));
  inventory.devices[0].shares_uuid = inventory.devices[3].shares_uuid = true;
  const Visible visible = visible_devices("MIG-GPU-aaaa1111-0000/1/0", "PCI_BUS_ID", inventory);
  EXPECT_EQ(visible.devices, (Positions{1, 4}));
  EXPECT_FALSE(visible.certain);
}

}  // namespace
}  // namespace lull
