// `lull replay`: what a rule would have done to recorded telemetry.

#include "replay/replay.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/option_value.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/trace_command.h"
#include "config/settings.h"
#include "replay/output.h"
#include "view/replay_table.h"
#include "view/screen.h"

namespace lull {
namespace {

constexpr std::size_t kPictureColumns = 4096;

struct ReplayArguments {
  TraceArguments trace;
  std::string idle;
  std::string arm;
  std::string per = "gpu";
  std::string regret = "10m";
  std::string lose = "1%";
  std::string delay = "0s";
  std::string memory = "512MiB";
  std::string missing = "unknown";
  std::vector<std::string> sweeps;
  bool all = false;
};

Result<Policy> read_policy(const ReplayArguments& arguments) {
  const Settings settings = TRY(Settings::load());
  Policy policy{.idle = TRY(settings.rule_option("--idle", arguments.idle))};
  if (!arguments.arm.empty()) policy.arm = TRY(settings.rule_option("--arm", arguments.arm));
  return policy;
}

Result<replay::ReplayOptions> read_options(const ReplayArguments& arguments) {
  replay::ReplayOptions options;
  options.policy = TRY(read_policy(arguments));
  options.per = TRY(replay::read_per(arguments.per));
  options.lose = TRY(replay::read_share("--lose", arguments.lose));
  options.missing = TRY(replay::read_missing(arguments.missing));
  options.regret = TRY(duration_option("--regret", arguments.regret));
  TRY(replay::settle(arguments.trace, options));
  options.delay = TRY(duration_option("--delay", arguments.delay));
  options.memory = TRY(replay::read_memory("--memory", arguments.memory));
  for (const std::string& sweep : arguments.sweeps) options.axes.push_back(TRY(replay::parse_axis(sweep)));
  auto axes = options.axes;
  TRY(replay::start_from_first(options.policy, axes));
  TRY(replay::combine(options.policy, axes));  // mistakes in a sweep are said before a long reading
  if (!arguments.trace.html.empty()) options.picture_columns = kPictureColumns;
  return options;
}

int show(const ReplayArguments& arguments, const replay::ReplayResult& result, std::optional<double> price) {
  if (result.totals.firings > result.firings.size())
    complain(fmt::format("only the first {} firings are kept one by one; all are counted", result.firings.size()));
  const std::string text = arguments.trace.json  ? replay::to_json(result, price)
                           : arguments.trace.csv ? replay::to_csv(result, price)
                                                 : replay_table(result, price, arguments.all, screen_of(STDOUT_FILENO));
  return give_answer(arguments.trace, [&] { return replay::to_html(result, price); }, text);
}

}  // namespace

int replay_command(int argc, char** argv) {
  CommandLine line(
      "Tries a rule on recorded telemetry: what would it have ended, what would that have saved, and whom would it\n"
      "have hurt? Reads what lull record, nvidia-smi, dcgmi, Prometheus, Grafana, gpustat and Weights & Biases write,\n"
      "and any other CSV or NDJSON with --columns; also compressed (.gz, .zst, .xz, .bz2).",
      "lull replay");
  ReplayArguments arguments;
  describe_traces(line, arguments.trace);
  line.option("--idle", arguments.idle, "the rule, such as 'util < 5 for 30m', or the name of one")
      .required()
      .value("RULE");
  line.option("--arm", arguments.arm, "nothing fires before this rule has held once (default: none)").value("RULE");
  line.option("--per", arguments.per,
              "what is judged, and ended, by itself: each GPU, each job, the GPUs of each host, or all together")
      .value("gpu|job|host|all");
  line.option("--lose", arguments.lose, "the share of the work that the best policy of a sweep may lose")
      .value("SHARE");
  line.option("--regret", arguments.regret, "a firing after which the GPU worked again within this time is regretted")
      .value("DURATION");
  line.option("--every", arguments.trace.every,
              "judge as a live command with this interval would have seen it; of files without times: how far apart "
              "their samples are (default: as it was recorded)")
      .value("DURATION");
  line.option("--delay", arguments.delay, "judge nothing before this long after the first sample").value("DURATION");
  line.option("--gap", arguments.trace.gap,
              "more time than this between two samples breaks a stretch (default: 3 intervals, at least 1s)")
      .value("DURATION");
  line.option("--missing", arguments.missing,
              "what a GPU without a value makes of all(): it is unknown, or that GPU is ignored")
      .value("unknown|ignore");
  describe_price(line, arguments.trace);
  line.each("--sweep", arguments.sweeps, "try these values too, such as for=5m,30m,2h or util=1,5,10 (default: none)")
      .value("NAME=VALUE,…");
  line.option("--columns", arguments.trace.columns,
              "which column is what, such as time=ts:ms,gpu=host+id (default: by its name)")
      .value("ROLE=COLUMN,…");
  line.flag("--json", arguments.trace.json, "totals, firings and sweep as one object");
  line.flag("--csv", arguments.trace.csv, "one row per combination of the sweep; without a sweep, one row per firing");
  line.option("--html", arguments.trace.html, "also write a page with timelines and charts (default: none)")
      .value("FILE");
  line.flag("--all", arguments.all,
            fmt::format("list every job that it would have ended, and every firing (default: the first {} jobs)",
                        kShownEnds));
  line.option("--memory", arguments.memory, "the most memory to use; a larger trace is read several times")
      .value("SIZE");
  describe_threads(line, arguments.trace);
  line.footer("Example:\n  lull replay night.csv.zst --idle 'util < 5' --sweep for=5m,15m,30m,1h --price 2.49");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (arguments.trace.json && arguments.trace.csv) return complain("replay: --json or --csv, not both", kExitUsage);
  return answer_from_traces<replay::ReplayOptions, replay::ReplayResult>(
      "replay", arguments.trace, read_options(arguments), replay::replay,
      [&](const auto& result, std::optional<double> price) { return show(arguments, result, price); });
}

}  // namespace lull
