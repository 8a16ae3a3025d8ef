#include "trace/series_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

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
  // One label tells the GPUs of a host apart; several together tell all GPUs apart.
  const auto gpu = std::ranges::find(schema_.choices, "gpu", &ColumnChoice::role);
  if (gpu != schema_.choices.end() && !series.labels.empty()) {
    place.gpu.uuid.clear();
    if (gpu->column == "none" || gpu->column.contains('+')) place.gpu.host.clear();
  }
  for (const ColumnChoice& choice : schema_.choices) {
    std::string* const target = target_of(choice.role, place);
    if (target == nullptr || series.labels.empty()) continue;
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
  // A series without the label, where others of its name have it, is of a free GPU.
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
    gpus.push_back(series.any ? identities.find(cells) : kNone);  // without a row: no job
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
