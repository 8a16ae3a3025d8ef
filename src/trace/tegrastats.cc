// What tegrastats prints on a Jetson, a line for each sample of its one GPU: "11-17-2023 15:13:02 RAM 2448/7620MB …
// GR3D_FREQ 34%@[1134] … gpu@61.6C … VDD_GPU 598mW/598mW". Older ones write no time. The memory is the machine's and
// says nothing of the GPU; the power is read where the GPU has a rail of its own.

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.h"
#include "trace/cells.h"
#include "trace/format.h"
#include "trace/time.h"

namespace lull::trace {
namespace {

class TegrastatsParser final : public LineParser {
 public:
  using LineParser::LineParser;

 private:
  void line(std::string_view text, std::uint64_t number, bool cut, Batch& batch) override;
};

constexpr std::array kTegraSignals = {Metric::util, Metric::clock, Metric::temp, Metric::power};

bool is_tegra_line(std::string_view line) {
  return line.find("RAM ") != std::string_view::npos &&
         (line.find(" GR3D_FREQ ") != std::string_view::npos || line.find(" GR3D ") != std::string_view::npos);
}

// "598mW/601mW", "598/601": what is now, in milliwatts.
std::string_view now_of(std::string_view word) {
  word = word.substr(0, word.find('/'));
  if (word.ends_with("mW")) word.remove_suffix(2);
  return word;
}

}  // namespace

static bool is_tegrastats(std::string_view head, const ReadHow&) {
  const auto lines = lines_of(head.substr(0, 16384));
  return std::any_of(lines.begin(), lines.begin() + std::min<std::ptrdiff_t>(std::ssize(lines), 20), is_tegra_line);
}

static Result<Schema> open_tegrastats(std::string_view head, const ReadHow& how) {
  Schema schema = schema_of_samples(how.wanted);
  take_signals(schema, kTegraSignals);
  schema.one_gpu = true;
  std::optional<AnyTime> time;
  for (std::string_view line : lines_of(head))
    if (!time && is_tegra_line(line)) time = take_any_time(line, DayOrder::month_first);
  take_kind_of_time(schema, time);
  return schema;
}

void TegrastatsParser::line(std::string_view text, std::uint64_t number, bool cut, Batch& batch) {
  if (trim(text).empty()) return;
  if (!is_tegra_line(text)) return batch.add_bad(number, "it is not a line of tegrastats");
  if (cut) return batch.add_bad(number, "cut off in the middle");
  const auto time = schema_.timed ? take_any_time(text, DayOrder::month_first) : std::nullopt;
  if (schema_.timed && (!time || time->zone_minutes.has_value() != schema_.zoned))
    return batch.add_bad(number, "it does not begin with a time as the others do");
  const std::size_t row = batch.add_row(time ? time->ns : 0, identities_.find(Identities::Cells{"0"}));
  const auto set = [&](Metric metric, std::string_view word, double scale) {
    set_signal(schema_, metric, word, row, batch, scale);
  };
  std::string_view before;
  for (const std::string_view word : split(text, ' ')) {
    if (before == "GR3D_FREQ" || before == "GR3D") {  // 34%, 34%@1134, 34%@[1134,1134]
      set(Metric::util, word.substr(0, word.find('@')), 1);
      if (const std::size_t at = word.find('@'); at != std::string_view::npos) {
        std::string_view clock = word.substr(at + 1);
        if (clock.starts_with('[')) clock.remove_prefix(1);
        set(Metric::clock, clock.substr(0, clock.find_first_of(",]")), 1);
      }
    }
    if (word.starts_with("GPU@") || word.starts_with("gpu@")) set(Metric::temp, word.substr(4), 1);
    const bool rail = before.find("GPU") != std::string_view::npos && before.find("CPU") == std::string_view::npos &&
                      before.find('@') == std::string_view::npos && word.find('/') != std::string_view::npos;
    if (rail) set(Metric::power, now_of(word), 1e-3);
    before = word;
  }
}

const TraceFormat kTegrastats{"tegrastats", is_tegrastats, open_tegrastats, make_row_parser<TegrastatsParser>, false};

}  // namespace lull::trace
