#include "act/facts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/host.h"
#include "sense/file_tree_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

ProcessEntry entry(pid_t pid) {
  ProcessEntry one;
  one.pid = pid;
  one.name = "python3";
  one.state = 'D';
  return one;
}

// A file that nobody ever writes stands for memory of a process that the kernel cannot get at.
TEST(Facts, ACommandLineThatHangsIsLeftOutAndThatIsSaid) {
  const TestTree tree;
  tree.write("proc/5/cmdline", std::string("python3\0train.py\0", 17));
  tree.write("proc/5/wchan", "futex_wait");
  tree.write("proc/6/wchan", "0");
  ASSERT_EQ(::mkfifo(tree.at("proc/6/cmdline").c_str(), 0600), 0);
  tree.write("proc/7/cmdline", std::string("sleep\0", 6));
  const SystemClock clock;
  const Instant begin = clock.now();
  const auto views = view_members({entry(5), entry(6), entry(7)}, {}, 0, tree.root());
  EXPECT_LT(clock.now() - begin, 5s);
  ASSERT_EQ(views.size(), 3U);
  EXPECT_EQ(views[0].command, "python3 train.py");
  EXPECT_EQ(views[0].waiting_in, "futex_wait");
  EXPECT_EQ(views[1].command, "[python3]");
  EXPECT_TRUE(views[1].unread);
  EXPECT_EQ(views[2].command, "sleep");
  EXPECT_FALSE(views[2].unread);
  EXPECT_NE(tree_lines(views, 10)[1].find("not read in time"), std::string::npos);
  FiringFacts facts;
  facts.members = views;
  EXPECT_NE(facts_json(facts).find(R"("command":null)"), std::string::npos);
}

TEST(FiringFacts, SayWhereItIsWhatComesNextAndHowToAskForTime) {
  FiringFacts facts;
  facts.action = "notify=slack";
  facts.announced = "end in 2h at the earliest";
  facts.keep = "lull keep 4711 4h";
  facts.evidence = "/hangs/1/index.html";
  const std::string json = facts_json(facts);
  EXPECT_NE(json.find(R"("host":")" + host_name() + R"(")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("next":"end in 2h at the earliest","keep":"lull keep 4711 4h")"), std::string::npos) << json;
  const auto environment = facts_environment(facts);
  const auto has = [&](const char* name, const std::string& value) {
    return std::ranges::count(environment, std::pair<std::string, std::string>(name, value)) == 1;
  };
  EXPECT_TRUE(has("LULL_HOST", host_name()));
  EXPECT_TRUE(has("LULL_NEXT", "end in 2h at the earliest"));
  EXPECT_TRUE(has("LULL_KEEP", "lull keep 4711 4h"));
  EXPECT_TRUE(has("LULL_MORE_TIME", "`lull keep 4711 4h`"));
  EXPECT_NE(json.find(R"("evidence_page":"/hangs/1/index.html")"), std::string::npos) << json;
  EXPECT_TRUE(has("LULL_EVIDENCE", "/hangs/1/index.html"));
}

TEST(FiringFacts, SayWhatHelpsWhereNobodyCanBeAskedForTime) {
  FiringFacts facts;
  EXPECT_NE(facts_json(facts).find(R"("keep":null,"more_time":"work on the GPUs calls off)"), std::string::npos);
  EXPECT_TRUE(more_time_of(facts).ends_with("`kill " + std::to_string(::getpid()) + "` ends this watcher"));
  facts.job = 4711;
  EXPECT_TRUE(more_time_of(facts).ends_with("start it with a longer idle time"));
}

}  // namespace
}  // namespace lull
