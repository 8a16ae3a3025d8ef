// What npu-smi tells of Ascend cards: the table of `npu-smi info`, appended to a file again and again with the time
// above it, and the lines of `npu-smi info watch`. A chip is a GPU: "0" is the first chip of card 0, "0:1" its second.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "trace/cells.h"
#include "trace/format.h"
#include "trace/known_names.h"
#include "trace/time.h"

namespace lull::trace {
namespace {

class NpuSmiParser final : public LineParser {
 public:
  using LineParser::LineParser;

 private:
  void line(std::string_view text, std::uint64_t number, bool cut, Batch& batch) override;
  void table_line(std::string_view text, std::uint64_t number, Batch& batch);
  void watch_line(std::string_view text, std::uint64_t number, Batch& batch);
  std::size_t add_row(std::string_view card, std::string_view chip, Batch& batch);

  std::vector<std::string> columns_;  // of `info watch`
  bool fresh_ = false;                // a time that no table has used yet
  bool timed_ = false;                // this table has one
  std::int64_t now_ = 0;
  std::string card_;  // of the line before; the rest of its readings is on this one
  std::string power_;
  std::string temp_;
};

constexpr std::array kNpuSignals = {Metric::util, Metric::mem_used, Metric::mem_total, Metric::power, Metric::temp};

bool is_npu_title(std::string_view line) { return line.starts_with("| npu-smi "); }
bool heads_watch(std::string_view line) { return line.find("NpuID(Idx)") != std::string_view::npos; }

// "NpuID(Idx)  ChipId(Idx) Pwr(W)  AI Core(%) …": each name ends in its unit.
std::vector<std::string> watch_columns(std::string_view line) {
  std::vector<std::string> names;
  for (const std::string_view part : split(line, ')'))
    if (!trim(part).empty()) names.emplace_back(trim(part));
  return names;
}

}  // namespace

static bool is_npu_smi(std::string_view head, const ReadHow&) {
  const auto lines = lines_of(head.substr(0, 65536));
  return std::ranges::any_of(lines, [](std::string_view line) { return is_npu_title(line) || heads_watch(line); });
}

static Result<Schema> open_npu_smi(std::string_view head, const ReadHow& how) {
  Schema schema = schema_of_samples(how.wanted);
  take_signals(schema, kNpuSignals);
  std::optional<AnyTime> time;
  bool watch = false;
  for (std::string_view line : lines_of(head)) {
    watch = watch || heads_watch(line);
    if (!time) time = take_any_time(line);
  }
  take_kind_of_time(schema, time);
  if (watch)  // it tells the memory in per cent alone
    std::erase_if(schema.metrics,
                  [](Metric metric) { return metric == Metric::mem_used || metric == Metric::mem_total; });
  return schema;
}

void NpuSmiParser::line(std::string_view text, std::uint64_t number, bool cut, Batch& batch) {
  if (trim(text).empty() || cut) return;
  if (const auto time = take_any_time(text); time && time->zone_minutes.has_value() == schema_.zoned) {
    now_ = time->ns;
    fresh_ = true;
  }
  text = trim(text);
  if (heads_watch(text))
    columns_ = watch_columns(text);
  else if (text.starts_with('|'))
    table_line(text, number, batch);
  else if (!columns_.empty() && !text.empty())
    watch_line(text, number, batch);
}

std::size_t NpuSmiParser::add_row(std::string_view card, std::string_view chip, Batch& batch) {
  const std::string name = chip == "0" ? std::string(card) : fmt::format("{}:{}", card, chip);
  return batch.add_row(schema_.timed ? now_ : 0, identities_.find(Identities::Cells{name}));
}

// "| 0     910B3 | OK | 91.0  37  0 / 0 |", then "| 0 | 0000:C1:00.0 | 0  0 / 0  3389 / 65536 |".
void NpuSmiParser::table_line(std::string_view text, std::uint64_t number, Batch& batch) {
  if (is_npu_title(text)) {
    timed_ = fresh_ || !schema_.timed;
    fresh_ = false;
    card_.clear();
    if (!timed_) batch.add_bad(number, "a table without its time: it is left out");
    return;
  }
  const std::vector<std::string_view> cells = split(text.substr(1, text.size() - 2), '|');
  const std::vector<std::string_view> first = words_of(cells[0]);
  if (!timed_ || cells.size() != 3 || first.empty() || !to_unsigned(first[0])) return;
  std::string readings(cells[2]);  // "3389 / 65536", "30868/ 65536"
  for (std::size_t slash = 0; (slash = readings.find('/', slash)) != std::string::npos; slash += 3)
    readings.replace(slash, 1, " / ");
  const std::vector<std::string_view> words = words_of(readings);
  if (card_.empty()) {
    if (words.size() < 2) return;
    card_ = first[0];
    power_ = words[0];
    temp_ = words[1];
    return;
  }
  if (cells[1].find(':') == std::string_view::npos || words.empty()) return;  // of the processes
  const std::size_t row = add_row(card_, first[0], batch);
  card_.clear();
  set_signal(schema_, Metric::power, power_, row, batch);
  set_signal(schema_, Metric::temp, temp_, row, batch);
  set_signal(schema_, Metric::util, words[0], row, batch);
  // The last pair is the card's own memory: HBM where it has any.
  if (words.size() < 4 || words[words.size() - 2] != "/") return;
  set_signal(schema_, Metric::mem_used, words[words.size() - 3], row, batch, kMiB);
  set_signal(schema_, Metric::mem_total, words.back(), row, batch, kMiB);
}

void NpuSmiParser::watch_line(std::string_view text, std::uint64_t number, Batch& batch) {
  const std::vector<std::string_view> words = words_of(text);
  if (words.size() != columns_.size())
    return batch.add_bad(number, fmt::format("{} values where the header has {}", words.size(), columns_.size()));
  if (schema_.timed && !fresh_) return batch.add_bad(number, "it does not begin with a time as the others do");
  fresh_ = false;
  const std::size_t row = add_row(words[0], words[1], batch);
  for (std::size_t i = 2; i < words.size(); ++i) {
    if (columns_[i] == "AI Core(%") set_signal(schema_, Metric::util, words[i], row, batch);
    if (columns_[i] == "Pwr(W") set_signal(schema_, Metric::power, words[i], row, batch);
    if (columns_[i] == "Temp(C") set_signal(schema_, Metric::temp, words[i], row, batch);
  }
}

const TraceFormat kNpuSmi{"npu-smi", is_npu_smi, open_npu_smi, make_row_parser<NpuSmiParser>, false};

}  // namespace lull::trace
