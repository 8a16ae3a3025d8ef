#include "jobs/allocated.h"

#include <fmt/format.h>

#include <algorithm>

namespace lull {
namespace {

const GpuUse* use_of(const std::vector<GpuUse>& uses, const AllocatedGpu& gpu) {
  const auto found = std::ranges::find_if(uses, [&](const GpuUse& use) { return gpu.is(use.device); });
  return found == uses.end() ? nullptr : &*found;
}

// Evidence that the job has other GPUs than those that its numbers seem to mean.
std::string contradiction(const AllocatedJob& job, const std::vector<GpuUse>& uses,
                          const std::vector<Device>& devices) {
  for (const GpuUse& use : uses) {
    const bool own =
        std::ranges::any_of(devices, [&](const Device& device) { return use.device.index == device.index; });
    for (const GpuProcess& one : use.processes) {
      if (!holds(one) && !draws(one)) continue;
      if (!own && one.job == job.job)
        return fmt::format("process {} of {} is on GPU {}, which Slurm did not give to it: not judged", one.pid,
                           job.title, use.device.label());
      if (own && one.job != job.job && one.job.starts_with("slurm:"))
        return fmt::format("{} is on GPU {} of {}: not judged", one.job, use.device.label(), job.title);
    }
  }
  return {};
}

}  // namespace

std::vector<TrackedSubject> allocated_subjects(const std::vector<AllocatedJob>& jobs, const std::vector<GpuUse>& uses) {
  std::vector<TrackedSubject> subjects;
  for (const AllocatedJob& job : jobs) {
    if (job.gpus.empty()) continue;
    TrackedSubject tracked{.key = std::string(kJobKey) + job.job,
                           .title = {},
                           .job = job.job,
                           .subject = {},
                           .holders = {},
                           .owner = job.owner};
    tracked.subject.id.value = fmt::format("{}@{}", tracked.key, job.run);
    Scope& scope = tracked.subject.scope;
    scope.why = "Slurm gave them to the job";
    const auto not_judged = [&](std::string why) {
      if (scope.not_judged.empty()) scope.not_judged = std::move(why);
      scope.unseen = true;
    };
    if (!job.not_known.empty()) not_judged(fmt::format("{} is not judged: {}", job.title, job.not_known));
    if (job.not_known.empty() && job.files.size() != job.gpus.size())
      not_judged(job.title + " is not judged: which GPUs it has cannot be told");
    for (std::size_t i = 0; i < job.files.size(); ++i) {
      const AllocatedGpu& gpu = job.files[i];
      const GpuUse* use = use_of(uses, gpu);
      if (use == nullptr) {
        not_judged(fmt::format("{}{} cannot be seen: {} is not judged meanwhile",
                               gpu.render ? "/dev/dri/renderD" : "/dev/nvidia", gpu.minor, job.title));
        continue;
      }
      if (job.by_index && use->device.index != job.gpus[i])
        not_judged(fmt::format("GPU {} is not the driver's GPU {}: {} is not judged", job.gpus[i], use->device.index,
                               job.title));
      if (is_split(uses, use->device)) {
        not_judged(fmt::format("GPU {} is split (MIG), and which part {} has cannot be told: not judged",
                               use->device.label(), job.title));
        continue;
      }
      scope.devices.push_back(use->device);
      for (const GpuProcess& one : use->processes) {
        if (!holds(one) || one.job != job.job) continue;
        tracked.subject.stopped = tracked.subject.stopped || one.stopped;
        if (std::ranges::find(tracked.holders, one.id(), &GpuProcess::id) == tracked.holders.end())
          tracked.holders.push_back(one);
      }
    }
    std::ranges::sort(scope.devices, {}, &Device::index);
    if (std::string why = contradiction(job, uses, scope.devices); !why.empty()) not_judged(std::move(why));
    tracked.title = scope.devices.size() == job.gpus.size()
                        ? fmt::format("{} on {}", job.title, labels(scope.devices))
                        : fmt::format("{} on Slurm's GPU{} {}", job.title, job.gpus.size() == 1 ? "" : "s",
                                      fmt::join(job.gpus, ", "));
    subjects.push_back(std::move(tracked));
  }
  return subjects;
}

}  // namespace lull
