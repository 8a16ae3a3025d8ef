// How fast rules are judged: over blocks in memory, as replay does it, and one sample
// at a time, as live watching does. Beside it the obvious way to write the same: an
// object a condition, one virtual call a sample (kept here as the rival).

#include <benchmark/benchmark.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/judge.h"
#include "rule/policy.h"

namespace {

using namespace lull;

constexpr std::size_t kSamples = 64 * kBlockSamples;  // 1.3 MB of columns and times
constexpr const char* kIdle = "util < 5 and power < 120W for 20m";
constexpr const char* kArm = "util > 80 for 30s";

// Sampled every 10 s: hours of work with pauses, then hours of idleness, with noise.
struct Recording {
  std::vector<Instant> at;
  std::vector<float> util;
  std::vector<float> power;

  Recording() {
    std::uint64_t state = 42;
    const auto random = [&] {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      return static_cast<float>(state >> 40) / static_cast<float>(1 << 24);
    };
    bool busy = true;
    for (std::size_t i = 0, left = 0; i < kSamples; ++i) {
      if (left-- == 0) {
        busy = !busy;
        left = 50 + static_cast<std::size_t>(random() * 700);
      }
      const bool pause = random() < 0.03F;
      const bool works = busy != pause;
      at.emplace_back(std::chrono::seconds(10 * i));
      util.push_back(works ? 60 + 40 * random() : 4 * random());
      power.push_back(works ? 200 + 200 * random() : 60 + 10 * random());
    }
  }
  Block block(std::size_t from, std::size_t count) const {
    Block out{.at = std::span(at).subspan(from, count), .value = {}};
    out.value[index_of(Metric::util)] = std::span(util).subspan(from, count);
    out.value[index_of(Metric::power)] = std::span(power).subspan(from, count);
    return out;
  }
};
const Recording& recording() {
  static const Recording made;
  return made;
}

Policy policy(bool arm) { return *(arm ? Policy::parse(kIdle, kArm) : Policy::parse(kIdle)); }
EvaluatorOptions options(std::size_t gpus) { return {.gpus = gpus, .interval = std::chrono::seconds(10)}; }

std::uint64_t count_firings(const PolicyAnswers& answers, std::size_t samples) {
  std::uint64_t fired = 0;
  for (std::size_t w = 0; w < words_for(samples); ++w)
    fired += static_cast<std::uint64_t>(std::popcount(answers.fires[w]));
  return fired;
}

void blocks(benchmark::State& state) {
  const Recording& data = recording();
  std::uint64_t fired = 0;
  for (auto _ : state) {
    Decider decider(policy(true), options(1));
    PolicyAnswers answers;
    fired = 0;
    for (std::size_t from = 0; from < kSamples; from += kBlockSamples) {
      const Block block = data.block(from, kBlockSamples);
      benchmark::DoNotOptimize(decider.feed({&block, 1}, answers));
      fired += count_firings(answers, kBlockSamples);
    }
    benchmark::DoNotOptimize(fired);
  }
  state.counters["fired"] = static_cast<double>(fired);
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * kSamples));
}
BENCHMARK(blocks);

// ---- the rival -------------------------------------------------------------

struct Sample {
  std::int64_t at;
  float util;
  float power;
};
struct Condition {
  Condition() = default;
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;
  virtual ~Condition() = default;
  virtual std::optional<bool> judge(const Sample& sample) = 0;
};
using ConditionPtr = std::unique_ptr<Condition>;

template <float Sample::* kField, bool kBelow>
struct Limit final : Condition {
  explicit Limit(float value) : limit(value) {}
  std::optional<bool> judge(const Sample& sample) override {
    const float value = sample.*kField;
    if (!std::isfinite(value)) return std::nullopt;
    return kBelow ? value < limit : value > limit;
  }
  float limit;
};
struct Both final : Condition {
  Both(ConditionPtr a, ConditionPtr b) : left(std::move(a)), right(std::move(b)) {}
  std::optional<bool> judge(const Sample& sample) override {
    const auto a = left->judge(sample);
    const auto b = right->judge(sample);
    if ((a && !*a) || (b && !*b)) return false;
    if (!a || !b) return std::nullopt;
    return true;
  }
  ConditionPtr left, right;
};
struct Lasting final : Condition {
  Lasting(ConditionPtr of, std::int64_t needed) : operand(std::move(of)), span(needed) {}
  std::optional<bool> judge(const Sample& sample) override {
    const auto now = operand->judge(sample);
    if (last && sample.at - *last > 30'000'000'000) since.reset();
    last = sample.at;
    if (!now || !*now) {
      since.reset();
      return now;
    }
    if (!since) since = sample.at;
    if (sample.at - *since >= span) return true;
    return std::nullopt;
  }
  ConditionPtr operand;
  std::int64_t span;
  std::optional<std::int64_t> since;
  std::optional<std::int64_t> last;
};

void virtual_calls(benchmark::State& state) {
  const Recording& data = recording();
  std::uint64_t fired = 0;
  for (auto _ : state) {
    const auto idle =
        std::make_unique<Lasting>(std::make_unique<Both>(std::make_unique<Limit<&Sample::util, true>>(5.0F),
                                                         std::make_unique<Limit<&Sample::power, true>>(120.0F)),
                                  1'200'000'000'000);
    const auto arm = std::make_unique<Lasting>(std::make_unique<Limit<&Sample::util, false>>(80.0F), 30'000'000'000);
    Condition* judge_idle = idle.get();
    Condition* judge_arm = arm.get();
    benchmark::DoNotOptimize(judge_idle);
    benchmark::DoNotOptimize(judge_arm);
    bool armed = false;
    bool inside = false;
    fired = 0;
    for (std::size_t i = 0; i < kSamples; ++i) {
      const Sample sample{data.at[i].time_since_epoch().count(), data.util[i], data.power[i]};
      if (!armed) {
        armed = judge_arm->judge(sample) == true;
        continue;
      }
      const bool yes = judge_idle->judge(sample) == true;
      fired += yes && !inside ? 1 : 0;
      inside = yes;
    }
    benchmark::DoNotOptimize(fired);
  }
  state.counters["fired"] = static_cast<double>(fired);
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * kSamples));
}
BENCHMARK(virtual_calls);

// ---- live: one sample at a time, snapshot to verdict ------------------------

void live(benchmark::State& state) {
  const auto gpus = static_cast<std::size_t>(state.range(0));
  auto inventory = std::make_shared<Inventory>();
  inventory->devices.resize(gpus);
  for (std::size_t g = 0; g < gpus; ++g) {
    inventory->devices[g].index = static_cast<unsigned>(g);
    inventory->devices[g].uuid = "GPU-" + std::to_string(g);
  }
  Snapshot snapshot;
  snapshot.inventory = inventory;
  snapshot.readings.resize(gpus);
  for (Reading& reading : snapshot.readings) {
    reading.set(Metric::util, 0);
    reading.set(Metric::power, 70);
  }
  Judge judge(policy(true), inventory->devices, {.interval = std::chrono::seconds(10)});
  for (auto _ : state) {
    snapshot.at += std::chrono::seconds(10);
    benchmark::DoNotOptimize(judge.observe(snapshot));
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
}
BENCHMARK(live)->Arg(1)->Arg(8)->Arg(64);

}  // namespace

BENCHMARK_MAIN();
