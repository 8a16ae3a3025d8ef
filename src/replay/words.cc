#include "replay/words.h"

#include <fmt/format.h>

#include <utility>

#include "base/option_value.h"
#include "base/text.h"
#include "base/units.h"
#include "replay/answer.h"
#include "replay/report_output.h"
#include "trace/schema.h"

namespace lull::replay {
namespace {

constexpr std::size_t kLeastMemory = 64 << 20;

}  // namespace

Result<> settle(const TraceWords& words, TracesToRead& traces) {
  traces.paths = words.traces;
  if (!words.gap.empty()) traces.gap = TRY(duration_option("--gap", words.gap));
  if (traces.gap == Duration::zero()) return fail("--gap 0 would leave nothing seen: more than 0 would be right");
  if (!words.every.empty()) traces.every = TRY(duration_option("--every", words.every));
  if (traces.every == Duration::zero()) return fail("--every: more than 0 would be right");
  traces.columns = TRY(trace::parse_columns(words.columns));
  traces.threads = words.threads;
  return {};
}

Result<Per> read_per(const std::string& text) {
  for (const Per per : {Per::gpu, Per::job, Per::host, Per::all})
    if (text == per_text(per)) return per;
  return fail(fmt::format("--per is gpu, job, host or all, not '{}'", printable(text)));
}

Result<ReportBy> read_by(const std::string& text) {
  for (const ReportBy by : {ReportBy::user, ReportBy::command, ReportBy::host, ReportBy::all})
    if (text == by_text(by)) return by;
  return fail(fmt::format("--by is user, command, host or all, not '{}'", printable(text)));
}

Result<double> read_share(std::string_view option, std::string_view text) {
  const std::string_view number = trim(text.ends_with('%') ? text.substr(0, text.size() - 1) : text);
  const auto share = to_double(number);
  if (!share || !(*share >= 0 && *share <= 100))
    return fail(fmt::format("{}: '{}' is not a share: 0% to 100% would be right, such as 1%", option, printable(text)));
  return *share / 100;
}

Result<WhenMissing> read_missing(const std::string& text) {
  if (text == "ignore") return WhenMissing::ignore;
  if (text == "unknown") return WhenMissing::unknown;
  return fail(fmt::format("--missing is unknown or ignore, not '{}'", printable(text)));
}

Result<std::size_t> read_memory(std::string_view option, std::string_view text) {
  auto memory = parse_size(text);
  if (!memory) return std::unexpected(std::move(memory).error().during(option));
  if (*memory < kLeastMemory)
    return fail(fmt::format("{}: at least {}", option, format_size(static_cast<double>(kLeastMemory))));
  return *memory;
}

}  // namespace lull::replay
