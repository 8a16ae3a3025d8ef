#pragma once
// The sensor: a process that asks the driver. A call into a driver may hang in the kernel without end (D state: even
// SIGKILL has to wait), and no program can exit or exec while a thread of its own does. So a child makes the calls, and
// the parent never waits for the child. A parent without threads forks; one that has some (Python) cannot, since the
// fork might stick in a lock that another thread held. It starts the program `lull` as its sensor.
//
// Inside, worker threads take the GPUs one after the other; as a rule one worker takes all. When it dawdles the parent
// calls another, which takes over the rest: a stuck GPU costs only itself, and cards that take seconds to attach do so
// side by side. Between two samples a worker looks at what the driver would otherwise forget (Source::look).

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/result.h"
#include "sense/sampler_options.h"
#include "sense/wire.h"

namespace lull {

// A sensor that runs. It is gone with its parent and holds no descriptor of ours but the wake-up (and the lifeline of
// one that is apart, which no wait() finds: neither ours nor that of a command that we become).
struct Sensor {
  Process process;
  Fd lifeline;  // of one that is apart: the sensor ends when this closes, by our hand, at our end or by exec
};
Result<Sensor> start_sensor(SensorMemory& shared, int wakeup, const SamplerOptions& options);

// The same for options.program. Its shared memory is a file, which has to be mapped, and its options are written into
// that. It is not a child of ours: no wait() finds it, and no SIGCHLD comes of it.
Fd make_shared_file();
Result<Sensor> start_sensor_program(SensorMemory& shared, const Fd& memory, int wakeup, const SamplerOptions& options);
bool is_other_layout(const Fd& file);  // the program found that it is of another version of lull

// Tells the sensor's workers that there is work.
void call_worker(SensorMemory& shared);

// The other side of start_sensor_program(): main() of the program that is called by this name. Returns only where it
// cannot be a sensor.
inline constexpr std::string_view kSensorName = "lull-sensor";
int sensor_program(int argc, char** argv);

// Whether a thread is blocked in one place of the kernel, where no signal reaches it: it sleeps uninterruptibly, and
// its counts of context switches stay the same. A driver that wakes a card lets its thread run now and then.
class BlockedThread {
 public:
  // Reads its state, now and then.
  void look(pid_t process, pid_t thread, Instant at);
  // Of all that was read, nothing says that it ran in this time.
  bool blocked_for(Duration time, Instant at) const { return since_ && at - *since_ >= time; }

 private:
  std::uint64_t switches_ = 0;
  std::optional<Instant> since_;
};

}  // namespace lull
