// A whole session of filling with real processes, files and time; what it reads of the GPUs is the test's.
#include "fill/session.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gpu/inventory_test.h"
#include "sense/file_tree_test.h"
#include "session/fake_world_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr Duration kLimit = 60s;  // for anything to happen; the machine may be busy

// GPUs as the test says they are; everything else is real.
class ScriptedWorld final : public World {
 public:
  explicit ScriptedWorld(unsigned gpus) : loop_(*Loop::create(clock_)), inventory(gpus_for_test(gpus)) {
    for (unsigned i = 0; i < gpus; ++i) inventory->devices[i].minor = i;
  }
  Loop& loop() override { return *loop_; }
  Result<> listen(const std::vector<int>&, OnSignal on_signal) override {
    on_signal_ = std::move(on_signal);
    return {};
  }
  std::unique_ptr<SampleSource> sampler(SamplerOptions options, SampleSource::OnSample on_sample) override {
    samplers.push_back(options);
    return std::make_unique<Source>(*this, std::move(options), std::move(on_sample));
  }
  double user_idle() override { return 0; }
  Result<std::unique_ptr<Job>> start(const JobOptions&, JobCalls) override { return fail("no jobs here"); }
  std::vector<std::unique_ptr<Action>> actions_of(const ActionOption&, const ActionOptions&) override { return {}; }
  std::unique_ptr<Action> end_holders(const std::string&, Ending::Options, EndHolders::Who) override { return nullptr; }
  void stop_ourselves() override {}
  void send(int number, int code = SI_USER) {
    signalfd_siginfo info{};
    info.ssi_signo = static_cast<std::uint32_t>(number);
    info.ssi_code = code;
    on_signal_(info);
  }

 private:
  class Source final : public SampleSource {
   public:
    Source(ScriptedWorld& world, SamplerOptions options, OnSample on_sample)
        : world_(world), options_(std::move(options)), on_sample_(std::move(on_sample)) {}
    ~Source() override {
      if (timer_) world_.loop_->cancel(*timer_);
    }
    void request(bool) override {
      if (timer_) return;
      const Instant asked = world_.loop_->now();
      timer_ = world_.loop_->in(world_.latency, [this, asked] {
        timer_.reset();
        read(asked);
        ++world_.answered;
        on_sample_(newest_);
      });
    }
    bool sample_here(Duration) override {
      read(world_.loop_->now());
      return true;
    }
    void release_driver() override { ++world_.release_driver; }
    const Snapshot& newest() const override { return newest_; }

   private:
    void read(Instant asked) {
      newest_ = {};
      newest_.asked = asked;
      newest_.at = world_.loop_->now();
      newest_.wall = world_.clock_.wall();
      newest_.inventory = world_.inventory;
      for (std::size_t i = 0; i < world_.inventory->devices.size(); ++i) {
        Reading reading;
        for (const auto& [metric, value] : world_.values)
          if (metric != Metric::temp || options_.details) reading.set(metric, value);
        reading.processes.emplace();
        if (world_.used)
          reading.processes->push_back({.pid = 1, .compute = true, .memory_bytes = {}, .gpu_instance = {}});
        if (world_.listed) reading.processes->push_back(*world_.listed);
        newest_.readings.push_back(std::move(reading));
      }
    }
    ScriptedWorld& world_;
    SamplerOptions options_;
    OnSample on_sample_;
    Snapshot newest_;
    std::optional<Loop::TimerId> timer_;
  };

  SystemClock clock_;
  std::unique_ptr<Loop> loop_;
  OnSignal on_signal_;

 public:
  std::shared_ptr<Inventory> inventory;
  std::vector<SamplerOptions> samplers;  // as they were asked for
  Duration latency = 5ms;
  std::map<Metric, double> values = {{Metric::util, 0},        {Metric::temp, 40},        {Metric::mem_used, 0},
                                     {Metric::mem_free, 16e9}, {Metric::mem_total, 16e9}, {Metric::procs, 0}};
  int release_driver = 0;
  int answered = 0;   // samples that were requested
  bool used = false;  // by a process that is none of ours
  std::optional<GpuProcess> listed;
};

// Keeps what it is told.
class Told final : public FillSink {
 public:
  void began(const FillSettings&, OpenWay way_now, const Inventory&) override { way = way_now; }
  void happened(const FillEvent& event) override {
    events.push_back(std::string(to_string(event.kind)) + " " + event.filler.name + " " + to_string(event.why) +
                     event.text);
    if (event.kind == FillEvent::started) pids.push_back(event.pid);
  }
  void note(Level, std::string_view event, const std::string& text) override {
    events.push_back(std::string(event) + ": " + text);
  }
  std::size_t count(std::string_view begin) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(events, [&](const std::string& one) { return one.starts_with(begin); }));
  }
  std::string all() const {
    std::string text;
    for (const std::string& one : events) text += one + "\n";
    return text;
  }
  OpenWay way = OpenWay::none;
  std::vector<std::string> events;
  std::vector<pid_t> pids;
};

class FillSessionTest : public ::testing::Test {
 protected:
  FillSessionTest() : signals_(InheritedSignals::take()) {
    fs::create_directories(tree_.at("dev"));
    fs::create_directories(tree_.at("leases"));
    ::setenv("LULL_DEV", tree_.at("dev").c_str(), 1);
    ::setenv("LULL_LEASES", tree_.at("leases").c_str(), 1);
    options_.use_cgroup = false;
    options_.controlled = false;
    options_.best_way = OpenWay::inotify;
    settings_.idle = *parse_rule("util < 5 for 100ms");
    settings_.every = 100ms;
    settings_.confirm = 300ms;
    settings_.ignore_hidden = true;
    settings_.people.count = false;
    FillerSettings filler;
    filler.name = "work";
    filler.command = {"sleep", "1000"};
    filler.grace = 2s;
    settings_.fillers = {filler};
  }
  ~FillSessionTest() override {
    ::unsetenv("LULL_DEV");
    ::unsetenv("LULL_LEASES");
  }

  std::string node(unsigned gpu) const { return tree_.at("dev/nvidia" + std::to_string(gpu)); }
  void make_node(unsigned gpu) { std::ofstream(node(gpu)) << ""; }
  void open_node(unsigned gpu) { (void)Fd(::open(node(gpu).c_str(), O_RDONLY | O_CLOEXEC)); }

  void begin(unsigned gpus = 1) {
    for (unsigned i = 0; i < gpus; ++i) make_node(i);
    world_.emplace(gpus);
    helpers_.emplace(world_->loop(), children_, false);
    session_.emplace(settings_, options_, FillMachine(*world_, children_, *helpers_, signals_), told_);
  }
  // Each step: when its condition holds, what follows is done. All of them within the limit.
  struct Step {
    std::string what;
    std::function<bool()> ready;
    std::function<void()> then = [] {};
  };
  void run(std::vector<Step> steps) {
    std::size_t next = 0;
    bool done = false;
    const Instant by = world_->loop().now() + kLimit;
    std::function<void()> look = [&] {
      children_.sweep();
      while (!done && next < steps.size() && steps[next].ready()) steps[next++].then();
      if (!done && (next == steps.size() || world_->loop().now() > by)) {
        done = true;
        world_->send(SIGTERM);
      }
      world_->loop().in(5ms, look);
    };
    world_->loop().in(0ms, look);
    end_ = session_->run();
    ASSERT_EQ(next, steps.size()) << "waited in vain for: " << steps[std::min(next, steps.size() - 1)].what << "\n"
                                  << told_.all();
    EXPECT_EQ(end_.status, 128 + ended_by_);
    for (const pid_t pid : told_.pids) EXPECT_FALSE(read_process_entry(pid) && !read_process_entry(pid)->ended());
  }
  Step saw(const std::string& event, std::size_t times = 1, std::function<void()> then = [] {}) {
    return {event, [this, event, times] { return told_.count(event) >= times; }, std::move(then)};
  }

  Step after(Duration time, std::function<void()> then = [] {}) {
    return {"time passes",
            [this, time, from = Instant{}]() mutable {
              if (from == Instant{}) from = world_->loop().now();
              return world_->loop().now() - from > time;
            },
            std::move(then)};
  }

  TestTree tree_;
  InheritedSignals signals_;
  FillSettings settings_;
  FillOptions options_;
  Told told_;
  Children children_;
  std::optional<ScriptedWorld> world_;
  std::optional<Helpers> helpers_;
  std::optional<FillSession> session_;
  SessionEnd end_;
  int ended_by_ = SIGTERM;
};

TEST_F(FillSessionTest, StartsPausesGoesOnAndEnds) {
  begin();
  run({saw("started work", 1, [&] { open_node(0); }), saw("halted work"), saw("went-on work")});
  EXPECT_EQ(told_.way, OpenWay::inotify);
  EXPECT_EQ(told_.count("yielding work lull fill ends"), 1U);
  EXPECT_EQ(told_.count("ended work"), 1U);
}

TEST_F(FillSessionTest, WhoHasTheNumberOfItsFillerAndBeganAtAnotherTimeIsAStranger) {
  begin();
  run({saw("started work", 1,
           [&] { world_->listed = {.pid = told_.pids[0], .compute = true, .memory_bytes = {}, .gpu_instance = {}}; }),
       after(350ms, [&] { EXPECT_EQ(told_.count("halted") + told_.count("yielding"), 0U) << told_.all(); }),
       after(0ms, [&] { world_->listed->start_ticks = 1; }), saw("yielding work")});
}

TEST_F(FillSessionTest, TwoDeviceNodesThatVanishOneAfterTheOtherAreFoundAgain) {
  begin(2);
  settings_.fillers[0].per_gpu = true;
  session_.emplace(settings_, options_, FillMachine(*world_, children_, *helpers_, signals_), told_);
  world_->latency = 400ms;  // both vanish within one sample
  run({saw("started work", 2, [&] { fs::remove(node(0)); }),
       saw("halted work GPU GPU-0: an unknown process has opened it", 1, [&] { fs::remove(node(1)); }),
       after(1s,
             [&] {
               make_node(0);
               make_node(1);
             }),
       saw("went-on work", 2,
           [&] {
             told_.events.clear();
             open_node(0);
             open_node(1);
           }),
       saw("halted work", 2), saw("went-on work", 2)});
}

TEST_F(FillSessionTest, AReloadWhileANodeIsGoneChangesTheFillers) {
  begin(2);
  FillSettings other = settings_;
  other.fillers[0].name = "other";
  options_.file = tree_.at("fill.toml");
  tree_.write("fill.toml", "");
  options_.reload = [&] { return other; };
  session_.emplace(settings_, options_, FillMachine(*world_, children_, *helpers_, signals_), told_);
  world_->latency = 300ms;
  run({saw("started work", 1, [&] { fs::remove(node(0)); }), saw("halted work", 1, [&] { world_->send(SIGHUP); }),
       saw("reloaded"), saw("ended work", 1, [&] { make_node(0); }), saw("started other")});
}

TEST_F(FillSessionTest, ALeaseFolderThatIsRemovedAndMadeAgainIsWatchedAgain) {
  settings_.every = 500ms;
  begin();
  run({saw("started work", 1, [&] { fs::remove_all(tree_.at("leases")); }),
       {"", [&] { return true; }, [&] { fs::create_directories(tree_.at("leases")); }},
       saw("started work")});
}

// ---- settings that change ---------------------------------------------------------

struct Change {
  const char* name;
  std::function<void(FillSettings&)> add;
  std::function<void(FillSettings&)> change = nullptr;
  bool restarts = true;     // the filler is another one
  bool reads_anew = false;  // what must be read is another
};

class FillReloads : public FillSessionTest, public ::testing::WithParamInterface<Change> {};

// Each setting of a filler and of the whole: added, changed and removed by a reload. What runs in the end is what the
// settings say, and it does run.
TEST_P(FillReloads, TakesEffectWhenItIsAddedChangedAndRemoved) {
  const Change& change = GetParam();
  const FillSettings before = settings_;
  FillSettings added = before;
  change.add(added);
  FillSettings changed = added;
  if (change.change) change.change(changed);
  std::vector<FillSettings> plans = {added, changed, before};
  std::size_t reloads = 0;
  options_.file = tree_.at("fill.toml");
  tree_.write("fill.toml", "");
  options_.reload = [&] { return plans[reloads++]; };
  begin();
  std::vector<Step> steps = {saw("started work")};
  std::size_t starts = 1;
  const FillSettings* last = &before;
  std::vector<const FillSettings*> in_turn = {&plans[0], &plans[1], &plans[2]};
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const bool other = !(in_turn[i]->fillers == last->fillers);
    last = in_turn[i];
    steps.back().then = [&] { world_->send(SIGHUP); };
    steps.push_back(saw("reloaded", i + 1));
    if (other) steps.push_back(saw("started", ++starts));
    // It goes on to run: two more samples, and nobody stops it.
    steps.push_back(after(350ms));
  }
  run(steps);
  EXPECT_EQ(told_.count("halted"), 0U) << told_.all();
  EXPECT_EQ(told_.all().find("nan"), std::string::npos) << told_.all();
  EXPECT_EQ(world_->samplers.size() > 1, change.reads_anew);
  if (!change.restarts) {
    EXPECT_EQ(told_.count("started"), 1U);
  }
}

FillerSettings& first(FillSettings& settings) { return settings.fillers[0]; }

INSTANTIATE_TEST_SUITE_P(
    Settings, FillReloads,
    ::testing::Values(
        Change{"MaxTemp", [](auto& one) { first(one).max_temp = 80; }, [](auto& one) { first(one).max_temp = 90; },
               true, true},
        Change{"Memory", [](auto& one) { first(one).memory = 1e9; }, [](auto& one) { first(one).memory = 2e9; }},
        Change{"Hours", [](auto& one) { first(one).hours = *Hours::parse("0-24"); },
               [](auto& one) { first(one).hours = *Hours::parse("0-12,12-24"); }},
        Change{"Name", [](auto& one) { first(one).name = "b"; }, [](auto& one) { first(one).name = "c"; }},
        Change{"Command", [](auto& one) { first(one).command = {"sleep", "1001"}; }},
        Change{"Gpus", [](auto& one) { first(one).gpus = "0"; }},
        Change{"PerGpu", [](auto& one) { first(one).per_gpu = true; }},
        Change{"Priority", [](auto& one) { first(one).priority = 3; }},
        Change{"Once", [](auto& one) { first(one).once = true; }},
        Change{"Directory", [](auto& one) { first(one).directory = "/"; },
               [](auto& one) { first(one).directory = "/tmp"; }},
        Change{"Environment", [](auto& one) { first(one).environment = {{"A", "1"}}; },
               [](auto& one) { first(one).environment = {{"A", "2"}}; }},
        Change{"Log", [](auto& one) { first(one).log = "/dev/null"; }, [](auto& one) { first(one).log = "/dev/full"; }},
        Change{"LogSize", [](auto& one) { first(one).log_size = 1000; }},
        Change{"LogKeep", [](auto& one) { first(one).log_keep = 1; }},
        Change{"Nice", [](auto& one) { first(one).nice = 1; }, [](auto& one) { first(one).nice = 2; }},
        Change{"IoClass", [](auto& one) { first(one).io_class = IoClass::best_effort; }},
        Change{"Yield", [](auto& one) { first(one).yield = YieldWay::pause; },
               [](auto& one) { first(one).yield = YieldWay::stop; }},
        Change{"YieldCommand", [](auto& one) { first(one).yield_command = "true"; }},
        Change{"ResumeCommand", [](auto& one) { first(one).resume_command = "true"; }},
        Change{"YieldLimit", [](auto& one) { first(one).yield_limit = 1s; }},
        Change{"StopSignal", [](auto& one) { first(one).signal = SIGINT; }},
        Change{"Grace", [](auto& one) { first(one).grace = 1s; }},
        Change{"VisibleDevices", [](auto& one) { first(one).set_visible_devices = false; }},
        Change{"Free", [](auto& one) { one.idle = *parse_rule("util < 6 for 100ms"); },
               [](auto& one) { one.idle = *parse_rule("temp < 90 for 100ms"); }, false, true},
        Change{"Every", [](auto& one) { one.every = 150ms; }, [](auto& one) { one.every = 200ms; }, false},
        Change{"Confirm", [](auto& one) { one.confirm = 1s; }, [](auto& one) { one.confirm = 2s; }, false},
        Change{"Ignore", [](auto& one) { one.ignore = {"a"}; }, [](auto& one) { one.ignore = {"b"}; }, false, true},
        Change{"IgnoreOn", [](auto& one) { one.ignore_on = {{.files = std::set<unsigned>{0}, .programs = {"a"}}}; },
               nullptr, false},
        Change{"People", [](auto& one) { one.people.except_user = {"root"}; },
               [](auto& one) { one.people.except_user = {"nobody"}; }, false}),
    [](const auto& one) { return one.param.name; });

TEST_F(FillSessionTest, AReloadThatAddsALimitOnTheTemperatureReadsIt) {
  options_.file = tree_.at("fill.toml");
  tree_.write("fill.toml", "");
  FillSettings limited = settings_;
  limited.fillers[0].max_temp = 60;
  options_.reload = [&] { return limited; };
  begin();
  run({saw("started work", 1, [&] { world_->send(SIGHUP); }),
       saw("started work", 2),
       {"", [] { return true; }, [&] { world_->values[Metric::temp] = 70; }},
       saw("halted work GPU 0: 70 C is too hot", 1, [&] { world_->values[Metric::temp] = 50; }),
       saw("went-on work cool enough", 1, [&] { world_->values.erase(Metric::temp); }),
       saw("halted work GPU 0: its temperature is unknown")});
}

TEST_F(FillSessionTest, AReloadDoesNotWaitForTheNextSample) {
  options_.file = tree_.at("fill.toml");
  tree_.write("fill.toml", "");
  settings_.every = 1h;
  options_.reload = [&] { return settings_; };
  begin();
  int before = 0;
  const auto reload = [&] {
    before = world_->answered;
    world_->send(SIGHUP);
  };
  run({{"a sample", [&] { return world_->answered > 0; }, reload}, saw("reloaded"), {"another sample", [&] {
                                                                                       return world_->answered > before;
                                                                                     }}});
}

TEST_F(FillSessionTest, BadSettingsChangeNothing) {
  options_.file = tree_.at("fill.toml");
  tree_.write("fill.toml", "");
  options_.reload = [&] { return Result<FillSettings>(fail("nonsense")); };
  begin();
  run({saw("started work", 1, [&] { world_->send(SIGHUP); }),
       saw("not-reloaded: the settings stay as they were: nonsense")});
  EXPECT_EQ(told_.count("started"), 1U);
}

TEST_F(FillSessionTest, AFileThatChangesIsReadAgain) {
  options_.file = tree_.at("fill.toml");
  tree_.write("fill.toml", "");
  FillSettings other = settings_;
  other.fillers[0].name = "other";
  options_.reload = [&] { return other; };
  begin();
  run({saw("started work", 1, [&] { tree_.write("fill.toml", "changed"); }), saw("started other")});
  EXPECT_EQ(told_.count("reloaded"), 1U);
}

TEST_F(FillSessionTest, AFolderOfSettingsThatIsRemovedIsSaid) {
  fs::create_directories(tree_.at("etc"));
  options_.file = tree_.at("etc/fill.toml");
  tree_.write("etc/fill.toml", "");
  options_.reload = [&] { return settings_; };
  begin();
  run({saw("started work", 1, [&] { fs::remove_all(tree_.at("etc")); }),
       saw("reload: cannot watch the settings file")});
}

TEST_F(FillSessionTest, AHangupOfTheTerminalEndsAndUsr1LetsGoOfTheDriver) {
  begin();
  run({saw("started work", 1, [&] { world_->send(SIGUSR1); }),
       {"let go", [&] { return world_->release_driver == 1; }}});
}

TEST_F(FillSessionTest, AHangupFromTheKernelEndsItAlsoWhereThereIsAFileOfSettings) {
  options_.file = tree_.at("fill.toml");
  tree_.write("fill.toml", "");
  options_.reload = [&] { return settings_; };
  begin();
  ended_by_ = SIGHUP;
  run({saw("started work", 1, [&] { world_->send(SIGHUP, SI_KERNEL); })});
  EXPECT_EQ(told_.count("reloaded"), 0U);
}

TEST_F(FillSessionTest, AfterAFillerTheRuleHasToHoldForItsTimeAgain) {
  settings_.idle = *parse_rule("util < 5 for 1s");
  options_.file = tree_.at("fill.toml");
  tree_.write("fill.toml", "");
  FillSettings other = settings_;
  other.fillers[0].name = "other";
  options_.reload = [&] { return other; };
  begin();
  Instant ended{};
  Instant started{};
  run({saw("started work", 1, [&] { world_->send(SIGHUP); }),
       saw("ended work", 1, [&] { ended = world_->loop().now(); }),
       saw("started other", 1, [&] { started = world_->loop().now(); })});
  EXPECT_GE(started - ended, 900ms);
}

// ---- parking ------------------------------------------------------------------------

TEST_F(FillSessionTest, AYieldCommandThatFailsEndsTheFiller) {
  settings_.fillers[0].yield_command = "false";
  begin();
  run({saw("started work", 1, [&] { world_->used = true; }), saw("parking work"), saw("not-parked"),
       saw("ended work")});
}

TEST_F(FillSessionTest, AYieldCommandParksAndAResumeCommandTakesBack) {
  // It runs while its command does.
  settings_.fillers[0].yield_command =
      "n=0; while grep -q 'State:.T' /proc/$LULL_FILLER_PID/status && [ $n -lt 50 ]; do n=$((n+1)); sleep 0.1; done; "
      "[ $n -lt 50 ] && echo $LULL_FILLER $LULL_FILLER_PID > " +
      tree_.at("parked");
  settings_.fillers[0].resume_command = "touch " + tree_.at("resumed");
  begin();
  run({saw("started work", 1, [&] { world_->used = true; }),
       saw("parked work", 1, [&] { world_->used = false; }),
       saw("went-on work"),
       {"resumed", [&] { return fs::exists(tree_.at("resumed")); }}});
  EXPECT_EQ(*read_file(tree_.at("parked")), "work " + std::to_string(told_.pids.at(0)) + "\n");
}

// ---- failures -----------------------------------------------------------------------

TEST_F(FillSessionTest, ACommandThatCannotBeRunIsBackedOff) {
  settings_.fillers[0].command = {"/nowhere/at/all"};
  begin();
  run({saw("not-started work"), saw("backing-off work backing off for 10s after 1 failure")});
}

TEST_F(FillSessionTest, ALogThatCannotBeOpenedIsNamed) {
  settings_.fillers[0].log = tree_.at("nowhere/log");
  begin();
  run({saw("not-started work its log " + tree_.at("nowhere/log") + ": No such file or directory"),
       saw("backing-off work")});
}

TEST_F(FillSessionTest, ALogThatCannotBeWrittenIsSaidOnce) {
  settings_.fillers[0].log = "/dev/full";
  settings_.fillers[0].command = {"sh", "-c", "while :; do echo line; sleep 0.05; done"};
  begin();
  run({saw("log: work on GPU 0: its log /dev/full cannot be written: No space left on device; output is lost"),
       after(300ms)});
  EXPECT_EQ(told_.count("log:"), 1U);
  EXPECT_EQ(told_.count("ended"), 1U);
}

TEST_F(FillSessionTest, TheEnvironmentNamesItsGpus) {
  settings_.fillers[0].command = {"sh", "-c",
                                  "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $LULL_FILLER $LULL_GPUS > " +
                                      tree_.at("env.new") + "; mv " + tree_.at("env.new") + " " + tree_.at("env") +
                                      "; exec sleep 1000"};
  begin(2);
  run({{"environment", [&] { return fs::exists(tree_.at("env")); }}});
  EXPECT_EQ(*read_file(tree_.at("env")), "0,1 PCI_BUS_ID work 0,1\n");
}

// Two AMD GPUs: each has a render node, and both have /dev/kfd.
TEST_F(FillSessionTest, AnOpenOfARenderNodePausesItsGpuAndOneOfKfdPausesAllAmdGpus) {
  settings_.fillers[0].per_gpu = true;
  begin(2);
  const auto open_file_of = [&](const std::string& name) {
    (void)Fd(::open(tree_.at("dev/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  };
  for (unsigned i = 0; i < 2; ++i) {
    Device& device = world_->inventory->devices[i];
    device.vendor = Vendor::amd;
    device.minor.reset();
    device.render_minor = 128 + i;
    device.kfd_rank = i;
    tree_.write("dev/dri/renderD" + std::to_string(128 + i), "");
  }
  tree_.write("dev/kfd", "");
  run({saw("started work", 2, [&] { open_file_of("dri/renderD129"); }),
       saw("halted work GPU GPU-1: an unknown process has opened it"),
       saw("went-on work", 1,
           [&] {
             EXPECT_EQ(told_.count("halted"), 1U);
             open_file_of("kfd");
           }),
       saw("halted work", 3), saw("went-on work", 3)});
}

TEST_F(FillSessionTest, TheEnvironmentOfAnAmdGpuIsRocms) {
  ::setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  settings_.fillers[0].command = {"sh", "-c",
                                  "echo ${CUDA_VISIBLE_DEVICES-none} $ROCR_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES > " +
                                      tree_.at("env.new") + "; mv " + tree_.at("env.new") + " " + tree_.at("env") +
                                      "; exec sleep 1000"};
  begin(2);
  for (unsigned i = 0; i < 2; ++i) {
    Device& device = world_->inventory->devices[i];
    device.vendor = Vendor::amd;
    device.render_minor = 128 + i;
    device.kfd_rank = 1 - i;
    tree_.write("dev/dri/renderD" + std::to_string(128 + i), "");
  }
  run({{"environment", [&] { return fs::exists(tree_.at("env")); }}});
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(*read_file(tree_.at("env")), "none 1,0 0,1\n") << "their UUIDs are none of ROCm's";
}

TEST_F(FillSessionTest, AGpuOfAnotherVendorIsNotFilledUnlessItIsNamed) {
  settings_.fillers[0].per_gpu = true;
  begin(2);
  world_->inventory->devices[1].vendor = Vendor::intel;
  run({saw("gpus: GPU 1: left out"), saw("started work")});
  EXPECT_EQ(told_.count("started"), 1U);
}

TEST_F(FillSessionTest, AGpuWhoseOrderIsNotKnownIsNotFilled) {
  begin(1);
  world_->inventory->devices[0].vendor = Vendor::amd;
  world_->inventory->devices[0].render_minor = 128;
  tree_.write("dev/dri/renderD128", "");
  run({saw("not-started work")});
  EXPECT_NE(told_.all().find("ROCR_VISIBLE_DEVICES cannot name it"), std::string::npos) << told_.all();
}

TEST_F(FillSessionTest, WithoutEventsALookFindsWhoHasItOpen) {
  options_.best_way = OpenWay::none;
  begin();
  pid_t child = 0;
  run({saw("started work", 1,
           [&] {
             child = ::fork();
             if (child == 0) {
               ::prctl(PR_SET_PDEATHSIG, SIGKILL);
               (void)!::open(node(0).c_str(), O_RDONLY);
               for (;;) ::pause();
             }
           }),
       saw("halted work"), saw("went-on work", 1, [&] { ::kill(child, SIGKILL); })});
  EXPECT_EQ(told_.way, OpenWay::none);
}

}  // namespace
}  // namespace lull
