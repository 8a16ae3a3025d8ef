#pragma once
// What became of the GPU-hours of a trace, added up by who had them: busy, held but
// idle, hung at 100 % without working, or free; and the energy. `lull report` shows
// it. Definitions (lull-report(1) has them for people):
//
//   busy   a job had the GPU, and it was neither idle nor hung
//   idle   a job had it, and the idle rule held (the whole stretch, once it has lasted as long as the rule asks)
//   hung   likewise by the rule for hangs
//   free   no job had it (job_spans.h)
//   not judged   a job had it and it was not idle; whether it was hung is unknown, because a signal is missing
//   not known   whether it was idle is unknown
//
// Time is the sum of the intervals between samples that are not gaps; a sample stands
// for the time since the one before it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "replay/survey.h"
#include "rule/rule.h"
#include "trace/reader.h"

namespace lull::replay {

// By which `lull report` tells idle and hung, unless told otherwise. The latter is that of `lull run`, of one GPU
// alone.
inline constexpr const char* kReportIdle = "util < 1 for 5m";
inline constexpr const char* kReportHung =
    "util >= 95 and (learned >= 1m and effort < 45 or learned < 1m and power < 35%) for 5m";

struct ReportOptions : TracesToRead {
  Rule idle;
  Rule hung;
  std::size_t memory = std::size_t{256} << 20;
  std::size_t most_stretches = 50;  // of those held idle, the longest
  bool by_hour = false;
};

// How each hour of a GPU was used, for the History of `lull serve` and `lull report --by-hour`, and the longest times
// in which it was held idle.

// Seconds of one hour. What is missing to 3600 was not seen.
struct HourOfUse {
  float busy = 0;  // also where hangs are not judged
  float idle = 0;
  float hung = 0;
  float free = 0;
  float unknown = 0;
  int person = -1;  // who had it longest, in UseByHour::people; -1: none, or unknown

  float seen() const { return busy + idle + hung + free + unknown; }
};

struct UseByHour {
  std::int64_t first = 0;  // hours since 1970
  std::size_t count = 0;
  std::vector<std::string> people;
  std::vector<std::vector<HourOfUse>> gpus;  // each of `count`, in the order of the trace
};

// Held idle without a break.
struct IdleStretch {
  std::size_t gpu = 0;
  float holder = -1;  // in TraceReport::holders; kNobody or less: not told
  Instant from{};
  Instant to{};
  bool open = false;  // until the end of the recording
  Duration length() const { return to - from; }
};

// The hours of one GPU while it is read: times come in order, each with its use and who had it.
class HoursOfGpu {
 public:
  static constexpr std::size_t kMost = std::size_t{24} * 400;  // what is later is left out
  using Part = float HourOfUse::*;

  void add(Instant from, Instant to, Part part, std::optional<float> holder);
  void finish() { flush(); }

  std::int64_t first() const { return first_; }
  const std::vector<HourOfUse>& hours() const { return hours_; }
  // Seconds, by hour (from first() on) and holder.
  const std::map<std::pair<std::size_t, float>, float>& holders() const { return holders_; }

 private:
  struct Run {
    Instant from;
    Instant to;
    Part part;
    std::optional<float> holder;
  };
  void flush();

  std::optional<Run> run_;
  std::int64_t first_ = 0;
  std::vector<HourOfUse> hours_;
  std::map<std::pair<std::size_t, float>, float> holders_;
};

// The longest of many.
class LongestStretches {
 public:
  explicit LongestStretches(std::size_t most) : most_(most) {}
  void add(const IdleStretch& one);
  std::vector<IdleStretch> take();  // the longest first
  void clear() { all_.clear(); }

 private:
  void prune(std::size_t to);
  std::size_t most_;
  std::vector<IdleStretch> all_;
};

// What is held idle for less can hardly be recovered: so the hours in longer stretches are told too.
struct StretchLimit {
  std::string_view name;
  double seconds;
};
inline constexpr std::array kStretches = {StretchLimit{"10m", 600}, StretchLimit{"30m", 1800}, StretchLimit{"1h", 3600},
                                          StretchLimit{"2h", 7200}, StretchLimit{"8h", 28800}};
// What of the time held idle sentences and prices call recoverable: what lies behind the first hour.
inline constexpr std::size_t kRecoverable = 2;
static_assert(kStretches[kRecoverable].name == "1h");

// Seconds of GPUs.
struct Use {
  double busy = 0;
  double idle = 0;
  double hung = 0;
  double not_judged = 0;
  double free = 0;
  double unknown = 0;
  std::array<double, kStretches.size()> idle_over{};   // of `idle`: in stretches longer than each of kStretches
  std::array<double, kStretches.size()> idle_after{};  // of those what lies behind that time: no policy frees more
  double joules = 0;
  double powered = 0;  // seconds of which the power is known

  double recoverable() const { return idle_after[kRecoverable]; }
  double seconds() const { return busy + idle + hung + not_judged + free + unknown; }
  Use& operator+=(const Use& more);
};

struct UseOf {
  std::string user;     // empty: not told
  std::string command;  // likewise
  std::string host;
  bool nobody = false;  // the time without a job
  Use use;
};

struct ReportResult {
  std::string name;
  std::string idle_rule;
  std::string hung_rule;
  bool judges_hangs = false;     // the trace has what that rule looks at
  std::string not_judged_since;  // "no power limit": what it would take where hangs were not judged
  bool has_power = false;
  bool means = false;  // as means; else as readings of a moment
  SamplingIntervals intervals;
  Use total;
  double gap_seconds = 0;
  std::vector<UseOf> uses;           // by user, command and host; most wasted first
  std::vector<IdleStretch> longest;  // the longest first
  UseByHour hours;                   // where wanted
  Instant first{};
  Instant last{};
  trace::TraceReport trace;
};

// `uses` added up by some of the three alone, most wasted first.
enum class ReportBy : std::uint8_t { user, command, host, all };
inline constexpr std::array<std::string_view, 4> kReportByNames = {"user", "command", "host", "all"};
std::vector<UseOf> add_up(const ReportResult& result, ReportBy by);

Result<ReportResult> report(ReportOptions options);

}  // namespace lull::replay
