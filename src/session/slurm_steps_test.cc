#include "session/slurm_steps.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace lull {
namespace {

using namespace std::chrono_literals;
using slurm::UserRule;
using Texts = std::vector<std::string>;

std::vector<EachStep> steps(const std::vector<std::pair<std::string, std::string>>& all) {
  std::vector<EachStep> made;
  for (const auto& [rule, action] : all)
    made.push_back({.when = *parse_rule(rule), .actions = {*parse_action(action)}});
  return made;
}

Texts texts(const std::vector<EachStep>& all) {
  Texts made;
  for (const EachStep& step : all) made.push_back(to_text(step.when) + ": " + to_text(step.actions));
  return made;
}

const std::vector<EachStep> kSite = steps({{"util < 1 for 1h", "slurm=comment"}, {"util < 1 for 2h", "slurm=requeue"}});

Texts asked(Duration time, UserRule::Then then = UserRule::Then::site, Duration at_most = 24h,
            const std::vector<EachStep>& site = kSite) {
  return texts(steps_asked_for(site, {time, then}, 5s, at_most));
}

TEST(SlurmSteps, TheTimeAskedForIsThatOfTheStepThatActsAndTheOthersMoveWithIt) {
  EXPECT_EQ(asked(8h), (Texts{"util < 1 for 4h: slurm=comment", "util < 1 for 8h: slurm=requeue"}));
  EXPECT_EQ(asked(30min), (Texts{"util < 1 for 15m: slurm=comment", "util < 1 for 30m: slurm=requeue"}));
  const auto three = steps({{"util < 1 for 2h", "slurm=signal:USR1"}, {"util < 1 for 3h", "slurm=cancel"}});
  EXPECT_EQ(asked(4h, UserRule::Then::site, 24h, three),
            (Texts{"util < 1 for 4h: slurm=signal:USR1", "util < 1 for 6h: slurm=cancel"}));
}

TEST(SlurmSteps, NobodyGetsMoreThanTheSiteAllowsNorLessThanItGives) {
  EXPECT_EQ(asked(100h, UserRule::Then::site, 4h),
            (Texts{"util < 1 for 2h: slurm=comment", "util < 1 for 4h: slurm=requeue"}));
  EXPECT_EQ(asked(100h, UserRule::Then::site, 10min), texts(kSite)) << "who asks for more time does not get less";
  EXPECT_EQ(asked(100h, UserRule::Then::site, 0s), texts(kSite));
}

TEST(SlurmSteps, TheUserChoosesHowItEnds) {
  EXPECT_EQ(asked(2h, UserRule::Then::cancel),
            (Texts{"util < 1 for 1h: slurm=comment", "util < 1 for 2h: slurm=cancel"}));
  const auto site = steps({{"util < 1 for 2h", "slurm=cancel"}});
  EXPECT_EQ(texts(steps_asked_for(site, {2h, UserRule::Then::requeue}, 5s, 24h)),
            Texts{"util < 1 for 2h: slurm=requeue"});
}

TEST(SlurmSteps, WhoAsksForAWarningIsEndedNoEarlierThanTheSiteAllowsAtMost) {
  EXPECT_EQ(asked(1h, UserRule::Then::warn), (Texts{"util < 1 for 30m: slurm=comment", "util < 1 for 1h: slurm=comment",
                                                    "util < 1 for 1d: slurm=requeue"}));
  EXPECT_EQ(asked(1h, UserRule::Then::warn, 0s).back(), "util < 1 for 2h: slurm=requeue");
  const auto told = steps({{"util < 1 for 1h", "slurm=comment"}});
  EXPECT_EQ(asked(3h, UserRule::Then::warn, 24h, told), Texts{"util < 1 for 3h: slurm=comment"});
}

TEST(SlurmSteps, RulesThatCountSamplesOrHaveNoTime) {
  EXPECT_EQ(asked(2h, UserRule::Then::site, 24h, steps({{"util < 1 for 12 samples", "slurm=cancel"}})),
            Texts{"util < 1 for 2h: slurm=cancel"});
  EXPECT_EQ(asked(2h, UserRule::Then::site, 24h, steps({{"util < 1", "slurm=comment"}, {"util < 1", "slurm=cancel"}})),
            (Texts{"util < 1 for 2h: slurm=comment", "util < 1 for 2h: slurm=cancel"}));
  EXPECT_EQ(asked(10'000 * 24h, UserRule::Then::site, 10'000 * 24h,
                  steps({{"util < 1 for 1s", "slurm=cancel"}, {"util < 1 for 9000d", "slurm=cancel"}}))
                .back(),
            "util < 1 for 10000d: slurm=cancel");
}

TEST(SlurmSteps, NeverEarlierThanTheSiteForWhoAsksForAsMuchOrMore) {
  for (const Duration reference : {Duration(1ms), Duration(7s), Duration(1h), Duration(3h + 1s)})
    for (const Duration other : {Duration(1ms), Duration(3333ms), Duration(2h)})
      for (const Duration more : {Duration(0s), Duration(1ms), Duration(11s), Duration(7h)})
        for (const Duration at_most : {Duration(0s), Duration(1h), Duration(9h)})
          for (const auto then : {UserRule::Then::site, UserRule::Then::cancel, UserRule::Then::warn}) {
            std::vector<EachStep> site =
                steps({{"util < 1 for 1h", "slurm=requeue"}, {"util < 1 for 1h", "slurm=cancel"}});
            site[0].when = with_span(site[0].when, {.time = reference});
            site[1].when = with_span(site[1].when, {.time = other});
            const auto made = steps_asked_for(site, {reference + more, then}, 5s, at_most);
            ASSERT_GE(made.size(), 2U);
            EXPECT_GE(made[made.size() - 2].when.span()->time, reference);
            EXPECT_GE(made.back().when.span()->time, other);
          }
}

}  // namespace
}  // namespace lull
