#include "session/slurm_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/text.h"
#include "base/users.h"
#include "slurm/node_list.h"

namespace lull {

SlurmSettings slurm_settings(std::string_view text) {
  SlurmSettings settings;
  for (const auto& [word, source] : {std::pair(std::string_view("gpustat:"), SlurmSettings::Source::gpustat),
                                     std::pair(std::string_view("dcgm:"), SlurmSettings::Source::dcgm)})
    if (text.starts_with(word)) {
      settings.source = source;
      text.remove_prefix(word.size());
    }
  settings.folder = slurm::allocation_folder(text);
  settings.node = slurm::node_name();
  return settings;
}

// What Slurm does not say of a job may be any name.
bool SlurmJobs::left_alone(const slurm::Allocation& job) const {
  for (const auto& [names, name] :
       {std::pair(&settings_.except_partitions, &job.partition), std::pair(&settings_.except_qos, &job.qos),
        std::pair(&settings_.except_accounts, &job.account)})
    if (!names->empty() && (name->empty() || names->contains(*name))) return true;
  const uid_t user = job.uid.value_or(0);
  if (!job.uid) return !settings_.except_users.empty() || !settings_.only_users.empty();  // it may be any of them
  return settings_.except_users.contains(user) ||
         (!settings_.only_users.empty() && !settings_.only_users.contains(user));
}

namespace {

// Which run of a job it is.
std::string run_of(const slurm::Allocation& one) {
  return fmt::format("{}/{}", one.restarts ? std::to_string(*one.restarts) : "?", one.start.time_since_epoch().count());
}

}  // namespace

std::vector<AllocatedJob> SlurmJobs::look(Instant now, WallTime wall) {
  slurm::Allocations found;
  if (settings_.source == SlurmSettings::Source::lull) {
    auto read = slurm::read_allocations(settings_.folder);
    if (read)
      found = *std::move(read);
    else
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
    if (left_alone(one)) continue;
    const std::string user = !one.user.empty() ? one.user : one.uid ? user_name(*one.uid) : "?";
    jobs.push_back({.job = one.name(),
                    .run = run_of(one),
                    .title = fmt::format("Slurm job {} of {}", one.job, printable(user)),
                    .owner = one.uid,
                    .gpus = one.gpus});
  }
  return jobs;
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
    const std::string name = one.name() + "@" + run_of(one);
    const auto known = began_.find(name);
    const bool told = one.start != WallTime{} && one.start < wall;
    const Duration ago = told ? std::chrono::duration_cast<Duration>(wall - one.start) : Duration::zero();
    began[name] = known != began_.end() ? known->second : now - ago;
  }
  began_ = std::move(began);
}

Instant SlurmJobs::not_before(std::string_view name) const {
  const slurm::Allocation* job = find(name);
  const auto began = job == nullptr ? began_.end() : began_.find(job->name() + "@" + run_of(*job));
  return began == began_.end() ? Instant::max() : began->second + settings_.delay;
}

// Where its nodes are not known it is judged here alone, and nothing is done to it through Slurm (slurm/job_step.h).
bool SlurmJobs::leads(const slurm::Allocation& job) {
  if (job.nodes.empty()) return true;
  const auto nodes = slurm::parse_node_list(job.nodes);
  return nodes && nodes->front() == job.node;
}

}  // namespace lull
