#include "trace/sequence.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <random>

#include "trace/test_trace.h"

namespace lull::trace {
namespace {

constexpr std::int64_t kMs = 1'000'000;

std::vector<std::int64_t> ticks(std::initializer_list<int> sizes, std::int64_t every, std::int64_t apart) {
  std::vector<std::int64_t> times;
  std::int64_t at = 1'700'000'000'000 * kMs;
  for (const int size : sizes) {
    for (int i = 0; i < size; ++i) times.push_back(at + i * apart);
    at += every;
  }
  return times;
}

TEST(TickShape, FromTheTimesOfTheFirstRows) {
  EXPECT_EQ(shape_of_ticks(ticks({4, 4, 4, 4}, 1000 * kMs, 3 * kMs)).rows, 4U);
  EXPECT_EQ(shape_of_ticks(ticks({4, 4, 4, 4}, 1000 * kMs, 0)).rows, 4U);
  EXPECT_EQ(shape_of_ticks(ticks({4, 3, 4, 4, 4, 4, 2}, 1000 * kMs, 3 * kMs)).rows, 4U) << "one vanished once";
  EXPECT_EQ(shape_of_ticks(ticks({1, 1, 1, 1, 1}, 1000 * kMs, 0)).rows, 1U);
  EXPECT_EQ(shape_of_ticks(ticks({1, 1, 1, 1, 1}, 20 * kMs, 0)).rows, 1U);
  EXPECT_EQ(shape_of_ticks(ticks({3, 3}, 1000 * kMs, 3 * kMs)).rows, 3U);
  EXPECT_EQ(shape_of_ticks(ticks({1, 2, 4, 3, 1, 2}, 1000 * kMs, 3 * kMs)).rows, 0U) << "nobody knows";
  EXPECT_EQ(shape_of_ticks(ticks({5, 5, 5, 5}, 60'000 * kMs, 1000 * kMs)).rows, 0U)
      << "five GPUs, or one looked at in bursts";
  EXPECT_FALSE(shape_of_ticks(ticks({2, 2, 2, 2}, 1000 * kMs, 0)).sure) << "whole seconds, a second apart";
  EXPECT_TRUE(shape_of_ticks(ticks({2, 2, 2, 2}, 5000 * kMs, 0)).sure);
}

TEST(TickShape, OneGpuStaysOneWhateverItsPauses) {
  std::vector<std::int64_t> times;
  for (int i = 0; i < 200; ++i) times.push_back((i + (i > 50 ? 3600 : 0) + (i > 130 ? 900 : 0)) * 1000 * kMs);
  EXPECT_EQ(shape_of_ticks(times).rows, 1U);
}

// Threads have a parser each, which number the GPUs as they meet them.
TEST(SetBackClock, IsFoundWhateverNumbersTheParsersGiveTheGpus) {
  Schema schema;
  schema.identity = {Role::gpu};
  schema.zoned = false;
  Sequence sequence(schema, {});
  Identities first(schema.identity);
  Identities second(schema.identity);
  const auto number_in = [](Identities& parser, std::string_view gpu) {
    Identities::Cells cells{};
    cells[0] = gpu;
    return parser.find(cells);
  };
  constexpr std::int64_t kMinute = 60'000 * kMs;
  const std::int64_t start = 28'000'000 * kMinute;
  const auto feed = [&](Identities& parser, std::string_view gpu, std::int64_t minute) {
    Batch batch;
    batch.reset(0);
    batch.add_row(start + minute * kMinute, number_in(parser, gpu));
    sequence.apply(parser, batch);
    return (batch.at[0] - start) / kMinute;
  };
  EXPECT_EQ(feed(first, "0", 58), 58);
  EXPECT_EQ(feed(second, "1", 58), 58);
  EXPECT_EQ(feed(first, "1", 59), 59);
  EXPECT_EQ(feed(second, "0", 59), 59);
  EXPECT_EQ(feed(second, "0", 0), 60);
  EXPECT_EQ(feed(second, "1", 0), 60);
  EXPECT_TRUE(sequence.set_back_at());
}

// Rows of random ticks, from which rows were lost and in which GPUs were slow: a value is the right GPU's or unknown.
TEST(Places, NeverTheWrongGpusValue) {
  const bool held = rc::check([] {
    std::mt19937 dice(*rc::gen::arbitrary<unsigned>());
    const auto gpus = *rc::gen::inRange<std::size_t>(2, 9);
    const bool seconds = *rc::gen::arbitrary<bool>();
    const auto every = *rc::gen::element<std::int64_t>(1000, 2000, 5000);
    const auto losses = *rc::gen::inRange(0U, 10U);  // of a hundred rows
    std::string text = "time,util\n";
    std::size_t complete = 0;
    std::int64_t now = 1'700'000'000'000 + static_cast<std::int64_t>(dice() % 1000);
    for (int tick = 0; tick < 120; ++tick) {
      std::size_t rows = 0;
      std::int64_t at = now;
      for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
        at += static_cast<std::int64_t>(dice() % 5 + (tick > 30 && dice() % 100 == 0 ? dice() % 900 : 0));
        // The first ticks are whole: that is how their size is learned.
        if (tick > 30 && dice() % 100 < losses) continue;
        const std::int64_t written = seconds ? at / 1000 * 1000 : at;
        text += std::to_string(written) + "," + std::to_string(gpu * 10 + 1) + "\n";
        ++rows;
      }
      complete += rows == gpus ? 1 : 0;
      now = std::max(now + every, at) + static_cast<std::int64_t>(dice() % 7);
    }
    const TempFile file(text);
    TraceOptions options;
    options.paths = {file.path()};
    options.metrics = {Metric::util};
    options.columns = *parse_columns("time=time:ms");
    options.chunk_bytes = *rc::gen::inRange<std::size_t>(64, 5000);
    options.threads = 2;
    const auto back = read_back(options);
    RC_PRE(back.has_value());  // refused is fine, too
    RC_PRE(back->of.size() == gpus);
    std::size_t known = 0;
    for (const auto& [label, samples] : back->of)
      for (const Sample& sample : samples) {
        if (std::isnan(sample.values[0])) continue;
        RC_ASSERT(static_cast<int>(sample.values[0]) == std::stoi(label) * 10 + 1);
        ++known;
      }
    if (!seconds && losses == 0) RC_ASSERT(known > 0U);
    RC_ASSERT(known <= complete * gpus);
  });
  EXPECT_TRUE(held);
}

}  // namespace
}  // namespace lull::trace
