#include "fill/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "base/inotify.h"
#include "base/text.h"
#include "fill/sink.h"
#include "jobs/gpu_users.h"
#include "lease/visibility.h"
#include "sense/openers.h"

namespace lull {

// One filler that runs.
struct FillSession::Running {
  std::unique_ptr<Guard> guard;
  Instant since{};
  bool parked = false;
  std::uint64_t start_ticks = 0;
  bool said_still = true;  // no: it is to be paused, and has not been seen to
};

namespace {

using namespace std::chrono_literals;

constexpr Duration kFirstLook = 20s;   // for the first sample: cards may be slow to wake
constexpr Duration kAfterGrace = 15s;  // then we end, whatever is stuck in the kernel

}  // namespace

FillSession::FillSession(FillSettings settings, FillOptions options, FillMachine machine, FillSink& sink)
    : settings_(std::move(settings)),
      options_(std::move(options)),
      machine_(machine),
      loop_(machine.world.loop()),
      sink_(sink) {}

FillSession::~FillSession() {
  if (opens_ && opens_->descriptor() >= 0) loop_.forget(opens_->descriptor());
  if (lease_events_) loop_.forget(lease_events_.get());
}

SessionEnd FillSession::run() {
  if (const auto listening = machine_.world.listen({SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGCHLD},
                                                   [this](const signalfd_siginfo& info) { on_signal(info); });
      !listening)
    return {kExitFailure, listening.error().message()};
  make_scan();
  observations_ = std::make_unique<Observations>(settings_, [this](pid_t pid) { return owns(pid); });
  make_people();
  make_sampler();
  // What names a GPU that is not there is a mistake of now, not of later.
  if (sampler_->sample_here(kFirstLook)) {
    const Snapshot& first = sampler_->newest();
    if (!first.inventory->devices.empty())
      if (const auto units = units_of(settings_.fillers, *first.inventory); !units)
        return {kExitUsage, "fill: " + units.error().message()};
    if (first.inventory->devices.empty() && first.driver.absence != Absence::none)
      sink_.note(Level::warning, "no-gpu",
                 fmt::format("no GPU can be read: {}; still looking", printable(first.driver.text())));
    on_sample(first);
  }
  if (options_.controlled) {
    if (auto control = Control::listen(loop_, ControlOf::fill, [this](const std::string&) { return status(); }))
      control_ = *std::move(control);
    else
      sink_.note(Level::warning, "control", control.error().message());
  }
  watch_leases();
  watch_file();
  make_own_signals();
  ticker_ = std::make_unique<Ticker>(loop_, settings_.every, [this](std::uint64_t) { tick(); });
  ticker_->begin();
  SessionEnd end = machine_.world.run(end_);
  running_.clear();
  return end;
}

void FillSession::on_signal(const signalfd_siginfo& info) {
  const int number = static_cast<int>(info.ssi_signo);
  if (number == SIGCHLD) return;
  if (number == SIGUSR1) return sampler_->release_driver();
  // A terminal that goes away says the same as a person who wants other settings; the kernel sends the one.
  if (number == SIGHUP && options_.reload && info.ssi_code != SI_KERNEL) return reload(true);
  begin_to_end(number);
}

void FillSession::begin_to_end(int signal) {
  if (ending_) {
    // A second signal: end at once.
    for (auto& [unit, one] : running_) one->guard->end({.signal = 0, .grace = Duration::zero()});
    return;
  }
  ending_ = true;
  end_ = ended_by(signal);
  ticker_->stop();
  decide_timer_.cancel();
  Duration longest{};
  for (const FillerSettings& filler : settings_.fillers) longest = std::max(longest, filler.grace);
  if (filling_) carry_out(filling_->end_all({.kind = Reason::shutting_down}));
  last_timer_.in(longest + kAfterGrace, [this] {
    sink_.note(Level::important, "stuck", "some processes of the fillers do not even end by SIGKILL");
    loop_.stop();
  });
  end_if_nothing_is_left();
}

void FillSession::end_if_nothing_is_left() {
  if (ending_ && running_.empty()) loop_.stop();
}

void FillSession::make_people() {
  people_ = std::make_unique<People>(loop_, machine_.helpers, settings_.people, &machine_.signals);
  for (const std::string& who : people_->unknown())
    sink_.note(Level::warning, "people", fmt::format("{}; who types under that name counts", printable(who)));
}

// ---- other settings -------------------------------------------------------------

void FillSession::watch_file() {
  if (options_.file.empty()) return;
  file_seen_ = read_file(options_.file).value_or(std::string());
  file_watch_ = std::make_unique<FileWatch>(
      loop_, options_.file, [this] { reload(false); },
      [this] {
        sink_.note(Level::warning, "reload",
                   "cannot watch the settings file for changes: SIGHUP makes lull read it again");
      });
}

void FillSession::reload(bool asked) {
  if (ending_) return;
  const auto text = read_file(options_.file);
  if (!asked && text && *text == file_seen_) return;
  if (text) file_seen_ = *text;
  auto fresh = options_.reload();
  if (fresh && inventory_ && !inventory_->devices.empty())
    if (const auto units = units_of(fresh->fillers, *inventory_); !units) fresh = std::unexpected(units.error());
  if (!fresh)
    return sink_.note(Level::important, "not-reloaded",
                      fmt::format("the settings stay as they were: {}", fresh.error().message()));
  const FillSettings before = std::exchange(settings_, *std::move(fresh));
  if (before.ignore != settings_.ignore) make_scan();
  if (metrics_of(before) != metrics_of(settings_) || before.ignore != settings_.ignore) make_sampler();
  observations_->change(settings_);
  if (before.every != settings_.every) {
    ticker_ = std::make_unique<Ticker>(loop_, settings_.every, [this](std::uint64_t) { tick(); });
    ticker_->begin();
  } else {
    sampler_->request(false);
  }
  if (before.idle != settings_.idle) make_own_signals();
  if (!(before.people == settings_.people)) make_people();
  sink_.note(Level::note, "reloaded", "the settings were read again");
  if (!filling_) return;
  filling_->set_confirm(settings_.confirm);
  auto units = units_of(settings_.fillers, *inventory_);
  if (units) carry_out(filling_->replace(settings_.fillers, *std::move(units), loop_.now()));
}

std::string FillSession::status() const {
  FillStatus status{.pid = ::getpid(),
                    .way = opens_ ? opens_->way() : OpenWay::none,
                    .rule = to_text(settings_.idle),
                    .trouble = newest_.empty() ? "no GPU has been read yet" : ""};
  if (filling_) {
    for (const GpuObservation& observation : newest_)
      status.gpus.push_back(status_of(*filling_, observation, loop_.now()));
    for (GpuStatus& gpu : status.gpus)
      if (gpu.unit)
        if (const auto one = running_.find(*gpu.unit); one != running_.end()) {
          gpu.pid = one->second->guard->pid();
          if (filling_->state(*gpu.unit) == Filling::State::still && !one->second->guard->is_paused())
            gpu.state = "being stopped";
        }
  }
  return to_text(status) + '\0' + to_json(status);
}

// What a session of filling does to its fillers, and what it says of that.

namespace {

// As ioprio_set takes it: the class in the upper bits.
int io_priority(IoClass io_class) {
  constexpr int kClassShift = 13;
  constexpr int kBestEffort = 2;
  constexpr int kIdle = 3;
  constexpr int kLowest = 7;
  switch (io_class) {
    case IoClass::unchanged: return 0;
    case IoClass::best_effort: return kBestEffort << kClassShift | kLowest;
    case IoClass::idle: return kIdle << kClassShift;
  }
  return 0;
}

// In words: what --status shows while it waits for the next try.
std::string failure_of(const GuardEnd& how) {
  if (!how.not_started.empty()) return how.not_started;
  return how.status.signal != 0 ? "it ended by " + signal_name(how.status.signal)
                                : fmt::format("it ended with status {}", how.status.code);
}

}  // namespace

FillEvent FillSession::event_of(FillEvent::Kind kind, std::size_t unit, const Reason& why) const {
  return {.kind = kind,
          .filler = filling_->filler(unit),
          .gpus = labels_of(unit),
          .on_all = !filling_->filler(unit).per_gpu,
          .why = why,
          .people = active_};
}

void FillSession::say(FillEvent::Kind kind, std::size_t unit, const Reason& why) {
  sink_.happened(event_of(kind, unit, why));
}

void FillSession::halt_at_once(const FillOrder& order) {
  if (order.kind != FillOrder::halt) return;
  if (const auto one = running_.find(order.unit); one != running_.end()) one->second->guard->halt();
}

// First what must be quick, for all of them; words take time.
void FillSession::carry_out(const std::vector<FillOrder>& orders) {
  for (const FillOrder& order : orders) halt_at_once(order);
  carry_out_the_rest(orders);
}

void FillSession::carry_out_the_rest(const std::vector<FillOrder>& orders) {
  for (const FillOrder& order : orders) {
    switch (order.kind) {
      case FillOrder::start: start(order.unit); break;
      case FillOrder::halt:  // said when it is seen to
        if (const auto one = running_.find(order.unit); one != running_.end()) one->second->said_still = false;
        break;
      case FillOrder::go_on:
        unpark(order.unit);
        say(FillEvent::went_on, order.unit, order.why);
        break;
      case FillOrder::end:
        say(FillEvent::yielding, order.unit, order.why);
        end(order.unit);
        break;
      case FillOrder::park:
        say(FillEvent::parking, order.unit, order.why);
        park(order.unit);
        break;
    }
  }
}

void FillSession::start(std::size_t unit) {
  const FillerSettings& told = filling_->filler(unit);
  GuardOptions options{.command = told.command,
                       .environment = told.environment,
                       .directory = told.directory,
                       .user = told.user,
                       .nice = told.nice,
                       .io_priority = io_priority(told.io_class),
                       .log = told.log,
                       .log_size = told.log_size,
                       .log_keep = told.log_keep,
                       .use_cgroup = options_.use_cgroup,
                       .signals = &machine_.signals};
  std::vector<std::size_t> places;
  for (const DeviceId& gpu : filling_->units()[unit].gpus)
    if (const auto place = inventory_->place_of(gpu)) places.push_back(*place);
  const auto set = [&](const std::string& name, const std::string& value) {
    if (std::ranges::none_of(told.environment, [&](const auto& one) { return one.first == name; }))
      options.environment.emplace_back(name, value);
  };
  if (told.set_visible_devices) {
    const auto visible = visibility(*inventory_, places, false, Root::machine());
    if (!visible) return gone(unit, {.not_started = visible.error().message()});
    for (const auto& [name, value] : visible->set) set(name, value);
    options.unset = visible->removed;
  }
  set("LULL_FILLER", told.name);
  set("LULL_GPUS", visible_value(*inventory_, places, false));

  auto guard = Guard::start(loop_, machine_.children, options,
                            {.started =
                                 [this, unit](pid_t pid) {
                                   const auto one = running_.find(unit);
                                   const auto entry = read_process_entry(pid);
                                   if (one != running_.end() && entry) one->second->start_ticks = entry->start_ticks;
                                   FillEvent event = event_of(FillEvent::started, unit, {});
                                   event.pid = pid;
                                   sink_.happened(event);
                                 },
                             .gone = [this, unit](const GuardEnd& how) { gone(unit, how); },
                             .stuck = [this, unit] { say(FillEvent::stuck, unit); },
                             .still = [this, unit] { on_paused(unit); },
                             .log_trouble =
                                 [this, unit](const std::string& what) {
                                   sink_.note(Level::warning, "log",
                                              fmt::format("{} on {}: {}", printable(filling_->filler(unit).name),
                                                          gpus_text(labels_of(unit)), what));
                                 }});
  if (!guard) {
    GuardEnd how;
    how.not_started = guard.error().message();
    return gone(unit, how);
  }
  auto one = std::make_unique<Running>();
  one->guard = *std::move(guard);
  one->since = loop_.now();
  running_[unit] = std::move(one);
  filling_->started(unit, loop_.now());
}

void FillSession::on_paused(std::size_t unit) {
  const auto one = running_.find(unit);
  if (one == running_.end() || std::exchange(one->second->said_still, true)) return;
  if (filling_->state(unit) == Filling::State::still) say(FillEvent::halted, unit, filling_->why(unit));
}

void FillSession::gone(std::size_t unit, const GuardEnd& how) {
  const auto one = running_.find(unit);
  FillEvent event =
      event_of(how.not_started.empty() ? FillEvent::ended : FillEvent::not_started, unit, filling_->why(unit));
  event.by_us = filling_->state(unit) == Filling::State::ending;
  event.status = how.status;
  event.killed = how.killed;
  event.ran = one != running_.end() ? loop_.now() - one->second->since : Duration::zero();
  event.text = how.not_started;
  if (one != running_.end()) running_.erase(one);
  filling_->ended(unit, loop_.now(), how.not_started.empty() ? how.status.shell_status() : -1, failure_of(how));
  for (const DeviceId& gpu : filling_->units()[unit].gpus) observations_->disturb(gpu);
  why_not_.erase(unit);
  sink_.happened(event);
  const Duration left = filling_->backs_off(unit, loop_.now());
  if (left > Duration::zero() && filling_->failures(unit) > 0 && !ending_) {
    say(FillEvent::backing_off, unit, filling_->back_off(unit, left));
    why_not_[unit] = Reason::backing_off;
  }
  end_if_nothing_is_left();
}

void FillSession::end(std::size_t unit) {
  const auto one = running_.find(unit);
  if (one == running_.end()) return;
  const FillerSettings& told = filling_->filler(unit);
  one->second->guard->end({.signal = told.signal, .grace = told.grace});
}

// ---- parking --------------------------------------------------------------------

// Its own command for parking or for going on; `done` hears how it went, unless the filler is gone by then.
void FillSession::run_command_of(std::size_t unit, const std::string& command,
                                 std::function<void(Running&, const HelperResult&)> done) {
  const FillerSettings& told = filling_->filler(unit);
  Guard* const guard = running_.at(unit)->guard.get();
  machine_.helpers.run({.arguments = {"/bin/sh", "-c", command},
                        .environment = {{"LULL_FILLER", told.name},
                                        {"LULL_FILLER_PID", std::to_string(guard->pid())},
                                        {"LULL_FILLER_START", std::to_string(running_.at(unit)->start_ticks)}},
                        .limit = told.yield_limit,
                        .signals = &machine_.signals},
                       [this, unit, guard, done = std::move(done)](const HelperResult& result) {
                         const auto now = running_.find(unit);
                         if (now != running_.end() && now->second->guard.get() == guard) done(*now->second, result);
                       });
}

void FillSession::park(std::size_t unit) {
  const auto one = running_.find(unit);
  if (one == running_.end()) return;
  one->second->guard->go_on();  // what saves itself has to run
  run_command_of(unit, filling_->filler(unit).yield_command, [this, unit](Running& filler, const HelperResult& result) {
    if (!result.ok())
      sink_.note(Level::warning, "not-parked", "the yield command failed: " + result.trouble);
    else if (filling_->state(unit) == Filling::State::parking) {
      filler.guard->halt();
      filler.parked = true;
      say(FillEvent::parked, unit, filling_->why(unit));
    }
    carry_out(filling_->parked(unit, result.ok(), loop_.now()));
  });
}

void FillSession::unpark(std::size_t unit) {
  const auto one = running_.find(unit);
  if (one == running_.end()) return;
  one->second->guard->go_on();
  const std::string& command = filling_->filler(unit).resume_command;
  if (!std::exchange(one->second->parked, false) || command.empty()) return;
  run_command_of(unit, command, [this, unit](Running& filler, const HelperResult& result) {
    if (filling_->filler(unit).yield == YieldWay::park && result.status &&
        result.status->shell_status() == kExitNotNow) {  // its memory is not free, or there is a lease
      filling_->stays_parked(unit, loop_.now());
      filler.parked = true;
      filler.guard->halt();
      return;
    }
    carry_out(filling_->unparked(unit, result.ok(), loop_.now()));
  });
}

// ---- words ----------------------------------------------------------------------

// Why those that wait do wait, when it is for another reason than before.
void FillSession::say_why_not() {
  for (std::size_t unit = 0; unit < filling_->units().size(); ++unit) {
    if (filling_->state(unit) != Filling::State::waiting || filling_->retired(unit)) {
      why_not_.erase(unit);
      continue;
    }
    const Reason& why = filling_->why(unit);
    const auto [known, fresh] = why_not_.try_emplace(unit, Reason::none);
    if (std::exchange(known->second, why.kind) != why.kind && why.kind != Reason::none)
      say(FillEvent::waiting, unit, why);
  }
}

// What a session of filling sees, and the moments at which it looks.

namespace {

using namespace std::chrono_literals;

constexpr Duration kLookAgain = 300ms;       // while a process is suspected
constexpr Duration kLookNext = 20ms;         // and it is time to decide
constexpr Duration kScanBudget = 10ms;       // then other work has a turn, for as long again
constexpr Duration kScanWithEvents = 30s;    // what no event told of
constexpr Duration kScanWithFewEvents = 5s;  // containers have nodes of their own, which these do not see
constexpr Duration kQuickestScan = 100ms;    // where nothing tells
constexpr Duration kKnown = 100ms;           // who was seen to be a stranger is one for so long
constexpr int kMostRounds = 64;              // of opens, before anything else has a turn
constexpr Duration kFolderLock = 5ms;        // for that of the lease folder
constexpr int kShareOfTime = 50;  // a fiftieth of a core from the second look on, unless the longest rest cuts that
constexpr Duration kLongestRest = 10s;  // before we look again whether a filler can start
constexpr int kShareWithEvents = 500;   // where looking is only for what no event told of

// Which file it is: one that was made anew is another. Nothing: there is none.
std::optional<std::string> mark_of(const std::string& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) return std::nullopt;
  return fmt::format("{} {} {} {}\n", file, status.st_dev, status.st_ino, status.st_rdev);
}

}  // namespace

void FillSession::make_sampler() {
  SamplerOptions options;
  options.want_only(metrics_of(settings_));
  options.processes = true;
  options.ignore_openers = settings_.ignore;
  sampler_ = machine_.world.sampler(options, [this](const Snapshot& snapshot) { on_sample(snapshot); });
}

void FillSession::make_own_signals() {
  own_.reset();
  machine_facts_ = {};
  const std::vector<Metric> used = settings_.idle.signals();
  for (const Metric metric : used)
    if (is_own(metric)) machine_facts_.miss(metric, Absence::no_source);
  const std::vector<SignalSource> sources = sources_of(options_.signals, used);
  if (sources.empty()) return;
  own_ = std::make_unique<OwnSignals>(machine_.world, sources, settings_.every);
  own_->on_note = [this](const std::string& text) { sink_.note(Level::note, "signal", text); };
  own_->ask();
}

void FillSession::tick() {
  if (own_) own_->ask();
  sampler_->request(false);
}

// From the beginning: what was found before is kept by places in an inventory.
void FillSession::make_scan() {
  scan_ = std::make_unique<OpenerScan>(Root::machine(), settings_.ignore, loop_.clock());
  openers_.reset();
  look_took_ = Duration::zero();
  next_scan_ = {};
}

bool FillSession::owns(pid_t pid) const {
  if (pid == ::getpid()) return true;
  if (running_.empty()) return false;
  const Lineage process = Lineage::of(pid);
  return std::ranges::any_of(running_, [&](const auto& one) { return one.second->guard->owns(process); });
}

std::vector<std::string> FillSession::labels_of(std::size_t unit) const {
  std::vector<std::string> labels;
  for (const DeviceId& gpu : filling_->units()[unit].gpus) {
    const auto place = inventory_ ? inventory_->place_of(gpu) : std::nullopt;
    labels.push_back(place ? inventory_->devices[*place].label() : gpu.value);
  }
  return labels;
}

// ---- samples --------------------------------------------------------------------

void FillSession::on_sample(const Snapshot& snapshot) {
  if (ending_) return;
  look_at_inventory(snapshot);
  if (own_) own_->add_to(machine_facts_);
  observations_->observe(snapshot, machine_facts_);
  look_at_leases();
  decide(snapshot);
  if (!filling_) return;
  const std::function<bool(pid_t)> owns = [this](pid_t pid) { return this->owns(pid); };
  sink_.sampled({snapshot, active_, owns});
}

void FillSession::look_at_inventory(const Snapshot& snapshot) {
  if (snapshot.inventory->devices.empty()) return;
  if (snapshot.inventory == inventory_) return watch_opens(*inventory_);
  if (inventory_ && inventory_->devices != snapshot.inventory->devices) make_scan();
  inventory_ = snapshot.inventory;
  for (const std::string& text : inventory_->warnings())
    if (warned_.insert(text).second) sink_.note(Level::warning, "gpus", text);
  if (std::string text = left_out(settings_.fillers, *inventory_); !text.empty() && warned_.insert(text).second)
    sink_.note(Level::note, "gpus", text);
  auto units = units_of(settings_.fillers, *inventory_);
  if (!units) return sink_.note(Level::warning, "gpus", units.error().message());
  watch_opens(*inventory_);
  if (!std::exchange(began_, true)) sink_.began(settings_, opens_->way(), *inventory_);
  if (!filling_)
    filling_ = std::make_unique<Filling>(settings_.fillers, *std::move(units), settings_.confirm);
  else
    carry_out(filling_->replace(settings_.fillers, *std::move(units), loop_.now()));
}

void FillSession::decide(Snapshot snapshot) {
  if (!filling_ || ending_ || snapshot.asked == Instant{}) return;  // a fresh sampler has none yet
  machine_.world.users()->identify_in(snapshot);
  const std::time_t wall = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(loop_.clock().wall()));
  std::tm local{};
  ::localtime_r(&wall, &local);
  const int minute = local.tm_hour * 60 + local.tm_min;
  std::string no_people;
  active_ = people_->look(no_people);
  const std::vector<Waiter> waiters = observations_->waiters(leases_, snapshot);
  const auto look = [&](const Openers* openers) {
    newest_ = observations_->look({.snapshot = snapshot,
                                   .openers = openers,
                                   .leases = &leases_,
                                   .no_leases = no_leases_,
                                   .people = active_,
                                   .no_people = no_people});
    carry_out(filling_->sampled(loop_.now(), snapshot.asked, newest_, waiters, minute));
  };
  const std::size_t ran = running_.size();
  if (wanted_since_ && *wanted_since_ <= last_came_) wanted_since_.reset();
  if (loop_.now() >= next_scan_) {
    if (!wanted_since_) wanted_since_ = snapshot.asked;
    scan_openers();
  }
  look(openers_for(snapshot));
  if (filling_->wants_openers() && openers_for(snapshot) == nullptr) {
    if (!wanted_since_) wanted_since_ = snapshot.asked;
    // A paused filler cannot wait, and who might start only where the previous look was in vain. A look that is under
    // way goes on by itself.
    looks_for_start_ = true;
    if (!is_looking() && (loop_.now() >= rests_until_ || filling_->decides_at())) scan_openers();
    if (openers_for(snapshot) != nullptr) look(openers_for(snapshot));
  }
  const bool wants = filling_->wants_openers();
  if (openers_for(snapshot) != nullptr && std::exchange(looks_for_start_, false) && running_.size() <= ran)
    rests_until_ = loop_.now() + std::min<Duration>(kLongestRest, kShareOfTime * last_scan_took_);
  if (openers_for(snapshot) != nullptr || !(wants || is_looking())) wanted_since_.reset();
  if (!wants || !wanted_since_) say_why_not();  // else there is more to come
  schedule_decision();
}

void FillSession::schedule_decision() {
  decide_timer_.cancel();
  const auto at = filling_->decides_at();
  if (!at || ending_) return;
  // The time may have come before the sample that it waits for: never at once again, so that the sample can be taken.
  const Instant now = loop_.now();
  decide_timer_.at(std::clamp(*at, now + kLookNext, now + kLookAgain), [this] {
    if (!is_looking()) sampler_->request(true);
    schedule_decision();
  });
}

// ---- who has the device files open ----------------------------------------------

// The files of GPUs; MIG devices share those of their card.
void FillSession::watch_opens(const Inventory& inventory) {
  std::vector<std::string> files;
  std::string marks;
  behind_.clear();
  const Root root = Root::machine();
  std::size_t card = 0;
  for (std::size_t place = 0; place < inventory.devices.size(); ++place) {
    const Device& device = inventory.devices[place];
    if (device.kind == DeviceKind::gpu) card = place;
    std::vector<GpuFile> own = gpu_files(device, root);
    for (const GpuFile& file : own.empty() ? gpu_files(inventory.devices[card], root) : std::move(own)) {
      auto number = static_cast<std::size_t>(std::ranges::find(files, file.path) - files.begin());
      if (number == files.size()) {
        const auto mark = mark_of(file.path);
        marks += mark.value_or(file.path + " is not there\n");
        if (!mark) continue;
        files.push_back(file.path);
        behind_.emplace_back();
      }
      behind_[number].push_back({device.id(), inventory.devices[card].id()});
    }
  }
  // A fresh sensor brings a new inventory of the same files: what was opened just now must not be forgotten for that.
  if (opens_ && marks == opens_of_ && !watch_anew_) return;
  opens_of_ = std::move(marks);
  if (opens_ && opens_->descriptor() >= 0) loop_.forget(opens_->descriptor());
  opens_ = OpenWatch::start(files, options_.best_way);
  watch_anew_ = opens_->descriptor() >= 0 && !loop_.on_ready(opens_->descriptor(), [this] { on_opens(); });
  if (watch_anew_) opens_ = OpenWatch::start({}, OpenWay::none);  // we have to look, until events can be had
  next_scan_ = {};                                                // what was opened before it was watched
}

// Nothing: it is one of ours, or does not count.
std::optional<GpuProcess> FillSession::foreign(pid_t pid) const {
  if (pid == 0) return GpuProcess{};
  if (owns(pid) || is_ignored_opener(pid, settings_.ignore)) return std::nullopt;
  const auto entry = read_process_entry(pid);
  return GpuProcess{.pid = pid, .start_ticks = entry ? entry->start_ticks : 0, .program = program_of(pid)};
}

// Whether it counts, found out once for all that it opens in a moment. Who does not count is asked about every time:
// it may become another program.
const GpuProcess* FillSession::stranger(pid_t pid) {
  const Instant now = loop_.now();
  if (now - strangers_since_ > kKnown) {
    strangers_.clear();
    strangers_since_ = now;
  }
  if (const auto known = strangers_.find(pid); known != strangers_.end()) return &known->second;
  auto opener = foreign(pid);
  return opener ? &strangers_.emplace(pid, *std::move(opener)).first->second : nullptr;
}

// Each filler is paused before the next open is looked at, and all of them before anything is logged.
void FillSession::on_opens() {
  std::vector<FillOrder> orders;
  const auto opened = [&](std::size_t file, const GpuProcess& opener) {
    for (const auto& [gpu, card] : behind_[file]) {
      const auto place = inventory_->place_of(card);
      if (place && is_ignored_on(settings_, inventory_->devices[*place], opener.pid)) continue;
      last_came_ = loop_.now();
      for (FillOrder& order : filling_->opened(loop_.now(), gpu, opener)) {
        halt_at_once(order);
        orders.push_back(std::move(order));
      }
    }
  };
  std::vector<DeviceOpen> opens;
  bool lost = false;
  for (int rounds = 0; rounds < kMostRounds; ++rounds) {
    opens.clear();
    opens_->take(opens, lost);
    if (opens.empty() || !filling_ || ending_) break;
    for (const DeviceOpen& open : opens)
      if (const GpuProcess* opener = stranger(open.pid); opener != nullptr && open.file < behind_.size())
        opened(open.file, *opener);
  }
  if (!filling_ || ending_) return;
  for (std::size_t file = 0; lost && file < behind_.size(); ++file) opened(file, {});
  watch_anew_ = watch_anew_ || lost;  // the nodes may be others by now
  carry_out_the_rest(orders);
  if (!orders.empty()) sampler_->request(true);
  schedule_decision();
}

// What a whole look found that began after a sample was asked for that wanted it, and after the last who came. Where
// there are thousands of processes one look lasts longer than from this sample to the next.
const Openers* FillSession::openers_for(const Snapshot& snapshot) const {
  if (!openers_) return nullptr;
  const Instant since = wanted_since_ && *wanted_since_ > last_came_ ? *wanted_since_ : snapshot.asked;
  return openers_->began >= std::min(since, snapshot.asked) ? &*openers_ : nullptr;
}

Duration FillSession::rest_after(Duration look) const {
  switch (opens_ ? opens_->way() : OpenWay::none) {
    case OpenWay::cgroup_device: return std::max<Duration>(kScanWithEvents, look * kShareWithEvents);
    // On a machine that is busy a look takes long: who comes must be seen all the same.
    case OpenWay::none: return std::clamp<Duration>(look * kShareOfTime, kQuickestScan, kScanWithFewEvents);
    default: return std::max<Duration>(kScanWithFewEvents, look * kShareWithEvents);
  }
}

// A part of a scan of all processes' files. The next part comes soon: the result counts once all are done.
void FillSession::scan_openers() {
  if (!inventory_) return;
  const Instant began = loop_.now();
  const Instant before = openers_ ? openers_->began : Instant{};
  openers_ = scan_->look(*inventory_, kScanBudget, !settings_.ignore_hidden);
  const Instant now = loop_.now();
  look_took_ += std::max<Duration>(now - began, Duration(1));
  const bool done = openers_->began != before;
  next_scan_ = now + (done ? rest_after(look_took_) : now - began);
  if (done) last_scan_took_ = std::exchange(look_took_, Duration::zero());
  scan_timer_.cancel();
  // Where nothing tells us: a look of our own between the samples.
  if (!done || !opens_ || opens_->way() == OpenWay::none)
    scan_timer_.at(next_scan_, [this] {
      if (!ending_ && filling_) scan_on_time();
    });
}

void FillSession::scan_on_time() {
  scan_openers();
  if (is_looking()) return;
  if (opens_ && opens_->way() != OpenWay::none) {
    if (wanted_since_) decide(sampler_->newest());
    return;
  }
  std::vector<FillOrder> orders;
  for (std::size_t place = 0; openers_ && place < openers_->holders.size(); ++place) {
    const Device& device = inventory_->devices[place];
    for (const pid_t pid : openers_->holders[place]) {
      const auto opener = foreign(pid);
      if (!opener || is_ignored_on(settings_, device, opener->pid)) continue;
      if (filling_->suspects(device.id(), *opener)) continue;  // who stays has not come again
      for (FillOrder& order : filling_->opened(loop_.now(), device.id(), *opener)) orders.push_back(std::move(order));
    }
  }
  carry_out(orders);
  if (!orders.empty()) {
    last_came_ = loop_.now();
    sampler_->request(true);
  } else if (wanted_since_) {
    return decide(sampler_->newest());
  }
  schedule_decision();
}

// ---- leases ---------------------------------------------------------------------

void FillSession::watch_leases() {
  const LeasePlace place = LeasePlace::of_environment();
  if (lease_events_) return;
  lease_events_ = Fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!lease_events_) return;
  if (::inotify_add_watch(lease_events_.get(), place.path.c_str(), IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_ONLYDIR) <
      0) {
    lease_events_.reset();  // there is none yet
    return;
  }
  const auto heard = loop_.on_ready(lease_events_.get(), [this] {
    bool over = false;
    each_inotify_event(lease_events_.get(), [&](const inotify_event& event, std::string_view) {
      over = over || (event.mask & IN_IGNORED) != 0;
      return true;
    });
    if (over) {  // the folder was removed: the next sample looks for another
      loop_.forget(lease_events_.get());
      lease_events_.reset();
    }
    if (!ending_) sampler_->request(false);  // its sample looks at them
  });
  if (!heard) lease_events_.reset();
}

void FillSession::look_at_leases() {
  watch_leases();
  auto folder = LeaseFolder::look(LeasePlace::of_environment());
  no_leases_ = folder ? "" : folder.error().message();
  if (!folder) return;
  if (!*folder) {
    leases_ = {};
    return;
  }
  auto state = (*folder)->look_on(leases_, kFolderLock);
  if (state)
    leases_ = *std::move(state);
  else
    no_leases_ = state.error().message();
}

}  // namespace lull
