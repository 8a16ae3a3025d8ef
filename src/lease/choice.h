#pragma once
// Which GPUs suit a request, and which of those are the best. Pure: readings and constraints in, a judgement with its
// reason out. What is not known does not suit. What a GPU does not have at all (the utilisation of
// a MIG device before Hopper, the memory of a GB10) is judged without, as long as two of utilisation, processes and
// memory can be read and say the same; its performance state may stand in for one.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gpu/snapshot.h"
#include "gpu/topology.h"
#include "rule/rule.h"

namespace lull {

// A limit on one value: what is usual, what the user said, or none at all.
struct Limit {
  enum Kind : std::uint8_t { usual, given, none } kind = usual;
  double value = 0;

  static Limit of(double value) { return {given, value}; }
  static Limit off() { return {none, 0}; }
};

// A rule over one reading: yes, no, or nothing if it is unknown; with its reason.
struct WhereAnswer {
  std::optional<bool> holds;
  std::string why;
};
using Where = std::function<WhereAnswer(const Reading&)>;
// From the rule language. Refused: what one reading of one GPU cannot answer
// (`for`, means over a window, signals of a job).
Result<Where> where_rule(const Rule& rule);

// What is asked for. Unless said otherwise a GPU must do nothing: no utilisation,
// no process, and no more memory in use than an empty card shows. Where a desktop
// draws, what it draws with is left out of the usual limits, never of given ones.
struct Constraints {
  std::string name;                // part of the name, in any case of letters
  bool exact_name = false;         // in this case only
  Limit util;                      // %, at most; usually 0
  Limit mem_util;                  // %, at most; usually 0
  Limit procs;                     // at most; usually 0
  Limit mem_used;                  // bytes, at most; usually kEmptyCard
  Limit mem_free = Limit::off();   // bytes, at least
  Limit temp = Limit::off();       // C, at most
  std::optional<double> tolerate;  // bytes: processes that hold no more than this in all are overlooked
  std::optional<uid_t> mine;       // a GPU that only this user uses counts as idle
  Where where;
};

// What a GPU of this kind on which nothing runs may have in use (kEmptyCard). AMD's driver counts what it reserves: an
// idle MI300X shows 283 to 297 MB. Who computes there KFD tells, so that it need not be concluded from memory.
inline double empty_card(const Device& device) {
  return device.vendor == Vendor::amd ? 512.0 * (1U << 20) : kEmptyCard;
}
// Beside a desktop there are also the screen's own buffers, which belong to no process.
inline constexpr double kEmptyDesktop = 256.0 * (1U << 20);
// Who allows processes allows their contexts, but not that they fill the card.
inline constexpr double kRestingProcesses = 700.0 * (1U << 20);
// From here on a card rests: who computes makes the driver raise it to 0 or 2.
inline constexpr double kRestingState = 8;
// %: what an idle GPU of this kind may show as util. Intel's is what its idle time leaves, which counts in
// milliseconds.
inline double empty_util(const Device& device) { return device.vendor == Vendor::intel ? 2 : 0; }
inline constexpr double kDrawing = 10;  // %: what drawing a desktop may show as util and mem_util

struct Judgement {
  bool fits = false;
  bool lasting = false;           // it does not fit, and waiting will not change that
  std::string why;                // "3 processes; wanted 0 processes"; empty: it fits
  std::vector<Metric> judged_by;  // of util, procs and mem_used those that could be read, pstate where it stood in
  std::string note;               // "a desktop draws on it": what was made allowance for
  bool only_busy = false;         // nothing but util and mem_util speaks against it
  bool in_use = false;            // processes, work or memory in use speak against it
  bool undecided = false;         // nothing speaks against it, too little for it: pstate was not read
};

Judgement judge(const Device& device, const Reading& reading, const Constraints& constraints);

// Nothing but work speaks against it, and that may be none: a card that the driver has
// just woken checks its memory, which shows as utilisation (NVML's manual). Look again.
bool busy_from_waking(const Judgement& judgement, const Reading& reading);

enum class Best : std::uint8_t { random, memory, cool, topology };
Result<Best> parse_best(std::string_view word);

// Of `open` the best `count` to go with `kept`; equals at random. Positions are of
// the readings. With topology the set is the one that is joined most closely,
// and of equal ones that which leaves the rest joined most closely.
std::vector<std::size_t> choose(Best best, std::span<const std::size_t> open, std::span<const std::size_t> kept,
                                std::size_t count, std::span<const Reading> readings, const Topology& topology,
                                std::mt19937_64& random);

// How closely two GPUs are joined, as a number: any NVLink beats none, more beat
// fewer, then what is nearer on PCIe.
double closeness(Join join);

}  // namespace lull
