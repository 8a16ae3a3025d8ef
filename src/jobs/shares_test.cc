// Whose the shares of processes are: what counts as the job's, as another's, and as nobody's.
#include "jobs/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

namespace lull {
namespace {

class JobSharesTest : public testing::Test {
 protected:
  JobSharesTest() {
    Device device;
    device.uuid = "GPU-1";
    inventory_->devices = {device};
  }
  static GpuProcess process(pid_t pid, const std::string& job, std::uint64_t start = 100) {
    GpuProcess one{.pid = pid, .compute = true, .start_ticks = start};
    one.identified = true;
    one.job = job;
    return one;
  }
  // A sample: who is there, what the driver says of whom, how busy the GPU was.
  void sample(std::vector<GpuProcess> processes, std::vector<ProcessShare> shares, double util) {
    Reading reading;
    reading.shares_absence = absence_;
    reading.unlisted_util = util;
    for (ProcessShare& share : shares) {
      share.kernels = share.percent;
      if (!std::isnan(share.percent)) reading.unlisted_util -= share.percent;
    }
    reading.shares = std::move(shares);
    Snapshot snapshot;
    snapshot.inventory = inventory_;
    snapshot.readings = {reading};
    GpuUse use{.device = inventory_->devices[0]};
    use.processes = std::move(processes);
    use.listed = listed_;
    use.hides = hides_;
    const auto job_of = [](const GpuProcess& one) -> std::optional<std::string> {
      return one.identified && !one.job.empty() ? std::optional(one.job) : std::nullopt;
    };
    if (!std::exchange(begun_, true)) shares_.look(snapshot, {use}, job_of);  // the same were there before
    shares_.look(snapshot, {use}, job_of);
  }
  Facts facts(const std::string& job) const {
    Facts facts;
    shares_.add_to(facts, job, inventory_->devices);
    return facts;
  }
  double share(const std::string& job) const { return facts(job)[Metric::job_util]; }
  Absence why(const std::string& job) const { return facts(job).why_missing(Metric::job_util); }

  std::shared_ptr<Inventory> inventory_ = std::make_shared<Inventory>();
  JobShares shares_;
  Absence absence_ = Absence::none;
  bool listed_ = true;
  bool hides_ = false;
  bool begun_ = false;
};

TEST_F(JobSharesTest, ANeighbourIsNotTheJob) {
  sample({process(10, "idle"), process(11, "busy")}, {{11, 95}}, 95);
  EXPECT_EQ(share("idle"), 0);
  EXPECT_EQ(share("busy"), 95);
}

TEST_F(JobSharesTest, AllProcessesOfAJobCountTogether) {
  sample({process(10, "job"), process(11, "job")}, {{10, 70}, {11, 60}}, 100);
  EXPECT_EQ(share("job"), 100) << "and no more than the whole GPU";
}

TEST_F(JobSharesTest, WhatIsNotIdentifiedMayBeTheJobs) {
  GpuProcess one = process(12, "");
  one.identified = false;
  one.proof = Proof::unproven;
  sample({process(10, "job"), one}, {{12, 95}}, 95);
  EXPECT_EQ(why("job"), Absence::untold);
  sample({process(10, "job"), one}, {}, 0);
  EXPECT_EQ(why("job"), Absence::untold) << "also while nobody works";
}

TEST_F(JobSharesTest, AnMpsServerWorksForOthers) {
  GpuProcess server = process(12, "server");
  server.mps_server = true;
  sample({process(10, "job"), server}, {{12, 95}}, 95);
  EXPECT_EQ(why("job"), Absence::untold);
}

TEST_F(JobSharesTest, ANumberOfNobodyMayBeTheJobs) {
  sample({process(10, "job"), process(11, "busy")}, {{4711, 50}, {11, 40}}, 90);
  EXPECT_EQ(why("job"), Absence::untold);
  EXPECT_EQ(why("busy"), Absence::untold);
}

TEST_F(JobSharesTest, WorkThatNobodyIsListedForMayBeTheJobs) {
  sample({process(10, "job"), process(11, "busy")}, {{11, 20}}, 90);
  EXPECT_EQ(why("job"), Absence::untold);
  sample({process(10, "job"), process(11, "busy")}, {}, 3);
  EXPECT_EQ(why("job"), Absence::untold);
  sample({process(10, "job"), process(11, "busy")}, {{11, 85}}, kUnknown);
  EXPECT_EQ(why("job"), Absence::untold);
  sample({process(10, "job"), process(11, "busy")}, {{11, 85}}, 90);
  EXPECT_EQ(share("job"), 0) << "the two are not measured alike";
  sample({process(10, "job"), process(11, "busy")}, {{11, 50}}, 100);
  EXPECT_EQ(why("job"), Absence::untold) << "what is nobody's is as much as all that is somebody's";
  sample({process(10, "job"), process(11, "busy")}, {{11, 1}}, 9);
  EXPECT_EQ(why("job"), Absence::untold);
}

TEST_F(JobSharesTest, NonsenseOfTheJobIsUnknownAndOfAnotherIsLeftOut) {
  sample({process(10, "job"), process(11, "busy")}, {{10, std::nan("")}, {11, 90}}, 90);
  EXPECT_EQ(why("job"), Absence::implausible);
  EXPECT_EQ(share("busy"), 90);
  sample({process(10, "job"), process(11, "busy")}, {{11, std::nan("")}}, 90);
  EXPECT_EQ(why("job"), Absence::untold) << "and shows nothing of anybody";
}

TEST_F(JobSharesTest, ANeighbourThatEndsDoesNotKeepTheJobAlive) {
  sample({process(10, "job"), process(11, "busy")}, {{11, 90}}, 90);
  sample({process(10, "job")}, {{11, 90}}, 90);
  EXPECT_EQ(share("job"), 0) << "it was seen to be another's";
  sample({process(10, "job"), process(12, "busy")}, {{12, 90}}, 90);
  sample({process(10, "job")}, {}, 60);
  EXPECT_EQ(why("job"), Absence::untold) << "work that is not listed any more may be anybody's";
}

TEST_F(JobSharesTest, SomebodysWorkMayBeForAJobThatHasNoProcessThere) {
  sample({process(11, "busy")}, {{11, 90}}, 90);
  EXPECT_EQ(why("job"), Absence::untold);
  sample({process(11, "busy")}, {}, 0);
  EXPECT_EQ(share("job"), 0) << "nobody works";
}

TEST_F(JobSharesTest, AProcessOfTheJobThatEndsMakesItsShareUnknown) {
  sample({process(10, "job"), process(11, "job")}, {{11, 90}}, 90);
  sample({process(10, "job")}, {}, 60);
  EXPECT_EQ(why("job"), Absence::untold);
  sample({process(10, "job")}, {}, 0);
  EXPECT_EQ(share("job"), 0);
}

TEST_F(JobSharesTest, TheLastWorkOfAProcessThatEndedMayBeWhatIsNobodys) {
  sample({process(10, "job"), process(11, "job"), process(12, "busy")}, {{12, 80}}, 80);
  sample({process(10, "job"), process(12, "busy")}, {{12, 80}}, 88);
  EXPECT_EQ(why("job"), Absence::untold);
  EXPECT_EQ(share("busy"), 80);
  sample({process(10, "job"), process(12, "busy")}, {{12, 80}}, 88);
  EXPECT_EQ(share("job"), 0) << "nobody of it has ended since";
}

TEST_F(JobSharesTest, ANumberThatPassedFromOneToAnotherIsOfNeither) {
  sample({process(10, "job", 100)}, {{10, 90}}, 90);
  sample({process(10, "other", 200)}, {{10, 90}}, 90);
  EXPECT_EQ(why("job"), Absence::untold);
  EXPECT_EQ(why("other"), Absence::untold);
}

TEST_F(JobSharesTest, WhatTheDriverDoesNotTellIsUnknownWithItsReason) {
  for (const Absence absence :
       {Absence::not_supported, Absence::no_permission, Absence::not_covered, Absence::no_baseline}) {
    absence_ = absence;
    sample({process(10, "job")}, {}, 0);
    EXPECT_EQ(why("job"), absence);
  }
  absence_ = Absence::none;
  hides_ = true;
  sample({process(10, "job")}, {}, 0);
  EXPECT_EQ(why("job"), Absence::hidden);
  hides_ = false;
  listed_ = false;
  sample({}, {}, 0);
  EXPECT_EQ(why("job"), Absence::untold);
}

TEST_F(JobSharesTest, WhoWasThereBeforeMustBeKnown) {
  begun_ = true;
  sample({process(10, "job")}, {}, 0);
  EXPECT_EQ(why("job"), Absence::untold) << "the first list";
  listed_ = false;
  sample({}, {}, 0);
  listed_ = true;
  sample({process(10, "job")}, {}, 0);
  EXPECT_EQ(why("job"), Absence::untold) << "somebody may have ended since";
  sample({process(10, "job")}, {}, 0);
  EXPECT_EQ(share("job"), 0);
}

TEST_F(JobSharesTest, UnknownOnOneGpuIsUnknown) {
  sample({process(10, "job")}, {{10, 90}}, 90);
  std::vector<Device> scope = inventory_->devices;
  Facts known;
  shares_.add_to(known, "job", scope);
  EXPECT_EQ(known[Metric::job_util], 90);
  Device other;
  other.uuid = "GPU-2";
  scope.push_back(other);
  Facts unknown;
  shares_.add_to(unknown, "job", scope);
  EXPECT_TRUE(std::isnan(unknown[Metric::job_util]));
  Facts none;
  shares_.add_to(none, "job", {});
  EXPECT_TRUE(std::isnan(none[Metric::job_util]));
}

// Whatever is known of a sample, and the same with one thing unknown: the share stays what it was or becomes unknown.
TEST_F(JobSharesTest, WhatIsUnknownNeverMakesAShareKnownOrOther) {
  struct Sample {
    std::vector<GpuProcess> processes;
    std::vector<ProcessShare> shares;
    double util = 0;
  };
  std::mt19937 dice(1);
  const auto roll = [&](unsigned sides) { return static_cast<unsigned>(dice() % sides); };
  unsigned known = 0;
  for (int i = 0; i < 5'000; ++i) {
    std::array<Sample, 2> samples;
    for (Sample& one : samples) {
      double total = 0;
      for (pid_t pid = 10; pid < 14; ++pid) {
        const std::string job = pid < 12 ? "job" : "other";
        if (roll(8) != 0) one.processes.push_back(process(pid, job, roll(8) == 0 ? 200 : 100));
        if (roll(2) == 0) continue;
        one.shares.push_back({pid, static_cast<double>(roll(60))});
        total += one.shares.back().percent;
      }
      one.util = roll(3) == 0 ? roll(101) : std::min(total, 100.0);
    }
    const auto play = [&](const std::array<Sample, 2>& all) {
      shares_ = {};
      begun_ = false;
      for (const Sample& one : all) sample(one.processes, one.shares, one.util);
      absence_ = Absence::none;
      hides_ = false;
      listed_ = true;
      return share("job");
    };
    const double before = play(samples);
    known += std::isnan(before) ? 0 : 1;
    Sample& changed = samples[roll(2)];
    switch (roll(6)) {
      case 0: changed.util = kUnknown; break;
      case 1:
        if (!changed.shares.empty())
          changed.shares[roll(static_cast<unsigned>(changed.shares.size()))].percent = kUnknown;
        break;
      case 2:
        if (changed.processes.empty()) break;
        changed.processes[roll(static_cast<unsigned>(changed.processes.size()))].identified = false;
        break;
      case 3: absence_ = Absence::not_covered; break;
      case 4: hides_ = true; break;
      default: listed_ = false; break;
    }
    const double after = play(samples);
    ASSERT_TRUE(std::isnan(after) || after == before) << "case " << i << ": " << before << " became " << after;
  }
  EXPECT_GT(known, 500U) << "or nothing was tried";
}

}  // namespace
}  // namespace lull
