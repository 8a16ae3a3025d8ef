// `lull replay`: what a rule would have done to recorded telemetry.

#include "replay/replay.h"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
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
  std::vector<std::string> except_users;
  bool all = false;
  bool verbose = false;
};

Result<Policy> read_policy(const ReplayArguments& arguments) {
  const Settings settings = TRY(settings_with(arguments.trace));
  Policy policy{.idle = TRY(settings.idle_option("--idle", arguments.idle))};
  if (!arguments.arm.empty()) policy.arm = TRY(settings.rule_option("--arm", arguments.arm));
  return policy;
}

Result<replay::ReplayOptions> read_options(const ReplayArguments& arguments) {
  replay::ReplayOptions options;
  options.policy = TRY(read_policy(arguments));
  options.per = TRY(replay::read_per(arguments.per));
  options.except_users = TRY(replay::read_users("--except-user", arguments.except_users));
  options.lose = TRY(replay::read_share("--lose", arguments.lose));
  options.missing = TRY(missing_option(arguments.missing));
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
  const replay::OutputOptions how{.price = price, .verbose = arguments.verbose};
  if (arguments.verbose && result.totals.firings > result.firings.size())
    complain(fmt::format("only the first {} firings are kept one by one; all are counted", result.firings.size()));
  if (result.main_totals().ended > result.ends.size())
    complain(fmt::format("only the first {} ended jobs are listed; all are counted", result.ends.size()));
  const std::string text = arguments.trace.json  ? replay::to_json(result, how)
                           : arguments.trace.csv ? replay::to_csv(result, how)
                                                 : replay_table(result, how, arguments.all, screen_of(STDOUT_FILENO));
  return give_answer(arguments.trace, [&] { return replay::to_html(result, price); }, text);
}

}  // namespace

int replay_command(int argc, char** argv) {
  CommandLine line(
      "Tries a rule on recorded telemetry: what would it have ended and freed, and whose work would it have\n"
      "lost? Reads what lull record, nvidia-smi, dcgmi, Prometheus, Grafana, gpustat and Weights & Biases write,\n"
      "and any other CSV or NDJSON with --columns; also compressed (.gz, .zst, .xz, .bz2).",
      "lull replay");
  ReplayArguments arguments;
  describe_traces(line, arguments.trace);
  describe_idle(line, arguments.idle);
  line.option(shared::kArm, arguments.arm);
  line.option(shared::kPer, arguments.per, ", the GPUs of each host, or all together").value("gpu|job|host|all");
  line.each(shared::kExceptUser, arguments.except_users, "jobs are left out, as lull watch does (default: none)");
  line.option("--lose", arguments.lose, "the share of the work that a recommended policy may lose").value("SHARE");
  line.option("--regret", arguments.regret,
              "with --verbose: a firing after which the GPU worked again within this time is regretted")
      .value("TIME");
  line.option(shared::kEvery, arguments.trace.every,
              " that a live command would have taken; of files without times: between theirs (default: as it was "
              "recorded)");
  line.option(shared::kDelay, arguments.delay, "the first sample");
  line.option(shared::kGap, arguments.trace.gap, "breaks a stretch");
  line.option(shared::kMissing, arguments.missing);
  describe_signals(line, arguments.trace);
  describe_price(line, arguments.trace);
  line.each("--sweep", arguments.sweeps, "try these values too, such as for=5m,30m,2h or util=1,5,10 (default: none)")
      .value("NAME=VALUE,…");
  line.option(shared::kColumns, arguments.trace.columns);
  line.flag(shared::kJson, arguments.trace.json, ": recommendation, totals, ended jobs and sweep as one object");
  line.flag(shared::kCsv, arguments.trace.csv,
            ": a row per combination of the sweep; without a sweep, a row per job that it would have ended");
  line.option(shared::kHtml, arguments.trace.html, " with timelines and charts");
  line.flag("--all", arguments.all,
            fmt::format("list every job that it would have ended (default: the first {})", kShownEnds));
  line.flag(shared::kVerbose, arguments.verbose,
            "also count and list stretches and firings, whichever job had the GPU");
  line.option("--memory", arguments.memory, "the most memory to use; a larger trace is read several times")
      .value("SIZE");
  describe_threads(line, arguments.trace);
  describe_prometheus(line, arguments.trace);
  line.footer("Example:\n  lull replay night.csv.zst --idle 'util < 5' --sweep for=5m,15m,30m,1h --price 2.49");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (arguments.trace.json && arguments.trace.csv) return complain("replay: --json or --csv, not both", kExitUsage);
  return answer_from_traces<replay::ReplayOptions, replay::ReplayResult>(
      "replay", arguments.trace, read_options(arguments), replay::replay,
      [&](const auto& result, std::optional<double> price) { return show(arguments, result, price); });
}

}  // namespace lull
