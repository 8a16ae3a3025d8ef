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
  EXPECT_TRUE(options->gpu_devices.empty());
}

TEST(GpuSentinel, EveryOption) {
  const auto options =
      parse_sentinel(Words{"--arm_duration", "10", "--arm_threshold", "0.29", "--kill_duration=60", "--kill_threshold",
                           ".07", "--kill_action", "shutdown", "--gpu_devices", "0", "1", "--missing", "ignore"});
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options->arm_rule(), "mean(util) > 29 for 10 samples");
  EXPECT_EQ(options->kill_rule(), "mean(util) < 7 for 60 samples");
  EXPECT_EQ(options->kill_action, "shutdown");
  EXPECT_EQ(options->gpu_devices, (std::vector<std::int64_t>{0, 1}));
  EXPECT_TRUE(options->ignore_missing);
  EXPECT_TRUE(parse_sentinel(Words{"--gpu_devices"})->gpu_devices.empty());
}

TEST(GpuSentinel, NoUsageIsAboveOrBelowWhatIsNoNumber) {
  const auto options = parse_sentinel(Words{"--arm_threshold", "nan", "--kill_threshold", "nan"});
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options->arm_rule(), "mean(util) > 200 for 30 samples");
  EXPECT_EQ(options->kill_rule(), "mean(util) < -100 for 30 samples");
  EXPECT_NE(sentinel_armed(*options).find("below nan% for"), std::string::npos);
  EXPECT_NE(sentinel_armed(*parse_sentinel(Words{"--kill_threshold", "inf"})).find("below inf% for"),
            std::string::npos);
}

TEST(GpuSentinel, TheTickThatArmsItDoesNotCount) {
  const auto delay = [](const char* duration) {
    const auto options = parse_sentinel(Words{"--arm_duration", duration});
    return sentinel_settings(*options, *Policy::parse(options->kill_rule(), options->arm_rule()), {}).common.delay;
  };
  EXPECT_EQ(delay("0"), std::chrono::seconds(1));
  EXPECT_EQ(delay("-3"), std::chrono::seconds(1));
  EXPECT_EQ(delay("1"), Duration::zero()) << "the rule that arms it takes care of that";
}

TEST(GpuSentinel, Refusals) {
  for (const Words& words :
       {Words{"--arm_duration", "3600"}, Words{"--kill_duration", "3600"}, Words{"--arm_duration", "x"},
        Words{"--kill_threshold", "x"}, Words{"--kill_action", "explode"}, Words{"--gpu_devices", "a"}, Words{"stray"},
        Words{"--arm"}, Words{"--missing", "x"}})
    EXPECT_FALSE(parse_sentinel(words)) << words.front();
  const Error unreadable = parse_sentinel(Words{"--kill_action", "explode"}).error();
  EXPECT_EQ(unreadable.what,
            "argument --kill_action: invalid choice: 'explode' (choose from 'end_process', 'shutdown', 'reboot')");
  EXPECT_EQ(unreadable.errno_value, 2);
  EXPECT_FALSE(parse_sentinel(Words{"--kill_action", "explode", "--kill_action", "reboot"}));
  const Error senseless = parse_sentinel(Words{"--arm_duration", "3600"}).error();
  EXPECT_EQ(senseless.what, "arm_duration can at most be 3600 ticks");
  EXPECT_EQ(senseless.errno_value, 1);
}

TEST(GpuSentinel, SwappedInNoDurationAndNegativeThresholdsAreTaken) {
  const auto options = parse_sentinel(Words{"--arm_duration", "0", "--arm_threshold", "-1", "--kill_duration", "0"});
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options->arm_rule(), std::nullopt);
  EXPECT_EQ(options->kill_rule(), "mean(util) < 70 for 1 samples");
  for (const std::string threshold : {"-1", "2", "1e300", "-1e300", "inf", "-inf", "nan"}) {
    const auto odd = parse_sentinel(Words{"--arm_threshold=" + threshold, "--kill_threshold=" + threshold});
    ASSERT_TRUE(odd) << threshold;
    EXPECT_TRUE(Policy::parse(odd->kill_rule(), *odd->arm_rule())) << threshold;
  }
  EXPECT_EQ(parse_sentinel(Words{"--gpu_devices", "-1", "0"})->gpu_devices, (std::vector<std::int64_t>{-1, 0}));
}

TEST(GpuSentinel, SwappedInItsLines) {
  const auto options = parse_sentinel(Words{});
  EXPECT_EQ(sentinel_start(*options, false),
            (Words{"Starting GPU Sentinel, will arm once average GPU usage is at least 80% for 30 seconds",
                   "Monitoring all GPUs on the system", "Monitoring for low GPU usage! Press ctrl+C to exit"}));
  EXPECT_EQ(sentinel_armed(*options),
            "GPU Sentinel is armed, will 'end_process' when values drop below 70% for 30 seconds");
  const auto two =
      parse_sentinel(Words{"--gpu_devices", "0", "7", "--kill_action", "shutdown", "--arm_threshold", ".29"});
  const Words lines = sentinel_start(*two, true);
  EXPECT_EQ(lines,
            (Words{"Starting GPU Sentinel, will arm once average GPU usage is at least 29% for 30 seconds",
                   "Monitoring GPUs ['0', '7'] only.", "These GPUs are user specified and may not exist on the system.",
                   "Monitoring for low GPU usage! Press ctrl+C to exit"}));
  const Words warned = sentinel_start(*two, false);
  EXPECT_EQ(warned.size(), lines.size() + 7);  // six lines and an empty one
  EXPECT_TRUE(warned.front().starts_with("WARNING: "));
}

TEST(GpuSentinel, WhateverIsAcceptedIsAPolicy) {
  EXPECT_TRUE(rc::check("thresholds and durations make rules", [] {
    const double arm = *rc::gen::inRange(0, 1001) / 1000.0;
    const auto options = parse_sentinel(
        Words{"--arm_threshold", std::to_string(arm), "--kill_duration", std::to_string(*rc::gen::inRange(1, 3600))});
    RC_ASSERT(options.has_value());
    RC_ASSERT(Policy::parse(options->kill_rule(), *options->arm_rule()).has_value());
  }));
}

}  // namespace
}  // namespace lull
