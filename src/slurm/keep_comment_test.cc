#include "slurm/keep_comment.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/calendar.h"

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;

WallTime at(const char* text) { return parse_rfc3339(text).value_or(WallTime{}); }

HelperResult said(std::string output, int code = 0) {
  HelperResult result;
  result.status = ExitStatus{.code = code};
  result.output = std::move(output);
  if (code != 0) result.trouble = "it failed";
  return result;
}

TEST(KeepComment, LeavesWhatTheUserWrote) {
  const WallTime until = at("2026-11-18T12:00:00Z");
  EXPECT_EQ(with_keep("", until), "lull-keep=2026-11-18T12:00:00Z");
  EXPECT_EQ(with_keep("my  run, lull=2h \"x\"", until), "my  run, lull=2h \"x\" lull-keep=2026-11-18T12:00:00Z");
  EXPECT_EQ(with_keep("a lull-keep=2026-11-18T11:00:00Z b", until), "a b lull-keep=2026-11-18T12:00:00Z");
  EXPECT_EQ(with_keep("lull-keep=never x", until), "x lull-keep=2026-11-18T12:00:00Z");
}

TEST(KeepComment, NeverShortens) {
  const std::string later = "x lull-keep=2026-11-19T12:00:00Z";
  EXPECT_EQ(with_keep(later, at("2026-11-18T12:00:00Z")), later);
}

TEST(KeepComment, WhatIsNoTimeAsksForNothing) {
  for (const char* text : {"", "lull-keep=", "lull-keep=4h", "lull-keep=tomorrow", "lull-keep=99999-01-01T00:00:00Z",
                           "xlull-keep=2026-11-18T12:00:00Z", "lull=2026-11-18T12:00:00Z", "(null)"})
    EXPECT_FALSE(kept_until(text)) << text;
  EXPECT_EQ(kept_until("lull-keep=x lull-keep=2026-11-18T12:00:00Z lull-keep=2026-11-18T11:00:00Z"),
            at("2026-11-18T12:00:00Z"));
}

TEST(KeepComment, IsReadWithTheNumberOfItsJob) {
  using All = std::map<std::uint64_t, std::string>;
  EXPECT_EQ(*read_comments("22 a b\n"), (All{{22, "a b"}}));
  EXPECT_EQ(*read_comments("22 (null)\n"), (All{{22, ""}}));
  EXPECT_EQ(*read_comments("22 \n"), (All{{22, ""}}));
  EXPECT_EQ(*read_comments("23 x\n22 y\n"), (All{{22, "y"}, {23, "x"}}));
  EXPECT_EQ(*read_comments(""), All{});
  EXPECT_FALSE(read_comments("22 a\nlull-keep=2026-11-18T12:00:00Z\n")) << "several lines";
  EXPECT_FALSE(read_comments("22 a\n22 b\n"));
  EXPECT_FALSE(read_comments("22\n"));
  EXPECT_FALSE(read_comments("slurm_load_jobs error: nothing\n"));
}

struct Asked {
  std::vector<Command> commands;
  KeepByComment::Outcome outcome;
};

// A Slurm that answers so, in this order.
Asked keep(std::vector<HelperResult> answers) {
  Asked asked;
  std::size_t next = 0;
  KeepByComment keeping(
      [&](const Command& command, Duration limit, const Helpers::Done& done) {
        EXPECT_LE(limit, 5s);
        asked.commands.push_back(command);
        const std::size_t now = next++;  // the next question is asked from within this answer
        done(now < answers.size() ? answers[now] : said("", 1));
      },
      22, at("2026-11-18T12:00:00Z"), [&](const KeepByComment::Outcome& outcome) { asked.outcome = outcome; });
  // The answers come before start() returns.
  keeping.start();
  return asked;
}

std::string row(const char* task = "N/A", const char* het_job = "N/A") {
  return fmt::format("{:24}{:24}{:16}{:8}{:8}{:24}{:64}{:24}\n", "22", "RUNNING", "0", "1", "1", "22", task, het_job);
}

TEST(KeepComment, LeavesTheOtherComponentsOfAHetJobAlone) {
  const Asked leader = keep({said(row("N/A", "22")), said("22 a\n23 b\n"), said("")});
  ASSERT_EQ(leader.commands.size(), 3U);
  EXPECT_EQ(leader.commands[2],
            (Command{"scontrol", "update", "jobid=22+0", "Comment=a lull-keep=2026-11-18T12:00:00Z"}));
  const Asked other = keep({said(row("N/A", "21")), said("22 a\n"), said("")});
  ASSERT_EQ(other.commands.size(), 3U);
  EXPECT_EQ(other.commands[2][2], "jobid=22");
}

TEST(KeepComment, IsSetForTheTaskOfAnArrayAlone) {
  const Asked asked = keep({said(row("2")), said("22 mine\n"), said("")});
  EXPECT_TRUE(asked.outcome.kept);
  ASSERT_EQ(asked.commands.size(), 3U);
  EXPECT_EQ(asked.commands[2],
            (Command{"scontrol", "update", "jobid=22_2", "Comment=mine lull-keep=2026-11-18T12:00:00Z"}));
}

TEST(KeepComment, WhatFailsSetsNothingAndIsSaid) {
  EXPECT_EQ(keep({said(row()), said("22 a\nb\n")}).commands.size(), 2U) << "it could not be left as it was";
  const Asked stranger = keep({said(row()), said("22 \n"), said("slurm_update error: Access/permission denied\n", 1)});
  EXPECT_FALSE(stranger.outcome.kept);
  EXPECT_NE(stranger.outcome.text.find("permission denied"), std::string::npos) << stranger.outcome.text;
  EXPECT_NE(keep({said("slurm_load_jobs error: Invalid job id specified\n", 1)}).outcome.text.find("no job 22"),
            std::string::npos);
  HelperResult hung;
  hung.timed_out = true;
  EXPECT_NE(keep({hung}).outcome.text.find("does not answer"), std::string::npos);
  EXPECT_NE(keep({said(row()), hung}).outcome.text.find("does not answer"), std::string::npos);
  EXPECT_FALSE(keep({said(row()), said("22 \n"), hung}).outcome.kept);
}

}  // namespace
}  // namespace lull::slurm
