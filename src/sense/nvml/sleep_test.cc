#include "sense/nvml/sleep.h"

#include <gtest/gtest.h>

#include "sense/file_tree_test.h"
#include "sense/source.h"

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

Answer asleep_with(std::int64_t awake_ms) {
  Answer answer;
  say_asleep(Needs(), answer.gpu);
  answer.gpu.awake_ms = awake_ms;
  return answer;
}

TEST(SleepCover, OnlyWhatSleptSinceTheSampleBeforeIsIdleForSure) {
  SleepCover cover;
  const auto util = [&](Answer answer) {
    cover.apply(answer);
    return answer.gpu.why_missing(Metric::util);
  };
  EXPECT_EQ(util(asleep_with(1000)), Absence::none);
  EXPECT_EQ(util(asleep_with(1000)), Absence::none);
  EXPECT_EQ(util(asleep_with(1700)), Absence::not_covered) << "it worked in between";
  EXPECT_EQ(util(asleep_with(1700)), Absence::none);
  Answer awake;
  awake.gpu.set(Metric::util, 50);
  EXPECT_EQ(util(awake), Absence::not_covered) << "it woke in between, and a moment is all that is known";
  EXPECT_EQ(util(awake), Absence::none);
  EXPECT_EQ(util(asleep_with(2000)), Absence::not_covered) << "it fell asleep in between";
  awake.gpu.util_coverage = 1;
  EXPECT_EQ(util(awake), Absence::none) << "the driver has a mean of the whole time";
  cover = SleepCover();
  EXPECT_EQ(util(asleep_with(-1)), Absence::none);
  EXPECT_EQ(util(asleep_with(-1)), Absence::none) << "a kernel that does not count";
}

TEST(SleepCover, ACountThatOnceCannotBeReadHidesNoWork) {
  SleepCover cover;
  const auto util = [&](std::int64_t awake_ms) {
    Answer answer = asleep_with(awake_ms);
    cover.apply(answer);
    return answer.gpu.why_missing(Metric::util);
  };
  EXPECT_EQ(util(1000), Absence::none);
  EXPECT_EQ(util(-1), Absence::not_covered) << "it may have worked";
  EXPECT_EQ(util(1700), Absence::not_covered) << "it has";
  EXPECT_EQ(util(-1), Absence::not_covered);
  EXPECT_EQ(util(1700), Absence::none) << "it slept all the time";
}

TEST(Sleepers, TellHowLongACardWasAwake) {
  const OneCard card("auto\n", "suspended\n");
  EXPECT_EQ(Sleepers(card.root()).awake_ms(0), -1);
  card.tree.write(card.power + "runtime_active_time", "1234\n");
  EXPECT_EQ(Sleepers(card.root()).awake_ms(0), 1234);
}

}  // namespace
}  // namespace lull
