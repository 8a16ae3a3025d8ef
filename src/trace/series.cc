#include "trace/series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace lull::trace {

void Series::grow(std::size_t most) {
  const std::size_t capacity = std::min(most, std::max<std::size_t>(64, at_.size() * 2));
  at_.resize(capacity);
  for (auto& column : value_) column.resize(capacity);
}

void Series::make_space(std::size_t gpu, std::size_t held, TraceSink& sink) {
  if (!bounded_) return grow(std::numeric_limits<std::size_t>::max());
  if (count_ < held) return grow(held);
  sort();
  // Usually the older half. More where the bound has shrunk meanwhile, less where duplicates were many.
  while (count_ > held / 2) {
    const std::size_t leaving = std::min(kBlockSamples, count_ - held / 2);
    emit(0, leaving, gpu, sink);
    emitted_ = at_[leaving - 1];
    emitted_any_ = true;
    const auto shift = [&](auto& column) {
      std::copy(column.begin() + static_cast<std::ptrdiff_t>(leaving),
                column.begin() + static_cast<std::ptrdiff_t>(count_), column.begin());
    };
    shift(at_);
    for (auto& column : value_) shift(column);
    count_ -= leaving;
    emitted_count_ += leaving;
  }
}

void Series::emit(std::size_t from, std::size_t count, std::size_t gpu, TraceSink& sink) {
  Block block;
  block.at = {at_.data() + from, count};
  for (std::size_t i = 0; i < metrics_.size(); ++i)
    block.value[index_of(metrics_[i])] = {value_[i].data() + from, count};
  if (who_) block.holder = {value_.back().data() + from, count};
  sink.block(gpu, block);
}

void Series::flush(std::size_t gpu, TraceSink& sink) {
  sort();
  for (std::size_t from = 0; from < count_; from += kBlockSamples)
    emit(from, std::min(kBlockSamples, count_ - from), gpu, sink);
  emitted_count_ += count_;
  forget();
}

void Series::forget() {
  count_ = 0;
  at_ = {};
  for (auto& column : value_) column = {};
}

// What `first` lacks and `more` has.
bool Series::complete(std::size_t first, std::size_t more) {
  bool any = false;
  for (auto& column : value_) {
    if (!std::isnan(column[first]) || std::isnan(column[more])) continue;
    column[first] = column[more];
    any = true;
  }
  return any;
}

void Series::sort() {
  if (!unsorted_) return;
  unsorted_ = false;
  // The times travel with their places: looking them up elsewhere would miss the cache at every comparison.
  std::vector<std::pair<Instant, std::size_t>> order(count_);
  for (std::size_t i = 0; i < count_; ++i) order[i] = {at_[i], i};
  // Newest first is the one odd order that logs really come in.
  const auto later = [](const auto& a, const auto& b) { return a.first > b.first; };
  if (std::is_sorted(order.begin(), order.end(), later) &&
      std::adjacent_find(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first == b.first; }) ==
          order.end())
    std::reverse(order.begin(), order.end());
  else
    std::sort(order.begin(), order.end());  // of equal times the first place first
  if (partial_)
    for (std::size_t i = 1, first = 0; i < count_; ++i) {
      if (order[i].first != order[first].first)
        first = i;
      else if (complete(order[first].second, order[i].second))
        --duplicates_;  // counted below with the others
    }
  order.erase(std::unique(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
              order.end());
  duplicates_ += count_ - order.size();
  count_ = order.size();
  for (std::size_t i = 0; i < count_; ++i) at_[i] = order[i].first;
  std::vector<float> sorted(count_);
  for (auto& column : value_) {
    for (std::size_t i = 0; i < count_; ++i) sorted[i] = column[order[i].second];
    std::copy(sorted.begin(), sorted.end(), column.begin());
  }
}

}  // namespace lull::trace
