#include "trace/series_rows.h"

#include <algorithm>
#include <cmath>

#include "trace/cells.h"

namespace lull::trace {

SeriesPlace SeriesRows::place(const SeriesName& series) {
  SeriesPlace place{kNoSlot, {}, series.gpu};
  std::optional<Meaning> meaning = series.meaning;
  for (const ColumnChoice& choice : schema_.choices) {
    const auto metric = metric_by_name(choice.role);
    const bool meant = choice.column == series.measured ||
                       (series.measured.empty() && (choice.column == "value" || choice.column == "*"));
    if (!metric || !meant) continue;
    const double scale = choice.unit.empty() ? 1 : unit_factor(info(*metric).unit, choice.unit).value_or(1);
    meaning = Meaning{Role::metric, *metric, -1, scale, choice.unit.empty() && info(*metric).unit == Unit::bytes};
  }
  if (!meaning) {
    const std::string name = series.measured.empty() ? "a series without a name" : series.measured;
    if (strangers_.size() < 40 && std::find(strangers_.begin(), strangers_.end(), name) == strangers_.end())
      strangers_.push_back(name);
    return place;
  }
  const std::size_t slot = slot_of(schema_, meaning->metric);
  if (slot == kNoSlot) return place;
  best_.resize(schema_.metrics.size(), 1000);
  best_[slot] = std::min(best_[slot], meaning->rank);
  if (slot < schema_.ranks.size() && meaning->rank > schema_.ranks[slot]) return place;  // there is a better source
  place.slot = slot;
  place.meaning = *meaning;
  return place;
}

void SeriesRows::add(const SeriesPlace& place, std::int64_t at, float value, Batch& batch) {
  if (place.slot == kNoSlot) return;
  const std::uint32_t gpu = identities_.find(Identities::Cells{place.gpu.gpu, place.gpu.uuid, place.gpu.host});
  const bool same = last_ < batch.rows && batch.at[last_] == at && batch.gpu[last_] == gpu &&
                    std::isnan(batch.value[place.slot][last_]);
  if (!same) last_ = batch.add_row(at, gpu);
  batch.value[place.slot][last_] = value;
}

}  // namespace lull::trace
