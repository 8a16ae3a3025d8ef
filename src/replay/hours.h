#pragma once
// How each hour of a GPU was used, and the longest times in which it was held idle: what the History of `lull serve`
// shows, and `lull report --hours`.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace lull::replay {

// Seconds of one hour. What is missing to 3600 was not seen.
struct HourOfUse {
  float busy = 0;  // also where hangs are not judged
  float idle = 0;
  float hung = 0;
  float free = 0;
  float unknown = 0;
  int person = -1;  // who had it longest, in UseByHour::people; -1: nobody, or not told

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

}  // namespace lull::replay
