#include "slurm/user_rule.h"

#include <gtest/gtest.h>

#include <string>

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;

TEST(UserRuleTest, ATimeAndWhatToDo) {
  EXPECT_EQ(parse_user_rule("2h").value(), (UserRule{2h, UserRule::Then::site}));
  EXPECT_EQ(parse_user_rule("1h30m,requeue").value(), (UserRule{90min, UserRule::Then::requeue}));
  EXPECT_EQ(parse_user_rule("90s,cancel").value(), (UserRule{90s, UserRule::Then::cancel}));
  EXPECT_EQ(parse_user_rule("1d,warn").value(), (UserRule{24h, UserRule::Then::warn}));
}

TEST(UserRuleTest, NonsenseIsRefusedInOneLine) {
  for (const char* text : {"", ",", "2", "2h,", "2h,kill", "2h,warn,cancel", "2h, warn", "-2h", "0", "0s", "2ms",
                           "20000d", "nan", "inf h", "1e300h", "2h\nx", "never", "warn"}) {
    const auto rule = parse_user_rule(text);
    ASSERT_FALSE(rule) << text;
    EXPECT_EQ(rule.error().message().find('\n'), std::string::npos) << text;
  }
  EXPECT_LT(parse_user_rule(std::string(100'000, 'x')).error().message().size(), 1000U);
  EXPECT_LT(parse_user_rule("2h," + std::string(100'000, 'x')).error().message().size(), 1000U);
}

TEST(UserRuleTest, AWordOfTheCommentCountsWhereThereIsNoOption) {
  EXPECT_FALSE(user_rule_of({.job = 1}).value());
  EXPECT_FALSE(user_rule_of({.job = 1, .comment = "no lull here; xlull=2h lull 3h"}).value());
  EXPECT_EQ(user_rule_of({.job = 1, .comment = "lull=2h"}).value()->time, 2h);
  EXPECT_EQ(user_rule_of({.job = 1, .comment = "run 7; lull=3h,warn\tx"}).value(),
            (UserRule{3h, UserRule::Then::warn}));
  EXPECT_EQ(user_rule_of({.job = 1, .comment = "lull=2h", .rule = "5h"}).value()->time, 5h);
  EXPECT_FALSE(user_rule_of({.job = 1, .comment = "lull="}));
  EXPECT_FALSE(user_rule_of({.job = 1, .comment = "lull=2h lull=3h"})) << "which of them is meant cannot be told";
  EXPECT_FALSE(user_rule_of({.job = 1, .comment = "lull=2h", .rule = "soon"})) << "the option is what was asked for";
}

}  // namespace
}  // namespace lull::slurm
