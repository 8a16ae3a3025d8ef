#include "trace/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "base/units.h"
#include "trace/ndjson.h"
#include "trace/number.h"

namespace lull::trace {
namespace {

struct KnownName {
  std::string_view name;
  Role role;
  Metric metric{};
  int rank = 0;  // of several columns for one signal the lowest rank is read
};

// Names that mean something of themselves. nvidia-smi's are those of --query-gpu.
constexpr std::array kKnownNames = {
    KnownName{"time", Role::time},
    KnownName{"timestamp", Role::time, {}, 1},
    KnownName{"gpu", Role::gpu},
    KnownName{"index", Role::gpu, {}, 1},
    KnownName{"uuid", Role::uuid},
    KnownName{"gpu_uuid", Role::uuid, {}, 1},
    KnownName{"pci.bus_id", Role::pci},
    KnownName{"gpu_bus_id", Role::pci, {}, 1},
    KnownName{"host", Role::host},
    KnownName{"hostname", Role::host, {}, 1},
    KnownName{"job", Role::job},
    KnownName{"job_id", Role::job, {}, 1},
    KnownName{"jobid", Role::job, {}, 2},
    KnownName{"slurm_job_id", Role::job, {}, 3},
    KnownName{"pids", Role::pids},
    KnownName{"pid", Role::pids, {}, 1},
    KnownName{"users", Role::user},
    KnownName{"user", Role::user, {}, 1},
    KnownName{"owners", Role::user, {}, 2},
    KnownName{"owner", Role::user, {}, 3},
    KnownName{"username", Role::user, {}, 4},
    KnownName{"command", Role::command},
    KnownName{"commands", Role::command, {}, 1},
    KnownName{"lease", Role::lease},
    KnownName{"utilization.gpu", Role::metric, Metric::util, 2},
    KnownName{"utilization.memory", Role::metric, Metric::mem_util, 2},
    KnownName{"memory.used", Role::metric, Metric::mem_used, 2},
    KnownName{"memory.free", Role::metric, Metric::mem_free, 2},
    KnownName{"memory.total", Role::metric, Metric::mem_total, 2},
    KnownName{"power.draw.average", Role::metric, Metric::power, 2},
    KnownName{"power.draw", Role::metric, Metric::power, 3},
    KnownName{"power.draw.instant", Role::metric, Metric::power, 4},
    KnownName{"enforced.power.limit", Role::metric, Metric::power_limit, 2},
    KnownName{"power.limit", Role::metric, Metric::power_limit, 3},
    KnownName{"temperature.gpu", Role::metric, Metric::temp, 2},
    KnownName{"clocks.sm", Role::metric, Metric::clock, 2},
    KnownName{"clocks.current.sm", Role::metric, Metric::clock, 3},
    KnownName{"clocks.gr", Role::metric, Metric::clock, 4},
    KnownName{"clocks.current.graphics", Role::metric, Metric::clock, 5},
    KnownName{"fan.speed", Role::metric, Metric::fan, 2},
};

std::optional<KnownName> known(std::string_view name) {
  for (const KnownName& row : kKnownNames)
    if (row.name == name) return row;
  if (const auto metric = metric_by_field(name)) return KnownName{name, Role::metric, *metric, 0};
  if (const auto metric = metric_by_name(name)) return KnownName{name, Role::metric, *metric, 1};
  return std::nullopt;
}

// "memory.used [MiB]" -> the name and the unit that nvidia-smi's header gives.
struct Heading {
  std::string name;
  std::string unit;
};
Heading heading_of(std::string_view cell) {
  cell = trim(cell);
  const std::size_t open = cell.rfind('[');
  if (open != std::string_view::npos && open > 0 && cell.ends_with(']'))
    return {std::string(trim(cell.substr(0, open))), std::string(trim(cell.substr(open + 1, cell.size() - open - 2)))};
  return {std::string(cell), ""};
}

bool is_identity(Role role) {
  return role == Role::gpu || role == Role::uuid || role == Role::pci || role == Role::host;
}
bool is_part_of_identity(Role role) { return is_identity(role) || tells_who(role); }

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

std::string column_list(const std::vector<Column>& columns) {
  std::string list;
  for (const Column& column : columns) {
    if (list.size() > 200) return list + ", …";
    list += (list.empty() ? "" : ", ") + printable(column.name);
  }
  return list;
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
  if (role == Role::gpu && choice.column == "none") return {};
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
      return fail(fmt::format("'{}' is no unit of {}", printable(unit), info(column.metric).name));
    column.scale = factor.value_or(1);
  }
  return {};
}

void guess_by_name(Schema& schema, std::vector<std::string>& units) {
  std::array<int, kMetrics> best{};
  best.fill(1000);
  std::array<int, 16> best_role{};
  best_role.fill(1000);
  for (std::size_t i = 0; i < schema.columns.size(); ++i) {
    Column& column = schema.columns[i];
    const auto row = known(column.name);
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
    if (row->role == Role::metric && !units[i].empty())
      column.scale = unit_factor(info(row->metric).unit, units[i]).value_or(1);
  }
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
    } else if (is_part_of_identity(column.role)) {
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

bool looks_like_data(const std::vector<std::string>& cells) {
  return std::any_of(cells.begin(), cells.end(), [](const std::string& cell) {
    return looks_like_calendar(cell) || to_double(trim(cell)).has_value() || means_unknown(cell);
  });
}

char likely_separator(std::string_view line) {
  char best = ',';
  auto most = std::count(line.begin(), line.end(), ',');
  for (const char candidate : {';', '\t'})
    if (const auto count = std::count(line.begin(), line.end(), candidate); count > most) {
      most = count;
      best = candidate;
    }
  return best;
}

std::vector<std::string_view> lines_of(std::string_view head) {
  std::vector<std::string_view> lines;
  while (!head.empty() && lines.size() < 1000) {
    const std::size_t end = std::min(head.find('\n'), head.size());
    if (const std::string_view line = trim(head.substr(0, end)); !line.empty()) lines.push_back(line);
    head.remove_prefix(std::min(end + 1, head.size()));
  }
  return lines;
}

// The kind of time, and the units in the cells, from the first rows that have them.
void learn_from_rows(Schema& schema, const std::vector<std::vector<std::string>>& rows, bool time_given,
                     std::string_view time_unit_in_header) {
  const Column* time = time_column(schema);
  const auto at = static_cast<std::size_t>(time - schema.columns.data());
  bool known_time = false;
  if (const auto kind = time_unit(time_unit_in_header); kind && !time_given) {
    schema.time = *kind;
    time_given = true;
  }
  for (const auto& row : rows) {
    if (!known_time && at < row.size()) {
      const auto number = to_double(trim(row[at]));
      if (looks_like_calendar(row[at])) {
        schema.time = TimeKind::calendar;
        schema.zoned = has_zone(row[at]);
        known_time = true;
      } else if (number) {
        if (!time_given) schema.time = kind_by_magnitude(*number);
        const auto ns = parse_time(row[at], schema.time);
        schema.from_epoch = ns && *ns >= 100'000'000LL * 1'000'000'000;  // 1973: nobody has telemetry of then
        known_time = ns.has_value();
      }
    }
    for (std::size_t i = 0; i < std::min(row.size(), schema.columns.size()); ++i) {
      Column& column = schema.columns[i];
      if (column.role != Role::metric || !column.unit.empty()) continue;
      const std::string_view cell = trim(row[i]);
      const std::size_t blank = cell.find(' ');
      if (blank == std::string_view::npos || !to_double(cell.substr(0, blank))) continue;
      const std::string_view unit = trim(cell.substr(blank));
      if (const auto factor = unit_factor(info(column.metric).unit, unit)) {
        column.unit = unit;
        column.unit_scale = *factor;
      }
    }
  }
}

}  // namespace

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
      return fail(fmt::format(
          "--columns: '{}' is neither time, gpu, uuid, host, job, pids, user, command, lease nor a signal{}",
          printable(choice.role), did_you_mean(choice.role, roles)));
    }
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

std::optional<double> unit_factor(Unit of_metric, std::string_view unit) {
  switch (of_metric) {
    case Unit::percent:
      if (unit == "%" || unit == "percent" || unit == "pct") return 1;
      if (unit == "fraction" || unit == "ratio") return 100;
      return std::nullopt;
    case Unit::bytes:
    case Unit::bytes_per_second: {
      if (of_metric == Unit::bytes_per_second && unit.ends_with("/s")) unit.remove_suffix(2);
      const double worth = size_unit(unit);
      return worth > 0 ? std::optional(worth) : std::nullopt;
    }
    case Unit::watts:
      if (unit == "W") return 1;
      if (unit == "mW") return 1e-3;
      if (unit == "kW") return 1e3;
      return std::nullopt;
    case Unit::celsius: return unit == "C" || unit == "°C" ? std::optional(1.0) : std::nullopt;
    case Unit::megahertz:
      if (unit == "MHz") return 1;
      if (unit == "GHz") return 1e3;
      if (unit == "kHz") return 1e-3;
      if (unit == "Hz") return 1e-6;
      return std::nullopt;
    case Unit::seconds: {
      const double worth = duration_unit(unit);
      return worth > 0 ? std::optional(worth / 1e9) : std::nullopt;
    }
    case Unit::count:
    case Unit::none: return std::nullopt;
  }
  return std::nullopt;
}

bool means_unknown(std::string_view cell) {
  cell = trim(cell);
  if (cell.empty() || (cell.front() == '[' && cell.back() == ']')) return true;
  constexpr std::array<std::string_view, 12> kWords = {"N/A", "n/a",  "NA",   "nan",  "NaN",           "NAN",
                                                       "-",   "null", "None", "ERR!", "Not Supported", "Unknown Error"};
  return std::find(kWords.begin(), kWords.end(), cell) != kWords.end();
}

std::optional<std::vector<std::string>> split_line(std::string_view line, char separator) {
  std::vector<std::string> cells;
  for (;;) {
    while (!line.empty() && (line.front() == ' ' || (line.front() == '\t' && separator != '\t'))) line.remove_prefix(1);
    if (!line.empty() && line.front() == '"') {
      line.remove_prefix(1);
      std::string cell;
      for (;;) {
        const std::size_t quote = line.find('"');
        if (quote == std::string_view::npos) return std::nullopt;
        cell += line.substr(0, quote);
        line.remove_prefix(quote + 1);
        if (line.empty() || line.front() != '"') break;
        cell += '"';
        line.remove_prefix(1);
      }
      const std::size_t end = std::min(line.find(separator), line.size());
      if (!trim(line.substr(0, end)).empty()) return std::nullopt;  // text after the closing quote
      cells.emplace_back(trim(cell));
      if (end == line.size()) return cells;
      line.remove_prefix(end + 1);
      continue;
    }
    const std::size_t end = std::min(line.find(separator), line.size());
    cells.emplace_back(trim(line.substr(0, end)));
    if (end == line.size()) return cells;
    line.remove_prefix(end + 1);
  }
}

std::optional<float> parse_cell(std::string_view cell, const Column& column) {
  cell = trim(cell);
  if (means_unknown(cell)) return kUnknownSample;
  if (column.metric == Metric::pstate && (cell.front() == 'P' || cell.front() == 'p')) cell.remove_prefix(1);
  if (!cell.empty() && cell.front() == '+') cell.remove_prefix(1);
  const std::size_t end = std::min(cell.find_first_not_of("0123456789.eE+-"), cell.size());
  const auto number = to_double(cell.substr(0, end));
  if (!number) return std::nullopt;
  const std::string_view unit = trim(cell.substr(end));
  double scale = column.scale;
  if (!unit.empty()) {
    const auto factor = unit_factor(info(column.metric).unit, unit);
    if (!factor) return std::nullopt;
    scale = *factor;
  }
  if (!(std::abs(*number * scale) <= std::numeric_limits<float>::max())) return std::nullopt;
  return static_cast<float>(*number * scale);
}

Result<Schema> detect_schema(std::string_view head, const std::vector<ColumnChoice>& choices,
                             const std::vector<Metric>& wanted) {
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  const std::vector<std::string_view> lines = lines_of(head);
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
  const Column* const time = time_column(schema);
  if (time == nullptr) {
    if (!schema.header && schema.format == Format::csv)
      return fail(fmt::format("it has no header: say what its {} columns are, such as --columns time=1,gpu=2,util=3",
                              schema.columns.size()));
    return fail(fmt::format("no column is the time: say which, such as --columns time=ts,gpu=id,util=u; it has {}",
                            column_list(schema.columns)));
  }
  learn_from_rows(schema, rows, time_given, units[static_cast<std::size_t>(time - schema.columns.data())]);
  schema.ours =
      schema.format == Format::csv && raw.size() > 2 && raw[0] == "time" && raw[1] == "gpu" && raw[2] == "uuid";
  settle(schema, wanted);
  return schema;
}

}  // namespace lull::trace
