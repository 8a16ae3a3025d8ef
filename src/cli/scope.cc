#include "cli/scope.h"

#include <algorithm>
#include <utility>

#include "sense/select.h"
#include "sense/visible.h"

namespace lull {
namespace {

std::vector<Device> devices_at(const Inventory& inventory, const std::vector<std::size_t>& places) {
  std::vector<Device> devices;
  devices.reserve(places.size());
  for (const std::size_t place : places) devices.push_back(inventory.devices[place]);
  return devices;
}

std::vector<pid_t> pids_of(const Reading& reading) {
  std::vector<pid_t> pids;
  if (!reading.tenants) return pids;
  for (const Tenant& tenant : *reading.tenants) pids.push_back(tenant.pid);
  return pids;
}

}  // namespace

ScopeFinder::ScopeFinder(std::string gpus, std::optional<std::string> cuda_visible_devices,
                         std::optional<std::string> cuda_device_order, IsOurs is_ours)
    : gpus_(std::move(gpus)),
      visible_(std::move(cuda_visible_devices)),
      order_(std::move(cuda_device_order)),
      is_ours_(std::move(is_ours)) {}

void ScopeFinder::resolve(const Inventory& inventory) {
  trouble_.clear();
  note_.clear();
  scope_ = {};
  if (inventory.devices.empty()) return;
  if (!gpus_.empty()) {
    const auto chosen = select_devices(gpus_, inventory);
    if (!chosen) {
      trouble_ = "--gpus: " + chosen.error().message();
      return;
    }
    scope_ = {devices_at(inventory, *chosen), "--gpus"};
    return;
  }
  const Visible visible = visible_devices(visible_, order_, inventory);
  all_ = {devices_at(inventory, visible.devices), visible_ ? "CUDA_VISIBLE_DEVICES" : "all of them"};
  note_ = visible.note;
  if (visible_ && visible.devices.empty()) {
    trouble_ = "CUDA_VISIBLE_DEVICES hides every GPU: there is nothing to judge";
    note_.clear();
  }
  scope_ = all_;
}

void ScopeFinder::use_contexts(const Snapshot& snapshot) {
  const std::vector<Device>& devices = snapshot.inventory->devices;
  pids_.resize(devices.size());
  bool changed = false;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    std::vector<pid_t> pids = pids_of(snapshot.readings[i]);
    if (pids == pids_[i]) continue;
    pids_[i] = std::move(pids);
    changed = true;
  }
  if (!changed) return;  // who is on which GPU is looked up only when that changes
  std::vector<std::string> now;
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (std::ranges::any_of(pids_[i], is_ours_)) now.push_back(devices[i].uuid);
  if (now.empty() || now == contexts_) return;
  contexts_ = std::move(now);
  scope_ = {{}, "the job has a context there"};
  for (const Device& device : all_.devices)
    if (std::ranges::count(contexts_, device.uuid) > 0) scope_.devices.push_back(device);
  if (scope_.devices.empty()) scope_ = all_;
}

const Scope& ScopeFinder::find(const Snapshot& snapshot) {
  if (snapshot.inventory != inventory_) {
    inventory_ = snapshot.inventory;
    resolve(*inventory_);
    pids_.clear();
    contexts_.clear();
  }
  if (needs_tenants() && !inventory_->devices.empty()) use_contexts(snapshot);
  return scope_;
}

}  // namespace lull
