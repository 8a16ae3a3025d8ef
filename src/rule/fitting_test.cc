#include "rule/fitting.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lull {
namespace {

std::string instead(const std::string& text, std::vector<Metric> readable) {
  const auto rule = rule_instead(*parse_rule(text),
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

TEST(Fitting, OnRdnaANarrowRuleOnUtilMayNeverHoldAndTheRuleForHangsIsNotUsed) {
  Device card;
  card.rdna = true;
  Device other;
  other.index = 1;
  const std::vector<Device> gpus = {card, other};
  const auto notes = rdna_notes(*parse_rule("util < 1 for 30m"), gpus);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("GPU 0 is an RDNA card"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("`power < 25% for 30m` would do"), std::string::npos) << notes[0];
  EXPECT_TRUE(rdna_notes(*parse_rule("util < 10 for 30m"), gpus).empty());
  EXPECT_TRUE(rdna_notes(*parse_rule("util < 1 for 30m"), std::vector{other}).empty());
  Rule hung = *parse_rule("util >= 95 and power < 35% for 5m");
  EXPECT_TRUE(rdna_notes(hung, gpus).empty());
  hung.for_hangs = true;
  ASSERT_EQ(rdna_notes(hung, gpus).size(), 1U);
  EXPECT_NE(rdna_notes(hung, gpus)[0].find("`hung` is not used"), std::string::npos);
}

}  // namespace
}  // namespace lull
