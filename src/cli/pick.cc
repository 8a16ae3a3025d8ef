// `lull pick`: its options, and what it prints.

#include "cli/pick.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"

namespace lull {

namespace {

constexpr const char* kFooter =
    "With CMD: it runs on the chosen GPUs, which are leased to it until its last process is gone.\n"
    "Without: the choice is printed; it is held only with --hold or --hold-pid.\n\n"
    "Examples:\n"
    "  lull pick -n 2 --wait -- python train.py\n"
    "  lull pick --mem-free 20GiB --best cool -- ./infer.sh\n"
    "  docker run --gpus $(lull pick -n 2 --format docker --hold 1m) ...";

// Everything as text first, so that every mistake is told in the same words.
struct Words {
  std::string count = "1", gpus, name, util, mem_util, mem_free, mem_used, procs, temp, where, best, format;
  std::string hold, hold_pid, wait, tolerate, priority = "0", share = "1", joinable;
  bool waits = false, mine_ok = false, uuid = false, no_lease = false, quiet = false;
};

// An empty value is refused: `--gpus "$MINE"` of a variable that is not set must not mean any GPU.
struct Described {
  std::string_view name;
  std::string_view value;
  const std::string* text;
  CommandLine::Option option;
};

std::vector<Described> describe_options(CommandLine& line, Words& words) {
  std::vector<Described> described;
  const auto add = [&](const char* names, const char* value, std::string& text, const char* help) {
    const std::string_view name = names;
    described.push_back({name.substr(name.rfind(',') + 1), value, &text, line.option(names, text, help).value(value)});
  };
  add("-n,--count", "N", words.count, "how many GPUs, or all of --gpus");
  add("--gpus", "LIST", words.gpus, "only of these: 0,2 or 0-3 or UUIDs (default: all)");
  add("--name", "TEXT", words.name, "only those with this in their name (default: any)");
  add("--util", "N", words.util, "utilisation at most, in %; any: does not matter (default 0)");
  add("--mem-util", "N", words.mem_util, "memory controller activity at most, in % (default 0)");
  add("--mem-free", "SIZE", words.mem_free, "memory free at least: 20GiB (default: any)");
  add("--mem-used", "SIZE", words.mem_used, "memory in use at most (default 64MiB)");
  add("--procs", "N", words.procs, "compute processes at most (default 0)");
  add("--temp", "C", words.temp, "temperature at most (default: any)");
  add("--where", "RULE", words.where, "what else must hold: 'power < 60W and pstate >= 8' (default: nothing)");
  add("--tolerate", "SIZE", words.tolerate, "overlook idle processes that hold this at most: 700MiB (default: none)");
  add("--share", "N", words.share, "be one of N holders of a GPU at most, who all say so");
  add("--joinable", "N", words.joinable, "let others who share join, up to N holders (as --share)");
  line.flag("--mine-ok", words.mine_ok, "a GPU that only I use counts as idle");
  add("--best", "ORDER", words.best,
      "memory, cool, random, or topology: joined most closely (topology if several, else random)");
  line.flag("--uuid", words.uuid, "name GPUs by UUID in CUDA_VISIBLE_DEVICES");
  add("--format", "FORMAT", words.format, "of a printed choice: uuids, docker, env or json (default ids)");
  add("--hold", "TIME", words.hold, "hold the printed choice for this long: 10m (default: not held)");
  add("--hold-pid", "PID", words.hold_pid, "hold it until this process ends (default: not held)");
  add("--wait", "[=TIME]", words.wait, "queue until they are free; --wait=10m: then give up with 124");
  described.back().option.optional_value();
  add("--priority", "N", words.priority, "greater goes first in the queue");
  line.flag("--no-lease", words.no_lease, "do not hold the GPUs: others may get them too");
  line.flag("-q,--quiet", words.quiet, "say nothing while waiting, nor that nothing is held");
  return described;
}

Result<> refuse_empty(const std::vector<Described>& described) {
  for (const Described& one : described)
    if (one.option.given() && one.text->empty() && one.name != "--wait")
      return fail(fmt::format("{0} needs a value: {0} {1}", one.name, one.value));
  return {};
}

Error about(std::string_view option, Error error) { return std::move(error).during(option); }

// `--mem-free 20` surely does not mean 20 bytes.
Result<double> size(std::string_view option, const std::string& text) {
  if (const auto bare = to_double(text); bare && *bare != 0)
    return fail(fmt::format("{0} {1} needs a unit: {0} {1}GiB or {0} {1}MiB", option, printable(text)));
  const auto bytes = parse_size(text);
  if (!bytes) return std::unexpected(about(option, bytes.error()));
  return static_cast<double>(*bytes);
}

Result<Limit> size_limit(std::string_view option, const std::string& text) {
  if (text.empty()) return Limit{};
  if (text == "any") return Limit::off();
  return Limit::of(TRY(size(option, text)));
}

// As far as the metric itself goes; a number of things is a whole one.
Result<Limit> limit(std::string_view option, const std::string& text, Metric metric) {
  if (text.empty()) return Limit{};
  if (text == "any") return Limit::off();
  const bool percent = info(metric).unit == Unit::percent && text.ends_with('%');
  const auto value = to_double(std::string_view(text).substr(0, text.size() - (percent ? 1 : 0)));
  const bool whole = info(metric).unit == Unit::count;
  const double most = std::min(info(metric).range.highest, 1e6);
  if (!value || !(*value >= 0 && *value <= most) || (whole && *value != std::floor(*value)))
    return fail(fmt::format("{} {}: a {}number from 0 to {} would be right, or any", option, printable(text),
                            whole ? "whole " : "", most));
  return Limit::of(*value);
}

Result<> read_wishes(const Words& words, PickSettings& settings) {
  Wishes& wishes = settings.wishes;
  wishes.name = words.name;
  wishes.util = TRY(limit("--util", words.util, Metric::util));
  wishes.mem_util = TRY(limit("--mem-util", words.mem_util, Metric::mem_util));
  wishes.procs = TRY(limit("--procs", words.procs, Metric::procs));
  wishes.mem_used = TRY(size_limit("--mem-used", words.mem_used));
  if (!words.mem_free.empty()) wishes.mem_free = TRY(size_limit("--mem-free", words.mem_free));
  if (!words.temp.empty()) wishes.temp = TRY(limit("--temp", words.temp, Metric::temp));
  if (!words.tolerate.empty()) wishes.tolerate = TRY(size("--tolerate", words.tolerate));
  if (words.mine_ok) wishes.mine = ::geteuid();
  if (!words.where.empty()) {
    const auto rule = parse_rule(words.where);
    if (!rule) return std::unexpected(about("--where", rule.error()));
    auto where = where_rule(*rule);
    if (!where) return std::unexpected(about("--where", where.error()));
    wishes.where = *std::move(where);
    settings.where_details = true;
    for (const Metric metric : rule->signals()) {
      settings.where_openers = settings.where_openers || metric == Metric::openers;
      settings.where_pcie = settings.where_pcie || metric == Metric::pcie;
    }
  }
  return {};
}

Result<Duration> duration(std::string_view option, const std::string& text) {
  auto value = parse_duration(text);
  if (!value) return std::unexpected(about(option, value.error()));
  return value;
}

Result<PickFormat> parse_format(const std::string& word) {
  constexpr std::array<std::string_view, 5> kWords = {"ids", "uuids", "docker", "env", "json"};
  for (std::size_t i = 0; i < kWords.size(); ++i)
    if (word == kWords[i]) return static_cast<PickFormat>(i);
  return fail(fmt::format("--format {}: ids, uuids, docker, env or json would be right{}", printable(word),
                          did_you_mean(word, kWords)));
}

Result<unsigned> holders(std::string_view option, const std::string& text, unsigned fewest) {
  const auto number = to_unsigned(text);
  if (!number || *number < fewest || *number > kMostHolders)
    return fail(
        fmt::format("{} {}: a number from {} to {} would be right", option, printable(text), fewest, kMostHolders));
  return static_cast<unsigned>(*number);
}

// Whoever shares takes the others' work as it is, unless a limit was given by name.
Result<> read_share(const Words& words, PickSettings& settings) {
  settings.share = settings.patience = TRY(holders("--share", words.share, 1));
  if (!words.joinable.empty()) settings.patience = TRY(holders("--joinable", words.joinable, settings.share));
  if (settings.share == 1) return {};
  settings.company = settings.wishes;
  for (Limit* limit :
       {&settings.company->util, &settings.company->mem_util, &settings.company->procs, &settings.company->mem_used})
    if (limit->kind == Limit::usual) *limit = Limit::off();
  if (!settings.lease) return fail("--no-lease and --share: what is not leased has no number of holders");
  return {};
}

Result<> read_holding(const Words& words, PickSettings& settings) {
  settings.lease = !words.no_lease;
  if (!words.hold.empty()) settings.hold = TRY(duration("--hold", words.hold));
  if (settings.hold == Duration::zero()) return fail("--hold 0 would hold nothing: 10m would be right, for example");
  if (!words.hold_pid.empty()) {
    const auto pid = to_pid(words.hold_pid);
    if (!pid)
      return fail(fmt::format("--hold-pid {}: the number of a process would be right", printable(words.hold_pid)));
    settings.hold_pid = *pid;
  }
  settings.wait = words.waits;
  if (!words.wait.empty()) settings.wait_limit = TRY(duration("--wait", words.wait));
  if (words.waits && words.wait.empty() && !settings.command.empty() && parse_duration(settings.command.front()))
    return fail(fmt::format("--wait takes its time after a '=': --wait={}", printable(settings.command.front())));
  if (settings.hold && settings.hold_pid) return fail("--hold and --hold-pid: one of them");
  if ((settings.hold || settings.hold_pid) && !settings.command.empty())
    return fail("--hold is for a printed choice; a command holds its GPUs by itself");
  if (!settings.lease && (settings.hold || settings.hold_pid || settings.wait))
    return fail(fmt::format("--no-lease and --{}: what is not leased can neither be held nor queued for",
                            settings.wait ? "wait" : "hold"));
  if (!words.format.empty() && !settings.command.empty())
    return fail("--format is for a printed choice, not for a command");
  return {};
}

Result<PickOutput> read_output(const Words& words) {
  PickOutput output;
  output.uuid = words.uuid;
  output.quiet = words.quiet;
  if (!words.format.empty()) output.format = TRY(parse_format(words.format));
  return output;
}

Result<PickSettings> read_settings(const Words& words, std::vector<std::string> command) {
  PickSettings settings;
  settings.command = std::move(command);
  const auto count = to_unsigned(words.count);
  if (words.count == "all")
    settings.all = true;
  else if (!count || *count == 0 || *count > 4096)
    return fail(fmt::format("--count {}: must be a positive number (4096 at most) or 'all'", printable(words.count)));
  else
    settings.count = static_cast<unsigned>(*count);
  settings.gpus = words.gpus;
  settings.best_asked_for = !words.best.empty();
  const bool several = settings.all || settings.count > 1;
  auto best = parse_best(settings.best_asked_for ? words.best : several ? "topology" : "random");
  if (!best) return std::unexpected(about("--best", best.error()));
  settings.best = *best;
  const auto priority = to_double(words.priority);
  if (!priority || std::fabs(*priority) > 1000 || *priority != std::floor(*priority))
    return fail(
        fmt::format("--priority {}: a whole number from -1000 to 1000 would be right", printable(words.priority)));
  settings.priority = static_cast<int>(*priority);
  TRY(read_wishes(words, settings));
  TRY(read_holding(words, settings));
  TRY(read_share(words, settings));
  return settings;
}

// GPU=$(lull pick) looks like a reservation, and is none.
void say_not_held(const Picked& picked, const PickSettings& settings) {
  if (!settings.lease || ::isatty(STDOUT_FILENO) == 1) return;
  const bool one = picked.devices.size() == 1;
  complain(
      fmt::format("nothing is held: others may take {} too. --hold 10m or --hold-pid $$ holds {}, "
                  "`lull pick -- CMD` holds {} while CMD runs (-q: do not say this)",
                  one ? "it" : "them", one ? "it" : "them", one ? "it" : "them"));
}

int print_picked(Picker& picker, const Picked& picked, const PickOutput& output) {
  // We hold it ourselves until the keeper does: what nobody was told of is given back when we end.
  if (const auto written = write_all(STDOUT_FILENO, picked_text(picked, output.format, output.uuid)); !written)
    return complain("stdout: " + written.error().message());
  if (picker.settings().holds())
    if (const auto kept = picker.hand_to_keeper(picked); !kept) return complain(kept.error().message());
  if (picked.locks.empty() && !output.quiet) say_not_held(picked, picker.settings());
  return 0;
}

}  // namespace

int pick_command(int argc, char** argv) {
  CommandLine line("Chooses GPUs that are idle, leases them, and runs a command on them.", "lull pick");
  line.usage("options] [--] [CMD ...");
  line.footer(kFooter);
  Words words;
  const std::vector<Described> described = describe_options(line, words);
  const int begins = line.command_begins(argc, argv);
  if (const auto status = line.parse(begins, argv)) return *status;
  const auto refuse = [](const Error& error) {
    (void)write_all(STDERR_FILENO, fmt::format("lull pick: {} (lull pick --help explains)\n", error.message()));
    return kExitUsage;
  };
  if (const auto whole = refuse_empty(described); !whole) return refuse(whole.error());
  words.waits =
      std::ranges::any_of(described, [](const Described& one) { return one.name == "--wait" && one.option.given(); });
  const bool dashes = begins < argc && std::string_view(argv[begins]) == "--";
  std::vector<std::string> command(argv + begins + (dashes ? 1 : 0), argv + argc);
  if (dashes && command.empty()) return refuse(Error{"there is no command behind --"});
  auto settings = read_settings(words, std::move(command));
  if (!settings) return refuse(settings.error());
  if (!settings->command.empty())
    if (const auto status = cannot_run(settings->command.front())) return *status;

  const auto output = read_output(words);
  if (!output) return refuse(output.error());
  const auto world = pick_world(output->quiet);
  Picker picker(*world, *std::move(settings));
  const auto picked = picker.pick();
  if (!picked) return say_refusal(picked.error());
  if (picker.settings().command.empty()) return print_picked(picker, *picked, *output);
  return run_picked(picker, *picked, *output);
}

}  // namespace lull
