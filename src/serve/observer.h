#pragma once
// What lull-serve knows of the GPUs: the newest sample with who uses each, and what added up over the samples before.
// Requests read from it and never sample. What is older than three intervals is not told as if it were now.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "gpu/snapshot.h"
#include "jobs/gpu_users.h"
#include "session/status_extras.h"
#include "view/leases.h"
#include "view/status.h"

namespace lull {

inline double in_seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

// Seconds in which a GPU was seen, and in which it worked.
struct SeenTime {
  double seen = 0;
  double busy = 0;
};

// The mean of util over each twenty seconds of the last hour. A slice of which less than nine tenths was seen is
// unknown.
class LastHour {
 public:
  static constexpr Duration kSlice = std::chrono::seconds(20);
  static constexpr std::size_t kSlices = 180;

  // The time up to `at` that this value is of. Out of order: a new beginning.
  void add(Instant at, Duration time, double util);
  // The oldest first, up to the last whole slice before `now`.
  std::vector<float> until(Instant now) const;

 private:
  void close_before(std::int64_t slice);

  std::int64_t slice_ = 0;  // the one that is being filled
  SeenTime time_;           // in it
  std::deque<float> closed_;
};

// A job with GPUs of this machine, as far as its processes are identified.
struct JobUse {
  std::string id;     // "slurm:12", "container:…"
  std::string title;  // for a person
  std::vector<std::string> users = {};
  std::vector<std::size_t> gpus = {};  // places in the inventory
  std::vector<pid_t> processes = {};
  std::optional<Duration> idle_for = {};  // all its GPUs
  bool idle_for_longer = false;

  // A process tree has no name but a number, which is another's tomorrow.
  bool has_lasting_id() const { return !id.starts_with("tree:"); }
};

// How late samples were asked for, as a histogram.
struct Delays {
  static constexpr std::array<double, 6> kBounds = {0.001, 0.005, 0.01, 0.05, 0.25, 1};  // seconds
  std::array<std::uint64_t, kBounds.size()> at_most{};
  std::uint64_t count = 0;
  double sum = 0;
  void add(double seconds);
};

struct ObservedGpu {
  const Device& device;
  const Reading& reading;
  const StatusExtra& extra;
  SeenTime time;
};

class Observer {
 public:
  Observer(Duration every, GpuUsers& users);

  void see(const Snapshot& snapshot);
  // There is a sample, a driver answered it, and it is at most three intervals old.
  bool is_up(Instant now) const;
  // Why not, for a person.
  std::string trouble(Instant now) const;

  const Snapshot& snapshot() const { return snapshot_; }
  StatusView status() const;
  Result<LeasesView> leases() const;  // the folder as it is now
  const std::vector<JobUse>& jobs() const { return jobs_; }
  const std::vector<GpuUse>& uses() const { return uses_; }
  std::vector<ObservedGpu> gpus() const;
  const Delays& delays() const { return delays_; }
  std::uint64_t samples() const { return samples_; }
  std::vector<float> last_hour(const Device& device, Instant now) const;

 private:
  void count_time();
  void count_delays();
  void find_jobs();

  Duration every_;
  Duration longest_gap_;
  GpuUsers& users_;
  IdleTimes idle_;
  Snapshot snapshot_;
  Snapshot as_commands_;  // the same without what only who looks for long can learn
  std::optional<Instant> last_;
  std::optional<Instant> due_;  // the next sample
  std::vector<std::size_t> rows_;
  std::vector<StatusExtra> extras_;
  std::string lease_trouble_;
  std::vector<GpuUse> uses_;
  std::vector<JobUse> jobs_;
  std::map<DeviceId, SeenTime> time_;
  std::map<DeviceId, LastHour> hours_;
  Delays delays_;
  std::uint64_t samples_ = 0;
};

}  // namespace lull
