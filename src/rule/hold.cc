#include "rule/hold.h"

#include <algorithm>
#include <bit>

namespace lull {
namespace {

std::int64_t nanoseconds(Instant at) { return at.time_since_epoch().count(); }
// Times only go forward here; unsigned, so that no distance overflows.
std::uint64_t between(std::int64_t from, Instant to) {
  return static_cast<std::uint64_t>(nanoseconds(to)) - static_cast<std::uint64_t>(from);
}
Word bits_between(std::size_t from, std::size_t to) { return low_bits(to) & ~low_bits(from); }

}  // namespace

// The first sample in [from, to) at which the running streak is long enough, or `to`.
std::size_t Hold::first_held(const Instant* at, std::size_t from, std::size_t to) const {
  if (span_.samples != 0) {
    const std::uint64_t lacking = span_.samples > samples_ ? span_.samples - samples_ - 1 : 0;
    return lacking < to - from ? from + static_cast<std::size_t>(lacking) : to;
  }
  const auto needed = static_cast<std::uint64_t>(span_.time.count());
  if (between(since_, at[from]) >= needed) return from;
  if (between(since_, at[to - 1]) < needed) return to;
  const Instant* due = std::partition_point(at + from, at + to, [&](Instant t) { return between(since_, t) < needed; });
  return static_cast<std::size_t>(due - at);
}

void Hold::apply(std::span<const Instant> at, const Mask& gaps, Answers& answers) {
  for (std::size_t w = 0; w < words_for(at.size()); ++w) {
    const Instant* time = at.data() + w * kWordSamples;
    const std::size_t count = std::min(kWordSamples, at.size() - w * kWordSamples);
    const Word yes = answers.yes[w];
    const Word no = answers.no[w];
    const Word gap = gaps[w];
    Word held = 0;
    Word too_short = 0;
    for (std::size_t i = 0; i < count;) {
      const Word rest = yes >> i;
      if ((rest & 1) == 0) {
        const std::size_t end = rest == 0 ? count : i + static_cast<std::size_t>(std::countr_zero(rest));
        running_ = false;
        previous_no_ = (no >> (end - 1) & 1) != 0;
        i = end;
        continue;
      }
      if ((gap >> i & 1) != 0) running_ = previous_no_ = false;
      std::size_t end = std::min(count, i + static_cast<std::size_t>(std::countr_one(rest)));
      if (const Word later = gap & ~low_bits(i + 1); later != 0)
        end = std::min(end, static_cast<std::size_t>(std::countr_zero(later)));
      if (!running_) {
        running_ = true;
        grounded_ = previous_no_;
        since_ = nanoseconds(time[i]);
        samples_ = 0;
      }
      const std::size_t from = first_held(time, i, end);
      held |= bits_between(from, end);
      if (grounded_) too_short |= bits_between(i, from);
      samples_ += end - i;
      previous_no_ = false;
      i = end;
    }
    answers.yes[w] = held;
    answers.no[w] = no | too_short;
  }
}

}  // namespace lull
