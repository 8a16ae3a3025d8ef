#include "trace/series_rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "trace/test_trace.h"

namespace lull::trace {
namespace {

// A day of two GPUs as Prometheus answers it: one series behind the other.
std::string answer(std::int64_t from, int samples) {
  std::string text = R"({"status":"success","data":{"resultType":"matrix","result":[)";
  for (const std::string_view name : {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"})
    for (int gpu = 0; gpu < 2; ++gpu) {
      text += fmt::format(R"({}{{"metric":{{"__name__":"{}","gpu":"{}"}},"values":[)", text.ends_with('[') ? "" : ",",
                          name, gpu);
      for (int i = 0; i < samples; ++i)
        text += fmt::format(R"({}[{}.5,"{}"])", i == 0 ? "" : ",", from + 30 * i + gpu,
                            name.ends_with("UTIL") ? i % 100 : 100 + i % 100);
      text += "]}";
    }
  return text + "]}}\n";
}

ReadBack read_days(int days, int samples, bool together) {
  std::string text;
  for (int day = 0; day < days; ++day) text += answer(1'790'000'000 + 86400 * day, samples);
  const TempFile file(text, ".json");
  TraceOptions options;
  options.paths = {file.path()};
  options.metrics = {Metric::util, Metric::power};
  options.together = together;
  options.gpus = 2;
  options.tick = {std::int64_t{30} * 1'000'000'000};
  options.memory = std::size_t{1} << 20;  // less than the trace would need
  auto back = read_back(std::move(options));
  EXPECT_TRUE(back) << (back ? "" : back.error().message());
  return back ? *std::move(back) : ReadBack{};
}

TEST(AnswerRows, DaysOfAPrometheusAreReadWithoutHoldingThemAll) {
  constexpr int kDays = 10;
  constexpr int kSamples = 2880;
  const ReadBack back = read_days(kDays, kSamples, false);
  EXPECT_FALSE(back.report.sorted_in_memory);
  EXPECT_EQ(back.restarts, 1);
  ASSERT_EQ(back.report.gpus.size(), 2U);
  EXPECT_EQ(back.report.duplicates, 0U);
  for (const auto& [label, samples] : back.of) {
    ASSERT_EQ(samples.size(), static_cast<std::size_t>(kDays * kSamples)) << label;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const float util = static_cast<float>(i % kSamples % 100);
      ASSERT_EQ(samples[i].values, (std::vector<float>{util, 100 + util})) << label << ' ' << i;
      if (i > 0) {
        ASSERT_LT(samples[i - 1].at, samples[i].at);
      }
    }
  }
}

TEST(AnswerRows, DaysOfAPrometheusAreReadTogetherWithoutHoldingThemAll) {
  const ReadBack back = read_days(10, 2880, true);
  EXPECT_FALSE(back.report.sorted_in_memory);
  ASSERT_EQ(back.ticks.size(), 28800U);
  for (std::size_t i = 0; i < back.ticks.size(); ++i) {
    const float util = static_cast<float>(i % 2880 % 100);
    for (const Sample& gpu : back.ticks[i]) ASSERT_EQ(gpu.values, (std::vector<float>{util, 100 + util})) << i;
  }
}

TEST(AnswerRows, GpusHaveTheOrderOfTheAnswerAndASecondValueIsADuplicate) {
  const auto back = read_text(
      R"({"status":"success","data":{"resultType":"matrix","result":[
{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL","gpu":"7"},"values":[[1790000030,"5"],[1790000060,"6"]]},
{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL","gpu":"3"},"values":[[1790000000,"1"],[1790000030,"2"]]},
{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL","gpu":"5"},"values":[]},
{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL","gpu":"3","instance":""},"values":[[1790000030,"9"]]}]}})",
      {Metric::util});
  ASSERT_TRUE(back) << back.error().message();
  ASSERT_EQ(back->report.gpus.size(), 2U);
  EXPECT_EQ(back->report.gpus[0].label, "7");
  EXPECT_EQ(back->report.gpus[1].label, "3");
  EXPECT_EQ(back->report.duplicates, 1U);
  EXPECT_EQ(back->of.at("3").back().values, std::vector<float>{2});
}

// Zeros are the free times of jobstats; a number of a job is exact, whatever a float can hold.
TEST(AnswerRows, NumbersOfJobsStandForWhoHasTheGpu) {
  const TempFile file(R"({"status":"success","data":{"resultType":"matrix","result":[
{"metric":{"__name__":"nvidia_gpu_duty_cycle","minor_number":"0"},"values":[[1790000000,"1"],[1790000030,"2"],[1790000060,"3"],[1790000090,"4"]]},
{"metric":{"__name__":"nvidia_gpu_jobId","minor_number":"0"},"values":[[1790000000,"0"],[1790000030,"0"],[1790000060,"123456789"],[1790000090,"123456788"]]}]}})",
                      ".json");
  TraceOptions options;
  options.paths = {file.path()};
  options.metrics = {Metric::util};
  options.who = true;
  const auto back = read_back(std::move(options));
  ASSERT_TRUE(back) << back.error().message();
  ASSERT_EQ(back->of.size(), 1U);
  EXPECT_EQ(back->of.begin()->second.size(), 4U);
  EXPECT_EQ(back->report.duplicates, 0U);
}

}  // namespace
}  // namespace lull::trace
