#pragma once
// A machine for sessions under test: a manual clock on a warped loop, GPUs whose readings follow a script, a job and
// actions that only note when they were asked for. A day passes in milliseconds, in the same order as it would have.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu/inventory_test.h"
#include "sense/file_tree_test.h"
#include "session/run_session.h"
#include "session/script_test.h"
#include "session/watch_session.h"

namespace lull {

class FakeWorld final : public World {
 public:
  explicit FakeWorld(Script script_to_play) : script(std::move(script_to_play)), loop_(*Loop::create_warped(clock)) {}

  Loop& loop() override { return *loop_; }
  Result<> listen(const std::vector<int>&, OnSignal on_signal) override {
    on_signal_ = std::move(on_signal);
    return {};
  }
  std::unique_ptr<SampleSource> sampler(SamplerOptions options, SampleSource::OnSample on_sample) override {
    if (make_sampler) return make_sampler(std::move(options), std::move(on_sample));
    return std::make_unique<Sampler>(*this, options.lists_every, std::move(on_sample));
  }
  // A /proc with nobody in it but us, who hold the contexts of the job: what else runs on the real machine, and that
  // its files take their time, is none of a session's business here.
  Root root() override {
    static const TestTree tree;
    static const Root root = [] {
      const std::string us = "/" + std::to_string(::getpid()) + "/stat";
      tree.write("proc" + us, *read_file("/proc" + us));
      return tree.root();
    }();
    return root;
  }
  double user_idle() override { return 0; }
  Result<std::unique_ptr<Job>> start(const JobOptions&, JobCalls calls) override {
    calls_ = std::move(calls);
    note("start");
    ++starts;
    if (job_runs)
      loop_->in(*job_runs, [this, which = starts] {
        if (which == starts) end_job({.code = 0});
      });
    job_ended = is_stopped_ = false;
    return std::make_unique<FakeJob>(*this);
  }
  std::vector<std::unique_ptr<Action>> actions_of(const ActionOption& word, const ActionOptions& options) override {
    std::vector<std::unique_ptr<Action>> actions;
    if (word.kind == ActionOption::Kind::exit) return actions;
    if (options.warn) actions.push_back(std::make_unique<Waiting>(*this, "warn", *options.warn));
    actions.push_back(std::make_unique<FakeAction>(*this, word.text, true));
    return actions;
  }
  std::optional<std::vector<GpuProcess>> holders_at(Instant at, unsigned gpu) const {
    auto there = script.holders(at, gpu);
    if (there) std::erase_if(*there, [&](const GpuProcess& one) { return ended_pids.contains(one.pid); });
    return there;
  }
  std::unique_ptr<Action> end_holders(const std::string& text, Ending::Options, EndHolders::Who who) override {
    if (grace) return std::make_unique<Stubborn>(*this, text);
    return std::make_unique<FakeAction>(*this, text, true, [this, who] {
      for (const GpuProcess& one : who()) {
        note("end " + std::to_string(one.pid));
        ended_pids.insert(one.pid);
      }
    });
  }
  std::unique_ptr<Action> parking(const std::string& text, const ParkOptions&, ParkJob::Who who,
                                  std::unique_ptr<Action>) override {
    return std::make_unique<FakeAction>(*this, text, true, [this, who] {
      for (const std::string& one : who().value_or(std::vector<std::string>())) note("park " + one);
    });
  }
  void stop_ourselves() override { note("stopped ourselves"); }
  // What a command answers, and when; a test that starts none has none.
  void run_helper(const std::vector<std::string>& command, Duration, Helpers::Done done) override {
    note("run " + command.front());
    const HelperResult result = answer_command ? answer_command(command) : HelperResult{};
    loop_->in(std::chrono::milliseconds(5), [done = std::move(done), result] { done(result); });
  }
  std::function<HelperResult(const std::vector<std::string>&)> answer_command;

  void note(std::string what) { happened.push_back({clock.now(), std::move(what)}); }
  std::size_t count(std::string_view what) const {
    std::size_t found = 0;
    for (const Happened& one : happened) found += one.what == what ? 1U : 0U;
    return found;
  }
  void send(int number) {
    signalfd_siginfo info{};
    info.ssi_signo = static_cast<std::uint32_t>(number);
    on_signal_(info);
  }
  // Again and again from then on: what is under way may take no notice.
  void send_from(Instant at, int number) {
    loop_->at(at, [this, at, number] {
      send_from(at + std::chrono::seconds(1), number);
      send(number);
    });
  }
  void stop_job(int signal) {
    if (!calls_.stopped || job_ended || is_stopped_ == (signal != 0)) return;
    is_stopped_ = signal != 0;
    stopped_at.emplace_back(clock.now(), signal != 0);
    calls_.stopped(signal);
  }
  void end_job(ExitStatus status) {
    if (std::exchange(job_ended, true)) return;
    note("job ended");
    calls_.ended(status);
  }

  ManualClock clock;
  Script script;
  // Another one than the script's.
  std::function<std::unique_ptr<SampleSource>(SamplerOptions, SampleSource::OnSample)> make_sampler;
  std::vector<Happened> happened;
  std::vector<Seen> seen;
  std::vector<std::pair<Instant, bool>> stopped_at;
  std::function<Duration()> action_takes = [] { return std::chrono::milliseconds(10); };
  std::function<bool()> action_works = [] { return true; };
  std::optional<Duration> job_runs;
  std::optional<Duration> grace;                              // who is told to end takes no notice
  std::function<void()> before_signal;                        // once: what happens to us right before it
  GpuProcess context = {.pid = ::getpid(), .compute = true};  // who has those of the script
  bool job_ended = false;
  unsigned starts = 0;
  std::set<pid_t> ended_pids;

 private:
  class Sampler final : public SampleSource {
   public:
    Sampler(FakeWorld& world, Duration lists_every, OnSample on_sample)
        : world_(world), lists_every_(lists_every), on_sample_(std::move(on_sample)) {
      inventory_ = gpus_for_test(world_.script.gpus);
      newest_.inventory = std::make_shared<Inventory>();
    }
    ~Sampler() override {
      if (timer_) world_.loop_->cancel(*timer_);
    }
    void request(bool fresh_lists) override {
      if (timer_) return;
      asked_ = world_.clock.now();
      if (fresh_lists) listed_.reset();
      timer_ = world_.loop_->in(world_.script.latency(asked_), [this] {
        timer_.reset();
        read();
        on_sample_(newest_);
      });
    }
    bool sample_here(Duration) override {
      asked_ = world_.clock.now();
      read();
      return true;
    }
    void release_driver() override {}
    const Snapshot& newest() const override { return newest_; }

   private:
    void read() {
      Snapshot snapshot;
      snapshot.at = std::max(world_.clock.now() - world_.script.age(world_.clock.now()), asked_);
      snapshot.asked = asked_;
      snapshot.wall = world_.clock.wall();
      const bool driver = world_.script.has_driver(snapshot.at);
      snapshot.inventory = driver ? inventory_ : std::make_shared<Inventory>();
      if (!driver) snapshot.driver = {Absence::no_driver, "gone"};
      bool idle = driver;
      list(snapshot.at);
      for (unsigned i = 0; driver && i < world_.script.gpus; ++i) {
        Reading reading;
        const double util = world_.script.util(snapshot.at, i);
        if (std::isnan(util))
          reading.miss_all(Absence::no_answer);
        else
          reading.set(Metric::util, util);
        if (world_.script.not_covered(world_.seen.size())) reading.miss(Metric::util, Absence::not_covered);
        reading.newest_span = world_.script.newest_span(snapshot.at);
        world_.script.shares(snapshot.at, reading);
        reading.processes.emplace();
        if (contexts_[i]) reading.processes->push_back(world_.context);
        if (world_.script.has_context(snapshot.at, i)) idle = idle && util < 1;
        snapshot.readings.push_back(std::move(reading));
      }
      newest_ = std::move(snapshot);
      Seen seen{newest_.at, asked_, world_.clock.now(), idle, {}, {}};
      for (unsigned i = 0; i < world_.script.gpus; ++i) {
        seen.util.push_back(driver ? world_.script.util(newest_.at, i) : kUnknown);
        seen.holders.push_back(driver ? world_.holders_at(newest_.at, i) : std::nullopt);
      }
      world_.seen.push_back(std::move(seen));
    }

    void list(Instant at) {
      if (listed_ && at < *listed_ + lists_every_) return;
      listed_ = at;
      contexts_.clear();
      for (unsigned i = 0; i < world_.script.gpus; ++i) contexts_.push_back(world_.script.has_context(at, i));
    }

    FakeWorld& world_;
    Duration lists_every_;
    OnSample on_sample_;
    std::optional<Instant> listed_;
    std::vector<bool> contexts_;
    std::shared_ptr<Inventory> inventory_;
    Snapshot newest_;
    Instant asked_{};
    std::optional<Loop::TimerId> timer_;
  };

  // Notes that it began, takes its time.
  class FakeAction final : public Action {
   public:
    FakeAction(FakeWorld& world, std::string text, bool final, std::function<void()> begin = nullptr)
        : world_(world), text_(std::move(text)), final_(final), begin_(std::move(begin)) {}
    ~FakeAction() override {
      if (timer_) world_.loop_->cancel(*timer_);
    }
    const std::string& text() const override { return text_; }
    void ask_before_acting(Leave leave) override { leave_ = std::move(leave); }
    void start(const FiringFacts& facts, Done done, Tell tell) override {
      if (final_ && world_.before_signal) std::exchange(world_.before_signal, nullptr)();
      if (final_ && !leave_.holds()) return leave_.again([this, facts, done, tell] { start(facts, done, tell); });
      world_.note(text_);
      if (begin_) begin_();
      timer_ = world_.loop_->in(world_.action_takes(), [this, done = std::move(done), tell = std::move(tell)] {
        timer_.reset();
        const bool works = world_.action_works();
        if (text_ == "end") {
          tell(TreeGone{});
          world_.job_ended = true;
        }
        done({works, works ? "" : "did not work"});
      });
    }
    bool requires_confirmation() const override { return final_; }
    bool may_be_repeated() const override { return final_; }

   private:
    FakeWorld& world_;
    std::string text_;
    bool final_;
    Leave leave_;
    std::function<void()> begin_;
    std::optional<Loop::TimerId> timer_;
  };

  // Ends work that does not go by itself: "told", and after the grace and a pre-kill check "killed".
  class Stubborn final : public Action {
   public:
    Stubborn(FakeWorld& world, std::string text) : world_(world), text_(std::move(text)) {}
    ~Stubborn() override {
      if (timer_) world_.loop_->cancel(*timer_);
    }
    const std::string& text() const override { return text_; }
    void ask_before_kill(PreKillCheck look) override { look_ = std::move(look); }
    void start(const FiringFacts&, Done done, Tell tell) override {
      world_.note("told");
      done_ = std::move(done);
      timer_ = world_.loop_->in(*world_.grace, [this, tell = std::move(tell)] {
        timer_.reset();
        ask(tell);
      });
    }
    bool undo() override {
      if (!timer_) return false;
      world_.loop_->cancel(*timer_);
      timer_.reset();
      return true;
    }
    bool ends_work() const override { return true; }

   private:
    void ask(const Tell& tell) {
      if (!look_) return end(Truth::no, tell);
      look_([this, tell](Truth works) { end(works, tell); });
    }
    void end(Truth works, const Tell& tell) {
      if (works == Truth::unknown) {
        world_.note("waits");
        return ask(tell);
      }
      world_.note(works == Truth::yes ? "spared" : "killed");
      if (works == Truth::yes) {
        tell(WorksAgain{});
        return std::exchange(done_, nullptr)({.called_off = true});
      }
      tell(TreeGone{});
      std::exchange(done_, nullptr)({});
    }
    FakeWorld& world_;
    std::string text_;
    PreKillCheck look_;
    Done done_;
    std::optional<Loop::TimerId> timer_;
  };

  class Waiting final : public Action {
   public:
    Waiting(FakeWorld& world, std::string text, Duration time) : world_(world), text_(std::move(text)), time_(time) {}
    ~Waiting() override { (void)Waiting::undo(); }
    const std::string& text() const override { return text_; }
    void start(const FiringFacts&, Done done, Tell) override {
      world_.note(text_);
      timer_ = world_.loop_->in(time_, [this, done = std::move(done)] {
        timer_.reset();
        done({});
      });
    }
    bool undo() override {
      if (timer_) world_.loop_->cancel(*timer_);
      timer_.reset();
      return true;
    }
    bool requires_confirmation() const override { return false; }

   private:
    FakeWorld& world_;
    std::string text_;
    Duration time_;
    std::optional<Loop::TimerId> timer_;
  };

  // Of the jobs those of the script.
  class ScriptedUsers final : public GpuUsers {
   public:
    explicit ScriptedUsers(FakeWorld& world) : GpuUsers(world.root()), world_(world) {}
    std::vector<GpuUse> look(const Snapshot& snapshot, UserDetail detail, bool fresh) override {
      std::vector<GpuUse> uses = GpuUsers::look(snapshot, detail, fresh);
      for (unsigned i = 0; detail == UserDetail::jobs && i < uses.size(); ++i) {
        auto there = world_.holders_at(snapshot.at, i);
        uses[i] = {.device = uses[i].device, .reachable = true};
        uses[i].listed = uses[i].complete = there.has_value();
        if (there) uses[i].processes = *std::move(there);
      }
      return uses;
    }

   private:
    FakeWorld& world_;
  };
  std::shared_ptr<GpuUsers> make_users() override { return std::make_shared<ScriptedUsers>(*this); }

  class FakeJob final : public Job {
   public:
    explicit FakeJob(FakeWorld& world) : world_(world) {}
    pid_t pid() const override { return 4711; }
    bool contains(pid_t pid) const override { return pid == ::getpid(); }  // whose contexts all of them are
    std::vector<ProcessEntry> members() const override { return {}; }
    JobUsage usage(const std::vector<ProcessEntry>&, const std::vector<ProcessEntry>&, Instant) override { return {}; }
    void forward(const signalfd_siginfo& info) override {
      world_.note("signal " + std::to_string(info.ssi_signo));
      if (info.ssi_signo == SIGINT) world_.end_job({.signal = SIGINT});
    }
    void go_on() override { world_.note("go on"); }
    bool stop_with_it(int) override { return false; }
    void restore_terminal() override {}
    std::unique_ptr<Action> evidence(const std::string&, const Recorder&) override {
      return std::make_unique<FakeAction>(world_, "evidence", false);
    }
    std::unique_ptr<Action> hook(const std::string&, Duration) override {
      return std::make_unique<FakeAction>(world_, "hook", false);
    }
    std::unique_ptr<Action> ending(Ending::Options) override {
      if (world_.grace) return std::make_unique<Stubborn>(world_, "end");
      return std::make_unique<FakeAction>(world_, "end", true);
    }

   private:
    FakeWorld& world_;
  };

  std::unique_ptr<Loop> loop_;
  OnSignal on_signal_;
  JobCalls calls_;
  bool is_stopped_ = false;
};

// Keeps what it is told.
class Listening final : public Sink {
 public:
  void happened(const Event& event) override { events.push_back(event); }
  void firing(const FiringFacts& facts, bool) override { firings.push_back(facts); }
  void did(const ActionEvent& action_event) override { all_action_events.push_back(action_event); }
  void note(Level, std::string_view event, const std::string& text) override { notes.emplace_back(event, text); }
  void note_of(const LogSubject& one, Level level, std::string_view event, const std::string& text) override {
    about[std::string(event)] = one;
    note(level, event, text);
  }
  void sampled_each(const EachSampled& sampled) override { progress.push_back(each_progress_text(sampled)); }

  bool noted(std::string_view event) const {
    for (const auto& [word, text] : notes)
      if (word == event) return true;
    return false;
  }

  std::vector<Event> events;
  std::vector<FiringFacts> firings;
  std::vector<ActionEvent> all_action_events;
  std::vector<std::pair<std::string, std::string>> notes;
  std::map<std::string, LogSubject> about;  // by event, the last
  std::vector<std::string> progress;
};

}  // namespace lull
