// Who is judged: the subjects that come of who holds which GPU.

#include "jobs/subject_tracker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gpu/inventory_test.h"
#include "sense/file_tree_test.h"

namespace lull {
namespace {

GpuUse card(unsigned index, std::vector<GpuProcess> processes, bool listed = true, bool complete = true) {
  return {.device = gpus_for_test(index + 1)->devices.back(),
          .processes = std::move(processes),
          .listed = listed,
          .complete = listed && complete,
          .reachable = true};
}
GpuUse drawn(unsigned index, std::vector<GpuProcess> processes) {
  for (GpuProcess& one : processes) {
    one.compute = false;
    one.graphics = true;
  }
  return card(index, std::move(processes));
}
GpuProcess holder(pid_t pid, std::string job, uid_t user = 1000) {
  ProcessInfo info;
  info.uid = user;
  info.user = "ada";
  info.name = "x";
  return {.pid = pid,
          .compute = true,
          .start_ticks = 1,
          .info = std::make_shared<const ProcessInfo>(info),
          .identified = true,
          .job = job,
          .job_title = job};
}

TEST(SubjectTrackerTest, AJobKeepsAGpuThatCannotBeListedAndMayBeOnOthers) {
  SubjectTracker tracker({.per = Per::job});
  const std::vector<Device> scope = gpus_for_test(2)->devices;
  const auto first = tracker.look(scope, {card(0, {holder(1, "a")}), card(1, {})});
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].subject.scope.devices.size(), 1U);
  EXPECT_TRUE(first[0].subject.scope.not_judged.empty());
  const TrackedSubject* const found = tracker.find(first[0].subject.id);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->key, "job:a");
  EXPECT_EQ(tracker.find({"another"}), nullptr);

  const auto maybe = tracker.look(scope, {card(0, {holder(1, "a")}), card(1, {}, true, false)});
  EXPECT_EQ(maybe[0].subject.scope.devices.size(), 2U) << "it may be there as well";

  const auto unseen = tracker.look(scope, {card(0, {}, false), card(1, {})});
  ASSERT_EQ(unseen.size(), 1U);
  EXPECT_FALSE(unseen[0].subject.scope.not_judged.empty());
  EXPECT_TRUE(unseen[0].holders.empty()) << "nobody is ended who is not seen";

  EXPECT_TRUE(tracker.look(scope, {card(0, {}), card(1, {})}).empty());
}

TEST(SubjectTrackerTest, AJobBeginsAnewWithWhoeverComesToItsGpusAndNotWithWhoGoes) {
  SubjectTracker tracker({.per = Per::job});
  const std::vector<Device> scope = gpus_for_test(2)->devices;
  const auto id = [&](std::vector<GpuProcess> first, std::vector<GpuProcess> second) {
    const auto& members = tracker.look(scope, {card(0, std::move(first)), card(1, std::move(second))});
    const auto found = std::ranges::find(members, "job:a", &TrackedSubject::key);
    return found == members.end() ? "" : found->subject.id.value;
  };
  const GpuProcess one = holder(1, "a");
  const GpuProcess two = holder(2, "a");
  const GpuProcess other = holder(9, "b");
  const std::string begun = id({one, two}, {one});
  EXPECT_EQ(id({one, two}, {one}), begun);
  EXPECT_EQ(id({one}, {one, two}), begun) << "from one of its GPUs to another";
  EXPECT_EQ(id({one}, {one}), begun) << "somebody went";
  const std::string back = id({one, two}, {one});
  EXPECT_NE(back, begun) << "and came back";
  EXPECT_NE(id({one, two}, {one, other}), back) << "another job's";
  const std::string both = id({one, two}, {one, other});
  EXPECT_EQ(id({one}, {other}), both);
  EXPECT_EQ(id({one}, {}), both);
  EXPECT_NE(id({one}, {two}), both) << "on a GPU that it had left";
}

TEST(SubjectTrackerTest, AJobIsJudgedWhereItOnlyDrawsAndADesktopIsNoJob) {
  const std::vector<Device> scope = gpus_for_test(2)->devices;
  for (const bool draws_first : {false, true}) {
    const unsigned holds = draws_first ? 1 : 0;
    const unsigned draws = draws_first ? 0 : 1;
    const auto cards = [&](std::vector<GpuProcess> holders, std::vector<GpuProcess> drawers) {
      std::vector<GpuUse> made = {card(holds, std::move(holders)), drawn(draws, std::move(drawers))};
      if (draws_first) std::swap(made[0], made[1]);
      return made;
    };
    SubjectTracker tracker({.per = Per::job});
    const auto alone = tracker.look(scope, cards({holder(1, "a")}, {holder(9, "desktop")}));
    ASSERT_EQ(alone.size(), 1U);
    EXPECT_EQ(alone[0].subject.scope.devices.size(), 1U);
    const auto both = tracker.look(scope, cards({holder(1, "a")}, {holder(9, "desktop"), holder(2, "a")}));
    ASSERT_EQ(both.size(), 1U);
    EXPECT_EQ(both[0].subject.scope.devices.size(), 2U);
    EXPECT_EQ(both[0].holders.size(), 1U) << "who draws is not ended";
    EXPECT_NE(both[0].subject.id, alone[0].subject.id);
    const auto gone = tracker.look(scope, cards({holder(1, "a")}, {}));
    EXPECT_EQ(gone[0].subject.scope.devices.size(), 1U);
    EXPECT_TRUE(tracker.look(scope, cards({}, {holder(2, "a")})).empty())
        << "what draws and computes nothing is no job";
  }
}

TEST(SubjectTrackerTest, ANewcomerMakesAnotherSubjectAndWhoLeavesDoesNot) {
  for (const Per per : {Per::gpu, Per::job}) {
    SubjectTracker tracker({.per = per});
    const std::vector<Device> scope = gpus_for_test(1)->devices;
    const auto id = [&](std::vector<GpuProcess> holders) {
      return tracker.look(scope, {card(0, std::move(holders))})[0].subject.id;
    };
    const SubjectId two = id({holder(1, "a"), holder(2, "a")});
    EXPECT_EQ(id({holder(1, "a"), holder(2, "a")}), two);
    EXPECT_EQ(id({holder(1, "a")}), two);
    const SubjectId again = id({holder(1, "a"), holder(2, "a")});
    EXPECT_NE(again, two);
    EXPECT_NE(id({holder(1, "a"), holder(2, "a"), holder(3, "b")}), again) << "of another job, too";
  }
}

TEST(SubjectTrackerTest, ARuleThatMoreGpusCouldMakeTrueIsNotJudgedOnAGuess) {
  SubjectTracker tracker({.per = Per::job, .stricter_with_more = false});
  const std::vector<Device> scope = gpus_for_test(2)->devices;
  const auto members = tracker.look(scope, {card(0, {holder(1, "a")}), card(1, {}, true, false)});
  EXPECT_FALSE(members[0].subject.scope.not_judged.empty());
}

// Nobody knows whether it is theirs.
TEST(SubjectTrackerTest, AProcessWhoseUserCannotBeReadIsLeftAloneWhereUsersMatter) {
  GpuProcess unknown = holder(1, "a");
  ProcessInfo info = *unknown.info;
  info.uid.reset();
  unknown.info = std::make_shared<const ProcessInfo>(info);
  const std::vector<Device> scope = gpus_for_test(1)->devices;
  for (const Per per : {Per::job, Per::gpu}) {
    SubjectTracker all({.per = per});
    EXPECT_EQ(all.look(scope, {card(0, {unknown})}).size(), 1U);
    SubjectTracker except({.per = per, .except = {1000}});
    EXPECT_TRUE(except.look(scope, {card(0, {unknown})}).empty());
    SubjectTracker only({.per = per, .only = {0}});
    EXPECT_TRUE(only.look(scope, {card(0, {unknown})}).empty()) << "it is not root's";
  }
}

TEST(SubjectTrackerTest, SubordinateUidsGoWithTheirUser) {
  const TestTree tree;
  tree.write("passwd", "ada:x:1000:1::/:/bin/sh\nbob:x:1001:1::/:/bin/sh\n");
  tree.write("subuid", "ada:100000:65536\n1001:165536:65536\n");
  const UserFiles files{.passwd = tree.at("passwd"), .subuid = tree.at("subuid")};
  const std::vector<Device> scope = gpus_for_test(2)->devices;
  const std::vector<GpuUse> cards = {card(0, {holder(1, "a", 100'999)}), card(1, {holder(2, "b", 165'600)})};
  for (const Per per : {Per::job, Per::gpu}) {
    SubjectTracker except({.per = per, .except = {1000}, .user_files = files});
    const auto others = except.look(scope, cards);
    ASSERT_EQ(others.size(), 1U);
    EXPECT_EQ(others[0].holders[0].pid, 2);
    SubjectTracker only({.per = per, .only = {1000}, .user_files = files});
    const auto ours = only.look(scope, cards);
    ASSERT_EQ(ours.size(), 1U);
    EXPECT_EQ(ours[0].holders[0].pid, 1);
  }
}

}  // namespace
}  // namespace lull
