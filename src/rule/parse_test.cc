#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>
#include <string>

#include "rule/quantity.h"
#include "rule/rule.h"

namespace lull {
namespace {

std::string spelled(std::string_view text) {
  const auto rule = parse_rule(text);
  return rule ? to_text(*rule) : rule.error().what;
}
std::string complaint(std::string_view text) {
  const auto rule = parse_rule(text);
  return rule ? "no complaint: " + to_text(*rule) : rule.error().what;
}
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

TEST(ParseRule, ReadsTheExamplesOfTheManual) {
  for (const char* text : {
           "util < 5 for 20m",
           "util < 5 and mem_used > 1GiB for 30m",
           "power < 30% and cpu < 2 for 10m",
           "any(util) < 50 for 3m",
           "util >= 95 and power < 25% and io < 1KiB for 5m",
           "mean(util, 5m) < 10",
           "any(mean(util, 5m)) < 10",
           "mean(mean(util, 5m)) < 10",
           "max(util) < 5 for 5 samples",
           "not (util > 5 or mem_util > 5)",
           "any(util < 5 and mem_used > 1GiB for 30m)",
           "clock < 500MHz and temp > 80C and quiet > 10m",
       })
    EXPECT_EQ(spelled(text), text);
}

TEST(ParseRule, TakesUnitsThatFitTheSignalInAnyCase) {
  EXPECT_EQ(spelled("util < 5%"), "util < 5");
  EXPECT_EQ(spelled("UTIL < 5 FOR 20M"), "util < 5 for 20m");
  EXPECT_EQ(spelled("power < 120W"), "power < 120W");
  EXPECT_EQ(spelled("power < 0.12kW"), "power < 120W");
  EXPECT_EQ(spelled("power < 30 %"), "power < 30%");
  EXPECT_EQ(spelled("mem_used > 50%"), "mem_used > 50%");
  EXPECT_EQ(spelled("mem_used>1gib"), "mem_used > 1GiB");
  EXPECT_EQ(spelled("mem_used > 20GB"), "mem_used > 20GB");
  EXPECT_EQ(spelled("mem_free < 1048576B"), "mem_free < 1MiB");
  EXPECT_EQ(spelled("io < 1KiB/s"), "io < 1KiB");
  EXPECT_EQ(spelled("temp > 80°C"), "temp > 80C");
  EXPECT_EQ(spelled("temp > -5"), "temp > -5C");
  EXPECT_EQ(spelled("clock < 1.2GHz"), "clock < 1200MHz");
  EXPECT_EQ(spelled("quiet > 600s"), "quiet > 10m");
  EXPECT_EQ(spelled("quiet > 1h30m"), "quiet > 1h30m");
  EXPECT_EQ(spelled("procs == 0"), "procs == 0");
  EXPECT_EQ(spelled("util < 5 for 90s"), "util < 5 for 1m30s");
  EXPECT_EQ(spelled("util < 5 for 500ms"), "util < 5 for 500ms");
  EXPECT_EQ(spelled("util < 5 for 1 sample"), "util < 5 for 1 sample");
}

TEST(ParseRule, SkipsCommentsAndLines) {
  EXPECT_EQ(spelled("util < 5 # nothing runs\n  and mem_used > 1GiB # but it holds memory\n  for 30m#"),
            "util < 5 and mem_used > 1GiB for 30m");
}

TEST(ParseRule, AForCoversAllBeforeItBackToThePreviousFor) {
  EXPECT_EQ(*parse_rule("util < 5 and temp < 50 for 5m"), *parse_rule("(util < 5 and temp < 50) for 5m"));
  EXPECT_EQ(*parse_rule("util < 5 or temp < 50 for 5m"), *parse_rule("(util < 5 or temp < 50) for 5m"));
  EXPECT_EQ(*parse_rule("not util > 5 for 5m"), *parse_rule("(not util > 5) for 5m"));
  EXPECT_EQ(*parse_rule("util < 5 for 5m or temp < 50 for 9m"), *parse_rule("(util < 5 for 5m) or (temp < 50 for 9m)"));
  EXPECT_EQ(*parse_rule("util < 5 for 5m and temp < 50 or fan < 9"),
            *parse_rule("((util < 5 for 5m) and temp < 50) or fan < 9"));
  EXPECT_EQ(*parse_rule("util < 5 for 5m and temp < 50 or fan < 9 for 1m"),
            *parse_rule("(util < 5 for 5m) and ((temp < 50 or fan < 9) for 1m)"));
  EXPECT_EQ(*parse_rule("util < 5 or temp < 50 and fan < 9"), *parse_rule("util < 5 or (temp < 50 and fan < 9)"));
}

TEST(ParseRule, AUnitMayStandApart) {
  EXPECT_EQ(spelled("util < 5 % and mem_used > 2 GiB for 30 m"), "util < 5 and mem_used > 2GiB for 30m");
}

TEST(ParseRule, PointsAtTheMistake) {
  EXPECT_EQ(complaint("utli < 5 for 20m"),
            "bad rule, column 1: there is no signal 'utli'; did you mean 'util'?\n"
            "  utli < 5 for 20m\n"
            "  ^~~~");
  EXPECT_EQ(complaint("util < 5 for 20x"),  // no guess at a letter
            "bad rule, column 14: '20x' is neither a duration (500ms, 30s, 5m, 1h30m, 1d) nor '5 samples'\n"
            "  util < 5 for 20x\n"
            "               ^~~");
  EXPECT_EQ(complaint("util < 5 fro 20m"),
            "bad rule, column 10: expected 'and', 'or', 'for' or the end, not 'fro'; did you mean 'for'?\n"
            "  util < 5 fro 20m\n"
            "           ^~~");
  EXPECT_EQ(complaint("util < 5\nand power < 5GiB"),
            "bad rule, line 2, column 13: '5GiB' does not fit: power is in watts: write 120W, or 30% (of power_limit)\n"
            "  and power < 5GiB\n"
            "              ^~~~");
  EXPECT_EQ(complaint("power < 5GiB\nand util < 5").find("and util"), std::string::npos) << "its line alone is shown";
}

TEST(ParseRule, SaysWhatWasExpected) {
  const auto says = [](std::string_view text, std::string_view part) {
    const std::string line = first_line(complaint(text));
    EXPECT_NE(line.find(part), std::string::npos) << text << "\n" << line;
  };
  says("", "it is empty");
  says("  # nothing", "it is empty");
  says("util", "expected <, <=, >, >=, == or != after 'util', not the end of the rule");
  says("util = 5", "did you mean '=='?");
  says("util =< 5", "did you mean '<='?");
  says("util < 5 && temp < 3", "did you mean 'and'?");
  says("!util < 5", "did you mean 'not'?");
  says("util < ", "expected a number to compare util with");
  says("util < five", "expected a number");
  says("5 > util", "the signal comes first");
  says("util < 5W", "util is in %");
  says("temp < 5%", "temp is in degrees");
  says("mem_total < 5%", "mem_total is in bytes");
  says("procs < 5GiB", "procs is a plain number");
  says("util < 5 for 20", "'20' needs a unit");
  says("util < 5 for 20x", "neither a duration");
  says("util < 5 for 20 smaples", "did you mean 'samples'?");
  says("util < 5 for 5 samplse", "did you mean 'samples'?");
  says("util < 5 for 0 samples", "from 1 on");
  says("util < 5 for 1.5 samples", "from 1 on");
  says("util < 5 for", "expected a duration");
  says("util < 5 for 5m for 3m", "a second 'for'");
  says("for 5m", "no signal 'for'");
  says("(util < 5", "this '(' is never closed");
  says("util < 5)", "closes nothing");
  says("(util < 5 mem_used > 3)", "expected 'and', 'or', 'for'");
  says("any(util < 5", "expected ')'");
  says("any util < 5", "expected '(' after 'any'");
  says("mean(util < 5)", "takes a signal");
  says("max(util, 5m) < 5", "only mean takes a window");
  says("mean(util, 5 samples) < 5", "a window is a time");
  says("mean(util, 0s) < 5", "longer than 0");
  says("mean(util, soon) < 5", "expected a window");
  says("mean(mean(util, 5m), 5m) < 5", "one is enough");
  says("any(mean(mean(util, 5m), 5m)) < 5", "one is enough");
  says("util < 99999999999999999999999999999999999999999999999", "too large");
  says("util < 1.2.3", "is not a number");
  says("util < 5 and", "expected a condition");
  says("\x1b[31m < 5", "expected a condition");
  says("utilisation < 5", "did you mean 'util'?");
}

TEST(ParseRule, HostileTextIsRefusedInTime) {
  const std::string deep(2000, '(');
  EXPECT_NE(complaint(deep + "util < 5").find("nested more than 64 deep"), std::string::npos);
  std::string nots;
  for (int i = 0; i < 1000; ++i) nots += "not ";
  EXPECT_NE(complaint(nots + "util < 5").find("nested more than 64 deep"), std::string::npos);
  std::string eaches;
  for (int i = 0; i < 800; ++i) eaches += "any(";
  EXPECT_NE(complaint(eaches + "util < 5").find("nested more than 64 deep"), std::string::npos);
  std::string means;
  for (int i = 0; i < 800; ++i) means += "mean(";
  EXPECT_NE(complaint(means + "util").find("bad rule"), std::string::npos);
  EXPECT_NE(complaint(std::string(5000, ' ') + "util < 5").find("4096 are allowed"), std::string::npos);
  std::string windows = "mean(util, 1s) < 5";
  for (int i = 0; i < 16; ++i) windows += " or mean(util, 1s) < 5";
  EXPECT_NE(complaint(windows).find("more than 16 windows"), std::string::npos);
  std::string long_chain = "util < 5";
  while (long_chain.size() < 4070) long_chain += " or util<5";
  EXPECT_TRUE(parse_rule(long_chain).has_value());
  EXPECT_TRUE(parse_rule(to_text(*parse_rule("util < 5"))).has_value());
}

TEST(ParseRule, WritesNumbersWithoutAnExponentAndWithAllTheirDigits) {
  EXPECT_EQ(spelled("util < 0.0000000000001"), "util < 0.0000000000001");
  EXPECT_EQ(spelled("util < 0.1"), "util < 0.1");
  EXPECT_EQ(spelled("procs > 123456789012345680000"), "procs > 123456789012345683968");
  EXPECT_EQ(spelled("mem_used > 0.0000000000001GiB"), "mem_used > 0.0001073741824B");
  EXPECT_EQ(spelled("power < 0.00000000001%"), "power < 0.00000000001%");
}

TEST(ParseRule, ALimitOfAnyMagnitudeParsesBackToTheSame) {
  EXPECT_TRUE(rc::check([] {
    // Evenly over the exponents: a plain random double is hardly ever between 1e-9 and 1e9.
    const int exponent = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(-323, 39));
    const double limit = std::pow(10, exponent) * (*rc::gen::arbitrary<int>() / 1e9);
    RC_PRE(std::abs(limit) <= static_cast<double>(std::numeric_limits<float>::max()));
    for (const MetricInfo& row : kMetricTable) {
      for (const bool share : {false, row.whole.has_value()}) {
        const Rule rule{.nodes = {Comparison{.metric = row.metric, .limit = limit, .share = share}}};
        const auto read = parse_rule(to_text(rule));
        RC_LOG() << to_text(rule) << (read ? "" : read.error().what) << std::endl;
        RC_ASSERT((read && *read == rule));
      }
    }
  }));
}

TEST(ParseRule, PowerMayBeComparedWithTheCardsOwnIdle) {
  for (const char* text : {"power < idle+3W", "power < idle + 3W", "power<IDLE+3", "power < idle+0.003kW"})
    EXPECT_EQ(spelled(text), "power < idle+3W") << text;
  EXPECT_EQ(spelled("power < idle-2W"), "power < idle-2W");
  EXPECT_EQ(spelled("power < idle - 2W"), "power < idle-2W");
  EXPECT_EQ(spelled("power <= idle for 5m"), "power <= idle+0W for 5m");
  EXPECT_EQ(spelled("max(mean(power, 1m)) < idle+3W or util < 1"), "max(mean(power, 1m)) < idle+3W or util < 1");
  const Rule rule = *parse_rule("power < idle+3W for 5m");
  EXPECT_EQ(rule.signals(), (std::vector{Metric::power, Metric::idle_power}));
  EXPECT_NE(describe(rule).find("below 3 W above its own idle power"), std::string::npos) << describe(rule);
  EXPECT_TRUE(remarks(*parse_rule("power < idle-2W for 5m")).empty());
  EXPECT_NE(complaint("util < idle+3").find("only power is compared with the card's own idle"), std::string::npos);
  EXPECT_NE(complaint("power < idle+3%").find("does not add to watts"), std::string::npos);
  EXPECT_NE(complaint("power < idle+3GiB").find("power is in watts"), std::string::npos);
  EXPECT_NE(complaint("power < idle 3W").find("expected '+' or '-'"), std::string::npos);
  for (const char* text : {"power < idle+", "power < idle+-3W", "power < idle - -3W", "power < idle+idle"})
    EXPECT_NE(complaint(text).find("expected a number of watts"), std::string::npos) << text;
}

TEST(ParseRule, TimesAndBytesNeedAUnit) {
  EXPECT_NE(complaint("quiet > 600").find("'600' needs a unit: quiet is a time: write 90s"), std::string::npos);
  EXPECT_NE(complaint("mem_free > 20").find("'20' needs a unit: mem_free is in bytes: write 1GiB"), std::string::npos);
  EXPECT_NE(complaint("io < 5").find("'5' needs a unit"), std::string::npos);
  EXPECT_EQ(spelled("quiet > 0 and io < 0 and mem_used > 0"), "quiet > 0s and io < 0B and mem_used > 0B");
}

TEST(ParseRule, ALimitOfManyYearsParsesBackToTheSame) {
  for (const std::string text : {"quiet < 864000000s", "quiet < 864000001s", "quiet < 770699999.9999999s"}) {
    const auto rule = parse_rule(text);
    ASSERT_TRUE(rule) << text;
    const auto again = parse_rule(to_text(*rule));
    ASSERT_TRUE(again) << to_text(*rule);
    EXPECT_EQ(*again, *rule) << to_text(*rule);
  }
}

TEST(ParseRule, AControlCharacterNeverReachesTheTerminal) {
  const std::string said = complaint("util < 5 and \x1b[2J\x07 < 3");
  EXPECT_EQ(said.find('\x1b'), std::string::npos);
  EXPECT_EQ(said.find('\x07'), std::string::npos);
}

TEST(ParseRule, ALongLineIsShownAroundThePlace) {
  std::string text = "util < 5";
  while (text.size() < 1000) text += " and util < 5";
  const std::string said =
      complaint(text + " andd util < 5 and util < 5 and util < 5 and util < 5 and util < 5 and util < 5");
  for (std::size_t begin = 0; begin < said.size();) {
    const std::size_t end = std::min(said.find('\n', begin), said.size());
    EXPECT_LE(end - begin, 120U);
    begin = end + 1;
  }
  EXPECT_NE(said.find("did you mean 'and'?"), std::string::npos);
}

TEST(Rule, KnowsItsSpanConditionAndSignals) {
  const Rule rule = *parse_rule("util < 5 and power < 30% for 20m");
  ASSERT_TRUE(rule.span());
  EXPECT_EQ(rule.span()->time, std::chrono::minutes(20));
  EXPECT_TRUE(std::holds_alternative<And>(rule[rule.condition()]));
  EXPECT_EQ(rule.signals(), (std::vector<Metric>{Metric::util, Metric::power, Metric::power_limit}));
  EXPECT_FALSE(parse_rule("util < 5")->span());
}

TEST(Rule, CanBeVariedForASweep) {
  const Rule rule = *parse_rule("util < 5 and power < 30% for 20m");
  EXPECT_EQ(with_span(rule, {.time = std::chrono::hours(1)}).text, "util < 5 and power < 30% for 1h");
  EXPECT_EQ(with_span(*parse_rule("util < 5"), {.samples = 3}).text, "util < 5 for 3 samples");
  EXPECT_EQ(with_limit(rule, Metric::util, "10")->text, "util < 10 and power < 30% for 20m");
  EXPECT_EQ(with_limit(rule, Metric::power, "120W")->text, "util < 5 and power < 120W for 20m");
  EXPECT_NE(with_limit(rule, Metric::util, "10W").error().what.find("util is in %"), std::string::npos);
  EXPECT_NE(with_limit(rule, Metric::temp, "10").error().what.find("does not look at temp"), std::string::npos);
  EXPECT_FALSE(with_limit(rule, Metric::util, "10 or util < 3").has_value());
}

TEST(Rule, IsExplainedInASentence) {
  EXPECT_EQ(describe(*parse_rule("util < 5 and mem_used > 1GiB for 30m")),
            "Holds while util of every GPU is below 5 % and mem_used of every GPU is above 1.0 GiB, without a break "
            "for 30m.");
  EXPECT_EQ(
      describe(*parse_rule("any(mean(util, 5m) < 5 and power < 30W)")),
      "Holds while for at least one GPU by itself: its mean util over 5m is below 5 % and its power is below 30 W.");
  EXPECT_EQ(describe(*parse_rule("any(mean(util, 5m)) < 10")),
            "Holds while the mean util over 5m of at least one GPU is below 10 %.");
  EXPECT_EQ(describe(*parse_rule("power < 30% and cpu < 2 for 5 samples")),
            "Holds while power of every GPU is below 30 % of power_limit and cpu of the job is below 2 %, in 5 samples "
            "in a row.");
}

TEST(Rule, RemarksOnWhatIsSurelyNotMeant) {
  EXPECT_EQ(remarks(*parse_rule("util < 5 for 20m")), std::vector<std::string>{});
  EXPECT_EQ(remarks(*parse_rule("util > 100 for 20m")), std::vector<std::string>{"'util > 100' can never hold"});
  EXPECT_EQ(remarks(*parse_rule("util >= 0 for 20m")),
            std::vector<std::string>{"'util >= 0' always holds where util is known"});
  EXPECT_EQ(remarks(*parse_rule("util < 5")).size(), 1U);
  // At the edges of what a value can be: n is never, a always.
  for (const auto& [comparison, expected] : std::vector<std::pair<std::string, std::string>>{
           {"util < 0", "n"},    {"util < 100", ""},       {"util < 101", "a"},  {"util <= 0", ""},
           {"util <= 99", ""},   {"util <= 100", "a"},     {"util > 0", ""},     {"util > 99", ""},
           {"util > 100", "n"},  {"util >= 0", "a"},       {"util >= 1", ""},    {"util >= 100", ""},
           {"util >= 101", "n"}, {"util == 0", ""},        {"util == 100", ""},  {"util == 101", "n"},
           {"util != 0", ""},    {"util != 100", ""},      {"util != 101", "a"}, {"power < 100000W", ""},
           {"temp >= 0", ""},    {"mem_used > 100%", "n"}, {"power > 100%", ""}}) {
    std::string said;
    for (const std::string& remark : remarks(*parse_rule(comparison + " for 5m")))
      said += remark.contains("can never hold") ? "n" : remark.contains("always holds") ? "a" : "?";
    EXPECT_EQ(said, expected) << comparison;
  }
}

TEST(ParseRule, WhatOtherToolsCallItSuggestsOurWord) {
  const auto said = [](const char* rule) { return parse_rule(rule).error().message(); };
  EXPECT_NE(said("gpu < 5 for 5m").find("did you mean 'util'?"), std::string::npos) << said("gpu < 5 for 5m");
  EXPECT_NE(said("avg(util) < 5 for 5m").find("did you mean 'mean'?"), std::string::npos);
  EXPECT_NE(said("VRAM < 1GiB for 5m").find("did you mean 'mem_used'?"), std::string::npos);
  EXPECT_NE(said("utl < 5 for 5m").find("did you mean 'util'?"), std::string::npos);
}

TEST(ParseRule, SizesAndTimesMayBeWrittenOut) {
  EXPECT_EQ(to_text(*parse_rule("mem_free > 20G for 20 minutes")), to_text(*parse_rule("mem_free > 20GiB for 20m")));
}

}  // namespace
}  // namespace lull
