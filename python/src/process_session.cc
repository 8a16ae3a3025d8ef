#include "process_session.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "sense/job.h"
#include "sense/presence.h"
#include "session/end_program.h"
#include "session/machine.h"
#include "view/events.h"

namespace lull::python {
// A loop on a thread among others: no signals, no job, no children.
class ProcessWatch::World final : public lull::World {
 public:
  World(std::unique_ptr<Loop> loop, SensorProgram program) : loop_(std::move(loop)), program_(std::move(program)) {}

  Loop& loop() override { return *loop_; }
  Result<> listen(const std::vector<int>&, OnSignal) override { return {}; }
  std::unique_ptr<SampleSource> sampler(SamplerOptions options, SampleSource::OnSample on_sample) override {
    options.program = program_;
    return std::make_unique<LoopSampler>(*loop_, std::move(options), std::move(on_sample));
  }
  double user_idle() override { return presence_.user_idle(loop_->clock()); }
  Result<std::unique_ptr<Job>> start(const JobOptions&, JobCalls) override { return fail("there is no job to start"); }
  std::vector<std::unique_ptr<Action>> actions_of(const ActionOption&, const ActionOptions&) override { return {}; }
  std::unique_ptr<Action> end_holders(const std::string&, Ending::Options, EndHolders::Who) override { return nullptr; }
  void stop_ourselves() override {}
  const SensorProgram* program() const override { return &program_; }

 private:
  std::unique_ptr<Loop> loop_;
  SensorProgram program_;
  Presence presence_;
};

class ProcessWatch::OutputStyle final : public Sink {
 public:
  explicit OutputStyle(const ProcessWatchCalls& calls) : calls_(calls) {}
  void happened(const Event& event) override {
    calls_.say(is_trouble(event) ? Level::warning : Level::note, to_string(event));
  }
  void firing(const FiringFacts& facts, bool dry_run) override {
    std::string text;
    for (const std::string& line : to_string(facts.why, true)) text += (text.empty() ? "" : "\n") + line;
    calls_.say(Level::important, text + "\n" + (dry_run ? "would do (dry_run)" : "next") + ": " + facts.action);
  }
  void did(const ActionEvent& action_event) override {
    if (!std::holds_alternative<Attempted>(action_event)) calls_.say(level_of(action_event), to_string(action_event));
  }
  void note(Level level, std::string_view, const std::string& text) override { calls_.say(level, text); }

 private:
  const ProcessWatchCalls& calls_;
};

class ProcessWatch::Watcher final : public Session {
 public:
  Watcher(ProcessWatchSettings settings, lull::World& world, Sink& sink, const ProcessWatchCalls& how)
      : Session(std::move(settings.common), {"process"}, world, sink),
        calls(how),
        repeat_(settings.repeat),
        action_(*this, settings.action),
        sensor_({}, policy_uses(common_.policy, {Metric::io, Metric::quiet})),
        wants_usage_(policy_uses(common_.policy, {Metric::cpu, Metric::io, Metric::quiet})) {
    state_.armed = !common_.policy.arm;
    make_feed(true, false, [this](pid_t pid) { return tree_.contains(pid); });
  }

  SessionEnd run() {
    begin_subject();
    feed_->begin();
    const auto ran = loop_.run();
    acting_.reset();
    return ran ? end_ : SessionEnd{kExitFailure, ran.error().message()};
  }
  void stop() { end({}); }
  // On the thread that watches. That nothing is done from now on holds already.
  void use_keep() { engine_->keep(subject_.id, Instant(Duration(keep_until_))); }
  void use_pause() { set_stopped(paused_ > 0); }
  void begin_pause() {
    set_stopped(true);  // also where it is over already: what held before it does not count
    use_pause();
  }
  void use_environment(JobEnvironment environment) { feed_->set_environment(std::move(environment)); }
  // From any thread.
  void keep(Duration time) {
    const std::int64_t until = (loop_.now() + time).time_since_epoch().count();
    std::int64_t before = keep_until_;
    while (before < until && !keep_until_.compare_exchange_weak(before, until)) {
    }
  }
  void pause(bool paused) { paused_ += paused ? 1 : -1; }
  void beat() { beat_ = loop_.now().time_since_epoch().count(); }
  ProcessWatchState state() const {
    const std::scoped_lock lock(mutex_);
    return state_;
  }

  // The program has just asked for more time, or for a pause.
  bool not_now() const { return paused_ > 0 || loop_.now().time_since_epoch().count() < keep_until_; }

  const ProcessWatchCalls& calls;

 private:
  // What Python does is an action like any other.
  class CallOut final : public Action {
   public:
    CallOut(Watcher& owner, std::string text) : owner_(owner), text_(std::move(text)) {}
    const std::string& text() const override { return text_; }
    void ask_before_acting(Leave leave) override { leave_ = std::move(leave); }
    void start(const FiringFacts& facts, Done done, Tell) override {
      if (owner_.not_now()) return done({.called_off = true});
      owner_.calls.act(facts, leave_, std::move(done));
    }
    bool undo() override { return owner_.calls.call_off(); }
    bool may_be_repeated() const override { return false; }

   private:
    Watcher& owner_;
    std::string text_;
    Leave leave_;
  };

  void sense(const Snapshot& snapshot) override {
    use_pause();
    if (wants_usage_) add_usage(sensor_.sample(tree_.members(), snapshot.at));
    if (const std::int64_t last = beat_; last != 0)
      subject_.job.set(
          Metric::beat,
          std::max(0.0, std::chrono::duration<double>(snapshot.at.time_since_epoch() - Duration(last)).count()));
    if (!engine_) return;
    const SubjectState* judged = engine_->find(subject_.id);
    if (judged == nullptr) return;
    const std::scoped_lock lock(mutex_);
    const Verdict& verdict = judged->verdict();
    state_ = {verdict.condition, verdict.armed, verdict.held, judged->judging() && paused_ == 0};
  }
  void fired(const Fired& fire) override {
    if (acting_) return;
    if (not_now()) return engine_->outcome(subject_.id, 0, 0, FiresAgain::at_once);
    FiringFacts all = facts("idle", fire.why, action_.text());
    all.job = ::getpid();
    sink_.firing(all, common_.dry_run);
    if (common_.dry_run) return engine_->outcome(subject_.id);
    act({&action_}, {.most = 0}, std::move(all));
  }
  void acted(bool all, bool called_off) override {
    if (all && !called_off && !repeat_) end({});
  }

  const bool repeat_;
  CallOut action_;
  ProcessTree tree_{::getpid()};
  JobSensor sensor_;
  const bool wants_usage_;
  std::atomic<int> paused_{0};
  std::atomic<std::int64_t> keep_until_{0};  // ns since boot
  std::atomic<std::int64_t> beat_{0};        // ns since boot; 0: none yet
  mutable std::mutex mutex_;
  ProcessWatchState state_;
};

ProcessWatch::ProcessWatch() : wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
ProcessWatch::~ProcessWatch() = default;

Result<std::unique_ptr<ProcessWatch>> ProcessWatch::make(ProcessWatchSettings settings, ProcessWatchCalls calls) {
  std::unique_ptr<ProcessWatch> made(new ProcessWatch);
  made->world_ = std::make_unique<World>(TRY(Loop::create(made->clock_)), settings.program);
  // The console output speaks through what the watcher keeps.
  auto shared = std::make_unique<ProcessWatchCalls>(std::move(calls));
  const ProcessWatchCalls& kept = *shared;
  made->console_ = std::make_unique<OutputStyle>(kept);
  made->calls_ = std::move(shared);
  made->watcher_ = std::make_unique<Watcher>(std::move(settings), *made->world_, *made->console_, kept);
  ProcessWatch* self = made.get();
  TRY(made->world_->loop().on_ready(made->wakeup_.get(), [self] {
    eventfd_t rings = 0;
    (void)::eventfd_read(self->wakeup_.get(), &rings);
    std::vector<std::function<void()>> tasks;
    {
      const std::scoped_lock lock(self->mutex_);
      tasks.swap(self->tasks_);
    }
    for (const auto& task : tasks) task();
  }));
  return made;
}

SessionEnd ProcessWatch::run() { return watcher_->run(); }

void ProcessWatch::post(std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  (void)::eventfd_write(wakeup_.get(), 1);
}

void ProcessWatch::stop() {
  post([this] { watcher_->stop(); });
}
void ProcessWatch::keep(Duration time) {
  watcher_->keep(time);
  post([this] { watcher_->use_keep(); });
}
void ProcessWatch::pause(bool paused) {
  watcher_->pause(paused);
  post([this, paused] { paused ? watcher_->begin_pause() : watcher_->use_pause(); });
}
void ProcessWatch::beat() { watcher_->beat(); }
void ProcessWatch::set_environment(JobEnvironment environment) {
  post([this, environment = std::move(environment)] { watcher_->use_environment(environment); });
}
ProcessWatchState ProcessWatch::state() const { return watcher_->state(); }
bool ProcessWatch::held_back() const { return watcher_->not_now(); }
Loop& ProcessWatch::loop() { return world_->loop(); }

}  // namespace lull::python
