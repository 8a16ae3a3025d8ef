#include "fill/sights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/text.h"
#include "base/users.h"
#include "gpu/empty_card.h"
#include "rule/reason.h"
#include "sense/processes.h"
#include "sense/select.h"

namespace lull {
namespace {

std::string called(pid_t pid) {
  const std::string program = program_of(pid);
  const auto info = read_process(Root::machine(), pid);
  return fmt::format("{}{} ({})", info ? info->user + "'s " : "", program.empty() ? "process" : program, pid);
}

bool has_parts(const Inventory& inventory, std::size_t place) {
  return place + 1 < inventory.devices.size() && inventory.devices[place + 1].kind == DeviceKind::mig &&
         inventory.devices[place].kind == DeviceKind::gpu;
}

// Where its device file is listed: a MIG device shares that of its card.
std::size_t card_of(const Inventory& inventory, std::size_t place) {
  while (place > 0 && inventory.devices[place].kind == DeviceKind::mig) --place;
  return place;
}

// Programs that we leave out by ourselves look at GPUs, or draw: one of them that computes is somebody's work under
// that name, unless the settings name it too.
bool only_looks(const FillSettings& settings, const Tenant& tenant) {
  if (!is_ignored_opener(tenant.pid, settings.ignore)) return false;
  return tenant.graphics || std::ranges::count(settings.ignore, program_of(tenant.pid)) > 0 ||
         !is_ignored_opener(tenant.pid, {});
}

}  // namespace

Sights::Sights(const FillSettings& settings, Owns owns) : settings_(settings), owns_(std::move(owns)) {}

void Sights::observe(const Snapshot& snapshot) {
  if (snapshot.inventory != inventory_) {
    inventory_ = snapshot.inventory;
    for (const Device& device : inventory_->devices)
      if (!known_.contains(device.id()))
        known_.emplace(device.id(),
                       Known{device, Judge({.idle = settings_.free}, {device}, {.interval = settings_.every})});
  }
  for (auto& [id, known] : known_) (void)known.judge.observe(snapshot);
}

void Sights::disturb(const DeviceId& gpu) {
  if (const auto found = known_.find(gpu); found != known_.end()) found->second.judge.begin_anew();
}

std::vector<GpuSight> Sights::look(const Seen& seen) {
  std::vector<GpuSight> sights;
  for (std::size_t i = 0; i < seen.snapshot.inventory->devices.size(); ++i) sights.push_back(look_at(seen, i));
  return sights;
}

GpuSight Sights::look_at(const Seen& seen, std::size_t place) {
  const Device& device = seen.snapshot.inventory->devices[place];
  const Reading& reading = seen.snapshot.readings[place];
  GpuSight sight{.gpu = device.id(), .label = device.label()};
  if (seen.snapshot.driver.absence != Absence::none)
    sight.unreadable = std::string(words(seen.snapshot.driver.absence));
  else if (reading.device_absence != Absence::none)
    sight.unreadable = std::string(words(reading.device_absence));
  else if (!reading.tenants)
    sight.unreadable = "who computes on it cannot be read";
  else if (!seen.no_leases.empty())
    sight.unreadable = "leases cannot be read: " + seen.no_leases;
  else if (!seen.no_people.empty())
    sight.unreadable = seen.no_people;
  sight.temp = reading[Metric::temp];
  sight.mem_used = reading[Metric::mem_used];
  sight.mem_free = reading[Metric::mem_free];
  sight.mem_total = reading[Metric::mem_total];
  add_claims(seen, device, reading, sight);
  add_openers(seen, card_of(*seen.snapshot.inventory, place), sight);
  if (reading.tenants && reading.tenants->empty() && !reading.processes_hidden && sight.mem_used > kEmptyCard)
    sight.mem_unexplained = sight.mem_used;
  const auto known = known_.find(sight.gpu);
  if (known == known_.end()) return sight;
  if (!sight.claims.empty()) known->second.judge.begin_anew();
  sight.not_free = against(known->second.judge);
  return sight;
}

void Sights::add_claims(const Seen& seen, const Device& device, const Reading& reading, GpuSight& sight) const {
  if (seen.leases != nullptr) {
    for (const LeaseInfo& lease : seen.leases->leases)
      if (lease.gpu == device.uuid && !(lease.record.holder.pid > 0 && owns_(lease.record.holder.pid)))
        sight.claims.push_back({.kind = Reason::leased, .who = user_name(lease.owner)});
  }
  if (reading.tenants) {
    for (const Tenant& tenant : *reading.tenants) {
      if (!tenant.compute || tenant.mps_server) continue;
      if (tenant.here && (owns_(tenant.pid) || only_looks(settings_, tenant))) continue;
      if (tenant.here && is_ignored_on(settings_, device, program_of(tenant.pid))) continue;
      sight.claims.push_back({.kind = Reason::used,
                              .who = tenant.here ? called(tenant.pid)
                                                 : fmt::format("a process of another pid namespace ({})", tenant.pid)});
    }
  }
  for (const ActivePerson& person : seen.people)
    sight.claims.push_back({.kind = Reason::user, .who = person.name, .time = person.idle});
}

void Sights::add_openers(const Seen& seen, std::size_t place, GpuSight& sight) const {
  if (seen.openers == nullptr || place >= seen.openers->holders.size()) return;
  if (seen.openers->absence[place] == Absence::looking) return;  // not done yet
  if (seen.openers->absence[place] == Absence::no_permission) {
    sight.hidden = static_cast<unsigned>(seen.openers->hidden.size());
    return;
  }
  if (seen.openers->absence[place] != Absence::none) {
    if (sight.unreadable.empty()) sight.unreadable = "its device file cannot be looked at";
    return;
  }
  sight.openers.emplace();
  for (const pid_t pid : seen.openers->holders[place]) {
    if (owns_(pid)) continue;
    const auto entry = read_process_entry(pid);
    if (!entry) continue;  // gone
    std::string program = program_of(pid);
    if (is_ignored_on(settings_, seen.snapshot.inventory->devices[place], program)) continue;
    sight.openers->push_back({pid, entry->start_ticks, std::move(program)});
  }
}

std::optional<Reason> Sights::against(const Judge& judge) const {
  const Verdict& verdict = judge.verdict();
  if (verdict.truth == Truth::yes) return std::nullopt;
  if (verdict.condition == Truth::yes) {
    const std::uint64_t missing =
        verdict.needed.samples - std::min<std::uint64_t>(verdict.needed.samples, verdict.held_samples);
    const Duration left =
        verdict.needed.samples > 0 ? settings_.every * static_cast<int>(missing) : verdict.needed.time - verdict.held;
    return Reason{.kind = Reason::starts_soon, .time = std::max(left, Duration(1))};
  }
  const Explanation why = judge.explain();
  if (verdict.condition == Truth::unknown) {
    const std::string missing = missing_line(why.missing);
    return Reason{.kind = Reason::rule, .who = missing.empty() ? "the rule cannot be judged yet" : missing};
  }
  std::string values;
  for (const Story& story : why.stories)
    values += fmt::format("{}{} is {}", values.empty() ? "" : ", ", info(story.metric).name,
                          value_text(story.metric, story.last, story.share));
  return Reason{.kind = Reason::rule, .who = values.empty() ? "the rule does not hold" : values};
}

std::vector<Waiter> Sights::waiters(const FolderState& leases, const Snapshot& snapshot) const {
  std::vector<Waiter> found;
  for (const TicketInfo& ticket : leases.tickets) {
    if (ticket.stopped || stopped(ticket.record.waiter)) continue;  // it could not take anything now
    if (ticket.record.waiter.pid > 0 && owns_(ticket.record.waiter.pid)) continue;
    Waiter waiter{.id = ticket.file, .who = user_name(ticket.owner), .missing = ticket.record.missing};
    for (const Device& device : snapshot.inventory->devices)
      if (std::ranges::count(ticket.record.scope, device.uuid) + std::ranges::count(ticket.record.wants, device.uuid) >
          0)
        waiter.could_use.push_back(device.id());
    found.push_back(std::move(waiter));
  }
  return found;
}

bool is_ignored_on(const FillSettings& settings, const Device& device, std::string_view program) {
  return !program.empty() && device.minor && std::ranges::any_of(settings.ignore_on, [&](const IgnoredOn& one) {
    return one.files.contains(*device.minor) && std::ranges::count(one.programs, program) > 0;
  });
}

Result<std::vector<std::size_t>> gpus_of(const FillerSettings& filler, const Inventory& inventory) {
  if (filler.absent_left_out && filler.gpus != "all") {
    std::vector<std::size_t> there;
    for (const std::string_view one : split(filler.gpus, ','))
      if (const auto found = select_devices(one, inventory))
        std::ranges::copy_if(*found, std::back_inserter(there),
                             [&](std::size_t place) { return std::ranges::count(there, place) == 0; });
    return there;
  }
  std::vector<std::size_t> places = TRY(select_devices(filler.gpus, inventory));
  if (filler.gpus != "all") return places;
  std::erase_if(places, [&](std::size_t place) { return has_parts(inventory, place); });
  return places;
}

Result<std::vector<FillUnit>> units_of(const std::vector<FillerSettings>& fillers, const Inventory& inventory) {
  std::vector<FillUnit> units;
  for (std::size_t i = 0; i < fillers.size(); ++i) {
    auto places = gpus_of(fillers[i], inventory);
    if (!places) return std::unexpected(std::move(places).error().during(fmt::format("filler {}", fillers[i].name)));
    FillUnit all{.filler = i, .gpus = {}};
    for (const std::size_t place : *places) {
      const DeviceId id = inventory.devices[place].id();
      if (fillers[i].per_gpu)
        units.push_back({.filler = i, .gpus = {id}});
      else
        all.gpus.push_back(id);
    }
    if (!fillers[i].per_gpu && !all.gpus.empty()) units.push_back(std::move(all));
  }
  return units;
}

}  // namespace lull
