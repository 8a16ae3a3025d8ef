#include "trace/long.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "trace/cells.h"

namespace lull::trace {
namespace {

constexpr std::array<std::string_view, 16> kNameColumns = {
    "metric",   "metric_name", "metricname", "field",     "_field", "series",  "name",     "measurement",
    "variable", "key",         "sensor",     "parameter", "signal", "counter", "__name__", "field_name"};
constexpr std::array<std::string_view, 5> kValueColumns = {"value", "_value", "val", "reading", "metric_value"};

// The first of the known names that a table has: they are in the order of how sure they are.
template <std::size_t N>
std::size_t column_in(const std::vector<std::string>& names, const std::array<std::string_view, N>& known) {
  for (const std::string_view one : known)
    for (std::size_t i = 0; i < names.size(); ++i)
      if (lowered(trim(names[i])) == one) return i;
  return kNoSlot;
}

std::size_t column_of(const std::vector<std::string>& names, Role role) {
  std::size_t best = kNoSlot;
  int rank = 1000;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (const auto meaning = meaning_of(names[i]); meaning && meaning->role == role && meaning->rank < rank) {
      best = i;
      rank = meaning->rank;
    }
  return best;
}

}  // namespace

bool is_long(std::string_view head, const ReadHow&) {
  const std::vector<std::string> names = table_names(head);
  return column_in(names, kNameColumns) != kNoSlot && column_in(names, kValueColumns) != kNoSlot &&
         column_of(names, Role::time) != kNoSlot;
}

Result<Schema> open_long(std::string_view head, const ReadHow& how) {
  for (const ColumnChoice& choice : how.columns)
    if (choice.role == "lease" || choice.column == "none")
      return fail(fmt::format("--columns {}={} cannot be obeyed: this is a table with a row for each value",
                              choice.role, printable(choice.column)));
  const TableHead table = table_head(head);
  Schema schema = schema_of_samples(how.wanted);
  schema.identity = kSeriesRoles;
  schema.format = table.json ? Format::ndjson : Format::csv;
  schema.separator = table.separator;
  schema.partial = true;
  schema.choices = how.columns;
  const std::size_t time = TRY(time_of_table(table, how, schema));
  for (const std::string& name : table.names) schema.columns.emplace_back().name = name;
  schema.columns[time].role = Role::time;
  return schema;
}

// An empty cell is not recorded, as in every table: it does not say that nobody has the GPU.
LongParser::LongParser(const Schema& schema) : schema_(schema), rows_(schema, SeriesRows::Unlabelled::untold) {
  std::vector<std::string> names;
  for (const Column& column : schema.columns) names.push_back(column.name);
  learn_columns(names);
  for (std::size_t i = 0; i < schema.columns.size(); ++i)
    if (schema.columns[i].role == Role::time) time_ = i;
}

void LongParser::learn_columns(const std::vector<std::string>& names) {
  count_ = names.size();
  time_ = column_of(names, Role::time);
  name_ = column_in(names, kNameColumns);
  value_ = column_in(names, kValueColumns);
  value_name_ = value_ == kNoSlot ? "" : names[value_];
  unit_ = column_in(names, std::array<std::string_view, 2>{"unit", "units"});
  labels_.clear();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (i != time_ && i != name_ && i != value_ && i != unit_) labels_.emplace_back(i, trim(names[i]));
  // A table of series from Prometheus: there `job` is what was scraped.
  const bool scraped =
      std::ranges::find(names, "__name__") != names.end() || std::ranges::find(names, "instance") != names.end();
  for (std::size_t i = 0; i < kSeriesRoles.size(); ++i) roles_[i] = column_of(names, kSeriesRoles[i]);
  for (std::size_t& column : roles_)
    if (scraped && column != kNoSlot && lowered(trim(names[column])) == "job") column = kNoSlot;
  places_.clear();
}

// InfluxDB writes one for each table, with other columns if need be.
bool LongParser::is_header(const std::vector<std::string>& cells) const {
  if (std::find(cells.begin(), cells.end(), value_name_) == cells.end()) return false;  // nearly always
  return column_in(cells, kNameColumns) != kNoSlot && column_in(cells, kValueColumns) != kNoSlot &&
         column_of(cells, Role::time) != kNoSlot;
}

void LongParser::parse(const Chunk& chunk, Batch& batch) {
  batch.reset(schema_.metrics.size());
  rows_.next_batch();
  for_lines(chunk, batch, [&](std::string_view text, std::uint64_t number, bool) { line(text, number, batch); });
}

void LongParser::line(std::string_view text, std::uint64_t number, Batch& batch) {
  if (trim(text).empty() || is_remark(trim(text))) return;
  const auto cells = cells_in(text, schema_);
  if (!cells)
    return batch.add_bad(number,
                         schema_.format == Format::csv ? "a quote is not closed" : "it is not one whole JSON object");
  const bool header = schema_.format == Format::csv && is_header(*cells);
  if (header) return learn_columns(*cells);
  if (cells->size() != count_)
    return batch.add_bad(number, fmt::format("{} cells where there should be {}", cells->size(), count_));
  const auto cell = [&](std::size_t column) {
    return column == kNoSlot ? std::string_view{} : std::string_view((*cells)[column]);
  };

  std::string key;
  for (const std::size_t column : {name_, unit_}) (key += cell(column)) += '\n';
  for (const auto& [column, name] : labels_) (key += cell(column)) += '\n';
  auto place = places_.find(key);
  if (place == places_.end()) {
    const std::string unit(cell(unit_));
    SeriesName series = series_of(unit.empty() ? std::string(cell(name_)) : fmt::format("{} [{}]", cell(name_), unit));
    const std::array<std::string*, 7> parts = {&series.gpu.gpu,  &series.gpu.uuid, &series.gpu.host,   &series.who.job,
                                               &series.who.pids, &series.who.user, &series.who.command};
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (!cell(roles_[i]).empty()) *parts[i] = cell(roles_[i]);
    for (const auto& [column, name] : labels_) series.labels.emplace_back(name, cell(column));
    if (series.gpu.gpu.empty() && series.gpu.uuid.empty()) series.gpu.gpu.assign(1, '0');
    if (places_.size() > 100'000) places_.clear();
    place = places_.emplace(key, rows_.place(series)).first;
  }
  if (place->second.slot == kNoSlot) return;  // none of ours: no need to understand its value
  const auto at = parse_time(cell(time_), schema_.time);
  if (!at) return batch.add_bad(number, fmt::format("'{}' is not a time", printable(cell(time_).substr(0, 60))));
  const auto value = series_cell(cell(value_), place->second.meaning, schema_.decimal_comma);
  if (!value) return batch.add_bad(number, fmt::format("'{}' is not a number", printable(cell(value_).substr(0, 60))));
  rows_.add(place->second, *at, *value, batch);
}

}  // namespace lull::trace
