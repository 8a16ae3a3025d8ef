#include "jobs/census.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "act/cgroup.h"
#include "base/text.h"
#include "base/users.h"
#include "gpu/empty_card.h"
#include "jobs/shell.h"
#include "sense/openers.h"
#include "sense/processes.h"

namespace lull {
namespace {

constexpr unsigned kHighestClimb = 64;

// What jobs are started from and are no part of: below these a tree begins.
constexpr std::array<std::string_view, 20> kFrames = {
    "systemd", "init",        "sshd",         "sshd-session",    "login",
    "su",      "sudo",        "tmux: server", "screen",          "cron",
    "crond",   "atd",         "slurmd",       "slurmstepd",      "containerd-shim",
    "conmon",  "supervisord", "jupyter-lab",  "jupyter-noteboo", "jupyterhub-sing"};

std::string container_of_process(const Root& root, const std::string& pid) {
  const auto text = read_file(AT_FDCWD, root.proc + "/" + pid + "/cgroup", 64 << 10);
  return text ? container_of(cgroup_path(*text)) : "";
}

bool is_frame(const ProcessEntry& one) {
  if (one.pid <= 1 || one.kernel_thread) return true;
  return std::ranges::find(kFrames, one.name) != kFrames.end();
}

bool lasting_trouble(Absence why) {
  return why == Absence::lost || why == Absence::reset_required || why == Absence::no_permission ||
         why == Absence::no_driver || why == Absence::mismatch;
}

}  // namespace

Census::Census(Root root, Leases leases)
    : root_(std::move(root)),
      leases_(std::move(leases)),
      own_container_(container_of_process(root_, "self")),
      dark_cards_(root_) {}

std::optional<Census::Known> Census::known_as(const Name& name) const {
  for (const auto* before : {&known_, &in_trees_})
    if (const auto found = before->find(name); found != before->end()) return found->second;
  return std::nullopt;
}

std::optional<Census::Known> Census::known_group(const ProcessEntry& one) const {
  for (const auto* before : {&known_, &in_trees_})
    for (const auto& [name, known] : *before)
      if (known.group == one.group && known.session == one.session && is_alive(name)) return known;
  return std::nullopt;
}

// Who started it, as far as that is one job: another user's process only where both are in one process group, as those
// are that a script of root's starts for somebody; a service that starts jobs for users gives them groups of their own.
std::optional<ProcessEntry> Census::next_above(const ProcessEntry& one) const {
  const auto parent = read_process_entry(one.parent, root_);
  if (!parent || is_frame(*parent) || parent->start_ticks > one.start_ticks || is_typed_into(*parent, one, root_))
    return leader_of(one);
  const bool one_group = parent->group == one.group && parent->session == one.session;
  if (!one_group && process_user(root_, parent->pid) != process_user(root_, one.pid)) return leader_of(one);
  return *parent;
}

// Nobody above it is of its job, or that one has ended: then its process group and its session tell who it belongs to,
// as long as these have their leaders. Whoever began a session by itself (setsid, a daemon) has none but itself.
std::optional<ProcessEntry> Census::leader_of(const ProcessEntry& one) const {
  for (const pid_t pid : {one.group, one.session}) {
    const auto leader = pid == one.pid ? fail("") : read_process_entry(pid, root_);
    if (!leader || is_frame(*leader) || leader->session != one.session || is_typed_into(*leader, one, root_)) continue;
    if (pid == one.group || process_user(root_, pid) == process_user(root_, one.pid)) return *leader;
  }
  return std::nullopt;
}

Census::Known Census::tree_of(const ProcessEntry& entry) {
  ProcessEntry top = entry;
  std::vector<ProcessEntry> path;
  std::optional<Known> known;
  for (unsigned i = 0; i < kHighestClimb; ++i) {
    path.push_back(top);
    known = known_as({top.pid, top.start_ticks});
    const auto above = known ? std::nullopt : next_above(top);
    if (!above) break;
    top = *above;
  }
  // The number of a group is nobody else's while one of it is left: those whose leader is gone have that in common.
  const bool bereft = top.group != top.pid;
  if (!known && bereft) known = known_group(top);
  // Its start time is part of the name: a later tree under the same number is another job.
  if (!known)
    known = {bereft ? fmt::format("tree:{}@session-{}", top.group, top.session)
                    : fmt::format("tree:{}@{}", top.pid, top.start_ticks),
             fmt::format("job {} ({})", bereft ? top.group : top.pid, printable(top.name))};
  known->ignored = false;  // that is of one process alone
  for (const ProcessEntry& one : path) {
    known->group = one.group;
    known->session = one.session;
    in_trees_.insert_or_assign({one.pid, one.start_ticks}, *known);
  }
  return *known;
}

bool Census::is_alive(const Name& name) const {
  const auto entry = read_process_entry(name.first, root_);
  return entry && entry->start_ticks == name.second;
}

Census::Known Census::find_job(const ProcessEntry& entry, uid_t user) {
  const std::string container = container_of_process(root_, std::to_string(entry.pid));
  if (container.starts_with("slurm:")) return {container, "Slurm job " + container.substr(6)};
  if (!container.empty() && container != own_container_)
    return {"container:" + container, "container " + printable(container)};
  const std::vector<LeaseInfo> leases = leases_ ? leases_() : std::vector<LeaseInfo>();
  ProcessEntry one = entry;
  for (unsigned i = 0; !leases.empty() && i < kHighestClimb && one.pid > 1; ++i) {
    for (const LeaseInfo& lease : leases) {
      // Anybody can write into a lease that it is a stranger's: only its owner's processes are of it.
      const ProcessMark& mark = lease.record.holder;
      if (lease.owner == user && mark.pid == one.pid && mark.start_ticks == one.start_ticks &&
          lease.record.kind == LeaseKind::job)
        return {"lease:" + lease.record.id,
                fmt::format("lease {} ({})", printable(lease.record.id), printable(one.name))};
    }
    const auto parent = read_process_entry(one.parent, root_);
    if (!parent) break;
    one = *parent;
  }
  return tree_of(entry);
}

// Processes whose files may not be looked at are another user's, and whoever may not look may not end them either.
void Census::look_at_files(const Snapshot& snapshot, std::vector<Card>& cards) {
  std::vector<std::size_t> dark;
  for (std::size_t i = 0; i < cards.size(); ++i)
    if (!cards[i].reachable && cards[i].device.kind == DeviceKind::gpu) dark.push_back(i);
  if (dark.empty()) return;
  const FileHolders& found = dark_cards_.look(snapshot.inventory, dark, snapshot.at);
  for (std::size_t i = 0; i < dark.size(); ++i) {
    Card& card = cards[dark[i]];
    for (const pid_t pid : found.holders[i]) {
      const auto entry = read_process_entry(pid, root_);
      const auto user = entry ? process_user(root_, pid) : std::nullopt;
      if (!user || entry->ended()) continue;
      const auto known = known_.find({entry->pid, entry->start_ticks});
      card.openers.insert(pid);
      card.opener_jobs.insert(known != known_.end() ? known->second.job : find_job(*entry, *user).job);
    }
  }
}

// One with a context, now; `still` is who has one.
Holder Census::meet(const ProcessEntry& entry, uid_t user, std::map<Name, Known>& still, bool& ignored) {
  const Name name{entry.pid, entry.start_ticks};
  const auto before = known_.find(name);
  Known known = before != known_.end() ? before->second : find_job(entry, user);
  if (before == known_.end()) known.ignored = is_ignored_opener(entry.pid, {}, root_);
  known.group = entry.group;
  known.session = entry.session;
  still.emplace(name, known);
  ignored = known.ignored;
  return {.pid = entry.pid,
          .start_ticks = entry.start_ticks,
          .user = user,
          .user_name = user_name(user),
          .name = entry.name,
          .job = known.job,
          .job_title = known.title,
          .stopped = entry.state == 'T' || entry.state == 't' || is_any_frozen({entry.pid}, root_)};
}

std::vector<Card> Census::look(const Snapshot& snapshot) {
  std::vector<Card> cards;
  std::map<Name, Known> still;
  for (std::size_t i = 0; i < snapshot.inventory->devices.size() && i < snapshot.readings.size(); ++i) {
    const Reading& reading = snapshot.readings[i];
    Card card{.device = snapshot.inventory->devices[i], .holders = {}, .drawers = {}, .strangers = {}};
    if (!lasting_trouble(reading.device_absence)) reached_.insert(card.device.id());
    card.reachable = reached_.contains(card.device.id());
    card.listed = reading.asleep || (reading.tenants && reading.device_absence == Absence::none);
    bool may_hide = reading.processes_hidden;
    for (const Tenant& tenant : card.listed&& reading.tenants ? *reading.tenants : std::vector<Tenant>()) {
      if (tenant.mps_server || !(tenant.compute || tenant.graphics)) continue;
      const auto entry = tenant.here ? read_process_entry(tenant.pid, root_) : fail("");
      if (tenant.here && (!entry || entry->ended())) continue;  // it has ended since
      const auto user = entry ? process_user(root_, tenant.pid) : std::nullopt;
      if (!user) {
        // Of a strange desktop programs come and go: they begin no count anew, but any job's they may be.
        if (tenant.compute) card.strangers.push_back(tenant.pid);
        may_hide = true;
        continue;
      }
      bool ignored = false;
      Holder one = meet(*entry, *user, still, ignored);
      if (!ignored) (tenant.compute ? card.holders : card.drawers).push_back(std::move(one));
    }
    card.complete = card.listed && (reading.asleep || !may_hide || reading[Metric::mem_used] < kEmptyCard);
    cards.push_back(std::move(card));
  }
  // Who is not listed because a list could not be read is still who it was.
  for (const auto& [name, known] : known_)
    if (is_alive(name)) still.emplace(name, known);
  known_ = std::move(still);
  std::erase_if(in_trees_, [&](const auto& one) { return !is_alive(one.first); });
  look_at_files(snapshot, cards);
  return cards;
}

}  // namespace lull
