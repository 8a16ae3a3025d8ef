#pragma once
// Why a verdict is what it is, first as facts (Explanation), then in words. The facts
// are what an action shows before it is taken, what JSON carries, and what `lull watch`
// says when a rule cannot be judged.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gpu/snapshot.h"
#include "rule/rule.h"
#include "rule/truth.h"

namespace lull {

struct MissingSignal {
  std::string gpu;  // label: "3", "3:1"
  Metric metric = Metric::util;
  Absence why = Absence::none;
  std::vector<Metric> instead;  // that this GPU does give
  double coverage = kUnknown;   // with not_covered: the share of the time that was measured
};

// One signal of one GPU over the window that the verdict rests on.
struct Story {
  std::string gpu;  // label; empty: of the job or the machine
  Metric metric = Metric::util;
  bool share = false;         // in % of its whole, as the rule compares it
  Duration window{};          // not zero: means over so long, as the rule compares them
  bool high_is_worse = true;  // the rule wants it low
  double first = kUnknown;    // at the beginning of the window
  double last = kUnknown;     // now
  double worst = kUnknown;    // the nearest to breaking the rule
  Duration worst_ago{};       // before now
  std::vector<float> trace;   // oldest first, downsampled; NaN: unknown
};

struct Explanation {
  Truth truth = Truth::unknown;
  bool armed = true;
  bool fires = false;
  std::string rule;               // as written
  std::string arm;                // likewise; empty: none
  bool of_gpus = true;            // the rule looks at GPUs; one on `cpu` alone does not
  std::vector<std::string> gpus;  // for which it holds (or, while it does not, that it is judged on)
  std::vector<DeviceId> ids;      // of these
  WallTime since{};               // when the window began: that of the streak, or since it broke
  Duration window{};              // from then to now
  bool running = false;           // the condition holds now; if so, for:
  Duration held{};
  std::uint64_t samples = 0;
  Span needed;  // by the outermost `for`
  std::vector<Story> stories;
  std::vector<MissingSignal> missing;
  DriverState driver;
};

// "GPU 2 gives no util (not supported); power or mem_util would do", or
// "util of GPU 2 was measured for only 40 % of the time since the sample before"
std::string to_string(const MissingSignal& missing);
// All that is missing in one line: "this rule cannot be judged while GPU 2 gives no util
// (not supported); …"; empty if nothing is.
std::string missing_line(std::span<const MissingSignal> missing);
// Other signals that show much the same, the likeliest first.
std::span<const Metric> instead_of(Metric metric);
// The verdict in lines: what, since when, each signal with its readings and a sparkline.
// Where `utf8` is false, plain ASCII.
std::vector<std::string> to_string(const Explanation& explanation, bool utf8);
// One line: "idle: util < 5 for 20m held for 20m5s on GPUs 0, 1".
std::string headline(const Explanation& explanation);

// A value with its unit, for a person: "5 %", "120 W", "1.0 GiB", "?".
std::string value_text(Metric metric, double value, bool share = false);
// "▁▁▂█▁": at most `width` cells; unknown is a blank cell ('?' in ASCII). The scale runs
// from 0 (or the lowest) to `top` where it is given, else to the highest.
std::string sparkline(std::span<const float> values, std::size_t width, bool utf8, double top = kUnknown);

// A rule without its time: what it asks of a single sample.
//
// What was to hold for some time holds now, what is a mean over some time is what it is now. A mean that asks for work
// in the past does not matter now: it is taken as answered.
Rule at_one_moment(Rule rule);

}  // namespace lull
