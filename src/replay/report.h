#pragma once
// What became of the GPU-hours of a trace, added up by who had them: busy, held but
// idle, hung at 100 % without working, or free; and the energy. `lull report` shows
// it. Definitions (lull-report(1) has them for people):
//
//   busy   somebody had the GPU, and it was neither idle nor hung
//   idle   somebody had it, and the idle rule held (the whole stretch, once it has lasted as long as the rule asks)
//   hung   likewise by the rule for hangs
//   free   nobody had it (lives.h)
//   not known   the rules could not be judged: that is no state
//
// Time is the sum of the intervals between samples that are no gaps; a sample stands
// for the time since the one before it.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "replay/survey.h"
#include "rule/rule.h"
#include "trace/reader.h"

namespace lull::replay {

struct ReportOptions : TracesToRead {
  Rule idle;
  Rule hung;
  std::size_t memory = std::size_t{256} << 20;
};

// Seconds of GPUs.
struct Use {
  double busy = 0;
  double idle = 0;
  double hung = 0;
  double free = 0;
  double unknown = 0;
  double joules = 0;
  double powered = 0;  // seconds of which the power is known

  double seconds() const { return busy + idle + hung + free + unknown; }
  Use& operator+=(const Use& more);
};

struct UseOf {
  std::string user;     // empty: not told
  std::string command;  // likewise
  std::string host;
  bool nobody = false;  // the time in which nobody had the GPU
  Use use;
};

struct ReportResult {
  std::string name;
  std::string idle_rule;
  std::string hung_rule;
  bool judges_hangs = false;  // the trace has what that rule looks at
  bool has_power = false;
  Use total;
  double gap_seconds = 0;
  std::vector<UseOf> uses;  // by user, command and host; most wasted first
  Instant first{};
  Instant last{};
  trace::TraceReport trace;
};

// `uses` added up by some of the three alone, most wasted first.
enum class ReportBy : std::uint8_t { user, command, host, all };
std::vector<UseOf> add_up(const ReportResult& result, ReportBy by);

Result<ReportResult> report(ReportOptions options);

}  // namespace lull::replay
