#include "rule/fitting.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lull {
namespace {

std::string instead(const std::string& text, std::vector<Metric> readable, bool rdna = false) {
  const auto rule = rule_instead(*parse_rule(text), rdna,
                                 [&](Metric metric) { return std::ranges::find(readable, metric) != readable.end(); });
  return rule ? to_text(*rule) : "";
}

TEST(Fitting, WhatACardDoesNotGiveIsPutInTermsOfWhatItGives) {
  using enum Metric;
  EXPECT_EQ(instead("mem_util < 5 for 10m", {util, power}), "util < 1 for 10m");
  EXPECT_EQ(instead("util < 1 and mem_used > 1GiB for 30m", {util, procs}), "util < 1 and procs >= 1 for 30m");
  EXPECT_EQ(instead("util < 1 for 30m", {power, power_limit}), "power < 25% for 30m");
  EXPECT_EQ(instead("util < 1 for 30m", {power, procs}), "procs < 1 for 30m") << "a share of an unknown limit is none";
  EXPECT_EQ(instead("power < 35% for 5m", {util, power}), "util < 1 for 5m");
  EXPECT_EQ(instead("util < 1 for 30m", {util}), "") << "it can be judged as it is";
  EXPECT_EQ(instead("util < 1 for 30m", {}), "") << "nothing would do";
  EXPECT_EQ(instead("cpu < 5 for 1m", {}), "") << "not of the card";
}

TEST(Fitting, ASignalThatTheRuleComparesAlreadyIsNotComparedTwice) {
  using enum Metric;
  const std::vector watts = {power, power_limit};
  EXPECT_EQ(instead("util < 5 and power < 30% for 10m", watts), "power < 30% for 10m");
  EXPECT_EQ(instead("power < 30% and util < 5 and procs < 1 for 10m", {power, power_limit, procs}),
            "power < 30% and procs < 1 for 10m");
  EXPECT_EQ(instead("util < 5 and power < 30% for 10m", {power, power_limit, mem_util}),
            "mem_util < 1 and power < 30% for 10m");
  EXPECT_EQ(instead("util < 5 and mem_util < 5 for 10m", watts), "power < 25% for 10m");
  EXPECT_EQ(instead("util < 5 for 10m and power < 30% for 5m", watts), "") << "each has a time of its own";
  EXPECT_EQ(instead("util < 5 or power < 30%", watts), "") << "either of them would have done";
  EXPECT_EQ(instead("any(util) < 5 and power < 30%", watts), "") << "not of the same GPUs";
  EXPECT_EQ(instead("util >= 95 and power < 35% for 5m", watts), "") << "much power is no little power";
  EXPECT_EQ(instead("util >= 95 and power < 35% for 5m", {power, power_limit, mem_util, procs}), "")
      << "how a hang looks cannot be told without it";
}

TEST(Fitting, OnRdnaLittleUtilIsNotOfferedForWhatCannotBeRead) {
  using enum Metric;
  const std::vector all = {util, power, power_limit};
  EXPECT_EQ(instead("pcie < 1MiB/s for 30m", all), "util < 1 for 30m");
  EXPECT_EQ(instead("pcie < 1MiB/s for 30m", all, true), "power < 25% for 30m");
  EXPECT_EQ(instead("pcie < 1MiB/s and util < 1 for 30m", all, true), "power < 25% for 30m") << "of both";
  EXPECT_EQ(instead("pcie < 1MiB/s and util < 1 and power < 20% for 30m", all, true), "power < 20% for 30m");
  EXPECT_EQ(instead("pcie < 1MiB/s for 30m", {util}, true), "");
  EXPECT_EQ(instead("pcie > 1MiB/s for 30m", all, true), "util >= 5 for 30m");
  EXPECT_EQ(instead("util < 1 for 30m", all, true), "") << "that it may never hold is another note";
  const Device card = [] {
    Device device;
    device.vendor = Vendor::amd;
    device.idle_looks_hung = true;
    return device;
  }();
  const auto note = card_notes(*parse_rule("pcie < 1MiB/s and util < 1 for 30m"), std::vector{card}, false);
  ASSERT_EQ(note.size(), 1U);
  EXPECT_EQ(note[0].find("would do"), std::string::npos) << note[0];
}

TEST(Fitting, OnRdnaANarrowRuleOnUtilMayNeverHoldAndTheRuleForHangsIsNotUsed) {
  Device card;
  card.vendor = Vendor::amd;
  card.idle_looks_hung = true;
  Device other;
  other.index = 1;
  const std::vector<Device> gpus = {card, other};
  const auto notes = card_notes(*parse_rule("util < 1 for 30m"), gpus);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("GPU 0 is an RDNA card"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("`power < 25% for 30m` would do"), std::string::npos) << notes[0];
  const auto both = card_notes(*parse_rule("util < 1 and power < 20% for 30m"), gpus);
  ASSERT_EQ(both.size(), 1U);
  EXPECT_NE(both[0].find("`power < 20% for 30m` would do"), std::string::npos) << both[0];
  EXPECT_TRUE(card_notes(*parse_rule("util < 10 for 30m"), gpus).empty());
  EXPECT_TRUE(card_notes(*parse_rule("util < 1 for 30m"), std::vector{other}).empty());
  Rule hung = *parse_rule("util >= 95 and power < 35% for 5m");
  EXPECT_TRUE(card_notes(hung, gpus).empty());
  hung.for_hangs = true;
  ASSERT_EQ(card_notes(hung, gpus).size(), 1U);
  EXPECT_NE(card_notes(hung, gpus)[0].find("`hung` is not used"), std::string::npos);
}

TEST(Fitting, OfIntelOnlyTheRuleForHangsIsNotUsed) {
  Device card;
  card.vendor = Vendor::intel;
  card.idle_looks_hung = true;
  const std::vector<Device> gpus = {card};
  EXPECT_TRUE(card_notes(*parse_rule("util < 1 for 30m"), gpus).empty());
  Rule hung = *parse_rule("util >= 95 and power < 35% for 5m");
  hung.for_hangs = true;
  ASSERT_EQ(card_notes(hung, gpus).size(), 1U);
  EXPECT_NE(card_notes(hung, gpus)[0].find("Intel is an upper bound"), std::string::npos);
}

}  // namespace
}  // namespace lull
