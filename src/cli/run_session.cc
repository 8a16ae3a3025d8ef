#include "cli/run_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kAtOnce = 300ms;

// What somebody may send to us and means the job. Faults of our own (SEGV…) stay ours.
sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPWR, SIGIO,
                           SIGTSTP, SIGCONT, SIGCHLD})
    sigaddset(&set, number);
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) sigaddset(&set, number);
  return set;
}

}  // namespace

RunSession::RunSession(RunSettings settings, RunVoice& voice, const Clock& clock)
    : settings_(std::move(settings)), voice_(voice), clock_(clock) {
  rule_wants_job_ = policy_uses(settings_.policy, Of::job);
  job_sensor_ = JobSensor({}, policy_uses(settings_.policy, {Metric::io}));
}

RunSession::~RunSession() = default;

Result<> RunSession::prepare() {
  guard_standard_descriptors();
  signals_ = InheritedSignals::take();
  terminal_ = Terminal::remember();
  loop_ = TRY(Loop::create(clock_));
  sigset_t quiet;
  sigemptyset(&quiet);
  sigaddset(&quiet, SIGTTOU);  // a line of ours while the job has the terminal must not stop us
  ::pthread_sigmask(SIG_BLOCK, &quiet, nullptr);
  TRY(loop_->on_signals(watched_signals(), [this](const signalfd_siginfo& info) { on_signal(info); }));
  helpers_ = std::make_unique<Helpers>(*loop_, children_, settings_.use_cgroup);
  make_feed();
  Children::become_subreaper();
  earlier_ = own_children();
  if (!settings_.evidence.empty())
    if (auto ready = Evidence::prepare(settings_.evidence); !ready)
      return std::unexpected(std::move(ready.error()).during("--evidence"));
  return {};
}

int RunSession::run() {
  if (const auto ready = prepare(); !ready) return complain(ready.error().message());
  if (const auto refused = refuse_without_gpus()) return *refused;
  if (const auto failed = start_job()) return *failed;
  feed_->begin();
  const auto ran = loop_->run();
  cgroup_.remove();
  return ran ? status_ : complain(ran.error().message());
}

// Only where it was asked for is the job's start kept waiting for the driver. A mistake in --gpus is told before the
// start if the driver answers at once, as most do; else with the first sample.
std::optional<int> RunSession::refuse_without_gpus() {
  if (!settings_.require_gpu && settings_.gpus.empty()) return std::nullopt;
  const auto none = feed_->look(settings_.require_gpu ? Duration::max() : kAtOnce);
  if (none && settings_.require_gpu) {
    voice_.note(Level::important, "no-gpu", "no GPU can be read: " + *none);
    return settings_.refused_status;
  }
  if (!feed_->trouble().empty()) return complain(feed_->trouble(), kExitUsage);
  return std::nullopt;
}

void RunSession::make_feed() {
  feed_.emplace(*loop_, FeedOptions{.policy = settings_.policy,
                                    .every = settings_.every,
                                    .gpus = settings_.gpus,
                                    .of_job = true,
                                    .everything = !settings_.evidence.empty(),
                                    .is_ours = [this](pid_t pid) {
                                      return tree_.contains(pid) || settings_.also.contains(pid);
                                    }});
  feed_->on_tick = [this](std::uint64_t tick) { on_tick(tick); };
  feed_->on_sample = [this](Snapshot& snapshot, const Scope& scope) { on_sample(snapshot, scope); };
  feed_->on_note = [this](std::string_view event, const std::string& text) { voice_.note(Level::note, event, text); };
}

std::optional<int> RunSession::start_job() {
  cgroup_.remove();
  if (settings_.use_cgroup)
    if (auto made = Cgroup::create()) cgroup_ = *std::move(made);
  auto spawned = spawn({.arguments = settings_.command, .cgroup = cgroup_ ? cgroup_.fd() : -1, .signals = &signals_});
  if (!spawned) {
    cgroup_.remove();
    return complain(printable(spawned.error().message()), status_of_failed_exec(spawned.error()));
  }
  if (!spawned->in_cgroup) cgroup_.remove();
  cgroup_.remove_abandoned();
  job_ = std::move(spawned->process);
  tree_ = Tree::of_job(job_, cgroup_ ? &cgroup_ : nullptr, earlier_);
  job_status_.reset();
  job_stopped_ = worker_stopped_ = stop_said_ = freeze_said_ = false;
  job_sensor_.reset();
  (void)children_.take_orphans();
  feed_->forget_job();
  members_.clear();
  memory_at_start_.clear();
  firing_.reset();
  phase_ = Phase::watching;
  children_.expect(
      job_, [this](const ExitStatus& status) { on_job_ended(status); }, [this](int signal) { on_job_stopped(signal); });
  // SIGCHLD says the same, but may wait behind others in the queue.
  (void)loop_->on_ready(job_.fd(), [this] {
    loop_->forget(job_.fd());
    children_.sweep();
  });
  watcher_.emplace(WatcherOptions{.policy = settings_.policy,
                                  .judge = {.interval = settings_.every, .missing = settings_.missing},
                                  .delay = settings_.delay,
                                  .max_time = settings_.max_time},
                   clock_.now());
  set_time_limit();
  voice_.started(settings_);
  for (const std::string& text : settings_.also.nobody_in())
    voice_.note(Level::warning, "also", "--also " + printable(text) + ": nobody is there yet");
  return std::nullopt;
}

void RunSession::finish(int status) {
  phase_ = Phase::done;
  status_ = status;
  loop_->stop();
}

// ---- the job's side: signals to it, news of it

void RunSession::on_signal(const signalfd_siginfo& info) {
  const int number = static_cast<int>(info.ssi_signo);
  if (number == SIGCHLD) {
    children_.sweep();
    if (phase_ == Phase::ending) step_ending();
    return;
  }
  if (phase_ == Phase::backoff || (phase_ == Phase::checking && number != SIGCONT && number != SIGTSTP)) {
    if (number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT)
      finish(phase_ == Phase::checking ? settings_.idle_status : 128 + number);
    return;
  }
  if (number == SIGCONT) {
    if (job_stopped_) (void)job_.signal(SIGCONT);
    return;
  }
  forward(info);
  if (number == SIGTSTP) {
    watcher_->job_stopped(true);
    stop_ourselves();
    watcher_->job_stopped(job_stopped_ || worker_stopped_);
    (void)job_.signal(SIGCONT);
  }
}

// What the terminal sends goes to its whole foreground group: a job in our group has it already. But when the terminal
// itself goes, its session leader alone is told.
void RunSession::forward(const signalfd_siginfo& info) {
  const int number = static_cast<int>(info.ssi_signo);
  if (info.ssi_code == SI_KERNEL && !(number == SIGHUP && ::getsid(0) == ::getpid())) {
    const auto entry = read_process_entry(job_.pid());
    if (entry && entry->group == ::getpgrp()) return;
  }
  const bool ends = number == SIGHUP || number == SIGINT || number == SIGQUIT || number == SIGTERM;
  if (!ends) return (void)job_.signal(number);
  signal_group(number);
  signal_group(SIGCONT);  // who is stopped would keep the signal in its pocket
}

// The job's own process group, as far as it is the job, as timeout(1) does: our group may be a script's too.
void RunSession::signal_group(int number) {
  const auto leader = read_process_entry(job_.pid());
  bool reached = false;
  if (leader && leader->start_ticks == job_.start_ticks()) {
    for (const ProcessEntry& one : tree_.members()) {
      if (one.group != leader->group || one.pid == job_.pid()) continue;
      if (!std::exchange(reached, true)) (void)job_.signal(number);
      if (const auto process = Process::open(one)) (void)process->signal(number);
    }
  }
  if (!reached) (void)job_.signal(number);
}

// A shell that suspends itself stops its own group with SIGSTOP. While it has the terminal, or has given it back to us,
// nobody else can use it until we stop too. As the leader of a session there is nobody who would let us go on.
bool RunSession::has_locked_terminal() const {
  const auto entry = read_process_entry(job_.pid());
  if (!entry || entry->group == ::getpgrp() || ::getsid(0) == ::getpid()) return false;
  const pid_t foreground = terminal_.foreground();
  return foreground == entry->group || foreground == ::getpgrp();
}

void RunSession::on_job_stopped(int signal) {
  job_stopped_ = signal != 0;
  watcher_->job_stopped(job_stopped_ || worker_stopped_);
  const bool job_control = signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
  // By hand (SIGSTOP) somebody stopped the job alone, and may let it go on alone.
  if ((job_control || (signal == SIGSTOP && has_locked_terminal())) && terminal_.has_job_control() &&
      phase_ == Phase::watching) {
    const pid_t foreground = terminal_.foreground();
    stop_ourselves();
    if (foreground != ::getpgrp()) terminal_.give_to(foreground);
    (void)job_.signal(SIGCONT);
  } else if (signal != 0) {
    voice_.note(Level::note, "stopped",
                "the job is stopped (" + signal_name(signal) + "): not judged until it goes on");
  }
}

void RunSession::on_job_ended(const ExitStatus& status) {
  job_status_ = status;
  if (phase_ == Phase::ending) return step_ending();
  if (phase_ == Phase::watching || phase_ == Phase::firing) finish(status.shell_status());
}

// ---- the GPUs' side: time and samples

void RunSession::set_time_limit() {
  if (time_limit_) loop_->cancel(*time_limit_);
  time_limit_.reset();
  if (const auto next = watcher_->next_time())
    time_limit_ = loop_->at(*next, [this] {
      time_limit_.reset();
      handle(watcher_->time_is(clock_.now()));
    });
}

void RunSession::on_tick(std::uint64_t tick) {
  if (phase_ == Phase::watching || phase_ == Phase::firing) voice_.ticked(tick);
}

void RunSession::sense_job(Snapshot& snapshot) {
  const Verdict& verdict = watcher_->verdict();
  // Listing the tree costs more than sampling the GPUs: only for rules that need it, and
  // when a firing comes near, so that it can say what each process did since the last sample.
  const bool near = verdict.held_samples > 0 && verdict.held * 2 >= verdict.needed.time &&
                    verdict.held_samples * 2 >= verdict.needed.samples;
  if (!rule_wants_job_ && !near) {
    members_.clear();
    return;
  }
  members_before_ = std::move(members_);
  members_ = tree_.members();
  const Instant now = clock_.now();
  members_apart_ = std::chrono::duration<double>(now - members_at_).count();
  members_at_ = now;
  if (rule_wants_job_) fill_job_signals(snapshot);
}

void RunSession::fill_job_signals(Snapshot& snapshot) {
  const std::vector<ProcessEntry> outside = settings_.also.members();
  const std::vector<Reaped> orphans = children_.take_orphans();
  const JobUsage usage = job_sensor_.sample(
      members_, snapshot.at,
      {.cgroup_cpu = cgroup_ ? cgroup_.cpu_microseconds() : std::nullopt, .outside = outside, .orphans = orphans});
  fill_job(snapshot, usage);
  if (usage.uncounted_socket.empty() || usage.uncounted_socket == uncounted_said_) return;
  // Once: who it is changes with every process that comes and goes.
  if (uncounted_said_.empty())
    voice_.note(Level::warning, "io",
                "`io` is not known: " + usage.uncounted_socket + ", and nobody counts the bytes of that");
  uncounted_said_ = usage.uncounted_socket;
}

// A process that holds a GPU and is stopped waits for whoever stopped it: it is not idle.
// While we collect evidence, a debugger that has stopped one is our own.
void RunSession::look_at_stopped() {
  const auto stopped = feed_->stopped(phase_ != Phase::firing);
  if (stopped && !job_stopped_ && !stop_said_) {
    stop_said_ = true;
    voice_.note(Level::note, "stopped",
                fmt::format("process {} ({}) of the job is stopped and has a GPU context: not judged until it goes on",
                            stopped->pid, printable(stopped->name)));
  }
  const bool frozen = !stopped && feed_->frozen({job_.pid()});
  if (frozen && !std::exchange(freeze_said_, true))
    voice_.note(Level::note, "frozen", "the job's cgroup is frozen: not judged until it goes on");
  if ((stopped || frozen) == worker_stopped_) return;
  worker_stopped_ = stopped || frozen;
  watcher_->job_stopped(job_stopped_ || worker_stopped_);
}

void RunSession::say_about_scope() {
  if (feed_->trouble() != scope_trouble_) {
    scope_trouble_ = feed_->trouble();
    if (!scope_trouble_.empty()) voice_.note(Level::warning, "scope", scope_trouble_);
  }
  for (const std::string& text : feed_->take_notes()) voice_.note(Level::warning, "scope", text);
  for (const std::string& text : settings_.also.take_ended())
    voice_.note(Level::note, "also", "--also " + printable(text) + ": it has ended, with all that it started");
}

void RunSession::on_sample(Snapshot& snapshot, const Scope& scope) {
  if (phase_ == Phase::checking && memory_wanted_) return check_memory(memory_tries_);
  if (phase_ != Phase::watching && phase_ != Phase::firing) return;
  say_about_scope();
  look_at_stopped();
  sense_job(snapshot);
  if (!settings_.evidence.empty()) recorder_.add(snapshot);
  if (memory_at_start_.empty())
    for (std::size_t i = 0; i < snapshot.readings.size(); ++i)
      memory_at_start_.emplace_back(snapshot.inventory->devices[i].uuid, snapshot.readings[i][Metric::mem_used]);
  const std::vector<Intent> intents = watcher_->observe(snapshot, scope);
  // What only confirms, within milliseconds, that the lists of processes were not old is no sample of the log.
  if (phase_ == Phase::watching || !acting_at_once_) voice_.sampled(snapshot, *watcher_);
  handle(intents);
}

void RunSession::handle(const std::vector<Intent>& intents) {
  for (const Intent& intent : intents) {
    if (const Say* say = std::get_if<Say>(&intent)) {
      voice_.said(*say);
    } else if (const Fire* fired = std::get_if<Fire>(&intent)) {
      fire(*fired);
    } else if (const TimeUp* up = std::get_if<TimeUp>(&intent)) {
      if (phase_ != Phase::watching && phase_ != Phase::firing) continue;
      voice_.note(Level::important, "max-time",
                  fmt::format("the job has run for {} (--max-time): {}{}", format_duration(up->after),
                              settings_.dry_run ? "would do (--dry-run): " : "", next_in_words(true)));
      if (settings_.dry_run) continue;
      ended_for_time_ = true;
      begin_ending();
    }
  }
}

}  // namespace lull
