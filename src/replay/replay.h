#pragma once
// What a rule would have done to recorded telemetry. Definitions (lull-replay(1) has
// them for people):
//
// What ending by the rule would have done to the jobs is in job_spans.h. The older account, of stretches and not of
// jobs:
//
//   stretch    a maximal run of yes without a gap, of the rule without its outermost
//              `for`; it ends at the first sample that is not yes, or at its own last
//              sample where a gap or the end of the trace cut it
//   fires      when it has lasted as long as the rule asks, once a stretch
//   reclaimed  from the firing to the end of the stretch
//   came back  the stretch ended in a definite no
//   regretted  came back within --regret of the firing
//   gap        an interval longer than longest_gap() of the GPU's median interval (or as given)
//   seen       the sum of the intervals that are not gaps
//
// Several GPUs that are judged as one (Per) are so on common ticks; a stretch then
// counts once for each GPU in hours, and once in firings.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "replay/intervals.h"
#include "replay/job_spans.h"
#include "replay/picture.h"
#include "replay/survey.h"
#include "replay/survival.h"
#include "rule/evaluator.h"
#include "rule/policy.h"
#include "rule/stretch.h"
#include "trace/reader.h"

namespace lull::replay {

// A sweep is the same rule with other numbers in it: every combination of the
// durations and limits that --sweep names. They are all judged in one reading.

// One --sweep: "for=5m,15m,1h" or "util=1,5,10".
struct Axis {
  std::string name;  // "for", or a signal
  std::vector<std::string> values;
};
Result<Axis> parse_axis(std::string_view text);

struct Combination {
  std::vector<std::size_t> choice;  // for each axis, which of its values
  Policy policy;
};

inline constexpr std::size_t kMostCombinations = 1000;

// In the order of a table: the last axis changes fastest. `for` is sorted from short to long.
Result<std::vector<Combination>> combine(const Policy& base, std::vector<Axis>& axes);

// A rule without a `for` that is swept over one starts from the first value that was named.
Result<> start_from_first(Policy& policy, const std::vector<Axis>& axes);

// What is judged by itself, and would be ended by itself.
enum class Per : std::uint8_t { gpu, job, host, all };
inline constexpr std::array<std::string_view, 4> kPerNames = {"gpu", "job", "host", "all"};

struct ReplayOptions : TracesToRead {  // with times and `every`: as a live command with this interval would judge
  Policy policy;
  std::vector<Axis> axes;
  Per per = Per::gpu;
  std::vector<std::string> except_users;  // whose jobs are left out, with those of users that the trace does not name
  Duration regret = std::chrono::minutes(10);
  double lose = 0.01;  // at most this share of the work may a recommended policy lose
  Duration delay{};    // nothing is judged before, from the first sample on
  std::size_t memory = std::size_t{512} << 20;
  WhenMissing missing = WhenMissing::unknown;
  std::size_t picture_columns = 0;     // > 0: keep what an HTML page draws
  std::size_t most_firings = 500'000;  // that are kept one by one; all are counted
};

inline constexpr std::size_t kAllGpus = static_cast<std::size_t>(-1);

struct Firing {
  std::size_t gpu = kAllGpus;
  Instant at{};
  Duration idle{};   // how long it had been idle
  Duration after{};  // how long it stayed idle
  StretchEnd ending = StretchEnd::end;
  bool regretted = false;
};

// A job span that a rule would have ended.
struct End {
  std::size_t gpu = kAllGpus;
  float holder = kUnknownSample;  // in ReplayResult::trace.holders; NaN: not told
  Instant at{};
  std::optional<Instant> back;  // when it worked again
  Leaving how = Leaving::cut_off;
  double lost_seconds = 0;   // of work, at 100 %
  double freed_seconds = 0;  // of GPUs, until it worked again, was released, or the recording ended
  Instant last{};            // the job's newest sample
  Duration followed{};       // recorded from the end to the job's last sample, without gaps
};

struct Totals {
  std::uint64_t jobs = 0;          // job spans
  std::uint64_t ended = 0;         // by the first firing in each
  std::uint64_t worked_again = 0;  // of those
  double work_seconds = 0;         // of all that was seen, at 100 %
  double lost_seconds = 0;         // of that, after an end
  std::optional<double> lost_low;  // 95 % interval of lost_ratio()
  std::optional<double> lost_high;
  double freed_until_return = 0;         // seconds of GPUs
  double freed_until_release = 0;        // likewise
  double freed_until_recording_end = 0;  // likewise
  Survival back;                         // how long after the end it worked again
  std::vector<float> followed;           // seconds recorded after the end, of each job not seen to work again
  std::uint64_t firings = 0;
  std::uint64_t came_back = 0;
  std::uint64_t regretted = 0;
  std::uint64_t stretches = 0;
  double idle_seconds = 0;  // of GPUs
  double reclaimed_seconds = 0;

  Totals& operator+=(const Totals& more);
  void add_end(const Fate& fate, Leaving how);
  void set_interval(const std::optional<Interval>& interval);
  std::optional<double> lost_ratio() const;  // nothing where no work was seen
  double freed_seconds() const { return freed_until_return + freed_until_release + freed_until_recording_end; }
  std::uint64_t not_seen_again() const { return ended - worked_again; }
  std::optional<double> follow_up_median() const;  // seconds; nothing where every job worked again
};

struct GpuResult {
  std::string label;
  std::string uuid;
  std::uint64_t samples = 0;
  Duration seen{};
  Duration missed{};      // in gaps
  Duration gap{};         // what is longer is one
  float empty_bytes = 0;  // with no more memory in use it has no job
  Totals totals;          // of the rule as given; Per::gpu only
};

struct SweepRow {
  std::vector<std::string> values;  // one for each axis
  std::string rule;
  Totals totals;
  std::optional<Span> span = {};
  bool recommended = false;
  bool closest = false;        // where each may lose too much: this one least
  std::vector<End> ends = {};  // until one of all rows is the main one
};

struct Recommendation {
  std::string value;  // "2h"
  std::string rule;
  bool firm = false;
  std::string reason;
};

// What was judged by itself, where that is neither a GPU nor all of them.
struct Together {
  std::string label;
  std::vector<std::size_t> gpus;
};

struct ReplayResult {
  std::string name;  // of the trace's files, in short
  std::string rule;
  std::string arm;
  Per per = Per::gpu;
  Duration regret{};
  double lose = 0;
  std::optional<Span> span;  // of the rule as given
  bool tells_work = false;   // utilisation was recorded
  bool means = false;        // as means; else as readings of a moment
  std::vector<std::string> except_users;
  std::uint64_t left_out = 0;  // jobs of these users, and of users not told
  SamplingIntervals intervals;
  Totals totals;
  std::vector<Firing> firings;     // by time
  std::vector<GpuResult> gpus;     // in the order of the trace
  std::vector<End> ends;           // by time; of ends_rule
  std::string ends_rule;           // of the main row, else the rule as given
  std::vector<Together> subjects;  // Per::job and Per::host: what `gpu` of a firing counts
  double seen_seconds = 0;
  double gap_seconds = 0;
  std::uint64_t samples = 0;
  Instant first{};
  Instant last{};
  std::vector<Axis> axes;
  std::vector<SweepRow> sweep;
  std::optional<Recommendation> recommendation;
  std::string recommendation_missing;  // why there is none
  bool loses_too_much = false;         // that is why
  trace::TraceReport trace;
  Picture picture;

  // The recommended row, else the closest one: what is said first and in full. Nothing: the rule as given is.
  const SweepRow* main_row() const;
  const Totals& main_totals() const;
};

Result<ReplayResult> replay(ReplayOptions options);

}  // namespace lull::replay
