// `lull report`: how the GPUs of a trace were used, and by whom.

#include "replay/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/option_value.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "config/settings.h"
#include "replay/outputs.h"
#include "replay/report_output.h"
#include "trace/schema.h"
#include "view/progress_bar.h"
#include "view/report_table.h"
#include "view/screen.h"

namespace lull {
namespace {

// As the rule for hangs of a job, of one GPU by itself.
constexpr const char* kHung = "util >= 95 and power < 35% for 5m";

struct ReportArguments {
  std::vector<std::string> traces;
  std::string idle = "util < 1 for 5m";
  std::string hung = kHung;
  std::string by = "user";
  std::string gap;
  std::string every;
  std::string price;
  std::string columns;
  std::string html;
  unsigned threads = 0;
  bool json = false;
  bool csv = false;
};

Result<replay::ReportBy> read_by(const std::string& text) {
  using replay::ReportBy;
  for (const ReportBy by : {ReportBy::user, ReportBy::command, ReportBy::host, ReportBy::all})
    if (text == replay::by_text(by)) return by;
  return fail(fmt::format("--by is user, command, host or all, not '{}'", printable(text)));
}

Result<Rule> read_rule(const Settings& settings, std::string_view option, const std::string& text) {
  auto rule = settings.rule(text);
  if (!rule) return std::unexpected(std::move(rule).error().during(std::string(option)));
  return rule;
}

Result<replay::ReportOptions> read_options(const ReportArguments& arguments) {
  replay::ReportOptions options;
  options.paths = arguments.traces;
  const Settings settings = TRY(Settings::load());
  options.idle = TRY(read_rule(settings, "--idle", arguments.idle));
  options.hung = TRY(read_rule(settings, "--hung", arguments.hung));
  if (!arguments.gap.empty()) options.gap = TRY(duration_option("--gap", arguments.gap));
  if (options.gap == Duration::zero()) return fail("--gap 0 would leave nothing seen: more than 0 would be right");
  if (!arguments.every.empty()) options.row_every = TRY(duration_option("--every", arguments.every));
  if (options.row_every && *options.row_every <= Duration::zero()) return fail("--every: more than 0 would be right");
  options.columns = TRY(trace::parse_columns(arguments.columns));
  options.threads = arguments.threads;
  return options;
}

int run_report(const ReportArguments& arguments) {
  const auto wrong = [](const Error& error) {
    return complain(fmt::format("report: {}", error.message()), kExitUsage);
  };
  auto options = read_options(arguments);
  if (!options) return wrong(options.error());
  const auto by = read_by(arguments.by);
  if (!by) return wrong(by.error());
  const auto price = replay::read_price(arguments.price);
  if (!price) return wrong(price.error());
  if (const auto apart = replay::check_outputs(arguments.traces, arguments.html); !apart) return wrong(apart.error());
  const SystemClock clock;
  ProgressBar bar(clock.now());
  if (::isatty(STDERR_FILENO) == 1)
    options->progress = [&](double part) { (void)write_all(STDERR_FILENO, bar.draw(part, clock.now())); };
  const auto result = replay::report(*std::move(options));
  (void)write_all(STDERR_FILENO, bar.clear());
  if (!result) return complain(result.error().message());
  for (const std::string& line : trace::oddities(result->trace)) complain(line);
  if (!arguments.html.empty())
    if (auto written = replay::write_page(arguments.html, replay::report_html(*result, *price)); !written)
      return complain(written.error().message());
  const std::string text = arguments.json  ? replay::report_json(*result, *price)
                           : arguments.csv ? replay::report_csv(*result, *by, *price)
                                           : report_table(*result, *by, *price, screen_of(STDOUT_FILENO));
  if (auto written = write_all(STDOUT_FILENO, text); !written && written.error().errno_value != EPIPE)
    return complain(std::move(written).error().during("standard output").message());
  return 0;
}

}  // namespace

int report_command(int argc, char** argv) {
  CommandLine line(
      "Adds up how the GPUs of recorded telemetry were used: GPU-hours busy, held idle, hung and free, by user,\n"
      "command and host, with the energy. Reads what `lull replay` reads; `lull record` writes who had the GPUs.",
      "lull report");
  ReportArguments arguments;
  if (const auto known = Settings::load()) arguments.price = known->text(Setting::price);
  line.arguments("TRACE", arguments.traces, "files to read; - is standard input").required().value("TRACE");
  line.option("--by", arguments.by, "add up by user, command or host, or by all three").value("user|command|host|all");
  line.option("--idle", arguments.idle, "the rule by which a GPU that somebody has counts as idle, or the name of one")
      .value("RULE");
  line.option("--hung", arguments.hung, "the rule by which it counts as hung, or the name of one").value("RULE");
  line.option("--price", arguments.price, "what an hour of a GPU costs", arguments.price.empty() ? "none" : "")
      .value("MONEY");
  line.option("--gap", arguments.gap,
              "more time than this between two samples was not seen (default: 3 intervals, at least 1s)")
      .value("DURATION");
  line.option("--every", arguments.every, "of files without times: how far apart their samples are (default: none)")
      .value("DURATION");
  line.option("--columns", arguments.columns, "which column is what, as in lull replay (default: by its name)")
      .value("ROLE=COLUMN,…");
  line.flag("--json", arguments.json, "totals, and by user, command and host, as one object");
  line.flag("--csv", arguments.csv, "one row per user (or as --by says)");
  line.option("--html", arguments.html, "also write a page (default: none)").value("FILE");
  line.option("--threads", arguments.threads, "how many cores to use, 8 at most; 0: all").value("N");
  line.footer("Example:\n  lull report day.csv.zst --by command --price 2.49 --html day.html");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (arguments.json && arguments.csv) return complain("report: --json or --csv, not both", kExitUsage);
  return run_report(arguments);
}

}  // namespace lull
