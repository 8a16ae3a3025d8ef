#pragma once
// For tests that live is replay: random machines that work, idle and fail; random rules; a session that watches such a
// machine, what it read in a trace, and what it fired beside what replay of that trace says.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "nvml/abi.h"
#include "replay/replay.h"
#include "rule/timeline.h"
#include "session/simulated_machine_test.h"
#include "session/trace_log.h"

namespace lull::live_replay {

using namespace std::chrono_literals;
using Dice = std::mt19937_64;

inline std::int64_t below(Dice& dice, std::int64_t bound) {
  return static_cast<std::int64_t>(dice() % static_cast<std::uint64_t>(bound));
}
inline bool one_in(Dice& dice, std::int64_t many) { return below(dice, many) == 0; }
template <class T>
T one_of(Dice& dice, std::initializer_list<T> choices) {
  return *(choices.begin() + below(dice, static_cast<std::int64_t>(choices.size())));
}
inline Duration milliseconds(std::int64_t many) { return std::chrono::milliseconds(many); }

// ---- what the machine does

// A card works, idles, works for less than an interval, and cannot be read, one after the other.
inline void play(Dice& dice, Duration length, sim::GpuPlan& gpu) {
  const auto set = [&](sim::Metric metric, Duration at, double value) {
    gpu.keyframes[static_cast<unsigned>(metric)].push_back({.at_ns = at.count(), .value = value});
  };
  const bool power_by_itself = one_in(dice, 2);  // it follows from the work else
  for (Duration at{}; at < length;) {
    const std::int64_t kind = below(dice, 12);
    const double util = kind < 6    ? 0
                        : kind < 8  ? static_cast<double>(below(dice, 8))
                        : kind < 11 ? static_cast<double>(20 + below(dice, 81))
                                    : sim::kUnsupported;
    set(sim::Metric::util, at, util);
    if (power_by_itself) set(sim::Metric::power, at, 60 + static_cast<double>(below(dice, 60)) + (util > 5 ? 100 : 0));
    if (one_in(dice, 3)) set(sim::Metric::mem_used, at, static_cast<double>(below(dice, 4)) * (1 << 30));
    if (one_in(dice, 3)) set(sim::Metric::temp, at, static_cast<double>(30 + below(dice, 50)));
    at += one_in(dice, 3) ? milliseconds(50 + below(dice, 900)) : milliseconds(500 + below(dice, 40'000));
  }
}

inline sim::Fault random_fault(Dice& dice, Duration length, unsigned gpus) {
  using nvml::Return;
  sim::Fault fault;
  fault.gpu = static_cast<std::int32_t>(below(dice, gpus));
  fault.from_ns = below(dice, length.count());
  fault.to_ns = fault.from_ns + milliseconds(100 + below(dice, 30'000)).count();
  const auto call = [&](std::string_view name) { name.copy(fault.function, sizeof fault.function - 1); };
  fault.code = static_cast<std::int32_t>(one_of(dice, {Return::unknown, Return::not_supported, Return::no_permission}));
  switch (below(dice, 8)) {
    case 0: call("nvmlDeviceGetUtilizationRates"); break;
    case 1: call("nvmlDeviceGetSamples"); break;
    case 2: call("nvmlDeviceGetTotalEnergyConsumption"); break;
    case 3: call("nvmlDeviceGetMemoryInfo*"); break;
    case 4: call("nvmlDeviceGetComputeRunningProcesses*"); break;
    case 5:
      fault.kind = sim::FaultKind::garbage;
      fault.code = 0;
      break;
    case 6:
      fault.gpu = sim::kWholeDriver;
      fault.code = static_cast<std::int32_t>(Return::driver_not_loaded);
      break;
    default: fault.code = static_cast<std::int32_t>(Return::gpu_is_lost);
  }
  return fault;
}

// `bare`: cards that keep no account of the time between two looks, and are there all the time.
inline sim::Plan random_plan(Dice& dice, Duration length, bool bare = false) {
  sim::Plan plan;
  const auto gpus = static_cast<unsigned>(1 + below(dice, 3));
  for (unsigned i = 0; i < gpus; ++i) {
    sim::GpuPlan& gpu = plan.gpus.emplace_back();
    gpu.gpu = sim::model(one_of(dice, {"H100", "A100", "T4"})).value();
    sim::place(gpu.gpu, i, gpus);
    gpu.gpu.sample_buffer = bare || one_in(dice, 3) ? 0 : 1;
    gpu.gpu.energy_counter = bare || one_in(dice, 3) ? 0 : 1;
    play(dice, length, gpu);
  }
  for (std::int64_t i = bare ? 0 : below(dice, 6); i > 0; --i) plan.faults.push_back(random_fault(dice, length, gpus));
  for (std::int64_t i = below(dice, 8); i > 0; --i) {
    sim::Load load;
    load.pid = static_cast<std::uint32_t>(100'000 + i);
    load.gpu = static_cast<std::uint32_t>(below(dice, gpus));
    load.start_ns = below(dice, length.count());
    load.end_ns = load.start_ns + milliseconds(below(dice, 60'000)).count();
    load.step_count = 1;
    load.steps[0].memory = static_cast<std::uint64_t>(below(dice, 3)) << 30;
    plan.processes.push_back(load);
  }
  return plan;
}

// ---- what is asked of it

inline std::string random_condition(Dice& dice, int depth) {
  if (depth == 0 || one_in(dice, 3))
    return one_of<const char*>(
        dice, {"util < 1", "util < 5", "util < 50", "not util >= 5", "util == 0", "any(util < 5)", "max(util) < 10",
               "mean(util) < 20", "mean(util, 10s) < 3", "mean(power, 20s) < 90", "any(util < 5 for 4s)",
               "power < 100W", "power < 20%", "mem_used < 1GiB", "any(mem_used > 1GiB)", "temp < 60", "procs == 0",
               "any(procs > 0)", "mem_util < 2"});
  return fmt::format("({}) {} ({})", random_condition(dice, depth - 1), one_in(dice, 2) ? "and" : "or",
                     random_condition(dice, depth - 1));
}

inline Rule random_rule(Dice& dice) {
  const std::string condition = random_condition(dice, one_of(dice, {0, 0, 1, 2}));
  const std::string span = one_of<const char*>(
      dice, {"", " for 1 samples", " for 3 samples", " for 5s", " for 10s", " for 17s", " for 45s"});
  return *parse_rule(span.empty() ? condition : "(" + condition + ")" + span);
}

// ---- both ways

struct Found {
  std::int64_t at = 0;  // ns
  std::int64_t held = 0;
  bool operator==(const Found&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const Found& one) {
  return out << fmt::format("{}s (held {}s)",
                            static_cast<double>(one.at - kTestBegins.time_since_epoch().count()) / 1e9,
                            static_cast<double>(one.held) / 1e9);
}

// Keeps the firings of a session, and when its warnings were.
class Firings final : public Sink {
 public:
  explicit Firings(const Clock& clock) : clock_(clock) {}
  void happened(const Event&) override {}
  void firing(const FiringFacts& facts, bool) override {
    found.push_back({facts.snapshot.at.time_since_epoch().count(), facts.why.held.count()});
    all.push_back(facts);
  }
  void did(const ActionEvent&) override {}
  void note(Level, std::string_view event, const std::string&) override {
    if (event == "warn") warned.push_back(clock_.now().time_since_epoch().count());
  }
  std::vector<Found> found;
  std::vector<FiringFacts> all;
  std::vector<std::int64_t> warned;

 private:
  const Clock& clock_;
};

// A recording of all that a machine's sessions read.
class Recording {
 public:
  explicit Recording(SimulatedMachine& machine, const std::string& name) : path_(tree_.at(name)) {
    layout_.format = trace::format_by_name(path_);
    (void)trace::choose_signals("", layout_);
    layout_.who = false;
    machine.on_read = [this](const Snapshot& snapshot) { add(snapshot); };
  }
  // What replay says of it.
  replay::ReplayResult replay(replay::ReplayOptions options) {
    if (log_ && !log_->close()) ADD_FAILURE() << path_;
    log_.reset();
    options.paths = {path_};
    options.threads = 1;
    auto result = replay::replay(std::move(options));
    EXPECT_TRUE(result) << result.error().message();
    return result ? *std::move(result) : replay::ReplayResult();
  }
  const std::vector<Instant>& samples() const { return samples_; }

 private:
  void add(const Snapshot& snapshot) {
    if (snapshot.inventory->devices.empty()) return;
    if (!log_) {
      log_ = TraceLog::open(path_, layout_).value();
      log_->begin(snapshot);
    }
    std::vector<std::size_t> devices(snapshot.inventory->devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i) devices[i] = i;
    samples_.push_back(snapshot.at);
    EXPECT_TRUE(log_->add(snapshot, devices, {}, {}, {}));
  }

  TestTree tree_;
  std::string path_;
  trace::RowLayout layout_;
  std::optional<TraceLog> log_;
  std::vector<Instant> samples_;
};

inline std::vector<Found> found_by(const replay::ReplayResult& result) {
  std::vector<Found> found;
  for (const replay::Firing& firing : result.firings)
    found.push_back({firing.at.time_since_epoch().count(), firing.idle.count()});
  return found;
}

struct Case {
  Policy policy;
  std::optional<Rule> warn_by;
  Duration every{};
  Duration delay{};
  WhenMissing missing = WhenMissing::unknown;
};

inline replay::ReplayOptions as_replayed(const Case& one, replay::ReplayOptions options) {
  options.policy = one.policy;
  options.per = replay::Per::all;
  options.delay = one.delay;
  options.missing = one.missing;
  return options;
}

inline void watch(SimulatedMachine& machine, const Case& one, Duration length, Firings& sink) {
  WatchSettings settings;
  settings.common.policy = one.policy;
  settings.common.warn_by = one.warn_by;
  settings.common.every = one.every;
  settings.common.delay = one.delay;
  settings.common.missing = one.missing;
  settings.common.dry_run = true;
  settings.controlled = false;
  settings.actions.push_back(*parse_action("exit=0"));
  machine.world.loop().at(kTestBegins + length, [&] { machine.world.send(SIGTERM); });
  EXPECT_EQ(WatchSession(std::move(settings), machine.world, sink).run().status, 128 + SIGTERM);
}

inline Case random_case(Dice& dice) {
  Case one;
  one.policy.idle = random_rule(dice);
  if (one_in(dice, 3))
    one.policy.arm = *parse_rule(one_of<const char*>(dice, {"any(util) > 90", "util > 30 for 2 samples"}));
  if (one_in(dice, 2)) one.warn_by = random_rule(dice);
  one.every = one_of<Duration>(dice, {500ms, 1s, 2s, 5s, 8s});
  if (one_in(dice, 3)) one.delay = one.every * below(dice, 30);
  if (one_in(dice, 4)) one.missing = WhenMissing::ignore;
  return one;
}

inline void expect_same(const Firings& live, const replay::ReplayResult& replayed) {
  std::vector<Found> said = found_by(replayed);
  // Of a rule without `for` nobody counts for how long it held. One that has to be armed counts from then, and replay
  // says since when the GPUs had been idle.
  for (std::size_t i = 0; i < std::min(live.found.size(), said.size()); ++i) {
    if (replayed.span && replayed.arm.empty()) break;
    EXPECT_TRUE(!replayed.span || live.found[i].held <= said[i].held);
    said[i].held = live.found[i].held;
  }
  EXPECT_EQ(live.found, said);
}

// The same machines and rules every time; $LULL_CASES asks for more of them.
inline unsigned cases(unsigned usual) {
  const char* more = std::getenv("LULL_CASES");
  return more != nullptr ? static_cast<unsigned>(std::atoi(more)) : usual;
}

}  // namespace lull::live_replay
