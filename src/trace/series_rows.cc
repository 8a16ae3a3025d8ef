#include "trace/series_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "trace/cells.h"
#include "trace/rows.h"

namespace lull::trace {

namespace {

// Slurm's jobs as jobstats tells them: the number is the value.
constexpr std::string_view kJobNumbers = "nvidia_gpu_jobId";
// And as lull serve tells who uses a GPU.
constexpr std::string_view kJobInfo = "lull_gpu_job_info";

void remember(std::vector<std::string>& names, const std::string& name) {
  if (names.size() < 40 && std::ranges::find(names, name) == names.end()) names.push_back(name);
}

// Where a label that --columns names goes; nullptr: --columns means something else.
std::string* target_of(std::string_view role, SeriesPlace& place) {
  if (role == "gpu") return &place.gpu.gpu;
  if (role == "uuid") return &place.gpu.uuid;
  if (role == "host") return &place.gpu.host;
  if (role == "job") return &place.who.job;
  if (role == "pids") return &place.who.pids;
  if (role == "user") return &place.who.user;
  if (role == "command") return &place.who.command;
  return nullptr;
}

}  // namespace

// What --columns says of labels goes before what their names suggest. No label at all: nothing says it.
void SeriesRows::obey(const SeriesName& series, SeriesPlace& place) {
  for (const auto& [name, value] : series.labels) remember(label_names_, name);
  for (const ColumnChoice& choice : schema_.choices) {
    std::string* const target = target_of(choice.role, place);
    if (target == nullptr || series.labels.empty()) continue;
    if (choice.role == "gpu") place.gpu = {};  // the choice alone tells GPUs apart
    target->clear();
    for (const std::string_view part : split(choice.column, '+'))
      for (const auto& [name, value] : series.labels) {
        if (name != trim(part) || value.empty()) continue;
        *target += (target->empty() ? "" : "/") + value;
        obeyed_.insert(choice.role);
      }
  }
}

Result<> SeriesRows::check_choices() const {
  for (const ColumnChoice& choice : schema_.choices) {
    SeriesPlace place;
    if (target_of(choice.role, place) == nullptr || obeyed_.contains(choice.role) || choice.column.empty()) continue;
    const std::vector<std::string_view> names(label_names_.begin(), label_names_.end());
    return fail(fmt::format("{} {}={}: no series has that label{}; there are {}", choice.option, choice.role,
                            printable(choice.column), did_you_mean(choice.column, names),
                            printable(fmt::format("{}", fmt::join(label_names_, ", ")))));
  }
  return {};
}

// What is measured; false: none of ours.
bool SeriesRows::take_meaning(const SeriesName& series, SeriesPlace& place) {
  std::optional<Meaning> meaning = series.meaning;
  for (const ColumnChoice& choice : schema_.choices) {
    const auto metric = metric_by_name(choice.role);
    const bool meant = choice.column == series.measured ||
                       (series.measured.empty() && (choice.column == "value" || choice.column == "*"));
    if (!metric || !meant) continue;
    const double scale = choice.unit.empty() ? 1 : unit_factor(info(*metric).unit, choice.unit).value_or(1);
    const bool no_unit = choice.unit.empty();
    meaning = Meaning{Role::metric,
                      *metric,
                      -1,
                      scale,
                      no_unit && info(*metric).unit == Unit::bytes,
                      no_unit && (!series.meaning || series.meaning->bare)};
  }
  if (!meaning) {
    remember(strangers_, series.measured.empty() ? "a series without a name" : series.measured);
    return false;
  }
  const std::size_t slot = slot_of(schema_, meaning->metric);
  if (slot == kNoSlot) return false;
  best_.resize(schema_.metrics.size(), 1000);
  best_[slot] = std::min(best_[slot], meaning->rank);
  if (slot < schema_.ranks.size() && meaning->rank > schema_.ranks[slot]) return false;  // there is a better source
  doubtful_.resize(schema_.metrics.size());
  if (meaning->bare) doubtful_[slot] = series.measured.empty() ? "value" : series.measured;
  place.slot = slot;
  place.meaning = *meaning;
  return true;
}

SeriesPlace SeriesRows::place(const SeriesName& series) {
  SeriesPlace place;
  place.gpu = series.gpu;
  place.who = series.who;
  obey(series, place);
  place.is_info = series.measured == kJobInfo && !place.who.empty();
  place.is_job = place.is_info || series.measured == kJobNumbers;
  if (!place.is_job && !take_meaning(series, place)) return place;
  // A series without the label, where others of its name have it, is of a GPU that nobody has.
  if (place.is_job || !place.who.empty())
    remember(labelled_, series.measured);
  else if (unlabelled_ == Unlabelled::nobody &&
           std::ranges::find(schema_.labelled, series.measured) != schema_.labelled.end())
    place.who.job = kNobodyText;
  return place;
}

Identities::Cells SeriesPlace::cells() const {
  return {gpu.gpu, gpu.uuid, gpu.host, who.job, who.pids, who.user, who.command};
}

void SeriesRows::add(const SeriesPlace& place, std::int64_t at, float value, Batch& batch) {
  if (place.slot == kNoSlot) return;
  const std::uint32_t gpu = identities_.find(place.cells());
  const bool same = last_ < batch.rows && batch.at[last_] == at && batch.gpu[last_] == gpu &&
                    std::isnan(batch.value[place.slot][last_]);
  if (!same) last_ = batch.add_row(at, gpu);
  batch.value[place.slot][last_] = value;
}

}  // namespace lull::trace
