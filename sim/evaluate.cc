#include "sim/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "nvml/abi.h"
#include "sim/mapping.h"
#include "sim/timeline.h"

namespace lull::sim {
namespace {

constexpr double kMemShare = 0.4;                 // of util: how busy the memory controller is
constexpr double kPcieRxPerUtil = 2.0 * 1048576;  // bytes/s a percent
constexpr double kPcieTxPerUtil = 0.5 * 1048576;

unsigned index(Metric metric) { return static_cast<unsigned>(metric); }

// The Set in force at the moment, or null. Chains are short: a Set or two per metric since the last commit.
const Set* set_at(const Live& live, unsigned gpu, Metric metric, std::int64_t at_ns) {
  std::uint32_t i = live.last_set[gpu][index(metric)];
  for (unsigned guard = 0; i < kMaxSets && guard < kMaxSets; ++guard, i = live.sets[i].previous)
    if (live.sets[i].at_ns <= at_ns) return &live.sets[i];
  return nullptr;
}

std::int64_t next_set(const Live& live, unsigned gpu, Metric metric, std::int64_t after_ns) {
  std::int64_t next = kForever;
  std::uint32_t i = live.last_set[gpu][index(metric)];
  for (unsigned guard = 0; i < kMaxSets && guard < kMaxSets && live.sets[i].at_ns > after_ns;
       ++guard, i = live.sets[i].previous)
    next = live.sets[i].at_ns;
  return next;
}

// What was set, else kDerive.
double set_value(const Scene& scene, unsigned gpu, Metric metric, std::int64_t at_ns) {
  const Set* set = set_at(scene.live, gpu, metric, at_ns);
  return set == nullptr ? kDerive : set->value;
}

const Timeline& timeline(const Scene& scene, unsigned gpu, Metric metric) {
  return scene.state.gpus[gpu].timeline[index(metric)];
}

double timeline_value(const Scene& scene, unsigned gpu, Metric metric, std::int64_t at_ns) {
  return value_at(scene.state.keyframes(), timeline(scene, gpu, metric), at_ns);
}

constexpr double kScrubUtil = 60;  // percent, while memory is scrubbed after a process attached the card

struct Scrub {
  std::int64_t from_ns = kForever;
  std::int64_t to_ns = kForever;
};

Scrub scrub_of(const Scene& scene, unsigned gpu) {
  const std::int64_t lasting = scene.state.gpus[gpu].scrub_ns;
  if (lasting <= 0) return {};
  const std::int64_t from = scene.state.touched[gpu].attached_ns.load(std::memory_order_acquire);
  if (from == 0) return {};
  return {from, from + static_cast<std::int64_t>(static_cast<double>(lasting) * scene.state.speed)};
}

// The driver's own work: it shows as utilisation and costs (nearly) no power.
double scrub_util(const Scene& scene, unsigned gpu, std::int64_t at_ns) {
  const Scrub scrub = scrub_of(scene, gpu);
  return scrub.from_ns <= at_ns && at_ns < scrub.to_ns ? kScrubUtil : 0;
}

// Which of the counters it is; kCounters: none.
unsigned counter_of(Metric metric) {
  return static_cast<unsigned>(std::find(kCounterMetrics, kCounterMetrics + kCounters, metric) - kCounterMetrics);
}

double counter_at(const Step& step, unsigned counter) {
  const double said = step.counters[counter];
  return std::isnan(said) ? step.util * kCounterShares[counter] : said;
}

// What the loads on a GPU add up to at a moment.
struct Presence {
  double util = 0;
  double mem_util = 0;
  double counters[kCounters] = {};
  double memory = 0;
  bool any = false;
};

Presence presence(const Scene& scene, unsigned gpu, std::int64_t at_ns) {
  Presence sum;
  each_load(scene, gpu, at_ns, [&](const Load& load) {
    const Step& step = step_at(load, at_ns);
    sum.util += step.util;
    sum.mem_util += std::isnan(step.mem_util) ? step.util * kMemShare : step.mem_util;
    sum.memory += static_cast<double>(step.memory);
    for (unsigned i = 0; i < kCounters; ++i) sum.counters[i] += counter_at(step, i);
    sum.any = true;
  });
  return sum;
}

// What follows from util, and adds up.
bool follows_util(Metric metric) { return metric == Metric::mem_util || counter_of(metric) < kCounters; }
double share_of_util(Metric metric) {
  return metric == Metric::mem_util ? kMemShare : kCounterShares[counter_of(metric)];
}
double sum_of(const Presence& there, Metric metric) {
  return metric == Metric::mem_util ? there.mem_util : there.counters[counter_of(metric)];
}

double own_value(const Scene& scene, unsigned gpu, Metric metric, std::int64_t at_ns);

// A limit that cannot be read is there all the same.
double limit_at(const Scene& scene, unsigned gpu, std::int64_t at_ns) {
  const double limit = own_value(scene, gpu, Metric::power_limit, at_ns);
  return std::isinf(limit) ? scene.state.gpus[gpu].power_limit : limit;
}

// The next moment after which what has an integral may be made up in another way.
std::int64_t next_event(const Scene& scene, unsigned gpu, Metric metric, std::int64_t after_ns) {
  std::int64_t next = next_set(scene.live, gpu, Metric::util, after_ns);
  const Scrub scrub = scrub_of(scene, gpu);
  for (const std::int64_t at : {scrub.from_ns, scrub.to_ns})
    if (at > after_ns) next = std::min(next, at);
  if (metric != Metric::util) next = std::min(next, next_set(scene.live, gpu, metric, after_ns));
  if (metric == Metric::power) next = std::min(next, next_set(scene.live, gpu, Metric::power_limit, after_ns));
  const Timeline& own = timeline(scene, gpu, metric);
  if (own.gaps != 0) next = std::min(next, segment_at(scene.state.keyframes(), own, after_ns).end_ns);
  unsigned guard = 0;
  for (std::uint32_t i = scene.live.first_load[gpu]; i < kMaxLoads && guard < kMaxLoads; ++guard) {
    const Load& load = scene.live.loads[i];
    const auto consider = [&](std::int64_t at) {
      if (at > after_ns) next = std::min(next, at);
    };
    consider(load.start_ns);
    const std::int64_t end = end_of(scene.state, scene.writable, load, scene.now_ns);
    consider(end);
    if (end > after_ns)
      for (unsigned k = 1; k < std::min(load.step_count, kMaxSteps); ++k) consider(load.start_ns + load.steps[k].at_ns);
    i = load.next;
  }
  return next;
}

// The integrals over a stretch without an event in it.
double util_piece(const Scene& scene, unsigned gpu, std::int64_t from, std::int64_t to) {
  const double set = set_value(scene, gpu, Metric::util, from);
  if (!std::isnan(set)) return std::isinf(set) ? 0 : set * to_seconds(to - from);
  return integral_of(scene.state.keyframes(), timeline(scene, gpu, Metric::util), from, to,
                     {.scale = 1, .add = presence(scene, gpu, from).util + scrub_util(scene, gpu, from), .cap = 100});
}

double piece_by_util(const Scene& scene, unsigned gpu, Metric metric, std::int64_t from, std::int64_t to) {
  const double set = set_value(scene, gpu, metric, from);
  if (!std::isnan(set)) return std::isinf(set) ? 0 : set * to_seconds(to - from);
  const double add = sum_of(presence(scene, gpu, from), metric);
  const double share = share_of_util(metric);
  const Timeline& own = timeline(scene, gpu, metric);
  if (own.count != 0 && !std::isnan(timeline_value(scene, gpu, metric, from)))
    return integral_of(scene.state.keyframes(), own, from, to, {.scale = 1, .add = add, .cap = 100});
  const double util = set_value(scene, gpu, Metric::util, from);
  if (!std::isnan(util)) return std::isinf(util) ? 0 : util * share * to_seconds(to - from);
  return integral_of(scene.state.keyframes(), timeline(scene, gpu, Metric::util), from, to,
                     {.scale = share, .add = add, .cap = 100});
}

double power_piece(const Scene& scene, unsigned gpu, std::int64_t from, std::int64_t to) {
  const double set = set_value(scene, gpu, Metric::power, from);
  const double span = to_seconds(to - from);
  if (!std::isnan(set)) return std::isinf(set) ? 0 : set * span;
  const Gpu& card = scene.state.gpus[gpu];
  const Keyframe* frames = scene.state.keyframes();
  const Presence there = presence(scene, gpu, from);
  const double limit = limit_at(scene, gpu, from);
  const double per_util = std::max(0.0, limit - card.power_context) / 100;  // a limit below that is not met
  const Timeline& own = timeline(scene, gpu, Metric::power);
  if (own.count != 0 && !std::isnan(timeline_value(scene, gpu, Metric::power, from)))
    return integral_of(frames, own, from, to, {.scale = 1, .add = there.util * per_util, .cap = limit});
  const double util = set_value(scene, gpu, Metric::util, from);
  if (!std::isnan(util) && !std::isinf(util)) {
    const double base = util > 0 || there.any ? card.power_context : card.power_idle;
    return (base + per_util * util) * span;
  }
  const Timeline& work = timeline(scene, gpu, Metric::util);
  const double done = integral_of(frames, work, from, to, {.scale = 1, .add = there.util, .cap = 100}) * per_util;
  if (there.any) return card.power_context * span + done;
  const double busy = busy_seconds(frames, work, from, to);
  return card.power_idle * (span - busy) + card.power_context * busy + done;
}

double piece(const Scene& scene, unsigned gpu, Metric metric, std::int64_t from, std::int64_t to) {
  if (metric == Metric::util) return util_piece(scene, gpu, from, to);
  if (follows_util(metric)) return piece_by_util(scene, gpu, metric, from, to);
  return power_piece(scene, gpu, from, to);
}

double sum_at(const Scene& scene, unsigned gpu, Metric metric, std::int64_t at_ns) {
  const Ledger& ledger = scene.live.ledger[gpu];
  const double sum = metric == Metric::util           ? ledger.util
                     : metric == Metric::mem_util     ? ledger.mem_util
                     : counter_of(metric) < kCounters ? ledger.counters[counter_of(metric)]
                                                      : ledger.energy;
  return at_ns >= ledger.at_ns ? sum + integral(scene, gpu, metric, ledger.at_ns, at_ns)
                               : sum - integral(scene, gpu, metric, at_ns, ledger.at_ns);
}

double derived_power(const Scene& scene, unsigned gpu, std::int64_t at_ns) {
  const Gpu& card = scene.state.gpus[gpu];
  const Presence there = presence(scene, gpu, at_ns);
  const double limit = limit_at(scene, gpu, at_ns);
  const double per_util = std::max(0.0, limit - card.power_context) / 100;  // a limit below that is not met
  const double given = timeline_value(scene, gpu, Metric::power, at_ns);
  const double add = there.util * per_util;
  if (!std::isnan(given)) return add > 0 ? std::min(limit, given + add) : given;
  const double util = own_value(scene, gpu, Metric::util, at_ns);
  const double known = std::isinf(util) ? there.util : util;
  return (known > 0 || there.any ? card.power_context : card.power_idle) + per_util * known;
}

// 0 idle, 1 at the limit.
double effort(const Scene& scene, unsigned gpu, std::int64_t at_ns) {
  const Gpu& card = scene.state.gpus[gpu];
  const double power = own_value(scene, gpu, Metric::power, at_ns);
  const double span = card.power_limit - card.power_idle;
  return span <= 0 || std::isinf(power) ? 0 : std::clamp((power - card.power_idle) / span, 0.0, 1.0);
}

bool awake(const Scene& scene, unsigned gpu, std::int64_t at_ns) {
  const double util = own_value(scene, gpu, Metric::util, at_ns);
  return (util > 0 && !std::isinf(util)) || presence(scene, gpu, at_ns).any;
}

double derived(const Scene& scene, unsigned gpu, Metric metric, std::int64_t at_ns) {
  const Gpu& card = scene.state.gpus[gpu];
  const auto util = [&] {
    const double known = own_value(scene, gpu, Metric::util, at_ns);
    return std::isinf(known) ? 0 : known;
  };
  const auto between = [](double low, double high, double share) { return low + (high - low) * share; };
  switch (metric) {
    case Metric::util: return std::min(100.0, presence(scene, gpu, at_ns).util);
    case Metric::mem_util:
    case Metric::sm:
    case Metric::tensor:
    case Metric::dram: {
      const double share = share_of_util(metric);
      const double set = set_value(scene, gpu, Metric::util, at_ns);
      if (!std::isnan(set)) return std::isinf(set) ? set : set * share;
      const double base = timeline_value(scene, gpu, Metric::util, at_ns);
      if (std::isinf(base)) return base;
      return std::min(100.0, (std::isnan(base) ? 0 : base * share) + sum_of(presence(scene, gpu, at_ns), metric));
    }
    case Metric::mem_used:
      return std::min(static_cast<double>(card.memory_total - card.memory_reserved),
                      presence(scene, gpu, at_ns).memory);
    case Metric::power: return derived_power(scene, gpu, at_ns);
    case Metric::temp: return rounded(between(card.temp_idle, card.temp_busy, effort(scene, gpu, at_ns)));
    case Metric::fan: return rounded(between(30, 90, effort(scene, gpu, at_ns)));
    case Metric::clock: return awake(scene, gpu, at_ns) ? card.clock_boost : card.clock_idle;
    case Metric::mem_clock: return awake(scene, gpu, at_ns) ? card.mem_clock_boost : card.mem_clock_idle;
    case Metric::pstate: return awake(scene, gpu, at_ns) ? 0 : card.pstate_idle;
    case Metric::pcie_tx: return util() * kPcieTxPerUtil;
    case Metric::pcie_rx: return util() * kPcieRxPerUtil;
    case Metric::throttle: return util() > 0 ? 0 : static_cast<double>(nvml::kReasonGpuIdle);
    case Metric::power_limit: return card.power_limit;
    case Metric::encoder:
    case Metric::decoder:
    case Metric::compute_mode: return 0;
    case Metric::mig_mode: return card.mig_enabled;
    case Metric::persistence: return card.persistence;
  }
  return 0;
}

bool begins(const char* text, const char* with) { return std::strncmp(text, with, std::strlen(with)) == 0; }

// Calls about no GPU in particular: a fault that names one of them is the whole driver's, whichever GPU it was given
// to.
bool names_driver_calls(const char* pattern) {
  return begins(pattern, "nvmlInit") || begins(pattern, "nvmlSystem") || begins(pattern, "nvmlDeviceGetCount");
}

bool in_force(const Fault& fault, std::int64_t at_ns) { return fault.from_ns <= at_ns && at_ns < fault.to_ns; }

bool concerns(const Fault& fault, std::int32_t gpu) {
  if (fault.gpu == kWholeDriver) return true;
  return gpu >= 0 ? fault.gpu == kEveryGpu || fault.gpu == gpu : names_driver_calls(fault.function);
}

}  // namespace

bool present(const Scene& scene, const Load& load, std::int64_t at_ns) {
  return load.start_ns <= at_ns && at_ns < end_of(scene.state, scene.writable, load, scene.now_ns);
}

const Step& step_at(const Load& load, std::int64_t at_ns) {
  unsigned i = 0;
  const unsigned count = std::min(load.step_count, kMaxSteps);
  while (i + 1 < count && load.start_ns + load.steps[i + 1].at_ns <= at_ns) ++i;
  return load.steps[i];
}

namespace {

// Without what the driver itself does.
double own_value(const Scene& scene, unsigned gpu, Metric metric, std::int64_t at_ns) {
  if (metric == Metric::fan && scene.state.gpus[gpu].fans == 0) return kUnsupported;
  const double set = set_value(scene, gpu, metric, at_ns);
  if (!std::isnan(set)) return set;
  const double base = timeline_value(scene, gpu, metric, at_ns);
  if (std::isnan(base)) return derived(scene, gpu, metric, at_ns);
  if (std::isinf(base)) return base;
  switch (metric) {
    case Metric::util: return std::min(100.0, base + presence(scene, gpu, at_ns).util);
    case Metric::mem_util:
    case Metric::sm:
    case Metric::tensor:
    case Metric::dram: return std::min(100.0, base + sum_of(presence(scene, gpu, at_ns), metric));
    case Metric::mem_used: {
      const Gpu& card = scene.state.gpus[gpu];
      return std::min(static_cast<double>(card.memory_total - card.memory_reserved),
                      base + presence(scene, gpu, at_ns).memory);
    }
    case Metric::power: return derived_power(scene, gpu, at_ns);
    default: return base;
  }
}

}  // namespace

double value(const Scene& scene, unsigned gpu, Metric metric, std::int64_t at_ns) {
  const double own = own_value(scene, gpu, metric, at_ns);
  if (metric != Metric::util || std::isinf(own) || !std::isnan(set_value(scene, gpu, metric, at_ns))) return own;
  return std::min(100.0, own + scrub_util(scene, gpu, at_ns));
}

double integral(const Scene& scene, unsigned gpu, Metric metric, std::int64_t from_ns, std::int64_t to_ns) {
  double total = 0;
  for (std::int64_t at = from_ns; at < to_ns;) {
    const std::int64_t end = std::min(to_ns, next_event(scene, gpu, metric, at));
    total += piece(scene, gpu, metric, at, end);
    at = end;
  }
  return total;
}

Ledger ledger_at(const Scene& scene, unsigned gpu, std::int64_t at_ns) {
  Ledger sums{at_ns,
              sum_at(scene, gpu, Metric::util, at_ns),
              sum_at(scene, gpu, Metric::mem_util, at_ns),
              sum_at(scene, gpu, Metric::power, at_ns),
              {}};
  for (unsigned i = 0; i < kCounters; ++i) sums.counters[i] = sum_at(scene, gpu, kCounterMetrics[i], at_ns);
  return sums;
}

double instance_integral(const Scene& scene, unsigned gpu, std::uint32_t gpu_instance, Metric metric,
                         std::int64_t from_ns, std::int64_t to_ns) {
  const Gpu& card = scene.state.gpus[gpu];
  const unsigned counter = counter_of(metric);
  double sum = 0;
  unsigned guard = 0;
  for (std::uint32_t i = scene.live.first_load[gpu]; i < kMaxLoads && guard < kMaxLoads; ++guard) {
    const Load& load = scene.live.loads[i];
    i = load.next;
    if (load.mig >= card.mig_count || card.mig[load.mig].gpu_instance != gpu_instance) continue;
    const std::int64_t end = std::min(to_ns, end_of(scene.state, scene.writable, load, scene.now_ns));
    const unsigned steps = std::min(load.step_count, kMaxSteps);
    for (unsigned k = 0; k < steps; ++k) {
      const std::int64_t begins = std::max(from_ns, load.start_ns + (k == 0 ? 0 : load.steps[k].at_ns));
      const std::int64_t ends = k + 1 < steps ? std::min(end, load.start_ns + load.steps[k + 1].at_ns) : end;
      if (begins >= ends) continue;
      const Step& step = load.steps[k];
      sum += (counter < kCounters ? counter_at(step, counter) : step.util) * to_seconds(ends - begins);
    }
  }
  return std::min(sum, 100 * to_seconds(to_ns - from_ns));
}

std::uint64_t energy_mj(const Scene& scene, unsigned gpu, std::int64_t at_ns) {
  // A client divides by its own seconds, so a fast scenario's joules are those of real time.
  const double others = scene.state.gpus[gpu].module_power * to_seconds(at_ns);
  const double joules = (sum_at(scene, gpu, Metric::power, at_ns) + others) / scene.state.speed;
  return scene.state.gpus[gpu].energy_base_mj + static_cast<std::uint64_t>(std::max(0.0, joules * 1e3));
}

double recent_mean(const Scene& scene, unsigned gpu, Metric metric, std::int64_t at_ns) {
  if (std::isinf(value(scene, gpu, metric, at_ns))) return value(scene, gpu, metric, at_ns);
  at_ns = std::max<std::int64_t>(0, at_ns - scene.state.sample_lag_ns);
  const double now = value(scene, gpu, metric, at_ns);
  const auto period = static_cast<std::int64_t>(static_cast<double>(scene.state.sample_period_ns) * scene.state.speed);
  std::int64_t from = std::max<std::int64_t>(0, at_ns - period);
  for (const Metric by : {metric, Metric::util})
    if (const Set* set = set_at(scene.live, gpu, by, at_ns)) from = std::max(from, set->at_ns);
  const Scrub scrub = scrub_of(scene, gpu);
  for (const std::int64_t at : {scrub.from_ns, scrub.to_ns})
    if (at <= at_ns) from = std::max(from, at);
  unsigned guard = 0;
  for (std::uint32_t i = scene.live.first_load[gpu]; i < kMaxLoads && guard < kMaxLoads; ++guard) {
    const Load& load = scene.live.loads[i];
    const std::int64_t end = end_of(scene.state, scene.writable, load, scene.now_ns);
    if (load.start_ns <= at_ns) from = std::max(from, load.start_ns);
    if (end <= at_ns) from = std::max(from, end);
    i = load.next;
  }
  return from >= at_ns ? now : integral(scene, gpu, metric, from, at_ns) / to_seconds(at_ns - from);
}

namespace {

bool held_during(const Scene& scene, unsigned gpu, std::int64_t from_ns, std::int64_t to_ns) {
  unsigned guard = 0;
  for (std::uint32_t i = scene.live.first_load[gpu]; i < kMaxLoads && guard < kMaxLoads; ++guard) {
    const Load& load = scene.live.loads[i];
    if (load.start_ns < to_ns && end_of(scene.state, scene.writable, load, scene.now_ns) > from_ns) return true;
    i = load.next;
  }
  return false;
}

// Real nanoseconds since the start at which a GPU's sample k ends. Cards do not sample in step.
std::int64_t sample_end(const State& state, unsigned gpu, std::int64_t k) {
  return k * state.sample_period_ns + std::int64_t{gpu} * 20'771'113 % state.sample_period_ns;
}

}  // namespace

unsigned buffered_samples(const Scene& scene, unsigned gpu, Metric metric, std::int64_t after_boot_ns,
                          BufferedSample* out, unsigned capacity) {
  const State& state = scene.state;
  const std::int64_t now_boot = boot_time(state, scene.now_ns) - state.sample_lag_ns;
  const std::int64_t newest = (now_boot - state.start_boot_ns - sample_end(state, gpu, 0)) / state.sample_period_ns;
  std::int64_t k = std::max<std::int64_t>(1, newest - state.sample_capacity + 1);
  const std::int64_t wanted = after_boot_ns - state.start_boot_ns - sample_end(state, gpu, 0);
  if (wanted > 0) k = std::max(k, wanted / state.sample_period_ns + 1);
  if (k > newest) return 0;
  const auto scenario = [&](std::int64_t sample) {
    return scenario_time(state, state.start_boot_ns + sample_end(state, gpu, sample));
  };
  const double per_period = metric == Metric::power ? 1e3 : 1;  // mW
  const double period = to_seconds(state.sample_period_ns) * state.speed;
  unsigned count = 0;
  std::int64_t from = scenario(k - 1);
  // A card that was left alone all the time: seen at once, not sample by sample.
  const std::int64_t end = scenario(newest);
  if (!(integral(scene, gpu, Metric::util, from, end) > 0) && !held_during(scene, gpu, from, end)) return 0;
  double sum = sum_at(scene, gpu, metric, from);
  for (; k <= newest && count < capacity; ++k) {
    const std::int64_t to = scenario(k);
    const double more = integral(scene, gpu, metric, from, to);
    const double work = metric == Metric::util ? more : integral(scene, gpu, Metric::util, from, to);
    const double before = rounded(sum / period * per_period);
    sum += more;
    if (work > 0 || held_during(scene, gpu, from, to)) {
      const double whole = std::max(0.0, rounded(sum / period * per_period) - before);
      out[count].end_boot_ns = state.start_boot_ns + sample_end(state, gpu, k);
      out[count++].value = static_cast<std::uint32_t>(metric == Metric::power ? whole : std::min(100.0, whole));
    }
    from = to;
  }
  return count;
}

std::uint64_t mig_memory_used(const Scene& scene, unsigned gpu, unsigned mig, std::int64_t at_ns) {
  const MigDevice& device = scene.state.gpus[gpu].mig[mig];
  std::uint64_t used = device.memory_reserved;
  each_load(scene, gpu, at_ns, [&](const Load& load) {
    if (load.mig == mig) used += step_at(load, at_ns).memory;
  });
  return std::min(used, device.memory_total);
}

// ---- what goes wrong

bool names(const char* pattern, const char* function) {
  if (pattern[0] == 0) return true;
  const std::size_t length = std::strlen(pattern);
  if (pattern[length - 1] == '*') return std::strncmp(pattern, function, length - 1) == 0;
  // A function goes by several names: nvmlDeviceGetCount also means nvmlDeviceGetCount_v2.
  return std::strncmp(pattern, function, length) == 0 &&
         (function[length] == 0 || std::strncmp(function + length, "_v", 2) == 0);
}

Trouble trouble(const Live& live, std::int32_t gpu, const char* function, bool about_util, std::int64_t at_ns) {
  Trouble found;
  for (unsigned i = 0; i < std::min(live.fault_count, kMaxFaults); ++i) {
    const Fault& fault = live.faults[i];
    if (!in_force(fault, at_ns) || !concerns(fault, gpu) || !names(fault.function, function)) continue;
    if (fault.kind == FaultKind::file) {
      found.file = true;
      found.file_error = fault.code;
      continue;
    }
    if (fault.kind == FaultKind::no_util) {
      if (about_util && found.code == 0) found.code = static_cast<std::int32_t>(nvml::Return::not_supported);
      continue;
    }
    found.dstate = found.dstate || fault.kind == FaultKind::dstate;
    found.garbage = found.garbage || fault.kind == FaultKind::garbage;
    found.hang_ns = std::max(found.hang_ns, fault.hang_ns);
    // A lost GPU is lost even if its utilisation was unsupported before; a lost driver beats both.
    if (fault.code != 0) found.code = fault.code;
    if (fault.gpu == kWholeDriver && fault.code != 0) return found;
  }
  return found;
}

bool stuck(const Live& live, std::int32_t gpu, std::int64_t at_ns) {
  return std::any_of(live.faults, live.faults + std::min(live.fault_count, kMaxFaults), [&](const Fault& fault) {
    return fault.kind == FaultKind::dstate && in_force(fault, at_ns) && concerns(fault, gpu);
  });
}

std::uint32_t driver_epoch(const Live& live, std::int64_t at_ns) {
  std::uint32_t losses = live.driver_losses;
  for (unsigned i = 0; i < std::min(live.fault_count, kMaxFaults); ++i) {
    const Fault& fault = live.faults[i];
    if (unloads_driver(fault) && fault.from_ns <= at_ns) ++losses;
  }
  return losses;
}

bool unloads_driver(const Fault& fault) {
  return fault.gpu == kWholeDriver && fault.function[0] == 0 &&
         fault.code == static_cast<std::int32_t>(nvml::Return::driver_not_loaded);
}

bool driver_loaded(const Live& live, std::int64_t at_ns) {
  return std::none_of(live.faults, live.faults + std::min(live.fault_count, kMaxFaults),
                      [&](const Fault& fault) { return unloads_driver(fault) && in_force(fault, at_ns); });
}

}  // namespace lull::sim
