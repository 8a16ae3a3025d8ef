#include "jobs/shares.h"

#include <algorithm>
#include <cmath>

namespace lull {

void JobShares::look(const Snapshot& snapshot, const std::vector<GpuUse>& uses, const JobOf& job_of) {
  std::vector<Account> before = std::exchange(accounts_, {});
  const auto asked = [](const Reading& one) { return one.shares_absence != Absence::not_asked; };
  if (std::ranges::none_of(snapshot.readings, asked)) return;
  for (std::size_t i = 0; i < uses.size() && i < snapshot.readings.size(); ++i) {
    Account& account = accounts_.emplace_back(Account{.device = uses[i].device});
    if (!asked(snapshot.readings[i])) continue;
    const auto same =
        std::ranges::find_if(before, [&](const Account& one) { return uses[i].device.is(one.device.id()); });
    look_at(account, same != before.end() ? same->owners : std::nullopt, snapshot.readings[i], uses[i], job_of);
  }
}

JobShares::Owners JobShares::owners_of(const GpuUse& use, const JobOf& job_of) {
  Owners owners;
  for (const GpuProcess& one : use.processes) {
    if (one.proof == Proof::stale) continue;  // it has ended; a share of its pid is unattributed
    auto job = one.mps_server ? std::nullopt : job_of(one);
    // On two parts of a GPU one process is listed twice.
    const auto [place, is_new] = owners.try_emplace(one.pid, Owner{one.start_ticks, job});
    if (!is_new && place->second.job != job) place->second.job.reset();
  }
  return owners;
}

void JobShares::look_at(Account& account, const std::optional<Owners>& before, const Reading& reading,
                        const GpuUse& use, const JobOf& job_of) {
  if (use.listed && !use.hides) account.owners = owners_of(use, job_of);
  account.absence = reading.device_absence != Absence::none ? reading.device_absence : reading.shares_absence;
  if (account.absence != Absence::none) return;
  if (use.hides)
    account.absence = Absence::hidden;
  else if (!account.owners || !before)
    account.absence = Absence::untold;
  else if (!reading.asleep)
    add_shares(account, *before, reading);
}

void JobShares::add_shares(Account& account, const Owners& before, const Reading& reading) {
  const auto is_untold = [](const auto& one) { return !one.second.job; };
  Owners ended;  // whose last work may not be listed
  for (const auto& [pid, owner] : before) {
    const auto now = account.owners->find(pid);
    if (now == account.owners->end() || now->second.start_ticks != owner.start_ticks) ended.emplace(pid, owner);
  }
  // Utilisation and shares are not measured alike: a part of it may be nobody's. More than that may be the job's.
  double total = 0;
  for (const ProcessShare& share : reading.shares) total += std::isnan(share.kernels) ? 0 : share.kernels;
  const double nobodys = total > 0 ? std::clamp(total / 4, 2.0, 10.0) : 0;
  if (std::ranges::any_of(*account.owners, is_untold) || std::ranges::any_of(ended, is_untold) ||
      !(reading.unlisted_util <= nobodys))
    account.absence = Absence::untold;
  for (const ProcessShare& share : reading.shares) {
    const auto now = account.owners->find(share.pid);
    const auto then = ended.find(share.pid);
    const bool is_here = now != account.owners->end();
    const bool was_here = then != ended.end();
    // A pid of no process, or of two in this time.
    if (is_here == was_here && (!is_here || now->second.job != then->second.job)) account.absence = Absence::untold;
    if (account.absence != Absence::none) return;
    const std::string job = is_here ? *now->second.job : *then->second.job;
    if (was_here) ended.erase(then);
    if (std::isnan(share.percent))
      account.doubtful[job] = Absence::implausible;
    else
      account.used[job] += share.percent;
  }
  for (const auto& [pid, owner] : ended)
    if (owner.job) account.doubtful.try_emplace(*owner.job, Absence::untold);
}

void JobShares::add_to(Facts& facts, const std::string& job, const std::vector<Device>& scope) const {
  double most = 0;
  bool is_there = false;
  bool others_work = false;
  Absence why = accounts_.empty() ? Absence::not_asked : scope.empty() ? Absence::not_covered : Absence::none;
  for (const Device& device : scope) {
    const auto account =
        std::ranges::find_if(accounts_, [&](const Account& one) { return one.device.is(device.id()); });
    if (account == accounts_.end()) {
      if (why == Absence::none) why = Absence::lost;
      continue;
    }
    Absence missing = account->absence;
    if (missing == Absence::none)
      if (const auto doubt = account->doubtful.find(job); doubt != account->doubtful.end()) missing = doubt->second;
    if (missing != Absence::none) why = missing;
    if (account->owners)
      for (const auto& [pid, owner] : *account->owners) is_there = is_there || owner.job == job;
    for (const auto& [who, used] : account->used) {
      if (who == job) most = std::max(most, std::min(used, 100.0));
      others_work = others_work || (who != job && used > 0);
    }
  }
  // Who works there may do so for a job that has no process there: a container that it started.
  if (why == Absence::none && !is_there && others_work) why = Absence::untold;
  if (why == Absence::none)
    facts.set(Metric::job_util, most);
  else
    facts.miss(Metric::job_util, why);
}

}  // namespace lull
