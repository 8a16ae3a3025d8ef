#include "trace/paced.h"

#include <algorithm>
#include <iterator>

namespace lull::trace {

std::int64_t Paced::find(Instant sample) const {
  const auto next = std::ranges::lower_bound(changes, sample, {}, &Change::from);
  return next == changes.begin() ? first : std::prev(next)->value;
}

std::int64_t Paced::longest() const {
  std::int64_t most = first;
  for (const Change& change : changes) most = std::max(most, change.value);
  return most;
}

std::size_t Paced::same_for(std::span<const Instant> at, std::size_t from) const {
  const auto next = std::ranges::lower_bound(changes, at[from], {}, &Change::from);
  if (next == changes.end()) return at.size() - from;
  const auto rest = at.subspan(from);
  return static_cast<std::size_t>(std::ranges::upper_bound(rest, next->from) - rest.begin());
}

}  // namespace lull::trace
