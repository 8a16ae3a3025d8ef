#include "park/parking.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <map>

#include "base/process_start.h"
#include "base/text.h"
#include "base/units.h"
#include "base/users.h"
#include "lease/lease_holder.h"
#include "lease/queue.h"

namespace lull {
namespace {

constexpr Duration kForThoseAhead = std::chrono::seconds(8);  // to come for what is free; who is stuck does not
constexpr int kLookAgain = 100;                               // ms
constexpr int kRounds = 3;  // what a killed tool began may still go on: its state is asked again

// Who has its GPUs, or goes first.
std::string in_the_way(const FolderState& state, const std::vector<Candidate>& candidates, const std::string& ours) {
  std::string text;
  for (const Candidate& gpu : candidates) {
    const auto add = [&](std::string_view what, uid_t owner, const std::string& command, pid_t pid) {
      text += fmt::format("{}GPU {} {} {}{}{}", text.empty() ? "" : "; ", gpu.label, what, user_name(owner),
                          command.empty() ? "" : " (" + printable(command) + ")",
                          pid > 0 ? fmt::format(", process {}", pid) : "");
    };
    const auto lease = std::ranges::find_if(
        state.leases, [&](const LeaseInfo& one) { return gpu.is(one.gpu) && one.record.id != ours; });
    const auto ticket =
        std::ranges::find_if(state.tickets, [&](const TicketInfo& one) { return wants(one.record, gpu); });
    if (lease != state.leases.end())
      add("is leased by", lease->owner, lease->record.command, lease->record.holder.pid);
    else if (ticket != state.tickets.end())
      add("goes first to", ticket->owner, ticket->record.command, ticket->record.waiter.pid);
  }
  return text.empty() ? "its GPUs were leased a moment ago" : text;
}

std::string pids_text(const std::vector<const Process*>& all) {
  std::string text;
  for (const Process* one : all) text += (text.empty() ? "" : " ") + std::to_string(one->pid());
  return text;
}

}  // namespace

// ---- the lease under which it is restored

struct Parking::Lease {
  explicit Lease(LeaseFolder opened) : folder(std::move(opened)) {}
  LeaseFolder folder;
  std::optional<LeaseHolder> holder;
  SystemClock clock;
  std::optional<LeaseQueue> queue;
  std::vector<LockedFile> files;
  std::string id;
  Process job;  // while it lives the lease holder has them

  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  // The lease holder has them while the job lives; the other leases end with us.
  void keep() {
    if (holder) files.clear();
  }
  ~Lease() {
    if (files.empty()) return;
    if (holder) (void)holder->release();
    if (const auto lock = folder.enter())
      for (LockedFile& file : files) folder.give_back(*lock, std::move(file));
  }
};

// All of its GPUs, or none. A GPU that is covered by a lease which the job never gave up needs no other.
Result<std::unique_ptr<Parking::Lease>> Parking::take_lease() {
  std::map<std::string, std::string> gpus;
  for (const ParkedProcess& one : record_.processes)
    for (const ParkedMemory& part : one.memory) gpus[part.gpu] = part.label;
  auto lease = std::make_unique<Lease>(TRY(LeaseFolder::open(world_.leases)));
  const FolderState state = TRY(lease->folder.scan());
  std::vector<Candidate> candidates;
  for (const auto& [uuid, label] : gpus) {
    const auto covers = [&, gpu = uuid](const LeaseInfo& one) {
      if (one.gpu != gpu) return false;
      if (is_own_lease(one)) return true;  // not given up yet, or of one who died on the way back
      return std::ranges::count(record_.kept_leases, one.record.id) > 0 && (is_us(one.owner) || ::geteuid() == 0);
    };
    if (std::ranges::any_of(state.leases, covers)) continue;
    Candidate candidate{.uuid = uuid, .label = label};
    candidate.fit = candidate.company = Fit::yes;
    candidates.push_back(std::move(candidate));
  }
  if (candidates.empty()) return lease;
  lease->job = TRY(lease_process());
  if (record_.share > 0) lease->holder.emplace(TRY(LeaseHolder::start(lease->folder)));
  Demand demand;
  demand.count = static_cast<unsigned>(candidates.size());
  demand.share = std::max(record_.share, 1U);
  demand.pattern.id = lease->id = random_id();
  demand.pattern.kind = LeaseKind::process;
  demand.pattern.user = user_name(::geteuid());
  demand.pattern.holder = ProcessMark::of(lease->job);
  demand.pattern.command = "lull unpark " + record_.id;
  demand.pattern.share = demand.share;
  lease->queue.emplace(lease->folder, std::move(demand), candidates, lease->clock);
  const auto first_of = [](std::span<const std::size_t> open, std::span<const std::size_t>, std::size_t some) {
    return std::vector<std::size_t>(open.begin(),
                                    open.begin() + static_cast<std::ptrdiff_t>(std::min(some, open.size())));
  };
  bool taken = TRY(lease->queue->take_now(first_of));
  const Instant until = lease->clock.now() + kForThoseAhead;
  while (!taken && lease->queue->awaits_those_ahead() && lease->clock.now() < until) {
    ::poll(nullptr, 0, kLookAgain);
    taken = TRY(lease->queue->take_now(first_of));
  }
  if (!taken) return fail(EBUSY, in_the_way(TRY(lease->folder.scan()), candidates, lease->id));
  auto files = TRY(lease->queue->finish());
  if (!files) return fail("the lease of its GPUs could not be had");
  lease->files = *std::move(files);
  return lease;
}

// The process whose end is the end of the lease.
Result<Process> Parking::lease_process() const {
  if (auto top = Process::open(ProcessId{record_.root, record_.root_start}); top && !top->ended()) return top;
  for (const Member& one : members_)
    if (one.process && !one.process.ended())
      if (auto process = Process::open(one.of->id())) return process;
  return fail("all of it has ended");
}

bool Parking::is_own_lease(const LeaseInfo& one) const {
  if (!record_.lease.empty() && one.record.id == record_.lease && is_us(one.owner)) return true;
  return std::ranges::count(record_.given_leases, GivenLease{one.record.id, one.owner}) > 0;
}

// A job that had a lease has one again, from before it is restored until it ends, also if we die meanwhile. Its id is
// on disk first: whoever comes after us knows it for the job's.
bool Parking::start_restoring(Lease& lease) {
  const bool holds = lease.holder && record_.lease != lease.id;
  if (holds) record_.lease = lease.id;
  if (!reach(ParkStep::restoring)) return false;
  if (!holds) return true;
  const auto kept = lease.holder->keep_while(lease.job.fd(), lease.files);
  if (!kept) note(kept.error().message());
  return kept.has_value();
}

// It stays parked: others may have the GPUs, also those that one who died has leased for it.
void Parking::give_up_leases() {
  if (record_.lease.empty() && record_.given_leases.empty()) return;
  const auto folder = LeaseFolder::open(world_.leases);
  const auto lock = folder ? folder->enter() : std::unexpected(folder.error());
  const auto state = lock ? folder->scan() : std::unexpected(lock.error());
  if (!state) return world_.say("its lease could not be given up: " + state.error().message());
  bool all = true;
  for (const LeaseInfo& one : state->leases) {
    if (!is_own_lease(one)) continue;
    const auto gone = folder->revoke(*lock, one.file);
    if (!gone) world_.say("its lease could not be given up: " + gone.error().message());
    all = all && gone;
  }
  if (!all) return;  // it covers the job as before
  record_.lease.clear();
  record_.given_leases.clear();
}

// The memory of each GPU that the processes come back to is seen to be free, by a sample of now.
Result<> Parking::check_free() {
  std::map<std::string, std::uint64_t> needed;
  for (const Member& one : members_)
    if (one.state == CudaState::checkpointed)
      for (const ParkedMemory& part : one.of->memory) needed[part.gpu] += part.bytes;
  const Snapshot snapshot = world_.sample();
  for (const auto& [uuid, bytes] : needed) {
    const Device* device = nullptr;
    const Reading* reading = nullptr;
    for (std::size_t i = 0; i < snapshot.readings.size(); ++i) {
      const Device& one = snapshot.inventory->devices[i];
      if (one.uuid != uuid || one.kind != DeviceKind::gpu) continue;
      if (device != nullptr) return fail(fmt::format("several GPUs are called {}", printable(uuid)));
      device = &one;
      reading = &snapshot.readings[i];
    }
    if (device == nullptr) return fail(fmt::format("GPU {} is not there", printable(uuid)));
    const std::string gpu = "GPU " + device->label();
    if (!device->has_own_uuid()) return fail(gpu + " has no UUID of its own");
    if (reading->mig_mode == true) return fail(gpu + " has MIG devices by now");
    if (reading->persistence != true) return fail(gpu + " is not in persistence mode, or that cannot be read");
    const double free = (*reading)[Metric::mem_free];
    if (reading->device_absence != Absence::none || reading->memory_estimated || std::isnan(free))
      return fail(fmt::format("how much memory of {} is free cannot be read", gpu));
    const double least = static_cast<double>(bytes + kParkMargin);
    if (!(free >= least))
      return fail(EBUSY, fmt::format("{} has {} free, and {} are needed", gpu, format_size(free), format_size(least)));
  }
  return {};
}

// ---- members and steps

Result<Parking> Parking::begin(const ParkFolder& folder, ParkPlan plan, CheckpointTool tool, ParkWorld world) {
  const auto creating = TRY([&]() -> Result<ParkFolder::Lock> {
    auto lock = folder.lock("creating");
    for (int tries = 0; !lock && lock.error().errno_value == EAGAIN && tries < 100; ++tries) {
      ::poll(nullptr, 0, 50);
      lock = folder.lock("creating");
    }
    return lock;
  }());
  std::size_t unreadable = 0;
  for (const ParkRecord& other : TRY(folder.all(&unreadable)))
    for (const ParkedProcess& one : plan.record.processes)
      if (other.has(one.pid, one.start_ticks))
        return fail(fmt::format("process {} is parked, or being parked, already ({}): lull unpark {}", one.pid,
                                other.id, other.id));
  if (unreadable > 0) return fail("an entry of what is parked cannot be read: " + ParkFolder::place());
  plan.record.id = random_id();
  plan.record.boot = boot_id();
  if (plan.record.boot.empty()) return fail("the boot id cannot be read");
  plan.record.owner = Process::self().pid();
  plan.record.owner_start = Process::self().start_ticks();
  plan.record.tool = tool.path();
  plan.record.since = SystemClock().wall();
  Parking parking(folder, std::move(plan.record), std::move(tool), std::move(world));
  parking.lock_ = TRY(folder.lock(parking.record_.id));
  parking.tool_.holds(parking.lock_.fd.get());
  for (std::size_t i = 0; i < plan.processes.size(); ++i)
    parking.members_.push_back({std::move(plan.processes[i]), &parking.record_.processes[i]});
  parking.ask();
  if (!parking.all_are(CudaState::running)) {
    folder.remove(parking.record_.id);
    return fail("before anything was done: " + parking.not_in(CudaState::running));
  }
  if (auto written = folder.write(parking.record_); !written) {
    folder.remove(parking.record_.id);
    return std::unexpected(std::move(written).error());
  }
  return parking;
}

Result<std::optional<Parking>> Parking::take(const ParkFolder& folder, const std::string& id,
                                             CheckpointTool::Limits limits, const std::optional<std::string>& tool,
                                             ParkWorld world) {
  auto lock = TRY(folder.lock(id));
  auto record = folder.read(id);
  if (!record && record.error().errno_value == ENOENT) {
    folder.remove(id);
    return std::optional<Parking>();
  }
  if (!record) return std::unexpected(std::move(record).error());
  const std::string path = tool ? *tool : TRY(CheckpointTool::find(record->tool));
  Parking parking(folder, *std::move(record), CheckpointTool(path, limits), std::move(world));
  parking.lock_ = std::move(lock);
  parking.tool_.holds(parking.lock_.fd.get());
  TRY(parking.open_members());
  return std::optional(std::move(parking));
}

// Only who is known to have ended is left out: the entry is all that remembers who is parked.
Result<> Parking::open_members() {
  members_.clear();
  for (const ParkedProcess& one : record_.processes) {
    Member member;
    member.of = &one;
    if (auto process = Process::open(one.id()))
      member.process = *std::move(process);
    else if (process.error().errno_value != ESRCH)
      return std::unexpected(std::move(process).error());
    members_.push_back(std::move(member));
  }
  return {};
}

void Parking::ask() {
  std::vector<const Process*> living;
  std::vector<Member*> whose;
  for (Member& one : members_) {
    one.state = CudaState::ended;
    if (!one.process || one.process.ended()) continue;
    living.push_back(&one.process);
    whose.push_back(&one);
  }
  const std::vector<CudaState> states = tool_.states(living);
  for (std::size_t i = 0; i < whose.size(); ++i) whose[i]->state = states[i];
}

std::vector<const Process*> Parking::in(std::initializer_list<CudaState> states) const {
  std::vector<const Process*> found;
  for (const Member& one : members_)
    if (std::ranges::find(states, one.state) != states.end()) found.push_back(&one.process);
  return found;
}

bool Parking::all_are(CudaState state) const {
  return std::ranges::all_of(members_, [&](const Member& one) { return one.state == state; });
}

std::string Parking::not_in(CudaState state) const {
  std::string text;
  for (const Member& one : members_)
    if (one.state != state)
      text += fmt::format("{}process {} {} {}", text.empty() ? "" : ", ", one.of->pid,
                          one.state == CudaState::ended ? "has" : "is",
                          one.state == CudaState::unknown ? "in an unknown state" : to_string(one.state));
  return text;
}

// False: it could not be written down, so the step must not be taken.
bool Parking::reach(ParkStep step) {
  record_.step = step;
  const Process self = Process::self();
  record_.owner = self.pid();
  record_.owner_start = self.start_ticks();
  const auto written = folder_->write(record_);
  if (!written) note("the state file cannot be written: " + written.error().message());
  return written.has_value();
}

void Parking::note(std::string trouble) {
  if (trouble.empty()) return;
  why_ = std::move(trouble);
}

// ---- parking

bool Parking::checkpoint_all() {
  for (Member& one : members_) {
    if (one.state != CudaState::locked) continue;
    note(tool_.checkpoint(one.process));
    one.state = one.process.ended() ? CudaState::ended : tool_.state(one.process);
    if (one.state != CudaState::checkpointed && one.state != CudaState::ended) return false;
  }
  return std::ranges::all_of(members_, [](const Member& one) {
    return one.state == CudaState::checkpointed || one.state == CudaState::ended;
  });
}

ParkEnd Parking::park() {
  std::vector<const Process*> all = in({CudaState::running});
  const std::string locking = tool_.lock(all);  // that step was written by begin()
  ask();
  if (!all_are(CudaState::locked)) {
    const std::string states = not_in(CudaState::locked);
    const std::string why =
        fmt::format("not all could be locked: {}{}{}", states, locking.empty() ? "" : "; ", locking);
    const ParkEnd end = bring_back();
    why_ = why;
    return end;
  }
  const bool well = reach(ParkStep::checkpointing) && checkpoint_all() && all_are(CudaState::checkpointed);
  if (!well) {
    ask();
    const std::string why = fmt::format("not all could be checkpointed: {}{}{}", not_in(CudaState::checkpointed),
                                        why_.empty() ? "" : "; ", why_);
    const ParkEnd end = bring_back();
    why_ = why;
    return end;
  }
  // First: who dies in between leaves it half done, and whoever comes after brings it back.
  give_up_leases();
  if (!reach(ParkStep::parked)) {  // it is parked all the same, and the file has its processes
    world_.say(why_);
    why_.clear();
  }
  return ParkEnd::parked;
}

// ---- the way back

// The GPUs are not free, or a restore failed: those that are locked go back to the others.
ParkEnd Parking::stay_parked(ParkEnd how) {
  const std::string why = why_;
  for (Member& one : members_)
    if (one.state == CudaState::locked) {
      note(tool_.checkpoint(one.process));
      one.state = one.process.ended() ? CudaState::ended : tool_.state(one.process);
    }
  if (const auto left = in({CudaState::locked, CudaState::unknown}); !left.empty()) {
    (void)tool_.unlock(left);  // rather than block its CUDA calls for ever
    ask();
  }
  why_ = why;
  if (!in({CudaState::locked, CudaState::unknown, CudaState::running}).empty()) {
    note(fmt::format("{}; {}", why, not_in(CudaState::checkpointed)));
    how = ParkEnd::uncertain;
  }
  if (const auto lost = in({CudaState::failed}); !lost.empty())
    note(fmt::format("{}; process {} cannot be brought back: the job is lost", why_, pids_text(lost)));
  if (how != ParkEnd::uncertain) {
    give_up_leases();
    (void)reach(ParkStep::parked);
  }
  return how;
}

bool Parking::restore_all() {
  for (Member& one : members_) {
    if (one.state != CudaState::checkpointed) continue;
    const std::string trouble = tool_.restore(one.process);
    one.state = one.process.ended() ? CudaState::ended : tool_.state(one.process);
    if (one.state == CudaState::checkpointed || one.state == CudaState::unknown) {
      note(fmt::format("process {} could not be restored{}{}", one.of->pid, trouble.empty() ? "" : ": ", trouble));
      return false;
    }
  }
  return true;
}

ParkEnd Parking::unlock_all() {
  const auto blocked = in({CudaState::locked, CudaState::unknown});
  if (!blocked.empty()) {
    if (!reach(ParkStep::unlocking)) world_.say(why_);  // unlocking blocks nothing: it is done all the same
    note(tool_.unlock(blocked));
    ask();
  }
  return in({CudaState::locked, CudaState::unknown, CudaState::checkpointed}).empty() ? ParkEnd::running
                                                                                      : ParkEnd::uncertain;
}

ParkEnd Parking::bring_back() {
  std::unique_ptr<Lease> lease;
  const ParkEnd end = try_to_bring_back(lease);
  // Some of it may be on its GPUs.
  if (lease && (end == ParkEnd::running || end == ParkEnd::lost || end == ParkEnd::uncertain)) lease->keep();
  return end;
}

ParkEnd Parking::try_to_bring_back(std::unique_ptr<Lease>& lease) {
  for (int round = 0; round < kRounds; ++round) {
    ask();
    if (all_are(CudaState::ended)) {
      folder_->remove(record_.id);
      return ParkEnd::ended;
    }
    if (count(CudaState::checkpointed) > 0) {
      if (!lease) {
        auto taken = take_lease();
        if (!taken) {
          note(taken.error().message());
          return stay_parked(ParkEnd::waits);
        }
        lease = *std::move(taken);
      }
      if (const auto free = check_free(); !free) {
        note(free.error().message());
        return stay_parked(ParkEnd::waits);
      }
      if (!start_restoring(*lease)) return stay_parked(ParkEnd::failed);
      if (!restore_all()) return stay_parked(ParkEnd::failed);
    }
    if (unlock_all() != ParkEnd::running) continue;
    folder_->remove(record_.id);
    const auto lost = in({CudaState::failed});
    if (!lost.empty()) {
      note(fmt::format("process{} {} cannot be brought back: the job is lost", lost.size() == 1 ? "" : "es",
                       pids_text(lost)));
      return ParkEnd::lost;
    }
    return ParkEnd::running;
  }
  note(fmt::format("{}{}{}", not_in(CudaState::running), why_.empty() ? "" : "; ", why_));
  return ParkEnd::uncertain;
}

// ---- the guard

Result<ParkGuard> ParkGuard::start(const std::string& id) {
  auto apart = TRY(start_apart([&](Fd socket) {
    ::setsid();
    show_as("park-guard");
    close_all_but({socket.get()});
    char word = 0;
    ssize_t got = 0;
    do {
      got = ::recv(socket.get(), &word, 1, 0);
    } while (got < 0 && errno == EINTR);
    if (got > 0) return;  // it is over
    for (int i = 0; i < 3; ++i) (void)::open("/dev/null", O_RDWR);
    const std::array<const char*, 5> arguments{"lull", "unpark", "--repair", id.c_str(), nullptr};
    ::execv("/proc/self/exe", const_cast<char* const*>(arguments.data()));
  }));
  return ParkGuard(std::move(apart.socket));
}

ParkGuard::~ParkGuard() {
  if (socket_) (void)::send(socket_.get(), "x", 1, MSG_NOSIGNAL);
}

void repair_in_background() {
  if (!any_interrupted()) return;
  (void)start_apart([](Fd) {
    ::setsid();
    close_all_but({});
    for (int i = 0; i < 3; ++i) (void)::open("/dev/null", O_RDWR);
    const std::array<const char*, 4> arguments{"lull", "unpark", "--repair", nullptr};
    ::execv("/proc/self/exe", const_cast<char* const*>(arguments.data()));
  });
}

}  // namespace lull
