#pragma once
// Job spans tell what ending would really do. A job span is the time in which one job has a
// GPU: it begins when a job has it and ends when the trace shows another job on it,
// no job, or no more memory in use than the GPU has when empty (EmptyLevels): then it was released. A
// GPU of which nothing of that is recorded has one span, from its first sample to its
// last. Each sample belongs to one span, or to none while no job has the GPU.
//
// A job is told by its owner, its processes, or by memory above what an empty card has. Utilisation tells of one only
// where none of that is recorded: a desktop flickers. A job span that memory alone tells of is a job if it lasts as
// long as the shortest rule asks.
//
// The first firing in a span ends it. What the job did later in that span is work lost. The GPU is free until the job
// would have worked again, was released, or the recording ended.
//
// A job worked at a sample if one of its GPUs was used 1 % or more (kWorking), whatever the rule says; of a rule that
// looks for hangs, a sample at which it may hold does not count as work. Where no utilisation is recorded, a job worked
// at a sample at which the rule definitely does not hold. A value stands for the time since the sample before it,
// unless a gap lies there.
//
// A job was followed while it was recorded: gaps do not count. A gap of more than kShortGap before it worked again also
// ends what is known of when it did (Survival): it may have worked meanwhile.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gpu/block.h"
#include "replay/survival.h"
#include "rule/policy.h"
#include "trace/holders.h"

namespace lull::replay {

inline constexpr float kWorking = 1;                            // % of utilisation
inline constexpr Duration kShortGap = std::chrono::minutes(1);  // a hiccup of the recorder

// How much was done in how much time.
struct Work {
  double util_seconds = 0;  // seconds at 100 %, of samples at which it worked
  double seen_seconds = 0;  // of each GPU
  Duration missed{};        // in gaps
  Work& operator+=(const Work& more) {
    util_seconds += more.util_seconds;
    seen_seconds += more.seen_seconds;
    missed += more.missed;
    return *this;
  }
};

// Samples of a block that belong together.
struct Piece {
  std::size_t from = 0;
  std::size_t to = 0;             // behind the last
  bool held = true;               // false: no job has the GPU
  bool begins = false;            // of a span: its first samples
  float holder = kUnknownSample;  // who had it in the end, where that was told (KnownHolders)
  bool told = true;               // false: by nothing but memory in use, since the span began
  Work work = {};
};

// What each GPU has in use without a job: on a desktop the least that was seen of it, and half as much again, for
// drawing. A card that never shows less than kMostDrawn has a job all the time.
class EmptyLevels {
 public:
  static constexpr float kMostDrawn = 512 << 20;

  void restart() { least_.clear(); }
  void see(std::size_t gpu, const Block& block);
  // Bytes: more is a job's. As known from the reading before; of an empty card (kEmptyCard) where there was none.
  float limit(std::size_t gpu) const;
  // After a reading: it found the limits that it used. Else they are those that it found: read again.
  bool settle();

 private:
  std::vector<float> least_;  // of this reading; infinite: not known
  std::vector<float> limits_;
};

// Cuts the samples of one GPU, or of several that are judged together, into job spans. Together, a span lasts while
// a job has any of them.
class SpanFinder {
 public:
  explicit SpanFinder(std::vector<float> limits) : limits_(std::move(limits)) {}
  void feed(std::span<const Block> scope, trace::KnownHolders& holders, std::vector<Piece>& out);

  bool alive() const { return alive_; }

 private:
  enum class Having : std::uint8_t { nobody, unknown, memory, somebody };  // the order is that of together
  static Having having(const Block& block, std::size_t i, float limit);
  void see(Having having, float holder, trace::KnownHolders& holders, std::size_t i, std::vector<Piece>& out);

  std::vector<float> limits_;  // EmptyLevels, of each GPU
  bool any_ = false;           // a sample has been seen
  bool alive_ = false;
  bool told_ = false;              // of this span: by more than memory in use
  float row_ = kUnknownSample;     // who has it by the last row that said so
  float holder_ = kUnknownSample;  // with what earlier rows of this span said
};

// Adds up what the samples of a scope stand for.
class Accounts {
 public:
  explicit Accounts(std::int64_t longest) : longest_(longest) {}
  void set_longest(std::int64_t longest) { longest_ = longest; }

  // The samples from one to another of the scope at hand.
  Work sum(std::span<const Block> scope, std::size_t from, std::size_t to) const;
  // The moment at which the first gap of more than kShortGap before one of these samples begins.
  std::optional<Instant> long_gap(std::span<const Instant> at, std::size_t from, std::size_t to) const;
  // The scope at hand is dealt with: its last sample lies before the next.
  void pass(std::span<const Block> scope) { last_ = scope[0].at.back(); }

 private:
  std::int64_t longest_;  // more is a gap
  std::optional<Instant> last_;
};

// What tells that a job worked, under a policy.
enum class WorkedBy : std::uint8_t {
  utilisation,
  utilisation_without_hang,  // and the rule, which looks for hangs, definitely does not hold
  rule,                      // no utilisation is recorded
};
WorkedBy worked_by(const Rule& rule, bool has_utilisation);

// The samples of a span as one policy sees them. A sample is counted as in the policy's answers; `offset` more is its
// place in the blocks.
struct Followed {
  std::span<const Block> scope;
  const Accounts& accounts;
  const Answers& condition;
  std::size_t offset = 0;
  WorkedBy by = WorkedBy::utilisation;
  const Piece* piece = nullptr;  // whose sum is known

  bool worked(std::size_t sample) const;
  std::size_t first_worked(std::size_t from, std::size_t to) const;  // `to`: at none
  Work work(std::size_t from, std::size_t to) const;
  std::optional<Instant> long_gap(std::size_t from, std::size_t to) const {
    return accounts.long_gap(scope[0].at, from + offset, to + offset);
  }
};

// What became of the span that a policy watches.
struct Fate {
  bool left_out = false;  // for its user
  Instant began{};        // the span
  double work_seconds = 0;
  bool ended = false;
  Instant at{};                       // when it was ended
  std::optional<Instant> back;        // when it would have worked again
  double lost_seconds = 0;            // of work since then, at 100 %
  double freed_seconds = 0;           // of GPUs, from the end until then
  Instant last{};                     // its newest sample
  Duration missed{};                  // in gaps, from the end to the newest sample
  std::optional<Instant> lost_sight;  // where a long gap began between the end and its return
  float holder = kUnknownSample;
  bool told = false;  // by more than memory in use

  Duration followed() const { return last - at - missed; }
  // The samples from one to another of the answers.
  void see(const PolicyAnswers& answers, std::span<const Instant> at_of, std::size_t from, std::size_t to,
           const Followed& followed);

  static std::size_t next_bit(const Mask& mask, std::size_t from, std::size_t to);
};

// Which GPUs each job of a trace has, as time goes on: what `--per job` judges. A job
// is told from others by the trace's column for it, else by its processes, else by its
// user, and never reaches over several hosts unless a column says so.
class JobFinder {
 public:
  static constexpr std::size_t kNoJob = static_cast<std::size_t>(-1);

  JobFinder(std::size_t gpus, const std::vector<std::string>& host_of)
      : host_of_(host_of), now_(gpus, kUnknownSample), known_(gpus, kUnknownSample), job_(gpus, kNoJob) {}

  struct Job {
    float holder = kUnknownSample;
    std::vector<std::size_t> gpus;  // that it has now; none: it is over
    bool changed = false;           // by the last step
  };

  // The first sample from one on at which another job has a GPU than before; as many as there are: none.
  std::size_t next_change(std::span<const Block> gpus, std::size_t from) const;
  // Goes on by this sample. Jobs that it changed are marked.
  void step(std::span<const Block> gpus, std::size_t sample, trace::KnownHolders& holders);

  std::vector<Job>& jobs() { return jobs_; }

 private:
  bool told(float holder) const { return holder >= trace::kNobody; }
  std::size_t find(std::size_t gpu, float holder, const trace::KnownHolders& holders);
  void leave(std::size_t gpu);

  const std::vector<std::string>& host_of_;
  std::vector<float> now_;    // of each GPU, as last told
  std::vector<float> known_;  // the same, with what earlier rows of the same job said
  std::vector<std::size_t> job_;
  std::vector<Job> jobs_;
};

}  // namespace lull::replay
