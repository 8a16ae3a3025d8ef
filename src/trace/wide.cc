// Tables with columns for each GPU: Grafana's "series joined by time", exports of Weights &
// Biases, what scripts write (time, gpu0_util, gpu0_power, gpu1_util, …), as CSV or as an
// object on each line. A column's name says which GPU and what; where it names the GPU
// alone, --columns 'util=GPU *' says what is measured, and * is the GPU.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "trace/cells.h"
#include "trace/format.h"
#include "trace/names.h"

namespace lull::trace {
namespace {

class WideParser final : public LineParser {
 public:
  explicit WideParser(const Schema& schema);

 private:
  struct Source {
    std::size_t column;
    std::size_t slot;
    Meaning meaning;
  };
  struct Gpu {
    GpuName name;
    std::vector<Source> sources;
  };
  // The last line may well lack its end: a page that offers a download often leaves it out.
  void line(std::string_view text, std::uint64_t number, bool cut, Batch& batch) override;

  std::size_t time_ = 0;
  std::vector<Gpu> gpus_;
};

bool names_a_gpu(const GpuName& gpu) { return !gpu.gpu.empty() || !gpu.uuid.empty(); }

// What "GPU *" stands for in "GPU 3"; nothing where the name does not fit.
std::optional<std::string> star_in(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return std::nullopt;
  const std::string_view before = pattern.substr(0, star);
  const std::string_view after = pattern.substr(star + 1);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
    return std::nullopt;
  return std::string(name.substr(before.size(), name.size() - before.size() - after.size()));
}

// By --columns, else by the name itself.
SeriesName series_in(std::string_view name, const std::vector<ColumnChoice>& choices) {
  for (const ColumnChoice& choice : choices) {
    const auto metric = metric_by_name(choice.role);
    const auto star = metric ? star_in(choice.column, name) : std::nullopt;
    if (!star) continue;
    SeriesName series = series_of(name);  // it may tell the machine as well
    const double scale = choice.unit.empty() ? 1 : unit_factor(info(*metric).unit, choice.unit).value_or(1);
    const bool bare = choice.unit.empty() && (!series.meaning || series.meaning->bare);
    series.meaning =
        Meaning{Role::metric, *metric, 0, scale, choice.unit.empty() && info(*metric).unit == Unit::bytes, bare};
    if (!names_a_gpu(series.gpu)) series.gpu.gpu = *star;
    return series;
  }
  return series_of(name);
}

// "gpu0_util" -> "gpu*_util": the columns of all GPUs.
std::string with_star(std::string name, const std::string& gpu) {
  if (const std::size_t at = name.find(gpu); !gpu.empty() && at != std::string::npos) name.replace(at, gpu.size(), "*");
  return name;
}

bool has_star(const std::vector<ColumnChoice>& choices) {
  return std::any_of(choices.begin(), choices.end(),
                     [](const ColumnChoice& choice) { return choice.column.find('*') != std::string::npos; });
}

// W&B adds the extremes of what it drew as one point.
bool is_extreme(std::string_view name) { return name.ends_with("__MIN") || name.ends_with("__MAX"); }

}  // namespace

static bool is_wide(std::string_view head, const ReadHow& how) {
  bool any = has_star(how.columns);
  for (const std::string& name : table_names(head)) {
    const auto meaning = meaning_of(heading_of(name).name);
    if (meaning && (meaning->role == Role::gpu || meaning->role == Role::uuid)) return false;
    const SeriesName series = series_of(name);
    any = any || (names_a_gpu(series.gpu) && (series.meaning || series.measured.empty()));
  }
  return any;
}

static Result<Schema> open_wide(std::string_view head, const ReadHow& how) {
  TRY(only_signals(how, "a table with columns for each GPU"));
  const TableHead table = table_head(head);
  Schema schema = schema_of_samples(how.wanted);
  schema.in_turn = false;
  schema.format = table.json ? Format::ndjson : Format::csv;
  schema.separator = table.separator;
  schema.choices = how.columns;
  const std::size_t time = TRY(time_of_table(table, how, schema));
  std::vector<Metric> there;
  std::string silent;  // a column that names a GPU alone
  for (std::size_t i = 0; i < table.names.size(); ++i) {
    Column& column = schema.columns.emplace_back();
    column.name = table.names[i];
    if (i == time) column.role = Role::time;
    if (i == time || is_extreme(column.name)) continue;
    const SeriesName series = series_in(column.name, how.columns);
    if (!names_a_gpu(series.gpu)) continue;
    if (series.meaning) there.push_back(series.meaning->metric);
    if (!series.meaning && series.measured.empty()) silent = column.name;
  }
  if (there.empty())
    return fail(
        fmt::format("its columns name GPUs ('{}') but not what was measured: say it, such as --columns 'util=*'",
                    printable(silent)));
  keep_signals(schema, there);
  schema.doubtful.resize(schema.metrics.size());
  for (std::size_t i = 0; i < table.names.size(); ++i) {
    const SeriesName series = series_in(table.names[i], how.columns);
    if (i == time || !series.meaning || !series.meaning->bare || !names_a_gpu(series.gpu)) continue;
    const std::size_t slot = slot_of(schema, series.meaning->metric);
    if (slot != kNoSlot) schema.doubtful[slot] = with_star(table.names[i], series.gpu.gpu);
  }
  return schema;
}

WideParser::WideParser(const Schema& schema) : LineParser(schema) {
  for (std::size_t i = 0; i < schema.columns.size(); ++i) {
    const Column& column = schema.columns[i];
    if (column.role == Role::time) time_ = i;
    if (column.role == Role::time || is_extreme(column.name)) continue;
    const SeriesName series = series_in(column.name, schema.choices);
    if (!series.meaning || !names_a_gpu(series.gpu)) continue;
    const std::size_t slot = slot_of(schema, series.meaning->metric);
    if (slot == kNoSlot) continue;
    auto gpu = std::find_if(gpus_.begin(), gpus_.end(), [&](const Gpu& one) { return one.name == series.gpu; });
    if (gpu == gpus_.end()) gpu = gpus_.insert(gpus_.end(), Gpu{series.gpu, {}});
    const auto same =
        std::find_if(gpu->sources.begin(), gpu->sources.end(), [&](const Source& s) { return s.slot == slot; });
    if (same == gpu->sources.end())
      gpu->sources.push_back({i, slot, *series.meaning});
    else if (series.meaning->rank < same->meaning.rank)
      *same = {i, slot, *series.meaning};
  }
}

void WideParser::line(std::string_view text, std::uint64_t number, bool, Batch& batch) {
  if (trim(text).empty() || is_remark(trim(text))) return;
  const auto cells = cells_in(text, schema_);
  if (!cells)
    return batch.add_bad(number,
                         schema_.format == Format::csv ? "a quote is not closed" : "it is not one whole JSON object");
  if (cells->size() != schema_.columns.size())
    return batch.add_bad(number,
                         fmt::format("{} cells where there should be {}", cells->size(), schema_.columns.size()));
  const std::string& when = (*cells)[time_];
  if (when == schema_.columns[time_].name) {  // the header once more
    for (std::size_t i = 0; i < cells->size() && !batch.new_header; ++i)
      if ((*cells)[i] != schema_.columns[i].name)
        batch.new_header = BadLine{number, printable(trim(text).substr(0, 200))};
    return;
  }
  const auto at = parse_time(when, schema_.time);
  if (!at)
    return batch.add_bad(number, fmt::format("'{}' is not a time", printable(std::string_view(when).substr(0, 60))));
  const std::size_t first = batch.rows;
  for (const Gpu& gpu : gpus_) {
    // A row without values is not a sample; series of their own times are joined like that.
    if (std::all_of(gpu.sources.begin(), gpu.sources.end(),
                    [&](const Source& s) { return (*cells)[s.column].empty(); }))
      continue;
    const std::size_t row =
        batch.add_row(*at, identities_.find(Identities::Cells{gpu.name.gpu, gpu.name.uuid, gpu.name.host}));
    for (const Source& source : gpu.sources) {
      const auto value = series_cell((*cells)[source.column], source.meaning, schema_.decimal_comma);
      if (!value) {
        batch.rows = first;
        return batch.add_bad(number,
                             fmt::format("{}: '{}' is not a number", printable(schema_.columns[source.column].name),
                                         printable(std::string_view((*cells)[source.column]).substr(0, 60))));
      }
      batch.value[source.slot][row] = *value;
    }
  }
}

const TraceFormat kWide{"a table with columns for each GPU", is_wide, open_wide, make_row_parser<WideParser>, true};

}  // namespace lull::trace
