// `lull pick`: its options, and what it prints.

#include "cli/pick.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/say.h"

namespace lull {

namespace {

constexpr std::string_view kFooter =
    "\nWith CMD: it runs on the chosen GPUs, which are leased to it until its last process is gone.\n"
    "Without: the choice is printed; it is held only with --hold or --hold-pid.\n"
    "\nexample: lull pick -n 2 --wait -- python train.py\n"
    "         lull pick --mem-free 20GiB --best cool -- ./infer.sh\n"
    "         docker run --gpus $(lull pick -n 2 --format docker --hold 1m) …\n";

// Everything as text first, so that every mistake is told in the same words.
struct Words {
  std::string count = "1", gpus, name, util, mem_util, mem_free, mem_used, procs, temp, where, best = "random", format;
  std::string hold, hold_pid, wait, tolerate, priority = "0";
  bool mine_ok = false, uuid = false, no_lease = false, quiet = false;
};

void describe(CLI::App& app, Words& words) {
  app.add_option("-n,--count", words.count, "how many GPUs (1)");
  app.add_option("--gpus", words.gpus, "only of these: 0,2 or 0-3 or UUIDs");
  app.add_option("--name", words.name, "only those with this in their name");
  app.add_option("--util", words.util, "utilisation at most, in % (0); any: does not matter");
  app.add_option("--mem-util", words.mem_util, "memory controller activity at most, in % (0)");
  app.add_option("--mem-free", words.mem_free, "memory free at least: 20GiB");
  app.add_option("--mem-used", words.mem_used, "memory in use at most (700MiB or 2 %, whichever is more)");
  app.add_option("--procs", words.procs, "compute processes at most (0)");
  app.add_option("--temp", words.temp, "temperature at most, in C");
  app.add_option("--where", words.where, "a rule that the reading must meet: 'power < 60W and pstate >= 8'");
  app.add_option("--tolerate", words.tolerate, "overlook idle processes that hold no more than this: 700MiB");
  app.add_flag("--mine-ok", words.mine_ok, "a GPU that only I use counts as idle");
  app.add_option("--best", words.best, "memory, cool, topology (joined most closely) or random (default)");
  app.add_flag("--uuid", words.uuid, "name GPUs by UUID in CUDA_VISIBLE_DEVICES");
  app.add_option("--format", words.format, "ids, uuids, docker, env or json");
  app.add_option("--hold", words.hold, "hold the printed choice for so long: 10m");
  app.add_option("--hold-pid", words.hold_pid, "hold it until this process ends");
  app.add_option("--wait", words.wait, "queue until they are free; =DURATION: at most so long, then 124");
  app.add_option("--priority", words.priority, "greater goes first in the queue (0)");
  app.add_flag("--no-lease", words.no_lease, "do not hold the GPUs: others may get them too");
  app.add_flag("-q,--quiet", words.quiet, "say nothing while waiting");
}

// Where the command begins: behind `--`, or at the first word that is neither an
// option nor an option's value. What follows is the command's own.
int command_start(const CLI::App& app, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") return i;
    if (word.size() < 2 || word[0] != '-') return i;
    if (word == "--wait") continue;  // its value only comes after '='
    const bool has_value = word.starts_with("--") ? word.find('=') != std::string::npos : word.size() > 2;
    const CLI::Option* option = app.get_option_no_throw(word);
    if (option != nullptr && !has_value && option->get_items_expected_max() > 0) ++i;
  }
  return argc;
}

Error about(std::string_view option, Error error) { return std::move(error).during(option); }

Result<Limit> limit(std::string_view option, const std::string& text, bool size) {
  if (text.empty()) return Limit{};
  if (text == "any") return Limit::off();
  if (size) {
    const auto bytes = parse_size(text);
    if (!bytes) return std::unexpected(about(option, bytes.error()));
    return Limit::of(static_cast<double>(*bytes));
  }
  const auto value = to_double(text.ends_with('%') ? std::string_view(text).substr(0, text.size() - 1) : text);
  if (!value || !(*value >= 0) || !std::isfinite(*value))
    return fail(fmt::format("{} {}: a number from 0 on would be right, or any", option, printable(text)));
  return Limit::of(*value);
}

Result<> read_wishes(const Words& words, PickSettings& settings) {
  Wishes& wishes = settings.wishes;
  wishes.name = words.name;
  wishes.util = TRY(limit("--util", words.util, false));
  wishes.mem_util = TRY(limit("--mem-util", words.mem_util, false));
  wishes.procs = TRY(limit("--procs", words.procs, false));
  wishes.mem_used = TRY(limit("--mem-used", words.mem_used, true));
  if (!words.mem_free.empty()) wishes.mem_free = TRY(limit("--mem-free", words.mem_free, true));
  if (!words.temp.empty()) wishes.temp = TRY(limit("--temp", words.temp, false));
  if (!words.tolerate.empty()) {
    const auto bytes = parse_size(words.tolerate);
    if (!bytes) return std::unexpected(about("--tolerate", bytes.error()));
    wishes.tolerate = static_cast<double>(*bytes);
  }
  if (words.mine_ok) wishes.mine = ::geteuid();
  if (!words.where.empty()) {
    const auto rule = parse_rule(words.where);
    if (!rule) return std::unexpected(about("--where", rule.error()));
    auto where = where_rule(*rule);
    if (!where) return std::unexpected(about("--where", where.error()));
    wishes.where = *std::move(where);
    settings.where_details = true;
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

Result<> read_holding(const Words& words, PickSettings& settings) {
  settings.lease = !words.no_lease;
  if (!words.hold.empty()) settings.hold = TRY(duration("--hold", words.hold));
  if (!words.hold_pid.empty()) {
    const auto pid = to_unsigned(words.hold_pid);
    if (!pid || *pid == 0 || *pid > 0x7fffffff)
      return fail(fmt::format("--hold-pid {}: the number of a process would be right", printable(words.hold_pid)));
    settings.hold_pid = static_cast<pid_t>(*pid);
  }
  settings.wait = !words.wait.empty();
  if (settings.wait && words.wait != "forever") settings.wait_limit = TRY(duration("--wait", words.wait));
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

Result<PickSettings> read_settings(const Words& words, std::vector<std::string> command) {
  PickSettings settings;
  settings.command = std::move(command);
  const auto count = to_unsigned(words.count);
  if (words.count == "all")
    settings.all = true;
  else if (!count || *count == 0 || *count > 4096)
    return fail(fmt::format("--count {}: a number from 1 on would be right, or all", printable(words.count)));
  else
    settings.count = static_cast<unsigned>(*count);
  settings.gpus = words.gpus;
  settings.uuid = words.uuid;
  settings.quiet = words.quiet;
  auto best = parse_best(words.best);
  if (!best) return std::unexpected(about("--best", best.error()));
  settings.best = *best;
  if (!words.format.empty()) settings.format = TRY(parse_format(words.format));
  const auto priority = to_double(words.priority);
  if (!priority || std::fabs(*priority) > 1000 || *priority != std::floor(*priority))
    return fail(
        fmt::format("--priority {}: a whole number from -1000 to 1000 would be right", printable(words.priority)));
  settings.priority = static_cast<int>(*priority);
  TRY(read_wishes(words, settings));
  TRY(read_holding(words, settings));
  return settings;
}

std::string json_of(const Picked& picked, const PickSettings& settings) {
  std::string gpus;
  for (const std::size_t position : picked.devices) {
    const Device& device = picked.snapshot.inventory->devices[position];
    const Reading& reading = picked.snapshot.readings[position];
    const auto value = [&](Metric metric) {
      return std::isnan(reading[metric]) ? std::string("null") : fmt::format("{:.15g}", reading[metric]);
    };
    gpus += fmt::format(
        "{}{{\"index\":{},\"label\":{},\"uuid\":{},\"name\":{},\"pci\":{},\"mem_free_bytes\":{},\"mem_total_bytes\":{}}"
        "}",
        gpus.empty() ? "" : ",", device.index, json_string(device.label()), json_string(device.uuid),
        json_string(device.name), json_string(device.pci), value(Metric::mem_free), value(Metric::mem_total));
  }
  std::string environment;
  for (const auto& [name, text] : visibility(picked, settings.uuid, Root::machine()))
    environment += fmt::format("{}{}:{}", environment.empty() ? "" : ",", json_string(name), json_string(text));
  return fmt::format("{{\"gpus\":[{}],\"environment\":{{{}}},\"held\":{},\"lease\":{}}}\n", gpus, environment,
                     settings.holds() ? "true" : "false", settings.holds() ? json_string(picked.lease) : "null");
}

std::string text_of(const Picked& picked, const PickSettings& settings) {
  switch (settings.format) {
    case PickFormat::ids: return visible_value(picked, settings.uuid) + "\n";
    case PickFormat::uuids: return visible_value(picked, true) + "\n";
    // Docker wants the quotes inside the value, or it takes the comma for the end of it.
    case PickFormat::docker: return fmt::format("\"device={}\"\n", visible_value(picked, settings.uuid));
    case PickFormat::env: {
      std::string text;
      for (const auto& [name, value] : visibility(picked, settings.uuid, Root::machine()))
        text += fmt::format("{}={}\n", name, value);
      return text;
    }
    case PickFormat::json: return json_of(picked, settings);
  }
  return "";
}

int print_picked(Picker& picker, const Picked& picked) {
  const PickSettings& settings = picker.settings();
  if (settings.holds())
    if (const auto kept = picker.hand_to_keeper(picked); !kept) return complain(kept.error().message());
  if (const auto written = write_all(STDOUT_FILENO, text_of(picked, settings)); !written)
    return complain("stdout: " + written.error().message());
  return 0;
}

}  // namespace

int pick_command(int argc, char** argv) {
  CLI::App app("Chooses GPUs that are idle, leases them, and runs a command on them.", "lull pick");
  app.footer(std::string(kFooter));
  Words words;
  describe(app, words);
  const int start = command_start(app, argc, argv);
  std::vector<std::string> options(argv, argv + start);
  for (std::string& option : options)
    if (option == "--wait" || option == "--wait=") option = "--wait=forever";
  std::vector<char*> pointers;
  for (std::string& option : options) pointers.push_back(option.data());
  if (const auto status = parse_options(app, start, pointers.data())) return *status;

  const bool marked = start < argc && std::string_view(argv[start]) == "--";
  std::vector<std::string> command(argv + std::min(argc, start + (marked ? 1 : 0)), argv + argc);
  if (marked && command.empty()) return complain("pick: there is no command behind --", kExitUsage);
  auto settings = read_settings(words, std::move(command));
  if (!settings) return complain("pick: " + settings.error().message(), kExitUsage);
  if (!settings->command.empty())
    if (const auto status = cannot_run(settings->command.front())) return *status;

  // The keeper blanks the whole command line, of which we got the part after `lull`.
  Picker picker(*std::move(settings), std::span(argv, static_cast<std::size_t>(argc)));
  auto picked = picker.pick();
  if (!picked) return say_refusal(picked.error());
  if (picker.settings().command.empty()) return print_picked(picker, *picked);
  return run_picked(picker, *std::move(picked));
}

}  // namespace lull
