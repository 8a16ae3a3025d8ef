#include "trace/series.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace lull::trace {

std::size_t Series::place_of(Instant at) const {
  return static_cast<std::size_t>(std::lower_bound(at_.begin(), at_.begin() + static_cast<std::ptrdiff_t>(count_), at) -
                                  at_.begin());
}

void Series::open_place(std::size_t place) {
  const auto shift = [&](auto& column) {
    const auto from = column.begin() + static_cast<std::ptrdiff_t>(place);
    const auto to = column.begin() + static_cast<std::ptrdiff_t>(count_);
    std::move_backward(from, to, to + 1);
  };
  shift(at_);
  for (auto& column : value_) shift(column);
  ++count_;
}

void Series::grow() {
  const std::size_t room = std::max<std::size_t>(64, at_.size() * 2);
  at_.resize(room);
  for (auto& column : value_) column.resize(room);
}

void Series::make_room(std::size_t gpu, TraceSink& sink) {
  if (!bounded_ || count_ < kHeld + kBlockSamples) return grow();
  emit(0, kBlockSamples, gpu, sink);
  emitted_ = at_[kBlockSamples - 1];
  emitted_any_ = true;
  const auto shift = [&](auto& column) {
    std::copy(column.begin() + kBlockSamples, column.begin() + static_cast<std::ptrdiff_t>(count_), column.begin());
  };
  shift(at_);
  for (auto& column : value_) shift(column);
  count_ -= kBlockSamples;
  emitted_count_ += kBlockSamples;
}

void Series::emit(std::size_t from, std::size_t count, std::size_t gpu, TraceSink& sink) {
  Block block;
  block.at = {at_.data() + from, count};
  for (std::size_t i = 0; i < metrics_.size(); ++i)
    block.value[index_of(metrics_[i])] = {value_[i].data() + from, count};
  sink.block(gpu, block);
}

void Series::flush(std::size_t gpu, TraceSink& sink) {
  for (std::size_t from = 0; from < count_; from += kBlockSamples)
    emit(from, std::min(kBlockSamples, count_ - from), gpu, sink);
  count_ = 0;
}

std::uint64_t Series::sort() {
  if (!unsorted_) return 0;
  std::vector<std::size_t> order(count_);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return at_[a] < at_[b]; });
  const std::size_t before = order.size();
  order.erase(std::unique(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return at_[a] == at_[b]; }),
              order.end());
  const auto permute = [&](auto& column) {
    auto sorted = column;
    for (std::size_t i = 0; i < order.size(); ++i) sorted[i] = column[order[i]];
    column = std::move(sorted);
  };
  permute(at_);
  for (auto& column : value_) permute(column);
  count_ = order.size();
  unsorted_ = false;
  return before - count_;
}

}  // namespace lull::trace
