// The table that plain `nvidia-smi` prints, appended to a file again and again (-l, a loop,
// cron), of any driver since 2012: two or three lines for each GPU, the time above it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "trace/cells.h"
#include "trace/format.h"
#include "trace/time.h"

namespace lull::trace {
namespace {

class SmiTableParser final : public LineParser {
 public:
  using LineParser::LineParser;

 private:
  void line(std::string_view text, std::uint64_t number, bool cut, Batch& batch) override;
  void readings(std::string_view text, std::uint64_t number, Batch& batch);

  bool in_gpus_ = false;  // in the part of the table that lists GPUs
  bool fresh_ = false;    // a time that no table has used yet
  bool timed_ = false;    // this table has one
  std::int64_t now_ = 0;
  std::string gpu_;  // of the line before; its readings are on this one
};

// "|   0  Tesla V100 …  On  | 00000000:00:1B.0 Off |   0 |" -> what stands between the bars.
std::vector<std::string_view> cells_of(std::string_view line) {
  line = trim(line);
  if (line.size() < 2 || line.front() != '|' || line.back() != '|') return {};
  return split(line.substr(1, line.size() - 2), '|');
}

// "54W / 300W": what is on either side of the lone slash; unknown where there is none.
std::pair<std::string_view, std::string_view> around_slash(const std::vector<std::string_view>& words) {
  const auto slash = std::find(words.begin(), words.end(), "/");
  if (slash == words.end() || slash == words.begin() || slash + 1 == words.end()) return {"-", "-"};
  return {slash[-1], slash[1]};
}

bool is_title(std::string_view line) { return line.find("| NVIDIA-SMI ") != std::string_view::npos; }
bool heads_gpus(std::string_view line) {
  return line.starts_with("| GPU ") && line.find("Name") != std::string_view::npos &&
         line.find("Bus-Id") != std::string_view::npos;
}

std::optional<AnyTime> time_line(std::string_view line) {
  const auto time = read_any_time(line);
  return time && time->dated ? time : std::nullopt;
}

}  // namespace

static bool is_smi_table(std::string_view head, const ReadHow&) {
  const auto lines = lines_of(head.substr(0, 65536));
  return std::any_of(lines.begin(), lines.end(), is_title) && std::any_of(lines.begin(), lines.end(), heads_gpus);
}

static Result<Schema> open_smi_table(std::string_view head, const ReadHow& how) {
  Schema schema = schema_of_samples(how.wanted);
  constexpr std::array kThere = {Metric::util,        Metric::mem_used, Metric::mem_total, Metric::power,
                                 Metric::power_limit, Metric::temp,     Metric::pstate,    Metric::fan};
  take_signals(schema, kThere);
  std::optional<AnyTime> time;
  for (const std::string_view line : lines_of(head))
    if (!time) time = time_line(line);
  take_kind_of_time(schema, time);
  return schema;
}

void SmiTableParser::line(std::string_view text, std::uint64_t number, bool cut, Batch& batch) {
  const std::string_view trimmed = trim(text);
  if (trimmed.empty() || cut) return;
  if (!trimmed.starts_with('|') && !trimmed.starts_with('+')) {
    gpu_.clear();
    if (const auto time = time_line(trimmed); time && time->zone_minutes.has_value() == schema_.zoned) {
      now_ = time->ns;
      fresh_ = true;
      in_gpus_ = false;
    }
    return;
  }
  if (is_title(trimmed)) {
    timed_ = fresh_ || !schema_.timed;
    fresh_ = false;
    in_gpus_ = false;
    gpu_.clear();
    if (!timed_) batch.add_bad(number, "a table without its time: it is left out");
    return;
  }
  if (heads_gpus(trimmed)) {
    in_gpus_ = timed_;
    return;
  }
  if (trimmed.find("Processes:") != std::string_view::npos || trimmed.find("MIG devices:") != std::string_view::npos)
    in_gpus_ = false;
  if (!in_gpus_) return;
  if (!gpu_.empty()) {
    readings(trimmed, number, batch);
    gpu_.clear();
    return;
  }
  const auto cells = cells_of(trimmed);
  if (cells.size() != 3) return;
  const auto words = words_of(cells[0]);
  if (!words.empty() && to_unsigned(words[0]) && cells[1].find(':') != std::string_view::npos) gpu_ = words[0];
}

void SmiTableParser::readings(std::string_view text, std::uint64_t number, Batch& batch) {
  const auto cells = cells_of(text);
  if (cells.size() != 3)
    return batch.add_bad(number, fmt::format("the readings of GPU {} are missing", printable(gpu_)));
  const std::size_t row = batch.add_row(schema_.timed ? now_ : 0, identities_.find(Identities::Cells{gpu_}));
  // "54W", "4321MiB", "42C", "30%", "P8"
  const auto set = [&](Metric metric, std::string_view word) { set_signal(schema_, metric, word, row, batch); };
  const auto left = words_of(cells[0]);
  if (!left.empty()) set(Metric::fan, left[0]);
  for (const std::string_view word : left) {
    if (word.ends_with('C') && word.size() > 1) set(Metric::temp, word);
    if (word.starts_with('P') && word.size() <= 3) set(Metric::pstate, word);
  }
  const auto [draw, limit] = around_slash(left);
  set(Metric::power, draw);
  set(Metric::power_limit, limit);
  const auto [used, total] = around_slash(words_of(cells[1]));
  set(Metric::mem_used, used);
  set(Metric::mem_total, total);
  const auto right = words_of(cells[2]);
  if (!right.empty()) set(Metric::util, right[0]);
}

const TraceFormat kSmiTable{"nvidia-smi's table", is_smi_table, open_smi_table, make_row_parser<SmiTableParser>, false};

}  // namespace lull::trace
