#include "replay/picture.h"

#include <algorithm>
#include <cmath>

namespace lull::replay {
namespace {

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

}  // namespace

void Strip::widen() {
  const std::int64_t from = floor_divide(first_, 2);
  const auto fold = [&](auto& columns, auto&& merge) {
    std::decay_t<decltype(columns)> wide(
        columns.empty() ? 0
                        : static_cast<std::size_t>(
                              floor_divide(first_ + static_cast<std::int64_t>(columns.size()) - 1, 2) - from + 1));
    for (std::size_t i = 0; i < columns.size(); ++i)
      merge(wide[static_cast<std::size_t>(floor_divide(first_ + static_cast<std::int64_t>(i), 2) - from)], columns[i]);
    columns = std::move(wide);
  };
  for (auto& extents : extents_)
    fold(extents, [](Extent& to, const Extent& more) {
      to.low = std::min(to.low, more.low);
      to.high = std::max(to.high, more.high);
    });
  fold(columns_, [](PictureColumn& to, const PictureColumn& more) {
    to.samples += more.samples;
    to.idle += more.idle;
  });
  first_ = from;
  width_ *= 2;
}

void Strip::limit(std::size_t most_columns) {
  most_ = most_columns;
  while (columns_.size() > most_) widen();
}

void Strip::feed(const Block& block, std::span<const Metric> metrics, const Answers& condition) {
  for (std::size_t i = 0; i < block.size(); ++i) {
    const std::int64_t at = block.at[i].time_since_epoch().count();
    if (columns_.empty()) first_ = floor_divide(at, width_);
    while (floor_divide(at, width_) - first_ >= static_cast<std::int64_t>(most_)) widen();
    const auto column = static_cast<std::size_t>(floor_divide(at, width_) - first_);
    if (column >= columns_.size()) {
      columns_.resize(column + 1);
      for (auto& extents : extents_) extents.resize(column + 1);
    }
    ++columns_[column].samples;
    columns_[column].idle += bit(condition.yes, i) ? 1 : 0;
    for (std::size_t m = 0; m < metrics.size(); ++m) {
      const std::span<const float> values = block[metrics[m]];
      if (values.empty() || !std::isfinite(values[i])) continue;
      Extent& extent = extents_[m][column];
      extent.low = std::min(extent.low, values[i]);
      extent.high = std::max(extent.high, values[i]);
    }
  }
}

void Picture::make_even() {
  Duration widest{};
  for (const Strip& strip : gpus) widest = std::max(widest, strip.width());
  for (Strip& strip : gpus)
    while (strip.width() < widest) strip.widen();
}

}  // namespace lull::replay
