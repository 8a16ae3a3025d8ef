#include "sim/trace_csv.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "base/text.h"
#include "trace/cells.h"
#include "trace/time.h"

namespace lull::sim {
namespace {

struct Field {
  std::string_view name;
  Metric metric;
  double share = 1;
};
constexpr std::array kFields = {
    Field{"util_percent", Metric::util},
    Field{"mem_util_percent", Metric::mem_util},
    Field{"mem_used_bytes", Metric::mem_used},
    Field{"power_watts", Metric::power},
    Field{"power_limit_watts", Metric::power_limit},
    Field{"temp_celsius", Metric::temp},
    Field{"clock_mhz", Metric::clock},
    Field{"pstate", Metric::pstate},
    Field{"fan_percent", Metric::fan},
    Field{"sm_active_percent", Metric::sm},
    Field{"tensor_active_percent", Metric::tensor},
    Field{"dram_active_percent", Metric::dram},
    Field{"pcie_bytes_per_second", Metric::pcie_rx, 0.5},
    Field{"pcie_bytes_per_second", Metric::pcie_tx, 0.5},
};

constexpr std::size_t kMaxTracePoints = 1'000'000;

struct Column {
  Field field;
  std::size_t index;
};

// Where in a row to find what we need.
struct Layout {
  std::size_t time = 0;
  bool calendar = false;           // RFC 3339, not seconds
  std::optional<std::size_t> gpu;  // no such column: every row is of GPU 0
  std::vector<Column> columns;
};

Result<Layout> read_header(const std::vector<std::string>& cells, std::string_view name) {
  Layout layout;
  bool timed = false;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i] == "time" || cells[i] == "time_seconds") {
      timed = true;
      layout.time = i;
      layout.calendar = cells[i] == "time";
    }
    if (cells[i] == "gpu") layout.gpu = i;
    for (const Field& field : kFields)
      if (cells[i] == field.name) layout.columns.push_back({field, i});
  }
  if (!timed)
    return fail(
        fmt::format("{}:1: no column for the time: the header needs time (RFC 3339) or time_seconds", printable(name)));
  if (layout.columns.empty())
    return fail(
        fmt::format("{}:1: no column with readings: util_percent, power_watts, mem_used_bytes … are", printable(name)));
  return layout;
}

std::optional<Duration> read_time(std::string_view cell, bool calendar) {
  calendar = calendar && trace::looks_like_calendar(cell);
  const auto time = trace::parse_time(cell, calendar ? trace::TimeKind::calendar : trace::TimeKind::seconds);
  if (!time) return std::nullopt;
  return Duration(*time);
}

// Adds what this row changes: a value that stays the same needs no step.
Result<> read_row(const std::vector<std::string>& cells, const Layout& layout, Duration at,
                  std::array<double, kMetrics>& last, std::vector<Point>& points) {
  for (const Column& column : layout.columns) {
    const std::string_view cell = column.index < cells.size() ? std::string_view(cells[column.index]) : "";
    double number = kUnsupported;
    if (!trace::means_unknown(cell)) {
      const auto parsed = to_double(cell);
      if (!parsed) return fail(fmt::format("'{}' in column {} is not a number", printable(cell), column.field.name));
      number = *parsed * column.field.share;
      TRY(check_value(value_info(column.field.metric), number));
    }
    double& before = last[static_cast<std::size_t>(column.field.metric)];
    if (number == before) continue;
    before = number;
    points.push_back({at, {}, column.field.metric, number});
  }
  return {};
}

}  // namespace

Result<std::vector<Point>> read_trace_csv(std::string_view text, std::string_view name, std::size_t gpu) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::optional<Layout> layout;
  std::optional<Duration> start;
  Duration previous{};
  std::array<double, kMetrics> last;
  last.fill(-std::numeric_limits<double>::infinity());  // equal to nothing that a row may say
  std::vector<Point> points;
  std::size_t number = 0;
  for (const std::string_view raw : split(text, '\n')) {
    ++number;
    const std::string_view line = trim(raw);
    if (line.empty() || line.front() == '#') continue;
    const auto refuse = [&](std::string_view what) {
      return fail(fmt::format("{}:{}: {}", printable(name), number, what));
    };
    const auto split_up = trace::split_line(line, ',');
    if (!split_up) return refuse("a quote is not closed");
    const std::vector<std::string>& cells = *split_up;
    if (!layout) {
      layout = TRY(read_header(cells, name));
      continue;
    }
    const auto time = layout->time < cells.size() ? read_time(cells[layout->time], layout->calendar) : std::nullopt;
    if (!time)
      return refuse(layout->calendar ? "no time: RFC 3339 would be right, such as 2024-03-15T11:04:29Z"
                                     : "no time: seconds would be right, such as 12.5");
    if (!start) start = previous = *time;  // the trace begins at its first row, whichever GPU that is of
    if (*time < previous) return refuse("this row is earlier than the one before it");
    previous = *time;
    if (layout->gpu) {
      const auto index = *layout->gpu < cells.size() ? to_unsigned(cells[*layout->gpu]) : std::nullopt;
      if (!index) return refuse("no GPU: its number would be right, such as 0");
      if (*index != gpu) continue;
    } else if (gpu != 0) {
      break;
    }
    if (const auto row = read_row(cells, *layout, *time - *start, last, points); !row) return refuse(row.error().what);
    if (points.size() > kMaxTracePoints) return refuse("more than a million changes: cut the trace into parts");
  }
  if (points.empty()) return fail(fmt::format("{}: nothing about GPU {} in it", printable(name), gpu));
  return points;
}

}  // namespace lull::sim
