#include "session/machine.h"

#include <unistd.h>

#include "base/text.h"

namespace lull {
namespace {

// A job with our terminal, in a cgroup of its own where that can be had.
class OwnJob final : public Job {
 public:
  struct Around {
    Loop& loop;
    Children& children;
    const Terminal& terminal;
    Tools tools;
  };
  OwnJob(Process process, Cgroup cgroup, std::set<ProcessId> earlier, bool count_io, const Around& around)
      : around_(around), process_(std::move(process)), cgroup_(std::move(cgroup)), sensor_({}, count_io) {
    tree_ = Tree::of_job(process_, cgroup_ ? &cgroup_ : nullptr, std::move(earlier));
    (void)around_.children.take_orphans();
    // SIGCHLD says the same, but may wait behind others in the queue.
    (void)around_.loop.on_ready(process_.fd(), [this] {
      around_.loop.forget(process_.fd());
      around_.children.sweep();
    });
  }
  ~OwnJob() override {
    around_.loop.forget(process_.fd());
    around_.children.forget(process_);
    cgroup_.remove();
  }

  const Process& process() const { return process_; }
  pid_t pid() const override { return process_.pid(); }
  bool contains(pid_t pid) const override { return tree_.contains(pid); }
  std::vector<ProcessEntry> members() const override { return tree_.look(); }
  JobUsage usage(const std::vector<ProcessEntry>& members, const std::vector<ProcessEntry>& outside,
                 Instant at) override {
    const std::vector<Reaped> orphans = around_.children.take_orphans();
    // Who is in it is asked first: one that is moved between the two counts twice, not never.
    const std::vector<pid_t> inside = cgroup_.members();
    std::vector<ProcessEntry> all = members;
    all.insert(all.end(), tree_.unwaited().begin(), tree_.unwaited().end());
    return sensor_.sample(
        all, at,
        {.cgroup_cpu = cgroup_.cpu_microseconds(), .in_cgroup = inside, .outside = outside, .orphans = orphans});
  }

  // What the terminal sends goes to its whole foreground group: a job in our group has it already. But when the
  // terminal itself goes, its session leader alone is told.
  void forward(const signalfd_siginfo& info) override {
    const int number = static_cast<int>(info.ssi_signo);
    if (info.ssi_code == SI_KERNEL && !(number == SIGHUP && ::getsid(0) == ::getpid())) {
      const auto entry = read_process_entry(process_.pid());
      if (entry && entry->group == ::getpgrp()) return;
    }
    const bool ends = number == SIGHUP || number == SIGINT || number == SIGQUIT || number == SIGTERM;
    if (!ends) return (void)process_.signal(number);
    signal_group(number);
    signal_group(SIGCONT);  // who is stopped would keep the signal in its pocket
  }
  void go_on() override { (void)process_.signal(SIGCONT); }

  bool stop_with_it(int signal) override {
    const bool job_control = signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
    // SIGSTOP stopped only the job, and SIGCONT may continue it alone.
    if (!(job_control || (signal == SIGSTOP && has_locked_terminal())) || !around_.terminal.has_job_control())
      return false;
    const pid_t foreground = around_.terminal.foreground();
    lull::stop_ourselves();
    if (foreground != ::getpgrp()) around_.terminal.give_to(foreground);
    go_on();
    return true;
  }
  void restore_terminal() override {
    around_.children.sweep();
    around_.terminal.restore();
  }

  std::unique_ptr<Action> evidence(const std::string& folder, const Recorder& recorder) override {
    return std::make_unique<CollectEvidence>(around_.tools, folder, recorder, Evidence::Debugger::gdb,
                                             [this](const Process& tool) { tree_.exclude(tool); });
  }
  std::unique_ptr<Action> hook(const std::string& line, Duration limit) override {
    return std::make_unique<RunCommand>(
        around_.tools, RunCommand::Options{.text = "--on-idle",
                                           .find = [line]() -> Result<std::vector<std::string>> {
                                             return std::vector<std::string>{"/bin/sh", "-c", line};
                                           },
                                           .limit = limit,
                                           .facts_on_stdin = true,
                                           .undoable = true,
                                           .repeat = false,
                                           .on_start = [this](const Process& hook) { tree_.exclude(hook); }});
  }
  std::unique_ptr<Action> ending(Ending::Options options) override {
    return std::make_unique<EndTree>(around_.loop, "end the job", options, tree_, process_,
                                     [this] { around_.children.sweep(); });
  }
  std::unique_ptr<Action> parking(const ParkOptions& options, Ending::Options end) override {
    return std::make_unique<ParkJob>(
        around_.tools, "park the job", options,
        [this]() -> Result<std::vector<std::string>> {
          // A lease that we hold is the job's: no other job works under it.
          return std::vector<std::string>{"--holder", std::to_string(::getpid()),
                                          park_argument(process_.pid(), process_.start_ticks(), true)};
        },
        options.else_end ? ending(end) : nullptr, [this](const Process& tool) { tree_.exclude(tool); });
  }

 private:
  // The job's own process group, as far as it is the job, as timeout(1) does: our group may be a script's too.
  void signal_group(int number) {
    const auto leader = read_process_entry(process_.pid());
    bool reached = false;
    if (leader && leader->start_ticks == process_.start_ticks()) {
      for (const ProcessEntry& one : tree_.members()) {
        if (one.group != leader->group || one.pid == process_.pid()) continue;
        if (!std::exchange(reached, true)) (void)process_.signal(number);
        if (const auto process = Process::open(one)) (void)process->signal(number);
      }
    }
    if (!reached) (void)process_.signal(number);
  }

  // A shell that suspends itself stops its own group with SIGSTOP. While it has the terminal, or has given it back to
  // us, no other process can use it until we stop too. If we lead the session, no process would continue us.
  bool has_locked_terminal() const {
    const auto entry = read_process_entry(process_.pid());
    if (!entry || entry->group == ::getpgrp() || ::getsid(0) == ::getpid()) return false;
    const pid_t foreground = around_.terminal.foreground();
    return foreground == entry->group || foreground == ::getpgrp();
  }

  Around around_;
  Process process_;
  Cgroup cgroup_;
  Tree tree_;
  JobSensor sensor_;
};

}  // namespace

Machine::Machine(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

Machine::~Machine() = default;

Result<std::unique_ptr<Machine>> Machine::open(const Clock& clock) {
  guard_standard_descriptors();
  const InheritedSignals signals = InheritedSignals::take();
  std::unique_ptr<Machine> machine(new Machine(TRY(Loop::create(clock))));
  machine->signals_ = signals;
  machine->terminal_ = Terminal::remember();
  return machine;
}

Result<> Machine::listen(const std::vector<int>& signals, OnSignal on_signal) {
  sigset_t quiet;
  sigemptyset(&quiet);
  sigaddset(&quiet, SIGTTOU);  // a line of ours while the job has the terminal must not stop us
  ::pthread_sigmask(SIG_BLOCK, &quiet, nullptr);
  TRY(loop_->on_signals(signals, [this, tell = std::move(on_signal)](const signalfd_siginfo& info) {
    if (info.ssi_signo == SIGCHLD) children_.sweep();
    tell(info);
  }));
  Children::become_subreaper();  // what a job or a hook leaves behind comes to us
  earlier_ = own_children();
  return {};
}

Helpers& Machine::helpers(bool use_cgroup) {
  if (!helpers_) helpers_ = std::make_unique<Helpers>(*loop_, children_, use_cgroup);
  return *helpers_;
}

std::unique_ptr<SampleSource> Machine::sampler(SamplerOptions options, SampleSource::OnSample on_sample) {
  return std::make_unique<LoopSampler>(*loop_, std::move(options), std::move(on_sample));
}

double Machine::user_idle() { return presence_.user_idle(loop_->clock()); }

Result<std::unique_ptr<Job>> Machine::start(const JobOptions& options, JobCalls calls) {
  Cgroup cgroup;
  if (options.use_cgroup)
    if (auto made = Cgroup::create()) cgroup = *std::move(made);
  auto spawned = spawn({.arguments = options.command, .cgroup = cgroup ? cgroup.fd() : -1, .signals = &signals_});
  if (!spawned || !spawned->in_cgroup) cgroup.remove();
  if (!spawned) return std::unexpected(std::move(spawned).error());
  cgroup.remove_abandoned();
  auto job = std::make_unique<OwnJob>(
      std::move(spawned->process), std::move(cgroup), earlier_, options.count_io,
      OwnJob::Around{*loop_, children_, terminal_, {*loop_, helpers(options.use_cgroup), signals_}});
  children_.expect(job->process(), std::move(calls.ended), std::move(calls.stopped));
  return job;
}

std::vector<std::unique_ptr<Action>> Machine::actions_of(const ActionOption& word, const ActionOptions& options) {
  return lull::actions_of(word, {*loop_, helpers(), signals_}, options);
}

std::unique_ptr<Action> Machine::end_holders(const std::string& text, Ending::Options options, EndHolders::Who who) {
  return std::make_unique<EndHolders>(*loop_, text, options, std::move(who));
}

std::unique_ptr<Action> Machine::parking(const std::string& text, const ParkOptions& options, ParkJob::Who who,
                                         std::unique_ptr<Action> otherwise) {
  return std::make_unique<ParkJob>(Tools{*loop_, helpers(), signals_}, text, options, std::move(who),
                                   std::move(otherwise));
}

std::unique_ptr<Action> Machine::evidence(const std::string& folder, const Recorder& recorder) {
  return std::make_unique<CollectEvidence>(Tools{*loop_, helpers(), signals_}, folder, recorder,
                                           Evidence::Debugger::none);
}

void Machine::run_helper(const std::vector<std::string>& command, Duration limit, Helpers::Done done) {
  run_tool({.arguments = command, .limit = limit, .capture = true, .quiet = true}, std::move(done));
}

void Machine::run_tool(const HelperOptions& options, Helpers::Done done) {
  HelperOptions ours = options;
  ours.signals = &signals_;
  helpers().run(ours, std::move(done));
}

void Machine::stop_ourselves() { lull::stop_ourselves(); }

namespace {

using namespace std::chrono_literals;
constexpr Duration kDeafPause = 100ms;

}  // namespace

LoopSampler::LoopSampler(Loop& loop, SamplerOptions options, std::function<void(const Snapshot&)> on_sample)
    : loop_(loop), sampler_(Sampler::start(std::move(options))), on_sample_(std::move(on_sample)) {
  deaf_ = !loop_.on_ready(sampler_->event_fd(), [this] { take(); });
}

LoopSampler::~LoopSampler() { loop_.forget(sampler_->event_fd()); }

void LoopSampler::request(bool fresh_lists) {
  sampler_->request(fresh_lists);
  if (!look_) watch();
  if (deaf_ && !look_) look_at(loop_.now() + kDeafPause);
}

bool LoopSampler::sample_here(Duration limit) {
  sampler_->request();
  const bool came = sampler_->wait_for(snapshot_, limit);
  if (!came) watch();
  return came;
}

void LoopSampler::watch() {
  look_.cancel();
  const Instant by = sampler_->look_by();
  if (by != Instant::max()) look_at(by);
}

void LoopSampler::look_at(Instant by) {
  look_.at(by, [this] { take(); });
}

void LoopSampler::take() {
  const bool fresh = sampler_->take(snapshot_);
  watch();
  if (fresh) on_sample_(snapshot_);
}

Result<std::unique_ptr<LoopSenses>> LoopSenses::open(const Clock& clock) {
  return std::unique_ptr<LoopSenses>(new LoopSenses(TRY(Loop::create(clock))));
}

}  // namespace lull
