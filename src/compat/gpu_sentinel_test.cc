#include "compat/gpu_sentinel.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "rule/policy.h"

namespace lull {
namespace {

using Words = std::vector<std::string>;

TEST(GpuSentinel, DefaultsOfItsDocument) {
  const auto options = parse_sentinel(Words{});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->arm_rule(), "mean(util) > 80 for 30 samples");
  EXPECT_EQ(options->kill_rule(), "mean(util) < 70 for 30 samples");
  EXPECT_EQ(options->kill_action, "end_process");
  EXPECT_EQ(options->gpus(), "");
}

TEST(GpuSentinel, EveryOption) {
  const auto options =
      parse_sentinel(Words{"--arm_duration", "10", "--arm_threshold", "0.29", "--kill_duration=60", "--kill_threshold",
                           ".07", "--kill_action", "shutdown", "--gpu_devices", "0", "1", "--missing", "ignore"});
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options->arm_rule(), "mean(util) > 29 for 10 samples");
  EXPECT_EQ(options->kill_rule(), "mean(util) < 7 for 60 samples");
  EXPECT_EQ(options->kill_action, "shutdown");
  EXPECT_EQ(options->gpus(), "0,1");
  EXPECT_TRUE(options->ignore_missing);
  EXPECT_EQ(parse_sentinel(Words{"--gpu_devices"})->gpus(), "");
}

TEST(GpuSentinel, Refusals) {
  for (const Words& words :
       {Words{"--arm_duration", "3600"}, Words{"--kill_duration", "0"}, Words{"--arm_duration", "x"},
        Words{"--arm_threshold", "1.5"}, Words{"--kill_threshold", "x"}, Words{"--kill_action", "explode"},
        Words{"--gpu_devices", "a"}, Words{"stray"}, Words{"--arm"}, Words{"--missing", "x"}})
    EXPECT_FALSE(parse_sentinel(words)) << words.front();
  EXPECT_EQ(parse_sentinel(Words{"--kill_action", "explode"}).error().message(),
            "argument --kill_action/--kill-action: invalid choice: 'explode' (choose from 'end_process', 'shutdown', "
            "'reboot')");
}

TEST(GpuSentinel, WhateverIsAcceptedIsAPolicy) {
  EXPECT_TRUE(rc::check("thresholds and durations make rules", [] {
    const double arm = *rc::gen::inRange(0, 1001) / 1000.0;
    const auto options = parse_sentinel(
        Words{"--arm_threshold", std::to_string(arm), "--kill_duration", std::to_string(*rc::gen::inRange(1, 3600))});
    RC_ASSERT(options.has_value());
    RC_ASSERT(Policy::parse(options->kill_rule(), options->arm_rule()).has_value());
  }));
}

}  // namespace
}  // namespace lull
