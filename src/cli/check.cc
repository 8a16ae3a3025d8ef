// `lull check RULE`: what a rule means, what it needs, and what this machine gives of it.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "config/settings.h"
#include "engine/judge.h"
#include "jobs/scope.h"
#include "rule/promql.h"
#include "rule/reason.h"
#include "rule/rule.h"
#include "sense/sampler.h"
#include "sense/select.h"
#include "session/machine.h"
#include "session/own_signals.h"
#include "trace/schema.h"
#include "view/rule_look.h"
#include "view/screen.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 1500ms;

// Asks the sources of the user's own signals as `lull watch` does; for a rate twice.
void look_at_own(const Rule& rule, const std::vector<SignalSource>& signals, RuleLook& looked) {
  const std::vector<Metric> used = rule.signals();
  for (const Metric metric : used)
    if (is_own(metric)) looked.machine.miss(metric, Absence::no_source);
  const std::vector<SignalSource> sources = sources_of(signals, used);
  if (sources.empty()) return;
  for (const SignalSource& source : sources) looked.sources[source.metric] = source.to_string();
  const SystemClock clock;
  const auto machine = Machine::open(clock);
  if (!machine) {
    for (const SignalSource& source : sources) looked.troubles[source.metric] = machine.error().message();
    return;
  }
  Loop& loop = (*machine)->loop();
  (void)(*machine)->listen({SIGCHLD}, [](const signalfd_siginfo&) {});  // of commands
  OwnSignals own(**machine, sources, 1s);
  Instant from = clock.now();
  const bool rate = std::ranges::find(sources, SignalSource::As::rate, &SignalSource::as) != sources.end();
  bool again = rate;
  own.on_read = [&] {
    if (!own.read_since(from)) return;
    if (!std::exchange(again, false)) return loop.stop();
    loop.in(1s, [&] {
      from = clock.now();
      own.ask_since(from);
    });
  };
  loop.in(2 * own.longest_timeout() + 5s, [&] { loop.stop(); });
  own.ask_since(from);
  (void)loop.run();
  own.add_to(looked.machine);
  looked.troubles = own.troubles();
}

Result<RuleLook> look(const Rule& rule, const std::string& gpus, const std::vector<SignalSource>& sources) {
  const std::vector<Metric> signals = rule.signals();
  SamplerOptions sampling;
  std::vector<Metric> wanted = signals;  // and what could be asked for instead
  for (const Metric metric : signals)
    for (const Metric other : instead_of(metric)) {
      wanted.push_back(other);
      if (const auto whole = info(other).whole) wanted.push_back(*whole);
    }
  sampling.want_only(wanted);
  sampling.deadline = kPatience;
  sampling.once = true;
  sampling.gpus = gpus;
  RuleLook looked{.snapshot = Sampler::start(sampling)->sample(), .devices = {}};
  const Inventory& inventory = *looked.snapshot.inventory;
  if (!gpus.empty() && looked.driver()) {
    looked.devices = TRY(select_devices(gpus, inventory));
  } else {
    // As `lull watch` does: a GPU that answers "no permission" and that no user here can open is not meant for us.
    JobGpus gpus_of_all(std::make_shared<GpuUsers>(Root::machine()));
    gpus_of_all.look(looked.snapshot, nullptr);
    const std::vector<Device> closed = gpus_of_all.closed();
    for (std::size_t i = 0; i < inventory.devices.size(); ++i)
      if (std::ranges::find(closed, inventory.devices[i]) == closed.end()) looked.devices.push_back(i);
  }
  look_at_own(rule, sources, looked);
  std::vector<Device> scope;
  scope.reserve(looked.devices.size());
  for (const std::size_t i : looked.devices) scope.push_back(inventory.devices[i]);
  Judge judge(Policy{.idle = rule}, std::move(scope), {});
  looked.now = TRY(judge.observe(looked.snapshot, Facts(), looked.machine)).condition;
  return looked;
}

struct PromArguments {
  bool wanted = false;
  std::string per = "gpu";
  std::string metrics = "dcgm";
  std::string interval = "30s";
  std::string labels;
  std::string alert;
};

bool is_label(std::string_view name) {
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (name.empty() || !fits(name.front())) return false;
  return std::ranges::all_of(name, [&](char c) { return fits(c) || (c >= '0' && c <= '9'); });
}

Result<PromOptions> read_prom_options(const PromArguments& arguments) {
  PromOptions options;
  constexpr std::array<std::string_view, 3> kPers = {"gpu", "job", "host"};
  constexpr std::array<std::string_view, 2> kNames = {"dcgm", "lull"};
  options.per = static_cast<PromPer>(TRY(choice_option("--per", arguments.per, kPers)));
  options.names = static_cast<PromNames>(TRY(choice_option("--metrics", arguments.metrics, kNames)));
  options.interval = TRY(limit_option("--interval", arguments.interval));
  if (options.interval < 1s || options.interval > 1h)
    return fail(fmt::format("--interval {}: 1s to 1h would be right, such as 30s", printable(arguments.interval)));
  for (const trace::ColumnChoice& choice : TRY(trace::parse_columns(arguments.labels))) {
    if (choice.role != "job" || options.names == PromNames::lull)
      return fail("--labels: only job=LABEL of --metrics dcgm can be chosen here, such as job=namespace+pod");
    for (const std::string_view label : split(choice.column, '+')) {
      if (!is_label(trim(label)))
        return fail(fmt::format("--labels: '{}' is not the name of a label", printable(label)));
      options.job_labels.emplace_back(trim(label));
    }
  }
  return options;
}

int print_promql(const Rule& rule, const PromArguments& arguments) {
  const auto options = read_prom_options(arguments);
  if (!options) return complain("check: " + options.error().message(), kExitUsage);
  const auto text =
      arguments.alert.empty() ? to_promql(rule, *options) : to_prometheus_alert(rule, *options, arguments.alert);
  if (!text) return complain("check: " + text.error().message(), kExitUsage);
  fmt::print("{}", *text);
  return 0;
}

}  // namespace

int check_command(int argc, char** argv) {
  std::vector<std::string> words;
  std::string gpus;
  std::vector<std::string> signal_from;
  bool json = false;
  CommandLine line("What a rule means, what it needs, and what this machine gives of it.", "lull check");
  line.arguments(
          "RULE", words,
          "such as 'util < 5 for 20m' (lull-rules(7) explains the language), the name of one (`lull config` lists "
          "them), or a time: the default rule for so long")
      .required();
  line.option(shared::kGpus, gpus, std::string(shared::kOnlyThese) + " (default: all)");
  line.each(shared::kSignalFrom, signal_from);
  line.flag(shared::kJson, json, shared::kOneObject);
  PromArguments prom;
  line.flag("--promql", prom.wanted, "print the rule as a query of Prometheus that never answers before lull does")
      .excludes("--json")
      .excludes("--gpus");
  auto about_prom = {
      line.option(shared::kPer, prom.per, ", the GPUs of each host; with --promql").value("gpu|job|host"),
      line.option("--metrics", prom.metrics, "with --promql: the names of dcgm-exporter or of lull serve")
          .value("dcgm|lull"),
      line.option("--interval", prom.interval, "with --promql: the time between two scrapes").value("TIME"),
      line.option(shared::kLabels, prom.labels, ", with --promql: that of the job (default: job=hpc_job)")
          .value("job=LABEL")
          .not_empty("job=namespace+pod"),
      line.option("--alert", prom.alert, "with --promql: print an alert rule of this name (default: the query alone)")
          .value("NAME")
          .not_empty("GpuIdle"),
  };
  line.footer(
      "Examples:\n  lull check 'util < 5 and mem_used > 1GiB for 30m'\n  lull check hung\n"
      "  lull check 'util < 1 for 30m' --promql --per job --alert JobIdle >idle.rules.yml");
  if (const auto done = line.parse(argc, argv)) return *done;

  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  const auto settings = Settings::load();
  if (!settings) return complain(settings.error().message(), kExitUsage);
  const auto signals = signals_with(settings->signals(), signal_from);
  if (!signals) return complain("check: " + signals.error().message(), kExitUsage);
  const Result<Rule> rule = settings->idle_rule(text);
  if (!rule) return complain(rule.error().message(), kExitUsage);
  if (prom.wanted) return print_promql(*rule, prom);
  if (std::ranges::any_of(about_prom, &CommandLine::Option::given))
    return complain("check: --per, --metrics, --interval, --labels and --alert go with --promql", kExitUsage);
  const Result<RuleLook> looked = look(*rule, gpus, *signals);
  if (!looked) return complain(looked.error().message(), kExitUsage);
  fmt::print("{}", json ? rule_json(*rule, *looked) : rule_text(*rule, *looked, screen_of(STDOUT_FILENO)));
  return 0;
}

}  // namespace lull
