// Tables with a row for each value: time, GPU, the name of the signal, its value (and
// perhaps its unit), as CSV or as an object on each line. Old Grafana's "Series;Time;Value",
// InfluxDB's annotated CSV, what people melt with pandas.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "trace/cells.h"
#include "trace/format.h"
#include "trace/series_rows.h"

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

class LongParser final : public SeriesRows {
 public:
  explicit LongParser(const Schema& schema);

  void parse(const Chunk& chunk, Batch& batch) override;

 private:
  void line(std::string_view text, std::uint64_t number, Batch& batch);
  void add(const SeriesPlace& place, std::int64_t at, float value, Batch& batch);
  void learn_columns(const std::vector<std::string>& names);
  bool is_header(const std::vector<std::string>& cells) const;

  // Where in a line, npos: nowhere.
  std::size_t count_ = 0;
  std::size_t time_ = kNoSlot;
  std::size_t name_ = kNoSlot;
  std::size_t value_ = kNoSlot;
  std::string value_name_;  // as the header has it
  std::size_t unit_ = kNoSlot;
  std::array<std::size_t, 7> roles_{};                       // of kSeriesRoles
  std::vector<std::pair<std::size_t, std::string>> labels_;  // every other column, for --columns
  std::unordered_map<std::string, SeriesPlace> places_;      // by what names a series
  std::size_t last_ = kNoSlot;                               // the row added last
};

}  // namespace

static bool is_long(std::string_view head, const ReadHow&) {
  const std::vector<std::string> names = table_names(head);
  return column_in(names, kNameColumns) != kNoSlot && column_in(names, kValueColumns) != kNoSlot &&
         column_of(names, Role::time) != kNoSlot;
}

static Result<Schema> open_long(std::string_view head, const ReadHow& how) {
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

// An empty cell is not recorded, as in every table: it does not say that the GPU is free.
LongParser::LongParser(const Schema& schema) : SeriesRows(schema, Unlabelled::untold) {
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
    place = places_.emplace(key, SeriesRows::place(series)).first;
  }
  if (place->second.slot == kNoSlot) return;  // none of ours: no need to understand its value
  const auto at = parse_time(cell(time_), schema_.time);
  if (!at) return batch.add_bad(number, fmt::format("'{}' is not a time", printable(cell(time_).substr(0, 60))));
  const auto value = series_cell(cell(value_), place->second.meaning, schema_.decimal_comma);
  if (!value) return batch.add_bad(number, fmt::format("'{}' is not a number", printable(cell(value_).substr(0, 60))));
  add(place->second, *at, *value, batch);
}

// Values of the same GPU and moment that follow each other share a row.
void LongParser::add(const SeriesPlace& place, std::int64_t at, float value, Batch& batch) {
  const std::uint32_t gpu = identities_.find(place.cells());
  const bool same = last_ < batch.rows && batch.at[last_] == at && batch.gpu[last_] == gpu &&
                    std::isnan(batch.value[place.slot][last_]);
  if (!same) last_ = batch.add_row(at, gpu);
  batch.value[place.slot][last_] = value;
}

const TraceFormat kLong{"a table with a row for each value", is_long, open_long, make_row_parser<LongParser>, true};

}  // namespace lull::trace
