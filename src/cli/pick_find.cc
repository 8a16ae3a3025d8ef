// Which GPUs suit, and taking them at once: the part of `lull pick` before anybody waits.

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <thread>

#include "base/process.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/pick.h"
#include "rule/reason.h"
#include "sense/processes.h"
#include "sense/select.h"
#include "sense/visible.h"

namespace lull {

namespace {

constexpr std::chrono::milliseconds kAskAgain(200);  // after GPUs that have not said who they are
constexpr Duration kSettle = std::chrono::milliseconds(500);
constexpr Duration kLookAgain = std::chrono::seconds(1);  // at cards that were just woken
constexpr int kRounds = 8;  // of choosing again, when a GPU turned out to be in use after all

const SystemClock kClock;

Refusal refuse(const Error& error, int status = kExitFailure) { return {error.message(), {}, status}; }

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

std::string who(const LeaseInfo& lease) {
  std::string text = user_name(lease.owner);
  if (!lease.record.command.empty()) text += ": " + printable(lease.record.command);
  if (lease.record.since) {
    const Duration age = kClock.wall() - *lease.record.since;
    text += fmt::format(", for {}", format_duration(std::chrono::floor<std::chrono::seconds>(age)));
  }
  return text;
}

std::string standing_text(const Standing& standing) {
  if (standing.state == Standing::leased)
    return standing.by->readable ? fmt::format("leased ({})", who(*standing.by))
                                 : fmt::format("its lease file {} may not be read", standing.by->file);
  if (standing.state == Standing::collecting) return fmt::format("kept by one who collects ({})", who(*standing.by));
  if (standing.spoken_for)
    return fmt::format("{} waits for it (pid {})", user_name(standing.spoken_for->owner),
                       standing.spoken_for->record.waiter.pid);
  return "";
}

// Just freed and spoken for: those who wait take theirs in a moment, the rest is for
// us. Or leased to a job that has ended: its keeper lets go as soon as it is scheduled.
bool about_to_be_free(const Standing& standing) {
  if (standing.state == Standing::free) return standing.spoken_for != nullptr;
  return standing.state == Standing::leased && standing.by != nullptr && standing.by->record.kind != LeaseKind::hold &&
         alive(standing.by->record.holder) == false;
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
    if (!folder) return refuse(folder.error());
    folder_ = *std::move(folder);
    auto keeper = Keeper::start(*folder_);
    if (!keeper) return refuse(keeper.error());
    keeper_ = *std::move(keeper);
  } else {
    auto folder = LeaseFolder::look(place);
    if (!folder) return refuse(folder.error());
    folder_ = *std::move(folder);
  }
  return {};
}

void Picker::start_sampler() {
  SamplerOptions options;
  options.power = settings_.where_details;
  options.details =
      closer_ || settings_.where_details || settings_.best == Best::cool || settings_.wishes.temp.kind == Limit::given;
  options.openers = settings_.where_openers;
  options.pcie = settings_.where_pcie;
  options.once = !settings_.wait;  // the moment decides; only who waits has looks far enough apart for means
  options.processes = settings_.wishes.mine.has_value();
  options.topology = settings_.best == Best::topology;
  options.apart = true;
  options.lists_every = {};  // whoever came a moment ago counts
  sampler_ = Sampler::start(options);
  sampler_->request();
}

// Inside a leased job we narrow what it has. A lease that is over says nothing any more, nor does another user's.
std::optional<Refusal> Picker::prepare() {
  if (settings_.hold_pid) {
    auto process = Process::open(*settings_.hold_pid);
    if (!process || process->ended())
      return Refusal{fmt::format("--hold-pid {}: there is no such process", *settings_.hold_pid), {}, kExitFailure};
    held_process_ = *std::move(process);
  }
  start_sampler();  // reads the GPUs while we see to the leases
  if (auto refused = open_folder()) return refused;
  if (const char* id = environment("LULL_LEASE"); id != nullptr && folder_) {
    const auto state = folder_->scan();
    if (!state) return refuse(state.error());
    for (const LeaseInfo& lease : state->leases)
      if (lease.owner == ::geteuid() && lease.record.id == id && lease.record.kind != LeaseKind::collecting)
        inside_.push_back(lease.gpu);
    if (!inside_.empty()) within_ = id;
  }
  self_ = Process::self();
  record_ = pattern();
  sampler_->wait(snapshot_);
  if (settings_.wait) wait_for_gpus();
  if (snapshot_.driver.absence != Absence::none)
    return Refusal{
        snapshot_.driver.detail.empty() ? std::string(words(snapshot_.driver.absence)) : snapshot_.driver.detail,
        {},
        kExitFailure};
  return {};
}

// Whoever waits for a GPU also waits for one that has not said who it is: slow to wake, hanging, or its driver is being
// loaded. Not for more GPUs than there are.
void Picker::wait_for_gpus() {
  const Instant began = kClock.now();
  const auto enough = [&] {
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
  };
  while (!enough() && (!settings_.wait_limit || kClock.now() - began < *settings_.wait_limit)) {
    ::poll(nullptr, 0, static_cast<int>(kAskAgain.count()));
    sampler_->sample(snapshot_);
  }
  if (settings_.wait_limit)
    settings_.wait_limit = std::max<Duration>(*settings_.wait_limit - (kClock.now() - began), Duration::zero());
}

Result<std::vector<std::size_t>> Picker::scope() {
  const Inventory& inventory = *snapshot_.inventory;
  std::vector<std::size_t> positions;
  if (!settings_.gpus.empty()) {
    positions = TRY(select_devices(settings_.gpus, inventory));
  } else if (settings_.keep_to_visible && environment("SLURM_JOB_ID") != nullptr &&
             std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) {
    positions = visible_devices(inventory).devices;
  } else {
    for (std::size_t i = 0; i < inventory.devices.size(); ++i) positions.push_back(i);
  }
  if (!within_.empty())
    std::erase_if(positions, [&](std::size_t i) {
      return std::find(inside_.begin(), inside_.end(), inventory.devices[i].uuid) == inside_.end();
    });
  return positions;
}

std::optional<Refusal> Picker::find_candidates() {
  const auto positions = scope();
  if (!positions) return refuse(positions.error(), kExitUsage);
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
    Choice choice{device.uuid, device.label(),
                  judge(device, snapshot_.readings[i], settings_.wishes, snapshot_.processes)};
    if (!choice.judgement.lasting && !device.uuid.empty()) {
      candidate_.push_back(choices_.size());
      candidates.push_back({device.uuid, choice.label, choice.judgement.fits ? Fit::yes : Fit::no});
    }
    choices_.push_back(std::move(choice));
  }
  if (folder_) {
    Demand demand;
    demand.count = settings_.count;
    demand.priority = settings_.priority;
    demand.within = within_;
    demand.pattern = record_;
    queue_.emplace(*folder_, std::move(demand), std::move(candidates));
  }
  if (candidate_.size() < settings_.count) return refusal({});
  return {};
}

LeaseRecord Picker::pattern() const {
  LeaseRecord record;
  if (!settings_.holds() && !settings_.queues()) return record;
  record.user = user_name(::geteuid());
  record.command = join_command(settings_.command);
  record.holder = ProcessMark::of(*self_);
  if (settings_.hold) {
    record.kind = LeaseKind::hold;
    record.command = fmt::format("held for {}", format_duration(*settings_.hold));
    record.holder = ProcessMark::of(keeper_->pid());
  } else if (settings_.hold_pid) {
    record.kind = LeaseKind::process;
    record.holder = ProcessMark::of(*settings_.hold_pid);
    if (const auto process = read_process(Root::machine(), *settings_.hold_pid))
      record.command = printable(process->command_line());
  }
  return record;
}

void Picker::read_joins() {
  if (settings_.best != Best::topology || joined_inventory_ == snapshot_.inventory) return;
  joined_inventory_ = snapshot_.inventory;
  if (snapshot_.topology != nullptr)
    topology_ = *snapshot_.topology;
  else if (!settings_.quiet)
    complain("the driver does not say how the GPUs are joined (it does not answer); choosing at random");
}

std::optional<std::size_t> Picker::position_of(const std::string& uuid) const {
  const auto& devices = snapshot_.inventory->devices;
  const auto found =
      std::find_if(devices.begin(), devices.end(), [&](const Device& device) { return device.uuid == uuid; });
  if (found == devices.end()) return {};
  return static_cast<std::size_t>(found - devices.begin());
}

std::optional<std::size_t> Picker::position_of_label(const std::string& label) const {
  const auto& devices = snapshot_.inventory->devices;
  const auto found = std::ranges::find(devices, label, &Device::label);
  if (found == devices.end()) return {};
  return static_cast<std::size_t>(found - devices.begin());
}

// A new sample, and what it says of every GPU in scope.
void Picker::judge_again() {
  sampler_->sample(snapshot_);
  for (Choice& choice : choices_) {
    const auto position = choice.uuid.empty() ? position_of_label(choice.label) : position_of(choice.uuid);
    choice.judgement = position ? judge(snapshot_.inventory->devices[*position], snapshot_.readings[*position],
                                        settings_.wishes, snapshot_.processes)
                                : gone();
  }
  for (std::size_t i = 0; queue_ && i < candidate_.size(); ++i)
    queue_->candidates()[i].fit = choices_[candidate_[i]].judgement.fits ? Fit::yes : Fit::no;
}

Chooser Picker::chooser() {
  read_joins();
  return [this](std::span<const std::size_t> open, std::span<const std::size_t> kept, std::size_t count) {
    std::map<std::size_t, std::size_t> candidate_at;  // position -> candidate
    const auto positions = [&](std::span<const std::size_t> candidates) {
      std::vector<std::size_t> result;
      for (const std::size_t candidate : candidates)
        if (const auto position = position_of(choices_[candidate_[candidate]].uuid)) {
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
  std::map<std::size_t, std::string> taken;  // by choice
  for (std::size_t i = 0; i < standing.size(); ++i) taken[candidate_[i]] = standing_text(standing[i]);
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    std::string why = taken[i].empty() ? choices_[i].judgement.why : taken[i];
    if (why.empty())
      ++refusal.fitting;
    else
      refusal.reasons.push_back(fmt::format("GPU {}: {}", choices_[i].label, why));
  }
  refusal.wanted = settings_.count;
  const std::string_view place = within_.empty() ? "" : " in the lease of this job";
  if (choices_.empty())
    refusal.what = fmt::format("there is no GPU{}", place);
  else if (refusal.fitting == 0)
    refusal.what = fmt::format("no GPU{} fits", place);
  else
    refusal.what = fmt::format("{} GPUs asked for, {} fit{}{}", settings_.count, refusal.fitting,
                               refusal.fitting == 1 ? "s" : "", place);
  return refusal;
}

PickResult Picker::finished() {
  if (settings_.hold) queue_->demand().pattern.until = kClock.wall() + *settings_.hold;
  Picked picked;
  for (const std::size_t candidate : queue_->kept())
    if (const auto position = position_of(choices_[candidate_[candidate]].uuid)) picked.devices.push_back(*position);
  auto locks = queue_->finish();
  if (!locks) return std::unexpected(refuse(locks.error()));
  picked.locks = *std::move(locks);
  picked.lease = queue_->demand().pattern.id;
  complete(picked);
  return picked;
}

void Picker::complete(Picked& picked) const {
  std::sort(picked.devices.begin(), picked.devices.end());
  picked.snapshot = snapshot_;
  for (const std::size_t position : picked.devices)
    for (const Choice& choice : choices_)
      if (choice.uuid == snapshot_.inventory->devices[position].uuid) picked.judgements.push_back(choice.judgement);
}

// Looks once more at what we have now: somebody who does not use lull may have come in between.
std::vector<std::size_t> Picker::unfit_of_kept() {
  judge_again();
  std::vector<std::size_t> unfit;
  for (const std::size_t candidate : queue_->kept())
    if (queue_->candidates()[candidate].fit != Fit::yes) unfit.push_back(candidate);
  return unfit;
}

PickResult Picker::pick_now() {
  const Instant settled = kClock.now() + kSettle;
  for (int round = 0; round < kRounds;) {
    const auto taken = queue_->take_now(chooser());
    if (!taken) return std::unexpected(refuse(taken.error()));
    if (*taken) {
      if (unfit_of_kept().empty()) return finished();
      const auto kept = queue_->kept();
      if (const auto given = queue_->give_back(kept); !given) return std::unexpected(refuse(given.error()));
      ++round;
      continue;
    }
    const auto standing = queue_->look();
    if (!standing) return std::unexpected(refuse(standing.error()));
    bool settling = false;
    for (std::size_t i = 0; i < standing->size(); ++i)
      settling = settling || (about_to_be_free((*standing)[i]) && queue_->candidates()[i].fit == Fit::yes);
    if (!settling || kClock.now() >= settled) return std::unexpected(refusal(*standing));
    if (const auto waited = queue_->wait(settled); !waited) return std::unexpected(refuse(waited.error()));
  }
  const auto standing = queue_->look();
  return std::unexpected(refusal(standing ? *standing : std::vector<Standing>()));
}

// Only a choice: nothing is locked, but what others hold is respected.
PickResult Picker::pick_unheld() {
  std::vector<Standing> standing(candidate_.size());
  if (queue_) {
    auto looked = queue_->look();
    if (!looked) return std::unexpected(refuse(looked.error()));
    standing = *std::move(looked);
  }
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < standing.size(); ++i)
    if (standing[i].state == Standing::free && !standing[i].spoken_for && choices_[candidate_[i]].judgement.fits)
      open.push_back(i);
  if (open.size() < settings_.count) return std::unexpected(refusal(standing));
  Picked picked;
  for (const std::size_t candidate : chooser()(open, {}, settings_.count))
    if (const auto position = position_of(choices_[candidate_[candidate]].uuid)) picked.devices.push_back(*position);
  complete(picked);
  return picked;
}

PickResult Picker::pick_at_once() { return settings_.holds() ? pick_now() : pick_unheld(); }

// Of cards that lack two signals the performance state may tell; others need not pay for it.
void Picker::look_closer() {
  const bool undecided =
      std::any_of(choices_.begin(), choices_.end(), [](const Choice& choice) { return choice.judgement.undecided; });
  if (!undecided) return;
  closer_ = true;
  start_sampler();
  judge_again();
}

bool Picker::may_only_look_busy() const {
  return std::any_of(choices_.begin(), choices_.end(), [&](const Choice& choice) {
    const auto position = position_of(choice.uuid);
    return position && busy_from_waking(choice.judgement, snapshot_.readings[*position]);
  });
}

PickResult Picker::find() {
  if (auto refused = prepare()) return std::unexpected(*std::move(refused));
  if (auto refused = find_candidates()) return std::unexpected(*std::move(refused));
  look_closer();
  if (settings_.queues()) return pick_waiting();
  PickResult result = pick_at_once();
  if (result || !may_only_look_busy()) return result;
  std::this_thread::sleep_for(kLookAgain);
  judge_again();
  return pick_at_once();
}

// The sensor must be gone before anything becomes of the choice: a command would be its parent.
PickResult Picker::pick() {
  PickResult result = find();
  sampler_.reset();
  return result;
}

}  // namespace lull
