#include "jobs/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace lull {
namespace {

const Card* card_of(const std::vector<Card>& cards, const Device& device) {
  const auto found = std::ranges::find_if(cards, [&](const Card& card) { return card.device.is(device.id()); });
  return found == cards.end() ? nullptr : &*found;
}

bool is_among(const std::vector<Device>& devices, const DeviceId& id) {
  return std::ranges::any_of(devices, [&](const Device& one) { return one.is(id); });
}

// A GPU that is split shows the processes of its parts as well: the parts are what counts.
bool is_split(const std::vector<Card>& cards, const Device& device) {
  return device.kind == DeviceKind::gpu && std::ranges::any_of(cards, [&](const Card& card) {
           return card.device.kind == DeviceKind::mig && card.device.index == device.index;
         });
}

std::string labels(const std::vector<Device>& devices) {
  std::string text;
  for (const Device& device : devices) text += (text.empty() ? "" : ", ") + device.label();
  return (devices.size() == 1 ? "GPU " : "GPUs ") + text;
}

std::string users_of(const std::vector<Holder>& holders) {
  std::vector<std::string> names;
  for (const Holder& one : holders)
    if (std::ranges::find(names, one.user_name) == names.end()) names.push_back(one.user_name);
  return printable(fmt::format("{}", fmt::join(names, ", ")));
}

// "tree:4711@123" is 4711 to people: its start time is for us.
std::string shown_job(const std::string& job) { return job.substr(0, job.find('@')); }

}  // namespace

void Roster::Life::meet(const std::set<Name>& now) {
  if (!std::ranges::includes(seen, now)) number = 0;  // somebody new: another subject
  seen = now;
}

bool Roster::left_alone(const Holder& one) const {
  return options_.except.contains(one.user) || (!options_.only.empty() && !options_.only.contains(one.user));
}

void Roster::add(Member member, const Life& life) {
  member.subject.id.value = fmt::format("{}#{}", member.key, life.number);
  member.subject.stopped = member.subject.stopped || std::ranges::any_of(member.holders, &Holder::stopped);
  members_.push_back(std::move(member));
}

// ---- each GPU

void Roster::look_at_gpus(const std::vector<Device>& scope, const std::vector<Card>& cards) {
  std::map<std::string, Life> lives;
  for (const Device& device : scope) {
    Member member{
        .key = "gpu:" + device.id().value, .title = "GPU " + device.label(), .job = {}, .subject = {}, .holders = {}};
    member.subject.scope = {{device}, member.title, {}};
    Life life = lives_.contains(member.key) ? lives_.at(member.key) : Life{};
    const Card* card = card_of(cards, device);
    if (card != nullptr && card->listed) {
      std::set<Name> now;
      for (const Holder& one : card->holders) {
        now.insert(one.id());
        if (!left_alone(one)) member.holders.push_back(one);
      }
      for (const pid_t pid : card->strangers) now.emplace(pid, 0);
      life.meet(now);
    } else {
      member.subject.scope.not_judged = "the processes on " + member.title + " cannot be seen: not judged meanwhile";
    }
    if (life.number == 0) life.number = ++next_number_;
    const bool unseen = !member.subject.scope.not_judged.empty();
    const bool free = options_.free_too && options_.only.empty() && card != nullptr && card->holders.empty();
    if ((unseen && card != nullptr && card->reachable) || !member.holders.empty() || free) add(member, life);
    lives.emplace(member.key, std::move(life));
  }
  lives_ = std::move(lives);
}

// ---- each job

void Roster::note_where_jobs_are(const Card& card) {
  std::set<std::string> computes;
  std::set<std::string> draws;
  for (const Holder& one : card.holders) {
    computes.insert(one.job);
    Life& life = lives_[one.job];
    life.title = one.job_title;
    life.devices[card.device.id()] = card.device;
  }
  for (const Holder& one : card.drawers) draws.insert(one.job);
  for (auto& [job, life] : lives_) {
    if (draws.contains(job)) life.drawn[card.device.id()] = card.device;
    // Only a look that shows everybody takes a GPU away from a job.
    if (card.complete && !computes.contains(job)) life.devices.erase(card.device.id());
    if (card.complete && !draws.contains(job)) life.drawn.erase(card.device.id());
  }
}

// A job has all its GPUs, also those that are not watched and those on which it only draws: who works there does not
// idle here. Who draws and computes nowhere, as a desktop does, is no job.
void Roster::look_at_jobs(const std::vector<Device>& scope, const std::vector<Card>& cards) {
  for (int pass = 0; pass < 2; ++pass)  // the second for those who draw on a GPU that comes before the one they hold
    for (const Card& card : cards)
      if (!is_split(cards, card.device) || is_among(scope, card.device.id())) note_where_jobs_are(card);
  std::erase_if(lives_, [](const auto& one) { return one.second.devices.empty(); });
  for (auto& [job, life] : lives_) {
    // Whoever comes to a GPU of the job is somebody new there, of this job or of another; of those who draw, its own.
    std::set<Name> now;
    for (const auto* where : {&life.devices, &life.drawn})
      for (const auto& [id, device] : *where)
        if (const Card* card = card_of(cards, device)) {
          for (const Holder& one : card->holders) now.insert(one.id());
          for (const Holder& one : card->drawers)
            if (one.job == job) now.insert(one.id());
          for (const pid_t pid : card->strangers) now.emplace(pid, 0);
        }
    life.meet(now);
    if (life.number == 0) life.number = ++next_number_;
    if (!scope.empty())  // else the driver is away, and it is what it was
      life.watched =
          std::ranges::any_of(scope, [&](const Device& device) { return life.devices.contains(device.id()); });
    if (life.watched) add_job(job, life, scope, cards);
  }
}

void Roster::add_job(const std::string& job, Life& life, const std::vector<Device>& scope,
                     const std::vector<Card>& cards) {
  Member member{.key = "job:" + job, .title = {}, .job = shown_job(job), .subject = {}, .holders = {}};
  std::vector<Device> unseen;
  std::vector<Device> maybe;
  bool spared = false;
  std::map<DeviceId, Device> all = life.devices;
  all.insert(life.drawn.begin(), life.drawn.end());
  for (const auto& [id, device] : all) {
    member.subject.scope.devices.push_back(device);
    const Card* card = card_of(cards, device);
    if (card == nullptr || !card->listed) unseen.push_back(device);
    if (card == nullptr) continue;
    for (const Holder& one : card->drawers)
      if (one.job == job) member.subject.stopped = member.subject.stopped || one.stopped;
    const bool watched = is_among(scope, id);
    for (const Holder& one : card->holders) {
      if (one.job != job) continue;
      spared = spared || left_alone(one);
      member.subject.stopped = member.subject.stopped || one.stopped;
      if (watched && std::ranges::find(member.holders, one.id(), &Holder::id) == member.holders.end())
        member.holders.push_back(one);
    }
  }
  if (spared) return;  // a job is left alone as a whole
  std::ranges::sort(member.subject.scope.devices, {},
                    [](const Device& one) { return std::pair(one.index, one.mig_index); });
  for (const Card& card : cards)
    if ((card.reachable ? !card.complete : card.opener_jobs.contains(job)) && !is_split(cards, card.device) &&
        !all.contains(card.device.id()))
      maybe.push_back(card.device);
  member.title = life.title + (member.holders.empty() ? "" : " of " + users_of(member.holders)) + " on " +
                 labels(member.subject.scope.devices);
  member.subject.scope.why = "the job has a context there";
  if (!unseen.empty()) {
    member.subject.scope.not_judged =
        fmt::format("the processes on {} cannot be seen: {} is not judged meanwhile", labels(unseen), life.title);
  } else if (!maybe.empty() && options_.stricter_with_more) {
    for (const Device& device : maybe) member.subject.scope.devices.push_back(device);
  } else if (!maybe.empty()) {
    member.subject.scope.not_judged =
        fmt::format("whether {} works on {} cannot be seen: not judged meanwhile", life.title, labels(maybe));
  }
  add(std::move(member), life);
}

const std::vector<Member>& Roster::look(const std::vector<Device>& scope, const std::vector<Card>& cards) {
  members_.clear();
  options_.per == Per::gpu ? look_at_gpus(scope, cards) : look_at_jobs(scope, cards);
  return members_;
}

const Member* Roster::find(const SubjectId& id) const {
  const auto found = std::ranges::find_if(members_, [&](const Member& one) { return one.subject.id == id; });
  return found == members_.end() ? nullptr : &*found;
}

}  // namespace lull
