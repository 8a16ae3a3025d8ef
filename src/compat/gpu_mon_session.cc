#include "compat/gpu_mon_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/calendar.h"
#include "base/fd.h"
#include "base/text.h"
#include "rule/rule.h"
#include "sense/processes.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kTracker = "ProcessTracker";
constexpr std::string_view kMain = "gpu_mon";
constexpr Duration kSampled = 1s;  // what events do not tell, people for instance, is looked for this often
constexpr Duration kScanBudget = 200ms;

// Nobody has it open is all that it asks for; only a GPU that answers at all is known to be free.
constexpr std::string_view kFree = "util >= 0 or mem_used >= 0";

std::string file_of(const Device& device) { return fmt::format("/dev/nvidia{}", device.minor.value_or(device.index)); }

std::string list(const std::set<unsigned>& gpus) { return fmt::format("{}", fmt::join(gpus, ",")); }

FillerSettings filler_of(const MonProcess& process, int priority) {
  FillerSettings filler;
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
  fill.free = *parse_rule(kFree);
  fill.every = std::clamp<Duration>(std::chrono::seconds(settings.interval_seconds), kQuickestSample, kSampled);
  for (const MonIgnored& ignored : settings.ignored) {
    if (ignored.gpus)
      fill.ignore_on.push_back({*ignored.gpus, ignored.programs});
    else
      std::ranges::copy(ignored.programs, std::back_inserter(fill.ignore));
  }
  fill.people.count = settings.tty_enabled && settings.tty_idle_seconds > 0;
  fill.people.idle = std::chrono::seconds(std::max<std::int64_t>(settings.tty_idle_seconds, 0));
  fill.people.leave_out = settings.tty_whitelist;
  fill.people.leave_out_us = false;
  // The first that is meant for all GPUs, then the others in their order: of two for one GPU the first is taken.
  bool all_taken = false;
  int priority = 0;
  for (const MonProcess& process : settings.processes) {
    if (!process.gpus && std::exchange(all_taken, true)) continue;
    fill.fillers.push_back(filler_of(process, process.gpus ? --priority : 1));
  }
  return fill;
}

MonVoice::MonVoice(const MonSettings& settings, const Clock& clock)
    : settings_(settings), clock_(clock), scan_(Root::machine(), {}, clock) {}

void MonVoice::say(std::string_view level, std::string_view logger, const std::string& text) const {
  const WallTime now = clock_.wall();
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  const std::string time = fmt::format("{},{:03}", format_local(now, "%Y-%m-%d %H:%M:%S"), milliseconds);
  (void)write_all(STDERR_FILENO, mon_line(time, level, logger, text));
}

void MonVoice::began(const FillSettings&, OpenWay, const Inventory& inventory) {
  say("INFO", kMain, "GPUs detected: ");
  for (const Device& device : inventory.devices)
    if (device.kind == DeviceKind::gpu)
      say("INFO", kMain, mon_gpu(file_of(device), device.minor.value_or(device.index)));
}

const MonProcess* MonVoice::process_of(const FillEvent& event) const {
  const auto found = std::ranges::find(settings_.processes, event.filler.name, &MonProcess::section);
  return found == settings_.processes.end() ? nullptr : &*found;
}

void MonVoice::interrupted() { say("INFO", kMain, "Interrupt received, exit gracefully"); }

// Why a filler is ended, as it was said.
void MonVoice::say_why(const FillEvent& event) {
  switch (event.why.kind) {
    case Reason::user:
      if (!std::exchange(users_said_, true))
        say("INFO", kTracker,
            fmt::format("Users ['{}'] become active, stop {} processes", printable(event.why.who), running_.size()));
      break;
    case Reason::shutting_down: break;
    default:
      say("INFO", kTracker, fmt::format("Stop 1 processes preempted by proc {}", printable(to_words(event.why))));
      break;
  }
}

void MonVoice::say_start(const FillEvent& event) const {
  const MonProcess* process = process_of(event);
  if (process == nullptr) return;
  say("INFO", kTracker,
      fmt::format("Starting: {} on {}", printable(process->command),
                  process->gpus ? "GPUs " + list(*process->gpus) : mon_name(process->gpus)));
}

void MonVoice::happened(const FillEvent& event) {
  const MonProcess* process = process_of(event);
  const std::string where = mon_name(process != nullptr ? process->gpus : MonGpus());
  switch (event.kind) {
    case FillEvent::started:
      users_said_ = false;
      running_[where] = event.gpus;
      say_start(event);
      break;
    case FillEvent::yielding:
      say_why(event);
      say("INFO", kTracker, "Stopping proc for " + where);
      break;
    case FillEvent::ended:
      running_.erase(where);
      if (!event.by_us) say("INFO", kTracker, fmt::format("Process for {} is terminated", where));
      break;
    case FillEvent::not_started: say_start(event); [[fallthrough]];
    case FillEvent::backing_off:
    case FillEvent::stuck: say("WARNING", kTracker, printable(to_words(event))); break;
    case FillEvent::waiting:
      if (event.why.kind == Reason::memory_left) say("WARNING", kTracker, printable(to_words(event)));
      break;
    default: say("INFO", kTracker, printable(to_words(event))); break;
  }
}

void MonVoice::sampled(const FillPicture& picture) {
  const Instant now = clock_.now();
  if (next_look_ && now < *next_look_) return;
  next_look_ = now + std::max<Duration>(std::chrono::seconds(settings_.interval_seconds), kQuickestSample);
  look_at(picture);
}

// What it told at every interval: who has which GPU open, who is there, how many GPUs are idle.
void MonVoice::look_at(const FillPicture& picture) {
  const Inventory& inventory = *picture.snapshot.inventory;
  const Openers openers = scan_.look(inventory, kScanBudget, false);
  std::set<std::size_t> idle;
  for (std::size_t place = 0; place < inventory.devices.size() && place < openers.holders.size(); ++place) {
    const Device& device = inventory.devices[place];
    if (device.kind != DeviceKind::gpu || openers.absence[place] != Absence::none) continue;
    bool free = !std::ranges::any_of(
        running_, [&](const auto& one) { return std::ranges::count(one.second, device.label()) > 0; });
    for (const pid_t pid : openers.holders[place]) {
      const unsigned number = device.minor.value_or(device.index);
      const std::string program = program_of(pid);
      const std::string text = mon_process(file_of(device), number, pid, program);
      say("INFO", kMain, text);
      const bool ours = picture.owns(pid);
      const bool whitelisted = std::ranges::any_of(settings_.ignored, [&](const MonIgnored& one) {
        return (!one.gpus || one.gpus->contains(number)) && std::ranges::count(one.programs, program) > 0;
      });
      if (ours) say("INFO", kTracker, "Our own pid in proc: " + text);
      if (!ours && whitelisted) say("INFO", kTracker, "Whitelisted proc: " + text);
      free &= !ours && whitelisted;
    }
    if (free) idle.insert(place);
  }
  for (const ActivePerson& person : picture.people) say("INFO", kMain, printable(person.name));
  if (!picture.people.empty() || idle.empty()) return;
  say("INFO", kTracker, fmt::format("{} gpus are idle", idle.size()));
  const bool for_all = std::ranges::any_of(settings_.processes, [](const MonProcess& one) { return !one.gpus; });
  for (const std::size_t place : idle) {
    const unsigned number = inventory.devices[place].minor.value_or(inventory.devices[place].index);
    const bool named = std::ranges::any_of(
        settings_.processes, [&](const MonProcess& one) { return one.gpus && one.gpus->contains(number); });
    if (!named && !(for_all && idle.size() == inventory.devices.size()))
      say("WARNING", kTracker, fmt::format("GPU {} is idle, but we have no process config, ignored", number));
  }
}

void MonVoice::note(Level level, std::string_view, const std::string& text) {
  if (level >= Level::note) say(level >= Level::warning ? "WARNING" : "INFO", kMain, printable(text));
}

}  // namespace lull
