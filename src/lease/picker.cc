// Which GPUs are meant, and which of them suit.

#include "lease/picker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/process.h"
#include "base/text.h"
#include "base/units.h"

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

// The driver counts them, but they are somebody else's.
bool forbidden(const Device& device, const Reading& reading) {
  return device.absence == Absence::no_permission || reading.device_absence == Absence::no_permission;
}

}  // namespace

std::optional<Refusal> Picker::open_folder() {
  const LeasePlace place = LeasePlace::of_environment();
  if (settings_.holds() || settings_.queues()) {
    auto folder = LeaseFolder::open(place);
    if (!folder) return Refusal::of(folder.error());
    folder_ = *std::move(folder);
    if (place.alone) world_.warn(place.caveat());
    auto keeper = Keeper::start(*folder_);
    if (!keeper) return Refusal::of(keeper.error());
    keeper_ = *std::move(keeper);
  } else {
    auto folder = LeaseFolder::look(place);
    if (!folder) return Refusal::of(folder.error());
    folder_ = *std::move(folder);
  }
  return {};
}

void Picker::open_world() {
  PickNeeds needs;
  needs.power = settings_.where_details;
  needs.details =
      closer_ || settings_.where_details || settings_.best == Best::cool || settings_.wishes.temp.kind == Limit::given;
  needs.openers = settings_.where_openers;
  needs.pcie = settings_.where_pcie;
  needs.once = !settings_.wait;  // only who waits has looks far enough apart for means
  needs.processes = settings_.wishes.mine.has_value();
  needs.topology = settings_.best == Best::topology;
  world_.open(needs);
  open_ = true;
}

// Inside a leased job we narrow what it has. A lease that is over says nothing any more, nor does another user's.
std::optional<Refusal> Picker::prepare() {
  if (settings_.hold_pid) {
    auto process = Process::open(*settings_.hold_pid);
    if (!process || process->ended())
      return Refusal::of({fmt::format("--hold-pid {}: there is no such process", *settings_.hold_pid), 0});
    held_process_ = *std::move(process);
  }
  open_world();  // reads the GPUs while we see to the leases
  if (auto refused = open_folder()) return refused;
  if (const char* id = environment("LULL_LEASE"); id != nullptr && folder_) {
    const auto state = folder_->scan();
    if (!state) return Refusal::of(state.error());
    for (const LeaseInfo& lease : state->leases)
      if (lease.owner == ::geteuid() && lease.record.id == id && lease.record.kind != LeaseKind::collecting)
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
  const auto known =
      std::ranges::count_if(*positions, [&](std::size_t i) { return !snapshot_.inventory->devices[i].uuid.empty(); });
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
      return std::find(inside_.begin(), inside_.end(), inventory.devices[i].uuid) == inside_.end();
    });
  return positions;
}

std::optional<Refusal> Picker::find_candidates() {
  const auto positions = scope();
  if (!positions) return Refusal::of(positions.error(), Refusal::usage);
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
    Choice choice{device.id(), device.uuid, device.label(), {}, {}};
    judge_one(choice, i);
    if (!choice.judgement.lasting && !device.uuid.empty()) {
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
    return refusal(standing ? *standing : std::vector<Standing>());
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
    record.holder = ProcessMark::of(keeper_->pid());
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
  choice.judgement = judge(device, reading, settings_.wishes, snapshot_.processes);
  choice.in_company =
      settings_.company ? judge(device, reading, *settings_.company, snapshot_.processes) : choice.judgement;
}

Candidate Picker::candidate_of(const Choice& choice) const {
  return {choice.uuid, choice.label, choice.judgement.fits ? Fit::yes : Fit::no,
          choice.in_company.fits ? Fit::yes : Fit::no};
}

// A new sample, and what it says of every GPU in scope.
void Picker::judge_again() {
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
  if (driver.absence != Absence::none)
    return std::unexpected(
        Refusal::of({driver.detail.empty() ? std::string(words(driver.absence)) : driver.detail, 0}));
  if (auto refused = find_candidates()) return std::unexpected(*std::move(refused));
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
  if (const auto woken = queue_->woken(); !woken) return std::unexpected(Refusal::of(woken.error()));
  return pick_now();
}

// The sensor must be gone before anything becomes of the choice: a command would be its parent.
PickStep Picker::ended(PickStep step) {
  PickResult* result = std::get_if<PickResult>(&step);
  if (result == nullptr) return step;
  if (*result && keeper_) (*result)->keeper = keeper_->pid();
  world_.waits_no_more();
  world_.close();
  open_ = false;
  return step;
}

PickStep Picker::begin() {
  if (auto refused = prepare()) return ended(std::unexpected(*std::move(refused)));
  if (settings_.wait_limit) deadline_ = world_.clock().now() + *settings_.wait_limit;
  return ended(ask());
}

PickStep Picker::go_on() { return ended(next()); }

}  // namespace lull
