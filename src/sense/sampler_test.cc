// The sampler where there is no driver. With simulated GPUs: sampler_sim_test.cc.
#include "sense/sampler.h"

#include <gtest/gtest.h>
#include <poll.h>

#include "sense/file_tree_test.h"

namespace lull {
namespace {

SamplerOptions options(const std::string& library) {
  SamplerOptions chosen;
  chosen.library = library;
  return chosen;
}

TEST(SamplerWithoutDriver, SaysWhatWasLookedForAndKeepsLooking) {
  const auto sampler = Sampler::start(options("/nowhere/libnvidia-ml.so.1"));
  for (int i = 0; i < 3; ++i) {
    const Snapshot snapshot = sampler->sample();
    ASSERT_NE(snapshot.inventory, nullptr);
    EXPECT_TRUE(snapshot.inventory->devices.empty());
    EXPECT_TRUE(snapshot.readings.empty());
    EXPECT_EQ(snapshot.driver.absence, Absence::no_driver);
    EXPECT_NE(snapshot.driver.detail.find("/nowhere/libnvidia-ml.so.1"), std::string::npos) << snapshot.driver.detail;
    EXPECT_NE(snapshot.driver.detail.find("No such file"), std::string::npos) << snapshot.driver.detail;
  }
}

TEST(SamplerWithoutDriver, AFileThatIsNoLibraryAndALibraryThatIsNoDriver) {
  const TestTree tree;
  tree.write("libnvidia-ml.so.1", "not a library\n");
  EXPECT_EQ(Sampler::start(options(tree.at("libnvidia-ml.so.1")))->sample().driver.absence, Absence::no_driver);
  const Snapshot other = Sampler::start(options("libm.so.6"))->sample();
  EXPECT_EQ(other.driver.absence, Absence::no_symbol);
  EXPECT_NE(other.driver.detail.find("libm.so.6"), std::string::npos) << other.driver.detail;
}

TEST(SamplerWithoutDriver, BeforeTheFirstSampleNothingIsKnown) {
  const auto sampler = Sampler::start(options("/nowhere/libnvidia-ml.so.1"));
  Snapshot snapshot;
  EXPECT_FALSE(sampler->take(snapshot));
  EXPECT_EQ(sampler->look_by(), Instant::max());
  EXPECT_EQ(snapshot.inventory, nullptr);
}

TEST(SamplerWithoutDriver, TheEventComesWithTheAnswer) {
  const auto sampler = Sampler::start(options("/nowhere/libnvidia-ml.so.1"));
  pollfd ready{sampler->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 0), 0);
  for (int i = 0; i < 3; ++i) {
    sampler->request();
    ASSERT_EQ(::poll(&ready, 1, 5000), 1);
    Snapshot snapshot;
    ASSERT_TRUE(sampler->take(snapshot));
    EXPECT_EQ(snapshot.driver.absence, Absence::no_driver);
    EXPECT_FALSE(sampler->take(snapshot)) << "nothing new";
    EXPECT_EQ(snapshot.driver.absence, Absence::no_driver) << "and what we have stays as it is";
    EXPECT_EQ(::poll(&ready, 1, 0), 0) << "take() clears it";
  }
}

TEST(SamplerOptions, OnlyWhatARuleNeeds) {
  SamplerOptions chosen;
  const Metric metrics[] = {Metric::power, Metric::openers};
  chosen.want_only(metrics);
  EXPECT_TRUE(chosen.power);
  EXPECT_TRUE(chosen.openers);
  EXPECT_FALSE(chosen.memory || chosen.details || chosen.processes || chosen.pcie);
}

}  // namespace
}  // namespace lull
