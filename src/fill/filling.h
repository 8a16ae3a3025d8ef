#pragma once
// Which filler runs on which GPU: the decisions of `lull fill`, pure. It gets the observations of the GPUs and the
// state of the fillers, and returns what is to be done: start one, pause it, resume it, end it. It has no clock, no
// process and no file, so a test can simulate a thousand days in a second (filling_test.cc).
//
// A filler runs only on a GPU that is known to be free. It is paused on the first sign of another process, and if the
// state is unknown. It is ended only by what is certain: a process uses the GPU, a lease or a ticket exists for it, or
// a user types.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "fill/settings.h"
#include "gpu/snapshot.h"

namespace lull {

// Why a GPU is filled, or not, as data: what the log, --status and its JSON say. to_string() is the one place for the
// words.
struct Reason {
  enum Kind : std::uint8_t {
    none,
    leased,             // who
    waited_for,         // who
    used,               // who: a process that computes on it
    opened,             // who: a process that has it open
    memory_grew,        // number: bytes, while our filler was paused
    user,               // who; time: since the last key
    rule,               // who: what speaks against it, in words of the rule
    starts_soon,        // time: until the rule has held for long enough
    hot,                // number: C
    cool_enough,        //
    too_little_memory,  // number: bytes that are free
    memory_left,        // number: bytes in use without a visible process
    out_of_hours,
    unreadable,    // who: why
    hidden,        // number: processes whose files we may not look at
    backing_off,   // time left; number: failures in a row; who: the last one, in words
    filled,        // who: which filler has it
    elsewhere,     // who: which other GPU of an all-at-once filler is not free
    done,          // it has ended with 0 and is not wanted again
    no_filler,     // no filler is configured for it
    nothing_came,  // who opened it, and did nothing
    free_again,
    not_resumed,  // its resume command failed
    config,       // it is not in the settings any more
    shutting_down,
  };
  Kind kind = none;
  std::string who = {};
  pid_t pid = 0;  // of who, where it is a process
  Duration time = {};
  double number = 0;
  std::string gpu = {};  // label of the GPU that it is about

  bool operator==(const Reason&) const = default;
};

// "leased by ada", "ada typed 12 s ago", "starts in 14 s"
std::string to_string(const Reason& reason);
// One word for programs: "leased", "starts-soon".
std::string_view to_string(Reason::Kind kind);

// Openers are processes that have a device file open and are neither ours nor ignored: pid 0 is an unknown process,
// start_ticks 0 one that ended before it could be looked up.
std::string to_string(const GpuProcess& opener);  // "python3 (4711)"

// What is seen of one GPU.
struct GpuObservation {
  DeviceId gpu;
  std::string label;
  std::string unreadable = {};                          // why nothing can be said of it; empty: it can
  std::vector<Reason> claims = {};                      // the GPU is certainly in use
  std::optional<std::vector<GpuProcess>> openers = {};  // nothing: no scan was made
  unsigned hidden = 0;                  // processes whose files cannot be looked at: they may have it open
  std::optional<Reason> not_free = {};  // what the rule has against it; nothing: it holds, for long enough
  double temp = kUnknown;
  double mem_used = kUnknown;
  double mem_free = kUnknown;
  double mem_total = kUnknown;
  double mem_unexplained = 0;  // in use, and by no process that the driver lists
};

// A waiter in the queue of leases.
struct Waiter {
  std::string id;  // tells it from the others
  std::string who;
  unsigned missing = 0;
  std::vector<DeviceId> could_use = {};
};

// One filler on one GPU, or on all of its GPUs at once.
struct FillUnit {
  std::size_t filler = 0;  // of the settings
  std::vector<DeviceId> gpus;
  bool operator==(const FillUnit&) const = default;
};

struct FillOrder {
  enum Kind : std::uint8_t {
    start,
    halt,   // pause it, now
    go_on,  // let it run again
    end,    // let it go on and end it
    park,   // run its yield command
  };
  Kind kind = start;
  std::size_t unit = 0;
  Reason why = {};
};

class Filling {
 public:
  enum class State : std::uint8_t { waiting, running, still, parking, parked, ending };

  Filling(std::vector<FillerSettings> fillers, std::vector<FillUnit> units, Duration confirm);

  // One sample. `asked`: all of it is newer than that.
  std::vector<FillOrder> sampled(Instant now, Instant asked, std::span<const GpuObservation> observations,
                                 std::span<const Waiter> waiters, int minute_of_day);
  // A process opened it just now.
  std::vector<FillOrder> opened(Instant now, const DeviceId& gpu, const GpuProcess& opener);
  // The filler there is paused for this one already.
  bool suspects(const DeviceId& gpu, const GpuProcess& opener) const;
  // What became of an order.
  void started(std::size_t unit, Instant now);
  void ended(std::size_t unit, Instant now, int status,
             const std::string& failure = {});  // by itself or by us; -1: could not be started
  std::vector<FillOrder> parked(std::size_t unit, bool well, Instant now);
  std::vector<FillOrder> unparked(std::size_t unit, bool well, Instant now);
  void stays_parked(std::size_t unit, Instant now);  // it could not be taken back yet
  // We end: every filler ends.
  std::vector<FillOrder> end_all(const Reason& why);

  // Before a scan of the open device files, nothing can be started and no process cleared of suspicion.
  bool wants_openers() const { return wants_openers_; }
  // When a sample is needed to decide, if none comes before.
  std::optional<Instant> decides_at() const;

  std::span<const FillUnit> units() const { return units_; }
  State state(std::size_t unit) const { return of_[unit].state; }
  const Reason& why(std::size_t unit) const { return of_[unit].why; }
  unsigned failures(std::size_t unit) const { return of_[unit].failures; }
  // Why it waits after a failure, for so long.
  Reason back_off(std::size_t unit, Duration left) const;
  Instant since(std::size_t unit) const { return of_[unit].since; }
  // For how much longer it is backed off; zero: it is not.
  Duration backs_off(std::size_t unit, Instant now) const {
    return of_[unit].not_before > now ? of_[unit].not_before - now : Duration::zero();
  }
  const FillerSettings& filler(std::size_t unit) const { return settings(unit); }
  void set_confirm(Duration confirm) { confirm_ = confirm; }
  // Which unit is on it, with processes of its own.
  std::optional<std::size_t> unit_on(const DeviceId& gpu) const;
  // Other settings: units that are the same go on as they are, those that are gone end. Numbers of units stay.
  std::vector<FillOrder> replace(const std::vector<FillerSettings>& fillers, std::vector<FillUnit> units, Instant now);
  bool retired(std::size_t unit) const { return of_[unit].retired; }

 private:
  struct Unit {
    State state = State::waiting;
    Reason why;
    Instant since{};
    Instant started{};
    unsigned failures = 0;
    std::string failure;  // the last one, in words
    Instant not_before = Instant::min();
    bool done = false;
    bool retired = false;  // not in the settings any more
    // While it is paused because another process opened the GPU:
    std::vector<GpuProcess> suspects;
    std::vector<std::pair<DeviceId, double>> memory_before;
    bool waits_for_free = false;  // it goes on once the rule holds again
    unsigned unreadable = 0;      // samples in a row
    Instant unreadable_at{};      // when the last of them was asked for
  };
  struct Now;

  const FillerSettings& settings(std::size_t unit) const { return fillers_[units_[unit].filler]; }
  Instant decides_at(const Unit& unit) const;
  void set(Unit& unit, State state, const Reason& why, Instant now);
  void look_at(std::size_t number, const Now& now, std::vector<FillOrder>& orders);
  void look_at_still(std::size_t number, const Now& now, std::vector<FillOrder>& orders);
  void look_at_suspects(std::size_t number, const Now& now, std::vector<FillOrder>& orders);
  void look_at_parked(std::size_t number, const Now& now, std::vector<FillOrder>& orders);
  void halt(std::size_t number, const Reason& why, Instant now, std::vector<FillOrder>& orders);
  void go_on(std::size_t number, const Reason& why, Instant now, std::vector<FillOrder>& orders);
  void end(std::size_t number, const Reason& why, Instant now, std::vector<FillOrder>& orders);
  void yield(std::size_t number, const Reason& why, const Now& now, std::vector<FillOrder>& orders);
  void start_some(const Now& now, std::vector<FillOrder>& orders);
  Reason against_starting(std::size_t number, const Now& now);
  std::optional<Reason> claim_on(std::size_t number, const Now& now) const;
  std::optional<Reason> unreadable(std::size_t number, const Now& now) const;
  std::optional<Reason> not_free(std::size_t number, const Now& now) const;
  std::optional<Reason> somebody_has_open(std::size_t number, const Now& now);
  bool is_out_of_hours(std::size_t number, const Now& now) const;
  bool is_short_of_memory(std::size_t number, const Now& now) const;
  void choose_for_waiters(Now& now, std::span<const Waiter> waiters);
  bool cleared(const GpuProcess& opener) const;
  void clear(std::span<const GpuProcess> openers, bool for_good);
  std::vector<GpuProcess> uncleared(std::size_t number, const Now& now, bool& looked) const;

  std::vector<FillerSettings> fillers_;
  std::vector<FillUnit> units_;
  std::vector<Unit> of_;
  Duration confirm_;
  std::set<ProcessId> cleared_;    // opened it and did nothing
  std::set<ProcessId> came_once_;  // opened it and closed it again at once
  // To a waiter, and since when it is unused: a waiter that does not take it does not need it.
  struct Offer {
    std::optional<Instant> empty_since;
    bool lapsed = false;
  };
  std::map<std::pair<std::string, DeviceId>, Offer> offers_;
  bool wants_openers_ = false;
};

}  // namespace lull
