#include "rule/window.h"

#include <algorithm>
#include <cmath>

#include "gpu/metric.h"

namespace lull {
namespace {

constexpr std::int64_t kResolution = 512;
// Two neighbours together are always longer than a quantum, so a window holds at most
// twice as many pieces; a few more for both ends.
constexpr std::size_t kCapacity = 2 * kResolution + 8;

std::uint64_t between(std::int64_t from, std::int64_t to) {
  return static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
}

}  // namespace

WindowMean::WindowMean(Duration window)
    : window_(std::max<std::int64_t>(1, window.count())),
      quantum_(std::max<std::int64_t>(1, window_ / kResolution)),
      pieces_(kCapacity),
      after_(kCapacity) {}

void WindowMean::begin_at(std::int64_t now) {
  begun_ = true;
  first_ = last_ = now;
  head_ = size_ = summed_ = unknown_ = 0;
  newer_ = 0;
  open_ = Piece{.begin = now, .end = now};
}

void WindowMean::close() {
  pieces_[(head_ + size_) % kCapacity] = open_;
  ++size_;
  newer_ += open_.integral;
  unknown_ += open_.unknown ? 1 : 0;
  open_ = Piece{.begin = last_, .end = last_};
}

void WindowMean::drop_older_than_window(std::int64_t now) {
  const auto window = static_cast<std::uint64_t>(window_);
  while (size_ > 0 && between(pieces_[head_].end, now) >= window) {
    if (summed_ == 0) rebuild_sums();
    unknown_ -= pieces_[head_].unknown ? 1 : 0;
    head_ = (head_ + 1) % kCapacity;
    --size_;
    --summed_;
  }
}

void WindowMean::rebuild_sums() {
  double sum = 0;
  for (std::size_t i = size_; i-- > 0;) {
    const std::size_t at = (head_ + i) % kCapacity;
    after_[at] = sum;
    sum += pieces_[at].integral;
  }
  summed_ = size_;
  newer_ = 0;
}

// The part of a piece that lies in the window.
double WindowMean::inside(const Piece& piece, std::int64_t now) const {
  const auto window = static_cast<std::uint64_t>(window_);
  if (between(piece.begin, now) <= window) return piece.integral;
  const auto length = static_cast<double>(between(piece.begin, piece.end));
  return piece.integral * (static_cast<double>(window - between(piece.end, now)) / length);
}

double WindowMean::mean(std::int64_t now) {
  if (open_.unknown || unknown_ > 0) return kUnknown;
  if (size_ == 0) return inside(open_, now) / static_cast<double>(window_);
  if (summed_ == 0) rebuild_sums();
  const double closed = inside(pieces_[head_], now) + after_[head_] + newer_;
  return (closed + open_.integral) / static_cast<double>(window_);
}

float WindowMean::push(Instant at, float value, bool gap) {
  const std::int64_t now = at.time_since_epoch().count();
  if (!begun_ || gap) {
    begin_at(now);  // the first value stands for a time that was not seen
    return kUnknownSample;
  }
  const bool known = std::isfinite(value);
  if (now != last_) {
    const bool open_in_use = open_.end != open_.begin;
    if (open_in_use && between(open_.begin, now) > static_cast<std::uint64_t>(quantum_) && size_ < kCapacity) close();
    drop_older_than_window(now);
    if (known)
      open_.integral += static_cast<double>(value) * static_cast<double>(between(last_, now));
    else
      open_.unknown = true;
    open_.end = last_ = now;
  }
  if (!known) return kUnknownSample;  // also where it stands for no time at all
  if (between(first_, now) < static_cast<std::uint64_t>(window_)) return kUnknownSample;
  return static_cast<float>(mean(now));
}

}  // namespace lull
