#include "sense/file_users.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "sense/kfd.h"
#include "sense/openers.h"
#include "sense/processes.h"

namespace lull {
namespace {

GpuProcess& entry_of(std::vector<GpuProcess>& processes, pid_t pid) {
  const auto found = std::ranges::find(processes, pid, &GpuProcess::pid);
  if (found != processes.end()) return *found;
  processes.push_back({.pid = pid, .here = false, .proof = Proof::unproven});
  return processes.back();
}

// A client with memory or work. One that a display server made and passed on, or that a login manager keeps, is of
// those who hold it beside them.
void add_client(const DrmClient& client, bool amd, const Root& root, std::vector<GpuProcess>& processes) {
  const bool worked = client.info.worked();
  if (!worked && client.info.memory_bytes.value_or(0) == 0) return;
  std::vector<pid_t> holders;
  for (const pid_t pid : client.holders)
    if (worked || !amd || !is_kfd_process(root, pid)) holders.push_back(pid);
  const auto only_draws = [&](pid_t pid) { return is_ignored_opener(pid, {}, root); };
  const bool drawn = std::ranges::all_of(holders, only_draws);
  bool counted = false;  // its memory
  for (const pid_t pid : holders) {
    if (!drawn && only_draws(pid)) continue;
    GpuProcess& process = entry_of(processes, pid);
    (drawn ? process.graphics : process.compute) = true;
    if (!std::exchange(counted, true) && client.info.memory_bytes)
      process.memory_bytes = process.memory_bytes.value_or(0) + *client.info.memory_bytes;
  }
}

}  // namespace

// All memory and work may be that of the processes listed so far. Rather no than yes.
bool FileUsers::explain(const Reading& reading) const {
  constexpr double kReserved = 512.0 * (1U << 20);  // by the driver, on an unused GPU
  double theirs = 0;
  for (const GpuProcess& process : processes_) {
    if (!process.memory_bytes) return false;
    theirs += static_cast<double>(*process.memory_bytes);
  }
  return absence_ == Absence::none && !hidden_ && reading[Metric::mem_used] - theirs <= kReserved &&
         (!processes_.empty() || reading[Metric::util] == 0);
}

void FileUsers::list(const Device& device, std::optional<std::uint32_t> kfd_gpu, const Needs& needs, Instant now,
                     const Reading& reading) {
  const bool fresh = needs.lists_every == Duration::zero();
  const std::optional<bool> first = first_pid_namespace(root_);
  hidden_ = first != true;
  processes_.clear();
  absence_ = missing_ = Absence::none;
  if (kfd_gpu) {
    KfdUsers users = read_kfd_users(root_, *kfd_gpu);
    absence_ = users.absence;
    processes_ = std::move(users.processes);
  }
  proofs_.begin_list();
  std::vector<DeviceFile> files;
  const auto prove = [&](std::span<GpuProcess> processes, bool numbers_are_ours) {
    if (processes.empty()) return;
    if (files.empty()) files = proof_files(device, root_);
    proofs_.look(processes, {.files = files, .numbers_are_ours = numbers_are_ours, .all = fresh}, root_);
  };
  prove(processes_, !hidden_);
  const std::size_t kfd_processes = processes_.size();
  const bool looks = reading.display_active == true || needs.all_clients ||
                     (needs.all_lists && !(needs.if_unexplained && explain(reading)));
  if (kfd_gpu && !looks) {
    missing_ = Absence::not_asked;
  } else if (device.render_minor && !device.pci.empty()) {
    const DrmUse use =
        clients_->of(*device.render_minor, device.pci, module_, fresh ? now : now - kHoldersServe, fresh);
    missing_ = use.absence;
    for (const DrmClient& client : use.clients) add_client(client, kfd_gpu.has_value(), root_, processes_);
  } else {
    missing_ = Absence::not_supported;
  }
  prove(std::span(processes_).subspan(kfd_processes), true);  // found in our own /proc
  proofs_.end_list();
}

void FileUsers::sample(const Device& device, std::optional<std::uint32_t> kfd_gpu, const Needs& needs, Instant now,
                       Reading& reading) {
  const Duration early = needs.lists_every / 10;
  if (!at_ || now < *at_ || now - *at_ >= needs.lists_every - early) {
    list(device, kfd_gpu, needs, now, reading);
    // Whoever ended while we looked is not in a second list; a number that stays there is stale.
    if (proofs_.found_stale()) list(device, kfd_gpu, needs, now, reading);
    at_ = now;
  }
  if (absence_ != Absence::none) {
    reading.miss(Metric::procs, absence_);
    reading.processes.reset();
    return;
  }
  reading.processes = processes_;
  const bool complete = kfd_gpu ? !hidden_ : !hidden_ && missing_ == Absence::none;
  reading.processes_hidden = !complete;
  if (complete && (missing_ == Absence::none || !needs.all_clients))
    reading.set(Metric::procs, static_cast<double>(std::ranges::count_if(processes_, &GpuProcess::compute)));
  else
    reading.miss(Metric::procs, hidden_ ? Absence::hidden : missing_);
}

}  // namespace lull
