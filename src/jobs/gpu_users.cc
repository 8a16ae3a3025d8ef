#include "jobs/gpu_users.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <span>
#include <string_view>

#include "act/cgroup.h"
#include "base/process_start.h"
#include "base/text.h"
#include "base/users.h"
#include "gpu/snapshot.h"

namespace lull {
namespace {

constexpr unsigned kHighestClimb = 64;

// Programs that start jobs and do not belong to them: below these a tree begins.
constexpr std::array<std::string_view, 20> kFrames = {
    "systemd", "init",        "sshd",         "sshd-session",    "login",
    "su",      "sudo",        "tmux: server", "screen",          "cron",
    "crond",   "atd",         "slurmd",       "slurmstepd",      "containerd-shim",
    "conmon",  "supervisord", "jupyter-lab",  "jupyter-noteboo", "jupyterhub-sing"};

// ---- shells

// Whether a process is a shell that a person types into, which makes what it starts jobs of their own, or a program
// that happens to lead a session with a terminal (`tmux new -d ./train.sh`, `ssh -t host ./train.sh`, `script -c`),
// which makes what it starts its workers. In doubt it is not a shell: a job that is too big is idle only where all of
// it is.

// By the name of the process: of a script that begins with #! that is the script's.
constexpr std::array<std::string_view, 19> kShells = {"bash", "sh",   "zsh", "fish",  "dash",  "ksh",   "ksh93",
                                                      "mksh", "tcsh", "csh", "ash",   "yash",  "rbash", "busybox",
                                                      "nu",   "pwsh", "osh", "xonsh", "elvish"};
// Options that are followed by a word that is not a script.
constexpr std::array<std::string_view, 6> kTakeAWord = {"-o", "+o", "-O", "+O", "--rcfile", "--init-file"};
constexpr Duration kLongestAnswer = std::chrono::seconds(1);

// Behind these a shell leads a group in a session that another shell began. They run as root, which a program that
// only has such a name does not.
bool is_behind_switch(const ProcessEntry& shell, const Root& root) {
  constexpr std::array<std::string_view, 4> kSwitches = {"su", "sudo", "login", "runuser"};
  const auto parent = read_process_entry(shell.parent, root);
  return parent && std::ranges::find(kSwitches, parent->name) != kSwitches.end() &&
         process_user(root, parent->pid) == uid_t{0};
}

// By the arguments with which a shell was started: it was given neither a script nor a command.
bool asks_for_commands(std::span<const std::string_view> arguments) {
  if (arguments.empty() || arguments[0].empty()) return false;  // it cannot be seen
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (std::ranges::find(kTakeAWord, word) != kTakeAWord.end()) {
      ++i;
      continue;
    }
    const bool option = word.size() > 1 && (word[0] == '-' || word[0] == '+');
    const bool letters = option && word[1] != '-';
    // -c, -lc; fish and nushell may say it in full.
    if (!option || word.starts_with("--command") || (letters && word.find('c') != std::string_view::npos)) return false;
  }
  return true;
}

// `child` is a job that was typed into `shell`: a known shell that leads a session with a terminal, or a process group
// of one behind su, sudo or login; that keeps its jobs in process groups of their own, and was given nothing to run.
bool is_typed_into(const ProcessEntry& shell, const ProcessEntry& child, const Root& root) {
  if (shell.group != shell.pid || child.session != shell.session || child.group == shell.group) return false;
  if (shell.session != shell.pid && !is_behind_switch(shell, root)) return false;
  if (std::ranges::find(kShells, shell.name) == kShells.end() || shell.terminal == 0) return false;
  // A script may ask for job control as well (set -m): what the shell was started with tells them apart.
  const auto line = run_with_timeout(
      [&] { return read_file(AT_FDCWD, root.proc + "/" + std::to_string(shell.pid) + "/cmdline", 4096).value_or(""); },
      kLongestAnswer);
  if (!line) return false;
  std::string_view text = *line;
  if (text.ends_with('\0')) text.remove_suffix(1);
  return asks_for_commands(split(text, '\0'));
}

// The name of the file that the process runs; empty: it cannot be seen.
std::string program_of(const Root& root, pid_t pid) {
  std::error_code error;
  std::string name = std::filesystem::read_symlink(root.proc + "/" + std::to_string(pid) + "/exe", error).filename();
  return name;
}

// ---- trees

// A subordinate uid is its user's.
bool one_owner(const Root& root, pid_t one, pid_t other) {
  const auto first = process_user(root, one);
  const auto second = process_user(root, other);
  return first && second ? owner_of(*first) == owner_of(*second) : first == second;
}

std::string title_of(CgroupKind kind, const std::string& id) {
  constexpr std::array<std::string_view, 3> kTitles = {"container", "pod", "Slurm job"};
  return fmt::format("{} {}", kTitles[static_cast<std::size_t>(kind)], printable(id.substr(id.find(':') + 1)));
}

bool is_frame(const ProcessEntry& one) {
  if (one.pid <= 1 || one.kernel_thread) return true;
  return std::ranges::find(kFrames, one.name) != kFrames.end();
}

bool lasting_trouble(Absence why) {
  return why == Absence::lost || why == Absence::reset_required || why == Absence::no_permission ||
         why == Absence::no_driver || why == Absence::mismatch;
}

// The MPS server counts through its clients.
bool counts(const GpuProcess& one) { return !one.mps_server && (one.compute || one.graphics); }

// A start time that is not known may be any.
bool is_same(const GpuProcess& one, const GpuProcess& other) {
  return one.start_ticks == 0 || one.start_ticks == other.start_ticks;
}

}  // namespace

bool Container::may_hold(uid_t user) const {
  if (!maker || by_root()) return true;
  // Slurm's are made by its daemon.
  return !is_slurm() && *maker == owner_of(user);
}

Result<std::vector<Container>> find_containers(const Root& root, pid_t pid) {
  std::vector<Container> all;
  const auto text = read_cgroups(pid, root);
  const int failure = text ? 0 : text.error().errno_value;
  if (failure == ENOENT || failure == ESRCH) return all;
  if (!text) return std::unexpected(text.error());
  for (NamedCgroup& found : named_cgroups(*text)) {
    const auto maker = maker_of_cgroup(*text, found.path, root);
    all.push_back({std::move(found), maker});
  }
  return all;
}

std::optional<std::string> job_of_slurmstepd(const Root& root, const ProcessEntry& entry) {
  std::optional<std::string> found;
  const auto is_it = [&](const ProcessEntry& one) {
    if (one.pid == entry.pid || one.name != "slurmstepd" || process_user(root, one.pid) != uid_t{0}) return false;
    // A link to sudo gives a process of root's any name.
    const std::string program = program_of(root, one.pid);
    if (!program.empty() && !program.starts_with("slurmstepd")) return false;  // Debian: slurmstepd-wlm
    // "slurmstepd: [4711.batch]"
    const auto title = read_file(AT_FDCWD, root.proc + "/" + std::to_string(one.pid) + "/cmdline", 4096);
    const std::string_view text = title ? std::string_view(*title) : std::string_view();
    const std::size_t begin = text.find('[');
    const std::size_t end = begin == std::string_view::npos ? begin : text.find('.', begin);
    if (end == std::string_view::npos) return false;
    if (const auto job = to_unsigned(text.substr(begin + 1, end - begin - 1))) found = std::to_string(*job);
    return found.has_value();
  };
  climb(entry, is_it, root);
  return found;
}

JobFinder::JobFinder(Root root, Leases leases) : root_(std::move(root)), leases_(std::move(leases)) {
  for (const Container& one : find_containers(root_, 0).value_or(std::vector<Container>()))
    own_containers_.push_back(one.path);
}

Result<JobFinder::Job> JobFinder::find(const ProcessEntry& entry, uid_t user) {
  const auto before = known_.find(entry.id());
  return before != known_.end() ? before->second.job : search(entry, user);
}

Result<JobFinder::Job> JobFinder::remember(const ProcessEntry& entry, uid_t user) {
  Job job = TRY(find(entry, user));
  known_.insert_or_assign(entry.id(), Known{job, entry.group, entry.session});
  return job;
}

void JobFinder::forget_ended(std::uint64_t look, const std::function<bool(const ProcessId&)>& is_listed) {
  bool any = false;
  for (auto* those : {&known_, &in_trees_}) {
    constexpr std::uint64_t kSeldom = 8;  // to go through them all takes its time as well
    const bool many = those->size() > Rotation::kFew;
    if (many && look % kSeldom != 0) continue;
    const Rotation rotation{look / kSeldom, many ? those->size() / Rotation::kInTurn / kSeldom + 1 : 1};
    any |= std::erase_if(*those, [&](const auto& one) {
             return rotation.is(one.first.first) && !is_listed(one.first) && !is_alive(one.first);
           }) > 0;
  }
  if (!any || names_.empty()) return;
  std::set<std::string_view> used;
  for (const auto& [name, known] : known_) used.insert(known.job.id);
  std::erase_if(names_, [&](const auto& name) { return !used.contains(name.second); });
}

std::optional<JobFinder::Job> JobFinder::known_as(const ProcessId& id) const {
  for (const auto* before : {&known_, &in_trees_})
    if (const auto found = before->find(id); found != before->end()) return found->second.job;
  return std::nullopt;
}

std::optional<JobFinder::Job> JobFinder::known_group(const ProcessEntry& one) const {
  for (const auto* before : {&known_, &in_trees_})
    for (const auto& [name, known] : *before)
      if (known.group == one.group && known.session == one.session && is_alive(name)) return known.job;
  return std::nullopt;
}

// Which process started it, as far as that is one job: another user's process only if both are in one process group, as
// if a script of root starts it for a user; a service that starts jobs for users gives them separate groups.
std::optional<ProcessEntry> JobFinder::next_above(const ProcessEntry& one) const {
  const auto parent = read_process_entry(one.parent, root_);
  if (!parent || is_frame(*parent) || parent->start_ticks > one.start_ticks || is_typed_into(*parent, one, root_))
    return leader_of(one);
  const bool one_group = parent->group == one.group && parent->session == one.session;
  if (!one_group && !one_owner(root_, parent->pid, one.pid)) return leader_of(one);
  return *parent;
}

// If no ancestor is of its job, or that one has ended, its process group and its session tell what it belongs to, as
// long as these have their leaders. A process that began a session by itself (setsid, a daemon) belongs to itself.
std::optional<ProcessEntry> JobFinder::leader_of(const ProcessEntry& one) const {
  for (const pid_t pid : {one.group, one.session}) {
    const auto leader = pid == one.pid ? fail("") : read_process_entry(pid, root_);
    if (!leader || is_frame(*leader) || leader->session != one.session || is_typed_into(*leader, one, root_)) continue;
    if (pid == one.group || one_owner(root_, pid, one.pid)) return *leader;
  }
  return std::nullopt;
}

JobFinder::Job JobFinder::tree_of(const ProcessEntry& entry) {
  ProcessEntry top = entry;
  std::vector<ProcessEntry> path;
  std::optional<Job> known;
  for (unsigned i = 0; i < kHighestClimb; ++i) {
    path.push_back(top);
    known = known_as(top.id());
    const auto above = known ? std::nullopt : next_above(top);
    if (!above) break;
    top = *above;
  }
  // The number of a group is not reused while it has a process: those without a leader have that number in common.
  const bool bereft = top.group != top.pid;
  if (!known && bereft) known = known_group(top);
  // Its start time is part of the name: a later tree under the same number is another job.
  if (!known)
    known = {bereft ? fmt::format("tree:{}@session-{}", top.group, top.session)
                    : fmt::format("tree:{}@{}", top.pid, top.start_ticks),
             fmt::format("job {} ({})", bereft ? top.group : top.pid, printable(top.name))};
  for (const ProcessEntry& one : path) in_trees_.insert_or_assign(one.id(), Known{*known, one.group, one.session});
  return *known;
}

bool JobFinder::is_alive(const ProcessId& id) const {
  const auto entry = read_process_entry(id.first, root_);
  return entry && entry->id() == id;
}

// Different jobs that would be shown alike are numbered.
const std::string& JobFinder::name_for(const std::string& what, const std::string& shown) {
  const auto [place, fresh] = names_.try_emplace(what);
  if (!fresh) return place->second;
  const auto taken = [&](const std::string& name) {
    return std::ranges::any_of(names_, [&](const auto& one) { return one.second == name; });
  };
  std::string name = shown;
  for (unsigned i = 2; taken(name); ++i) name = fmt::format("{}-{}", shown, i);
  place->second = std::move(name);
  return place->second;
}

// If it is unknown who made the cgroup, it joins the processes of one user, as a cgroup made by a user does.
JobFinder::Job JobFinder::job_in(const Container& container, const ProcessEntry& entry, uid_t user) {
  const bool numbered = container.is_slurm() && to_unsigned(container.name);
  const std::string what = !container.by_root() ? fmt::format("{}:{}", owner_of(user), container.path)
                           : numbered           ? to_text(container)  // Slurm gives a number once
                                                : container.path;
  const auto known = names_.find(what);
  if (known != names_.end()) return {known->second, title_of(container.kind, known->second)};
  NamedCgroup shown = container;
  if (container.is_slurm() && !numbered) {  // a SLUID
    const auto told = sluids_.find(container.name);
    if (told != sluids_.end())
      shown.name = std::to_string(told->second);
    else if (auto number = job_of_slurmstepd(root_, entry))
      shown.name = *std::move(number);
  }
  if (container.maker && !container.by_root())
    shown.name = fmt::format("{}/{}", user_name(*container.maker), shown.name);
  const std::string& id =
      name_for(what, container.kind == CgroupKind::container ? "container:" + shown.name : to_text(shown));
  return {id, title_of(container.kind, id)};
}

const Result<std::vector<LeaseInfo>>& JobFinder::leases() {
  if (read_leases_) return *read_leases_;
  read_leases_ = leases_ ? leases_() : std::vector<LeaseInfo>();
  if (!*read_leases_) read_leases_->error().what.insert(0, "leases cannot be read: ");
  return *read_leases_;
}

Result<JobFinder::Job> JobFinder::search(const ProcessEntry& entry, uid_t user) {
  const std::vector<Container> containers = TRY(find_containers(root_, entry.pid));
  const auto slurms =
      std::ranges::find_if(containers, [&](const Container& one) { return one.is_slurm() && one.may_hold(user); });
  if (slurms != containers.end()) return job_in(*slurms, entry, user);
  if (!in_trees_.contains(entry.id()))
    if (const auto number = job_of_slurmstepd(root_, entry)) {
      const std::string what = "slurm:" + *number;
      const std::string& id = name_for(what, what);
      return Job{id, title_of(CgroupKind::slurm, id)};
    }
  for (const Container& one : containers)
    if (one.may_hold(user) && !one.is_slurm() && std::ranges::find(own_containers_, one.path) == own_containers_.end())
      return job_in(one, entry, user);
  const std::vector<LeaseInfo> leases = TRY(this->leases());
  std::optional<Job> job;
  const auto is_leased = [&](const ProcessEntry& one) {
    for (const LeaseInfo& lease : leases) {
      // A user can write any pid into a lease: only processes of the lease's owner belong to it.
      const ProcessMark& mark = lease.record.holder;
      if (!belongs_to(user, lease.owner) || mark.pid != one.pid || mark.start_ticks != one.start_ticks ||
          lease.record.kind != LeaseKind::job)
        continue;
      // All users can read another lease's id and write it into a lease of their own.
      job = {name_for(fmt::format("lease of {}: {}", lease.owner, lease.record.id), "lease:" + lease.record.id),
             fmt::format("lease {} ({})", printable(lease.record.id), printable(one.name))};
      return true;
    }
    return false;
  };
  return !leases.empty() && climb(entry, is_leased, root_) ? *job : tree_of(entry);
}

bool holds(const GpuProcess& one) { return one.identified && one.compute && counts(one) && !one.only_looks; }

bool draws(const GpuProcess& one) { return one.identified && !one.compute && counts(one) && !one.only_looks; }

bool is_unknown(const GpuProcess& one) { return !one.identified && one.compute && counts(one); }

bool GpuUse::may_have(pid_t pid) const {
  return std::ranges::find(file_holders, pid, &GpuProcess::pid) != file_holders.end() ||
         std::ranges::any_of(processes,
                             [&](const GpuProcess& one) { return one.pid == pid && !one.identified && counts(one); });
}

bool GpuUse::may_have_job(const std::string& job) const {
  // One whose job is unknown may be of any.
  const auto may_be = [&](const GpuProcess& one) { return one.job.empty() || one.job == job; };
  return std::ranges::any_of(file_holders, may_be) || std::ranges::any_of(processes, [&](const GpuProcess& one) {
           return !one.identified && counts(one) && one.proof != Proof::stale && may_be(one);
         });
}

bool is_split(const std::vector<GpuUse>& uses, const Device& device) {
  return device.kind == DeviceKind::gpu && std::ranges::any_of(uses, [&](const GpuUse& use) {
           return use.device.kind == DeviceKind::mig && use.device.index == device.index;
         });
}

std::string shown_job(const std::string& job) { return job.starts_with("tree:") ? job.substr(0, job.find('@')) : job; }

GpuUsers::GpuUsers(Root root, Leases leases) : root_(std::move(root)), jobs_(root_, std::move(leases)) {}

const FileHolders& GpuUsers::file_holders(const std::vector<std::size_t>& gpus) {
  const auto is_good = [this](const Scan& scan) { return at_ >= scan.at && at_ < scan.at + scan.found.rest; };
  std::erase_if(scans_, [&](const auto& one) { return fresh_ || !is_good(one.second); });
  const auto [place, is_new] = scans_.try_emplace(gpus);
  if (is_new) place->second = {at_, lull::file_holders(*inventory_, gpus, root_)};
  return place->second.found;
}

const std::vector<LeaseInfo>& GpuUsers::leases() {
  static const std::vector<LeaseInfo> kNone;
  const auto& found = jobs_.leases();
  if (!found) trouble_ = found.error().message();
  return found ? *found : kNone;
}

bool GpuUsers::is_frozen(pid_t pid) {
  const auto cgroup = read_cgroups(pid, root_);
  if (!cgroup) return false;
  const auto known = frozen_.find(*cgroup);
  return known != frozen_.end() ? known->second : frozen_.emplace(*cgroup, is_any_frozen({pid}, root_)).first->second;
}

void GpuUsers::add_job(GpuProcess& process, const ProcessEntry& entry, uid_t user, bool remember) {
  auto job = remember ? jobs_.remember(entry, user) : jobs_.find(entry, user);
  if (!job) {
    trouble_ = job.error().message();
    return;
  }
  process.job = std::move(job->id);
  process.job_title = std::move(job->title);
}

std::optional<GpuUsers::Known> GpuUsers::read(const ProcessEntry& entry, UserDetail detail) {
  Known known{.process = {.pid = entry.pid, .start_ticks = entry.start_ticks, .identified = true},
              .look = looks_,
              .checked = looks_};
  if (detail != UserDetail::jobs) return known;
  const auto user = process_user(root_, entry.pid);
  if (!user) return std::nullopt;
  ProcessInfo info;
  info.pid = entry.pid;
  info.parent = entry.parent;
  info.start_ticks = entry.start_ticks;
  info.uid = *user;
  info.user = user_name(*user);
  info.name = entry.name;
  info.state = entry.state;
  known.process.info = std::make_shared<const ProcessInfo>(std::move(info));
  known.process.only_looks = is_ignored_opener(entry.pid, {}, root_);  // it may run another program by now
  known.process.stopped = is_stopped(entry, root_) || is_frozen(entry.pid);
  add_job(known.process, entry, *user, true);
  return known;
}

// What was read of the very same process, where it need not be read now.
const GpuUsers::Known* GpuUsers::find_known(const GpuProcess& process, const Look& how) const {
  const auto found = known_.find(process.pid);
  if (found == known_.end() || process.start_ticks == 0 || found->second.process.start_ticks != process.start_ticks)
    return nullptr;
  if (how.detail == UserDetail::jobs && found->second.process.job.empty()) return nullptr;
  const bool read_now = found->second.checked == looks_;  // it is on another GPU as well
  const bool due = how.fresh || how.rotation.is(process.pid) || looks_ - found->second.checked > 2 * how.rotation.parts;
  return read_now || !due ? &found->second : nullptr;
}

// False: it has ended since it was listed.
bool GpuUsers::identify(GpuProcess& process, const Look& how) {
  if (how.detail == UserDetail::jobs && !counts(process)) return true;
  if (!process.proven()) {
    // It may be the one all the same, without a file of its own (MPS).
    if (how.detail == UserDetail::jobs && process.here)
      if (const auto maybe = file_holder(process.pid); maybe && is_same(process, *maybe)) {
        process.job = maybe->job;
        process.job_title = maybe->job_title;
      }
    return true;
  }
  const Known* known = find_known(process, how);
  if (known == nullptr) {
    const auto entry = read_process_entry(process.pid, root_);
    if (entry ? entry->ended() : has_ended(entry.error())) return false;
    // Another that has its number by now is not who was listed.
    if (!entry || (process.start_ticks != 0 && process.start_ticks != entry->start_ticks)) return true;
    auto now = read(*entry, how.detail);
    if (!now) return true;
    known = &known_.insert_or_assign(process.pid, *std::move(now)).first->second;
  }
  known_.find(process.pid)->second.look = looks_;
  const GpuProcess& one = known->process;
  process.start_ticks = one.start_ticks;
  process.identified = true;
  if (process.info == nullptr) process.info = one.info;  // the sensor may have read more
  process.only_looks = one.only_looks;
  process.stopped = one.stopped;
  process.job = one.job;
  process.job_title = one.job_title;
  return true;
}

std::optional<GpuProcess> GpuUsers::file_holder(pid_t pid) {
  const auto entry = read_process_entry(pid, root_);
  const auto user = entry ? process_user(root_, pid) : std::nullopt;
  if (!user || entry->ended()) return std::nullopt;
  GpuProcess process{.pid = pid, .proof = Proof::unproven, .start_ticks = entry->start_ticks};
  add_job(process, *entry, *user, false);
  return process;
}

// Processes whose files may not be looked at are another user's, and whoever may not look may not end them either. One
// of our own (a program that may not be traced) may hold any.
void GpuUsers::add_file_holders(std::vector<GpuUse>& uses) {
  std::vector<std::size_t> gpus;
  for (std::size_t i = 0; i < uses.size(); ++i)
    if ((!uses[i].reachable || uses[i].unproven) && uses[i].device.kind == DeviceKind::gpu) gpus.push_back(i);
  if (gpus.empty()) return;
  const FileHolders& found = file_holders(gpus);
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    std::vector<pid_t> all = found.holders[i];
    for (const pid_t pid : found.hidden)
      if (process_user(root_, pid) == ::geteuid()) all.push_back(pid);
    for (const pid_t pid : all)
      if (auto one = file_holder(pid)) uses[gpus[i]].file_holders.push_back(*std::move(one));
  }
}

std::vector<GpuUse> GpuUsers::look(const Snapshot& snapshot, UserDetail detail, bool fresh) {
  std::vector<GpuUse> uses;
  if (snapshot.inventory != inventory_) scans_.clear();
  inventory_ = snapshot.inventory;
  at_ = snapshot.at;
  fresh_ = fresh;
  trouble_.clear();
  jobs_.begin_look();
  if (detail != UserDetail::none) ++looks_;
  const Look how{detail, fresh, Rotation::of(looks_, known_.size())};
  for (std::size_t i = 0; i < inventory_->devices.size() && i < snapshot.readings.size(); ++i) {
    const Reading& reading = snapshot.readings[i];
    GpuUse& use = uses.emplace_back(GpuUse{.device = inventory_->devices[i]});
    if (!lasting_trouble(reading.device_absence)) reached_.insert(use.device.id());
    use.reachable = std::ranges::any_of(reached_, [&](const DeviceId& id) { return use.device.is(id); });
    use.forbidden = reading.device_absence == Absence::no_permission;
    use.asleep = reading.asleep;
    use.empty = reading.asleep || reading[Metric::mem_used] < kEmptyCard;
    use.listed = reading.asleep || (reading.processes && reading.device_absence == Absence::none);
    use.hides = reading.processes_hidden;
    if (detail == UserDetail::none) continue;
    bool identified = true;     // all who count
    bool jobs_known = true;     // of those who are
    bool only_unproven = true;  // those who are not
    if (use.listed && reading.processes) use.processes.reserve(reading.processes->size());
    for (const GpuProcess& listed : use.listed&& reading.processes ? std::span<const GpuProcess>(*reading.processes)
                                                                   : std::span<const GpuProcess>()) {
      GpuProcess process = listed;
      if (!identify(process, how)) continue;
      use.hides = use.hides || !process.here;
      if (counts(process)) {
        identified = identified && process.identified;
        only_unproven = only_unproven && (process.identified || (process.here && !process.proven()));
        jobs_known = jobs_known && !(process.identified && detail == UserDetail::jobs && process.job.empty());
      }
      use.processes.push_back(std::move(process));
    }
    use.complete = use.listed && jobs_known && (use.empty || (!reading.processes_hidden && identified));
    // A MIG device has no file of its own that would tell.
    use.unproven = !identified && only_unproven && jobs_known && !reading.processes_hidden && !use.complete &&
                   use.device.kind == DeviceKind::gpu;
  }
  if (detail == UserDetail::none) return uses;
  std::erase_if(known_, [this](const auto& one) { return one.second.look != looks_; });
  // Who is not listed because a list could not be read is still who it was, as long as it lives.
  jobs_.forget_ended(looks_, [this](const ProcessId& id) {
    const auto found = known_.find(id.first);
    return found != known_.end() && found->second.process.id() == id;
  });
  if (detail == UserDetail::jobs) add_file_holders(uses);
  frozen_.clear();
  return uses;
}

void GpuUsers::identify_in(Snapshot& snapshot) {
  const std::vector<GpuUse> uses = look(snapshot, UserDetail::identity);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (!uses[i].listed || !snapshot.readings[i].processes) continue;
    auto next = uses[i].processes.begin();  // in the same order, without those that have ended
    for (GpuProcess& one : *snapshot.readings[i].processes) {
      if (next == uses[i].processes.end() || next->pid != one.pid) {
        one.here = one.mps_server = false;
        one.proof = Proof::stale;
        continue;
      }
      const bool doubtful = next->proven() && !next->identified;
      one = *next++;
      if (doubtful) one.proof = Proof::unproven;
    }
  }
}

}  // namespace lull
