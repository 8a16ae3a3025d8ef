#pragma once
// From readings of a source to the value of a signal: sums, rates of counters, ages, and what is too old to believe.
// Pure: it reads no clock and no file.
//
// What was not seen is unknown. A counter that fell, that lost a series, or whose server started anew says nothing of
// the time before it began again: for that one reading the rate is unknown, and the next one has a baseline again.
// What is negative, or so large that a growth by one is not seen, is not a counter. A source that repeats an old time
// is unknown once that time is older than max_age.

#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "config/signal_source.h"
#include "gpu/snapshot.h"
#include "signals/reading.h"

namespace lull {

struct SignalValue {
  double value = kUnknown;
  Absence why = Absence::unread;
  std::string trouble;  // for a person, if it is unknown for an unexpected reason

  bool known() const { return why == Absence::none; }
};

class OwnSignalState {
 public:
  explicit OwnSignalState(SignalSource source) : source_(std::move(source)) {}

  const SignalSource& source() const { return source_; }
  const SignalValue& value() const { return value_; }
  // A reading that was asked for at `asked`.
  void take(const Result<SignalReading>& reading, Instant asked, WallTime wall);

 private:
  SignalValue read(const SignalReading& reading, Instant asked, double now);
  SignalValue rate(const SignalReading& reading, Instant asked);
  std::optional<std::string> too_old(const SignalReading& reading, double now) const;

  struct Baseline {
    std::map<std::string, double> counters;
    Instant asked{};
    std::optional<double> time;  // by the source's own clock
    std::optional<double> started;
  };
  SignalSource source_;
  SignalValue value_;
  std::optional<Baseline> before_;
};

}  // namespace lull
