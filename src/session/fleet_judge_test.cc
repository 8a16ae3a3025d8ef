// A job is judged by what a Prometheus holds of each GPU that Slurm gave it.

#include "session/fleet_judge.h"

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <random>

#include "base/fd.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Instant kNow{Duration(1'790'000'000s)};
const Rule kRule = *parse_rule("util < 1 for 10m");

// A sample every 30 s up to `until` before now, from `phase` on.
FleetGpu gpu_of(const std::string& host, unsigned number, const std::function<float(Instant)>& value,
                Duration until = 5s) {
  FleetGpu gpu{.host = host, .number = number, .at = {}, .value = {}};
  for (Instant at = kNow - 1h; at <= kNow - until; at += 30s) {
    gpu.at.push_back(at);
    gpu.value[index_of(Metric::util)].push_back(value(at));
  }
  return gpu;
}
float idle(Instant) { return 0; }
float busy(Instant) { return 90; }

// By an administrator who says that the numbers agree, of nodes on which Slurm has as many GPUs as series tell of.
FleetVerdict judged(const std::vector<FleetGpu>& fleet, std::vector<std::pair<std::string, unsigned>> gpus,
                    Instant from = kNow - 2h, const Rule& rule = kRule) {
  FleetQuestion question{.gpus = std::move(gpus), .from = from, .now = kNow, .same_order = true};
  for (const auto& [node, number] : question.gpus)
    question.node_gpus[node] = static_cast<unsigned>(
        std::ranges::count_if(fleet, [&](const FleetGpu& gpu) { return is_host_of(gpu.host, node); }));
  return judge_fleet_job(rule, question, fleet, WhenMissing::unknown);
}

TEST(FleetJudge, AJobWhoseGpusAreAllIdleForTheTimeIsIdle) {
  const std::vector<FleetGpu> fleet = {gpu_of("n1", 0, idle), gpu_of("n1", 1, busy), gpu_of("n2", 0, idle, 17s)};
  const FleetVerdict verdict = judged(fleet, {{"n1", 0}, {"n2", 0}});
  EXPECT_EQ(verdict.truth, Truth::yes) << verdict.why;
  EXPECT_GE(verdict.held, 50min);
  EXPECT_EQ(verdict.interval, 30s);
  EXPECT_EQ(judged(fleet, {{"n1", 0}, {"n1", 1}}).truth, Truth::no);
}

// gres.conf names the GPUs in another order, or AutoDetect finds them so: Slurm's GPU 0 is the exporter's GPU 1.
TEST(FleetJudge, ANumberOfSlurmsIsNoGpuOfTheExporterUnlessThatIsProven) {
  const std::vector<FleetGpu> fleet = {gpu_of("n1", 0, idle), gpu_of("n1", 1, idle)};
  FleetQuestion question{.gpus = {{"n1", 0}}, .from = kNow - 2h, .now = kNow, .node_gpus = {{"n1", 2}}};
  const auto verdict = [&] { return judge_fleet_job(kRule, question, fleet, WhenMissing::unknown); };
  EXPECT_EQ(verdict().truth, Truth::unknown);
  EXPECT_NE(verdict().why.find("another order than Slurm"), std::string::npos) << verdict().why;
  EXPECT_NE(verdict().why.find("--slurm-order"), std::string::npos) << verdict().why;
  question.same_order = true;
  EXPECT_EQ(verdict().truth, Truth::yes) << verdict().why;
  question.same_order = false;
  question.gpus = {{"n1", 0}, {"n1", 1}};
  EXPECT_EQ(verdict().truth, Truth::yes) << "it has all of them: " << verdict().why;
  question.node_gpus.clear();
  EXPECT_EQ(verdict().truth, Truth::unknown);
}

// One that the exporter has lost shifts the numbers of the others, and one that Slurm does not know may.
TEST(FleetJudge, AnExporterThatShowsAnotherNumberOfGpusThanSlurmHasProvesNothing) {
  for (const bool same_order : {false, true})
    for (const unsigned slurms : {1U, 3U}) {
      FleetQuestion question{.gpus = {{"n1", 0}, {"n1", 1}}, .from = kNow - 2h, .now = kNow};
      question.node_gpus = {{"n1", slurms}};
      question.same_order = same_order;
      const std::vector<FleetGpu> fleet = {gpu_of("n1", 0, idle), gpu_of("n1", 1, idle)};
      const FleetVerdict verdict = judge_fleet_job(kRule, question, fleet, WhenMissing::unknown);
      EXPECT_EQ(verdict.truth, Truth::unknown);
      EXPECT_NE(verdict.why.find("series of now tell of 2"), std::string::npos) << verdict.why;
    }
  const std::vector<FleetGpu> lost = {gpu_of("n1", 0, idle), gpu_of("n1", 1, busy, 5min)};
  FleetQuestion question{.gpus = {{"n1", 0}}, .from = kNow - 2h, .now = kNow, .node_gpus = {{"n1", 2}}};
  question.same_order = true;
  EXPECT_EQ(judge_fleet_job(kRule, question, lost, WhenMissing::unknown).truth, Truth::unknown) << "a series of before";
}

TEST(FleetJudge, AGpuThatNoSeriesTellsOfMakesItUnknown) {
  const std::vector<FleetGpu> fleet = {gpu_of("n1", 0, idle)};
  const FleetVerdict verdict = judged(fleet, {{"n1", 0}, {"n2", 0}});
  EXPECT_EQ(verdict.truth, Truth::unknown);
  EXPECT_EQ(verdict.why, "no series tells of GPU 0 of n2");
  EXPECT_EQ(judged({}, {{"n1", 0}}).truth, Truth::unknown);
  EXPECT_EQ(judged(fleet, {}).truth, Truth::unknown);
}

TEST(FleetJudge, ASeriesThatEndedIsUnknownHoweverIdleItWas) {
  for (const Duration old : {Duration(50s), Duration(5min), Duration(30min)}) {
    const FleetVerdict verdict = judged({gpu_of("n1", 0, idle), gpu_of("n2", 0, idle, old)}, {{"n1", 0}, {"n2", 0}});
    EXPECT_EQ(verdict.truth, Truth::unknown);
    EXPECT_TRUE(verdict.why.starts_with("GPU 0 of n2 was seen last")) << verdict.why;
  }
}

TEST(FleetJudge, AHoleOfOneGpuBreaksWhatHeld) {
  FleetGpu holed = gpu_of("n2", 0, idle);
  for (std::size_t i = holed.at.size(); i-- > 0;)
    if (holed.at[i] > kNow - 12min && holed.at[i] < kNow - 9min) {
      holed.at.erase(holed.at.begin() + static_cast<std::ptrdiff_t>(i));
      holed.value[index_of(Metric::util)].pop_back();
    }
  const FleetVerdict verdict = judged({gpu_of("n1", 0, idle), holed}, {{"n1", 0}, {"n2", 0}});
  EXPECT_NE(verdict.truth, Truth::yes);
  EXPECT_LE(verdict.held, 9min);
}

TEST(FleetJudge, WhatWasBeforeTheJobHadTheGpuDoesNotCount) {
  const std::vector<FleetGpu> fleet = {gpu_of("n1", 0, idle)};
  EXPECT_NE(judged(fleet, {{"n1", 0}}, kNow - 9min).truth, Truth::yes);
  EXPECT_EQ(judged(fleet, {{"n1", 0}}, kNow - 12min).truth, Truth::yes);
  EXPECT_EQ(judged(fleet, {{"n1", 0}}, kNow - 1min).truth, Truth::unknown);
  EXPECT_EQ(judged(fleet, {{"n1", 0}}, kNow + 1h).truth, Truth::unknown);
}

TEST(FleetJudge, ASingleBusySampleOfAnyGpuBreaksIt) {
  for (std::size_t when = 1; when < 20; ++when) {
    FleetGpu other = gpu_of("n2", 0, idle, 17s);
    other.value[index_of(Metric::util)][other.at.size() - when] = 50;
    EXPECT_NE(judged({gpu_of("n1", 0, idle), other}, {{"n1", 0}, {"n2", 0}}).truth, Truth::yes) << when;
  }
}

TEST(FleetJudge, WhatIsScrapedTooSeldomOrMayBeAnotherGpuIsUnknown) {
  FleetGpu seldom{.host = "n1", .number = 0, .at = {}, .value = {}};
  for (Instant at = kNow - 5h; at < kNow; at += 5min) {
    seldom.at.push_back(at);
    seldom.value[index_of(Metric::util)].push_back(0);
  }
  EXPECT_TRUE(judged({seldom}, {{"n1", 0}}, kNow - 10h).why.ends_with("too seldom for 10m"));
  const FleetVerdict two = judged({gpu_of("n1.a", 0, idle), gpu_of("n1.b", 0, idle)}, {{"n1", 0}});
  EXPECT_EQ(two.why, "GPU 0 of n1 may be any of several series");
}

// The exporter of our n1 is down, and another cluster has an n1, too.
TEST(FleetJudge, AFirstNameTellsNoHostWhereThereAreHostsOfSeveralDomains) {
  const FleetGpu theirs = gpu_of("n1.b:9400", 0, idle);
  const FleetVerdict verdict = judged({theirs, gpu_of("n2.a:9400", 0, busy)}, {{"n1", 0}});
  EXPECT_EQ(verdict.truth, Truth::unknown);
  EXPECT_TRUE(verdict.why.starts_with("GPU 0 of n1 may be of another cluster")) << verdict.why;
  EXPECT_EQ(judged({theirs, gpu_of("n2.a:9400", 0, busy)}, {{"n1.b", 0}}).truth, Truth::yes) << "its whole name";
  for (const char* other : {"n2.b", "n2.b:9400", "n2", "n2:9400", "10.0.0.2:9400"})
    EXPECT_EQ(judged({theirs, gpu_of(other, 0, busy)}, {{"n1", 0}}).truth, Truth::yes) << other;
}

TEST(FleetJudge, HostsAreKnownByTheirFirstNameAndWithoutAPort) {
  for (const char* host : {"n1", "n1:9400", "n1.cluster.example", "n1.cluster.example:9400"})
    EXPECT_TRUE(is_host_of(host, "n1")) << host;
  EXPECT_TRUE(is_host_of("n1.example:9400", "n1.example"));
  for (const char* host : {"n10", "n", "", "1", "x.n1", "n1x.example"}) EXPECT_FALSE(is_host_of(host, "n1")) << host;
}

TEST(FleetJudge, RulesThatPrometheusCannotAnswerAreRefused) {
  EXPECT_EQ(why_no_fleet_rule(kRule), "");
  EXPECT_NE(why_no_fleet_rule(*parse_rule("util < 1")), "");
  EXPECT_NE(why_no_fleet_rule(*parse_rule("util < 1 for 5 samples")), "");
  EXPECT_NE(why_no_fleet_rule(*parse_rule("cpu < 1 for 5m")), "");
  EXPECT_EQ(reach_of(*parse_rule("mean(util, 5m) < 1 for 10m")), 15min);
}

// Whatever is unknown may only turn a yes into something else.
TEST(FleetJudge, TakingSamplesAwayNeverMakesAYes) {
  std::mt19937 random(24);
  int yes = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<FleetGpu> fleet;
    for (unsigned i = 0; i < 3; ++i) {
      const Instant works_until = kNow - 1min * static_cast<int>(random() % 40);
      fleet.push_back(gpu_of(
          "n" + std::to_string(i), 0, [&](Instant at) { return at < works_until && random() % 3 == 0 ? 80.0F : 0.0F; },
          5s + 1s * static_cast<int>(random() % 25)));
    }
    const std::vector<std::pair<std::string, unsigned>> gpus = {{"n0", 0}, {"n1", 0}, {"n2", 0}};
    const bool before = judged(fleet, gpus).truth == Truth::yes;
    yes += before ? 1 : 0;
    // A stretch longer than a gap, anywhere in the time that counts: it cannot have been idle all the while.
    FleetGpu& one = fleet[random() % 3];
    const Instant from = kNow - 10min + 1s * static_cast<int>(random() % 300);
    for (std::size_t i = one.at.size(); i-- > 0;)
      if (one.at[i] > from && one.at[i] < from + 3min) {
        one.at.erase(one.at.begin() + static_cast<std::ptrdiff_t>(i));
        std::vector<float>& values = one.value[index_of(Metric::util)];
        values.erase(values.begin() + static_cast<std::ptrdiff_t>(i));
      }
    EXPECT_NE(judged(fleet, gpus).truth, Truth::yes) << round;
  }
  EXPECT_GT(yes, 30);
}

TEST(FleetJudge, ReadsHostsAndNumbersOutOfAnAnswer) {
  const Fd file(::memfd_create("answer", MFD_CLOEXEC));
  std::string text = R"({"status":"success","data":{"resultType":"matrix","result":[)";
  for (const char* labels :
       {R"("gpu":"0","Hostname":"n1","UUID":"GPU-a")", R"("gpu":"1","Hostname":"n1","UUID":"GPU-a")",
        R"("gpu":"0","Hostname":"n2","UUID":"GPU-c","GPU_I_ID":"3")"})
    text += std::string(text.back() == '}' ? "," : "") + R"({"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL",)" + labels +
            R"(},"values":[[1790000000,"0"],[1790000030,"5"]]})";
  text += "]}}";
  ASSERT_TRUE(write_all(file.get(), text));
  const auto fleet = read_fleet("/proc/self/fd/" + std::to_string(file.get()), {Metric::util}, {});
  ASSERT_TRUE(fleet) << fleet.error().message();
  ASSERT_EQ(fleet->size(), 3U);
  EXPECT_EQ((*fleet)[1].host, "n1");
  EXPECT_EQ((*fleet)[1].number, 1U);
  EXPECT_EQ((*fleet)[2].number, std::nullopt);
  EXPECT_EQ((*fleet)[0].at[1], kNow + 30s);
  EXPECT_EQ((*fleet)[0].value[index_of(Metric::util)][1], 5);
}

}  // namespace
}  // namespace lull
