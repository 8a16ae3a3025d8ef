#include "session/who.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/text.h"
#include "base/users.h"
#include "gpu/short_command.h"
#include "lease/folder.h"
#include "view/holders.h"

namespace lull {
namespace {

constexpr Duration kLeasesEvery = std::chrono::seconds(1);

// "slurm-123" where a cgroup is one of Slurm's: …/job_123/step_0/…
std::string slurm_job(std::string_view cgroup) {
  const std::size_t at = cgroup.find("/job_");
  if (at == std::string_view::npos || cgroup.find("slurm") == std::string_view::npos) return {};
  const std::string_view rest = cgroup.substr(at + 5);
  const std::string_view number = rest.substr(0, rest.find('/'));
  if (number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos) return {};
  return "slurm-" + std::string(number);
}

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

WhoFinder::WhoFinder() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) host_ = one_word(name.data());
}

void WhoFinder::look(Instant at) {
  if (looked_ != Instant::min() && at - looked_ < kLeasesEvery) return;
  looked_ = at;
  const auto leases = read_leases();
  leases_.clear();
  if (!leases) return;  // a folder that cannot be read is no reason to stop
  for (const LeaseInfo& lease : *leases)
    leases_[lease.gpu] = {one_word(lease.record.id), one_word(user_name(lease.owner))};
}

trace::Who WhoFinder::find(const Snapshot& snapshot, std::size_t device) const {
  trace::Who who;
  who.host = host_;
  const auto lease = leases_.find(snapshot.inventory->devices[device].uuid);
  if (lease != leases_.end()) who.lease = lease->second.id;
  const Reading& reading = snapshot.readings[device];
  if (!reading.tenants) return who;
  const std::vector<Tenant> tenants = holders(reading);
  if (tenants.empty()) {
    // Where the driver may leave processes out, nobody is not known.
    if (!reading.processes_hidden) who.users = who.pids = trace::kNobodyText;
    return who;
  }
  std::set<std::string> users;
  std::set<std::string> jobs;
  std::uint64_t most = 0;
  bool all_named = true;
  for (const Tenant& tenant : tenants) {
    who.pids += (who.pids.empty() ? "" : " ") + std::to_string(tenant.pid);
    const ProcessInfo* const process = known_process(tenant, snapshot);
    std::string job;
    if (process != nullptr) {
      users.insert(one_word(process->user));
      job = slurm_job(process->cgroup);
      if (job.empty() && !process->container.empty()) job = "container-" + one_word(process->container);
      // What most of the memory belongs to names the row.
      if (who.command.empty() || tenant.memory_bytes.value_or(0) > most)
        who.command = short_command(process->arguments, process->name);
      most = std::max(most, tenant.memory_bytes.value_or(0));
    }
    all_named = all_named && !job.empty();
    if (!job.empty()) jobs.insert(job);
  }
  if (lease != leases_.end() && users.empty()) users.insert(lease->second.user);
  who.users = joined(users);
  // A name is a job's only where it is that of all who are here.
  if (all_named && jobs.size() == 1)
    who.job = *jobs.begin();
  else if (jobs.empty())
    who.job = who.lease;
  return who;
}

}  // namespace lull
