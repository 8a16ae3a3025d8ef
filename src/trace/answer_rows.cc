#include "trace/answer_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace lull::trace {

void AnswerRows::series(const Identities::Cells& cells, std::size_t slot) {
  Series& one = series_.emplace_back();
  std::ranges::copy(cells, one.cells.begin());
  one.slot = slot;
}

// By time, what is of one time as it came: digit by digit from the lowest on, for there are many and few differ much.
void AnswerRows::sort() {
  constexpr unsigned kBits = 11;
  constexpr std::uint64_t kMask = (1U << kBits) - 1;
  if (std::ranges::is_sorted(values_, {}, &Value::at)) return;
  const auto [first, last] = std::ranges::minmax(values_, {}, &Value::at);
  const std::int64_t lowest = first.at;
  const auto key = [&](const Value& one) {
    return static_cast<std::uint64_t>(one.at) - static_cast<std::uint64_t>(lowest);
  };
  const auto bits = static_cast<unsigned>(std::bit_width(key(last)));
  moved_.resize(values_.size());
  for (unsigned shift = 0; shift < bits; shift += kBits) {
    std::array<std::size_t, kMask + 1> places{};
    for (const Value& one : values_) ++places[key(one) >> shift & kMask];
    std::size_t before = 0;
    for (std::size_t& place : places) before += std::exchange(place, before);
    for (const Value& one : values_) moved_[places[key(one) >> shift & kMask]++] = one;
    values_.swap(moved_);
  }
}

void AnswerRows::release(Identities& identities, Batch& batch) {
  if (values_.empty()) return;
  constexpr auto kNone = static_cast<std::uint32_t>(-1);
  std::vector<std::uint32_t> gpus;  // in the order of the answer
  for (const Series& series : series_) {
    Identities::Cells cells;
    std::ranges::copy(series.cells, cells.begin());
    gpus.push_back(series.any ? identities.find(cells) : kNone);  // who has no row is nobody
  }
  row_of_.assign(identities.size(), kNone);
  sort();
  for (const Value& one : values_) {
    const Series& series = series_[one.series];
    const std::uint32_t gpu = gpus[one.series];
    std::uint32_t& row = row_of_[gpu];
    const bool shares = row != kNone && batch.at[row] == one.at &&
                        (series.slot == kNoSlot || std::isnan(batch.value[series.slot][row]));
    if (!shares) row = static_cast<std::uint32_t>(batch.add_row(one.at, gpu));
    if (series.slot != kNoSlot) batch.value[series.slot][row] = one.value;
  }
  series_.erase(series_.begin(), series_.end() - 1);  // more values of the last one may follow
  series_.front().any = false;
  values_.clear();
}

}  // namespace lull::trace
