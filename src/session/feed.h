#pragma once
// The Feed brings samples to a watching command: asks the sampler on a grid of time,
// takes what comes, finds which GPUs are in scope, and adds the use of terminals if a
// rule asks for it. A driver that hangs delays nothing.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "act/executor.h"
#include "base/exit_status.h"
#include "gpu/snapshot.h"
#include "jobs/scope.h"
#include "loop/loop.h"
#include "rule/policy.h"
#include "session/own_signals.h"
#include "session/sink.h"
#include "session/world.h"

namespace lull {

// How long a confirmation is waited for: two periods of the slowest driver, which may tell of them late.
inline constexpr Duration kLongestConfirmation = std::chrono::seconds(4);

// What a person should know of the sampling itself: that cards are slow to wake, that reading takes long. Each once.
class SamplingCosts {
 public:
  struct Note {
    std::string_view event;
    std::string text;
  };
  // `handled`: how long the sample before it took us, once it was read.
  std::vector<Note> see(const Snapshot& snapshot, Duration every, Duration handled = {});

 private:
  unsigned slow_ = 0;  // samples in a row
  bool slow_said_ = false;
  bool attach_said_ = false;
};

// What every watching session is told.
struct CommonSettings {
  std::string gpus;
  Duration delay{};
  Duration every = std::chrono::seconds(5);
  WhenMissing missing = WhenMissing::unknown;
  std::vector<SignalSource> signals = {};  // of the user's own
  bool require_gpu = false;
  bool dry_run = false;
};

// Settings of the actions.
struct ActingSettings {
  ActionOptions how;
  std::string evidence = {};  // a folder; empty: none is written
  Executor::Retries retries;
  bool controlled = true;  // listens to `lull watch --cancel`, and to `lull keep` where there are several subjects
};

struct FeedOptions {
  Policy policy;  // says which signals to read
  Duration every{};
  std::string gpus;
  std::string gpus_option = "--gpus";      // what that is called
  bool absent_left_out = false;            // of these
  bool of_job = false;                     // our environment is the job's: what it says about GPUs counts
  bool everything = false;                 // read all signals, for evidence
  bool holders = false;                    // lists of processes are wanted, whoever's they are
  std::vector<Metric> more_signals = {};   // to read beside those of the policy
  std::optional<Rule> warn_by = {};        // judged beside the policy
  std::vector<SignalSource> signals = {};  // of the user's own: those that a rule looks at are asked, with
  bool all_signals = false;                // this all
  JobGpus::IsOurs is_ours = nullptr;
  bool job_is_new = false;           // as in ScopeOptions
  bool without_integrated = false;   // as there
  bool all_without_context = false;  // as there
};

class Feed {
 public:
  Feed(World& world, FeedOptions options);
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  std::function<void(std::uint64_t tick)> on_tick;
  std::function<void(const Snapshot& snapshot, const Scope& scope)> on_sample;
  std::function<void(std::string_view event, const std::string& text)> on_note;

  // Waits for one sample (with the sampler's own limit) before anything is watched. Why
  // there is no GPU, or nothing; what --gpus got wrong is in trouble().
  // Nothing also where no answer came within the limit; then what is wrong shows at the first sample.
  std::optional<std::string> look(Duration limit = Duration::max());
  const std::string& trouble() const { return scope_.trouble(); }
  // What is wrong with the scope, and what else a person should know of it; each once.
  void log_scope_trouble(Sink& sink);
  // Of the job's processes with a context: one that is stopped.
  std::optional<ProcessEntry> stopped(bool traced) const { return scope_.contexts().stopped(traced); }
  // One of those, or of these, is in a cgroup that is frozen.
  bool frozen(std::vector<pid_t> others = {}) const { return scope_.contexts().frozen(std::move(others)); }
  // The job's `job_util` at the newest sample, where a rule asks for it.
  void add_share(Facts& job) const {
    if (wants_shares_ && scope_now_ != nullptr) scope_.contexts().add_share(job, scope_now_->devices);
  }
  void forget_job() { scope_.forget_job(); }
  void set_environment(JobEnvironment environment) { scope_.set_environment(std::move(environment)); }

  // Ticks now and then every interval from now, until stop(). Again: a new grid.
  void begin();
  void stop();
  void request() { ask(false); }  // one more, out of turn
  bool is_fresh() const;          // the newest sample is of now: neither we nor the machine slept since
  Duration age() const { return world_.clock().now() - newest().at; }  // of the newest sample
  // Calls back once a sample that was asked for from now on has been seen by on_sample, with process lists of now: what
  // cannot be undone is done on what is, not on what was. With `covering` its newest data are all from now on, a whole
  // sample period of the driver's; where the driver has none within kLongestConfirmation, covers() is false.
  // There may be many at once, each from when it was asked for.
  void confirm(std::function<void()> then, bool covering = true);
  bool confirming() const { return !waiting_.empty(); }  // a sample to come is for that
  bool covers() const { return covers_; }                // the sample that confirm() has called back for does
  bool in_turn() const { return newest_in_turn_; }       // the newest sample is one of the grid
  // Which GPUs are the job's goes by lists of processes, and those of the newest sample may be from one before it.
  bool lists_may_be_old() const { return scope_.needs_processes() && !newest_lists_; }
  // The rule may fire with the next sample: that one is to bring lists of now, where that is not too often.
  void may_fire_next(bool may);
  void release_driver() { sampler_->release_driver(); }  // of the driver, for a minute
  const Snapshot& newest() const { return sampler_->newest(); }
  const Facts& machine() const { return machine_; }  // at the newest sample

 private:
  void start_sampler();
  void take(const Snapshot& snapshot);
  void ask(bool fresh_lists);
  void follow_first(Instant at);
  template <class Do>
  void each_reading(Do act) const;  // of the scope, that is one
  // Who waits for a confirmation.
  struct Waiting {
    std::function<void()> then;
    Instant from{};
    Instant asked{};  // the last time in vain
    bool covering = true;
    bool covered = false;
  };
  bool has_covered(const Waiting& one) const;
  Instant due(const Waiting& one) const;
  Duration longest_confirmation() const;
  void make_own_signals();
  void ask_to_confirm();
  void log_card_notes(const Scope& scope);
  void call_back();

  World& world_;
  FeedOptions options_;
  ScopeFinder scope_;
  bool wants_people_ = false;
  bool wants_shares_ = false;     // of processes: asked of the driver
  bool confirms_shares_ = false;  // and by a rule
  bool confirms_openers_ = false;
  std::unique_ptr<SampleSource> sampler_;
  Ticker ticker_;
  Facts machine_;
  std::optional<OwnSignals> own_;
  std::vector<Waiting> waiting_;
  std::vector<Waiting> confirmed_;  // to be called back
  bool covers_ = false;
  Timer confirm_timer_{world_.loop()};
  const Scope* scope_now_ = nullptr;  // of the newest sample
  bool in_turn_ = false;              // the grid has asked for a sample
  bool newest_in_turn_ = false;       // for the newest one
  std::optional<Instant> began_;      // and no sample has come since
  bool under_way_ = false;            // a sample that was asked for
  bool asked_lists_ = false;          // and is to bring lists of now
  bool newest_lists_ = false;         // the newest one did
  bool fresh_lists_next_ = false;     // the next one is to
  SamplingCosts costs_;
  Duration handled_{};  // how long the newest sample took us
  bool desktop_said_ = false;
  std::string logged_trouble_;
  std::set<std::string> card_notes_;  // that were said
};

// Before anything is watched: that a GPU was asked for and none can be read, or what --gpus got wrong.
struct WithoutGpus {
  bool require_gpu = false;
  bool named = false;                // by --gpus
  Duration limit = Duration::max();  // for the driver, where one is not required
  int status = kExitFailure;         // where one is
  bool complains = false;            // of a wrong --gpus, as of a wrong word; else the sink is told
};
std::optional<SessionEnd> refuse_without_gpus(Feed& feed, Sink& sink, const WithoutGpus& asked);

// On a GPU that drives a screen drawing counts as work, since the work cannot be attributed: a rule that asks for
// next to none may never hold. For a person, with a rule that allows for it; empty: that is not so here.
std::string desktop_note(const Rule& idle, const Snapshot& snapshot, const Scope& scope);

// Why what fired is not done: "not confirmed: GPU 0 at 100 % now". `covered`: there were data of since the firing.
std::string not_confirmed_text(const Snapshot& snapshot, const std::vector<Device>& scope, const Rule& rule,
                               bool covered);

// "waking the GPUs took 1.5s: …", or nothing where it was quick.
std::string persistence_hint(const Snapshot& snapshot);

// Whether the policy's rules look at any of these.
bool policy_uses(const Policy& policy, std::initializer_list<Metric> metrics);
bool policy_uses(const Policy& policy, Of of);  // any signal of these

}  // namespace lull
