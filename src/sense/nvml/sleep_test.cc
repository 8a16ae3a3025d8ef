#include "sense/nvml/sleep.h"

#include <gtest/gtest.h>

#include "sense/file_tree_test.h"

namespace lull {
namespace {

// A card that the driver has, and what the kernel says of its power.
struct OneCard {
  OneCard(const char* control, const char* status) {
    tree.write("driver/gpus/0000:3b:00.0/information", "Model: T4\n");
    tree.write(power + "control", control);
    tree.write(power + "runtime_status", status);
  }
  Root root() const {
    Root root = tree.root();
    root.driver = tree.at("driver");
    return root;
  }
  const TestTree tree;
  const std::string power = "sys/bus/pci/devices/0000:3b:00.0/power/";
};

TEST(Sleepers, AreAskedAnewEachTimeAlsoWhereTheFileWasReplaced) {
  const OneCard card("auto\n", "active\n");
  const TestTree& tree = card.tree;
  const std::string& power = card.power;
  const Sleepers sleepers(card.root());
  ASSERT_EQ(sleepers.count(), 1U);
  EXPECT_FALSE(sleepers.asleep(0));
  tree.write(power + "runtime_status", "suspended\n");
  EXPECT_TRUE(sleepers.asleep(0));
  const auto replace = [&](const char* text) {
    tree.write(power + "fresh", text);
    std::filesystem::rename(tree.at(power + "fresh"), tree.at(power + "runtime_status"));
  };
  replace("active\n");
  EXPECT_FALSE(sleepers.asleep(0));
  replace("suspended\n");
  EXPECT_TRUE(sleepers.asleep(0));
  std::filesystem::remove_all(tree.at("sys"));
  EXPECT_FALSE(sleepers.asleep(0)) << "the card is gone";
}

TEST(Sleepers, WhosePowerIsNeverTakenAwayDoNotSleep) {
  const OneCard card("on\n", "suspended\n");
  EXPECT_FALSE(Sleepers(card.root()).asleep(0));
}

}  // namespace
}  // namespace lull
