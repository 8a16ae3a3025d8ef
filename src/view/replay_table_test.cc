#include "view/replay_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "replay/answer.h"

namespace lull {
namespace {

replay::ReplayResult replayed(const std::string& trace, replay::Per per = replay::Per::gpu) {
  const std::string path = testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv";
  std::ofstream(path) << trace;
  replay::ReplayOptions options;
  options.paths = {path};
  options.policy.idle = *parse_rule("util < 5 for 20s");
  options.per = per;
  auto result = replay::replay(options);
  std::remove(path.c_str());
  EXPECT_TRUE(result) << (result ? "" : result.error().message());
  return *std::move(result);
}

// alice's job pauses and works again; then nobody has the GPU; then bob's job idles until it ends.
std::string a_day() {
  std::string text = "time,gpu,util,user,pids,command\n";
  for (int at = 0; at < 100; at += 5)
    text += fmt::format("{},0,{},alice,1,python train.py\n", at, at >= 20 && at < 60 ? 0 : 90);
  for (int at = 100; at < 200; at += 5) text += fmt::format("{},0,0,none,none,none\n", at);
  for (int at = 200; at < 300; at += 5) text += fmt::format("{},0,{},bob,2,./serve\n", at, at < 220 ? 90 : 0);
  for (int at = 300; at < 330; at += 5) text += fmt::format("{},0,0,none,none,none\n", at);
  return text;
}

TEST(ReplayTable, ListsWhatWouldHaveBeenEndedWithWhoseItWas) {
  const std::string text = replay_table(replayed(a_day()), {}, false, {.width = 120});
  EXPECT_NE(text.find("GPU  ENDED AT  USER   COMMAND          THEN"), std::string::npos) << text;
  EXPECT_NE(text.find("0    40s       alice  python train.py  worked again after 20s"), std::string::npos) << text;
  EXPECT_NE(text.find("0    240s      bob    ./serve          released after 55s"), std::string::npos) << text;
  EXPECT_EQ(text.find("STAYED IDLE"), std::string::npos) << text;
  EXPECT_EQ(text.find("firings"), std::string::npos) << text;
}

TEST(ReplayTable, VerboseListsEveryFiringToo) {
  const std::string text = replay_table(replayed(a_day()), {.verbose = true}, false, {.width = 120});
  EXPECT_NE(text.find("each time it would have fired, whichever job had the GPU:"), std::string::npos) << text;
  EXPECT_NE(text.find("STAYED IDLE"), std::string::npos) << text;
}

TEST(ReplayTable, JobsAreCalledJobsAndEnd) {
  const std::string text = replay_table(replayed(a_day(), replay::Per::job), {}, true, {.width = 120});
  EXPECT_EQ(text.find("\nGPU "), std::string::npos) << text;
  EXPECT_NE(text.find("\nJOB      ENDED AT"), std::string::npos) << text;
  EXPECT_NE(text.find("\nbob/2    240s"), std::string::npos) << text;
  EXPECT_EQ(text.find("unknown"), std::string::npos) << text;
}

TEST(ReplayTable, FitsNarrowScreens) {
  std::string text = replay_table(replayed(a_day()), {}, false, {.width = 60});
  text.erase(0, text.find("what it would have ended:"));
  EXPECT_NE(text.find("back after 20s"), std::string::npos) << text;
  EXPECT_NE(text.find("alice"), std::string::npos) << text;
}

TEST(ReplayBasis, SaysWhereJobsCannotBeToldApart) {
  const std::string told = "cannot be distinguished";
  EXPECT_EQ(replay::basis(replayed(a_day())).find(told), std::string::npos);
  std::string bare = "time,gpu,util\n";
  std::string memory = "time,gpu,util,mem_used\n";
  for (int at = 0; at < 100; at += 5) {
    bare += fmt::format("{},0,{}\n", at, at < 20 ? 90 : 0);
    memory += fmt::format("{},0,{},{}\n", at, at < 20 ? 90 : 0, at < 70 ? 5'000'000'000 : 0);
  }
  const std::string all_of_it = replay::basis(replayed(bare));
  EXPECT_NE(all_of_it.find(told), std::string::npos) << all_of_it;
  EXPECT_NE(all_of_it.find("what ran on a GPU counts as one job, from the first sample to the last."),
            std::string::npos);
  const std::string released = replay::basis(replayed(memory));
  EXPECT_NE(released.find("counts as one job until its memory is released."), std::string::npos) << released;
  EXPECT_NE(replay::basis(replayed(bare, replay::Per::all)).find("all that ran counts as one job"), std::string::npos);
}

}  // namespace
}  // namespace lull
