#include "replay/resample.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lull::replay {
namespace {

constexpr double kCoveredEnough = 0.9;
constexpr int kStandsInGap =
    10;  // a value stands for a tick in a gap behind it if no more than this part of a tick ago

bool is_mean(Metric metric) {
  return metric == Metric::util || metric == Metric::power || metric == Metric::effort || is_counter(metric);
}
std::int64_t nanoseconds(Instant at) { return at.time_since_epoch().count(); }

}  // namespace

Resampler::Resampler(Options options)
    : options_(std::move(options)),
      cells_(options_.gpus * width()),
      columns_(cells_.size() * kBlockSamples),
      blocks_(options_.gpus) {}

float Resampler::value_at(const Block& block, std::size_t column, std::size_t i) const {
  const std::span<const float> values =
      column < options_.metrics.size() ? block[options_.metrics[column]] : block.holder;
  return values.empty() ? kUnknownSample : values[i];
}

Instant Resampler::tick_from(Instant at) const {
  const Duration since = at - options_.start;
  const auto whole = since / options_.every;
  return options_.start + (whole * options_.every == since ? whole : whole + 1) * options_.every;
}

void Resampler::feed(std::span<const Block> scope, const Take& take) {
  for (std::size_t i = 0; i < scope[0].size(); ++i) {
    const Instant at = scope[0].at[i];
    if (at < options_.start) continue;  // who guessed the start finds out, and begins again
    see(at, scope, i, take);
  }
  hand_on(take);
}

// The recorded value of (from, to] counts towards the next tick.
void Resampler::cover(std::int64_t from, std::int64_t to, std::span<const Block> scope, std::size_t i) {
  for (std::size_t g = 0; g < scope.size(); ++g) {
    for (std::size_t m = 0; m < options_.metrics.size(); ++m) {
      const float value = value_at(scope[g], m, i);
      if (!std::isfinite(value)) continue;
      Cell& cell = cells_[g * width() + m];
      cell.sum += static_cast<double>(value) * static_cast<double>(to - from);
      cell.covered += to - from;
    }
  }
}

void Resampler::see(Instant at, std::span<const Block> scope, std::size_t i, const Take& take) {
  if (!last_) tick_ = tick_from(at);
  const bool gap = last_ && at - *last_ > options_.max_gap;
  const auto remember = [&] {
    for (std::size_t g = 0; g < scope.size(); ++g)
      for (std::size_t m = 0; m < width(); ++m) cells_[g * width() + m].last = value_at(scope[g], m, i);
  };
  std::int64_t from = last_ ? nanoseconds(*last_) : nanoseconds(at);
  for (; tick_ < at; tick_ += options_.every) {
    // Nothing was recorded here: nothing is taken until the next sample.
    if (gap && tick_ - *last_ > std::min(options_.max_gap, options_.every / kStandsInGap)) {
      for (Cell& cell : cells_) cell = {};
      tick_ = tick_from(at);
      break;
    }
    if (!gap) cover(from, nanoseconds(tick_), scope, i);
    from = nanoseconds(tick_);
    tick(take);
  }
  if (!gap) cover(from, nanoseconds(at), scope, i);
  remember();
  last_ = at;
  if (tick_ != at) return;
  tick(take);
  tick_ += options_.every;
}

void Resampler::tick(const Take& take) {
  if (at_.size() == kBlockSamples) hand_on(take);
  const std::size_t slot = at_.size();
  at_.push_back(tick_);
  const auto whole = static_cast<double>(options_.every.count());
  for (std::size_t c = 0; c < cells_.size(); ++c) {
    Cell& cell = cells_[c];
    float& out = columns_[c * kBlockSamples + slot];
    out = cell.last;
    // The very first value is of the moment, as live: there is no time before it.
    const std::size_t column = c % width();
    if (column < options_.metrics.size() && is_mean(options_.metrics[column]) && !first_) {
      const auto covered = static_cast<double>(cell.covered);
      out = covered >= kCoveredEnough * whole ? static_cast<float>(cell.sum / covered) : kUnknownSample;
    }
    cell.sum = 0;
    cell.covered = 0;
  }
  first_ = false;
}

void Resampler::hand_on(const Take& take) {
  if (at_.empty()) return;
  for (std::size_t g = 0; g < options_.gpus; ++g) {
    blocks_[g] = {};
    blocks_[g].at = at_;
    for (std::size_t m = 0; m < options_.metrics.size(); ++m)
      blocks_[g].value[index_of(options_.metrics[m])] = {columns_.data() + (g * width() + m) * kBlockSamples,
                                                         at_.size()};
    if (options_.who)
      blocks_[g].holder = {columns_.data() + (g * width() + options_.metrics.size()) * kBlockSamples, at_.size()};
  }
  take(blocks_);
  at_.clear();
}

}  // namespace lull::replay
