#include "trace/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "gpu/own_signal.h"
#include "trace/cells.h"
#include "trace/names.h"
#include "trace/ndjson.h"
#include "trace/number.h"

namespace lull::trace {
namespace {

std::optional<Role> role_by_name(std::string_view name) {
  if (name == "time") return Role::time;
  if (name == "gpu") return Role::gpu;
  if (name == "uuid") return Role::uuid;
  if (name == "host") return Role::host;
  if (name == "job") return Role::job;
  if (name == "pids") return Role::pids;
  if (name == "user") return Role::user;
  if (name == "command") return Role::command;
  if (name == "lease") return Role::lease;
  if (metric_by_name(name)) return Role::metric;
  return std::nullopt;
}

// Which column a choice means: by name (with or without its unit), else by number.
Result<std::size_t> find_column(const std::vector<Column>& columns, const std::vector<std::string>& raw,
                                std::string_view name, bool header) {
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (header && (columns[i].name == name || trim(raw[i]) == name)) return i;
  if (const auto number = to_unsigned(name); number && *number >= 1 && *number <= columns.size()) return *number - 1;
  std::vector<std::string_view> names;
  for (const Column& column : columns) names.push_back(column.name);
  return fail(fmt::format("the trace has no column '{}'{}; it has {}", printable(name),
                          header ? did_you_mean(name, names) : "", column_list(columns)));
}

Result<> apply_choice(const ColumnChoice& choice, Schema& schema, const std::vector<std::string>& raw) {
  const std::optional<Role> role = role_by_name(choice.role);
  const std::optional<Metric> metric = metric_by_name(choice.role);
  const std::vector<std::string_view> parts =
      role == Role::gpu ? split(choice.column, '+') : std::vector<std::string_view>{choice.column};
  // What was chosen replaces what the names suggested.
  for (Column& column : schema.columns)
    if (column.role == role && (role != Role::metric || column.metric == metric)) column.role = Role::none;
  if (role == Role::gpu)  // the choice alone tells GPUs apart
    for (Column& column : schema.columns)
      if (is_identity(column.role)) column.role = Role::none;
  if (role == Role::gpu && choice.column == "none") {
    schema.one_gpu = true;
    return {};
  }
  for (const std::string_view part : parts) {
    const std::size_t at =
        TRY(find_column(schema.columns, raw, trim(part), schema.header || schema.format == Format::ndjson));
    Column& column = schema.columns[at];
    column.role = role.value_or(Role::none);
    if (const auto unit = time_unit(choice.unit); unit && role == Role::time) schema.time = *unit;
    if (role != Role::metric || !metric) continue;
    column.metric = *metric;
    const std::string unit = choice.unit.empty() ? column.unit : choice.unit;
    const auto factor = unit.empty() ? std::optional(1.0) : unit_factor(info(column.metric).unit, unit);
    if (!factor && !choice.unit.empty())
      return fail(fmt::format("'{}' is not a unit of {}", printable(unit), info(column.metric).name));
    const auto known = meaning_of(column.name);
    if (!unit.empty() || !known) column.scale = factor.value_or(1);
    column.guessed_size = column.guessed_size && unit.empty();
    column.bare = unit.empty() && (!known || known->role != Role::metric || known->bare);
  }
  return {};
}

void guess_by_name(Schema& schema, std::vector<std::string>& units) {
  std::array<int, kMetrics> best{};
  best.fill(1000);
  std::array<int, kRoles> best_role{};
  best_role.fill(1000);
  for (std::size_t i = 0; i < schema.columns.size(); ++i) {
    Column& column = schema.columns[i];
    const auto row = meaning_of(column.name);
    if (!row) continue;
    int& rank =
        row->role == Role::metric ? best[index_of(row->metric)] : best_role[static_cast<std::size_t>(row->role)];
    if (row->rank >= rank) continue;
    for (Column& other : schema.columns)
      if (other.role == row->role && (row->role != Role::metric || other.metric == row->metric))
        other.role = Role::none;
    rank = row->rank;
    column.role = row->role;
    column.metric = row->metric;
    column.scale = row->scale;
    column.guessed_size = row->size_unclear && units[i].empty();
    column.bare = row->bare && units[i].empty();
    if (row->role == Role::metric && !units[i].empty())
      column.scale = unit_factor(info(row->metric).unit, units[i]).value_or(row->scale);
  }
  // xpu-smi's tiles and amd-smi's partitions have rows of their own.
  for (Column& column : schema.columns)
    if (column.name == "TileId" || column.name == "xcp") column.role = Role::gpu;
}

// "date" beside "time": together they are the time.
void join_date_and_time(Schema& schema, const std::vector<std::vector<std::string>>& rows) {
  std::optional<std::size_t> time;
  std::optional<std::size_t> date;
  for (std::size_t i = 0; i < schema.columns.size(); ++i) {
    if (schema.columns[i].role == Role::time) time = i;
    const auto meaning = meaning_of(schema.columns[i].name);
    if (schema.columns[i].role == Role::none && meaning && meaning->role == Role::time) date = i;
  }
  if (!time || !date || rows.empty() || rows[0].size() <= std::max(*time, *date)) return;
  const auto clock = read_any_time(rows[0][*time]);
  if (!clock || clock->dated || !read_any_time(rows[0][*date] + " " + rows[0][*time])) return;
  schema.columns[*date].role = Role::date;
}

// Gives every column that will be read its place.
void settle(Schema& schema, const std::vector<Metric>& wanted) {
  for (std::size_t i = 0; i < schema.columns.size(); ++i) {
    Column& column = schema.columns[i];
    column.wanted = column.role != Role::none;
    if (column.role == Role::metric) {
      column.wanted = std::find(wanted.begin(), wanted.end(), column.metric) != wanted.end();
      column.slot = schema.metrics.size();
      if (column.wanted) schema.metrics.push_back(column.metric);
      if (column.wanted) schema.doubtful.push_back(column.bare && column.unit.empty() ? column.name : "");
    } else if (is_identity(column.role) || is_owner(column.role)) {
      column.wanted = schema.identity.size() < kMaxIdentity;
      column.slot = schema.identity.size();
      if (column.wanted) schema.identity.push_back(column.role);
    }
    if (column.wanted) schema.last_wanted = i;
  }
}

Column* time_column(Schema& schema) {
  for (Column& column : schema.columns)
    if (column.role == Role::time) return &column;
  return nullptr;
}

constexpr std::string_view kOrSayEvery = " (or how far apart its samples are: --every 1s)";

bool looks_like_data(const std::vector<std::string>& cells) {
  return std::any_of(cells.begin(), cells.end(), [](const std::string& cell) {
    return looks_like_calendar(cell) || to_double(trim(cell)).has_value() ||
           (!trim(cell).empty() && means_unknown(cell));
  });
}

// What a cell says of how the times of this file are written; false: it is none.
bool learn_time(Schema& schema, const std::string& cell, bool time_given, DayOrder order) {
  if (looks_like_calendar(cell) && parse_time(cell, TimeKind::calendar)) {
    schema.time = TimeKind::calendar;
    const auto time = read_any_time(cell);
    schema.zoned = time && time->zone_minutes;
    schema.zone_minutes = schema.zoned ? *time->zone_minutes : 0;
    return true;
  }
  if (const auto number = to_double(trim(cell))) {
    if (!time_given) schema.time = kind_by_magnitude(*number);
    const auto ns = parse_time(cell, schema.time);
    schema.from_epoch = ns && *ns >= 100'000'000LL * 1'000'000'000;  // 1973: older than any telemetry
    return ns.has_value();
  }
  const auto time = read_any_time(cell, order);
  if (!time) return false;
  schema.time = order == DayOrder::day_first     ? TimeKind::day_first
                : order == DayOrder::month_first ? TimeKind::month_first
                                                 : TimeKind::words;
  schema.zoned = time->zone_minutes.has_value();
  schema.zone_minutes = time->zone_minutes.value_or(0);
  schema.from_epoch = time->dated && time->has_year;
  schema.wraps = !time->dated ? Schema::Wraps::each_day : time->has_year ? Schema::Wraps::no : Schema::Wraps::each_year;
  return true;
}

// "1024 MiB": the unit that the cells of a column carry.
void learn_unit(Column& column, std::string_view cell) {
  if (column.role != Role::metric || !column.unit.empty()) return;
  cell = trim(cell);
  const std::size_t blank = cell.find(' ');
  if (blank == std::string_view::npos || !to_double(cell.substr(0, blank))) return;
  const std::string_view unit = trim(cell.substr(blank));
  if (const auto factor = unit_factor(info(column.metric).unit, unit)) {
    column.unit = unit;
    column.unit_scale = *factor;
  }
}

// The kind of time, and the units in the cells, from the first rows that have them.
Result<> learn_from_rows(Schema& schema, const std::vector<std::vector<std::string>>& rows, bool time_given,
                         std::string_view time_unit_in_header) {
  const Column* const time = time_column(schema);
  const auto at = time == nullptr ? schema.columns.size() : static_cast<std::size_t>(time - schema.columns.data());
  std::size_t date = schema.columns.size();
  for (std::size_t i = 0; i < schema.columns.size(); ++i)
    if (schema.columns[i].role == Role::date) date = i;
  if (const auto kind = time_unit(time_unit_in_header); kind && !time_given) {
    schema.time = *kind;
    time_given = true;
  }
  DayOrder order = schema.time == TimeKind::day_first     ? DayOrder::day_first
                   : schema.time == TimeKind::month_first ? DayOrder::month_first
                                                          : DayOrder::unknown;
  for (const auto& row : rows)
    if (const std::size_t dated = date < row.size() ? date : at; order == DayOrder::unknown && dated < row.size())
      order = day_order_of(row[dated]);
  if (at < schema.columns.size() && order == DayOrder::unknown)
    for (const auto& row : rows)
      if (const std::string when = at < row.size() ? (date < row.size() ? row[date] + " " : "") + row[at] : "";
          is_unclear_day(when))
        return fail(
            fmt::format("'{0}': which is the day, which the month? say it: --columns 'time={1}:dmy' or "
                        "'time={1}:mdy'",
                        printable(when), printable(schema.columns[date < row.size() ? date : at].name)));
  bool known_time = false;
  std::vector<double> largest(schema.columns.size());
  for (const auto& row : rows) {
    if (!known_time && at < row.size())
      known_time = learn_time(schema, date < row.size() ? row[date] + " " + row[at] : row[at], time_given, order);
    for (std::size_t i = 0; i < std::min(row.size(), schema.columns.size()); ++i) {
      learn_unit(schema.columns[i], row[i]);
      const std::string_view cell = trim(row[i]);
      if (const auto number = to_double(cell)) largest[i] = std::max(largest[i], *number);
      // Decimal commas: one digit group that is not three long shows them.
      const std::size_t comma = cell.find(',');
      if (schema.columns[i].role == Role::metric && comma != std::string_view::npos && cell.find('.') == cell.npos &&
          cell.rfind(',') == comma) {
        const std::size_t end = std::min(cell.find_first_not_of("0123456789", comma + 1), cell.size());
        if (end - comma != 4) schema.decimal_comma = true;
      }
    }
  }
  for (std::size_t i = 0; i < schema.columns.size(); ++i)  // four million bytes are less than an empty card shows
    if (schema.columns[i].guessed_size && largest[i] < 4e6) schema.columns[i].scale = 1 << 20;
  if (date < schema.columns.size() && schema.time == TimeKind::calendar) schema.time = TimeKind::words;
  return {};
}

// As `lull record` writes them: its names for what it records as means, and its times (2024-03-15T11:04:29.052Z).
// Other tools may also have columns time, gpu and uuid.
bool are_our_rows(const Schema& schema, const std::vector<std::string>& raw,
                  const std::vector<std::vector<std::string>>& rows) {
  for (std::size_t i = 0; i < raw.size(); ++i)
    if (const Column& column = schema.columns[i]; column.role == Role::metric &&
                                                  (column.metric == Metric::util || column.metric == Metric::power) &&
                                                  raw[i] != info(column.metric).field)
      return false;
  constexpr std::string_view kOurTime = "0000-00-00T00:00:00.000Z";
  const auto kind = [](char c) { return c >= '0' && c <= '9' ? '0' : c; };
  return !rows.empty() && !rows[0].empty() && std::ranges::equal(rows[0][0], kOurTime, {}, kind);
}

// A command in a loop (rocm-smi --csv, amd-smi --csv) writes its header each time: three times, with each GPU at most
// once between them.
bool has_header_each_tick(const Schema& schema, const std::vector<std::string>& raw,
                          const std::vector<std::vector<std::string>>& rows) {
  std::size_t headers = 1;
  std::set<std::string> met;
  for (const auto& row : rows) {
    if (row == raw) {
      ++headers;
      met.clear();
      continue;
    }
    std::string gpu;
    for (std::size_t i = 0; i < std::min(row.size(), schema.columns.size()); ++i)
      if (is_identity(schema.columns[i].role)) gpu += row[i] + '\n';
    if (!met.insert(gpu).second) return false;
  }
  return headers > 2;
}

// A column called gpu that holds shares is what the GPU did, not which one it is.
void mind_the_percent(Schema& schema, const std::vector<std::vector<std::string>>& rows) {
  for (std::size_t i = 0; i < schema.columns.size(); ++i) {
    Column& column = schema.columns[i];
    if (column.role != Role::gpu || rows.empty() || rows[0].size() <= i || !trim(rows[0][i]).ends_with('%')) continue;
    const bool taken = std::any_of(schema.columns.begin(), schema.columns.end(), [](const Column& other) {
      return other.role == Role::metric && other.metric == Metric::util;
    });
    column.role = taken ? Role::none : Role::metric;
    column.metric = Metric::util;
  }
}

}  // namespace

bool is_identity(Role role) {
  return role == Role::gpu || role == Role::uuid || role == Role::pci || role == Role::host;
}

bool Schema::names_gpus() const { return !std::all_of(identity.begin(), identity.end(), is_owner); }

std::string column_list(const std::vector<Column>& columns) {
  std::string list;
  for (const Column& column : columns) {
    if (list.size() > 200) return list + ", …";
    list += (list.empty() ? "" : ", ") + printable(column.name);
  }
  return list;
}

Result<std::vector<ColumnChoice>> parse_columns(std::string_view text) {
  std::vector<ColumnChoice> choices;
  if (trim(text).empty()) return choices;
  for (const std::string_view item : split(text, ',')) {
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || trim(item.substr(equals + 1)).empty())
      return fail(fmt::format("--columns: '{}' is not ROLE=COLUMN, such as util=GPU_Util or time=ts:ms",
                              printable(trim(item))));
    ColumnChoice choice{std::string(trim(item.substr(0, equals))), std::string(trim(item.substr(equals + 1))), ""};
    if (!role_by_name(choice.role)) {
      std::vector<std::string_view> roles = {"time", "gpu", "uuid", "host", "job", "pids", "user", "command", "lease"};
      for (const MetricInfo& row : kMetricTable) roles.push_back(row.name);
      for (const MetricInfo& row : own_signals()) roles.push_back(row.name);
      return fail(fmt::format(
          "--columns: '{}' is neither time, gpu, uuid, host, job, pids, user, command, lease nor a signal{}",
          printable(choice.role), did_you_mean(choice.role, roles)));
    }
    if (const auto metric = metric_by_name(choice.role); metric && is_learned(*metric))
      return fail(fmt::format("--columns: {} is learned from util and power: name the columns of these", choice.role));
    if (const std::size_t colon = choice.column.rfind(':'); colon != std::string::npos && colon > 0) {
      const std::string unit(trim(std::string_view(choice.column).substr(colon + 1)));
      const auto metric = metric_by_name(choice.role);
      const bool fits = metric ? unit_factor(info(*metric).unit, unit).has_value()
                               : choice.role == "time" && time_unit(unit).has_value();
      if (fits) {
        choice.unit = unit;
        choice.column = trim(std::string_view(choice.column).substr(0, colon));
      }
    }
    if (choice.role != "gpu")
      for (const ColumnChoice& other : choices)
        if (other.role == choice.role) return fail(fmt::format("--columns: {} is given twice", choice.role));
    choices.push_back(std::move(choice));
  }
  return choices;
}

Result<Schema> detect_schema(std::string_view head, const std::vector<ColumnChoice>& choices,
                             const std::vector<Metric>& wanted, bool untimed) {
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  const std::vector<std::string_view> lines = data_lines_of(head);
  if (lines.empty()) return fail("it is empty");
  Schema schema;
  std::vector<std::string> raw;
  std::vector<std::string> units;
  std::vector<std::vector<std::string>> rows;
  if (lines[0].front() == '{') {
    schema.format = Format::ndjson;
    schema.header = false;
    raw = keys_of_lines(lines);
    for (const std::string_view line : lines) rows.push_back(cells_of_object(line, raw));
  } else {
    schema.separator = likely_separator(lines[0]);
    const auto first = split_line(lines[0], schema.separator);
    if (!first) return fail("line 1: a quote is not closed");
    schema.header = !looks_like_data(*first);
    raw = *first;
    for (const std::string_view line : lines)
      if (auto cells = split_line(line, schema.separator)) rows.push_back(std::move(*cells));
    if (schema.header) rows.erase(rows.begin());
  }
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const Heading heading =
        schema.header || schema.format == Format::ndjson ? heading_of(raw[i]) : Heading{fmt::format("{}", i + 1), ""};
    schema.columns.emplace_back().name = heading.name;
    units.push_back(heading.unit);
  }
  guess_by_name(schema, units);
  for (std::size_t i = 0; i < units.size(); ++i) schema.columns[i].unit = units[i];  // for apply_choice
  bool time_given = false;
  for (const ColumnChoice& choice : choices) {
    TRY(apply_choice(choice, schema, raw));
    if (choice.role == "time" && !choice.unit.empty()) time_given = true;
  }
  for (Column& column : schema.columns) column.unit.clear();
  if (schema.format == Format::ndjson)  // a key is looked up as it is
    for (std::size_t i = 0; i < raw.size(); ++i) schema.columns[i].name = raw[i];
  mind_the_percent(schema, rows);
  const Column* const time = time_column(schema);
  if (time == nullptr && !untimed) {
    const bool headless = !schema.header && schema.format == Format::csv;
    if (headless)
      return fail(fmt::format("it has no header: say what its {} columns are, such as --columns time=1,gpu=2,util=3{}",
                              schema.columns.size(), kOrSayEvery));
    return fail(fmt::format("no column is the time: say which, such as --columns time=ts,gpu=id,util=u{}; it has {}",
                            kOrSayEvery, column_list(schema.columns)));
  }
  schema.timed = time != nullptr;
  schema.header_each_tick = schema.header && has_header_each_tick(schema, raw, rows);
  if (schema.timed && choices.empty()) join_date_and_time(schema, rows);
  std::string_view unit;  // of the time
  if (time != nullptr) unit = units[static_cast<std::size_t>(time - schema.columns.data())];
  TRY(learn_from_rows(schema, rows, time_given, unit.empty() && time != nullptr ? unit_in_name(time->name) : unit));
  const bool our_keys = raw.size() > 2 && raw[0] == "time" && raw[1] == "gpu" && raw[2] == "uuid";
  schema.ours = our_keys && schema.format == Format::csv;
  schema.means = our_keys && are_our_rows(schema, raw, rows);
  settle(schema, wanted);
  return schema;
}

}  // namespace lull::trace
