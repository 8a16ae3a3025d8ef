#include "trace/reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "trace/csv.h"
#include "trace/test_trace.h"

namespace lull::trace {
namespace {

constexpr std::int64_t kReaderNs = 1'000'000'000;
constexpr std::int64_t kReaderMarch = 1'710'500'669;  // 2024-03-15T11:04:29Z

std::vector<Sample> series(std::initializer_list<std::pair<double, std::vector<float>>> rows) {
  std::vector<Sample> samples;
  for (const auto& [seconds, values] : rows) samples.push_back({std::llround(seconds * 1e3) * 1'000'000, values});
  return samples;
}

TEST(TraceReader, NvidiaSmiOutputAsItIs) {
  const auto back = read_text(
      "timestamp, index, uuid, utilization.gpu [%], power.draw [W], memory.used [MiB], pstate\n"
      "2024/03/15 11:04:29.052, 0, GPU-aa, 45 %, 70.12 W, 1024 MiB, P0\n"
      "2024/03/15 11:04:29.055, 1, GPU-bb, [N/A], [Unknown Error], 3 MiB, P8\n"
      "2024/03/15 11:04:30.052, 0, GPU-aa, 46 %, 71.00 W, 2048 MiB, P2\r\n"
      "2024/03/15 11:04:30.055, 1, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]\n",
      {Metric::util, Metric::power, Metric::mem_used, Metric::pstate});
  ASSERT_TRUE(back) << back.error().message();
  const double t = kReaderMarch + 0.052;
  EXPECT_EQ(back->of.at("0"), series({{t, {45, 70.12F, 1024.F * 1048576, 0}}, {t + 1, {46, 71, 2048.F * 1048576, 2}}}));
  EXPECT_EQ(back->of.at("1"), series({{t + 0.003, {kUnknownSample, kUnknownSample, 3.F * 1048576, 8}},
                                      {t + 1.003, {kUnknownSample, kUnknownSample, kUnknownSample, kUnknownSample}}}));
  EXPECT_EQ(back->report.gpus[1].uuid, "GPU-bb");
  EXPECT_EQ(back->report.samples, 4U);
  EXPECT_EQ(back->report.bad_rows, 0U);
  EXPECT_FALSE(back->report.zoned);
}

TEST(TraceReader, WhatAMetricCannotBeIsUnknown) {
  const std::vector<Metric> metrics = {Metric::util, Metric::power_limit, Metric::mem_total};
  for (const std::string text : {"time,gpu,util_percent,power_limit_watts,mem_total_bytes\n"
                                 "1700000000,0,37100,4294967.295,0\n1700000001,0,100,300,1024\n",
                                 "{\"time\": 1700000000, \"gpu\": 0, \"util_percent\": 37100, \"power_limit_watts\": "
                                 "4294967.295, \"mem_total_bytes\": 0}\n{\"time\": 1700000001, \"gpu\": 0, "
                                 "\"util_percent\": 100, \"power_limit_watts\": 300, \"mem_total_bytes\": 1024}\n"}) {
    const auto back = read_text(text, metrics);
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(back->of.at("0"),
              series({{1700000000, {kUnknownSample, kUnknownSample, kUnknownSample}}, {1700000001, {100, 300, 1024}}}));
    EXPECT_EQ(back->report.bad_rows, 0U) << "the other values of the row are as good as ever";
  }
}

TEST(TraceReader, NvidiaSmiWithoutUnitsOrHeader) {
  const auto bare =
      read_text("timestamp, index, utilization.gpu [%], memory.used [MiB]\n2024/03/15 11:04:29.052, 0, 45, 1024\n",
                {Metric::util, Metric::mem_used});
  ASSERT_TRUE(bare);
  EXPECT_EQ(bare->of.at("0")[0].values, (std::vector<float>{45, 1024.F * 1048576}));
  const std::string headless = "2024/03/15 11:04:29.052, 0, 45 %, 1024 MiB\n2024/03/15 11:04:30.052, 0, 4 %, 7 MiB\n";
  EXPECT_NE(read_text(headless).error().message().find("--columns time=1"), std::string::npos);
  const auto told = read_text(headless, {Metric::util, Metric::mem_used}, "time=1,gpu=2,util=3,mem_used=4");
  ASSERT_TRUE(told) << told.error().message();
  ASSERT_EQ(told->of.at("0").size(), 2U);
  EXPECT_EQ(told->of.at("0")[1].values, (std::vector<float>{4, 7.F * 1048576}));
}

TEST(TraceReader, OurOwnCsvAndNdjson) {
  const auto csv = read_text(
      "time,gpu,uuid,util_percent,mem_used_bytes,power_watts\n"
      "2024-03-15T11:04:29.000Z,0,GPU-aa,5,1073741824,\n"
      "2024-03-15T11:04:29.000Z,3:1,MIG-bb,,12,71.5\n");
  ASSERT_TRUE(csv);
  const auto json = read_text(
      R"({"time":"2024-03-15T11:04:29.000Z","gpu":"0","uuid":"GPU-aa","util_percent":5,"mem_used_bytes":1073741824,"power_watts":null})"
      "\n"
      R"({"power_watts": 71.5, "extra": {"a": ["}", 1]}, "time":"2024-03-15T11:04:29Z", "gpu":"3:1", "uuid":"MIG\u002dbb"})"
      "\n");
  ASSERT_TRUE(json) << json.error().message();
  for (const auto* back : {&*csv, &*json}) {
    EXPECT_EQ(back->of.at("0"), series({{kReaderMarch, {5, kUnknownSample}}}));
    EXPECT_EQ(back->of.at("3:1"), series({{kReaderMarch, {kUnknownSample, 71.5F}}}));
    EXPECT_EQ(back->report.gpus[1].uuid, "MIG-bb");
  }
}

TEST(TraceReader, AnyCsvThroughColumns) {
  const auto back = read_text(
      "\xEF\xBB\xBFnode;\"dev, no\";when;load;milliwatts\r\n"
      "n1;0;1710500669052;0.25;70120\r\n"
      "n2;0;1710500669052;\"0.5\";80000\r\n",
      {Metric::util, Metric::power}, "time=when,gpu=node+2,util=load:fraction,power=milliwatts:mW");
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->of.at("n1/0"), series({{kReaderMarch + 0.052, {25, 70.12F}}}));
  EXPECT_EQ(back->of.at("n2/0"), series({{kReaderMarch + 0.052, {50, 80}}}));
  EXPECT_TRUE(back->report.zoned);
}

TEST(TraceReader, TimesInEveryUnit) {
  for (const char* time : {"1710500669.052", "1710500669052", "1710500669052000", "1710500669052000000",
                           "2024-03-15T11:04:29.052Z", "2024/03/15 11:04:29.052"}) {
    const auto back = read_text(std::string("time,gpu,util\n") + time + ",0,1\n", {Metric::util});
    ASSERT_TRUE(back) << time;
    EXPECT_EQ(back->of.at("0")[0].at, kReaderMarch * kReaderNs + 52'000'000) << time;
  }
  const auto relative = read_text("t,util\n0,1\n100,2\n", {Metric::util}, "time=t:ms");
  ASSERT_TRUE(relative);
  EXPECT_EQ(relative->of.at("0")[1].at, kReaderNs / 10);
  EXPECT_FALSE(relative->report.from_epoch);
}

TEST(TraceReader, BadRowsAreCountedAndTheRestIsUsed) {
  const auto back = read_text(
      "time,gpu,util\n1,0,5\nUnable to determine the device "
      "handle\n2,0\n3,0,many\n\nx,0,1\n4,,1\n5,0,\"6\n6,0,7,8\n7,0,9\n",
      {Metric::util});
  ASSERT_TRUE(back);
  EXPECT_EQ(back->of.at("0"), series({{1, {5}}, {7, {9}}}));
  EXPECT_EQ(back->report.bad_rows, 7U);
  ASSERT_EQ(back->report.first_bad.size(), 5U);
  EXPECT_EQ(back->report.first_bad[0].line, 3U);
  EXPECT_EQ(back->report.first_bad[1].line, 4U);
  EXPECT_EQ(back->report.first_bad[2].line, 5U);
  EXPECT_NE(back->report.first_bad[2].why.find("many"), std::string::npos);
  EXPECT_EQ(back->report.first_bad[3].line, 7U);
}

TEST(TraceReader, AFileWithoutAUsableRowIsAnError) {
  for (const char* text : {"", "\n\n", "time,gpu,util\n", "time,gpu,util\nx,y,z\n"}) {
    const auto back = read_text(text, {Metric::util});
    ASSERT_FALSE(back) << text;
    EXPECT_NE(back.error().message().find("lull-trace-test"), std::string::npos) << back.error().message();
  }
  EXPECT_FALSE(read_text("a,b,c\n1,2,3\n"));
  EXPECT_FALSE(read_text("time,gpu,util\n1,0,5\n", {Metric::util}, "power=watts"));
}

TEST(TraceReader, AHeaderInTheMiddle) {
  const auto same = read_text("time,gpu,util\n1,0,5\ntime,gpu,util\n2,0,6\n", {Metric::util});
  ASSERT_TRUE(same);
  EXPECT_EQ(same->of.at("0").size(), 2U);
  EXPECT_EQ(same->report.bad_rows, 0U);
  const auto other = read_text("time,gpu,util\n1,0,5\ntime,gpu,power\n2,0,6\n", {Metric::util});
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message().find("line 3"), std::string::npos);
}

TEST(TraceReader, OurOwnLastLineWithoutAnEndWasCutOff) {
  const auto back = read_text("time,gpu,uuid,util_percent\n1,0,GPU-a,45\n2,0,GPU-a,4", {Metric::util});
  ASSERT_TRUE(back);
  EXPECT_EQ(back->of.at("0"), series({{1, {45}}}));
  EXPECT_EQ(back->report.bad_rows, 1U);
  EXPECT_EQ(read_text("time,gpu,util\n1,0,45\n2,0,46", {Metric::util})->of.at("0").size(), 2U);
}

TEST(TraceReader, FilesThatOverlapAreDifferentMachines) {
  const TempFile first("time,gpu,util\n1,0,1\n2,0,1\n3,0,1\n");
  const TempFile later("time,gpu,util\n4,0,2\n5,0,2\n");
  const TempFile other("time,gpu,util\n2,0,3\n3,0,3\n");
  TraceOptions options;
  options.metrics = {Metric::util};
  options.paths = {later.path(), first.path()};  // rotated, in any order
  EXPECT_EQ(read_back(options)->of.at("0"), series({{1, {1}}, {2, {1}}, {3, {1}}, {4, {2}}, {5, {2}}}));
  options.paths = {first.path(), other.path()};
  const auto apart = read_back(options);
  ASSERT_TRUE(apart);
  EXPECT_EQ(apart->of.size(), 2U);
  EXPECT_EQ(apart->of.at(other.path() + ":0"), series({{2, {3}}, {3, {3}}}));
  options.paths = {first.path(), first.path()};
  EXPECT_FALSE(read_back(options));
}

TEST(TraceReader, AUuidIsTheSameGpuInEveryFile) {
  const TempFile first("time,uuid,util\n1,GPU-a,1\n3,GPU-a,1\n");
  const TempFile other("time,uuid,util\n2,GPU-a,3\n4,GPU-a,3\n");
  TraceOptions options;
  options.metrics = {Metric::util};
  options.paths = {first.path(), other.path()};
  EXPECT_EQ(read_back(options)->of.at("GPU-a"), series({{1, {1}}, {2, {3}}, {3, {1}}, {4, {3}}}));
}

// A trace as a test thinks of it: any number of GPUs, any order of rows.
struct Trace {
  std::vector<std::string> rows;
  std::map<std::string, std::map<std::int64_t, float>> truth;
  std::uint64_t duplicates = 0;
};

enum class Order : std::uint8_t { oldest_first, newest_first, nearly, none };

Trace random_trace(std::mt19937& dice, Order order, std::size_t gpus, std::size_t samples) {
  Trace trace;
  for (std::size_t i = 0; i < samples; ++i)
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
      const std::int64_t at = static_cast<std::int64_t>(i) * 1000 + static_cast<std::int64_t>(gpu);
      const int util = static_cast<int>(dice() % 101);
      trace.rows.push_back(std::to_string(at) + "," + std::to_string(gpu) + "," + std::to_string(util) + "\n");
      trace.truth[std::to_string(gpu)][at * 1'000'000] = static_cast<float>(util);
    }
  if (order == Order::newest_first) std::reverse(trace.rows.begin(), trace.rows.end());
  if (order == Order::nearly)
    for (std::size_t i = 0; i + 1 < trace.rows.size(); ++i)
      std::swap(trace.rows[i], trace.rows[std::min(trace.rows.size() - 1, i + dice() % 20)]);
  if (order == Order::none) std::shuffle(trace.rows.begin(), trace.rows.end(), dice);
  for (int i = 0; i < 5; ++i) {
    const std::string again = trace.rows[dice() % trace.rows.size()];
    trace.rows.push_back(again);
    ++trace.duplicates;
  }
  return trace;
}

std::string text_of(const Trace& trace) {
  std::string text = "time,gpu,util\n";
  for (const std::string& row : trace.rows) text += row;
  return text;
}

TraceOptions options_for(const TempFile& file) {
  TraceOptions options;
  options.paths = {file.path()};
  options.metrics = {Metric::util};
  options.columns = *parse_columns("time=time:ms");
  return options;
}

TEST(TraceReader, AnyOrderAnyChunksAnyThreadsGiveTheSameSamples) {
  const bool held = rc::check([] {
    std::mt19937 dice(*rc::gen::arbitrary<unsigned>());
    const auto order = *rc::gen::element(Order::oldest_first, Order::newest_first, Order::nearly, Order::none);
    const auto gpus = *rc::gen::inRange<std::size_t>(1, 5);
    const auto length = *rc::gen::inRange<std::size_t>(1, 4000);
    const Trace trace = random_trace(dice, order, gpus, length);
    const TempFile file(text_of(trace));
    TraceOptions options = options_for(file);
    options.threads = *rc::gen::inRange(1U, 4U);
    options.chunk_bytes = *rc::gen::inRange<std::size_t>(64, 20'000);
    // Room for one GPU, if all of it must be sorted, or for all; and as many at a time as the sink will have.
    if (*rc::gen::arbitrary<bool>()) options.memory = 2 * (length + 70) * 12;
    const auto back = read_back(options, *rc::gen::inRange<std::size_t>(1, 5));
    RC_ASSERT(back.has_value());
    RC_ASSERT(back->of.size() == gpus);
    for (const auto& [label, samples] : back->of) {
      RC_ASSERT(samples.size() == trace.truth.at(label).size());
      std::size_t i = 0;
      for (const auto& [at, util] : trace.truth.at(label)) {
        RC_ASSERT(samples[i].at == at);
        RC_ASSERT(samples[i++].values[0] == util);
      }
    }
    RC_ASSERT(back->report.duplicates == trace.duplicates);
  });
  EXPECT_TRUE(held);
}

TEST(TraceReader, WhatDoesNotFitIntoMemoryIsReadInParts) {
  std::mt19937 dice(1);
  const Trace trace = random_trace(dice, Order::newest_first, 8, 3000);
  const TempFile file(text_of(trace));
  TraceOptions options = options_for(file);
  options.memory = std::size_t{200} << 10;  // a GPU takes 48 KiB
  auto back = read_back(options);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->restarts, 2);
  EXPECT_GE(back->parts, 4);
  EXPECT_EQ(back->report.samples, 8U * 3000U);
  EXPECT_EQ(back->report.duplicates, 5U);
  EXPECT_EQ(back->report.bad_rows, 0U);
  for (const auto& [label, samples] : back->of) EXPECT_EQ(samples.size(), 3000U) << label;

  options.memory = std::size_t{20} << 10;
  back = read_back(options);
  ASSERT_FALSE(back);
  EXPECT_NE(back.error().message().find("--memory"), std::string::npos);
}

TEST(TraceReader, ManyGpusHoldFewerSamplesEach) {
  std::string text = "time,gpu,util\n";
  for (int i = 0; i < 500; ++i)
    for (int gpu = 0; gpu < 50; ++gpu) text += fmt::format("{},{},{}\n", i, gpu, i % 100);
  const TempFile file(text);
  TraceOptions options;
  options.paths = {file.path()};
  options.metrics = {Metric::util};
  options.memory = 50 * 200 * 12;
  Rows rows(options.metrics);
  auto reader = TraceReader::open(options);
  ASSERT_TRUE(reader);
  ASSERT_TRUE(reader->read(rows));
  EXPECT_LE(rows.largest, 128U);
  for (const auto& [gpu, samples] : rows.of) EXPECT_EQ(samples.size(), 500U) << gpu;
}

TEST(TraceReader, RowsALittleLateNeedNoSecondReading) {
  std::string text = "time,gpu,util\n";
  for (int i = 0; i < 10'000; ++i) text += std::to_string(i % 100 == 7 ? i - 30.5 : i) + ",0,1\n";
  const auto back = read_text(text, {Metric::util});
  ASSERT_TRUE(back);
  EXPECT_EQ(back->restarts, 1);
  EXPECT_EQ(back->report.samples, 10'000U);
  EXPECT_GT(back->report.out_of_order, 0U);
  EXPECT_TRUE(std::is_sorted(back->of.at("0").begin(), back->of.at("0").end(),
                             [](const Sample& a, const Sample& b) { return a.at < b.at; }));
}

TEST(TraceReader, TogetherOnCommonTicks) {
  const std::string interleaved =
      "time,gpu,util\n0,0,1\n0.010,1,2\n1,0,3\n1.020,1,4\n2,0,5\n3.01,1,6\n3.0,0,7\n3.0,0,8\n";
  const std::string one_after_another =
      "time,gpu,util\n0,0,1\n1,0,3\n2,0,5\n3.0,0,7\n3.0,0,8\n0.010,1,2\n1.020,1,4\n3.01,1,6\n";
  for (const std::string& text : {interleaved, one_after_another}) {
    const TempFile file(text);
    TraceOptions options;
    options.paths = {file.path()};
    options.metrics = {Metric::util};
    options.together = true;
    options.gpus = 2;
    options.tick = {kReaderNs};
    options.gaps = {{3 * kReaderNs}, {3 * kReaderNs}};
    const auto back = read_back(options);
    ASSERT_TRUE(back) << back.error().message();
    ASSERT_EQ(back->ticks.size(), 4U);
    EXPECT_EQ(back->ticks[0][1].values[0], 2);
    EXPECT_EQ(back->ticks[0][1].at, 0);
    EXPECT_EQ(back->ticks[2][0].values[0], 5);
    EXPECT_TRUE(std::isnan(back->ticks[2][1].values[0]));
    EXPECT_EQ(back->ticks[3][0].values[0], 7);
    EXPECT_EQ(back->ticks[3][1].values[0], 6);
    EXPECT_EQ(back->report.duplicates, 1U);
    EXPECT_EQ(back->report.samples, 7U);
    EXPECT_EQ(back->report.gpus[0].seen, Duration(3 * kReaderNs));
    EXPECT_EQ(back->report.gpus[1].seen, Duration(3 * kReaderNs));
  }
}

}  // namespace
}  // namespace lull::trace
