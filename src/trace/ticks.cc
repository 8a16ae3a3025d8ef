#include "trace/ticks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <queue>

namespace lull::trace {
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
