#include "trace/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "trace/cells.h"
#include "trace/csv.h"
#include "trace/ndjson.h"

namespace lull::trace {
namespace {

// For one CSV out of another: a quote inside a cell is written twice.
std::string quoted(std::string_view cell) {
  std::string text;
  for (const char c : cell) {
    if (c == '"') text += '"';
    text += c == '\n' ? ' ' : c;
  }
  return text;
}

bool is_table(std::string_view, const ReadHow&) { return true; }

Result<Schema> open_table(std::string_view head, const ReadHow& how) {
  Schema schema = TRY(detect_schema(head, how.columns, how.wanted, how.every));
  if (!schema.timed && !schema.names_gpus() && !schema.one_gpu)
    return fail(
        fmt::format("neither the time nor the GPU of a row is known: name the GPU's column (--columns gpu=NAME), or "
                    "say that there is one GPU (--columns gpu=none); it has {}",
                    column_list(schema.columns)));
  schema.in_turn = !schema.timed;
  return schema;
}

std::unique_ptr<RowParser> table_parser(const Schema& schema) {
  if (schema.format == Format::ndjson) return std::make_unique<NdjsonParser>(schema);
  return std::make_unique<CsvParser>(schema);
}

const TraceFormat kTable{"CSV or NDJSON", is_table, open_table, table_parser, true};

// The first that recognises a file reads it; anything with columns is a table.
const std::array kFormats = {
    &kSmiTable,  &kDmon,    &kPmon,        &kDcgmi, &kTegrastats, &kNpuSmi, &kPrometheus,
    &kSnapshots, &kAmdJson, &kIntelGpuTop, &kLong,  &kWide,       &kTable,
};

// What we cannot read, and what would help.
struct Stranger {
  std::string_view begins;  // its first bytes…
  std::string_view within;  // …or a word near its beginning
  std::string_view what;
  std::string_view advice;
};
constexpr std::string_view kQueryAdvice =
    "record with: nvidia-smi --query-gpu=timestamp,index,utilization.gpu,power.draw,memory.used --format=csv -l 5";
constexpr std::array kStrangers = {
    Stranger{"PK\x03\x04", "", "a ZIP archive or an Excel sheet", "unpack it, or save the sheet as CSV"},
    Stranger{"PAR1", "", "Parquet", "write it as CSV: duckdb -c \"COPY 'FILE' TO 'FILE.csv'\""},
    Stranger{"ARROW1", "", "Arrow or Feather", "write it as CSV with pandas: read_feather(…).to_csv(…)"},
    Stranger{"SQLite format 3", "", "an SQLite database",
             "write the table as CSV: sqlite3 -csv -header FILE 'select …'"},
    Stranger{"\x93NUMPY", "", "a NumPy array", "write it as CSV with a header"},
    Stranger{"\x89HDF", "", "HDF5", "write it as CSV"},
    Stranger{"7z\xBC\xAF", "", "a 7-Zip archive", "unpack it"},
    Stranger{"\x04\x22\x4D\x18", "", "lz4", "unpack it: lz4 -d FILE"},
    Stranger{"\x7F"
             "ELF",
             "", "a program", ""},
    Stranger{"%PDF", "", "a PDF", ""},
    Stranger{"\xFF\xFE", "", "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8 FILE"},
    Stranger{"\xFE\xFF", "", "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8 FILE"},
    Stranger{"<?xml", "nvidia_smi_log", "nvidia-smi -q -x (XML)", kQueryAdvice},
    Stranger{"<!DOCTYPE html", "", "an HTML page", "save the data, not the page"},
    Stranger{"<html", "", "an HTML page", "save the data, not the page"},
    Stranger{"", "==============NVSMI LOG==============", "nvidia-smi -q", kQueryAdvice},
    Stranger{"", "# HELP DCGM_", "one scrape of dcgm-exporter, which has no history",
             "ask Prometheus: curl 'HOST:9090/api/v1/query_range?query=DCGM_FI_DEV_GPU_UTIL&start=…&end=…&step=15s'"},
    Stranger{"", "# TYPE ", "one scrape of an exporter, which has no history",
             "ask Prometheus: curl 'HOST:9090/api/v1/query_range?query=…&start=…&end=…&step=15s'"},
    Stranger{"NVIDIA-SMI has failed", "", "an error of nvidia-smi instead of its readings", ""},
    Stranger{"Failed to initialize NVML", "", "an error of nvidia-smi instead of its readings", ""},
    Stranger{"No devices were found", "", "an error of nvidia-smi instead of its readings", ""},
};

// Text has them in long runs alone, where a crash left a hole.
bool has_lone_nul(std::string_view text) {
  constexpr std::size_t kHole = 8;
  for (std::size_t at = text.find('\0'); at != std::string_view::npos; at = text.find('\0', at)) {
    const std::size_t end = std::min(text.find_first_not_of('\0', at), text.size());
    if (end - at < kHole && end < text.size()) return true;
    at = end;
  }
  return false;
}

// Lines of words, of which no two have the same shape.
bool is_prose(std::string_view head) {
  const auto lines = data_lines_of(head);
  if (lines.empty() || lines[0].starts_with('{')) return false;
  std::string_view first = lines[0];
  const bool stamped = first.starts_with('[') || take_any_time(first, DayOrder::month_first).has_value();
  return stamped && split_line(first, likely_separator(lines[0])).value_or(std::vector<std::string>{}).size() < 2;
}

bool is_json_array(std::string_view head) {
  head = trim(head);
  if (!head.starts_with('[')) return false;
  head = trim(head.substr(1));
  return head.empty() || std::string_view("{[\"]").find(head.front()) != std::string_view::npos;
}

std::optional<Error> stranger(std::string_view head) {
  const std::string_view start = head.substr(0, 4096);
  const auto says = [](const Stranger& one) {
    return Error{fmt::format("it looks like {}, which lull cannot read{}{}", one.what, one.advice.empty() ? "" : "; ",
                             one.advice)};
  };
  for (const Stranger& one : kStrangers) {
    const std::string_view first = trim(start).substr(0, one.begins.size());
    const bool page = one.begins.starts_with('<');  // HTML is case-insensitive
    const bool begins = !one.begins.empty() && (page ? lowered(first) == lowered(one.begins) : first == one.begins);
    const bool within = !one.within.empty() && start.find(one.within) != std::string_view::npos;
    if (one.begins.empty() ? within : begins) return says(one);
  }
  if (start.size() > 262 && start.substr(257, 5) == "ustar")
    return says({"", "", "a tar archive", "unpack it and give the files in it"});
  if (has_lone_nul(start)) return says({"", "", "binary data", "give it as CSV or NDJSON"});
  return std::nullopt;
}

bool is_object(std::string_view line) { return line.front() == '{'; }

std::vector<std::string> names_in(const std::vector<std::string_view>& lines) {
  if (is_object(lines[0])) return keys_of_lines(lines);
  return split_line(lines[0], likely_separator(lines[0])).value_or(std::vector<std::string>{});
}

}  // namespace

std::span<const TraceFormat* const> formats() { return kFormats; }

Result<Schema> recognise(std::string_view given, const ReadHow& how) {
  std::string text(given);
  std::string_view head = text;
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  if (trim(head).empty()) return fail("it is empty");
  if (auto strange = stranger(head)) return std::unexpected(*std::move(strange));
  std::ranges::replace(text, '\0', ' ');  // as chunks have them (trace/bytes.h)
  for (const TraceFormat* const one : kFormats) {
    const TraceFormat& format = *one;
    if (!format.recognise(head, how)) continue;
    if (&format == &kTable && is_json_array(head))
      return fail(
          "it looks like one JSON array, which lull cannot read; put each element on a line of its own: jq -c '.[]' "
          "FILE");
    if (&format == &kTable && is_prose(head))
      return fail(fmt::format("it looks like a log of free text, which lull cannot read; {}", kQueryAdvice));
    const bool only_order = std::ranges::all_of(how.columns, [](const ColumnChoice& choice) {
      return choice.role == "time" && (choice.unit == "dmy" || choice.unit == "mdy");
    });
    if (!format.takes_columns && !only_order)
      return fail(
          fmt::format("this is {}, whose columns are known: --columns is for CSV, NDJSON and Prometheus", format.name));
    Schema schema = TRY(format.open(head, how));
    schema.reads_as = &format;
    if (!schema.timed && !how.every)
      return fail(
          fmt::format("this is {} without times: say how far apart its samples are, such as --every 1s", format.name));
    return schema;
  }
  return fail("it looks like no trace");
}

std::unique_ptr<RowParser> make_parser(const Schema& schema) {
  return schema.reads_as == nullptr ? table_parser(schema) : schema.reads_as->parser(schema);
}

TableHead table_head(std::string_view head) {
  TableHead table;
  const auto lines = data_lines_of(head);
  if (lines.empty()) return table;
  table.names = names_in(lines);
  table.json = is_object(lines[0]);
  if (table.json) {
    for (const std::string_view line : lines) table.rows.push_back(cells_of_object(line, table.names));
    return table;
  }
  table.separator = likely_separator(lines[0]);
  for (const std::string_view line : lines)
    if (auto cells = split_line(line, table.separator)) table.rows.push_back(std::move(*cells));
  if (!table.rows.empty()) table.rows.erase(table.rows.begin());
  return table;
}

std::vector<std::string> table_names(std::string_view head) {
  const auto lines = data_lines_of(head);
  return lines.empty() ? std::vector<std::string>{} : names_in(lines);
}

std::optional<std::vector<std::string>> cells_in(std::string_view line, const Schema& schema) {
  if (schema.format == Format::csv) return split_line(line, schema.separator);
  std::vector<std::string> names;
  for (const Column& column : schema.columns) names.push_back(column.name);
  if (!trim(line).ends_with('}')) return std::nullopt;
  return cells_of_object(line, names);
}

std::optional<float> series_cell(std::string_view cell, const Meaning& meaning, bool decimal_comma) {
  Column column;
  column.metric = meaning.metric;
  cell = trim(cell);
  const bool bare = !cell.empty() && cell.find_first_not_of("0123456789.,eE+-") == std::string_view::npos;
  const auto number = parse_cell(cell, column, decimal_comma);
  if (!number || !bare) return number;
  return sample_of(meaning, *number);
}

Result<std::size_t> time_of_table(const TableHead& table, const ReadHow& how, Schema& schema) {
  // The rest of the table is none of detect_schema's business.
  std::vector<ColumnChoice> choices;
  for (const ColumnChoice& choice : how.columns)
    if (choice.role == "time") choices.push_back(choice);
  std::string text;
  for (std::size_t i = 0; i < table.names.size(); ++i)
    text += fmt::format("{}\"{}\"", i == 0 ? "" : ",", quoted(table.names[i]));
  for (const auto& row : table.rows) {
    text += '\n';
    for (std::size_t i = 0; i < row.size(); ++i) text += fmt::format("{}\"{}\"", i == 0 ? "" : ",", quoted(row[i]));
  }
  text += '\n';
  const Schema as_csv = TRY(detect_schema(text, choices, {}));
  schema.time = as_csv.time;
  schema.zoned = as_csv.zoned;
  schema.zone_minutes = as_csv.zone_minutes;
  schema.from_epoch = as_csv.from_epoch;
  schema.wraps = as_csv.wraps;
  for (const auto& row : table.rows)
    for (const std::string& cell : row) {
      const std::size_t comma = cell.find(',');
      if (comma == std::string::npos || cell.find('.') != std::string::npos || cell.rfind(',') != comma) continue;
      const std::size_t end = std::min(cell.find_first_not_of("0123456789", comma + 1), cell.size());
      if (comma > 0 && end - comma != 4 && cell.find_first_not_of("-0123456789") == comma) schema.decimal_comma = true;
    }
  for (std::size_t i = 0; i < as_csv.columns.size(); ++i)
    if (as_csv.columns[i].role == Role::time) return i;
  return fail("no column is the time");
}

Result<> only_signals(const ReadHow& how, std::string_view format) {
  for (const ColumnChoice& choice : how.columns)
    if (choice.role != "time" && !metric_by_name(choice.role))
      return fail(
          fmt::format("--columns {}={} cannot be obeyed: this is {}, where only the time and signals are chosen",
                      choice.role, printable(choice.column), format));
  return {};
}

Schema schema_of_samples(const std::vector<Metric>& wanted) {
  Schema schema;
  schema.in_turn = true;
  schema.identity = kGpuNameRoles;
  for (const Metric metric : wanted)
    if (info(metric).of == Of::gpu) schema.metrics.push_back(metric);
  return schema;
}

void take_kind_of_time(Schema& schema, const std::optional<AnyTime>& time) {
  schema.timed = time.has_value();
  schema.zoned = time && time->zone_minutes;
  schema.zone_minutes = time ? time->zone_minutes.value_or(0) : 0;
  schema.from_epoch = time && time->dated && time->has_year;
  if (time && !time->has_year) schema.wraps = time->dated ? Schema::Wraps::each_year : Schema::Wraps::each_day;
}

void keep_signals(Schema& schema, std::span<const Metric> there) {
  std::erase_if(schema.metrics, [&](Metric metric) { return std::ranges::find(there, metric) == there.end(); });
}

void take_signals(Schema& schema, std::span<const Metric> there) {
  keep_signals(schema, there);
  for (const Metric metric : there) schema.columns.emplace_back().name = info(metric).name;
}

void set_signal(const Schema& schema, Metric metric, std::string_view word, std::size_t row, Batch& batch,
                double scale) {
  Column column;
  column.metric = metric;
  column.scale = scale;
  if (const std::size_t slot = slot_of(schema, metric); slot != kNoSlot)
    batch.value[slot][row] = parse_cell(word, column).value_or(kUnknownSample);
}

std::size_t slot_of(const Schema& schema, Metric metric) {
  const auto at = std::find(schema.metrics.begin(), schema.metrics.end(), metric);
  return at == schema.metrics.end() ? kNoSlot : static_cast<std::size_t>(at - schema.metrics.begin());
}

}  // namespace lull::trace
