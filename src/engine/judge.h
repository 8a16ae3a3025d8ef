#pragma once
// A Judge watches the GPUs in its scope live: feed it snapshots in order of time, it
// answers whether its policy fires, and why. It reads no clock, opens no file and
// touches nothing, so `lull run`, `lull watch`, tests and Python share it as it is.
//
// GPUs are followed by UUID (by index where they have none): one that vanishes from
// the inventory is unknown until it is back. Job and machine signals (cpu, io, quiet,
// user_idle) are columns like any other: the caller sets them in every reading.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/history.h"
#include "gpu/snapshot.h"
#include "rule/policy.h"
#include "rule/reason.h"

namespace lull {

struct JudgeOptions {
  Duration interval = std::chrono::seconds(1);
  std::optional<Duration> max_gap = {};  // else longest_gap()
  WhenMissing missing = WhenMissing::unknown;
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
  Result<Verdict> observe(const Snapshot& snapshot);

  // Other GPUs from now on: every streak begins anew, what was armed stays armed.
  void set_scope(std::vector<Device> scope);
  // Every streak begins anew, what was armed stays armed: what lies between was not watched.
  void begin_anew();
  const std::vector<Device>& scope() const { return scope_; }

  const Policy& policy() const { return policy_; }
  const Verdict& verdict() const { return verdict_; }  // the newest
  bool armed() const { return evaluator_.armed(); }
  Progress arm_progress() const { return evaluator_.arm_progress(); }

  // Which GPU lacks which signal of the rules now, why, and what would do instead.
  std::vector<MissingSignal> missing() const;
  // Why the newest verdict is what it is; to_words(…) in rule/reason.h says it.
  Explanation explain() const;

 private:
  static constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);
  void build();
  void locate(const Snapshot& snapshot);
  void fill(const Snapshot& snapshot);
  void remember();

  Policy policy_;
  JudgeOptions options_;
  std::vector<Device> scope_;
  PolicyEvaluator evaluator_;
  std::vector<Metric> signals_;                 // of both rules
  std::vector<Track> tracks_;                   // of one GPU
  std::vector<std::size_t> places_;             // of each GPU: index of its reading, or kNowhere
  std::shared_ptr<const Inventory> inventory_;  // that the places were found in

  // The newest sample. Vectors, so that the blocks' views of them survive a move.
  std::vector<Instant> at_;
  bool begun_ = false;
  std::vector<float> values_;           // GPU by GPU, one for each of signals_
  std::vector<Absence> absences_;       // likewise
  std::vector<float> coverages_;        // likewise, where not covered: when that began, so that what is said stays
  std::vector<std::uint32_t> present_;  // of each GPU that lacks something: what it does give
  std::vector<Block> blocks_;
  PolicyAnswers answers_{};
  WallTime wall_{};
  DriverState driver_;
  Verdict verdict_;
  History history_;
  std::vector<float> now_;  // one for each track of each GPU
};

}  // namespace lull
