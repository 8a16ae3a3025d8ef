// What is said of the cost of sampling.
#include <gtest/gtest.h>

#include "session/feed.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// How often `see` spoke of slowness in ten samples of a second, and what it said last.
std::pair<int, std::string> said(Duration took, Duration handled) {
  SamplingCosts costs;
  std::pair<int, std::string> answer;
  Snapshot snapshot;
  snapshot.took = took;
  for (int i = 0; i < 10; ++i)
    for (const SamplingCosts::Note& note : costs.see(snapshot, 1s, handled)) {
      EXPECT_EQ(note.event, "slow");
      ++answer.first;
      answer.second = note.text;
    }
  return answer;
}

TEST(SamplingCosts, IsSaidOnceWhereItTakesMoreThanATenthOfTheInterval) {
  EXPECT_EQ(said(100ms, {}).first, 0);
  EXPECT_EQ(said(101ms, {}).first, 1);
  EXPECT_NE(said(150ms, 10ms).second.find("reading the GPUs takes 150ms of every 1s"), std::string::npos);
}

TEST(SamplingCosts, WhatIsDoneWithASampleCountsAsWell) {
  EXPECT_EQ(said(10ms, 90ms).first, 0);
  const auto [times, text] = said(10ms, 91ms);
  EXPECT_EQ(times, 1);
  EXPECT_NE(text.find("looking at the processes on the GPUs takes 91ms of every 1s"), std::string::npos) << text;
}

TEST(SamplingCosts, WhatIsAsSlowAsTheOtherIsTheReading) {
  EXPECT_NE(said(60ms, 60ms).second.find("reading the GPUs takes 60ms"), std::string::npos);
  EXPECT_NE(said(60ms, 61ms).second.find("looking at the processes on the GPUs takes 61ms"), std::string::npos);
}

TEST(SamplingCosts, IsSaidAtTheThirdSlowSampleInARow) {
  SamplingCosts costs;
  std::string said;
  for (const Duration took : {200ms, 200ms, 10ms, 200ms, 200ms, 200ms, 200ms}) {
    Snapshot snapshot;
    snapshot.took = took;
    said += costs.see(snapshot, 1s, {}).empty() ? "." : "!";
  }
  EXPECT_EQ(said, ".....!.");
}

TEST(SamplingCosts, ThatWakingTheGpusTookLongIsSaidOnce) {
  SamplingCosts costs;
  Snapshot snapshot;
  EXPECT_TRUE(costs.see(snapshot, 1s, {}).empty());
  snapshot.attach_took = 10s;
  const auto notes = costs.see(snapshot, 1s, {});
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0].event, "attach");
  EXPECT_NE(notes[0].text.find("waking the GPUs took 10s"), std::string::npos);
  EXPECT_TRUE(costs.see(snapshot, 1s, {}).empty());
}

}  // namespace
}  // namespace lull
