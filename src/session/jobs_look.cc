#include "session/jobs_look.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/calendar.h"
#include "base/host.h"
#include "base/text.h"
#include "base/units.h"
#include "base/users.h"
#include "lease/folder.h"
#include "sense/sampler.h"
#include "view/screen.h"

namespace lull {
namespace {

void add_name(std::vector<std::string>& names, const std::string& name) {
  if (!name.empty() && std::ranges::find(names, name) == names.end()) names.push_back(name);
}

}  // namespace

// ---- which jobs there are

JobsLook::Found& JobsLook::found_as(const std::string& job, const std::string& unknown_on) {
  const std::string key = job.empty() ? "unknown:" + unknown_on : "job:" + job;
  const auto found = std::ranges::find(found_, key, &Found::key);
  if (found != found_.end()) return *found;
  return found_.emplace_back(Found{.row = {.job = shown_job(job), .nodes = slurm_.settings().node}, .key = key});
}

void JobsLook::add_gpu(Found& found, const GpuUse& use) const {
  const DeviceId id = use.device.id();
  if (std::ranges::find(found.devices, id) != found.devices.end()) return;
  found.devices.push_back(id);
  const Reading* reading = snapshot_->find(id);
  found.row.gpus.push_back({.label = use.device.label(),
                            .uuid = use.device.uuid,
                            .util = reading == nullptr ? kUnknown : (*reading)[Metric::util]});
}

// Also one whose GPUs cannot be seen: they are its own all the same.
void JobsLook::add_slurm_jobs(const std::vector<GpuUse>& uses) {
  if (::access(slurm_.settings().folder.c_str(), F_OK) != 0) return;  // no Slurm here
  for (const AllocatedJob& job : slurm_.look(snapshot_->at, snapshot_->wall)) {
    const slurm::Allocation* allocation = slurm_.find(job.job);
    if (job.gpus.empty() || allocation == nullptr) continue;
    Found& found = found_as(job.job, "");
    add_name(found.row.users, allocation->user.empty() && job.owner ? user_name(*job.owner) : allocation->user);
    if (job.owner) found.owners.insert(*job.owner);
    if (!allocation->nodes.empty()) found.row.nodes = allocation->nodes;
    if (!job.not_known.empty()) notes_.push_back(fmt::format("{}: {}", job.title, job.not_known));
    for (std::size_t i = 0; i < job.gpus.size(); ++i) {
      const auto use = std::ranges::find_if(
          uses, [&](const GpuUse& one) { return i < job.files.size() && job.files[i].is(one.device); });
      if (use == uses.end())
        found.row.gpus.push_back({.label = std::to_string(job.gpus[i])});
      else
        add_gpu(found, *use);
    }
  }
}

// Who is not proven to be there is shown as the driver lists it; nothing is done here.
void JobsLook::add_users(const GpuUse& use) {
  for (const GpuProcess& one : use.processes) {
    if (!holds(one) && !draws(one) && !is_unknown(one)) continue;
    Found& found = found_as(one.job, use.device.label());
    add_gpu(found, use);
    if (!found.processes.insert(one.id()).second) continue;
    ++found.row.processes;
    found.row.pids.push_back(one.pid);
    if (one.info == nullptr) continue;
    if (!found.key.starts_with("job:slurm:") || found.row.users.empty()) add_name(found.row.users, one.user());
    if (one.info->uid) found.owners.insert(*one.info->uid);
    if (found.row.command.empty() || one.memory_bytes.value_or(0) > found.memory) found.row.command = one.name();
    found.memory = std::max(found.memory, one.memory_bytes.value_or(0));
  }
}

// A leased GPU without a process of its holder.
void JobsLook::add_leases(const std::vector<GpuUse>& uses, const std::vector<LeaseInfo>& leases) {
  for (const GpuUse& use : uses)
    for (const LeaseInfo* lease : leases_of(use.device, leases)) {
      if (!lease->readable || lease->record.kind == LeaseKind::collecting) continue;
      const bool works_there = std::ranges::any_of(found_, [&](const Found& one) {
        return std::ranges::find(one.devices, use.device.id()) != one.devices.end() && !one.processes.empty() &&
               std::ranges::any_of(one.owners, [&](uid_t user) { return belongs_to(user, lease->owner); });
      });
      if (works_there) continue;
      Found& found = found_as("lease:" + lease->record.id, "");
      add_gpu(found, use);
      add_name(found.row.users, user_name(lease->owner));
      found.owners.insert(lease->owner);
      if (found.row.command.empty()) found.row.command = lease->record.command;
    }
}

std::vector<std::string> JobsLook::take_notes() {
  std::vector<std::string> notes = std::exchange(notes_, {});
  for (std::string& text : slurm_.take_notes()) notes.push_back(std::move(text));
  return notes;
}

// ---- what watchers know of them

void JobsLook::hear(const std::vector<Reply>& replies) {
  watched_.clear();
  for (const Reply& reply : replies)
    for (WatchedJob& one : read_watched_jobs(reply.lines)) watched_.emplace_back(reply.owner, std::move(one));
}

// Root's watcher and one's own are believed; another user's about that user's jobs alone. Of several that judge the job
// the one counts that acts first.
JobRow JobsLook::with_what_watchers_say(const Found& found) const {
  JobRow row = found.row;
  const auto believed = [&](uid_t watcher) {
    return watcher == 0 || watcher == ::geteuid() || found.owners == std::set<uid_t>{watcher};
  };
  const WatchedJob* best = nullptr;
  for (const auto& [watcher, one] : watched_) {
    const bool same = one.key == printable(found.key) ||
                      (one.process.first != 0 && one.key.starts_with("job:") && found.processes.contains(one.process));
    if (!same || !believed(watcher)) continue;
    const bool sooner = best == nullptr || (one.next_in && (!best->next_in || *one.next_in < *best->next_in));
    if (sooner) best = &one;
  }
  std::optional<WatchedJob> of_gpus;  // where GPUs are judged, and not jobs: all of them have to be idle, or kept
  for (const DeviceId& device : found.devices) {
    const auto one = std::ranges::find_if(watched_, [&](const auto& each) {
      return each.second.key == printable("gpu:" + device.value) && believed(each.first);
    });
    if (best != nullptr || one == watched_.end()) {
      of_gpus.reset();
      break;
    }
    if (!of_gpus) {
      of_gpus = one->second;
      continue;
    }
    const auto least = [](std::optional<Duration>& all, const std::optional<Duration>& more) {
      all = all && more ? std::optional(std::min(*all, *more)) : std::nullopt;
    };
    least(of_gpus->idle_for, one->second.idle_for);
    least(of_gpus->kept_for, one->second.kept_for);
    if (one->second.next_in && (!of_gpus->next_in || *one->second.next_in < *of_gpus->next_in)) {
      of_gpus->next_in = one->second.next_in;
      of_gpus->next = one->second.next;
    }
  }
  if (best == nullptr && !of_gpus) return row;
  const WatchedJob& job = best != nullptr ? *best : *of_gpus;
  row.watched = true;
  row.idle_for = job.idle_for;
  row.next = job.next;
  row.next_in = job.next_in;
  row.dry_run = job.dry_run;
  if (job.kept_for) row.kept_until = now_ + std::chrono::duration_cast<WallTime::duration>(*job.kept_for);
  return row;
}

// ---- one look

void JobsLook::see(const Snapshot& snapshot, const std::vector<GpuUse>& uses, const std::vector<LeaseInfo>& leases) {
  found_.clear();
  snapshot_ = &snapshot;
  now_ = snapshot.wall;
  add_slurm_jobs(uses);
  for (const GpuUse& use : uses)
    if (!is_split(uses, use.device)) add_users(use);  // the parts are what counts
  add_leases(uses, leases);
  snapshot_ = nullptr;
}

JobsView JobsLook::view() const {
  JobsView view{.rows = {}, .now = now_};
  for (const Found& one : found_) view.rows.push_back(with_what_watchers_say(one));
  return view;
}

namespace {

using namespace std::chrono_literals;

// Who asks for jobs gets them even where a driver hangs.
constexpr Duration kJobsDriverLimit = 1500ms;
constexpr Duration kAskPause = 500ms;
constexpr int kAskShare = 10;  // a watcher that is slow to answer is asked as much less often

}  // namespace

JobsSession::JobsSession(JobsSettings settings, Say say)
    : settings_(std::move(settings)),
      say_(std::move(say)),
      users_(Root{.dev = Root::machine().dev}, [] { return read_leases(); }),
      live_(settings_.input, settings_.output) {}

SamplerOptions JobsSession::sampling() const {
  SamplerOptions options;
  options.want_only(std::array{Metric::util});
  options.memory = options.processes = options.all_lists = options.process_info = true;
  options.once = !settings_.every;
  options.deadline = options.init_deadline = options.attach_deadline = kJobsDriverLimit;
  return options;
}

void JobsSession::warn_once(const std::string& text) {
  if (!text.empty() && said_.insert(text).second && !live_.on_screen()) say_(text);
}

void JobsSession::ask_watchers() {
  const SystemClock clock;
  if (clock.now() < ask_again_) return;
  const Instant before = clock.now();
  look_.hear(ask_all(ControlOf::keep, std::string(kJobsQuestion)));
  const Instant after = clock.now();
  ask_again_ = after + std::max<Duration>(kAskPause, kAskShare * (after - before));
}

void JobsSession::see(const Snapshot& snapshot) {
  const std::vector<GpuUse> uses = users_.look(snapshot, UserDetail::jobs);  // before the leases, which it reads
  look_.see(snapshot, uses, users_.leases());
  for (const std::string& text : look_.take_notes()) warn_once(text);
  warn_once(users_.trouble());
  if (look_.any()) ask_watchers();
  view_ = look_.view();
}

std::optional<SessionEnd> JobsSession::draw() {
  if (live_.on_screen())
    return live_.draw(JobRows(view_), fmt::format("{}  every {}{}", format_local(view_.now, "%H:%M:%S"),
                                                  format_duration(*settings_.every),
                                                  trouble_.empty() ? "" : "  " + printable(trouble_)));
  if (settings_.json) return live_.append(jobs_json(view_, host_name()) + "\n");
  std::string text = settings_.every ? format_rfc3339(view_.now) + "\n" : "";
  if (view_.rows.empty())
    text += jobs_summary(view_) + "\n";
  else
    for (const std::string& line : jobs_table(view_, screen_of(settings_.output))) text += line + "\n";
  return live_.append(text);
}

// If it cannot be read, Slurm and leases are still shown.
std::optional<SessionEnd> JobsSession::show(const Snapshot& snapshot) {
  see(snapshot);
  const DriverState& driver = snapshot.driver;
  trouble_ = driver.absence == Absence::none ? "" : driver.text();
  if (!trouble_.empty() && view_.rows.empty() && !settings_.every) return SessionEnd{kExitFailure, trouble_};
  warn_once(trouble_);
  if (view_.rows.empty() && !settings_.json && !settings_.every) {  // for people; a program that reads lines gets none
    fmt::print(stderr, "{}\n", jobs_summary(view_));
    return SessionEnd{};
  }
  return draw();
}

SessionEnd JobsSession::once() { return show(Sampler::start(sampling())->sample()).value_or(SessionEnd{}); }

SessionEnd JobsSession::watch(World& world) {
  return live_.watch(
      world, {.sampling = sampling(), .every = *settings_.every, .length = {}}, !settings_.json,
      [this](const Snapshot& snapshot) { return show(snapshot); }, [this] { return draw(); });
}

}  // namespace lull
