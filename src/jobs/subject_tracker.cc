#include "jobs/subject_tracker.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "base/text.h"

namespace lull {
namespace {

const GpuUse* use_of(const std::vector<GpuUse>& uses, const Device& device) {
  const auto found = std::ranges::find_if(uses, [&](const GpuUse& use) { return use.device.is(device.id()); });
  return found == uses.end() ? nullptr : &*found;
}

bool is_among(const std::vector<Device>& devices, const DeviceId& id) {
  return std::ranges::any_of(devices, [&](const Device& one) { return one.is(id); });
}

std::string users_of(const std::vector<GpuProcess>& holders) {
  std::vector<std::string> names;
  for (const GpuProcess& one : holders)
    if (std::ranges::find(names, one.info->user) == names.end()) names.push_back(one.info->user);
  return printable(fmt::format("{}", fmt::join(names, ", ")));
}

// Of all who hold a GPU. Of a strange desktop programs come and go: who only draws and is unknown is none of them.
std::vector<ProcessId> names_of(const GpuUse& use) {
  std::vector<ProcessId> names;
  names.reserve(use.processes.size());
  for (const GpuProcess& one : use.processes)
    if (holds(one))
      names.push_back(one.id());
    else if (is_unknown(one))
      names.emplace_back(one.pid, 0);
  std::ranges::sort(names);
  return names;
}

}  // namespace

bool SubjectTracker::left_alone(const GpuProcess& one) const {
  // In doubt whose it is (unknown, or a subordinate uid of two users), it is left alone.
  if (!one.info->uid) return !options_.except.empty() || !options_.only.empty();
  if (std::ranges::any_of(options_.except,
                          [&](uid_t user) { return belongs_to(*one.info->uid, user, options_.user_files); }))
    return true;
  return !options_.only.empty() && !options_.only.contains(owner_of(*one.info->uid, options_.user_files));
}

void SubjectTracker::add(TrackedSubject tracked, const Span& span) {
  tracked.subject.id.value = fmt::format("{}#{}", tracked.key, span.number);
  tracked.subject.stopped = tracked.subject.stopped || std::ranges::any_of(tracked.holders, &GpuProcess::stopped);
  subjects_.push_back(std::move(tracked));
}

// ---- each GPU

void SubjectTracker::look_at_gpus(const std::vector<Device>& scope, const std::vector<GpuUse>& uses) {
  std::map<std::string, Span> spans;
  for (const Device& device : scope) {
    std::string key = "gpu:" + device.id().value;
    TrackedSubject tracked{.key = key, .title = "GPU " + device.label(), .job = {}, .subject = {}, .holders = {}};
    tracked.subject.scope = {{device}, tracked.title, {}};
    const auto before = spans_.find(tracked.key);
    Span span = before != spans_.end() ? std::move(before->second) : Span{};
    const GpuUse* use = use_of(uses, device);
    if (use != nullptr && use->listed) {
      ProcessIds now = names_of(*use);
      for (const GpuProcess& one : use->processes)
        if (holds(one) && !left_alone(one)) tracked.holders.push_back(one);
      if (!std::ranges::includes(span.seen, now)) span.number = 0;  // a new process: another subject
      span.seen = std::move(now);
    } else {
      tracked.subject.scope.not_judged =
          "the processes on " + tracked.title + " are unknown: not judged until they are known";
      tracked.subject.scope.unseen = true;
    }
    if (span.number == 0) span.number = ++next_number_;
    const bool unseen = !tracked.subject.scope.not_judged.empty();
    const bool free = options_.free_too && options_.only.empty() && use != nullptr && names_of(*use).empty();
    if ((unseen && use != nullptr && use->reachable) || !tracked.holders.empty() || free) add(std::move(tracked), span);
    spans.emplace(std::move(key), std::move(span));
  }
  spans_ = std::move(spans);
}

// ---- each job

std::vector<SubjectTracker::Place> SubjectTracker::places_of(const std::vector<GpuUse>& uses) const {
  std::vector<Place> places;
  places.reserve(uses.size());
  for (const GpuUse& use : uses) {
    Place& place = places.emplace_back();
    place.use = &use;
    for (const GpuProcess& one : use.processes)
      if (!one.job.empty() && (holds(one) || draws(one)))
        (holds(one) ? place.holders : place.drawers)[one.job].push_back(&one);
    place.names = names_of(use);
    const auto before = before_.find(use.device.id());
    if (before == before_.end())
      place.arrivals = place.names;
    else
      std::ranges::set_difference(place.names, before->second, std::back_inserter(place.arrivals));
  }
  return places;
}

void SubjectTracker::note_where_jobs_are(const Place& place) {
  const GpuUse& use = *place.use;
  const DeviceId id = use.device.id();
  for (const auto& [job, holders] : place.holders) {
    Span& span = spans_[std::string(job)];
    span.title = holders.back()->job_title;
    span.devices.insert_or_assign(id, use.device);
  }
  for (auto& [job, span] : spans_) {
    const bool draws = place.drawers.contains(job);
    if (draws) span.drawn.insert_or_assign(id, use.device);
    // Only a complete list of processes takes a GPU away from a job.
    if (use.complete && !place.holders.contains(job)) span.devices.erase(id);
    if (use.complete && !draws) span.drawn.erase(id);
  }
}

// Each new process on a GPU of the job counts, of this job or of another; of drawing processes, only the job's own.
bool SubjectTracker::is_anew(const std::string& job, Span& span, const std::vector<Place>& places) const {
  const auto was_there = [&](const ProcessId& name) {
    return std::ranges::binary_search(span.seen, name) || std::ranges::any_of(span.where, [&](const DeviceId& id) {
             const auto before = before_.find(id);
             return before != before_.end() && std::ranges::binary_search(before->second, name);
           });
  };
  bool anew = false;
  ProcessIds drawers;
  std::vector<DeviceId> where;
  for (const Place& place : places) {
    const DeviceId id = place.use->device.id();
    if (!span.devices.contains(id) && !span.drawn.contains(id)) continue;
    const bool is_known = std::ranges::find(span.where, id) != span.where.end();
    anew = anew || !std::ranges::all_of(is_known ? place.arrivals : place.names, was_there);
    where.push_back(id);
    if (const auto own = place.drawers.find(job); own != place.drawers.end())
      for (const GpuProcess* one : own->second) drawers.push_back(one->id());
  }
  std::ranges::sort(drawers);
  anew = anew || !std::ranges::all_of(drawers, was_there);
  span.seen = std::move(drawers);
  span.where = std::move(where);
  return anew;
}

// A job has all its GPUs, also those that are not watched and those on which it only draws: who works there does not
// idle here. Who draws and computes nowhere, as a desktop does, is not a job.
void SubjectTracker::look_at_jobs(const std::vector<Device>& scope, const std::vector<GpuUse>& uses) {
  const std::vector<Place> places = places_of(uses);
  for (int pass = 0; pass < 2; ++pass)  // the second for those who draw on a GPU that comes before the one they hold
    for (const Place& place : places)
      if (!is_split(uses, place.use->device) || is_among(scope, place.use->device.id())) note_where_jobs_are(place);
  std::erase_if(spans_, [](const auto& one) { return one.second.devices.empty(); });
  for (auto& [job, span] : spans_) {
    if (is_anew(job, span, places)) span.number = 0;
    if (span.number == 0) span.number = ++next_number_;
    if (!scope.empty())  // else the driver is away, and it is what it was
      span.watched =
          std::ranges::any_of(scope, [&](const Device& device) { return span.devices.contains(device.id()); });
    if (span.watched) add_job(job, span, scope, places, uses);
  }
  before_.clear();
  for (const Place& place : places) before_.insert_or_assign(place.use->device.id(), place.names);
}

void SubjectTracker::add_job(const std::string& job, Span& span, const std::vector<Device>& scope,
                             const std::vector<Place>& places, const std::vector<GpuUse>& uses) {
  TrackedSubject tracked{
      .key = std::string(kJobKey) + job, .title = {}, .job = shown_job(job), .subject = {}, .holders = {}};
  std::vector<Device> unseen;
  std::vector<Device> maybe;
  bool spared = false;
  std::unordered_set<pid_t> added;
  std::map<DeviceId, Device> all = span.devices;
  all.insert(span.drawn.begin(), span.drawn.end());
  for (const auto& [id, device] : all) {
    tracked.subject.scope.devices.push_back(device);
    const auto place = std::ranges::find_if(places, [&](const Place& one) { return one.use->device.is(device.id()); });
    if (place == places.end() || !place->use->listed) unseen.push_back(device);
    if (place == places.end()) continue;
    if (const auto drawers = place->drawers.find(job); drawers != place->drawers.end())
      for (const GpuProcess* one : drawers->second) tracked.subject.stopped = tracked.subject.stopped || one->stopped;
    const bool watched = is_among(scope, id);
    const auto holders = place->holders.find(job);
    if (holders == place->holders.end()) continue;
    added.reserve(added.size() + holders->second.size());
    tracked.holders.reserve(tracked.holders.size() + holders->second.size());
    for (const GpuProcess* one : holders->second) {
      spared = spared || left_alone(*one);
      tracked.subject.stopped = tracked.subject.stopped || one->stopped;
      if (watched && added.insert(one->pid).second) tracked.holders.push_back(*one);
    }
  }
  if (spared) return;  // a job is left alone as a whole
  std::ranges::sort(tracked.subject.scope.devices, {},
                    [](const Device& one) { return std::pair(one.index, one.mig_index); });
  for (const GpuUse& use : uses)
    if ((use.reachable && !use.unproven ? !use.complete : use.may_have_job(job)) && !is_split(uses, use.device) &&
        !all.contains(use.device.id()))
      maybe.push_back(use.device);
  tracked.title = span.title + (tracked.holders.empty() ? "" : " of " + users_of(tracked.holders)) + " on " +
                  labels(tracked.subject.scope.devices);
  tracked.subject.scope.why = "the job has a context there";
  if (!unseen.empty()) {
    tracked.subject.scope.not_judged = fmt::format(
        "the processes on {} are unknown: {} is not judged until they are known", labels(unseen), span.title);
  } else if (!maybe.empty() && options_.stricter_with_more) {
    for (const Device& device : maybe) tracked.subject.scope.devices.push_back(device);
  } else if (!maybe.empty()) {
    tracked.subject.scope.not_judged =
        fmt::format("it is unknown whether {} works on {}: not judged until it is known", span.title, labels(maybe));
  }
  tracked.subject.scope.unseen = !tracked.subject.scope.not_judged.empty();
  add(std::move(tracked), span);
}

const std::vector<TrackedSubject>& SubjectTracker::look(const std::vector<Device>& scope,
                                                        const std::vector<GpuUse>& uses) {
  subjects_.clear();
  options_.per == Per::gpu ? look_at_gpus(scope, uses) : look_at_jobs(scope, uses);
  return subjects_;
}

const TrackedSubject* SubjectTracker::find(const SubjectId& id) const {
  const auto found = std::ranges::find_if(subjects_, [&](const TrackedSubject& one) { return one.subject.id == id; });
  return found == subjects_.end() ? nullptr : &*found;
}

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
      not_judged(job.title + " is not judged: its GPUs are unknown");
    for (std::size_t i = 0; i < job.files.size(); ++i) {
      const AllocatedGpu& gpu = job.files[i];
      const GpuUse* use = use_of(uses, gpu);
      if (use == nullptr) {
        not_judged(fmt::format("{}{} is not visible: {} is not judged", gpu.render ? "/dev/dri/renderD" : "/dev/nvidia",
                               gpu.minor, job.title));
        continue;
      }
      if (job.by_index && use->device.index != job.gpus[i])
        not_judged(fmt::format("GPU {} is not the driver's GPU {}: {} is not judged", job.gpus[i], use->device.index,
                               job.title));
      if (is_split(uses, use->device)) {
        not_judged(fmt::format("GPU {} is split (MIG), and it is unknown which part {} has: not judged",
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
