// What adds up over samples, and what is told of it, without a driver.

#include "serve/observer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "gpu/inventory_test.h"
#include "serve/api.h"
#include "serve/metrics.h"
#include "view/status.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kEvery = 1s;

// Those who were made up for a test.
class MadeUsers : public GpuUsers {
 public:
  std::vector<GpuUse> look(const Snapshot& snapshot, UserDetail, bool) override {
    std::vector<GpuUse> uses;
    for (std::size_t i = 0; i < snapshot.readings.size(); ++i) {
      GpuUse use{.device = snapshot.inventory->devices[i], .complete = true};
      if (const auto found = on.find(i); found != on.end()) use.processes = found->second;
      uses.push_back(use);
    }
    return uses;
  }
  std::map<std::size_t, std::vector<GpuProcess>> on;
};

GpuProcess process_of(pid_t pid, const std::string& job, const std::string& user) {
  GpuProcess process{.pid = pid, .compute = true};
  auto info = std::make_shared<ProcessInfo>();
  info->pid = pid;
  info->user = user;
  process.info = info;
  process.identified = true;
  process.job = job;
  return process;
}

class ObserverTest : public testing::Test {
 protected:
  // One sample of two GPUs, so long after the last.
  void see(Duration after, double first, double second = kUnknown, Absence driver = Absence::none) {
    now_ += after;
    Snapshot snapshot;
    snapshot.at = snapshot.asked = now_;
    snapshot.inventory = inventory_;
    snapshot.driver.absence = driver;
    for (const double util : {first, second}) {
      Reading reading;
      if (std::isnan(util))
        reading.miss_all(Absence::failed);
      else
        reading.set(Metric::util, util);
      reading.util_basis = basis_;
      reading.util_coverage = coverage_;
      snapshot.readings.push_back(reading);
    }
    observer_.see(snapshot);
  }
  std::map<std::string, double> metrics() const {
    std::map<std::string, double> found;
    std::istringstream text(metrics_text(observer_, now_, {.version = "1", .host = "h", .dcgm_names = false}));
    for (std::string line; std::getline(text, line);)
      if (!line.starts_with('#')) found[line.substr(0, line.rfind(' '))] = std::stod(line.substr(line.rfind(' ')));
    return found;
  }

  std::shared_ptr<Inventory> inventory_ = gpus_for_test(2);
  MadeUsers users_;
  Observer observer_{kEvery, users_};
  Basis basis_ = Basis::instant;
  double coverage_ = 0;
  Instant now_{1h};
};

constexpr const char* kBusy = R"(lull_gpu_busy_seconds_total{gpu="0",uuid="GPU-0"})";
constexpr const char* kSeen = R"(lull_gpu_seen_seconds_total{gpu="0",uuid="GPU-0"})";

TEST_F(ObserverTest, BusyAndSeenSecondsCountOnlyWhatWasSeen) {
  see(0s, 50);
  EXPECT_FALSE(metrics().contains(kSeen)) << "nothing yet";
  see(1s, 50);
  EXPECT_DOUBLE_EQ(metrics().at(kBusy), 0.5);
  EXPECT_DOUBLE_EQ(metrics().at(kSeen), 1);
  see(1s, kUnknown);
  EXPECT_DOUBLE_EQ(metrics().at(kSeen), 1) << "unknown was not seen";
  see(1h, 100);
  EXPECT_DOUBLE_EQ(metrics().at(kSeen), 1) << "nor was a gap";
  see(1s, 100);
  EXPECT_DOUBLE_EQ(metrics().at(kBusy), 1.5);
  EXPECT_DOUBLE_EQ(metrics().at(kSeen), 2);
  EXPECT_FALSE(metrics().contains(R"(lull_gpu_seen_seconds_total{gpu="1",uuid="GPU-1"})")) << "which was never read";
}

TEST_F(ObserverTest, OfAMeanTheShareThatTheDriverMeasuredWasSeen) {
  basis_ = Basis::mean;
  coverage_ = 0.95;
  see(0s, 40);
  see(1s, 40);
  EXPECT_DOUBLE_EQ(metrics().at(kSeen), 0.95);
  EXPECT_DOUBLE_EQ(metrics().at(kBusy), 0.38);
}

TEST_F(ObserverTest, UnknownIsNoSample) {
  see(0s, 40);
  const auto found = metrics();
  EXPECT_DOUBLE_EQ(found.at(R"(lull_gpu_utilization_ratio{gpu="0",uuid="GPU-0"})"), 0.4);
  EXPECT_FALSE(found.contains(R"(lull_gpu_utilization_ratio{gpu="1",uuid="GPU-1"})"));
  EXPECT_FALSE(found.contains(R"(lull_gpu_idle_seconds{gpu="1",uuid="GPU-1"})"));
  EXPECT_FALSE(found.contains(R"(lull_gpu_power_watts{gpu="0",uuid="GPU-0"})"));
}

TEST_F(ObserverTest, OldSamplesAreNotToldAsWhatIs) {
  EXPECT_EQ(metrics(), (std::map<std::string, double>{{"lull_up", 0}})) << "there is none yet";
  see(0s, 40);
  now_ += 3 * kEvery;
  EXPECT_EQ(metrics().at("lull_up"), 1);
  now_ += 1ns;
  EXPECT_EQ(metrics(), (std::map<std::string, double>{{"lull_up", 0}}));
  EXPECT_EQ(observer_.trouble(now_), "no sample for 3s");
  EXPECT_EQ(now_event(observer_, now_, kEvery, JobsView(), false).find("status"), std::string::npos);
  see(0s, 40);
  EXPECT_EQ(metrics().at("lull_up"), 1);
  see(1s, kUnknown, kUnknown, Absence::no_driver);
  EXPECT_EQ(metrics(), (std::map<std::string, double>{{"lull_up", 0}}));
}

TEST_F(ObserverTest, JobsHaveTheGpusOfTheirProvenProcesses) {
  users_.on[0] = {process_of(10, "slurm:7", "ada"), process_of(11, "tree:11@5", "eve \"\n\\")};
  users_.on[1] = {process_of(12, "slurm:7", "ada")};
  users_.on[1].push_back(process_of(13, "slurm:8", "bob"));
  users_.on[1].back().identified = false;
  see(0s, 0, 0);
  see(1s, 0, 0);
  see(1s, 0, 0);
  const auto found = metrics();
  EXPECT_TRUE(found.contains(R"(lull_gpu_job_info{gpu="0",uuid="GPU-0",job_id="slurm:7",user="ada"})"));
  EXPECT_TRUE(found.contains(R"(lull_gpu_job_info{gpu="1",uuid="GPU-1",job_id="slurm:7",user="ada"})"));
  EXPECT_DOUBLE_EQ(found.at(R"(lull_job_idle_seconds{job_id="slurm:7",user="ada"})"), 2);
  for (const auto& [name, value] : found) {
    EXPECT_EQ(name.find("slurm:8"), std::string::npos) << "not proven to be there";
    EXPECT_EQ(name.find("tree:"), std::string::npos) << "a pid is no lasting name";
  }
  ASSERT_EQ(observer_.jobs().size(), 2U);
  see(1s, 90, 0);
  EXPECT_DOUBLE_EQ(metrics().at(R"(lull_job_idle_seconds{job_id="slurm:7",user="ada"})"), 0) << "one of them works";
  see(1s, kUnknown, 0);
  EXPECT_FALSE(metrics().contains(R"(lull_job_idle_seconds{job_id="slurm:7",user="ada"})")) << "one is unknown";
}

TEST_F(ObserverTest, ALongCommandIsCut) {
  Snapshot snapshot;
  snapshot.at = now_;
  snapshot.inventory = gpus_for_test(1);
  Reading reading;
  auto process = process_of(10, "", "ada");
  auto info = std::make_shared<ProcessInfo>(*process.info);
  info->arguments = {"python3", std::string(100'000, 'x')};
  process.info = info;
  reading.processes = {process};
  snapshot.readings = {reading};
  observer_.see(snapshot);
  const std::string kept = observer_.snapshot().readings[0].processes->front().info->command_line();
  EXPECT_LT(kept.size(), 1100U);
  EXPECT_TRUE(kept.starts_with("python3 xxx"));
}

TEST_F(ObserverTest, ASampleIsAsLateAsItIsHoweverManyIntervals) {
  see(0s, 0);
  see(kEvery + 3ms, 0);
  EXPECT_EQ(observer_.delays().count, 1U);
  EXPECT_NEAR(observer_.delays().sum, 0.003, 1e-9);
  see(8 * kEvery, 0);  // each of the eight points was late
  EXPECT_EQ(observer_.delays().count, 9U);
  const double every = in_seconds(kEvery);
  EXPECT_NEAR(observer_.delays().sum, 9 * 0.003 + (1 + 2 + 3 + 4 + 5 + 6 + 7) * every, 1e-9);
}

TEST(LabelTest, IsOneLineWhateverTheNameIs) {
  EXPECT_EQ(label_value("ada"), "ada");
  EXPECT_EQ(label_value(R"(a"b\c)"), R"(a\"b\\c)");
  for (const char* hostile : {"a\nb", "a\rb", "\x1b[2J", "\xff\xfe", "a\u2028b"}) {
    const std::string text = label_value(hostile);
    EXPECT_EQ(text.find_first_of("\n\r\x1b"), std::string::npos);
  }
}

// Samples of a second, at 100 % in the first half of each slice.
TEST(LastHourTest, EachSliceIsTheMeanOfItsTime) {
  LastHour hour;
  Instant at{1h};
  for (int i = 0; i < 60; ++i) hour.add(at += 1s, 1s, i % 20 < 10 ? 100 : 0);
  EXPECT_EQ(hour.until(at), (std::vector<float>{50, 50, 50}));
  EXPECT_EQ(hour.until(at - 1ns).size(), 2U) << "the last one is not over yet";
}

TEST(LastHourTest, WhatWasNotSeenIsUnknown) {
  LastHour hour;
  Instant at{1h};
  for (int i = 0; i < 40; ++i) hour.add(at += 1s, 1s, i < 17 ? 30 : i < 20 ? kUnknown : 80);
  std::vector<float> all = hour.until(at);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_TRUE(std::isnan(all[0])) << "17 of 20 seconds";
  EXPECT_FLOAT_EQ(all[1], 80);
  all = hour.until(at + 40s);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_TRUE(std::isnan(all[3]));
  EXPECT_TRUE(hour.until(at + 3h).empty());
}

TEST(LastHourTest, ALongSampleIsSpreadOverItsSlices) {
  LastHour hour;
  hour.add(Instant(1h + 60s), 60s, 70);
  EXPECT_EQ(hour.until(Instant(1h + 60s)), (std::vector<float>{70, 70, 70}));
}

TEST(LastHourTest, IsNoLongerThanAnHour) {
  LastHour hour;
  Instant at{1h};
  for (int i = 0; i < 500; ++i) hour.add(at += LastHour::kSlice, LastHour::kSlice, 10);
  EXPECT_EQ(hour.until(at).size(), LastHour::kSlices);
}

}  // namespace
}  // namespace lull
