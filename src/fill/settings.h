#pragma once
// What `lull fill` is told to do: the fillers, and when a GPU counts as free. From one command line, from a TOML file
// (plan_file.h) or from a predecessor's INI (compat/gpu_mon.h): all three make the same settings.

#include <csignal>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/hours.h"
#include "rule/rule.h"

namespace lull {

// What happens when another process opens the GPU. In all of them a lease or a ticket ends the
// filler.
enum class YieldWay : std::uint8_t {
  confirm,  // pause, and end only if the other one really uses the GPU
  stop,     // end at once, whoever opened it
  pause,    // pause for as long as the other one leaves memory free
  park,     // move it out of the GPU by `lull park`, and back when the GPU is free again
};

enum class IoClass : std::uint8_t { unchanged, best_effort, idle };

struct FillerSettings {
  std::string name = "filler";
  std::vector<std::string> command;
  std::string gpus;              // as --gpus takes it; empty: those of the first GPU's vendor
  bool absent_left_out = false;  // those of them that are not there are no mistake
  bool per_gpu = false;          // one for each of them; else one on all of them at once
  int priority = 0;              // greater goes first
  bool once = false;             // not again once it has ended with 0
  // One that ends with 0 has not failed, however soon it was, and is started again so long after its last start.
  std::optional<Duration> again = {};
  std::string directory;  // empty: ours
  std::vector<std::pair<std::string, std::string>> environment;
  std::string log;                            // its stdout and stderr are appended to it; empty: ours
  std::uint64_t log_size = 10 * 1024 * 1024;  // begun anew at this size, 0: never
  unsigned log_keep = 3;                      // so many old ones are kept
  std::string user;                           // empty: as we are
  int nice = 0;
  IoClass io_class = IoClass::unchanged;
  Hours hours;
  std::optional<double> max_temp;  // C: paused above
  std::optional<double> memory;    // bytes that must be free
  YieldWay yield = YieldWay::confirm;
  bool park_keeps = true;      // of YieldWay::park: what cannot be parked is paused; else it is ended
  std::string yield_command;   // parks it instead of ending it
  std::string resume_command;  // and takes it back
  Duration yield_limit = std::chrono::seconds(10);
  int signal = SIGTERM;
  Duration grace = std::chrono::seconds(10);
  bool set_visible_devices = true;  // CUDA_VISIBLE_DEVICES of its GPUs
  bool operator==(const FillerSettings&) const = default;
};

// Whose typing counts.
struct PeopleSettings {
  bool count = true;
  Duration idle = std::chrono::minutes(5);  // who has not typed for this long is not there
  std::vector<std::string> except_user;     // users
  bool except_self = true;                  // whoever started us is not disturbed by it
  bool operator==(const PeopleSettings&) const = default;
};

// Programs that may have GPUs open, known by any of their names (is_called): any user may choose such a name.
struct IgnoredOn {
  std::optional<std::set<unsigned>> files;  // N of /dev/nvidiaN; nothing: all
  std::vector<std::string> programs;
  bool operator==(const IgnoredOn&) const = default;
};

inline constexpr const char* kDefaultIdle = "util < 5 for 30s";
inline constexpr Duration kQuickestSample = std::chrono::milliseconds(100);

struct FillSettings {
  std::vector<FillerSettings> fillers;
  Rule idle;  // must hold before anything is started
  Duration every = std::chrono::seconds(1);
  Duration confirm = std::chrono::seconds(3);
  std::vector<std::string> ignore;  // more programs that may have a GPU open
  std::vector<IgnoredOn> ignore_on = {};
  bool ignore_hidden = false;  // processes whose files we may not look at do not count
  PeopleSettings people;
};

}  // namespace lull
