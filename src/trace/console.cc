// Tables that tools print for as long as they run: nvidia-smi dmon and pmon, dcgmi dmon.
// Columns are told by the last header, which comes again and again and may change; a time
// stands at the start of a line (-o DT, -o T, or put there by `ts`) or nowhere.
//
// pmon has a line for each process: a GPU's utilisation and memory are the sums, unknown
// if any is; `procs` counts those with a compute context, who have the GPU: whoever only draws has no job there.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "trace/cells.h"
#include "trace/format.h"
#include "trace/names.h"
#include "trace/rows.h"
#include "trace/time.h"

namespace lull::trace {
namespace {

enum class Console : std::uint8_t { dmon, pmon, dcgmi };

// What a header says: for each word of a row, what it is.
struct ConsoleColumn {
  enum class Kind : std::uint8_t { other, gpu, slice, pid, type, command, signal, pcie_part };
  std::string name;
  Kind kind = Kind::other;
  Meaning meaning;
};

class ConsoleParser final : public LineParser {
 public:
  explicit ConsoleParser(const Schema& schema);

  void finish(Batch& batch) override;

 private:
  struct Row {
    std::string gpu;
    std::string pid;
    std::string command;
    bool compute = false;
    std::vector<float> values;  // by slot
  };
  struct Gathered {  // pmon: the processes of a GPU in one tick
    std::vector<float> sums;
    int compute = 0;
    std::string pids;     // of those who compute, as the cells of rows say it (trace/rows.h)
    std::string command;  // of the first of them
  };

  void line(std::string_view text, std::uint64_t number, bool cut, Batch& batch) override;
  bool header(std::string_view text);
  bool take_time(std::string_view& text);
  // Nothing: said in the batch, or none of ours.
  std::optional<Row> row_of(std::string_view text, std::uint64_t number, Batch& batch) const;
  void add(const Row& row, Batch& batch);
  void add_process(const Row& row, Batch& batch);
  void close_tick(Batch& batch);

  Console console_;
  DayOrder order_;
  std::vector<ConsoleColumn> columns_;
  std::string last_time_text_;
  std::int64_t now_ = 0;

  std::vector<std::pair<std::string, Gathered>> tick_;  // in the order of the file
  std::set<std::pair<std::string, std::string>> seen_;  // GPU and process
  std::int64_t tick_at_ = 0;
};

std::vector<std::string_view> words_in(std::string_view text) {
  std::vector<std::string_view> words;
  constexpr std::string_view kBetween = " \t,\r";
  for (;;) {
    const std::size_t from = text.find_first_not_of(kBetween);
    if (from == std::string_view::npos) return words;
    const std::size_t to = std::min(text.find_first_of(kBetween, from), text.size());
    words.push_back(text.substr(from, to - from));
    text.remove_prefix(to);
  }
}

bool is_word(std::string_view word, std::string_view expected) {
  if (word.size() != expected.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i)
    if ((word[i] | 0x20) != (expected[i] | 0x20)) return false;
  return true;
}

bool has_word(const std::vector<std::string_view>& words, std::string_view expected) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return is_word(word, expected); });
}

// The words behind a '#', of lines that begin with one once their time is taken off.
std::vector<std::string_view> header_words(std::string_view line) {
  (void)take_any_time(line, DayOrder::month_first);
  line = trim(line);
  if (!line.starts_with('#')) return {};
  while (line.starts_with('#')) line.remove_prefix(1);
  return words_in(line);
}

// dmon's own short names, if they are not names of ours elsewhere. Its MB are MiB.
constexpr std::array<std::pair<std::string_view, Meaning>, 4> kDmonNames = {{
    {"mem", {Role::metric, Metric::mem_util, 0, 1, false}},
    {"fb", {Role::metric, Metric::mem_used, 0, 1048576, false}},
    {"temp", {Role::metric, Metric::temp, 0, 1, false}},
    {"fan", {Role::metric, Metric::fan, 0, 1, false}},
}};

ConsoleColumn column_of(std::string_view word, Console console) {
  using Kind = ConsoleColumn::Kind;
  ConsoleColumn column{std::string(word), Kind::other, {}};
  if (is_word(word, "gpu")) column.kind = Kind::gpu;
  if (is_word(word, "gi") || is_word(word, "ci") || is_word(word, "mig")) column.kind = Kind::slice;
  if (is_word(word, "pid")) column.kind = Kind::pid;
  if (is_word(word, "type")) column.kind = Kind::type;
  if (is_word(word, "command")) column.kind = Kind::command;
  if (column.kind != Kind::other) return column;
  for (const std::string_view part : {"rxpci", "txpci", "pcitx", "pcirx"})
    if (is_word(word, part)) {  // the two directions together are the signal
      column.kind = Kind::pcie_part;
      column.meaning = {Role::metric, Metric::pcie, 0, console == Console::dcgmi ? 1.0 : 1e6, false};
      return column;
    }
  auto meaning = meaning_of(word);
  for (const auto& [name, known] : kDmonNames)
    if (console != Console::dcgmi && is_word(word, name)) meaning = known;
  if (!meaning || meaning->role != Role::metric) return column;
  column.kind = Kind::signal;
  column.meaning = *meaning;
  return column;
}

std::vector<ConsoleColumn> columns_of(const std::vector<std::string_view>& words, Console console) {
  std::vector<ConsoleColumn> columns;
  const bool timed = has_word(words, "time");  // then the time is at the start of each line, and taken off
  for (const std::string_view word : words) {
    if (is_word(word, "time") || (timed && is_word(word, "date"))) continue;
    if (is_word(word, "entity")) continue;
    columns.push_back(column_of(word, console));
  }
  return columns;
}

bool is_header_of(const std::vector<std::string_view>& words, Console console) {
  if (console == Console::dcgmi) return has_word(words, "entity");
  // gpu comes first, but for the time.
  const auto first = std::find_if(words.begin(), words.end(), [](std::string_view word) {
    return !is_word(word, "date") && !is_word(word, "time");
  });
  return first != words.end() && is_word(*first, "gpu") && has_word(words, "pid") == (console == Console::pmon);
}

bool begins_with(std::string_view head, Console console) {
  std::size_t looked = 0;
  for (const std::string_view line : lines_of(head.substr(0, 16384))) {
    if (is_header_of(header_words(line), console)) return true;
    if (++looked == 20) break;
  }
  return false;
}

// Which of 03-11-2026 is the day: a line shows it, or --columns says it.
Result<DayOrder> day_order_in(std::string_view head, const ReadHow& how) {
  for (const ColumnChoice& choice : how.columns)
    if (const auto kind = time_unit(choice.unit))
      return *kind == TimeKind::day_first ? DayOrder::day_first : DayOrder::month_first;
  bool unclear = false;
  for (std::string_view line : lines_of(head)) {
    std::string_view rest = line;
    if (take_any_time(rest)) return DayOrder::unknown;
    if (!take_any_time(rest, DayOrder::day_first)) continue;
    if (line.starts_with('[')) line.remove_prefix(1);
    if (const DayOrder order = day_order_of(line); order != DayOrder::unknown) return order;
    unclear = true;
  }
  if (unclear)
    return fail("its dates could have the day or the month first: say which: --columns time=1:dmy or time=1:mdy");
  return DayOrder::unknown;
}

// From all headers in the beginning: which signals there are; from its lines: whether they have times.
Result<Schema> open_console(std::string_view head, const ReadHow& how, Console console) {
  Schema schema = schema_of_samples(how.wanted);
  schema.variant = static_cast<std::uint8_t>(console);
  std::vector<Metric> there;
  std::optional<AnyTime> time;
  int pcie_parts = 0;
  const DayOrder order = TRY(day_order_in(head, how));
  schema.time = order == DayOrder::day_first     ? TimeKind::day_first
                : order == DayOrder::month_first ? TimeKind::month_first
                                                 : TimeKind::words;
  for (std::string_view line : lines_of(head)) {
    const auto words = header_words(line);
    if (words.empty()) {
      if (!time) time = take_any_time(line, order);
      continue;
    }
    if (!is_header_of(words, console)) continue;
    pcie_parts = 0;
    for (const ConsoleColumn& column : columns_of(words, console)) {
      if (std::none_of(schema.columns.begin(), schema.columns.end(),
                       [&](const Column& c) { return c.name == column.name; }))
        schema.columns.emplace_back().name = column.name;
      if (column.kind == ConsoleColumn::Kind::signal) there.push_back(column.meaning.metric);
      if (column.kind == ConsoleColumn::Kind::pcie_part && ++pcie_parts == 2) there.push_back(Metric::pcie);
    }
  }
  if (console == Console::pmon) {
    there.push_back(Metric::procs);
    schema.identity.insert(schema.identity.end(), {Role::pids, Role::command});
  }
  keep_signals(schema, there);
  take_kind_of_time(schema, time);
  return schema;
}

}  // namespace

static bool is_dmon(std::string_view head, const ReadHow&) { return begins_with(head, Console::dmon); }
static bool is_pmon(std::string_view head, const ReadHow&) { return begins_with(head, Console::pmon); }
static bool is_dcgmi(std::string_view head, const ReadHow&) { return begins_with(head, Console::dcgmi); }

static Result<Schema> open_dmon(std::string_view head, const ReadHow& how) {
  return open_console(head, how, Console::dmon);
}
static Result<Schema> open_pmon(std::string_view head, const ReadHow& how) {
  return open_console(head, how, Console::pmon);
}
static Result<Schema> open_dcgmi(std::string_view head, const ReadHow& how) {
  return open_console(head, how, Console::dcgmi);
}

ConsoleParser::ConsoleParser(const Schema& schema)
    : LineParser(schema),
      console_(static_cast<Console>(schema.variant)),
      order_(schema.time == TimeKind::day_first     ? DayOrder::day_first
             : schema.time == TimeKind::month_first ? DayOrder::month_first
                                                    : DayOrder::unknown) {}

void ConsoleParser::finish(Batch& batch) {
  batch.reset(schema_.metrics.size());
  close_tick(batch);
}

bool ConsoleParser::header(std::string_view text) {
  const auto words = header_words(text);
  if (words.empty()) return false;
  if (is_header_of(words, console_)) columns_ = columns_of(words, console_);
  return true;  // else the row of units, or a remark
}

// A line's time, often the text of the one before.
bool ConsoleParser::take_time(std::string_view& text) {
  if (!schema_.timed) return true;
  if (!last_time_text_.empty() && text.starts_with(last_time_text_)) {
    text.remove_prefix(last_time_text_.size());
    return true;
  }
  const std::string_view before = text;
  const auto time = take_any_time(text, order_);
  if (!time || time->zone_minutes.has_value() != schema_.zoned) return false;
  last_time_text_ = before.substr(0, before.size() - text.size());
  // What follows must be parted from it by a blank, also the next time: 11:04:2 is not 11:04:29.
  if (text.starts_with(' ') || text.starts_with('\t') || text.starts_with(',')) last_time_text_ += text.front();
  now_ = time->ns;
  return true;
}

void ConsoleParser::line(std::string_view text, std::uint64_t number, bool cut, Batch& batch) {
  if (trim(text).empty() || header(text)) return;
  if (console_ == Console::dcgmi) {  // its units stand below the header, without a '#'
    std::string_view rest = text;
    (void)take_any_time(rest, order_);
    const auto words = words_in(rest);
    if (words.empty() || is_word(words[0], "id")) return;
  }
  if (columns_.empty()) return batch.add_bad(number, "it comes before the first header");
  if (cut) return batch.add_bad(number, "cut off in the middle");
  if (!take_time(text)) return batch.add_bad(number, "it does not begin with a time as the others do");
  const auto row = row_of(text, number, batch);
  if (!row) return;
  if (console_ == Console::pmon) return add_process(*row, batch);
  add(*row, batch);
}

std::optional<ConsoleParser::Row> ConsoleParser::row_of(std::string_view text, std::uint64_t number,
                                                        Batch& batch) const {
  std::vector<std::string_view> words = words_in(text);
  Row row;
  row.values.assign(schema_.metrics.size(), kUnknownSample);
  if (console_ == Console::dcgmi) {
    if (words.size() < 2) {
      batch.add_bad(number, "it does not say which GPU");
      return std::nullopt;
    }
    const bool slice = is_word(words[0], "gpu-i") || is_word(words[0], "gpu-ci");
    if (!is_word(words[0], "gpu") && !slice) {
      if (!is_word(words[0], "cpu") && !is_word(words[0], "switch") && !is_word(words[0], "link") &&
          !is_word(words[0], "core"))
        batch.add_bad(number, fmt::format("'{}' is not a row of dcgmi dmon", printable(trim(text).substr(0, 60))));
      return std::nullopt;
    }
    row.gpu = slice ? fmt::format("{} {}", words[0], words[1]) : std::string(words[1]);
    words.erase(words.begin(), words.begin() + 2);
  }
  const bool named = columns_.back().kind == ConsoleColumn::Kind::command;  // may have blanks, or be nothing
  const std::size_t least = columns_.size() - (named ? 1 : 0);
  if (words.size() < least || (!named && words.size() > columns_.size())) {
    batch.add_bad(number, fmt::format("{} values where the header has {}", words.size(), columns_.size()));
    return std::nullopt;
  }
  float pcie = 0;
  int pcie_parts = 0;
  for (std::size_t i = 0; i < columns_.size() && i < words.size(); ++i) {
    using Kind = ConsoleColumn::Kind;
    const ConsoleColumn& column = columns_[i];
    if (column.kind == Kind::gpu) row.gpu = words[i];
    if (column.kind == Kind::slice && words[i] != "-") row.gpu += fmt::format(":{}", words[i]);
    if (column.kind == Kind::pid) row.pid = words[i];
    if (column.kind == Kind::command)
      row.command = fmt::format("{}", fmt::join(words.begin() + static_cast<std::ptrdiff_t>(i), words.end(), " "));
    if (column.kind == Kind::type) row.compute = words[i].find('C') != std::string_view::npos;
    if (column.kind != Kind::signal && column.kind != Kind::pcie_part) continue;
    Column cell;
    cell.metric = column.meaning.metric;
    const auto number_of = parse_cell(words[i], cell);
    if (!number_of) {
      batch.add_bad(number,
                    fmt::format("{}: '{}' is not a number", printable(column.name), printable(words[i].substr(0, 60))));
      return std::nullopt;
    }
    const float value = sample_of(column.meaning, *number_of);
    if (column.kind == Kind::pcie_part) {
      pcie += value;
      ++pcie_parts;
    } else if (const std::size_t slot = slot_of(schema_, column.meaning.metric); slot != kNoSlot) {
      row.values[slot] = value;
    }
  }
  if (const std::size_t slot = slot_of(schema_, Metric::pcie); slot != kNoSlot && pcie_parts == 2)
    row.values[slot] = pcie;
  if (row.gpu.empty() || means_unknown(row.gpu)) {
    batch.add_bad(number, "it does not say which GPU");
    return std::nullopt;
  }
  return row;
}

void ConsoleParser::add(const Row& row, Batch& batch) {
  batch.add_row(schema_.timed ? now_ : 0, identities_.find(Identities::Cells{row.gpu}), row.values);
}

void ConsoleParser::add_process(const Row& row, Batch& batch) {
  const bool earlier_gpu = !tick_.empty() && to_double(row.gpu) < to_double(tick_.back().first);
  if (!tick_.empty() && (now_ != tick_at_ || earlier_gpu || seen_.contains({row.gpu, row.pid}))) close_tick(batch);
  tick_at_ = now_;
  seen_.emplace(row.gpu, row.pid);
  auto gpu = std::find_if(tick_.begin(), tick_.end(), [&](const auto& one) { return one.first == row.gpu; });
  const bool nobody = means_unknown(row.pid);
  if (gpu == tick_.end()) {
    tick_.emplace_back(row.gpu, Gathered{.sums = nobody ? row.values : std::vector<float>(row.values.size(), 0),
                                         .compute = 0,
                                         .pids = std::string(kNobodyText),
                                         .command = {}});
    gpu = std::prev(tick_.end());
  }
  if (nobody) return;
  if (row.compute) {
    std::string& pids = gpu->second.pids;
    pids = gpu->second.compute == 0 ? row.pid : pids + " " + row.pid;
    if (gpu->second.command.empty()) gpu->second.command = row.command;
    ++gpu->second.compute;
  }
  for (std::size_t slot = 0; slot < row.values.size(); ++slot) gpu->second.sums[slot] += row.values[slot];
}

void ConsoleParser::close_tick(Batch& batch) {
  const std::size_t procs = slot_of(schema_, Metric::procs);
  for (const auto& [gpu, gathered] : tick_) {
    const Identities::Cells cells{gpu, "", "", gathered.pids, gathered.command};
    const std::size_t at = batch.add_row(schema_.timed ? tick_at_ : 0, identities_.find(cells));
    for (std::size_t slot = 0; slot < gathered.sums.size(); ++slot) {
      const bool share = info(schema_.metrics[slot]).unit == Unit::percent;
      batch.value[slot][at] = share && gathered.sums[slot] > 100 ? 100 : gathered.sums[slot];
    }
    if (procs != kNoSlot) batch.value[procs][at] = static_cast<float>(gathered.compute);
  }
  tick_.clear();
  seen_.clear();
}

const TraceFormat kDmon{"nvidia-smi dmon", is_dmon, open_dmon, make_row_parser<ConsoleParser>, false};
const TraceFormat kPmon{"nvidia-smi pmon", is_pmon, open_pmon, make_row_parser<ConsoleParser>, false};
const TraceFormat kDcgmi{"dcgmi dmon", is_dcgmi, open_dcgmi, make_row_parser<ConsoleParser>, false};

}  // namespace lull::trace
