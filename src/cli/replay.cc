// `lull replay`: what a rule would have done to recorded telemetry.

#include "replay/replay.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/option_value.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/trace_command.h"
#include "config/settings.h"
#include "replay/answer.h"
#include "replay/output.h"
#include "replay/outputs.h"
#include "trace/schema.h"
#include "view/replay_table.h"
#include "view/screen.h"

namespace lull {
namespace {

constexpr std::size_t kPictureColumns = 4096;
constexpr std::size_t kLeastMemory = 64 << 20;

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

Result<replay::Per> read_per(const std::string& text) {
  for (const replay::Per per : {replay::Per::gpu, replay::Per::job, replay::Per::host, replay::Per::all})
    if (text == replay::per_text(per)) return per;
  return fail(fmt::format("--per is gpu, job, host or all, not '{}'", printable(text)));
}

// "1%", or plainly 1: a share of 100.
Result<double> read_share(std::string_view option, std::string_view text) {
  const std::string_view number = trim(text.ends_with('%') ? text.substr(0, text.size() - 1) : text);
  const auto share = to_double(number);
  if (!share || !(*share >= 0 && *share <= 100))
    return fail(fmt::format("{}: '{}' is not a share: 0% to 100% would be right, such as 1%", option, printable(text)));
  return *share / 100;
}

Result<replay::ReplayOptions> read_options(const ReplayArguments& arguments) {
  replay::ReplayOptions options;
  options.paths = arguments.trace.traces;
  options.policy = TRY(read_policy(arguments));
  options.per = TRY(read_per(arguments.per));
  options.lose = TRY(read_share("--lose", arguments.lose));
  if (arguments.missing != "unknown" && arguments.missing != "ignore")
    return fail(fmt::format("--missing is unknown or ignore, not '{}'", printable(arguments.missing)));
  options.missing = arguments.missing == "ignore" ? WhenMissing::ignore : WhenMissing::unknown;
  options.regret = TRY(duration_option("--regret", arguments.regret));
  if (!arguments.trace.gap.empty()) options.gap = TRY(duration_option("--gap", arguments.trace.gap));
  if (options.gap == Duration::zero()) return fail("--gap 0 would break every stretch: more than 0 would be right");
  if (!arguments.trace.every.empty()) {
    options.every = TRY(duration_option("--every", arguments.trace.every));
    if (*options.every <= Duration::zero()) return fail("--every: more than 0 would be right");
  }
  options.delay = TRY(duration_option("--delay", arguments.delay));
  auto memory = parse_size(arguments.memory);
  if (!memory) return std::unexpected(std::move(memory).error().during("--memory"));
  options.memory = *memory;
  if (options.memory < kLeastMemory)
    return fail("--memory: at least " + format_size(static_cast<double>(kLeastMemory)));
  options.columns = TRY(trace::parse_columns(arguments.trace.columns));
  for (const std::string& sweep : arguments.sweeps) options.axes.push_back(TRY(replay::parse_axis(sweep)));
  auto axes = options.axes;
  TRY(replay::start_from_first(options.policy, axes));
  TRY(replay::combine(options.policy, axes));  // mistakes in a sweep are said before a long reading
  if (!arguments.trace.html.empty()) options.picture_columns = kPictureColumns;
  options.threads = arguments.trace.threads;
  return options;
}

int run_replay(const ReplayArguments& arguments) {
  const auto wrong = [](const Error& error) {
    return complain(fmt::format("replay: {}", error.message()), kExitUsage);
  };
  auto options = read_options(arguments);
  if (!options) return wrong(options.error());
  const auto price = replay::read_price(arguments.trace.price);
  if (!price) return wrong(price.error());
  if (const auto apart = replay::check_outputs(arguments.trace.traces, arguments.trace.html); !apart)
    return wrong(apart.error());
  ReadingProgress progress;
  options->progress = progress.shown();
  auto result = replay::replay(*std::move(options));
  progress.clear();
  if (!result) return complain(result.error().message());
  say_oddities(result->trace);
  if (result->totals.firings > result->firings.size())
    complain(fmt::format("only the first {} firings are kept one by one; all are counted", result->firings.size()));
  std::string text;
  if (arguments.trace.json)
    text = replay::to_json(*result, *price);
  else if (arguments.trace.csv)
    text = replay::to_csv(*result, *price);
  else
    text = replay_table(*result, *price, arguments.all, screen_of(STDOUT_FILENO));
  return give_answer(arguments.trace, [&] { return replay::to_html(*result, *price); }, text);
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
  return run_replay(arguments);
}

}  // namespace lull
