#include "rule/stretch.h"

#include <algorithm>
#include <bit>

namespace lull {

void StretchFinder::end(Instant at, StretchEnd why, std::vector<Stretch>& out) {
  now_.end = at;
  now_.ending = why;
  out.push_back(now_);
  inside_ = false;
}

void StretchFinder::feed(std::span<const Instant> at, const Answers& condition, const Mask& fires, const Mask& gaps,
                         std::vector<Stretch>& out) {
  for (std::size_t w = 0; w < words_for(at.size()); ++w) {
    const std::span<const Instant> time =
        at.subspan(w * kWordSamples).first(std::min(kWordSamples, at.size() - w * kWordSamples));
    const Word yes = condition.yes[w];
    for (std::size_t i = 0; i < time.size();) {
      const Word rest = yes >> i;
      const bool gap = (gaps[w] >> i & 1) != 0;
      if (inside_ && gap) end(now_.last, StretchEnd::gap, out);
      if ((rest & 1) == 0) {
        const bool no = (condition.no[w] >> i & 1) != 0;
        if (inside_) end(time[i], no ? StretchEnd::came_back : StretchEnd::unknown, out);
        if (rest == 0) break;
        i += static_cast<std::size_t>(std::countr_zero(rest));
        continue;
      }
      std::size_t stop = std::min(time.size(), i + static_cast<std::size_t>(std::countr_one(rest)));
      if (const Word later = gaps[w] & ~low_bits(i + 1); later != 0)
        stop = std::min(stop, static_cast<std::size_t>(std::countr_zero(later)));
      if (!inside_) now_ = Stretch{.begin = time[i]};
      inside_ = true;
      now_.samples += stop - i;
      now_.last = time[stop - 1];
      const Word fired = fires[w] & low_bits(stop) & ~low_bits(i);
      if (fired != 0 && !now_.fired) now_.fired = time[static_cast<std::size_t>(std::countr_zero(fired))];
      i = stop;
    }
  }
}

void StretchFinder::finish(std::vector<Stretch>& out) {
  if (inside_) end(now_.last, StretchEnd::end, out);
}

}  // namespace lull
