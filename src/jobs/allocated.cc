#include "jobs/allocated.h"

#include <fmt/format.h>

#include <algorithm>

namespace lull {
namespace {

const GpuUse* use_with_number(const std::vector<GpuUse>& uses, unsigned number) {
  const auto found = std::ranges::find_if(
      uses, [&](const GpuUse& use) { return use.device.kind == DeviceKind::gpu && use.device.minor == number; });
  return found == uses.end() ? nullptr : &*found;
}

bool has_parts(const std::vector<GpuUse>& uses, const Device& device) {
  return std::ranges::any_of(
      uses, [&](const GpuUse& use) { return use.device.kind == DeviceKind::mig && use.device.index == device.index; });
}

}  // namespace

std::vector<TrackedSubject> allocated_subjects(const std::vector<AllocatedJob>& jobs, const std::vector<GpuUse>& uses) {
  std::vector<TrackedSubject> subjects;
  for (const AllocatedJob& job : jobs) {
    if (job.gpus.empty()) continue;
    TrackedSubject tracked{
        .key = "job:" + job.job,
        .title = fmt::format("{} on GPU{} {}", job.title, job.gpus.size() == 1 ? "" : "s", fmt::join(job.gpus, ", ")),
        .job = job.job,
        .subject = {},
        .holders = {},
        .owner = job.owner};
    tracked.subject.id.value = fmt::format("{}@{}", tracked.key, job.run);
    tracked.subject.scope.why = "Slurm gave them to the job";
    for (const unsigned number : job.gpus) {
      const GpuUse* use = use_with_number(uses, number);
      const bool split = use != nullptr && has_parts(uses, use->device);
      if (use == nullptr || split) {
        tracked.subject.scope.not_judged =
            split ? fmt::format("GPU {} is split (MIG), and which part {} has cannot be told: not judged", number,
                                job.title)
                  : fmt::format("GPU {} cannot be seen: {} is not judged meanwhile", number, job.title);
        tracked.subject.scope.unseen = true;
        continue;
      }
      tracked.subject.scope.devices.push_back(use->device);
      for (const GpuProcess& one : use->processes) {
        if (!holds(one) || one.job != job.job) continue;
        tracked.subject.stopped = tracked.subject.stopped || one.stopped;
        if (std::ranges::find(tracked.holders, one.id(), &GpuProcess::id) == tracked.holders.end())
          tracked.holders.push_back(one);
      }
    }
    subjects.push_back(std::move(tracked));
  }
  return subjects;
}

}  // namespace lull
