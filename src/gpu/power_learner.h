#pragma once
// A PowerLearner learns what one card draws: F, the lowest mean power at util < 1, and k, the running median of
// (P - F)/util. A window is at least 5 s long; those with util >= 5 count for k, and it takes a minute of them. With
// both, `effort` = 100 (P - F)/(k util): the power for this utilisation, compared with what the card usually draws for
// it. A card that spins without working reads far below 100.
//
// Power does not grow evenly with utilisation: a card that has only done light work says nothing of full work. So a
// sample at util >= 50 is compared with windows at util >= 50 alone, of which there must be a minute as well.
//
// It is pure, and causal: what is asked is answered by what was seen before. Live sampling (sense/sampler.cc), replay,
// report (replay/survey.h) and Python share it. Memory is bounded: of many windows every second, fourth, … is kept.
//
// What never counts:
// - A window with an unknown value or a gap in it.
// - A window that the fixed rule calls hung (util >= 95, power below 35 % of the limit): a job that hangs from the
//   start must not become what is usual.
// - Once ten minutes are learned, a window at util >= 95 with an effort below 45: a hang that lasts for hours must not
//   pull k down to itself. Before that it counts, since a few odd windows (a start-up) may be all that was seen.
// A card without a limit whose first work of all is a hang does learn the hang: it reads 100 and is not found. That
// misses a hang; it never makes one up.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "gpu/block.h"
#include "gpu/snapshot.h"

namespace lull {

class PowerLearner {
 public:
  static constexpr Duration kWindow = std::chrono::seconds(5);
  static constexpr Duration kEnough = std::chrono::minutes(1);
  static constexpr Duration kFirm = std::chrono::minutes(10);
  static constexpr Duration kMostCounted = std::chrono::seconds(30);  // of a window: a minute is two of them at least
  static constexpr Duration kLongestInterval = std::chrono::minutes(10);  // more between two samples is a gap
  static constexpr double kIdleUtil = 1;
  static constexpr double kLeastUtil = 5;
  static constexpr double kHeavyUtil = 50;
  static constexpr double kFullUtil = 95;
  static constexpr double kHungShare = 35;   // % of the limit
  static constexpr double kHungEffort = 45;  // %
  static constexpr double kMostEffort = 1000;
  static constexpr double kOtherLimit = 0.1;  // a limit that differs by more than this share is another one
  static constexpr std::size_t kMostWindows = 128;

  struct Window {
    float util = 0;
    float watts = 0;
    bool operator==(const Window&) const = default;
  };
  // All of it, as it is kept (sense/learned_store.h).
  struct Learned {
    double idle_watts = kUnknown;   // F
    double limit_watts = kUnknown;  // at which the windows were seen
    double seconds = 0;             // of windows with work
    std::uint32_t stride = 1;       // so many windows stand behind each that is kept
    std::vector<Window> windows = {};
  };

  PowerLearner() = default;
  explicit PowerLearner(Learned learned) : learned_(std::move(learned)) { changed(); }

  // NaN where it is not learned yet. `util`: for samples with this much work.
  double idle_watts() const { return learned_.idle_watts; }
  double watts_per_percent(double util = 0) const {
    return seconds(util) >= to_double(kEnough) ? slope_of(util).value : kUnknown;
  }
  // What `effort` was learned from; 0 where there is no idle to start from.
  double seconds(double util = 0) const;
  // NaN: not learned, or the card does too little.
  double effort(double util, double watts) const;

  // Learns from a sample: means (or moments) that stand for the time since the sample before. NaN: unknown.
  void see(Instant at, double util, double watts, double limit);

  const Learned& learned() const { return learned_; }

 private:
  static constexpr double to_double(Duration time) { return std::chrono::duration<double>(time).count(); }
  // k, and the part of the windows that it is the median of.
  struct Slope {
    double value = kUnknown;
    double part = 0;
    bool stale = false;  // it is to be found anew
  };
  const Slope& slope_of(double util) const;
  void changed();
  void drop_window() { span_ = Duration::zero(); }
  bool limit_holds(Instant at, double limit);
  void close_window(double limit);
  void keep(Window window);

  Learned learned_;
  std::uint32_t passed_over_ = 0;  // windows since the last that was kept
  std::size_t unused_ = 0;         // windows that were kept since the slopes were found
  mutable Slope of_all_;
  mutable Slope of_heavy_;

  Instant last_{};  // sample
  bool begun_ = false;
  Duration span_{};  // of the window that is open
  double util_sum_ = 0;
  double watts_sum_ = 0;
  bool other_limit_ = false;  // since then
  Instant other_since_{};
};

bool any_learned(const std::vector<Metric>& signals);
// What is to be read where these signals are wanted: those that are learned are made of others.
std::vector<Metric> made_of(const std::vector<Metric>& signals);

// Puts the signals that are learned into a reading, by what was seen before it, and learns from it.
void learn(PowerLearner& learner, const Device& device, Instant at, Reading& reading);

// The same for blocks: the columns of the learned signals, which last until the next block.
class LearnedColumns {
 public:
  // `looks_hung`: as Device::idle_looks_hung.
  Block add(PowerLearner& learner, const Block& block, bool looks_hung = false);

 private:
  std::array<std::array<float, kBlockSamples>, 3> columns_;
};

}  // namespace lull
