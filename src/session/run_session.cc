#include "session/run_session.h"

#include <cmath>
#include <csignal>
#include <utility>

#include "act/spawn.h"
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

RunSession::RunSession(RunSettings settings, World& world, Sink& sink)
    : Session(std::move(settings.common), {"job"}, world, sink), settings_(std::move(settings)) {}

Result<> RunSession::prepare() {
  TRY(world_.listen(watched_signals(), [this](const signalfd_siginfo& info) { on_signal(info); }));
  make_feed(true, common_.watch_work || !settings_.evidence.empty(),
            [this](pid_t pid) { return (job_ && job_->contains(pid)) || common_.also.contains(pid); });
  if (!settings_.evidence.empty())
    if (auto ready = Evidence::prepare(settings_.evidence); !ready)
      return std::unexpected(std::move(ready.error()).during("--evidence"));
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
  const auto ran = loop_.run();
  acting_.reset();
  ending_.reset();
  hook_.reset();
  evidence_.reset();
  job_.reset();
  return ran ? end_ : SessionEnd{kExitFailure, ran.error().message()};
}

std::optional<SessionEnd> RunSession::start_job() {
  ending_.reset();
  hook_.reset();
  evidence_.reset();
  job_.reset();
  job_stopped_ = worker_stopped_ = false;
  feed_->forget_job();
  members_.clear();
  memory_at_start_.clear();
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
  for (Action* action : {hook_.get(), ending_.get()})  // the folder of evidence was made ready before anything began
    if (action != nullptr)
      if (const auto ready = action->prepare(); !ready) return SessionEnd{kExitFailure, ready.error().message()};
  sink_.started();
  say_nobody_there();
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
  if (phase_ == Phase::backoff || (phase_ == Phase::checking && number != SIGCONT && number != SIGTSTP)) {
    if (number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT)
      finish({phase_ == Phase::checking ? settings_.idle_status : 128 + number});
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
  if (phase_ == Phase::watching || phase_ == Phase::firing) finish({status.shell_status()});
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
  // A fresh yes comes right after another sample: in so short a time nobody has used a tick of CPU.
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
  worker_stopped_ = stands_still(phase_ != Phase::firing, {job_->pid()}, "the job", " of the job");
  set_stopped(job_stopped_ || worker_stopped_);
}

void RunSession::sense(const Snapshot& snapshot) {
  if (phase_ == Phase::checking && memory_wanted_) return check_memory();
  if (!wants_samples() && !looks_once_more()) return;
  look_at_stopped();
  list_members(snapshot.at);
  if (!settings_.evidence.empty()) recorder_.add(snapshot, subject_.job, feed_->machine());
  if (memory_at_start_.empty())
    for (std::size_t i = 0; i < snapshot.readings.size(); ++i)
      memory_at_start_.emplace(snapshot.inventory->devices[i].id(), snapshot.readings[i][Metric::mem_used]);
}

}  // namespace lull
