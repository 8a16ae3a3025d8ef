#pragma once
// Subjects that somebody allocated GPUs to, as Slurm does: such a job is judged by all GPUs that it was given here,
// with processes on them or not. Who works there does not matter: another run of the job is another subject, another
// process of the same run is not, since it is the job that is acted on. Pure: no clock, no file.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "jobs/gpu_users.h"
#include "jobs/subject_tracker.h"

namespace lull {

// A GPU as its owner's book-keeping names it, by its device file.
struct AllocatedGpu {
  unsigned minor = 0;   // N of /dev/nvidiaN, or of /dev/dri/renderDN
  bool render = false;  // the second
  bool is(const Device& device) const {
    return device.kind == DeviceKind::gpu && (render ? device.render_minor : device.minor) == minor;
  }
};

struct AllocatedJob {
  std::string job;    // "slurm:22"
  std::string run;    // which run of it
  std::string title;  // "Slurm job 22 of ada"
  std::optional<uid_t> owner = {};
  std::vector<unsigned> gpus = {};       // as Slurm counts them
  std::vector<AllocatedGpu> files = {};  // those that it means
  bool by_index = false;                 // the numbers are those of the driver as well, or it is not judged
  std::string not_known = {};            // why it cannot be told which it means: the job is not judged
};

// One for each job that has a GPU. What cannot be found among `uses` is not judged, and said. Nor is a job whose
// processes are on other GPUs than its own, or that has a GPU with another Slurm job's process on it: the numbers may
// mean other GPUs than those.
std::vector<TrackedSubject> allocated_subjects(const std::vector<AllocatedJob>& jobs, const std::vector<GpuUse>& uses);

}  // namespace lull
