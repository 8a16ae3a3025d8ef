#pragma once
// What a verdict rests on, kept short: for each signal of each GPU the first value of
// the window, the newest, the worst between, and a trace of at most 64 cells. When the
// cells are full, neighbours are put together, so a week takes no more room than a minute.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "gpu/metric.h"
#include "rule/rule.h"

namespace lull {

// One line of the story: a signal as the rule compares it.
struct Track {
  Metric metric = Metric::util;
  bool share = false;         // in % of its whole
  Duration window{};          // not zero: the mean over so long
  bool high_is_worse = true;  // the rule wants it low

  float first = kUnknownSample;
  float last = kUnknownSample;
  float worst = kUnknownSample;
  Instant worst_at{};
};

// The signals that a rule compares, each once, and which way each of them is worse.
std::vector<Track> tracks_of(const Rule& rule);

class History {
 public:
  static constexpr std::size_t kCells = 64;

  History() = default;
  explicit History(std::vector<Track> tracks) : tracks_(std::move(tracks)), cells_(tracks_.size() * kCells) {}

  void restart() { samples_ = 0; }
  // `values`: one for each track, NaN where unknown.
  void add(Instant at, const std::vector<float>& values);

  const std::vector<Track>& tracks() const { return tracks_; }
  std::vector<float> trace(std::size_t track) const;
  std::uint64_t samples() const { return samples_; }
  Instant begin() const { return begin_; }

 private:
  void halve();

  std::vector<Track> tracks_;
  std::vector<float> cells_;  // kCells of each track
  std::size_t used_ = 0;
  std::uint64_t per_cell_ = 1;
  std::uint64_t in_last_ = 0;
  std::uint64_t samples_ = 0;
  Instant begin_{};
};

}  // namespace lull
