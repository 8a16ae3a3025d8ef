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

struct AllocatedJob {
  std::string job;    // "slurm:22"
  std::string run;    // which run of it
  std::string title;  // "Slurm job 22 of ada"
  std::optional<uid_t> owner = {};
  std::vector<unsigned> gpus = {};  // the numbers of their device files
};

// One for each job that has a GPU. What cannot be found among `uses` is not judged, and said.
std::vector<TrackedSubject> allocated_subjects(const std::vector<AllocatedJob>& jobs, const std::vector<GpuUse>& uses);

}  // namespace lull
