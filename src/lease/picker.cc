// Which GPUs are meant, and which of them suit.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "base/calendar.h"
#include "base/process.h"
#include "base/text.h"
#include "base/units.h"
#include "base/users.h"
#include "lease/picker.h"
#include "lease/record.h"

namespace lull {
namespace {

constexpr Duration kAskAgain = std::chrono::milliseconds(200);  // after GPUs that have not said who they are
constexpr Duration kLookAgain = std::chrono::seconds(1);        // at cards that were just woken

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

Judgement gone() {
  Judgement judgement;
  judgement.why = "is no longer there";
  return judgement;
}

// The driver counts them, but they belong to other jobs.
bool forbidden(const Device& device, const Reading& reading) {
  return device.absence == Absence::no_permission || reading.device_absence == Absence::no_permission;
}

}  // namespace

Result<> Picker::open_folder() {
  const LeasePlace place = LeasePlace::of_environment();
  if (!settings_.holds() && !settings_.queues()) {
    folder_ = TRY(LeaseFolder::look(place));
    return {};
  }
  folder_ = TRY(LeaseFolder::open(place));
  if (const std::string caveat = place.caveat(); !caveat.empty()) world_.warn(caveat);
  lease_holder_ = TRY(LeaseHolder::start(*folder_));
  return {};
}

void Picker::open_world() {
  PickNeeds needs;
  needs.power = settings_.where_details;
  needs.details = closer_ || settings_.where_details || settings_.best == Best::cool ||
                  settings_.constraints.temp.kind == Limit::given;
  needs.openers = settings_.where_openers;
  needs.pcie = settings_.where_pcie;
  needs.counters = settings_.where_counters;
  needs.once = !settings_.wait;  // only who waits has looks far enough apart for means
  needs.process_info = settings_.constraints.mine.has_value();
  needs.topology = settings_.best == Best::topology;
  world_.open(needs);
  open_ = true;
}

// Inside a leased job we narrow what it has. A lease that is over says nothing any more, nor does another user's.
std::expected<void, Refusal> Picker::prepare() {
  if (settings_.hold_pid) {
    auto process = Process::open(*settings_.hold_pid);
    if (!process || process->ended())
      return fail(fmt::format("--hold-pid {}: there is no such process", *settings_.hold_pid));
    held_process_ = *std::move(process);
  }
  open_world();  // reads the GPUs while we see to the leases
  TRY(open_folder());
  if (const char* id = environment("LULL_LEASE"); id != nullptr && folder_) {
    const FolderState state = TRY(folder_->scan());
    for (const LeaseInfo& lease : state.leases)
      if (is_us(lease.owner) && lease.record.id == id && lease.record.kind != LeaseKind::collecting)
        inside_.push_back(lease.gpu);
    if (!inside_.empty()) within_ = id;
  }
  self_ = Process::self();
  record_ = pattern();
  world_.first(snapshot_);
  return {};
}

// Of as many GPUs as are wanted, or as are ours to use, it is known who they are.
bool Picker::know_enough() {
  if (snapshot_.driver.absence != Absence::none) return false;
  const auto positions = scope();
  if (!positions) return true;  // that is a mistake to be told of at once
  const auto known = std::ranges::count_if(
      *positions, [&](std::size_t i) { return !lease_name(snapshot_.inventory->devices[i]).empty(); });
  // What is not ours to use will not become so.
  const auto ours = std::ranges::count_if(
      *positions, [&](std::size_t i) { return !forbidden(snapshot_.inventory->devices[i], snapshot_.readings[i]); });
  const std::ptrdiff_t wanted = settings_.all ? ours : static_cast<std::ptrdiff_t>(settings_.count);
  return known >= std::min<std::ptrdiff_t>(wanted, ours);
}

// Whoever waits for a GPU also waits for one that has not said who it is: slow to wake, hanging, or its driver is being
// loaded. Not for more GPUs than there are.
PickStep Picker::ask() {
  const Instant now = world_.clock().now();
  if (settings_.wait && !know_enough() && (!deadline_ || now < *deadline_))
    return sleep(Phase::asking, {.until = now + kAskAgain});
  return choose_among_all();
}

Result<std::vector<std::size_t>> Picker::scope() {
  const Inventory& inventory = *snapshot_.inventory;
  std::vector<std::size_t> positions = TRY(world_.scope(inventory, settings_));
  if (!within_.empty())
    std::erase_if(positions, [&](std::size_t i) {
      return std::ranges::none_of(inside_,
                                  [&](const std::string& name) { return is_leased_as(inventory.devices[i], name); });
    });
  return positions;
}

std::expected<void, Refusal> Picker::find_candidates() {
  const auto positions = scope();
  if (!positions) return std::unexpected(Refusal(positions.error(), Refusal::usage));
  if (settings_.all) {
    // Of those that were named every one; else every one that is ours to use.
    const auto ours = std::count_if(positions->begin(), positions->end(), [&](std::size_t i) {
      return !settings_.gpus.empty() || !forbidden(snapshot_.inventory->devices[i], snapshot_.readings[i]);
    });
    settings_.count = std::max<unsigned>(1, static_cast<unsigned>(ours));
  }
  std::vector<Candidate> candidates;
  for (const std::size_t i : *positions) {
    const Device& device = snapshot_.inventory->devices[i];
    Choice choice{device.id(), lease_names(device), device.label(), {}, {}};
    judge_one(choice, i);
    if (!choice.judgement.lasting && !lease_name(device).empty()) {
      candidate_.push_back(choices_.size());
      candidates.push_back(candidate_of(choice));
    }
    choices_.push_back(std::move(choice));
  }
  if (folder_) {
    Demand demand;
    demand.count = settings_.count;
    demand.priority = settings_.priority;
    demand.share = settings_.share;
    demand.within = within_;
    demand.pattern = record_;
    queue_.emplace(*folder_, std::move(demand), std::move(candidates), world_.clock());
  }
  if (candidate_.size() < settings_.count) {
    const auto standing = queue_ ? queue_->look() : std::vector<Standing>();
    return std::unexpected(refusal(standing ? *standing : std::vector<Standing>()));
  }
  return {};
}

LeaseRecord Picker::pattern() const {
  LeaseRecord record;
  if (!settings_.holds() && !settings_.queues()) return record;
  record.user = world_.user_name(::geteuid());
  record.command = join_command(settings_.command);
  record.holder = ProcessMark::of(*self_);
  record.share = settings_.patience;
  if (settings_.hold) {
    record.kind = LeaseKind::hold;
    record.command = fmt::format("held for {}", format_duration(*settings_.hold));
    record.holder = ProcessMark::of(lease_holder_->pid());
  } else if (settings_.hold_pid) {
    record.kind = LeaseKind::process;
    record.holder = ProcessMark::of(*settings_.hold_pid);
    record.command = world_.command_of(*settings_.hold_pid);
  }
  return record;
}

void Picker::read_joins() {
  if (settings_.best != Best::topology || joined_inventory_ == snapshot_.inventory) return;
  joined_inventory_ = snapshot_.inventory;
  if (snapshot_.topology != nullptr)
    topology_ = *snapshot_.topology;
  else if (settings_.best_asked_for)
    world_.warn("the driver does not say how the GPUs are joined (it does not answer); choosing at random");
}

std::optional<std::size_t> Picker::position_of(const Choice& choice) const {
  return snapshot_.inventory->place_of(choice.gpu);
}

void Picker::judge_one(Choice& choice, std::size_t position) const {
  const Device& device = snapshot_.inventory->devices[position];
  const Reading& reading = snapshot_.readings[position];
  choice.judgement = judge(device, reading, settings_.constraints);
  choice.in_company = settings_.company ? judge(device, reading, *settings_.company) : choice.judgement;
}

Candidate Picker::candidate_of(const Choice& choice) const {
  return {choice.names.front(), choice.label, choice.judgement.fits ? Fit::yes : Fit::no,
          choice.in_company.fits ? Fit::yes : Fit::no, choice.names};
}

// A new sample, and what it says of every GPU in scope.
void Picker::judge_again() {
  looked_ = world_.clock().now();
  if (open_) {
    world_.sample(snapshot_);
  } else {
    open_world();
    world_.first(snapshot_);
  }
  for (Choice& choice : choices_) {
    const auto position = position_of(choice);
    if (position)
      judge_one(choice, *position);
    else
      choice.judgement = choice.in_company = gone();
  }
  for (std::size_t i = 0; queue_ && i < candidate_.size(); ++i)
    queue_->candidates()[i] = candidate_of(choices_[candidate_[i]]);
}

// Of cards that lack two signals the performance state may tell; others need not pay for it.
void Picker::look_closer() {
  const bool undecided =
      std::any_of(choices_.begin(), choices_.end(), [](const Choice& choice) { return choice.judgement.undecided; });
  if (!undecided) return;
  closer_ = true;
  open_ = false;  // with more to read
  judge_again();
}

bool Picker::may_only_look_busy() const {
  return std::any_of(choices_.begin(), choices_.end(), [&](const Choice& choice) {
    const auto position = position_of(choice);
    return position && busy_from_waking(choice.judgement, snapshot_.readings[*position]);
  });
}

PickStep Picker::choose_among_all() {
  const DriverState& driver = snapshot_.driver;
  if (driver.absence != Absence::none) return fail(driver.text());
  for (const std::string& text : snapshot_.inventory->warnings()) world_.warn(text);
  TRY(find_candidates());
  look_closer();
  return settings_.queues() ? join_queue() : pick_at_once();
}

PickStep Picker::unless_it_only_looks_busy(PickResult result) {
  if (result || looked_again_ || !may_only_look_busy()) return result;
  looked_again_ = true;
  return sleep(Phase::looking_again, {.until = world_.clock().now() + kLookAgain});
}

PickStep Picker::sleep(Phase phase, Sleep on) {
  phase_ = phase;
  return on;
}

PickStep Picker::next() {
  switch (phase_) {
    case Phase::asking: world_.sample(snapshot_); return ask();
    case Phase::queueing: return woken_in_queue();
    case Phase::settling: break;
    case Phase::looking_again: judge_again(); return pick_at_once();
  }
  TRY(queue_->woken());
  return pick_now();
}

// The sensor must be gone before anything becomes of the choice: a command would be its parent.
PickStep Picker::ended(PickStep step) {
  PickResult* result = std::get_if<PickResult>(&step);
  if (result == nullptr) return step;
  if (*result && lease_holder_) (*result)->lease_holder = lease_holder_->pid();
  world_.waits_no_more();
  world_.close();
  open_ = false;
  return step;
}

PickStep Picker::begin() {
  if (auto ready = prepare(); !ready) return ended(std::unexpected(std::move(ready).error()));
  if (settings_.wait_limit) deadline_ = world_.clock().now() + *settings_.wait_limit;
  return ended(ask());
}

PickStep Picker::go_on() { return ended(next()); }

// Taking GPUs that suit at once, and what is said where that cannot be.

namespace {

constexpr Duration kSettle = std::chrono::milliseconds(500);
constexpr int kRounds = 8;  // of choosing again, when a GPU turned out to be in use after all
constexpr Duration kFillersYield = std::chrono::seconds(15);      // they have 10 s to end, if not told otherwise
constexpr Duration kStillFresh = std::chrono::milliseconds(100);  // a look that is older is repeated

// Just freed and spoken for: those who wait take theirs in a moment, the rest is for
// us. Or leased to a job that has ended: its lease holder lets go as soon as it is scheduled.
bool about_to_be_free(const Standing& standing) {
  if (standing.state == Standing::free) return standing.spoken_for != nullptr;
  return standing.state == Standing::leased && standing.by != nullptr && standing.by->record.kind != LeaseKind::hold &&
         alive(standing.by->record.holder) == false;
}

// Of a command line that may fill a screen: what tells it from others.
std::string beginning_of(std::string command) {
  constexpr std::size_t kMost = 60;
  if (command.size() <= kMost) return command;
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(command[end]) & 0xC0U) == 0x80U) --end;  // no half letter
  return command.substr(0, end) + "...";
}

std::string kind_of(const Standing* standing, const Judgement& judgement) {
  if (standing == nullptr)
    return judgement.lasting ? "not suitable" : judgement.in_use ? "in use" : "not as asked for now";
  return standing->state == Standing::leased       ? "leased"
         : standing->state == Standing::collecting ? "kept by others who wait"
                                                   : "for others who wait";
}

}  // namespace

std::string Picker::who(const LeaseInfo& lease) const {
  std::string text = world_.user_name(lease.owner);
  if (lease.record.kind == LeaseKind::hold && lease.record.until)
    return text + ", held until " + format_local(*lease.record.until, "%H:%M:%S");
  if (!lease.record.command.empty()) text += ": " + printable(lease.record.command);
  if (lease.record.since) {
    const Duration age = world_.clock().wall() - *lease.record.since;
    text += fmt::format(", for {}", format_duration(std::chrono::floor<std::chrono::seconds>(age)));
  }
  return text;
}

std::string Picker::standing_text(const Standing& standing) const {
  if (standing.state == Standing::leased)
    return standing.by->readable
               ? fmt::format("leased ({}{})", who(*standing.by),
                             standing.holders > 1 ? fmt::format("; {} share it", standing.holders) : "")
               : fmt::format("its lease file {} may not be read", standing.by->file);
  if (standing.state == Standing::collecting) return fmt::format("kept by one who collects ({})", who(*standing.by));
  if (standing.spoken_for)
    return fmt::format("{} waits for it (pid {})", world_.user_name(standing.spoken_for->owner),
                       standing.spoken_for->record.waiter.pid);
  return "";
}

// " (ada: python train.py; bob: ./infer)": the processes on a GPU without a lease; "" if none is visible.
std::string Picker::users_text(const Choice& choice) const {
  constexpr std::size_t kMost = 3;
  const auto position = position_of(choice);
  if (!position || !snapshot_.readings[*position].processes) return "";
  std::vector<std::string> users;
  for (const GpuProcess& process : *snapshot_.readings[*position].processes) {
    if (!process.here || process.mps_server) continue;
    const std::string owner = world_.owner_of(process.pid);
    const std::string command = beginning_of(world_.command_of(process.pid));
    if (owner.empty()) continue;
    std::string user = (world_.is_filler(process.pid) ? "filler of " : "") + owner;
    if (!command.empty()) user += ": " + command;
    if (std::ranges::find(users, user) == users.end()) users.push_back(std::move(user));
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(users.size(), kMost); ++i) text += (i == 0 ? " (" : "; ") + users[i];
  if (users.size() > kMost) text += fmt::format("; {} more", users.size() - kMost);
  return text.empty() ? "" : text + ")";
}

bool Picker::only_fillers_on(const Choice& choice) const {
  const auto position = position_of(choice);
  if (!position || choice.judgement.lasting || !snapshot_.readings[*position].processes) return false;
  const auto& processes = *snapshot_.readings[*position].processes;
  return !processes.empty() &&
         std::ranges::all_of(processes, [&](const GpuProcess& one) { return one.here && world_.is_filler(one.pid); });
}

// They yield to whoever waits: that is done for a moment, unasked.
PickStep Picker::unless_fillers_yield(Refusal refusal) {
  const bool enough = refusal.filled > 0 && refusal.fitting + refusal.filled >= settings_.count;
  if (!enough || settings_.wait || !settings_.holds())
    return unless_it_only_looks_busy(std::unexpected(std::move(refusal)));
  asks_fillers_ = settings_.wait = true;
  settings_.wait_limit = kFillersYield;
  deadline_ = world_.clock().now() + kFillersYield;
  world_.close();  // who waits reads other things
  open_ = false;
  return join_queue();
}

Chooser Picker::chooser() {
  read_joins();
  return [this](std::span<const std::size_t> open, std::span<const std::size_t> kept, std::size_t count) {
    std::map<std::size_t, std::size_t> candidate_at;  // position -> candidate
    const auto positions = [&](std::span<const std::size_t> candidates) {
      std::vector<std::size_t> result;
      for (const std::size_t candidate : candidates)
        if (const auto position = position_of(choices_[candidate_[candidate]])) {
          candidate_at[*position] = candidate;
          result.push_back(*position);
        }
      return result;
    };
    std::vector<std::size_t> result;
    for (const std::size_t position :
         choose(settings_.best, positions(open), positions(kept), count, snapshot_.readings, topology_, random_))
      result.push_back(candidate_at[position]);
    return result;
  };
}

Refusal Picker::refusal(const std::vector<Standing>& standing) {
  Refusal refusal;
  std::map<std::size_t, std::string> taken;            // by choice
  std::map<std::size_t, const Standing*> standing_of;  // where that is what speaks against it
  std::set<std::size_t> shared;
  for (std::size_t i = 0; i < standing.size(); ++i) {
    taken[candidate_[i]] = standing_text(standing[i]);
    if (!taken[candidate_[i]].empty()) standing_of[candidate_[i]] = &standing[i];
    if (standing[i].state == Standing::shared) shared.insert(candidate_[i]);
  }
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Judgement& judgement = shared.contains(i) ? choices_[i].in_company : choices_[i].judgement;
    const std::string& why = taken[i].empty() ? judgement.why : taken[i];
    if (why.empty()) {
      ++refusal.fitting;
      continue;
    }
    if (taken[i].empty() && only_fillers_on(choices_[i])) ++refusal.filled;
    ++refusal.kinds[kind_of(standing_of.contains(i) ? standing_of[i] : nullptr, judgement)];
    refusal.reasons.push_back(fmt::format("GPU {}: {}{}", choices_[i].label, why,
                                          taken[i].empty() && !judgement.lasting ? users_text(choices_[i]) : ""));
  }
  refusal.wanted = settings_.count;
  refusal.waiting_helps = !settings_.wait && settings_.lease && candidate_.size() >= settings_.count;
  const std::string_view place = within_.empty() ? "" : " in the lease of this job";
  if (choices_.empty())
    refusal.what = fmt::format("there is no GPU{}", place);
  else if (choices_.size() < settings_.count)
    refusal.what = fmt::format("{} GPUs asked for, there {} only {}{}", settings_.count,
                               choices_.size() == 1 ? "is" : "are", choices_.size(), place);
  else if (refusal.fitting == 0)
    refusal.what = fmt::format("no GPU{} fits", place);
  else
    refusal.what = fmt::format("{} GPUs asked for, {} fit{}{}", settings_.count, refusal.fitting,
                               refusal.fitting == 1 ? "s" : "", place);
  return refusal;
}

// Whoever has waited for the folder since the previous look looks again: a process without a lease may be there now.
// Nothing: one is, and that GPU was given back.
std::optional<PickResult> Picker::finished() {
  if (settings_.hold) queue_->demand().pattern.until = world_.clock().wall() + *settings_.hold;
  for (int looks = 0;; ++looks) {
    Picked picked;
    for (const std::size_t candidate : queue_->kept())
      if (const auto position = position_of(choices_[candidate_[candidate]])) picked.devices.push_back(*position);
    auto locks = queue_->finish([&] { return looks >= kRounds || world_.clock().now() - looked_ <= kStillFresh; });
    if (!locks) return std::unexpected(Refusal(locks.error()));
    if (*locks) {
      picked.locks = **std::move(locks);
      picked.lease = queue_->demand().pattern.id;
      complete(picked);
      return picked;
    }
    judge_our_turn();
    const auto unfit = queue_->unfit_of_kept();
    if (unfit.empty()) continue;
    if (const auto given = queue_->give_back(unfit); !given) return std::unexpected(Refusal(given.error()));
    return std::nullopt;
  }
}

void Picker::complete(Picked& picked) const {
  std::sort(picked.devices.begin(), picked.devices.end());
  picked.snapshot = snapshot_;
  for (const std::size_t position : picked.devices)
    for (const Choice& choice : choices_)
      if (position_of(choice) == position) picked.judgements.push_back(choice.judgement);
}

PickStep Picker::pick_now() {
  if (!settings_.holds()) return pick_unheld();
  for (; rounds_ < kRounds; ++rounds_) {
    if (TRY(queue_->take_now(chooser()))) {
      judge_again();  // once more: a job without a lease may have started in between
      if (queue_->unfit_of_kept().empty())
        if (auto result = finished()) return *std::move(result);
      TRY(queue_->give_back(queue_->kept()));
      continue;
    }
    const auto standing = TRY(queue_->look());
    if (fitting_now(standing).size() >= settings_.count) continue;  // given back between our two looks
    if (!settling(standing)) return unless_fillers_yield(refusal(standing));
    return sleep(Phase::settling, queue_->sleep(settled_));
  }
  const auto standing = queue_->look();
  return unless_fillers_yield(refusal(standing ? *standing : std::vector<Standing>()));
}

// Candidates that are free, or that we may share, and that suit.
std::vector<std::size_t> Picker::fitting_now(const std::vector<Standing>& standing) const {
  std::vector<std::size_t> fitting;
  for (std::size_t i = 0; i < standing.size(); ++i) {
    const Choice& choice = choices_[candidate_[i]];
    const Judgement& judgement = standing[i].state == Standing::shared ? choice.in_company : choice.judgement;
    if (standing[i].open() && judgement.fits) fitting.push_back(i);
  }
  return fitting;
}

bool Picker::settling(const std::vector<Standing>& standing) const {
  if (world_.clock().now() >= settled_) return false;
  for (std::size_t i = 0; i < standing.size(); ++i)
    if (about_to_be_free(standing[i]) && choices_[candidate_[i]].judgement.fits) return true;
  return false;
}

// Only a choice: nothing is locked, but what others hold is respected.
PickStep Picker::pick_unheld() {
  std::vector<Standing> standing(candidate_.size());
  if (queue_) standing = TRY(queue_->look());
  const std::vector<std::size_t> open = fitting_now(standing);
  if (open.size() < settings_.count) {
    if (queue_ && settling(standing)) return sleep(Phase::settling, queue_->sleep(settled_));
    return unless_fillers_yield(refusal(standing));
  }
  Picked picked;
  for (const std::size_t candidate : chooser()(open, {}, settings_.count))
    if (const auto position = position_of(choices_[candidate_[candidate]])) picked.devices.push_back(*position);
  complete(picked);
  return PickResult(std::move(picked));
}

PickStep Picker::pick_at_once() {
  settled_ = world_.clock().now() + kSettle;
  rounds_ = 0;
  return pick_now();
}

Result<> Picker::hand_to_lease_holder(const Picked& picked) {
  lease_holder_->close_for_us(queue_->end_watch());
  if (settings_.hold) return lease_holder_->keep_for(*settings_.hold, picked.locks);
  if (held_process_) return lease_holder_->keep_while(held_process_->fd(), picked.locks);
  if (!self_ || !*self_) return fail("no handle on this process (pidfd_open)");
  return lease_holder_->keep_while(self_->fd(), picked.locks);
}

// Waiting for GPUs: events of the lease folder, and one sampler for those who do not use lull.

namespace {

// After a change a GPU may still look busy (its utilisation is a mean over a
// moment): look again soon at first, then once a second.
constexpr Duration kFirstLook = std::chrono::milliseconds(100);
constexpr Duration kLongestLook = std::chrono::seconds(1);

// "2s" of one who had 1.999s left when it began to wait.
Duration rounded(Duration time) {
  using Tenths = std::chrono::duration<std::int64_t, std::deci>;
  return time < std::chrono::seconds(1) ? time : Duration(std::chrono::round<Tenths>(time));
}

}  // namespace

PickStep Picker::join_queue() {
  TRY(lease_holder_->stand_by());
  pause_ = kFirstLook;
  sampled_ = true;  // just now
  return in_queue();
}

// One turn, and then sleep.
PickStep Picker::in_queue() {
  // Whoever comes joins the line first: it need not look at all who are in it.
  std::vector<Standing> standing;
  if (queue_->queued() || !sampled_) standing = TRY(queue_->look());
  bool act = sampled_;
  bool tempting = false;
  for (const Standing& one : standing) {
    tempting = tempting || one.open();
    act = act || (one.state == Standing::ours && one.spoken_for);
  }
  if (tempting && !sampled_ && !presume_fit(standing)) judge_again();
  if (act || tempting) {
    const std::size_t before = queue_->kept().size();
    const bool done = TRY(queue_->turn(chooser()));
    if (done || queue_->kept().size() > before) {
      judge_our_turn();  // a job without a lease may be there
      const auto unfit = queue_->unfit_of_kept();
      if (done && unfit.empty())
        if (auto result = finished()) return *std::move(result);
      TRY(queue_->give_back(unfit));
    }
    standing = TRY(queue_->look());
  }
  tell(standing);

  covered_ = queue_->covered();
  foreign_ = !covered_ && foreign_use(standing);
  if (covered_ && open_) {
    world_.close();  // it may be long until there is something for us to look at
    open_ = false;
  }
  std::optional<Instant> until = deadline_;
  look_again_ = world_.clock().now() + pause_;
  if (foreign_) until = until ? std::min(*until, look_again_) : look_again_;
  Sleep on = queue_->sleep(until);
  if (held_process_) on.events.push_back(held_process_->fd());
  return sleep(Phase::queueing, std::move(on));
}

PickStep Picker::woken_in_queue() {
  TRY(queue_->woken());
  if (held_process_ && held_process_->ended())
    return fail(fmt::format("process {}, which was to hold them, has ended", held_process_->pid()));
  const Instant now = world_.clock().now();
  if (deadline_ && now >= *deadline_) return std::unexpected(late());
  const bool our_turn_comes = covered_ && !queue_->covered();
  sampled_ = our_turn_comes || (foreign_ && now >= look_again_);
  if (our_turn_comes)
    judge_our_turn();
  else if (sampled_)
    judge_again();
  pause_ = sampled_ ? std::min<Duration>(pause_ * 2, kLongestLook) : kFirstLook;
  return in_queue();
}

Refusal Picker::late() {
  const auto last = queue_->look();
  Refusal late = refusal(last ? *last : std::vector<Standing>());
  late.what = fmt::format("waited {} for {} GPU{}; {}", format_duration(rounded(*settings_.wait_limit)),
                          settings_.count, settings_.count == 1 ? "" : "s", late.what);
  late.kind = asks_fillers_ ? Refusal::failure : Refusal::late;
  late.waiting_helps = asks_fillers_;
  return late;
}

// One late answer on a loaded machine must not cost the turn in the queue. What hangs is late again.
void Picker::judge_our_turn() {
  judge_again();
  const bool late = std::ranges::any_of(candidate_, [&](std::size_t index) {
    const auto position = position_of(choices_[index]);
    return position && snapshot_.readings[*position].unanswered > Duration::zero();
  });
  if (late) judge_again();
}

// What was leased until this moment, and is free now, will do: it is looked at once we have it, and before anything
// runs on it. True: all that tempts us is of that kind.
bool Picker::presume_fit(const std::vector<Standing>& standing) {
  bool all = true;
  for (std::size_t i = 0; i < standing.size(); ++i) {
    Candidate& candidate = queue_->candidates()[i];
    if (!standing[i].open()) continue;
    if (standing[i].state == Standing::free && candidate.fit == Fit::unknown)
      candidate.fit = Fit::yes;
    else
      all = false;
  }
  return all;
}

// There is no event when that ends: it has to be polled.
bool Picker::foreign_use(const std::vector<Standing>& standing) {
  for (std::size_t i = 0; i < standing.size(); ++i) {
    const Candidate& candidate = queue_->candidates()[i];
    if (standing[i].state == Standing::leased || standing[i].state == Standing::ours) continue;
    if ((standing[i].state == Standing::shared ? candidate.company : candidate.fit) == Fit::no) return true;
  }
  return false;
}

void Picker::tell(const std::vector<Standing>& standing) {
  Refusal now = refusal(standing);
  world_.waits({settings_.count, queue_->ahead(), queue_->kept().size(), std::move(now.reasons), std::move(now.kinds)});
}

}  // namespace lull
