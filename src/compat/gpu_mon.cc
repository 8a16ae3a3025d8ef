#include "compat/gpu_mon.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/exit_status.h"
#include "base/fd.h"
#include "base/text.h"
#include "compat/argparse.h"
#include "compat/config_parser.h"
#include "rule/rule.h"
#include "sense/processes.h"

namespace lull {
namespace {

constexpr std::string_view kDefaultFile = "~/.config/gpu_mon.conf";
constexpr std::int64_t kGpuMonLongest = 365 * 24 * 3600;  // a year
constexpr unsigned kMostGpus = 4096;

const std::array kGpuMonOptions = {
    ArgparseOption{"help", {"-h", "--help"}, Takes::help},
    ArgparseOption{"conf", {"-c", "--conf"}, Takes::one, Value::text},
};

// One value of the file with the place where it stands.
class Section {
 public:
  Section(const ConfigParser& parser, std::string name) : parser_(parser), name_(std::move(name)) {}

  bool has(std::string_view key) const { return parser_.has(name_, key); }
  const std::string& name() const { return name_; }
  Result<std::string> text(std::string_view key) const { return parser_.get(name_, key); }

  std::unexpected<Error> wrong(std::string_view key, std::string_view value, std::string_view wanted) const {
    return fail(fmt::format("line {}: {}={}: {}", parser_.line_of(name_, key), key, printable(value), wanted));
  }

  Result<std::int64_t> integer(std::string_view key, std::int64_t least) const {
    const std::string value = TRY(text(key));
    const auto number = python_int(value);
    if (!number || *number > kGpuMonLongest || *number < least)
      return wrong(key, value, fmt::format("must be a whole number of seconds from {} to {}", least, kGpuMonLongest));
    return *number;
  }

  Result<bool> boolean(std::string_view key) const {
    const std::string value = TRY(text(key));
    const std::string word = lowered(value);
    for (const std::string_view yes : {"1", "yes", "true", "on"})
      if (word == yes) return true;
    for (const std::string_view no : {"0", "no", "false", "off"})
      if (word == no) return false;
    return wrong(key, value, "must be yes or no (also true, false, on, off, 1, 0)");
  }

  Result<MonGpus> gpus() const {
    const std::string value = TRY(text("gpus"));
    if (lowered(value) == "all") return MonGpus();
    std::set<unsigned> numbers;
    for (const std::string_view part : split(value, ',')) {
      const auto number = python_int(part);
      if (!number || *number < 0 || *number >= kMostGpus)
        return wrong("gpus", value, "must be ALL or numbers of GPUs with commas between them");
      numbers.insert(static_cast<unsigned>(*number));
    }
    return MonGpus(std::move(numbers));
  }

 private:
  const ConfigParser& parser_;
  std::string name_;
};

// Names with commas between them. Blanks around them do not belong to a name, and an empty name is ignored.
std::vector<std::string> names_in(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string_view part : split(text, ','))
    if (const std::string_view name = trim(part); !name.empty()) names.emplace_back(name);
  return names;
}

Result<MonProcess> process_in(const Section& section) {
  MonProcess process;
  process.section = section.name();
  process.gpus = TRY(section.gpus());
  process.directory = TRY(section.text("dir"));
  process.command = TRY(section.text("cmd"));
  auto words = shell_words(process.command);
  if (!words) return section.wrong("cmd", process.command, words.error().what);
  if (words->empty()) return section.wrong("cmd", process.command, "names no program");
  process.words = *std::move(words);
  if (section.has("log")) process.log = TRY(section.text("log"));
  return process;
}

}  // namespace

Result<MonOptions> parse_mon(std::span<const std::string> words) {
  const ArgparseResult given = TRY(argparse(kGpuMonOptions, words, false));
  return MonOptions{std::string(given.text("conf", kDefaultFile)), given.has("help")};
}

std::string_view mon_usage() { return "usage: gpu_mon.py [-h] [-c CONF]\n"; }

std::string_view mon_help() {
  return R"(
options:
  -h, --help            show this help message and exit
  -c CONF, --conf CONF  Configuration file to use, default=~/.config/gpu_mon.conf
)";
}

std::string expand_user(std::string_view path) {
  if (!path.starts_with('~')) return std::string(path);
  const std::size_t end = std::min(path.find('/'), path.size());
  const std::string name(path.substr(1, end - 1));
  const char* home = name.empty() ? std::getenv("HOME") : nullptr;
  if (home == nullptr) {
    const passwd* entry = name.empty() ? ::getpwuid(::getuid()) : ::getpwnam(name.c_str());
    if (entry == nullptr) return std::string(path);
    home = entry->pw_dir;
  }
  return std::string(home) + std::string(path.substr(end));
}

Result<MonSettings> parse_mon_config(std::string_view text) {
  const ConfigParser parser = TRY(ConfigParser::parse(text));
  MonSettings settings;
  const Section defaults(parser, "defaults");
  settings.interval_seconds = TRY(defaults.integer("interval_seconds", 0));
  for (const std::string& name : parser.sections()) {
    const Section section(parser, name);
    if (name.starts_with("gpu"))
      settings.ignored.push_back({TRY(section.gpus()), names_in(TRY(section.text("ignore_programs")))});
    if (name.starts_with("process")) settings.processes.push_back(TRY(process_in(section)));
  }
  const Section tty(parser, "tty");
  settings.tty_enabled = TRY(tty.boolean("enabled"));
  if (tty.has("whitelist")) settings.tty_whitelist = names_in(TRY(tty.text("whitelist")));
  if (tty.has("idle_seconds"))
    settings.tty_idle_seconds = TRY(tty.integer("idle_seconds", std::numeric_limits<std::int64_t>::min()));
  return settings;
}

std::string mon_line(std::string_view time, std::string_view level, std::string_view logger, std::string_view text) {
  return fmt::format("{:<15} {} {:<14} {}\n", time, level, logger, text);
}

std::string mon_name(const MonGpus& gpus) {
  if (!gpus) return "all GPUs";
  return fmt::format("{} {}", gpus->size() == 1 ? "GPU" : "GPUs", fmt::join(*gpus, ","));
}

std::string mon_gpu(std::string_view file, unsigned id) {
  return fmt::format("GPUInfo(file_name='{}', id={})", file, id);
}

std::string mon_process(std::string_view file, unsigned id, std::int64_t pid, std::string_view name) {
  return fmt::format("ProcInfo(file_name='{}', gpu_id={}, pid={}, name='{}')", file, id, pid, printable(name));
}

namespace {

using namespace std::chrono_literals;

constexpr std::string_view kTracker = "ProcessTracker";
constexpr std::string_view kMain = "gpu_mon";
constexpr Duration kSampled = 1s;  // what events do not tell, people for instance, is looked for this often
constexpr Duration kScanBudget = 200ms;

// It only asks that no process has the GPU open; only a GPU that answers is known to be free.
constexpr std::string_view kFree = "util >= 0 or mem_used >= 0";

std::string file_of(const Device& device) { return fmt::format("/dev/nvidia{}", device.minor.value_or(device.index)); }

std::string list(const std::set<unsigned>& gpus) { return fmt::format("{}", fmt::join(gpus, ",")); }

unsigned number_of(const Device& device) { return device.minor.value_or(device.index); }

FillerSettings filler_of(const MonProcess& process, int priority, Duration interval) {
  FillerSettings filler;
  filler.again = interval;
  filler.name = process.section;
  filler.command = process.words;
  filler.priority = priority;
  filler.directory = process.directory;
  filler.log = process.log;
  filler.log_size = 0;  // it is appended to, for ever
  filler.yield = YieldWay::stop;
  filler.absent_left_out = true;
  filler.set_visible_devices = false;
  if (!process.gpus) return filler;
  filler.gpus = list(*process.gpus);
  filler.environment.emplace_back("CUDA_VISIBLE_DEVICES", filler.gpus);
  return filler;
}

}  // namespace

FillSettings mon_fill_settings(const MonSettings& settings) {
  FillSettings fill;
  fill.idle = *parse_rule(kFree);
  fill.every = std::clamp<Duration>(std::chrono::seconds(settings.interval_seconds), kQuickestSample, kSampled);
  for (const MonIgnored& ignored : settings.ignored) fill.ignore_on.push_back({ignored.gpus, ignored.programs});
  fill.people.count = settings.tty_enabled && settings.tty_idle_seconds > 0;
  fill.people.idle = std::chrono::seconds(std::max<std::int64_t>(settings.tty_idle_seconds, 0));
  fill.people.except_user = settings.tty_whitelist;
  fill.people.except_self = false;
  // The first that is meant for all GPUs, then the others in their order: of two for one GPU the first is taken.
  bool all_taken = false;
  int priority = 0;
  for (const MonProcess& process : settings.processes) {
    if (!process.gpus && std::exchange(all_taken, true)) continue;
    fill.fillers.push_back(
        filler_of(process, process.gpus ? --priority : 1, std::chrono::seconds(settings.interval_seconds)));
  }
  return fill;
}

MonConsole::MonConsole(const MonSettings& settings, const Clock& clock)
    : settings_(settings), clock_(clock), scan_(Root::machine(), {}, clock) {}

void MonConsole::say(std::string_view level, std::string_view logger, const std::string& text) const {
  (void)write_all(STDERR_FILENO, mon_line(python_log_time(clock_.wall()), level, logger, text));
}

void MonConsole::began(const FillSettings&, OpenWay, const Inventory& inventory) {
  inventory_ = std::make_shared<const Inventory>(inventory);
  say("INFO", kMain, "GPUs detected: ");
  for (const Device& device : inventory.devices)
    if (device.kind == DeviceKind::gpu) say("INFO", kMain, mon_gpu(file_of(device), number_of(device)));
}

const MonProcess* MonConsole::process_of(const FillEvent& event) const {
  const auto found = std::ranges::find(settings_.processes, event.filler.name, &MonProcess::section);
  return found == settings_.processes.end() ? nullptr : &*found;
}

void MonConsole::interrupted() { say("INFO", kMain, "Interrupt received, exit gracefully"); }

// Who came, as fuser shows them; what else preempts a program in our words.
std::string MonConsole::preemptor(const Reason& why) const {
  const auto entry = read_process_entry(why.pid);  // of 0 there is none
  const auto device = std::ranges::find_if(
      inventory_->devices, [&](const Device& one) { return one.label() == why.gpu || one.id().value == why.gpu; });
  if (!entry || device == inventory_->devices.end()) return to_string(why);
  return mon_process(file_of(*device), number_of(*device), entry->pid, entry->name);
}

// Why a filler is ended, as it was said.
void MonConsole::say_why(const FillEvent& event) {
  const std::string where = mon_name(process_of(event) != nullptr ? process_of(event)->gpus : MonGpus());
  switch (event.why.kind) {
    case Reason::user:
      if (!std::exchange(users_said_, true)) {
        std::vector<std::string> names;
        for (const ActivePerson& person : event.people) names.push_back("'" + printable(person.name) + "'");
        say("INFO", kTracker,
            fmt::format("Users [{}] become active, stop {} processes", fmt::join(names, ", "), running_.size()));
      }
      say("INFO", kTracker, "Stopping proc for " + where);
      break;
    case Reason::shutting_down: say("INFO", kTracker, "Stopping proc for " + where); break;
    default:
      say("INFO", kTracker, fmt::format("Stop 1 processes preempted by proc {}", printable(preemptor(event.why))));
      break;
  }
}

void MonConsole::say_start(const FillEvent& event) const {
  const MonProcess* process = process_of(event);
  if (process == nullptr) return;
  say("INFO", kTracker,
      fmt::format("Starting: {} on {}", printable(process->command),
                  process->gpus ? "GPUs " + list(*process->gpus) : mon_name(process->gpus)));
}

void MonConsole::happened(const FillEvent& event) {
  const MonProcess* process = process_of(event);
  const std::string where = mon_name(process != nullptr ? process->gpus : MonGpus());
  switch (event.kind) {
    case FillEvent::started:
      users_said_ = false;
      // Those that were idle are counted before something is started on them.
      if (const std::set<unsigned> gpus = numbers_of(event); !std::ranges::includes(idle_said_, gpus))
        say_idle(look(*inventory_, nullptr).idle);
      for (const unsigned number : numbers_of(event)) idle_said_.erase(number);
      running_[where] = event.gpus;
      say_start(event);
      break;
    case FillEvent::yielding: say_why(event); break;
    case FillEvent::ended:
      running_.erase(where);
      if (!event.by_us) say("INFO", kTracker, fmt::format("Process for {} is terminated", where));
      break;
    case FillEvent::not_started: say_start(event); [[fallthrough]];
    case FillEvent::backing_off:
    case FillEvent::stuck: say("WARNING", kTracker, printable(to_string(event))); break;
    case FillEvent::waiting:
      if (event.why.kind == Reason::memory_left) say("WARNING", kTracker, printable(to_string(event)));
      break;
    default: say("INFO", kTracker, printable(to_string(event))); break;
  }
}

std::set<unsigned> MonConsole::numbers_of(const FillEvent& event) const {
  std::set<unsigned> numbers;
  for (const Device& device : inventory_->devices)
    if (std::ranges::count(event.gpus, device.label()) > 0) numbers.insert(number_of(device));
  return numbers;
}

void MonConsole::say_idle(const std::set<unsigned>& idle) {
  idle_said_ = idle;
  if (!idle.empty()) say("INFO", kTracker, fmt::format("{} gpus are idle", idle.size()));
}

// What it told at every interval: who has which GPU open, who is there, how many GPUs are idle.
void MonConsole::sampled(const FillPicture& picture) {
  inventory_ = picture.snapshot.inventory;
  const Instant now = clock_.now();
  const Duration interval = std::max<Duration>(std::chrono::seconds(settings_.interval_seconds), kQuickestSample);
  // The nearest sample counts: of two that are an interval apart the second may come a little early.
  if (next_look_ && now < *next_look_ - std::min(interval, kSampled) / 2) return;
  next_look_ = now + interval;
  const Look seen = look(*inventory_, picture.owns);
  for (const Opener& one : seen.openers) say("INFO", kMain, one.text);
  for (const ActivePerson& person : picture.people) say("INFO", kMain, printable(person.name));
  if (!picture.people.empty()) return;
  for (const Opener& one : seen.openers) {
    if (one.ours) say("INFO", kTracker, "Our own pid in proc: " + one.text);
    if (!one.ours && one.whitelisted) say("INFO", kTracker, "Whitelisted proc: " + one.text);
  }
  say_idle(seen.idle);
  const bool for_all = std::ranges::any_of(settings_.processes, [](const MonProcess& one) { return !one.gpus; });
  for (const unsigned number : seen.idle) {
    const bool named = std::ranges::any_of(
        settings_.processes, [&](const MonProcess& one) { return one.gpus && one.gpus->contains(number); });
    if (!named && !(for_all && seen.idle.size() == inventory_->devices.size()))
      say("WARNING", kTracker, fmt::format("GPU {} is idle, but we have no process config, ignored", number));
  }
}

MonConsole::Look MonConsole::look(const Inventory& inventory, const std::function<bool(pid_t)>& owns) {
  Look found;
  const Openers openers = scan_.look(inventory, kScanBudget, false);
  for (std::size_t place = 0; place < inventory.devices.size() && place < openers.holders.size(); ++place) {
    const Device& device = inventory.devices[place];
    if (device.kind != DeviceKind::gpu || openers.absence[place] != Absence::none) continue;
    const unsigned number = number_of(device);
    bool free = std::ranges::none_of(
        running_, [&](const auto& one) { return std::ranges::count(one.second, device.label()) > 0; });
    for (const pid_t pid : openers.holders[place]) {
      const auto entry = read_process_entry(pid);
      if (!entry) continue;  // gone
      Opener one{mon_process(file_of(device), number, pid, entry->name)};
      one.ours = owns && owns(pid);
      one.whitelisted = std::ranges::any_of(settings_.ignored, [&](const MonIgnored& ignored) {
        return (!ignored.gpus || ignored.gpus->contains(number)) && is_called(pid, ignored.programs);
      });
      free &= !one.ours && one.whitelisted;
      found.openers.push_back(std::move(one));
    }
    if (free) found.idle.insert(number);
  }
  return found;
}

void MonConsole::note(Level level, std::string_view, const std::string& text) {
  if (level >= Level::note) say(level >= Level::warning ? "WARNING" : "INFO", kMain, printable(text));
}

}  // namespace lull
