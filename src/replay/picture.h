#pragma once
// What a timeline needs of a trace of any length: for each GPU a bounded number of
// columns in time, each with the lowest and highest value of some signals and the
// share of samples that were idle. Columns double their width whenever there would
// be too many, so the trace's length need not be known.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/clock.h"
#include "gpu/block.h"
#include "rule/truth.h"

namespace lull::replay {

struct PictureColumn {
  std::uint32_t samples = 0;
  std::uint32_t idle = 0;
};
struct Extent {
  float low = std::numeric_limits<float>::infinity();  // above high: nothing was known
  float high = -std::numeric_limits<float>::infinity();
  bool known() const { return low <= high; }
};

class Strip {
 public:
  Strip(std::size_t most_columns, std::size_t metrics) : most_(most_columns), extents_(metrics) {}

  void feed(const Block& block, std::span<const Metric> metrics, const Answers& condition);
  void widen();  // columns twice as wide
  void limit(std::size_t most_columns);

  Duration width() const { return Duration(width_); }
  std::int64_t first() const { return first_; }  // the first column begins at first() * width()
  std::span<const PictureColumn> columns() const { return columns_; }
  std::span<const Extent> extents(std::size_t metric) const { return extents_[metric]; }

 private:
  std::size_t most_;
  std::int64_t width_ = 1'000'000;  // ns; times a power of two
  std::int64_t first_ = 0;
  std::vector<PictureColumn> columns_;
  std::vector<std::vector<Extent>> extents_;
};

struct Picture {
  std::vector<Metric> metrics;
  std::vector<Strip> gpus;  // all of one width

  void make_even();
};

}  // namespace lull::replay
