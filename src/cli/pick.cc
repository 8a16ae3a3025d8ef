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

namespace lull {

namespace {

constexpr std::string_view kFooter =
    "\nWith CMD: it runs on the chosen GPUs, which are leased to it until its last process is gone.\n"
    "Without: the choice is printed; it is held only with --hold or --hold-pid.\n"
    "\nexample: lull pick -n 2 --wait -- python train.py\n"
    "         lull pick --mem-free 20GiB --best cool -- ./infer.sh\n"
    "         docker run --gpus $(lull pick -n 2 --format docker --hold 1m) ...\n";

// Everything as text first, so that every mistake is told in the same words.
struct Words {
  std::string count = "1", gpus, name, util, mem_util, mem_free, mem_used, procs, temp, where, best = "random", format;
  std::string hold, hold_pid, wait, tolerate, priority = "0", share = "1", joinable;
  bool mine_ok = false, uuid = false, no_lease = false, quiet = false, help = false;
};

// A table and not CLI11: this is the start of every job, and building two dozen
// options there takes longer than everything else that pick does by itself.
struct OptionRow {
  std::string_view name;
  char letter;             // 0: none
  std::string_view value;  // what it takes; empty: it is a flag
  std::string Words::* text;
  bool Words::* flag;
  std::string_view help;
};
constexpr std::array kOptions = {
    OptionRow{"count", 'n', "N", &Words::count, nullptr, "how many GPUs, or all of --gpus (1)"},
    OptionRow{"gpus", 0, "LIST", &Words::gpus, nullptr, "only of these: 0,2 or 0-3 or UUIDs (all)"},
    OptionRow{"name", 0, "TEXT", &Words::name, nullptr, "only those with this in their name (any)"},
    OptionRow{"util", 0, "N", &Words::util, nullptr, "utilisation at most, in %; any: does not matter (0)"},
    OptionRow{"mem-util", 0, "N", &Words::mem_util, nullptr, "memory controller activity at most, in % (0)"},
    OptionRow{"mem-free", 0, "SIZE", &Words::mem_free, nullptr, "memory free at least: 20GiB (any)"},
    OptionRow{"mem-used", 0, "SIZE", &Words::mem_used, nullptr, "memory in use at most (64MiB)"},
    OptionRow{"procs", 0, "N", &Words::procs, nullptr, "compute processes at most (0)"},
    OptionRow{"temp", 0, "C", &Words::temp, nullptr, "temperature at most (any)"},
    OptionRow{"where", 0, "RULE", &Words::where, nullptr,
              "what else must hold: 'power < 60W and pstate >= 8' (nothing)"},
    OptionRow{"tolerate", 0, "SIZE", &Words::tolerate, nullptr,
              "overlook idle processes that hold this at most: 700MiB (none)"},
    OptionRow{"share", 0, "N", &Words::share, nullptr, "be one of N holders of a GPU at most, who all say so (1)"},
    OptionRow{"joinable", 0, "N", &Words::joinable, nullptr, "let others who share join, up to N holders (as --share)"},
    OptionRow{"mine-ok", 0, "", nullptr, &Words::mine_ok, "a GPU that only I use counts as idle"},
    OptionRow{"best", 0, "ORDER", &Words::best, nullptr, "memory, cool, topology: joined most closely (random)"},
    OptionRow{"uuid", 0, "", nullptr, &Words::uuid, "name GPUs by UUID in CUDA_VISIBLE_DEVICES"},
    OptionRow{"format", 0, "FORMAT", &Words::format, nullptr, "of a printed choice: uuids, docker, env or json (ids)"},
    OptionRow{"hold", 0, "TIME", &Words::hold, nullptr, "hold the printed choice for so long: 10m (not held)"},
    OptionRow{"hold-pid", 0, "PID", &Words::hold_pid, nullptr, "hold it until this process ends (not held)"},
    OptionRow{"wait", 0, "", &Words::wait, nullptr, "queue until they are free; --wait=10m: then give up with 124"},
    OptionRow{"priority", 0, "N", &Words::priority, nullptr, "greater goes first in the queue (0)"},
    OptionRow{"no-lease", 0, "", nullptr, &Words::no_lease, "do not hold the GPUs: others may get them too"},
    OptionRow{"quiet", 'q', "", nullptr, &Words::quiet, "say nothing while waiting"},
    OptionRow{"help", 'h', "", nullptr, &Words::help, "this"},
};

void print_help() {
  std::string text =
      "Chooses GPUs that are idle, leases them, and runs a command on them.\n"
      "Usage: lull pick [options] [--] [CMD ...]\n\n";
  for (const OptionRow& row : kOptions) {
    const std::string name = fmt::format("--{}{}{}", row.name, row.value.empty() ? "" : " ", row.value);
    text += fmt::format("  {} {:<18} {}\n", row.letter == 0 ? "   " : fmt::format("-{},", row.letter), name, row.help);
  }
  fmt::print("{}{}", text, kFooter);
}

// Reads options up to the command: behind `--`, or from the first word that is none.
class Reader {
 public:
  Reader(int argc, char** argv) : words_(argv + 1, argv + argc) {}

  Result<> read(Words& words) {
    for (; next_ < words_.size(); ++next_) {
      const std::string_view word = words_[next_];
      if (word.size() < 2 || word[0] != '-') return {};
      if (word == "--") {
        if (++next_ == words_.size()) return fail("there is no command behind --");
        return {};
      }
      TRY(option(word, words));
    }
    return {};
  }
  std::vector<std::string> command() const {
    return {words_.begin() + static_cast<std::ptrdiff_t>(next_), words_.end()};
  }

 private:
  Result<> option(std::string_view word, Words& words) {
    const bool is_long = word.starts_with("--");
    const std::string_view name = is_long ? word.substr(2, word.find('=') - 2) : word.substr(1, 1);
    const auto row = std::find_if(kOptions.begin(), kOptions.end(), [&](const OptionRow& one) {
      return is_long ? one.name == name : one.letter == name[0];
    });
    if (row == kOptions.end()) return unknown(is_long ? word.substr(0, word.find('=')) : word.substr(0, 2));
    std::string_view joined = is_long ? word.substr(2 + name.size()) : word.substr(2);
    if (row->flag != nullptr) {
      if (!joined.empty()) return fail(fmt::format("--{} takes no value", row->name));
      words.*row->flag = true;
      return {};
    }
    const bool has_value = !joined.empty();
    if (joined.starts_with('=')) joined.remove_prefix(1);
    const std::string_view next = next_ + 1 < words_.size() ? words_[next_ + 1] : "--";
    if (has_value ? joined.empty() : !row->value.empty() && (next.empty() || next == "--"))
      return fail(fmt::format("--{0} needs a value: --{0}{1}{2}", row->name, row->value.empty() ? "=" : " ",
                              row->value.empty() ? "TIME" : row->value));
    if (row->value.empty()) {  // --wait: only what is joined to it, or the command would be taken for a time
      words.*row->text = joined.empty() ? "forever" : joined;
    } else if (has_value) {
      words.*row->text = joined;
    } else {
      words.*row->text = words_[++next_];
    }
    return {};
  }

  static std::unexpected<Error> unknown(std::string_view word) {
    std::vector<std::string> names;
    for (const OptionRow& row : kOptions) names.push_back(fmt::format("--{}", row.name));
    const std::vector<std::string_view> candidates(names.begin(), names.end());
    return fail(fmt::format("there is no option {}{}", printable(word), did_you_mean(word, candidates)));
  }

  std::vector<std::string_view> words_;
  std::size_t next_ = 0;
};

constexpr double kMostProcesses = 100000;
constexpr double kHottest = 200;  // C

Error about(std::string_view option, Error error) { return std::move(error).during(option); }

Result<Limit> size_limit(std::string_view option, const std::string& text) {
  if (text.empty()) return Limit{};
  if (text == "any") return Limit::off();
  const auto bytes = parse_size(text);
  if (!bytes) return std::unexpected(about(option, bytes.error()));
  return Limit::of(static_cast<double>(*bytes));
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
  settings.wait = !words.wait.empty();
  if (settings.wait && words.wait != "forever") settings.wait_limit = TRY(duration("--wait", words.wait));
  if (words.wait == "forever" && !settings.command.empty() && parse_duration(settings.command.front()))
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
    return fail(fmt::format("--count {}: a number from 1 to 4096 would be right, or all", printable(words.count)));
  else
    settings.count = static_cast<unsigned>(*count);
  settings.gpus = words.gpus;
  auto best = parse_best(words.best);
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

int print_picked(Picker& picker, const Picked& picked, const PickOutput& output) {
  // We hold it ourselves until the keeper does: what nobody was told of is given back when we end.
  if (const auto written = write_all(STDOUT_FILENO, picked_text(picked, output.format, output.uuid)); !written)
    return complain("stdout: " + written.error().message());
  if (picker.settings().holds())
    if (const auto kept = picker.hand_to_keeper(picked); !kept) return complain(kept.error().message());
  return 0;
}

}  // namespace

int pick_command(int argc, char** argv) {
  Words words;
  Reader reader(argc, argv);
  const auto refuse = [](const Error& error) {
    (void)write_all(STDERR_FILENO, fmt::format("lull pick: {} (lull pick --help explains)\n", error.message()));
    return kExitUsage;
  };
  if (const auto read = reader.read(words); !read) return refuse(read.error());
  if (words.help) {
    print_help();
    return 0;
  }
  auto settings = read_settings(words, reader.command());
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
