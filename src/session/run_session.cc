#include "session/run_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include "act/spawn.h"
#include "base/text.h"
#include "base/units.h"
#include "park/record.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kAtOnce = 300ms;

// Signals to us that are meant for the job. Faults of our own (SEGV…) stay ours.
std::vector<int> watched_signals() {
  std::vector<int> all = {SIGHUP,    SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM,
                          SIGVTALRM, SIGPWR, SIGIO,   SIGTSTP, SIGCONT, SIGCHLD};
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) all.push_back(number);
  return all;
}

}  // namespace

RunSession::RunSession(RunSettings settings, World& world, Sink& sink)
    : Session(std::move(settings.common), {"job"}, world, sink), settings_(std::move(settings)) {}

Result<> RunSession::prepare() {
  TRY(world_.listen(watched_signals(), [this](const signalfd_siginfo& info) { on_signal(info); }));
  make_feed(
      true, common_.watch_work || !settings_.evidence.empty(),
      [this](pid_t pid) { return (job_ && job_->contains(pid)) || common_.also.contains(pid); }, common_.also.empty());
  if (!settings_.evidence.empty()) TRY(during("--evidence", Evidence::prepare(settings_.evidence)));
  return {};
}

SessionEnd RunSession::run() {
  if (const auto ready = prepare(); !ready) return {kExitFailure, ready.error().message()};
  // Only where it was asked for is the job's start kept waiting for the driver. A mistake in --gpus is told before the
  // start if the driver answers at once, as most do; else with the first sample.
  if (const auto refused = refuse_without_gpus(*feed_, sink_,
                                               {.require_gpu = common_.require_gpu,
                                                .named = !common_.gpus.empty(),
                                                .limit = kAtOnce,
                                                .status = settings_.refused_status,
                                                .complains = true}))
    return *refused;
  if (const auto failed = start_job()) return *failed;
  feed_->begin();
  SessionEnd end = world_.run(end_);
  leftover_lists_.reset();
  acting_.reset();
  parking_.reset();
  ending_.reset();
  hook_.reset();
  evidence_.reset();
  job_.reset();
  return end;
}

std::optional<SessionEnd> RunSession::start_job() {
  parking_.reset();
  ending_.reset();
  hook_.reset();
  evidence_.reset();
  job_.reset();
  job_stopped_ = worker_stopped_ = false;
  feed_->forget_job();
  members_.clear();
  memory_at_start_.clear();
  time_up_.reset();
  phase_ = Phase::watching;
  begin_subject();
  auto started =
      world_.start({.command = settings_.command,
                    .use_cgroup = settings_.use_cgroup,
                    .count_io = common_.watch_work || policy_uses(common_.policy, {Metric::io, Metric::quiet})},
                   {.ended = [this](const ExitStatus& status) { on_job_ended(status); },
                    .stopped = [this](int signal) { on_job_stopped(signal); }});
  if (!started) return SessionEnd{status_of_failed_exec(started.error()), printable(started.error().message())};
  job_ = *std::move(started);
  if (!settings_.evidence.empty()) evidence_ = job_->evidence(settings_.evidence, recorder_);
  if (!settings_.on_idle.empty()) hook_ = job_->hook(settings_.on_idle, settings_.on_idle_limit);
  ending_ = job_->ending(settings_.ending);
  if (settings_.park) parking_ = job_->parking(*settings_.park, settings_.ending);
  for (Action* action :
       {hook_.get(), ending_.get(), parking_.get()})  // the folder of evidence was made ready before anything began
    if (action != nullptr)
      if (const auto ready = action->prepare(); !ready) return SessionEnd{kExitFailure, ready.error().message()};
  sink_.started();
  warn_of_missing_also();
  return std::nullopt;
}

void RunSession::finish(SessionEnd how) {
  phase_ = Phase::done;
  end(std::move(how));
}

// ---- the job's side: signals to it, news of it

void RunSession::on_signal(const signalfd_siginfo& info) {
  const int number = static_cast<int>(info.ssi_signo);
  if (number == SIGCHLD) {
    if (acting_) acting_->look();
    return;
  }
  if (phase_ == Phase::leaving) {
    if (number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT) finish(*own_end_);
    return;
  }
  if (phase_ == Phase::backoff || (phase_ == Phase::checking && number != SIGCONT && number != SIGTSTP)) {
    if (number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT)
      finish(phase_ == Phase::checking ? own_end_.value_or(SessionEnd{settings_.idle_status}) : ended_by(number));
    return;
  }
  if (number == SIGCONT) {
    if (job_stopped_) job_->go_on();
    return;
  }
  job_->forward(info);
  if (number == SIGTSTP) {
    set_stopped(true);
    world_.stop_ourselves();
    set_stopped(job_stopped_ || worker_stopped_);
    job_->go_on();
  }
}

void RunSession::on_job_stopped(int signal) {
  job_stopped_ = signal != 0;
  set_stopped(job_stopped_ || worker_stopped_);
  if (signal == 0 || (phase_ == Phase::watching && job_->stop_with_it(signal))) return;
  sink_.note(Level::note, "stopped", "the job is stopped (" + signal_name(signal) + "): not judged until it goes on");
}

void RunSession::on_job_ended(const ExitStatus& status) {
  if (phase_ == Phase::ending && acting_) return acting_->look();
  if (phase_ == Phase::watching || phase_ == Phase::firing || phase_ == Phase::parked)
    leave(status.signal != 0 ? ended_by(status.signal) : SessionEnd{status.code});
}

// ---- the GPUs' side: time and samples

void RunSession::list_members(Instant at) {
  const Verdict& verdict = judged().verdict();
  // Listing the tree costs more than sampling the GPUs: only for rules that need it, and
  // when a firing comes near, so that it can say what each process did since the last sample.
  const bool near = verdict.held_samples > 0 && verdict.held * 2 >= verdict.needed.time &&
                    verdict.held_samples * 2 >= verdict.needed.samples;
  if (!rule_wants_work_ && !near) {
    members_.clear();
    return;
  }
  std::vector<ProcessEntry> members = job_->members();
  const Instant now = world_.clock().now();
  const double apart = std::chrono::duration<double>(now - members_at_).count();
  // A confirmation comes right after another sample: in so short a time no process has used a tick of CPU.
  constexpr double kShortest = 0.02;
  if (apart < kShortest && !members_before_.empty()) {
    members_apart_ += apart;
  } else {
    members_before_ = std::move(members_);
    members_apart_ = apart;
  }
  members_ = std::move(members);
  members_at_ = now;
  if (!rule_wants_work_) return;
  add_usage(job_->usage(members_, common_.also.members(), at));
}

// While we collect evidence, a debugger that has stopped one is our own.
void RunSession::look_at_stopped() {
  worker_stopped_ = is_paused(phase_ != Phase::firing, {job_->pid()}, "the job", " of the job");
  set_stopped(job_stopped_ || worker_stopped_);
}

void RunSession::sense(const Snapshot& snapshot) {
  if (phase_ == Phase::checking && memory_wanted_) return check_memory();
  if (!wants_samples() && !needs_more_samples()) return;
  look_at_stopped();
  list_members(snapshot.at);
  if (!settings_.evidence.empty()) recorder_.add(snapshot, subject_.job, feed_->machine());
  if (memory_at_start_.empty())
    for (std::size_t i = 0; i < snapshot.readings.size(); ++i)
      memory_at_start_.emplace(snapshot.inventory->devices[i].id(), snapshot.readings[i][Metric::mem_used]);
}

// The second half of a RunSession: what happens from the moment a rule fires.

namespace {

using namespace std::chrono_literals;

constexpr int kMemoryTries = 12;  // a driver frees the memory of a killed process a little later
constexpr Duration kMemoryPause = 250ms;
constexpr Duration kParkedPause = 500ms;
constexpr Duration kListsLimit = 2s;  // for the driver's lists of processes, when the job has ended
constexpr double kMemoryThatMatters = 256.0 * 1024 * 1024;

std::map<DeviceId, double> memory_of(const Snapshot& snapshot, const std::vector<Device>& scope) {
  std::map<DeviceId, double> used;
  for (const Device& device : scope)
    if (const Reading* reading = snapshot.find(device.id())) used.emplace(device.id(), (*reading)[Metric::mem_used]);
  return used;
}

// How much of which GPU each of them holds. Nothing: unknown.
std::optional<std::string> held_by(const std::vector<ProcessEntry>& left, const Snapshot& snapshot) {
  std::string text;
  bool known = snapshot.driver.absence == Absence::none || snapshot.driver.absence == Absence::no_driver;
  for (std::size_t i = 0; i < snapshot.readings.size(); ++i) {
    const auto& listed = snapshot.readings[i].processes;
    known = known && listed;
    for (const ProcessEntry& one : left) {
      const auto is_it = [&](const GpuProcess& any) {
        return any.here && any.pid == one.pid && (any.start_ticks == 0 || any.start_ticks == one.start_ticks);
      };
      const auto process = listed ? std::ranges::find_if(*listed, is_it) : decltype(listed->end())();
      if (!listed || process == listed->end()) continue;
      text += fmt::format("{}{} ({}) {} {} of GPU {}", text.empty() ? "" : ", ", one.pid, printable(one.name),
                          process->proven() ? "holds" : "may hold",
                          process->memory_bytes ? format_size(static_cast<double>(*process->memory_bytes)) : "memory",
                          snapshot.inventory->devices[i].label());
    }
  }
  return !text.empty() || known ? std::optional(text) : std::nullopt;
}

std::string names_of(const std::vector<ProcessEntry>& processes) {
  constexpr std::size_t kMost = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(processes.size(), kMost); ++i)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", processes[i].pid, printable(processes[i].name));
  if (processes.size() > kMost) text += fmt::format(" and {} more", processes.size() - kMost);
  return text;
}

double value_of(const std::map<DeviceId, double>& list, const DeviceId& id) {
  const auto found = list.find(id);
  return found == list.end() ? kUnknown : found->second;
}

}  // namespace

std::string RunSession::next_text(bool for_time) const {
  if (parking_ && !for_time)
    return settings_.park->else_end ? "park it, or else " + to_text(settings_.ending) : "park it";
  std::string text = to_text(settings_.ending);
  if (!for_time && restarts_done_ < settings_.restarts)
    text += fmt::format(", then start it again ({} of {}) after {}", restarts_done_ + 1, settings_.restarts,
                        format_duration(settings_.backoff));
  return text;
}

std::vector<pid_t> RunSession::who_hangs() {
  std::vector<pid_t> pids;
  for (const ProcessEntry& one : members_.empty() ? job_->members() : members_) pids.push_back(one.pid);
  return pids;
}

void RunSession::fired(const Fired& fire) {
  if (phase_ != Phase::watching) return;
  FiringFacts all = facts("idle", fire.why, next_text());
  all.would = (parking_ ? "" : "send ") + all.action;
  all.job = job_->pid();
  all.command = settings_.command;
  all.members = view_members(members_.empty() ? job_->members() : members_, members_before_, members_apart_);
  sink_.firing(all, common_.dry_run);
  if (evidence_ == nullptr || common_.dry_run) log_hang();
  if (common_.dry_run) return engine_->outcome(subject_.id);
  memory_at_fire_ = memory_of(feed_->newest(), judged().scope());
  phase_ = Phase::firing;
  std::vector<Action*> actions;
  for (Action* action : {evidence_.get(), hook_.get(), parking_ ? parking_.get() : ending_.get()})
    if (action != nullptr) actions.push_back(action);
  act(std::move(actions), {.most = 0}, std::move(all));
}

void RunSession::time_is_up(const TimeUp& up) {
  if (phase_ == Phase::ending) time_up_ = up;  // it counts if that is called off
  if (!wants_samples() && phase_ != Phase::parked) return;
  sink_.note(Level::important, "max-time",
             fmt::format("the job has run for {} (--max-time): {}{}", format_duration(up.after),
                         common_.dry_run ? "dry run: would send " : "", next_text(true)));
  if (common_.dry_run) return;
  ended_for_time_ = true;
  act({ending_.get()}, {.most = 0}, facts("max-time", {}, next_text(true)), true);
}

void RunSession::tell(const ActionEvent& action_event) {
  if (const auto* attempt = std::get_if<Attempted>(&action_event)) {
    if (attempt->action == ending_->text()) phase_ = Phase::ending;
    return;  // it was said when the rule fired
  }
  if (const auto* failed = std::get_if<Failed>(&action_event); failed != nullptr && !failed->goes_on)
    return;  // said already
  if (std::holds_alternative<NoLongerWanted>(action_event))
    return sink_.note(Level::note, "called-off",
                      "the GPUs are no longer idle (or cannot be read): the job is not ended");
  if (std::holds_alternative<TreeGone>(action_event) || std::holds_alternative<TreeStuck>(action_event) ||
      std::holds_alternative<TreeUnproven>(action_event))
    job_->restore_terminal();
  sink_.did(action_event);
}

void RunSession::acted(bool all, bool called_off) {
  if (phase_ != Phase::ending && phase_ != Phase::firing) return;
  if (!called_off && phase_ == Phase::firing && parking_) {
    phase_ = all ? Phase::parked : Phase::watching;
    sink_.note(Level::important, all ? "parked" : "not-parked",
               all ? fmt::format("the job is parked: `lull unpark {}` brings it back", job_->pid())
                   : "the job could not be parked, and runs on");
    begin_subject();
    if (all) look_at_parked();
    return;
  }
  if (!called_off) return tree_is_gone();
  phase_ = Phase::watching;
  if (const auto up = std::exchange(time_up_, std::nullopt)) time_is_up(*up);
}

// Until the user brings it back.
void RunSession::look_at_parked() {
  loop_.in(kParkedPause, [this] {
    if (phase_ != Phase::parked) return;
    const auto folder = ParkFolder::look();
    const auto all = folder && *folder ? (*folder)->all() : std::vector<ParkRecord>();
    const bool there =
        !folder || !all || std::ranges::any_of(*all, [&](const ParkRecord& one) { return one.root == job_->pid(); });
    if (there) return look_at_parked();
    phase_ = Phase::watching;
    begin_subject();
    sink_.note(Level::note, "unparked", "the job is back: it is watched again");
  });
}

void RunSession::tree_is_gone() {
  phase_ = Phase::checking;
  bool matters = false;
  for (const auto& [id, used] : memory_at_fire_) matters |= used - value_of(memory_at_start_, id) > kMemoryThatMatters;
  if (!matters) return after_ending();
  memory_wanted_ = true;
  memory_tries_ = kMemoryTries;
  feed_->request();
  // A driver that hangs now delays nothing.
  loop_.in(kMemoryPause * (kMemoryTries + 2), [this] {
    if (phase_ == Phase::checking && memory_wanted_) after_ending();
  });
}

void RunSession::check_memory() {
  std::string held;
  const auto now = memory_of(feed_->newest(), judged().scope());
  for (const Device& device : judged().scope()) {
    const double used = value_of(now, device.id());
    const double before = value_of(memory_at_start_, device.id());
    const double took = value_of(memory_at_fire_, device.id()) - before;
    if (!(took > kMemoryThatMatters) || std::isnan(used) || used - before < took / 2) continue;
    held += fmt::format("{}GPU {}: {} ({} before the job)", held.empty() ? "" : ", ", device.label(), format_size(used),
                        format_size(before));
  }
  if (held.empty()) return after_ending();
  if (--memory_tries_ <= 0) {
    sink_.note(Level::warning, "memory", "the job has ended, but its GPU memory is still in use: " + held);
    return after_ending();
  }
  loop_.in(kMemoryPause, [this] {
    if (phase_ == Phase::checking) feed_->request();
  });
}

void RunSession::after_ending() {
  memory_wanted_ = false;
  if (own_end_) return finish(*own_end_);
  if (ended_for_time_ || restarts_done_ >= settings_.restarts) return finish({settings_.idle_status});
  ++restarts_done_;
  phase_ = Phase::backoff;
  feed_->stop();
  sink_.note(Level::note, "restart",
             fmt::format("starting again in {} ({} of {})", format_duration(settings_.backoff), restarts_done_,
                         settings_.restarts));
  loop_.in(settings_.backoff, [this] {
    if (phase_ != Phase::backoff) return;
    if (const auto failed = start_job()) return finish(*failed);
    feed_->begin();
  });
}

// ---- the job has ended by itself

// Who of it is still there may hold the GPU's memory for ever. The lists that tell are not read while a job is watched
// that needs none of them, so a sampler of its own asks for them.
void RunSession::leave(SessionEnd how) {
  if (settings_.leftovers == Leftovers::unseen || job_->members().empty()) return finish(std::move(how));
  phase_ = Phase::leaving;
  own_end_ = std::move(how);
  if (acting_) acting_->call_off();  // the processes that are left must not be ended
  feed_->stop();
  SamplerOptions lists;
  lists.power = lists.details = false;
  lists.once = true;
  leftover_lists_ = world_.sampler(std::move(lists), [this](const Snapshot& snapshot) {
    if (phase_ != Phase::leaving) return;
    Snapshot identified = snapshot;
    world_.users()->identify_in(identified);
    log_leftovers(&identified);
  });
  leftover_lists_->request(true);
  loop_.in(kListsLimit, [this] {
    if (phase_ == Phase::leaving) log_leftovers(nullptr);
  });
}

void RunSession::log_leftovers(const Snapshot* snapshot) {
  const std::vector<ProcessEntry> left = job_->members();
  if (left.empty()) return finish(*own_end_);
  const auto held = snapshot != nullptr ? held_by(left, *snapshot) : std::nullopt;
  const bool ends = settings_.leftovers == Leftovers::end;
  if (held && held->empty() && !ends) return finish(*own_end_);  // no GPU, no concern of ours
  const std::string who = fmt::format("the job has ended (status {}) and left {} process{}: {}", own_end_->status,
                                      left.size(), left.size() == 1 ? "" : "es", names_of(left));
  const std::string what = !held ? "their GPU memory is unknown" : held->empty() ? "no GPU memory" : *held;
  const std::string next =
      !ends ? "--leftovers end would end them" : (common_.dry_run ? "dry run: would send " : "") + next_text(true);
  sink_.note(Level::important, "leftovers", fmt::format("{}; {}; {}", who, what, next));
  if (!ends || common_.dry_run) return finish(*own_end_);
  act({ending_.get()}, {.most = 0}, facts("leftovers", {}, next_text(true)), true);
}

}  // namespace lull
