#include "slurm/verb.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/text.h"

namespace lull::slurm {
namespace {

struct Row {
  std::string job = "22", state = "RUNNING", restarts = "0", batch = "1", requeue = "1", array = "22", task = "N/A",
              het = "N/A";
};
// As squeue 22.05 prints it; 20.11 has 0 where there is no array and no het job.
std::string row_line(const Row& row) {
  return fmt::format("{:24}{:24}{:16}{:8}{:8}{:24}{:64}{:24}\n", row.job, row.state, row.restarts, row.batch,
                     row.requeue, row.array, row.task, row.het);
}
std::optional<JobState> read_row(const Row& row) { return *read_squeue(row_line(row), 22); }
std::string in_one(const Command& command) { return fmt::format("{}", fmt::join(command, " ")); }
Doing plan_for(const Row& row, std::string_view verb, const ActPolicy& policy = {}, unsigned restarts = 0) {
  return plan(read_row(row), {.job = 22, .restarts = restarts}, *parse_verb(verb), policy, "idle");
}

TEST(Squeue, ShowsAJob) {
  const auto state = read_row({});
  ASSERT_TRUE(state);
  EXPECT_EQ(state->state, "RUNNING");
  EXPECT_TRUE(state->batch && state->requeue);
  EXPECT_EQ(state->id(), "22");
  EXPECT_EQ(read_row({.array = "0", .task = "N/A", .het = "0"})->id(), "22");
}

TEST(Squeue, OfOtherJobsAndWarningsSaysNothing) {
  EXPECT_EQ(*read_squeue("", 22), std::nullopt);
  EXPECT_EQ(*read_squeue(row_line({.job = "23"}), 22), std::nullopt);
  EXPECT_EQ((*read_squeue("squeue: error: something\n" + row_line({}), 22))->job, 22U);
  EXPECT_FALSE(read_squeue(row_line({}) + row_line({}), 22)) << "which of them?";
  EXPECT_FALSE(read_squeue(row_line({.restarts = "?"}), 22));
}

// 23_2 is 23 and 23_1 is 24: `scontrol requeue 23` would be about both.
TEST(Squeue, ATaskOfAnArrayIsNamedByBothNumbers) {
  const std::string both =
      row_line({.job = "22", .array = "22", .task = "2"}) + row_line({.job = "24", .array = "22", .task = "1"});
  EXPECT_EQ((*read_squeue(both, 22))->id(), "22_2");
  EXPECT_EQ((*read_squeue(both, 24))->id(), "22_1");
  EXPECT_EQ(read_row({.state = "PENDING", .task = "3-9"})->id(), "22");
  EXPECT_FALSE(read_squeue(row_line({.task = "3-9"}), 22)) << "it runs, and is one of them";
  EXPECT_FALSE(read_squeue(row_line({.array = "0", .task = "2"}), 22)) << "of which array?";
}

TEST(Squeue, AHetJobIsNamedByItsFirstComponent) { EXPECT_EQ(read_row({.het = "21"})->id(), "21"); }

TEST(Verb, IsReadAsItIsWritten) {
  for (const char* text : {"comment", "signal:TERM", "requeue", "requeuehold", "cancel"})
    EXPECT_EQ(to_text(*parse_verb(text)), text);
  EXPECT_EQ(to_text(*parse_verb("signal:SIGUSR1")), "signal:USR1");
  for (const char* text : {"", "requeue ", "kill", "signal:", "signal:NONE", "signal:TERM; rm"})
    EXPECT_FALSE(parse_verb(text)) << text;
}

TEST(Plan, IsAboutTheRunThatWasJudged) {
  EXPECT_EQ(plan(std::nullopt, {.job = 22}, {VerbKind::cancel}, {}, "").kind, Doing::Kind::no_longer);
  for (const char* state : {"PENDING", "COMPLETING", "COMPLETED", "SUSPENDED", "CANCELLED"})
    EXPECT_EQ(plan_for({.state = state}, "requeue").kind, Doing::Kind::no_longer) << state;
  EXPECT_EQ(plan_for({.restarts = "1"}, "requeue").kind, Doing::Kind::no_longer);
  EXPECT_EQ(plan_for({}, "requeue", {}, 1).kind, Doing::Kind::no_longer);
  EXPECT_EQ(plan_for({.restarts = "1"}, "requeue", {}, 1).kind, Doing::Kind::act);
}

TEST(Plan, HasTheCommandsOfEachVerb) {
  EXPECT_EQ(in_one(plan_for({}, "requeue").command), "scontrol requeue 22");
  EXPECT_EQ(in_one(plan_for({}, "requeuehold").command), "scontrol requeuehold 22");
  EXPECT_EQ(in_one(plan_for({}, "cancel").command), "scancel 22");
  EXPECT_EQ(in_one(plan_for({}, "signal:TERM").command), "scancel --full --signal=TERM 22");
  EXPECT_EQ(in_one(plan_for({}, "comment").command), "scontrol update jobid=22 AdminComment=idle");
  EXPECT_EQ(in_one(plan_for({.task = "2"}, "cancel").command), "scancel 22_2");
  EXPECT_EQ(in_one(plan_for({.het = "21"}, "requeue").command), "scontrol requeue 21");
}

TEST(Plan, AJobThatMayNotBeRequeuedIsAllowedToFirst) {
  const Doing doing = plan_for({.requeue = "0"}, "requeue");
  ASSERT_EQ(doing.before.size(), 1U);
  EXPECT_EQ(in_one(doing.before[0]), "scontrol update jobid=22 Requeue=1");
  ASSERT_EQ(doing.undo.size(), 1U);
  EXPECT_EQ(in_one(doing.undo[0]), "scontrol update jobid=22 Requeue=0");
  EXPECT_TRUE(plan_for({.requeue = "0"}, "cancel").before.empty());
}

TEST(Plan, AnInteractiveJobIsOnlyCancelled) {
  EXPECT_EQ(plan_for({.batch = "0"}, "requeue").kind, Doing::Kind::refused);
  EXPECT_EQ(plan_for({.batch = "0"}, "requeuehold").kind, Doing::Kind::refused);
  EXPECT_EQ(in_one(plan_for({.batch = "0"}, "cancel").command), "scancel 22");
  EXPECT_EQ(in_one(plan_for({.batch = "0"}, "requeue", {.interactive = ActPolicy::Interactive::cancel}).command),
            "scancel 22");
}

TEST(Plan, AJobThatWasRestartedTooOftenIsHeld) {
  EXPECT_EQ(in_one(plan_for({.restarts = "2"}, "requeue", {.restarts_at_most = 3}, 2).command), "scontrol requeue 22");
  EXPECT_EQ(in_one(plan_for({.restarts = "3"}, "requeue", {.restarts_at_most = 3}, 3).command),
            "scontrol requeuehold 22");
}

TEST(Comment, OfAUserCannotAddAField) {
  const Command command = comment_command("22", "a\nPriority=1 TimeLimit=0");
  ASSERT_EQ(command.size(), 4U);
  EXPECT_TRUE(command[3].starts_with("AdminComment=a")) << "one word for scontrol, whatever is in it";
  EXPECT_EQ(command[3].find('\n'), std::string::npos);
}

TEST(AskCommand, OfAComponentNamesItsGroup) {
  const std::string text = in_one(ask_command(21, "ada", 2, {"lull", "slurm", "ask", "22"}, 1));
  EXPECT_NE(text.find("--jobid=21 "), std::string::npos);
  EXPECT_NE(text.find("--het-group=1 lull slurm ask 22"), std::string::npos);
}

TEST(AskCommand, RunsAsTheUserOnEachNodeOnce) {
  const std::string text = in_one(ask_command(22, "ada", 4, {"/usr/bin/lull", "slurm", "ask", "22"}));
  EXPECT_TRUE(text.starts_with("runuser -u ada -- env -i PATH="));
  EXPECT_NE(text.find("--jobid=22 "), std::string::npos);
  EXPECT_NE(text.find("--overlap"), std::string::npos);
  EXPECT_NE(text.find("--kill-on-bad-exit=0"), std::string::npos) << "a no must not silence the others";
  EXPECT_NE(text.find("--nodes=4 --ntasks=4 /usr/bin/lull slurm ask 22"), std::string::npos);
}

}  // namespace
}  // namespace lull::slurm
