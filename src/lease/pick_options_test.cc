#include "lease/pick_options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

namespace lull {
namespace {

using namespace std::chrono_literals;
using Change = std::function<void(PickOptions&)>;

Result<PickSettings> settled(const Change& change = [](PickOptions&) {}, std::vector<std::string> command = {}) {
  PickOptions options;
  change(options);
  return settle(options, std::move(command));
}
std::string refusal(const Change& change, std::vector<std::string> command = {}) {
  const auto settings = settled(change, std::move(command));
  return settings ? "" : settings.error().message();
}
bool is(const Limit& limit, Limit::Kind kind, double value = 0) { return limit.kind == kind && limit.value == value; }

TEST(PickOptions, HowManyAreWanted) {
  EXPECT_EQ(settled()->count, 1U);
  EXPECT_FALSE(settled()->all);
  EXPECT_EQ(settled([](auto& words) { words.count = "4096"; })->count, 4096U);
  const auto all = settled([](auto& words) { words.count = "all"; });
  EXPECT_TRUE(all && all->all);
  for (const char* wrong : {"0", "4097", "-1", "one", "", "1.5"})
    EXPECT_NE(refusal([&](auto& words) { words.count = wrong; }).find("must be a positive number"), std::string::npos)
        << wrong;
}

TEST(PickOptions, SeveralAreChosenByHowTheyAreJoined) {
  EXPECT_EQ(settled()->best, Best::random);
  EXPECT_FALSE(settled()->best_asked_for);
  EXPECT_EQ(settled([](auto& words) { words.count = "2"; })->best, Best::topology);
  EXPECT_EQ(settled([](auto& words) { words.count = "all"; })->best, Best::topology);
  const auto asked = settled([](auto& words) { words.count = "2", words.best = "memory"; });
  EXPECT_TRUE(asked->best == Best::memory && asked->best_asked_for);
  EXPECT_TRUE(refusal([](auto& words) { words.best = "fast"; }).starts_with("--best"));
}

TEST(PickOptions, AVendorIsOneOfThree) {
  EXPECT_FALSE(settled()->vendor);
  EXPECT_EQ(settled([](auto& words) { words.vendor = "amd"; })->vendor, Vendor::amd);
  EXPECT_EQ(settled([](auto& words) { words.vendor = "intel"; })->vendor, Vendor::intel);
  EXPECT_EQ(settled([](auto& words) { words.vendor = "nvidia"; })->vendor, Vendor::nvidia);
  EXPECT_TRUE(refusal([](auto& words) { words.vendor = "AMD!"; }).starts_with("--vendor"));
}

TEST(PickOptions, APriorityIsAWholeNumber) {
  for (const int right : {-1000, 0, 1000})
    EXPECT_EQ(settled([&](auto& words) { words.priority = std::to_string(right); })->priority, right);
  for (const char* wrong : {"1001", "-1001", "0.5", "high", ""})
    EXPECT_NE(refusal([&](auto& words) { words.priority = wrong; }).find("from -1000 to 1000"), std::string::npos);
}

TEST(PickOptions, LimitsAreUsualGivenOrNone) {
  const Constraints usual = settled()->constraints;
  EXPECT_TRUE(is(usual.util, Limit::usual) && is(usual.mem_used, Limit::usual));
  EXPECT_TRUE(is(usual.temp, Limit::none) && is(usual.mem_free, Limit::none));
  EXPECT_FALSE(usual.tolerate || usual.mine || usual.where);
  const auto given = settled([](auto& words) {
    words.util = "5%", words.mem_util = "100", words.procs = "2", words.temp = "60", words.name = "A100";
    words.mem_used = "1GiB", words.mem_free = "20GiB", words.tolerate = "2MiB", words.mine_ok = true;
  });
  ASSERT_TRUE(given);
  const Constraints& constraints = given->constraints;
  EXPECT_TRUE(is(constraints.util, Limit::given, 5) && is(constraints.mem_util, Limit::given, 100));
  EXPECT_TRUE(is(constraints.procs, Limit::given, 2) && is(constraints.temp, Limit::given, 60));
  EXPECT_TRUE(is(constraints.mem_used, Limit::given, 1U << 30) &&
              is(constraints.mem_free, Limit::given, 20.0 * (1U << 30)));
  EXPECT_EQ(constraints.tolerate, 2.0 * (1U << 20));
  EXPECT_EQ(constraints.mine, ::geteuid());
  EXPECT_EQ(constraints.name, "A100");
  const auto off = settled([](auto& words) { words.util = words.mem_used = "any"; });
  EXPECT_TRUE(is(off->constraints.util, Limit::none) && is(off->constraints.mem_used, Limit::none));
}

TEST(PickOptions, WhatIsNoLimitIsRefused) {
  for (const char* wrong : {"-1", "101", "5%%", "low", "nan"})
    EXPECT_TRUE(refusal([&](auto& words) { words.util = wrong; }).starts_with("--util")) << wrong;
  EXPECT_NE(refusal([](auto& words) { words.procs = "1.5"; }).find("a whole number from 0"), std::string::npos);
  EXPECT_TRUE(refusal([](auto& words) { words.procs = "1%"; }).starts_with("--procs")) << "not a share of anything";
  EXPECT_EQ(refusal([](auto& words) { words.mem_free = "20"; }),
            "--mem-free: '20' needs a unit: 20GiB or 20MiB would be right");
  EXPECT_TRUE(settled([](auto& words) { words.mem_used = "0"; })) << "nothing needs no unit";
}

TEST(PickOptions, ARuleSaysWhatHasToBeRead) {
  const auto plain = settled([](auto& words) { words.where = "power < 100W"; });
  ASSERT_TRUE(plain) << plain.error().message();
  EXPECT_TRUE(plain->constraints.where && plain->where_details && !plain->where_openers && !plain->where_pcie);
  const auto both = settled([](auto& words) { words.where = "openers == 0 and pcie < 1MB/s"; });
  ASSERT_TRUE(both) << both.error().message();
  EXPECT_TRUE(both->where_openers && both->where_pcie);
  EXPECT_FALSE(settled()->where_details);
  EXPECT_TRUE(refusal([](auto& words) { words.where = "util <"; }).starts_with("--where"));
  EXPECT_TRUE(refusal([](auto& words) { words.where = "util < 5 for 10min"; }).starts_with("--where"));
}

TEST(PickOptions, HoldingAndWaiting) {
  EXPECT_EQ(settled([](auto& words) { words.hold = "10m"; })->hold, 10min);
  EXPECT_EQ(settled([](auto& words) { words.hold_pid = "4711"; })->hold_pid, 4711);
  const auto waits = settled([](auto& words) { words.waits = true, words.wait = "2h"; });
  EXPECT_TRUE(waits->wait && waits->wait_limit == 2h && waits->lease);
  EXPECT_FALSE(settled()->wait || settled()->wait_limit);
  EXPECT_FALSE(settled([](auto& words) { words.no_lease = true; })->lease);
  EXPECT_NE(refusal([](auto& words) { words.hold = "0"; }).find("would hold nothing"), std::string::npos);
  EXPECT_NE(refusal([](auto& words) { words.hold_pid = "x"; }).find("the number of a process"), std::string::npos);
  EXPECT_NE(refusal([](auto& words) { words.hold = "1m", words.hold_pid = "1"; }).find("one of them"),
            std::string::npos);
  for (const Change& hold :
       {Change([](auto& words) { words.hold = "1m"; }), Change([](auto& words) { words.hold_pid = "4711"; })}) {
    EXPECT_NE(refusal(hold, {"true"}).find("a command holds its GPUs by itself"), std::string::npos);
    const auto unleased = [&](auto& words) { hold(words), words.no_lease = true; };
    EXPECT_TRUE(refusal(unleased).starts_with("--no-lease and --hold"));
  }
  EXPECT_TRUE(refusal([](auto& words) { words.no_lease = words.waits = true; }).starts_with("--no-lease and --wait"));
}

TEST(PickOptions, WhatBelongsToACommandAndWhatDoesNot) {
  const auto waits = [](auto& words) { words.waits = true; };
  EXPECT_EQ(refusal(waits, {"30m"}), "--wait takes its time after a '=': --wait=30m");
  EXPECT_EQ(refusal(waits, {"true"}), "");
  EXPECT_EQ(refusal([](auto& words) { words.waits = true, words.wait = "1h"; }, {"30m"}), "");
  EXPECT_EQ(refusal([](auto&) {}, {"30m"}), "") << "a program may have such a name";
  const auto format = [](auto& words) { words.format = "json"; };
  EXPECT_EQ(refusal(format, {"true"}), "--format is for a printed choice, not for a command");
  EXPECT_EQ(refusal(format), "");
  EXPECT_EQ(settled(waits, {"a", "b"})->command, (std::vector<std::string>{"a", "b"}));
}

TEST(PickOptions, WhoSharesTakesTheOthersWorkAsItIs) {
  const auto alone = settled();
  EXPECT_TRUE(alone->share == 1 && alone->patience == 1 && !alone->company);
  const auto shares = settled([](auto& words) { words.share = "3", words.procs = "2"; });
  ASSERT_TRUE(shares && shares->company);
  EXPECT_TRUE(shares->share == 3 && shares->patience == 3);
  EXPECT_TRUE(is(shares->company->util, Limit::none) && is(shares->company->mem_util, Limit::none));
  EXPECT_TRUE(is(shares->company->mem_used, Limit::none) && is(shares->company->procs, Limit::given, 2));
  EXPECT_TRUE(is(shares->constraints.util, Limit::usual)) << "alone it wants it idle";
  const auto joinable = settled([](auto& words) { words.joinable = "4"; });
  EXPECT_TRUE(joinable->share == 1 && joinable->patience == 4 && !joinable->company);
  EXPECT_TRUE(settled([](auto& words) { words.share = words.joinable = "4"; }));
  EXPECT_TRUE(refusal([](auto& words) { words.share = "4", words.joinable = "3"; }).starts_with("--joinable 3"));
  EXPECT_TRUE(settled([](auto& words) { words.share = std::to_string(kMostHolders); }));
  for (const std::string& wrong : {std::string("0"), std::to_string(kMostHolders + 1), std::string("x")})
    EXPECT_TRUE(refusal([&](auto& words) { words.share = wrong; }).starts_with("--share " + wrong));
  EXPECT_TRUE(refusal([](auto& words) { words.share = "2", words.no_lease = true; }).starts_with("--no-lease"));
}

}  // namespace
}  // namespace lull
