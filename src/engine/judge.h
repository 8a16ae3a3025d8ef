#pragma once
// A Judge watches the GPUs in its scope live: feed it snapshots in order of time, it
// answers whether its policy fires, and why. It reads no clock, opens no file and
// touches nothing, so `lull run`, `lull watch`, tests and Python share it as it is.
//
// GPUs are followed by their DeviceId: one that vanishes from the inventory is unknown
// until it is back. Signals of the job and of the machine (cpu, io, quiet, user_idle) come
// beside the snapshot; inside they are columns like any other.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/decider.h"
#include "gpu/metric.h"
#include "gpu/snapshot.h"
#include "rule/reason.h"
#include "rule/rule.h"
#include "rule/window.h"

namespace lull {

// One line of the story: a signal as the rule compares it.
struct Track {
  Metric metric = Metric::util;
  bool share = false;         // in % of its whole
  Duration window{};          // not zero: the mean over so long
  bool high_is_worse = true;  // the rule wants it low

  float first = kUnknownSample;
  float last = kUnknownSample;
  float worst = kUnknownSample;
  Instant worst_at{};
};

// The signals that a rule compares, each once, and which way each of them is worse.
std::vector<Track> tracks_of(const Rule& rule);

// What a verdict rests on, kept short: for each signal of each GPU the first value of the window, the newest, the worst
// between, and a trace of at most 64 cells. When the cells are full, neighbours are put together, so a week takes no
// more memory than a minute.
class History {
 public:
  static constexpr std::size_t kCells = 64;

  History() = default;
  explicit History(std::vector<Track> tracks) : tracks_(std::move(tracks)), cells_(tracks_.size() * kCells) {}

  void restart() { samples_ = 0; }
  // `values`: one for each track, NaN where unknown.
  void add(Instant at, const std::vector<float>& values);

  const std::vector<Track>& tracks() const { return tracks_; }
  std::vector<float> trace(std::size_t track) const;
  std::uint64_t samples() const { return samples_; }
  Instant begin() const { return begin_; }

 private:
  void halve();

  std::vector<Track> tracks_;
  std::vector<float> cells_;  // kCells of each track
  std::size_t used_ = 0;
  std::uint64_t per_cell_ = 1;
  std::uint64_t in_last_ = 0;
  std::uint64_t samples_ = 0;
  Instant begin_{};
};

struct JudgeOptions {
  Duration interval = std::chrono::seconds(1);
  std::optional<Duration> max_gap = {};  // else longest_gap()
  WhenMissing missing = WhenMissing::unknown;
  bool had_samples = false;  // before the first that is judged, as during a delay: it may fire alone
};

struct Verdict {
  Truth truth = Truth::unknown;      // of the idle rule
  Truth condition = Truth::unknown;  // of the same without its outermost `for`
  bool armed = true;                 // always, where there is no arming rule
  bool fires = false;                // act now; once a stretch
  Duration held{};                   // the streak so far
  std::uint64_t held_samples = 0;
  Span needed;  // what the outermost `for` asks; 0s where there is none
};

class Judge {
 public:
  Judge(Policy policy, std::vector<Device> scope, JudgeOptions options);
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;
  Judge(Judge&&) = default;
  Judge& operator=(Judge&&) = default;
  ~Judge() = default;

  // Allocates nothing. Refused: time that goes backwards (the state stays as it was).
  // `counts`: as Evaluator::count().
  Result<Verdict> observe(const Snapshot& snapshot, const Facts& job = Facts(), const Facts& machine = Facts(),
                          bool counts = true);

  // Other GPUs from now on: every streak begins anew, what was armed stays armed.
  void set_scope(std::vector<Device> scope);
  // Every streak begins anew, what was armed stays armed: what lies between was not watched.
  void begin_anew();
  const std::vector<Device>& scope() const { return scope_; }

  const Policy& policy() const { return policy_; }
  const Verdict& verdict() const { return verdict_; }  // the newest
  bool armed() const { return evaluator().armed(); }
  Progress arm_progress() const { return evaluator().arm_progress(); }

  // Which GPU lacks which signal of the rules now, why, and what would do instead.
  std::vector<MissingSignal> missing() const;
  // What the newest data alone say of the condition, without any `for` and any mean over time (Reading::newest): yes
  // only if it holds for the lowest and the highest of them, no if it fails for some.
  Truth newest() const;
  // Why the newest verdict is what it is, with the GPUs for which the rule really holds.
  Explanation explain() const;

 private:
  static constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);
  const PolicyEvaluator& evaluator() const { return decider_.evaluator(); }
  void build();
  void locate(const Snapshot& snapshot);
  void fill(const Snapshot& snapshot, const Facts& job, const Facts& machine);
  void fill_one(std::size_t lane, std::size_t signal, const Facts* from, Absence gone, const Reading* reading);
  Result<> ask_each_alone();
  void remember(bool gap);
  Truth judge_newest() const;
  float track_value(std::size_t lane, std::size_t track, bool gap);
  std::vector<std::size_t> holding() const;
  Story story(std::size_t lane, std::size_t track) const;

  Policy policy_;
  JudgeOptions options_;
  std::vector<Device> scope_;
  // What the rule looks at side by side: the GPUs in scope, or just the job where it looks at no GPU.
  std::size_t lanes_ = 0;
  bool of_gpus_ = true;
  Decider decider_;
  // The rule on each GPU by itself, where "it holds" does not mean "on all of them".
  struct Alone {
    Evaluator evaluator;
    Truth rule = Truth::unknown;
    Truth condition = Truth::unknown;
  };
  Rule rule_alone_;
  bool asks_alone_ = false;
  std::vector<Alone> alone_;
  std::vector<Metric> signals_;                 // of both rules
  std::vector<Track> tracks_;                   // of one GPU
  std::vector<std::size_t> places_;             // of each GPU: index of its reading, or kNowhere
  std::shared_ptr<const Inventory> inventory_;  // that the places were found in

  // The newest sample. Vectors, so that the blocks' views of them survive a move.
  std::vector<Instant> at_;
  bool begun_ = false;
  std::vector<float> values_;           // lane by lane, one for each of signals_
  std::vector<float> lowest_;           // likewise, of the newest data alone
  std::vector<float> highest_;          // likewise
  std::vector<Absence> absences_;       // likewise
  std::vector<float> coverages_;        // likewise, where not covered: when that began, so that what is said stays
  std::vector<std::uint64_t> present_;  // of each GPU that lacks something: what it does give
  std::vector<Block> blocks_;
  PolicyAnswers answers_{};
  WallTime wall_{};
  DriverState driver_;
  Verdict verdict_;
  mutable std::optional<Truth> newest_;  // where it was asked for since the newest sample
  History history_;
  std::vector<float> now_;                          // one for each track of each GPU
  std::vector<std::optional<WindowMean>> windows_;  // likewise; none if it is not a mean
  Answers alone_rule_;                              // scratch
  Answers alone_condition_;
};

}  // namespace lull
