#include "trace/series.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <queue>
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

// ---- ticks

namespace {

constexpr std::size_t kWordOfTicks = 64;  // judging works on so many at once

}  // namespace

Ticks::Ticks(std::span<const Metric> metrics, bool who, std::size_t gpus, const Paced& tick,
             std::span<const Paced> gaps, std::size_t memory, bool partial, TraceSink& sink)
    : metrics_(metrics),
      who_(who),
      width_(metrics.size() + (who ? 1 : 0)),
      interval_(tick),
      gaps_(gaps),
      sink_(sink),
      partial_(partial),
      held_(std::max<std::size_t>(4096, gpus * 16)),
      gathered_(std::bit_floor(std::clamp<std::size_t>(memory / std::max<std::size_t>(1, gpus * width_ * sizeof(float)),
                                                       kWordOfTicks, kBlockSamples))),
      gpus_(gpus),
      columns_(gpus * width_ * gathered_) {
  waiting_.reserve(held_ * 2);
  waiting_values_.resize(held_ * 2 * width_);
}

bool Ticks::add(Instant at, std::uint32_t gpu, std::span<const float> values) {
  if (waiting_.size() == held_ * 2) release(held_);
  if (released_any_ && at < released_) return false;
  if (!waiting_.empty() && at < waiting_.back().at) {
    sorted_ = false;
    ++out_of_order_;
  }
  const std::size_t slot = waiting_.size();
  std::copy(values.begin(), values.end(), waiting_values_.begin() + static_cast<std::ptrdiff_t>(slot * values.size()));
  waiting_.push_back({at, gpu, static_cast<std::uint32_t>(slot)});
  return true;
}

void Ticks::release(std::size_t count) {
  const std::size_t width = width_;
  if (!sorted_)
    std::stable_sort(waiting_.begin(), waiting_.end(), [](const Row& a, const Row& b) { return a.at < b.at; });
  for (std::size_t i = 0; i < count; ++i)
    place(waiting_[i].at, waiting_[i].gpu, waiting_values_.data() + waiting_[i].slot * width);
  if (count > 0) {
    released_ = waiting_[count - 1].at;
    released_any_ = true;
  }
  // What stays moves to the front, in its new order.
  std::vector<float> rest;
  rest.reserve((waiting_.size() - count) * width);
  for (std::size_t i = count; i < waiting_.size(); ++i) {
    const float* const values = waiting_values_.data() + waiting_[i].slot * width;
    rest.insert(rest.end(), values, values + width);
  }
  std::copy(rest.begin(), rest.end(), waiting_values_.begin());
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
  for (std::size_t i = 0; i < waiting_.size(); ++i) waiting_[i].slot = static_cast<std::uint32_t>(i);
  sorted_ = true;
}

void Ticks::open_tick(Instant at) {
  if (at_.size() == gathered_) emit();
  at_.push_back(at);
  ++tick_;
  const std::size_t i = at_.size() - 1;
  for (std::size_t column = 0; column < gpus_.size() * width_; ++column)
    columns_[column * gathered_ + i] = who_ && column % width_ == metrics_.size() ? kNoRow : kUnknownSample;
}

bool Ticks::complete(std::uint32_t gpu, const float* values) {
  bool any = false;
  for (std::size_t i = 0; gpus_[gpu].tick == tick_ && !at_.empty() && i < width_; ++i) {
    float& known = columns_[(gpu * width_ + i) * gathered_ + at_.size() - 1];
    if (!std::isnan(known) || std::isnan(values[i])) continue;
    known = values[i];
    any = true;
  }
  return any;
}

void Ticks::place(Instant at, std::uint32_t gpu, const float* values) {
  Gpu& g = gpus_[gpu];
  if (g.any && at == g.last) {
    if (!partial_ || !complete(gpu, values)) ++duplicates_;
    return;
  }
  if (tick_ == 0 || at_.empty() || (at - at_.back()).count() > interval_.before(at) / 2 || g.tick == tick_)
    open_tick(at);
  if (g.any && !gaps_.empty()) ((at - g.last).count() <= gaps_[gpu].before(at) ? g.seen : g.missed) += at - g.last;
  g.any = true;
  g.last = at;
  g.tick = tick_;
  ++g.samples;
  for (std::size_t i = 0; i < width_; ++i) columns_[(gpu * width_ + i) * gathered_ + at_.size() - 1] = values[i];
}

void Ticks::emit() {
  std::vector<Block> blocks(gpus_.size());
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    blocks[gpu].at = at_;
    const float* const columns = columns_.data() + gpu * width_ * gathered_;
    for (std::size_t i = 0; i < metrics_.size(); ++i)
      blocks[gpu].value[index_of(metrics_[i])] = {columns + i * gathered_, at_.size()};
    if (who_) blocks[gpu].holder = {columns + metrics_.size() * gathered_, at_.size()};
  }
  sink_.frames(blocks);
  at_.clear();
}

void Ticks::finish() {
  release(waiting_.size());
  if (!at_.empty()) emit();
}

void Ticks::merge(std::span<const Series> series) {
  struct Next {
    Instant at;
    std::uint32_t gpu;
    bool operator>(const Next& other) const { return at != other.at ? at > other.at : gpu > other.gpu; }
  };
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  std::vector<std::size_t> position(series.size());
  for (std::size_t gpu = 0; gpu < series.size(); ++gpu)
    if (series[gpu].size() > 0) queue.push({series[gpu].at(0), static_cast<std::uint32_t>(gpu)});
  std::vector<float> values(width_);
  while (!queue.empty()) {
    const Next next = queue.top();
    queue.pop();
    const Series& from = series[next.gpu];
    const std::size_t i = position[next.gpu]++;
    for (std::size_t metric = 0; metric < values.size(); ++metric) values[metric] = from.value(metric, i);
    place(next.at, next.gpu, values.data());
    if (i + 1 < from.size()) queue.push({from.at(i + 1), next.gpu});
  }
  if (!at_.empty()) emit();
}

}  // namespace lull::trace
