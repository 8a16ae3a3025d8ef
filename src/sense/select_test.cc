#include "sense/select.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

namespace lull {
namespace {

using Positions = std::vector<std::size_t>;

// GPU 0; GPU 1 with two MIG devices; GPU 2: positions 0, 1, 2, 3, 4.
Inventory machine() {
  Inventory inventory;
  inventory.devices.resize(5);
  const char* uuids[] = {"GPU-aaaa-0", "GPU-bbbb-1", "MIG-cccc-0", "MIG-cccc-1", "GPU-aabb-2"};
  const unsigned indices[] = {0, 1, 1, 1, 2};
  for (std::size_t i = 0; i < 5; ++i) {
    Device& device = inventory.devices[i];
    device.uuid = uuids[i];
    device.index = indices[i];
    device.kind = i == 2 || i == 3 ? DeviceKind::mig : DeviceKind::gpu;
    device.mig_index = i == 3 ? 1 : 0;
    if (device.kind == DeviceKind::gpu)
      device.pci = "00000000:" + std::string(1, static_cast<char>('A' + i)) + "3:00.0";
  }
  return inventory;
}

Positions chosen(std::string_view spec) {
  const auto result = select_devices(spec, machine());
  EXPECT_TRUE(result) << spec << ": " << (result ? "" : result.error().message());
  return result.value_or(Positions{});
}

std::string refusal(std::string_view spec, const Inventory& inventory = machine()) {
  const auto result = select_devices(spec, inventory);
  EXPECT_FALSE(result) << spec;
  return result ? "" : result.error().message();
}

TEST(Select, ByIndexRangeUuidMigAndPci) {
  EXPECT_EQ(chosen("0,2"), (Positions{0, 4}));
  EXPECT_EQ(chosen(" 2 , 0 "), (Positions{4, 0}));
  EXPECT_EQ(chosen("0-2"), (Positions{0, 1, 4}));
  EXPECT_EQ(chosen("GPU-bbbb-1"), (Positions{1}));
  EXPECT_EQ(chosen("GPU-aab"), (Positions{4}));
  EXPECT_EQ(chosen("1:1"), (Positions{3}));
  EXPECT_EQ(chosen("MIG-cccc-0"), (Positions{2}));
  EXPECT_EQ(chosen("0000:b3:00.0"), (Positions{1}));
  EXPECT_EQ(chosen("all"), (Positions{0, 1, 4}));
}

TEST(Select, ByTheCountOfAVendor) {
  Inventory inventory = machine();
  inventory.devices[4].vendor = Vendor::amd;  // GPU 2
  for (unsigned i = 0; i < 2; ++i) {
    Device& device = inventory.devices.emplace_back();
    device.vendor = i == 0 ? Vendor::amd : Vendor::intel;
    device.vendor_index = i == 0 ? 1 : 0;
    device.index = 3 + i;
    device.pci = i == 0 ? "00000000:83:00.0" : "00000000:00:02.0";
  }
  inventory.devices[1].vendor_index = 1;
  const auto positions = [&](std::string_view spec) { return select_devices(spec, inventory).value_or(Positions{}); };
  EXPECT_EQ(positions("amd:0"), (Positions{4}));
  EXPECT_EQ(positions("intel:0,nvidia:1,amd:0-1"), (Positions{6, 1, 4, 5}));
  EXPECT_EQ(positions("00:02.0"), (Positions{6}));
  EXPECT_EQ(refusal("amd:2", inventory), "no GPU amd:2: there are 2 of this vendor, counted from 0");
  EXPECT_EQ(refusal("tegra:0", inventory), "no GPU tegra:0: there is none of this vendor");
  EXPECT_EQ(refusal("amd:x", inventory), "'amd:x' names no GPU: amd:0, amd:0-3 or amd:all would");
  EXPECT_EQ(refusal("amd:1-0", inventory), "'amd:1-0' names no GPU: amd:0, amd:0-3 or amd:all would");
  EXPECT_EQ(positions("amd:all"), (Positions{4, 5}));
  EXPECT_EQ(refusal("tegra:all", inventory), "no GPU tegra:all: there is none of this vendor");
  EXPECT_FALSE(named_by_number("amd:0", 64)) << "which number that is nobody knows before they are found";
}

TEST(Select, TwiceIsOnce) { EXPECT_EQ(chosen("0,0,GPU-aaaa,0-1"), (Positions{0, 1})); }

TEST(Select, SaysWhatIsWrongAndWhatWouldBeRight) {
  EXPECT_EQ(refusal("7"), "no GPU 7: there are GPUs 0 to 2");
  EXPECT_EQ(refusal("0,1:5"), "no MIG device 1:5: GPU 1 has 2 of them");
  EXPECT_EQ(refusal("0:0"), "no MIG device 0:0: GPU 0 has no MIG devices");
  EXPECT_EQ(refusal("GPU-aa"), "'GPU-aa' is the beginning of 2 UUIDs (GPUs 0 and 2): give more of it");
  EXPECT_EQ(refusal("GPU-zz"), "no GPU has the UUID 'GPU-zz'; 'lull status' shows them");
  EXPECT_EQ(refusal("2-0"), "'2-0' runs backwards: write 0-2");
  EXPECT_EQ(refusal("0,,1"), "'0,,1' has an empty entry: write it as 0,2");
  EXPECT_EQ(refusal(""), "an empty list names no GPU: 0,2 or a UUID would");
  EXPECT_EQ(refusal("one\n").find("'one' names no GPU"), 0U);
  EXPECT_EQ(refusal("0", Inventory{}), "no GPU 0: no GPU was found");
}

TEST(Select, NumbersAloneAreKnownBeforeAnybodyIsAsked) {
  using Numbers = std::vector<unsigned>;
  EXPECT_EQ(named_by_number("0, 2", 8), (Numbers{0, 2}));
  EXPECT_EQ(named_by_number("1-3,0", 8), (Numbers{1, 2, 3, 0}));
  EXPECT_EQ(named_by_number("3:1", 8), Numbers{3});
  EXPECT_EQ(named_by_number("7,9", 8), Numbers{7});
  EXPECT_EQ(named_by_number("6-18446744073709551615", 8), (Numbers{6, 7}));
  for (const char* spec :
       {"all", "GPU-aa", "0,GPU-aa", "MIG-aa", "0000:3B:00.0", "3B:00.0", "", "0,,1", "1-", "-1", "x"})
    EXPECT_EQ(named_by_number(spec, 8), std::nullopt) << spec;
}

TEST(Select, AnyTextIsAListOrARefusal) {
  const Inventory inventory = machine();
  EXPECT_TRUE(rc::check("select_devices is total", [&] {
    const auto piece = rc::gen::element<std::string>("0", "1", ":", "-", ",", "GPU-", "aa", "all", " ",
                                                     "18446744073709551615", "\xff");
    std::string text;
    for (const std::string& part : *rc::gen::container<std::vector<std::string>>(piece)) text += part;
    const auto result = select_devices(text, inventory);
    if (result) {
      RC_ASSERT(!result->empty());
      RC_ASSERT(std::set<std::size_t>(result->begin(), result->end()).size() == result->size());
      for (const std::size_t position : *result) RC_ASSERT(position < inventory.devices.size());
    } else {
      RC_ASSERT(!result.error().message().empty());
      RC_ASSERT(result.error().message().find('\n') == std::string::npos);
    }
  }));
}

TEST(Select, AUuidThatTwoGpusHaveIsRefusedAndBothPlacesAreNamed) {
  Inventory inventory = machine();
  inventory.devices[4].uuid = inventory.devices[0].uuid;
  inventory.devices[0].shares_uuid = inventory.devices[4].shares_uuid = true;
  for (const char* spec : {"GPU-aaaa-0", "GPU-aaaa"})
    EXPECT_EQ(refusal(spec, inventory),
              "2 GPUs have the UUID 'GPU-aaaa-0' (GPU 0 at 00000000:A3:00.0, GPU 2 at 00000000:E3:00.0): name one by "
              "index or PCI address");
  EXPECT_EQ(*select_devices("2", inventory), Positions{4});
  EXPECT_EQ(*select_devices("0000:E3:00.0", inventory), Positions{4});
}

}  // namespace
}  // namespace lull
