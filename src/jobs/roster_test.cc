// Who is judged: the subjects that come of who holds which GPU.

#include "jobs/roster.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpu/inventory_test.h"

namespace lull {
namespace {

Card card(unsigned index, std::vector<Holder> holders, bool listed = true, bool complete = true) {
  return {gpus_for_test(index + 1)->devices.back(), std::move(holders), {}, {}, listed, listed && complete, true};
}
Card drawn(unsigned index, std::vector<Holder> drawers) {
  return {gpus_for_test(index + 1)->devices.back(), {}, std::move(drawers), {}, true, true, true};
}
Holder holder(pid_t pid, std::string job, uid_t user = 1000) {
  return {.pid = pid, .start_ticks = 1, .user = user, .user_name = "ada", .name = "x", .job = job, .job_title = job};
}

TEST(RosterTest, AJobKeepsAGpuThatCannotBeListedAndMayBeOnOthers) {
  Roster roster({.per = Per::job});
  const std::vector<Device> scope = gpus_for_test(2)->devices;
  const auto first = roster.look(scope, {card(0, {holder(1, "a")}), card(1, {})});
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].subject.scope.devices.size(), 1U);
  EXPECT_TRUE(first[0].subject.scope.not_judged.empty());

  const auto maybe = roster.look(scope, {card(0, {holder(1, "a")}), card(1, {}, true, false)});
  EXPECT_EQ(maybe[0].subject.scope.devices.size(), 2U) << "it may be there as well";

  const auto unseen = roster.look(scope, {card(0, {}, false), card(1, {})});
  ASSERT_EQ(unseen.size(), 1U);
  EXPECT_FALSE(unseen[0].subject.scope.not_judged.empty());
  EXPECT_TRUE(unseen[0].holders.empty()) << "nobody is ended who is not seen";

  EXPECT_TRUE(roster.look(scope, {card(0, {}), card(1, {})}).empty());
}

TEST(RosterTest, AJobIsJudgedWhereItOnlyDrawsAndADesktopIsNoJob) {
  const std::vector<Device> scope = gpus_for_test(2)->devices;
  for (const bool draws_first : {false, true}) {
    const unsigned holds = draws_first ? 1 : 0;
    const unsigned draws = draws_first ? 0 : 1;
    const auto cards = [&](std::vector<Holder> holders, std::vector<Holder> drawers) {
      std::vector<Card> made = {card(holds, std::move(holders)), drawn(draws, std::move(drawers))};
      if (draws_first) std::swap(made[0], made[1]);
      return made;
    };
    Roster roster({.per = Per::job});
    const auto alone = roster.look(scope, cards({holder(1, "a")}, {holder(9, "desktop")}));
    ASSERT_EQ(alone.size(), 1U);
    EXPECT_EQ(alone[0].subject.scope.devices.size(), 1U);
    const auto both = roster.look(scope, cards({holder(1, "a")}, {holder(9, "desktop"), holder(2, "a")}));
    ASSERT_EQ(both.size(), 1U);
    EXPECT_EQ(both[0].subject.scope.devices.size(), 2U);
    EXPECT_EQ(both[0].holders.size(), 1U) << "who draws is not ended";
    EXPECT_NE(both[0].subject.id, alone[0].subject.id);
    const auto gone = roster.look(scope, cards({holder(1, "a")}, {}));
    EXPECT_EQ(gone[0].subject.scope.devices.size(), 1U);
    EXPECT_TRUE(roster.look(scope, cards({}, {holder(2, "a")})).empty()) << "what draws and computes nothing is no job";
  }
}

TEST(RosterTest, ANewcomerMakesAnotherSubjectAndWhoLeavesDoesNot) {
  for (const Per per : {Per::gpu, Per::job}) {
    Roster roster({.per = per});
    const std::vector<Device> scope = gpus_for_test(1)->devices;
    const auto id = [&](std::vector<Holder> holders) {
      return roster.look(scope, {card(0, std::move(holders))})[0].subject.id;
    };
    const SubjectId two = id({holder(1, "a"), holder(2, "a")});
    EXPECT_EQ(id({holder(1, "a"), holder(2, "a")}), two);
    EXPECT_EQ(id({holder(1, "a")}), two);
    const SubjectId again = id({holder(1, "a"), holder(2, "a")});
    EXPECT_NE(again, two);
    EXPECT_NE(id({holder(1, "a"), holder(2, "a"), holder(3, "b")}), again) << "of another job, too";
  }
}

TEST(RosterTest, ARuleThatMoreGpusCouldMakeTrueIsNotJudgedOnAGuess) {
  Roster roster({.per = Per::job, .stricter_with_more = false});
  const std::vector<Device> scope = gpus_for_test(2)->devices;
  const auto members = roster.look(scope, {card(0, {holder(1, "a")}), card(1, {}, true, false)});
  EXPECT_FALSE(members[0].subject.scope.not_judged.empty());
}

}  // namespace
}  // namespace lull
