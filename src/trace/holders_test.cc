#include "trace/holders.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trace/test_trace.h"

namespace lull::trace {
namespace {

TEST(Holders, AJobIsThereWhileOneOfItsProcessesIs) {
  Holders holders;
  const std::vector<Role> roles = {Role::gpu, Role::pids, Role::user};
  const float one = holders.find(roles, {"0", "12 34", "alice"});
  const float less = holders.find(roles, {"0", "34", "alice"});
  const float other = holders.find(roles, {"0", "56", "alice"});
  EXPECT_NE(one, less);
  EXPECT_TRUE(holders[one].same_job(holders[less]));
  EXPECT_FALSE(holders[less].same_job(holders[other]));
  EXPECT_EQ(holders.find(roles, {"1", "12 34", "alice"}), one);
  EXPECT_EQ(holders[one].user_text(), "alice");
}

// A row that lacks a cell takes nothing away, however often the trace is read.
TEST(Holders, WhatWasKnownOfAJobStaysKnown) {
  const std::vector<Role> roles = {Role::pids, Role::user, Role::command};
  KnownHolders known;
  float joined = 0;
  for (int reading = 0; reading < 2; ++reading) {
    Holders holders;
    known.meet(holders);
    const float whole = holders.find(roles, {"1", "alice", "train.py"});
    const float less = holders.find(roles, {"1 2", "", ""});
    EXPECT_EQ(known.joined(whole, whole), whole);
    EXPECT_EQ(known.joined(less, whole), whole) << "what has it all needs nothing";
    const float both = known.joined(whole, less);
    EXPECT_TRUE(reading == 0 || both == joined);
    joined = both;
    EXPECT_EQ(known[joined].user_text(), "alice");
    EXPECT_EQ(known[joined].command, "train.py");
    EXPECT_EQ(known[joined].pids, (std::vector<std::string>{"1", "2"}));
    EXPECT_TRUE(known.same_job(joined, less));
    if (reading == 0) continue;
    known.append_to(holders);
    EXPECT_EQ(holders[known.number_in(joined)].user_text(), "alice");
    EXPECT_EQ(known.number_in(whole), whole);
  }
}

TEST(Holders, NobodyIsNotTheSameAsNotTold) {
  Holders holders;
  const std::vector<Role> roles = {Role::pids, Role::user, Role::lease};
  EXPECT_EQ(holders.find(roles, {"none", "none", ""}), kNobody);
  EXPECT_TRUE(std::isnan(holders.find(roles, {"", "", ""})));
  EXPECT_TRUE(std::isnan(holders.find(roles, {"[N/A]", "", "a lease alone"})));
  EXPECT_GT(holders.find(roles, {"", "bob", ""}), kNobody);
}

TEST(Holders, WhatCannotBeComparedIsTakenForTheSame) {
  RecordedJob by_pid;
  by_pid.pids = {"1"};
  RecordedJob by_user;
  by_user.users = {"bob"};
  EXPECT_TRUE(by_pid.same_job(by_user));
}

// The column goes with its rows, also where they come out of order and are sorted.
class Seen final : public TraceSink {
 public:
  void restart() override { of.clear(); }
  void meet(const Holders& holders) override { holders_ = &holders; }
  void block(std::size_t gpu, const Block& block) override {
    if (of.size() <= gpu) of.resize(gpu + 1);
    for (const float holder : block.holder)
      of[gpu] += std::isnan(holder)                 ? "?"
                 : holder == kNobody                ? "-"
                 : holder == kNoRow                 ? "."
                 : (*holders_)[holder].pids.empty() ? "*"
                                                    : (*holders_)[holder].pids[0];
  }
  void frames(std::span<const Block> gpus) override {
    for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) block(gpu, gpus[gpu]);
  }
  std::vector<std::string> of;

 private:
  const Holders* holders_ = nullptr;
};

Result<TraceReader> who_is_in(const TempFile& file) {
  TraceOptions options;
  options.paths = {file.path()};
  options.metrics = {Metric::util};
  options.who = true;
  return TraceReader::open(options);
}

Result<TraceReport> read_whole(const TempFile& file, Seen& seen) {
  auto reader = who_is_in(file);
  EXPECT_TRUE(reader && reader->has_owners());
  if (!reader) return std::unexpected(reader.error());
  auto report = reader->read(seen);
  EXPECT_TRUE(report && report->bad_rows == 0U);
  return report;
}

TEST(Holders, EachRowKeepsItsOwn) {
  const TempFile file("time,gpu,util,pid,user\n3,0,1,,\n1,0,1,a,x\n2,0,1,none,none\n1,1,1,b,y\n2,1,1,b,y\n4,0,1,c,z\n");
  auto reader = who_is_in(file);
  ASSERT_TRUE(reader);
  EXPECT_TRUE(reader->has_owners());
  Seen seen;
  const auto report = reader->read(seen);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->gpus.size(), 2U);
  EXPECT_EQ(seen.of, (std::vector<std::string>{"a-?c", "bb"}));
  reader->options().together = true;
  reader->options().gpus = 2;
  reader->options().tick = {Duration(std::chrono::seconds(1)).count()};
  ASSERT_TRUE(reader->read(seen));
  EXPECT_EQ(seen.of, (std::vector<std::string>{"a-?c", "bb.."}));
}

// gpustat and lull itself list the processes of each GPU; an empty list is nobody, none at all is not told, and a
// desktop that draws has no job there.
TEST(Holders, AreReadFromTheProcessesOfADocument) {
  const TempFile file(R"({"query_time": "2024-03-15T11:00:00", "gpus": [
{"index": 0, "utilization.gpu": 1, "processes": [{"username": "ada", "command": "python3", "full_command":
["/usr/bin/python3", "-u", "/home/ada/train.py", "--lr", "1"], "gpu_memory_usage": 9, "pid": 17}]},
{"index": 1, "utilization.gpu": 1, "memory.used": 500, "processes": []}, {"index": 2, "utilization.gpu": 1}]}
{"time": "2024-03-15T11:00:01", "gpus": [
{"index": 0, "util_percent": 2, "processes": [{"pid": 18, "type": "C", "user": "bob", "name": "python", "command":
"python eval.py"}, {"pid": 19, "type": "C", "user": "ada", "name": "x", "command": "x"}]},
{"index": 1, "util_percent": 2, "processes": [{"pid": 3, "type": "G", "user": "root", "name": "Xorg", "command": "X"}]},
{"index": 2, "util_percent": 2, "processes": null}]}
)");
  Seen seen;
  const auto report = read_whole(file, seen);
  ASSERT_TRUE(report);
  ASSERT_EQ(report->holders.size(), 3U);
  const RecordedJob& first = report->holders[1];
  EXPECT_EQ(first.pids, (std::vector<std::string>{"17"}));
  EXPECT_EQ(first.user_text(), "ada");
  EXPECT_EQ(first.command, "python3 train.py");
  const RecordedJob& second = report->holders[2];
  EXPECT_EQ(second.pids, (std::vector<std::string>{"18", "19"}));
  EXPECT_EQ(second.user_text(), "ada, bob");
  EXPECT_EQ(second.command, "python eval.py");
  EXPECT_EQ(seen.of, (std::vector<std::string>{"1718", "--", "??"}));
}

// pmon has a line for each process; an empty GPU is nobody's.
TEST(Holders, AreReadFromTheLinesOfPmon) {
  const TempFile file(R"(#Date       Time        gpu         pid   type     sm    mem    command
#YYYYMMDD   HH:MM:SS    Idx           #    C/G      %      %    name
 20240315   11:04:46      0          17      C      7      1    python train.py
 20240315   11:04:46      0          18    C+G      8      2    other
 20240315   11:04:46      1           3      G      0      0    Xorg
 20240315   11:04:46      2           -      -      -      -    -
 20240315   11:04:47      0          19      C      7      1    next
 20240315   11:04:47      1           3      G      0      0    Xorg
 20240315   11:04:47      2          20      C      1      1    late
)");
  Seen seen;
  const auto report = read_whole(file, seen);
  ASSERT_TRUE(report);
  ASSERT_EQ(report->holders.size(), 4U);
  EXPECT_EQ(report->holders[1].pids, (std::vector<std::string>{"17", "18"}));
  EXPECT_EQ(report->holders[1].command, "python train.py");
  EXPECT_EQ(report->holders[2].command, "next");
  EXPECT_EQ(seen.of, (std::vector<std::string>{"1719", "--", "-20"}));
}

// Columns beside those of the value; an empty cell is not told, as in every table.
TEST(Holders, AreReadFromATableWithARowForEachValue) {
  const TempFile file(
      "time,gpu,metric,value,user,slurm_job_id,pid\n1,0,util,1,ada,7,17\n1,0,power,90,ada,7,17\n1,1,util,2,none,none,"
      "none\n"
      "2,0,util,3,,,\n2,1,util,4,bob,8,18\n3,0,util,5,none,none,none\n");
  Seen seen;
  const auto report = read_whole(file, seen);
  ASSERT_TRUE(report);
  EXPECT_EQ(seen.of, (std::vector<std::string>{"17?-", "-18"}));
  ASSERT_EQ(report->holders.size(), 3U);
  EXPECT_EQ(report->holders[1].user_text(), "ada");
  EXPECT_EQ(report->holders[2].job, "8");
}

TEST(Holders, OfATableWithARowForEachValueMayBeNamed) {
  const TempFile file("time,gpu,metric,value,account,run\n1,0,util,1,ada,17\n2,0,util,3,bob,18\n");
  TraceOptions options;
  options.paths = {file.path()};
  options.metrics = {Metric::util};
  options.who = true;
  options.columns = *parse_columns("user=account,pids=run");
  auto reader = TraceReader::open(options);
  ASSERT_TRUE(reader) << reader.error().message();
  Seen seen;
  const auto report = reader->read(seen);
  ASSERT_TRUE(report);
  EXPECT_EQ(seen.of, (std::vector<std::string>{"1718"}));
  EXPECT_EQ(report->holders[2].user_text(), "bob");
  options.columns = *parse_columns("user=acount");
  const auto missing = TraceReader::open(options);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message().find("did you mean 'account'"), std::string::npos) << missing.error().message();
}

// What Prometheus calls a job is what it scraped.
TEST(Holders, OfATableFromPrometheusAreNotItsJobs) {
  const TempFile file("time,gpu,__name__,value,job,user\n1,0,DCGM_FI_DEV_GPU_UTIL,1,dcgm,ada\n");
  auto reader = who_is_in(file);
  ASSERT_TRUE(reader);
  Seen seen;
  const auto report = reader->read(seen);
  ASSERT_TRUE(report);
  ASSERT_EQ(report->holders.size(), 2U);
  EXPECT_EQ(report->holders[1].user_text(), "ada");
  EXPECT_EQ(report->holders[1].job, "");
}

}  // namespace
}  // namespace lull::trace
