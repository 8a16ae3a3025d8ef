#pragma once
// For tests and benchmarks: a card that works in bursts, or not at all, behind the
// calls that the sensor makes, in simulated time; and a sensor that samples and looks
// as the real one does, with its hiccups, feeding a judge. One case after the other
// asks: was a healthy card called idle, was an idle one found?

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "engine/judge.h"
#include "engine/subject_state.h"
#include "rule/rule.h"
#include "sense/nvml/gpu.h"

namespace lull::burst {

enum class RingKind : std::uint8_t {
  none,           // the card has no ring
  full,           // it always records
  dry_when_idle,  // it records nothing while there is nothing to record
  dry,            // it never has an entry, though the card works
  dies,           // it records for a while, then never again
};

// The card. One at a time, one thread: a global will do.
struct Card {
  double period = 1;        // s
  double share = 0;         // of it, busy
  double phase = 0;         // s
  double window = 1.0 / 6;  // s that the moment's value is of
  RingKind ring = RingKind::none;
  double ring_period = 10.0 / 72;
  unsigned ring_size = 72;
  double ring_dies = 0;    // s
  double stamp_ahead = 0;  // s: of the ring's stamps, to the time since boot
  double now = 0;          // s since boot

  // Seconds of work before `at`.
  double work(double at) const {
    const double turns = (at - phase) / period;
    const double whole = std::floor(turns);
    return (whole * share + std::min(turns - whole, share)) * period;
  }
  double percent(double from, double to) const {
    return std::floor(100 * (work(to) - work(from)) / (to - from) + 1e-9);
  }
  bool records(double at) const {
    switch (ring) {
      case RingKind::full: return true;
      case RingKind::dry_when_idle: return work(at) > work(at - 2);
      case RingKind::dies: return at < ring_dies;
      case RingKind::none:
      case RingKind::dry: break;
    }
    return false;
  }
};
inline Card card;

inline nvml::Return samples(nvml::Device, unsigned, unsigned long long since, unsigned* type, unsigned* count,
                            nvml::Sample* out) {
  if (card.ring == RingKind::none) return nvml::Return::not_supported;
  *type = nvml::kValueUint;
  *count = 0;
  const double newest = std::floor(card.now / card.ring_period);
  for (unsigned back = card.ring_size; back-- > 0;) {
    const double to = (newest - back) * card.ring_period;
    if (!card.records(to)) continue;
    const auto stamp = static_cast<unsigned long long>((to + card.stamp_ahead) * 1e6);
    if (stamp <= since) continue;
    out[*count].timestamp = stamp;
    out[*count].value.ull = 0;
    out[(*count)++].value.ui = static_cast<unsigned>(card.percent(to - card.ring_period, to));
  }
  return *count == 0 ? nvml::Return::not_found : nvml::Return::success;
}

inline NvmlCalls calls() {
  using nvml::Return;
  NvmlCalls table;
  table.DeviceGetHandleByIndex_v2 = [](unsigned, nvml::Device* device) {
    static int one = 0;
    *device = reinterpret_cast<nvml::Device>(&one);
    return Return::success;
  };
  table.DeviceGetUUID = [](nvml::Device, char* out, unsigned length) {
    std::strncpy(out, "GPU-burst", length);
    return Return::success;
  };
  table.DeviceGetName = table.DeviceGetUUID;
  table.DeviceGetUtilizationRates = [](nvml::Device, nvml::Utilization* out) {
    *out = {static_cast<unsigned>(card.percent(card.now - card.window, card.now)), 0};
    return Return::success;
  };
  table.DeviceGetSamples = samples;
  return table;
}

class CardClock final : public Clock {
 public:
  Instant now() const override { return Instant(Duration(static_cast<Duration::rep>(card.now * 1e9))); }
  WallTime wall() const override {
    return WallTime(Duration(static_cast<Duration::rep>((card.now + kSince1970) * 1e9)));
  }
  static constexpr double kSince1970 = 1.7e9;
};

struct Case {
  bool works = true;
  double every = 1;       // s
  double holds = 60;      // s that the rule asks for
  double starved = 0;     // s: by up to this much every turn of the sensor is late
  double pauses[3] = {};  // s: how long the sensor gets no turn
};

struct Outcome {
  bool idle = false;  // the rule fired
  double at = 0;      // s after the beginning
  unsigned samples = 0;
  unsigned unknown = 0;  // of them, without util
  std::string what;
};

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  double any_scale(double low, double high) { return std::exp(uniform(std::log(low), std::log(high))); }
  bool chance(double share) { return uniform(0, 1) < share; }

 private:
  std::mt19937_64 engine_;
};

inline Case roll(Dice& dice, bool works) {
  card = {};
  Case one;
  one.works = works;
  card.period = dice.any_scale(0.1, 60);
  card.share = works ? 0.1 : 0;
  card.now = dice.uniform(1e4, 2e5);
  card.phase = dice.uniform(0, card.period);
  card.window = dice.chance(0.5) ? 1.0 / 6 : dice.uniform(1.0 / 6, 1);
  constexpr RingKind kKinds[] = {RingKind::none, RingKind::full, RingKind::dry_when_idle, RingKind::dry,
                                 RingKind::dies};
  card.ring = dice.chance(0.6) ? kKinds[dice.chance(0.5)] : kKinds[2 + static_cast<int>(dice.uniform(0, 2.999))];
  card.ring_dies = card.now + dice.uniform(0, 120);
  card.stamp_ahead = dice.chance(0.5) ? 0 : CardClock::kSince1970;
  one.every = dice.any_scale(0.1, 60);
  // The longest pause of a healthy card is 54 s, so no rule of more is right about one. Sampled often, half an hour
  // is many samples and shows nothing that three minutes do not.
  one.holds = std::floor(dice.any_scale(61, one.every < 0.5 ? 180 : 1800));
  // A healthy card may be watched by a sensor that hardly ever gets a turn; an idle one would not be found by it.
  one.starved = works && dice.chance(0.25) ? dice.any_scale(0.3, 20) : 0;
  for (double& pause : one.pauses) pause = dice.chance(0.3) ? dice.uniform(1, 20) : 0;
  return one;
}

// Runs the card for as long as a streak needs, after the last pause of the sensor.
inline Outcome run(const Case& one, Dice& dice) {
  const NvmlCalls table = calls();
  const CardClock clock;
  NvmlGpu gpu(0);
  NvmlBuffers buffers;
  buffers.clock = &clock;
  Answer answer;
  const Needs needs{.memory = false, .power = false, .details = false, .processes = false};
  Snapshot snapshot;
  auto inventory = std::make_shared<Inventory>();
  inventory->devices.emplace_back().uuid = "GPU-burst";
  snapshot.inventory = inventory;
  snapshot.readings.resize(1);
  const Duration interval(static_cast<Duration::rep>(one.every * 1e9));
  Judge judge({.idle = parse_rule("util < 1 for " + std::to_string(static_cast<int>(one.holds)) + "s").value()},
              inventory->devices, {.interval = interval, .max_gap = longest_gap(interval)});

  const double began = card.now;
  const double pauses_end = began + 3 * one.every + 30;
  const double end = pauses_end + 1.2 * one.holds + 4 * one.every + 60;
  double pause_at[3];
  for (double& at : pause_at) at = dice.uniform(began, pauses_end);
  bool paused[3] = {};
  double next_sample = card.now;
  double next_look = card.now;
  Outcome out;
  while (card.now < end) {
    card.now = std::max(card.now, std::min(next_sample, next_look));
    // A turn comes a little late, now and then much.
    card.now += dice.chance(0.01) ? dice.uniform(0, 0.3) : dice.uniform(0, 0.003);
    if (one.starved > 0) card.now += dice.uniform(0, one.starved);
    for (int i = 0; i < 3; ++i)
      if (one.pauses[i] > 0 && !paused[i] && card.now >= pause_at[i]) {
        paused[i] = true;
        card.now += one.pauses[i];
      }
    if (card.now >= next_sample) {
      sample_gpu(table, gpu, needs, clock.now(), buffers, answer);
      while (next_sample <= card.now) next_sample += one.every;
      next_sample += one.every * dice.uniform(-0.05, 0.05);
      snapshot.at = clock.now();
      snapshot.readings[0] = answer.gpu;
      ++out.samples;
      if (std::isnan(answer.gpu[Metric::util])) ++out.unknown;
      if (judge.observe(snapshot).value().fires) {
        out.idle = true;
        out.at = card.now - began;
        break;
      }
    } else {
      look_gpu(table, gpu, clock.now(), buffers);
    }
    next_look = card.now + std::chrono::duration<double>(look_within(gpu)).count();
  }
  out.what = std::string(one.works ? "works" : "idle") + " period " + std::to_string(card.period) + " every " +
             std::to_string(one.every) + " for " + std::to_string(one.holds) + " ring " +
             std::to_string(static_cast<int>(card.ring)) + " window " + std::to_string(card.window) + " starved " +
             std::to_string(one.starved) + " pauses " + std::to_string(one.pauses[0]) + " " +
             std::to_string(one.pauses[1]) + " " + std::to_string(one.pauses[2]);
  return out;
}

struct Count {
  unsigned cases = 0;
  unsigned wrong = 0;  // a healthy card called idle, an idle one not found
  double unknown = 0;  // share of the samples
  std::string first;   // that was wrong
};

inline Count count(unsigned cases, bool works, std::uint64_t seed) {
  Count all;
  Dice dice(seed);
  double samples = 0;
  double unknown = 0;
  for (; all.cases < cases; ++all.cases) {
    const Case one = roll(dice, works);
    const Outcome outcome = run(one, dice);
    samples += outcome.samples;
    unknown += outcome.unknown;
    if (outcome.idle != works) continue;
    if (all.wrong++ == 0) all.first = "case " + std::to_string(all.cases) + ": " + outcome.what;
  }
  all.unknown = samples > 0 ? unknown / samples : 0;
  return all;
}

}  // namespace lull::burst
