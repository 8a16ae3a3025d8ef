// Jobs are judged by what they were given, with processes there or not.

#include "jobs/subject_tracker.h"

#include <gtest/gtest.h>

#include "gpu/inventory_test.h"

namespace lull {
namespace {

std::vector<GpuUse> uses_of(unsigned count) {
  std::vector<GpuUse> uses;
  const auto inventory = gpus_for_test(count);
  for (const Device& device : inventory->devices) uses.push_back({.device = device});
  return uses;
}
AllocatedJob given(std::vector<unsigned> gpus, std::string run = "0/1") {
  AllocatedJob job{
      .job = "slurm:22", .run = std::move(run), .title = "Slurm job 22 of ada", .owner = 1000, .gpus = std::move(gpus)};
  for (const unsigned number : job.gpus) job.files.push_back({.minor = number});
  return job;
}

TEST(Allocated, AJobHasAllGpusThatItWasGiven) {
  const auto subjects = allocated_subjects({given({1, 3})}, uses_of(4));
  ASSERT_EQ(subjects.size(), 1U);
  EXPECT_EQ(subjects[0].key, "job:slurm:22");
  EXPECT_EQ(subjects[0].title, "Slurm job 22 of ada on GPUs 1, 3");
  EXPECT_EQ(subjects[0].owner, uid_t{1000});
  ASSERT_EQ(subjects[0].subject.scope.devices.size(), 2U);
  EXPECT_EQ(subjects[0].subject.scope.devices[1].index, 3U);
  EXPECT_TRUE(subjects[0].subject.scope.not_judged.empty());
  EXPECT_TRUE(subjects[0].holders.empty());
}

TEST(Allocated, WhatCannotBeSeenIsNotJudged) {
  EXPECT_FALSE(allocated_subjects({given({1, 7})}, uses_of(4))[0].subject.scope.not_judged.empty());
  EXPECT_EQ(allocated_subjects({given({1, 7})}, uses_of(4))[0].title, "Slurm job 22 of ada on Slurm's GPUs 1, 7");
  EXPECT_EQ(allocated_subjects({given({7})}, uses_of(4))[0].title, "Slurm job 22 of ada on Slurm's GPU 7");
  auto unnumbered = uses_of(2);
  for (GpuUse& use : unnumbered) use.device.minor.reset();
  EXPECT_FALSE(allocated_subjects({given({0})}, unnumbered)[0].subject.scope.not_judged.empty())
      << "an index need not be the number of a device file";
  auto split = uses_of(2);
  split.push_back({.device = split[0].device});
  split.back().device.kind = DeviceKind::mig;
  EXPECT_FALSE(allocated_subjects({given({0})}, split)[0].subject.scope.not_judged.empty());
  EXPECT_TRUE(allocated_subjects({given({1})}, split)[0].subject.scope.not_judged.empty());
}

TEST(Allocated, TheFilesSayWhichGpusItIs) {
  AllocatedJob job = given({0, 1});
  job.files = {{.minor = 3}, {.minor = 1}};
  const auto other = allocated_subjects({job}, uses_of(4));
  ASSERT_EQ(other[0].subject.scope.devices.size(), 2U);
  EXPECT_EQ(other[0].subject.scope.devices[1].index, 3U);
  EXPECT_EQ(other[0].title, "Slurm job 22 of ada on GPUs 1, 3");
  job.by_index = true;
  EXPECT_FALSE(allocated_subjects({job}, uses_of(4))[0].subject.scope.not_judged.empty());
  job.files.clear();
  EXPECT_FALSE(allocated_subjects({job}, uses_of(4))[0].subject.scope.not_judged.empty());
  job.not_known = "slurmd is not there";
  EXPECT_EQ(allocated_subjects({job}, uses_of(4))[0].subject.scope.not_judged,
            "Slurm job 22 of ada is not judged: slurmd is not there");
  auto render = uses_of(2);
  render[1].device.render_minor = 129;
  job = given({0});
  job.files = {{.minor = 129, .render = true}};
  EXPECT_EQ(allocated_subjects({job}, render)[0].subject.scope.devices.at(0).index, 1U);
}

// The numbers may mean other GPUs than those: what is seen says so.
TEST(Allocated, AProcessInTheWrongPlaceKeepsAJobFromBeingJudged) {
  auto uses = uses_of(3);
  const GpuProcess own{.pid = 10, .compute = true, .identified = true, .job = "slurm:22"};
  const GpuProcess other{.pid = 11, .compute = true, .identified = true, .job = "slurm:23"};
  const GpuProcess nobody{.pid = 12, .compute = true, .identified = true, .job = "tree:12"};
  uses[0].processes = {own, nobody};
  uses[2].processes = {other, nobody};
  EXPECT_EQ(allocated_subjects({given({0, 1})}, uses)[0].subject.scope.not_judged, "");
  uses[1].processes = {other};
  EXPECT_NE(allocated_subjects({given({0, 1})}, uses)[0].subject.scope.not_judged, "");
  EXPECT_EQ(allocated_subjects({given({0})}, uses)[0].subject.scope.not_judged, "");
  uses[2].processes = {own};
  EXPECT_NE(allocated_subjects({given({0})}, uses)[0].subject.scope.not_judged, "");
}

TEST(Allocated, AnotherRunIsAnotherSubjectAndAnotherProcessIsNot) {
  auto uses = uses_of(1);
  const SubjectId first = allocated_subjects({given({0})}, uses)[0].subject.id;
  GpuProcess process{.pid = 10, .compute = true, .identified = true, .job = "slurm:22"};
  process.stopped = true;
  uses[0].processes.push_back(process);
  uses[0].processes.push_back({.pid = 11, .compute = true, .identified = true, .job = "tree:11"});
  const auto now = allocated_subjects({given({0})}, uses);
  EXPECT_EQ(now[0].subject.id, first);
  EXPECT_EQ(now[0].holders.size(), 1U);
  EXPECT_TRUE(now[0].subject.stopped);
  EXPECT_NE(allocated_subjects({given({0}, "1/9")}, uses)[0].subject.id, first);
}

TEST(Allocated, AJobWithoutAGpuIsNoSubject) { EXPECT_TRUE(allocated_subjects({given({})}, uses_of(1)).empty()); }

}  // namespace
}  // namespace lull
