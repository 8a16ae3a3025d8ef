// `lull report`: how the GPUs of a trace were used, and by whom.

#include "replay/report.h"

#include <unistd.h>

#include <string>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "cli/trace_command.h"
#include "config/settings.h"
#include "replay/report_output.h"
#include "view/replay_table.h"
#include "view/screen.h"

namespace lull {
namespace {

struct ReportArguments {
  TraceArguments trace;
  std::string idle = replay::kReportIdle;
  std::string hung = replay::kReportHung;
  std::string by = "user";
  bool hours = false;
};

Result<replay::ReportOptions> read_options(const ReportArguments& arguments) {
  replay::ReportOptions options;
  const Settings settings = TRY(settings_with(arguments.trace));
  options.idle = TRY(settings.idle_option("--idle", arguments.idle));
  options.hung = TRY(settings.rule_option("--hung", arguments.hung));
  options.by_hour = arguments.hours;
  TRY(replay::settle(arguments.trace, options));
  return options;
}

}  // namespace

int report_command(int argc, char** argv) {
  CommandLine line(
      "Adds up how the GPUs of recorded telemetry were used: GPU-hours busy, held idle, hung and free, by user,\n"
      "command and host, with the energy. Reads what `lull replay` reads; `lull record` writes who had the GPUs.",
      "lull report");
  ReportArguments arguments;
  describe_traces(line, arguments.trace);
  line.option("--by", arguments.by, "add up by user, command or host, or by all three").value("user|command|host|all");
  line.option(shared::kIdle, arguments.idle, std::string("by which a GPU in use counts as idle") + shared::kIdleForms);
  line.option("--hung", arguments.hung, "the rule by which it counts as hung, or the name of one").value("RULE");
  describe_signals(line, arguments.trace);
  describe_price(line, arguments.trace);
  line.option(shared::kGap, arguments.trace.gap, "was not seen");
  line.option(shared::kEvery, arguments.trace.every, ", of files without times (default: none)");
  line.option(shared::kColumns, arguments.trace.columns);
  line.flag(shared::kJson, arguments.trace.json, ": totals, and by user, command and host, as one object");
  line.flag("--by-hour", arguments.hours, "with --json: also each hour of each GPU");
  line.flag(shared::kCsv, arguments.trace.csv, ": a row per user (or as --by says)");
  line.option(shared::kHtml, arguments.trace.html);
  describe_threads(line, arguments.trace);
  describe_prometheus(line, arguments.trace);
  line.footer("Example:\n  lull report day.csv.zst --by command --price 2.49 --html day.html");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (arguments.trace.json && arguments.trace.csv) return complain("report: --json or --csv, not both", kExitUsage);
  if (arguments.hours && !arguments.trace.json) return complain("report: --by-hour goes with --json", kExitUsage);
  const auto by = replay::read_by(arguments.by);
  if (!by) return complain("report: " + by.error().message(), kExitUsage);
  return answer_from_traces<replay::ReportOptions, replay::ReportResult>(
      "report", arguments.trace, read_options(arguments), replay::report,
      [&](const auto& result, std::optional<double> price) {
        const std::string text = arguments.trace.json  ? replay::report_json(result, price)
                                 : arguments.trace.csv ? replay::report_csv(result, *by, price)
                                                       : report_table(result, *by, price, screen_of(STDOUT_FILENO));
        return give_answer(arguments.trace, [&] { return replay::report_html(result, price); }, text);
      });
}

}  // namespace lull
