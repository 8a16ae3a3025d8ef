#include "session/status_extras.h"

#include <string>
#include <utility>

#include "base/users.h"
#include "lease/folder.h"
#include "rule/timeline.h"
#include "sense/nvml/meters.h"
#include "sense/processes.h"

namespace lull {

IdleTimes::IdleTimes(Duration every) : longest_gap_(longest_gap(every)) {}

void IdleTimes::see(const Snapshot& snapshot) {
  const bool gap = last_ && snapshot.at - *last_ > longest_gap_;
  last_ = snapshot.at;
  std::map<DeviceId, Idle> idle;
  for (std::size_t i = 0; i < snapshot.readings.size(); ++i) {
    const DeviceId id = snapshot.inventory->devices[i].id();
    const Reading& reading = snapshot.readings[i];
    if (!(reading[Metric::util] < kIdleBelow)) continue;
    const auto before = idle_.find(id);
    const bool anew = before == idle_.end() || gap;
    idle[id] = anew ? Idle{.since = snapshot.at - reading.idle_before.value_or(Duration::zero()),
                           .watched = reading.idle_before.has_value(),
                           .or_longer = gap || !busy_.contains(id)}
                    : Idle{.since = before->second.since, .watched = true, .or_longer = before->second.or_longer};
  }
  idle_ = std::move(idle);
  busy_.clear();
  for (std::size_t i = 0; i < snapshot.readings.size(); ++i)
    if (snapshot.readings[i][Metric::util] >= kIdleBelow) busy_.insert(snapshot.inventory->devices[i].id());
}

void IdleTimes::tell(const Device& device, StatusExtra& extra) const {
  const auto found = idle_.find(device.id());
  if (found == idle_.end() || !found->second.watched) return;
  extra.idle_for = *last_ - found->second.since;
  extra.idle_for_longer = found->second.or_longer;
}

void Histories::see(const Snapshot& snapshot) {
  constexpr std::size_t kKept = 20;
  for (std::size_t i = 0; i < snapshot.readings.size(); ++i) {
    std::vector<float>& one = of_[snapshot.inventory->devices[i].id()];
    if (one.size() == kKept) one.erase(one.begin());
    one.push_back(static_cast<float>(snapshot.readings[i][Metric::util]));
  }
}

std::vector<float> Histories::of(const Device& device) const {
  const auto found = of_.find(device.id());
  return found == of_.end() ? std::vector<float>() : found->second;
}

std::vector<StatusExtra> status_extras(const Snapshot& snapshot, std::span<const std::size_t> rows,
                                       const IdleTimes& idle, std::string& unread) {
  const auto leases = read_leases();
  unread = leases ? "" : "leases are not shown: " + leases.error().message();
  Fillers fillers;
  std::vector<StatusExtra> extras;
  for (const std::size_t row : rows) {
    const Device& device = snapshot.inventory->devices[row];
    StatusExtra extra;
    extra.lease_unknown = !leases;
    idle.tell(device, extra);
    if (leases)
      for (const LeaseInfo* lease : leases_of(device, *leases))
        extra.leases.push_back(
            {user_name(lease->owner), lease->record.holder.pid, lease->record.command, lease->record.since});
    for (const GpuProcess& process : snapshot.readings[row].processes.value_or(std::vector<GpuProcess>{}))
      if (process.here && fillers.contain(process.pid)) extra.fillers.insert(process.pid);
    extras.push_back(std::move(extra));
  }
  return extras;
}

}  // namespace lull
