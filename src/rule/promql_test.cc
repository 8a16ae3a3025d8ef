#include "rule/promql.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace lull {
namespace {

using namespace std::chrono_literals;

std::string query(std::string_view text, const PromOptions& options = {}) {
  const auto rule = parse_rule(text);
  if (!rule) return rule.error().what;
  const auto made = to_promql(*rule, options);
  return made ? *made : "refused: " + made.error().message();
}
bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(Promql, AsksForMoreThanTheRule) {
  EXPECT_EQ(
      query("util < 1 for 30m"),
      "count_over_time((\n"
      "      (max by (Hostname, gpu, UUID, hpc_job) (last_over_time(DCGM_FI_DEV_GPU_UTIL[80s]) >= 0 <= 100) < 1)\n"
      "    )[1855s:10s]) >= scalar(count_over_time(vector(1)[1855s:10s]))\n"
      "  and (max by (Hostname, gpu, UUID, hpc_job) (last_over_time(DCGM_FI_DEV_GPU_UTIL[45s]) >= 0 <= 100) < 1)\n"
      "  unless count_over_time((count by (Hostname, gpu, UUID, hpc_job) "
      "(count_over_time(DCGM_FI_DEV_GPU_UTIL[10s]) > 1))[1855s:10s])\n");
}

constexpr PromOptions kOfLull = {.per = PromPer::gpu, .names = PromNames::lull};

TEST(Promql, WhatIsLearnedCountsAtTheTimeOfItsSampleAlone) {
  const std::string text = query("util >= 95 and effort < 45 for 5m", kOfLull);
  EXPECT_TRUE(has(text,
                  "((max by (instance, gpu, uuid) (last_over_time(lull_gpu_effort_ratio[80s]) >= 0 <= 10) and on "
                  "(instance, gpu, uuid) (max by (instance, gpu, uuid) (timestamp(lull_gpu_effort_ratio)) == max by "
                  "(instance, gpu, uuid) (timestamp(lull_gpu_utilization_ratio)))) < 0.45)"))
      << text;
  // It is absent where a GPU does nothing, and that alone breaks no streak.
  EXPECT_FALSE(
      has(text,
          "(timestamp(lull_gpu_utilization_ratio)) == max by (instance, gpu, uuid) (timestamp(lull_gpu_effort_ratio))"))
      << text;
}

TEST(Promql, AGpuOfWhichNothingIsLearnedIsNotLeftOutOfAll) {
  PromOptions job = kOfLull;
  job.per = PromPer::host;
  const std::string all = query("util >= 95 and effort < 45 for 5m", job);
  EXPECT_TRUE(has(all,
                  "< 0.45) == count by (instance) (max by (instance, gpu, uuid) "
                  "(last_over_time(lull_gpu_utilization_ratio[80s]) >= 0 <= 1)))"))
      << all;
  const std::string any = query("util >= 95 and any(effort) < 45 for 5m", job);
  EXPECT_TRUE(has(any, "< 0.45) > 0)")) << any;
  EXPECT_EQ(
      query("mean(effort) < 45 for 5m", job),
      "refused: 'mean(effort) < 45' cannot be translated: it may be unknown of one of the GPUs, and a query would "
      "leave that one out; write all(…) or any(…)");
  // Every GPU has this one, so it says which there are.
  EXPECT_TRUE(has(query("effort < 45 for 5m", job),
                  "count by (instance) (group by (instance, gpu, uuid) "
                  "(last_over_time(lull_gpu_utilization_ratio[86400s])))"));
}

TEST(Promql, PowerAboveIdleIsADifference) {
  const std::string text = query("power < idle+3W for 5m", kOfLull);
  EXPECT_TRUE(has(text,
                  "(max by (instance, gpu, uuid) (last_over_time(lull_gpu_power_watts[80s]) >= 0 <= 10000) - on "
                  "(instance, gpu, uuid) (min by (instance, gpu, uuid) (last_over_time(lull_gpu_idle_power_watts"))
      << text;
  EXPECT_TRUE(has(text, ") < 3)")) << text;
  EXPECT_EQ(query("power < idle+3W for 5m"),
            "refused: 'idle_power' cannot be translated: lull learns it of each card, and dcgm-exporter does not have "
            "it; --metrics lull has it, of lull serve");
}

TEST(Promql, HungCanBeTranslatedForAGpuAJobAndAHost) {
  const std::string hung =
      "any(util) >= 95 and all(util < 5 or util >= 95 and (learned >= 1m and effort < 45 or learned < 1m and power < "
      "35%)) for 5m";  // the named rule
  for (const PromPer per : {PromPer::gpu, PromPer::job, PromPer::host})
    EXPECT_TRUE(has(query(hung, {.per = per, .names = PromNames::lull}), "lull_gpu_learned_seconds")) << hung;
}

TEST(Promql, FollowsTheInterval) {
  const std::string text = query("util < 1 for 5m", {.interval = 10s});
  EXPECT_TRUE(has(text, "[26666ms]")) << text;  // three intervals less a step, which is rounded up
  EXPECT_TRUE(has(text, ":3334ms]")) << text;
  EXPECT_TRUE(has(text, "[318334ms:")) << text;
}

TEST(Promql, WritesLimitsInTheUnitOfTheMetric) {
  EXPECT_TRUE(
      has(query("mem_used > 1GiB for 5m"), "(last_over_time(DCGM_FI_DEV_FB_USED[80s]) >= 0 <= 1073741824) > 1024)"));
  EXPECT_TRUE(has(query("util < 5 for 5m", {.names = PromNames::lull}),
                  "max by (instance, gpu, uuid) (last_over_time(lull_gpu_utilization_ratio[80s]) >= 0 <= 1) < 0.05)"));
  EXPECT_TRUE(has(query("power < 30% for 5m"),
                  "(100 * max by (Hostname, gpu, UUID, hpc_job) (last_over_time("
                  "DCGM_FI_DEV_POWER_USAGE[80s]) >= 0 <= 10000) / min by "));
}

TEST(Promql, SeveralSignalsMustBeOfOneSample) {
  EXPECT_FALSE(has(query("util < 1 for 5m"), "timestamp"));
  EXPECT_TRUE(has(query("util < 1 and power < 80W for 5m"), "(timestamp(DCGM_FI_DEV_GPU_UTIL)) == max by"));
}

TEST(Promql, PushesANegationToTheComparisons) {
  const std::string text = query("not (util > 5 or power >= 80W) for 5m");
  EXPECT_TRUE(has(text, "<= 5) and (")) << text;
  EXPECT_TRUE(has(text, "< 80)")) << text;
  EXPECT_TRUE(has(query("not any(util) > 5 for 5m", {.per = PromPer::host}),
                  "(max by (Hostname) (max by (Hostname, gpu, UUID) (last_over_time("));
}

TEST(Promql, JudgesAGroupOnlyIfAllOfItIsThere) {
  const std::string text = query("any(util) < 1 for 5m", {.per = PromPer::job});
  EXPECT_TRUE(has(text, "{hpc_job!=\"\"}"));
  EXPECT_TRUE(has(text, "min by (hpc_job) (max by (Hostname, gpu, UUID, hpc_job)"));
  EXPECT_TRUE(has(text,
                  "== count by (hpc_job) (group by (Hostname, gpu, UUID, hpc_job) (last_over_time("
                  "DCGM_FI_DEV_GPU_UTIL{hpc_job!=\"\"}[86400s])))"));
  EXPECT_FALSE(has(query("util < 1 for 5m"), "86400s"));
  const std::string pods = query("util < 1 for 5m", {.per = PromPer::job, .job_labels = {"namespace", "pod"}});
  EXPECT_TRUE(has(pods, "{namespace!=\"\",pod!=\"\"}"));
  EXPECT_TRUE(has(pods, "max by (namespace, pod) ("));
}

TEST(Promql, OfOneGpuAnyIsTheGpuItself) {
  EXPECT_EQ(query("any(util < 1 for 5m)"), query("util < 1 for 5m"));
  EXPECT_EQ(query("all(util) < 1 for 5m"), query("util < 1 for 5m"));
}

TEST(Promql, RefusesWhatWouldBeEarly) {
  EXPECT_TRUE(query("util < 1").starts_with("refused: a rule without 'for'"));
  EXPECT_TRUE(query("util < 1 for 5 samples").starts_with("refused: 'for 5 samples'"));
  EXPECT_TRUE(query("mean(util, 5m) < 1 for 10m").starts_with("refused: 'mean(util, 5m) < 1'"));
  EXPECT_TRUE(query("(util < 1 for 5m) or power < 60W for 10m").starts_with("refused: 'for 5m' inside the rule"));
  EXPECT_TRUE(query("any(util < 1 for 5m)", {.per = PromPer::host}).starts_with("refused: "));
  EXPECT_EQ(query("cpu < 2 and util < 1 for 5m"),
            "refused: 'cpu' cannot be translated: it is read on the machine that runs the job, and no exporter has it");
  EXPECT_EQ(query("openers < 1 for 5m"), "refused: 'openers' cannot be translated: dcgm-exporter has no such metric");
  EXPECT_EQ(query("fan < 1 for 5m", {.names = PromNames::lull}),
            "refused: 'fan' cannot be translated: lull serve has no such metric");
}

TEST(Promql, AnAlertQuotesWhatPeopleWrote) {
  Rule rule = *parse_rule("util < 1 for 5m");
  rule.text = "util < 1 for 5m # it's {{ odd }}";
  const auto alert = to_prometheus_alert(rule, {.per = PromPer::job}, "It's idle");
  ASSERT_TRUE(alert);
  EXPECT_TRUE(has(*alert, "      - alert: 'It''s idle'\n        expr: |\n          count_over_time((\n"));
  EXPECT_TRUE(
      has(*alert, "summary: 'hpc_job {{ $labels.hpc_job }}: util < 1 for 5m # it''s {{ \"{\" }}{{ \"{\" }} odd }}'\n"));
  EXPECT_TRUE(has(*alert, "    interval: 15s\n"));
}

}  // namespace
}  // namespace lull
