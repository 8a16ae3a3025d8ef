#include "replay/lives.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "gpu/empty_card.h"

namespace lull::replay {
namespace {

constexpr float kWorking = 1;  // % at which a GPU is not empty, whatever its memory says
// Less than this and more than nothing is no card's memory in bytes: the column has another unit than it seems.
constexpr float kLeastBytes = 512 << 10;

float value_at(std::span<const float> column, std::size_t i) { return column.empty() ? kUnknownSample : column[i]; }

bool may_be_empty(std::span<const float> column, float most) {
  return std::any_of(column.begin(), column.end(), [&](float value) { return value <= most; });
}

}  // namespace

LifeFinder::Having LifeFinder::having(const Block& block, std::size_t i) {
  const float util = value_at(block[Metric::util], i);
  if (util >= kWorking) return Having::somebody;
  const float holder = value_at(block.holder, i);
  if (holder >= trace::kNobody) return holder == trace::kNobody ? Having::nobody : Having::somebody;
  const float memory = value_at(block[Metric::mem_used], i);
  if (memory > kEmptyCard) return Having::somebody;
  if (memory == 0 || memory >= kLeastBytes) return Having::nobody;
  const float processes = value_at(block[Metric::procs], i);
  if (std::isnan(processes)) return Having::unknown;
  return processes == 0 ? Having::nobody : Having::somebody;
}

void LifeFinder::see(Having having, float holder, const trace::Holders* holders, std::size_t i,
                     std::vector<Piece>& out) {
  bool begins = false;
  if (having == Having::nobody) {
    alive_ = false;
  } else if (!alive_) {
    // Where nothing tells, somebody has it: that nobody does must be seen.
    begins = having == Having::somebody || !any_;
    alive_ = begins;
  } else if (holder > trace::kNobody && holder_ > trace::kNobody && holder != holder_ &&
             !holders->same_job(holder_, holder)) {
    begins = true;
  }
  if (begins) holder_ = kUnknownSample;
  if (alive_ && holder > trace::kNobody) holder_ = holder;
  any_ = true;
  if (out.empty() || begins || out.back().held != alive_) out.push_back({i, i, alive_, begins});
  out.back().to = i + 1;
  out.back().holder = alive_ ? holder_ : kUnknownSample;
}

void LifeFinder::feed(std::span<const Block> scope, const trace::Holders* holders, std::vector<Piece>& out) {
  out.clear();
  const std::size_t count = scope[0].size();
  // Mostly nothing happens: then one look at each column is enough.
  const bool one = scope.size() == 1;
  const bool quiet =
      alive_ && std::all_of(scope.begin(), scope.end(), [&](const Block& block) {
        return std::all_of(block.holder.begin(), block.holder.end(),
                           [&](float h) { return h == holder_ || std::isnan(h) || (!one && h > trace::kNobody); }) &&
               !may_be_empty(block[Metric::mem_used], static_cast<float>(kEmptyCard)) &&
               !may_be_empty(block[Metric::procs], 0);
      });
  if (quiet) {
    out.push_back({0, count, true, false, holder_});
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    Having all = Having::nobody;  // the most that any of them says
    for (const Block& block : scope) all = std::max(all, having(block, i));
    see(all, one ? value_at(scope[0].holder, i) : kUnknownSample, holders, i, out);
  }
}

Work Accounts::sum(std::span<const Block> scope, std::size_t from, std::size_t to) const {
  const std::span<const Instant> at = scope[0].at;
  double seen = 0;
  double util = 0;
  for (std::size_t i = from; i < to; ++i) {
    if (i == 0 && !last_) continue;
    const std::int64_t since = (at[i] - (i == 0 ? *last_ : at[i - 1])).count();
    if (since > longest_) continue;
    seen += static_cast<double>(since);
    for (const Block& block : scope) {
      const float value = value_at(block[Metric::util], i);
      if (value > 0) util += static_cast<double>(value) * static_cast<double>(since);
    }
  }
  return {util / 1e11, seen / 1e9 * static_cast<double>(scope.size())};
}

std::size_t Fate::next_bit(const Mask& mask, std::size_t from, std::size_t to) {
  while (from < to) {
    const Word rest = mask[from / kWordSamples] >> (from % kWordSamples);
    if (rest != 0) return std::min(to, from + static_cast<std::size_t>(std::countr_zero(rest)));
    from += kWordSamples - from % kWordSamples;
  }
  return to;
}

}  // namespace lull::replay
