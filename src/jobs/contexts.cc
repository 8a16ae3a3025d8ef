#include "jobs/contexts.h"

#include <algorithm>

#include "act/cgroup.h"
#include "gpu/empty_card.h"
#include "sense/device_file.h"

namespace lull {
namespace {

// Whether a list without the job's processes proves that it has none there. Where the driver may leave processes out,
// or names some by numbers that mean nothing here, only an empty card does.
bool conclusive(const Reading& reading) {
  const bool strangers = std::ranges::any_of(*reading.tenants, [](const Tenant& tenant) { return !tenant.here; });
  return (!reading.processes_hidden && !strangers) || reading[Metric::mem_used] < kEmptyCard;
}

}  // namespace

void JobContexts::use(const Inventory& inventory) {
  std::vector<Place> places;
  places.reserve(inventory.devices.size());
  for (const Device& device : inventory.devices) {
    // By its name first. What was known by its place alone, while it had no name, is the same card too.
    std::optional<Place> found;
    for (const bool by_name : {true, false})
      for (auto one = places_.begin(); one != places_.end();) {
        if (by_name ? one->device.id() != device.id() : !device.is(one->device.id())) {
          ++one;
          continue;
        }
        if (found)
          found->held = found->held || one->held;
        else
          found = std::move(*one);
        one = places_.erase(one);
      }
    Place place = std::move(found).value_or(Place{});
    place.device = device;
    place.listed = true;
    places.push_back(std::move(place));
  }
  for (Place& place : places_) {
    if (!place.held) continue;
    place.listed = false;
    places.push_back(std::move(place));
  }
  places_ = std::move(places);
}

void JobContexts::look_at(Place& place, const Reading& reading, const IsOurs& is_ours) {
  place.forbidden = reading.device_absence == Absence::no_permission;
  switch (reading.device_absence) {
    case Absence::lost:
    case Absence::reset_required:
    case Absence::no_permission:
    case Absence::no_driver:
    case Absence::mismatch: break;
    default: place.reachable = true;
  }
  place.settled = reading.asleep;  // nothing runs there; what the job has, it keeps
  if (reading.asleep) place.looked = true;
  if (!reading.tenants || reading.asleep || reading.device_absence != Absence::none) return;
  place.looked = true;
  if (!is_ours) return;
  std::vector<Name> ours;
  for (const Tenant& tenant : *reading.tenants) {
    if (!tenant.here) continue;
    // The process that is asked about is the one whose start time is kept, or it has ended.
    const auto entry = read_process_entry(tenant.pid, root_);
    if (entry && is_ours(tenant.pid)) ours.emplace_back(tenant.pid, entry->start_ticks);
  }
  place.settled = !ours.empty() || conclusive(reading);
  if (!ours.empty()) {
    place.held = ever_ = true;
    place.ours = std::move(ours);
  } else if (place.settled) {
    place.held = false;
    place.ours.clear();
  }
}

void JobContexts::look_at_files(Instant at, const IsOurs& is_ours) {
  for (Place& place : places_) place.opened = false;
  if (!is_ours) return look_at_closed(at);
  std::vector<std::size_t> dark;
  for (std::size_t i = 0; i < inventory_->devices.size(); ++i)
    if (!places_[i].reachable && inventory_->devices[i].kind == DeviceKind::gpu) dark.push_back(i);
  if (dark.empty()) return;
  const FileHolders& found = dark_cards_.look(inventory_, dark, at);
  const bool hidden = std::ranges::any_of(found.hidden, is_ours);
  for (std::size_t i = 0; i < dark.size(); ++i)
    places_[dark[i]].opened = hidden || std::ranges::any_of(found.holders[i], is_ours);
}

// Without a job: whoever works on a card that tells us nothing, its work counts. Nobody of ours can where we may not
// open it; somebody else does where they are seen to hold it.
void JobContexts::look_at_closed(Instant at) {
  std::vector<std::size_t> barred;
  for (std::size_t i = 0; i < inventory_->devices.size(); ++i) {
    Place& place = places_[i];
    if (place.reachable || !place.forbidden) continue;
    place.opened = open_to_us(*inventory_, i, root_);
    if (!place.opened && place.device.kind == DeviceKind::gpu) barred.push_back(i);
  }
  if (barred.empty()) return;
  const FileHolders& found = dark_cards_.look(inventory_, barred, at);
  for (std::size_t i = 0; i < barred.size(); ++i) places_[barred[i]].opened = !found.holders[i].empty();
}

void JobContexts::look(const Snapshot& snapshot, const IsOurs& is_ours) {
  if (snapshot.inventory != inventory_) {
    inventory_ = snapshot.inventory;
    use(*inventory_);
  }
  for (std::size_t i = 0; i < inventory_->devices.size() && i < snapshot.readings.size(); ++i)
    look_at(places_[i], snapshot.readings[i], is_ours);
  look_at_files(snapshot.at, is_ours);
}

std::vector<Device> JobContexts::held() const {
  std::vector<Device> devices;
  for (const Place& place : places_)
    if (place.held) devices.push_back(place.device);
  return devices;
}

std::vector<Device> JobContexts::unseen() const {
  std::vector<Device> devices;
  for (const Place& place : places_)
    if (place.listed && (place.reachable || place.opened) && !place.settled && !place.held)
      devices.push_back(place.device);
  return devices;
}

std::vector<Device> JobContexts::closed() const {
  std::vector<Device> devices;
  for (const Place& place : places_)
    if (place.listed && place.forbidden && !place.reachable && !place.opened) devices.push_back(place.device);
  return devices;
}

std::vector<Device> JobContexts::silent() const {
  std::vector<Device> devices;
  for (const Place& place : places_)
    if (place.listed && place.forbidden && !place.reachable && place.opened) devices.push_back(place.device);
  return devices;
}

bool JobContexts::blind() const {
  return !places_.empty() && std::ranges::none_of(places_, [](const Place& place) { return place.looked; });
}

std::optional<ProcessEntry> JobContexts::stopped(bool traced) const {
  for (const Place& place : places_)
    for (const auto& [pid, start] : place.ours) {
      const auto entry = read_process_entry(pid, root_);
      if (entry && entry->start_ticks == start && (entry->state == 'T' || (traced && entry->state == 't')))
        return *entry;
    }
  return std::nullopt;
}

bool JobContexts::frozen(std::vector<pid_t> others) const {
  for (const Place& place : places_)
    for (const auto& [pid, start] : place.ours) {
      const auto entry = read_process_entry(pid, root_);
      if (entry && entry->start_ticks == start) others.push_back(pid);
    }
  return !others.empty() && is_any_frozen(others, root_);
}

}  // namespace lull
