#pragma once
// mean(util, 5m): the mean of one signal of one GPU over the last five minutes. A value
// stands for the time since the sample before it, so the mean is weighted by time, and
// the piece that sticks out of the window's old end counts in proportion.
//
// It is unknown unless the whole window was seen: no unknown value, no gap, and a first
// sample at least a window ago. Memory is taken once: samples that come more often than
// every 512th of the window share a piece, which blurs only the window's old end. The
// pieces are cut by time alone, never by value, so an unknown reading can only make the
// mean unknown and never shift it.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace lull {

class WindowMean {
 public:
  explicit WindowMean(Duration window);

  // The mean at this sample, NaN where unknown. `gap`: one lies before it.
  float push(Instant at, float value, bool gap);
  void reset() { begun_ = false; }
  std::size_t bytes() const {
    return sizeof(WindowMean) + pieces_.size() * sizeof(Piece) + after_.size() * sizeof(double);
  }

 private:
  struct Piece {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    double integral = 0;  // value × ns
    bool unknown = false;
  };
  void begin_at(std::int64_t now);
  void close();
  void drop_older_than_window(std::int64_t now);
  void rebuild_sums();
  double mean(std::int64_t now);
  double inside(const Piece& piece, std::int64_t now) const;

  std::int64_t window_;
  std::int64_t quantum_;
  // A queue of closed pieces in a ring. Its old part has sums of all that follows each
  // piece (`after_`), its new part one running sum: a mean takes no subtraction, so
  // nothing that left the window leaves an error behind.
  std::vector<Piece> pieces_;
  std::vector<double> after_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
  std::size_t summed_ = 0;  // how many of the oldest have their after_
  double newer_ = 0;        // integral of those that have not
  std::size_t unknown_ = 0;
  Piece open_;
  std::int64_t first_ = 0;
  std::int64_t last_ = 0;
  bool begun_ = false;
};

}  // namespace lull
