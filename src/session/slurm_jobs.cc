#include "session/slurm_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fd.h"
#include "base/text.h"
#include "base/users.h"

namespace lull {

SlurmSettings slurm_settings(std::string_view text) {
  SlurmSettings settings;
  for (const auto& [word, source] : {std::pair(std::string_view("gpustat:"), SlurmSettings::Source::gpustat),
                                     std::pair(std::string_view("dcgm:"), SlurmSettings::Source::dcgm)})
    if (text.starts_with(word)) {
      settings.source = source;
      text.remove_prefix(word.size());
    }
  // By default, files of other prologs are read as well.
  if (text.empty() && settings.source == SlurmSettings::Source::lull && !environment_variable("LULL_SLURM_DIR")) {
    settings.others.emplace_back(SlurmSettings::Source::gpustat, "/run/gpustat");
    if (const auto folder = environment_variable("DCGM_HPC_JOB_MAPPING_DIR"); folder && !folder->empty())
      settings.others.emplace_back(SlurmSettings::Source::dcgm, *folder);
  }
  settings.folder = slurm::allocation_folder(text);
  settings.node = slurm::node_name();
  return settings;
}

SlurmJobs::SlurmJobs(SlurmSettings settings)
    : settings_(std::move(settings)),
      numbers_(settings_.gpus
                   ? slurm::GpuNumbers(*settings_.gpus)
                   : slurm::GpuNumbers(settings_.source == SlurmSettings::Source::lull ? settings_.folder
                                                                                       : slurm::allocation_folder())) {}

// What the Prolog is not told (the QOS, say) squeue says before anything is done (slurm/verb.h). Of a job that Slurm is
// not asked about it may be any name.
bool SlurmJobs::leaves_alone(const slurm::Allocation& job) const {
  const slurm::ActPolicy& policy = settings_.policy;
  for (const auto& [names, name] :
       {std::pair(&policy.except_partitions, &job.partition), std::pair(&policy.except_qos, &job.qos),
        std::pair(&policy.except_accounts, &job.account)})
    if (name->empty() ? !names->empty() && job.nodes.empty() : names->contains(*name)) return true;
  const uid_t user = job.uid.value_or(0);
  if (!job.uid) return !settings_.except_users.empty() || !settings_.only_users.empty();  // it may be any of them
  return settings_.except_users.contains(user) ||
         (!settings_.only_users.empty() && !settings_.only_users.contains(user));
}

std::vector<AllocatedJob> SlurmJobs::look(Instant now, WallTime wall) {
  slurm::Allocations found;
  if (settings_.source == SlurmSettings::Source::lull) {
    auto read = slurm::read_allocations(settings_.folder);
    if (read) found = *std::move(read);
    by_driver_.clear();
    add_others(found);
    if (!read && (found.all.empty() || read.error().errno_value != ENOENT))
      found.refused.push_back(read.error().errno_value == ENOENT
                                  ? settings_.folder + " is not there yet: `lull slurm prolog` makes it"
                                  : printable(read.error().message()));
  } else {
    const bool dcgm = settings_.source == SlurmSettings::Source::dcgm;
    found = dcgm ? slurm::read_dcgm_mapping(settings_.folder, settings_.node)
                 : slurm::read_gpustat(settings_.folder, settings_.node);
  }
  all_ = std::move(found.all);
  for (const slurm::Allocation& one : all_)
    if (const auto asked = slurm::user_rule_of(one); !asked)
      found.refused.push_back(
          fmt::format("job {}: {}; the site's steps hold for it", one.job, printable(asked.error().message())));
  for (const std::string& text : found.refused)
    if (!said_.contains(text)) notes_.push_back(text);
  said_ = {found.refused.begin(), found.refused.end()};
  note_begins(now, wall);
  std::vector<AllocatedJob> jobs;
  for (const slurm::Allocation& one : all_) {
    if (leaves_alone(one) || (!one.gpus.empty() && !numbers_.asked())) continue;
    const std::string user = !one.user.empty() ? one.user : one.uid ? user_name(*one.uid) : "?";
    AllocatedJob& job =
        jobs.emplace_back(AllocatedJob{.job = one.name(),
                                       .run = one.run(),
                                       .title = fmt::format("Slurm job {} of {}", one.job, printable(user)),
                                       .owner = one.uid,
                                       .gpus = one.gpus});
    // DCGM counts by itself: one GPU has to have the same number in both.
    job.by_index = settings_.source == SlurmSettings::Source::dcgm || by_driver_.contains(one.job);
    const auto files = numbers_.files_of(one.gpus, one.start);
    if (!files) job.not_known = files.error().message();
    for (const slurm::GpuFile& file : files.value_or(std::vector<slurm::GpuFile>()))
      job.files.push_back({.minor = file.minor, .render = file.render});
  }
  return jobs;
}

// Ours know more, and come first.
void SlurmJobs::add_others(slurm::Allocations& found) {
  for (const auto& [source, folder] : settings_.others) {
    const bool dcgm = source == SlurmSettings::Source::dcgm;
    slurm::Allocations more =
        dcgm ? slurm::read_dcgm_mapping(folder, settings_.node) : slurm::read_gpustat(folder, settings_.node);
    for (slurm::Allocation& one : more.all) {
      if (std::ranges::find(found.all, one.job, &slurm::Allocation::job) != found.all.end()) continue;
      if (dcgm) by_driver_.insert(one.job);
      found.all.push_back(std::move(one));
    }
    found.refused.insert(found.refused.end(), more.refused.begin(), more.refused.end());
  }
}

std::map<std::string, std::uint64_t> SlurmJobs::sluids() const {
  std::map<std::string, std::uint64_t> all;
  for (const slurm::Allocation& one : all_)
    if (!one.sluid.empty()) all.emplace(one.sluid, one.job);
  return all;
}

void SlurmJobs::drop(const std::string& name) {
  const slurm::Allocation* job = find(name);
  if (job == nullptr || settings_.source != SlurmSettings::Source::lull || job->nodes.empty()) return;
  notes_.push_back(fmt::format("Slurm knows no job {}: its file is removed; its Epilog has not done it", job->job));
  if (const auto removed = slurm::remove_allocation(settings_.folder, job->job); !removed)
    notes_.push_back(printable(removed.error().message()));
}

const slurm::Allocation* SlurmJobs::find(std::string_view name) const {
  const auto found = std::ranges::find_if(all_, [&](const slurm::Allocation& one) { return one.name() == name; });
  return found == all_.end() ? nullptr : &*found;
}

std::optional<slurm::UserRule> SlurmJobs::asked_for(std::string_view name) const {
  const slurm::Allocation* job = find(name);
  return job == nullptr ? std::nullopt : slurm::user_rule_of(*job).value_or(std::nullopt);
}

// A start in the future, or none at all, is now.
void SlurmJobs::note_begins(Instant now, WallTime wall) {
  std::map<std::string, Instant> began;
  for (const slurm::Allocation& one : all_) {
    const std::string name = one.name() + "@" + one.run();
    const auto known = began_.find(name);
    const bool told = one.start != WallTime{} && one.start < wall;
    const Duration ago = told ? std::chrono::duration_cast<Duration>(wall - one.start) : Duration::zero();
    began[name] = known != began_.end() ? known->second : now - ago;
  }
  began_ = std::move(began);
}

Instant SlurmJobs::not_before(std::string_view name) const {
  const slurm::Allocation* job = find(name);
  const auto began = job == nullptr ? began_.end() : began_.find(job->name() + "@" + job->run());
  return began == began_.end() ? Instant::max() : began->second + settings_.delay;
}

}  // namespace lull
