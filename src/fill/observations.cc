#include "fill/observations.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "base/users.h"
#include "gpu/snapshot.h"
#include "lease/choice.h"
#include "lease/record.h"
#include "rule/reason.h"
#include "sense/kfd.h"
#include "sense/processes.h"
#include "sense/select.h"

namespace lull {
namespace {

std::string called(const GpuProcess& process) {
  if (process.proof == Proof::stale) return fmt::format("what a process that has ended left there ({})", process.pid);
  if (!process.here) return fmt::format("a process of another pid namespace ({})", process.pid);
  const std::string program = program_of(process.pid);
  const auto user = process_user(Root::machine(), process.pid);
  return fmt::format("{}{} ({})", user ? user_name(*user) + "'s " : "", program.empty() ? "process" : program,
                     process.pid);
}

bool has_parts(const Inventory& inventory, std::size_t place) {
  return place + 1 < inventory.devices.size() && inventory.devices[place + 1].kind == DeviceKind::mig &&
         inventory.devices[place].kind == DeviceKind::gpu;
}

bool is_of_another_vendor(const Inventory& inventory, std::size_t place) {
  return inventory.devices[place].runtime() != inventory.devices.front().runtime();
}

// ROCm opens the render nodes of all GPUs; KFD tells on which of them a process is.
bool is_elsewhere(const Snapshot& snapshot, std::size_t place, pid_t pid) {
  const Reading& reading = snapshot.readings[place];
  if (snapshot.inventory->devices[place].vendor != Vendor::amd || !reading.processes || reading.processes_hidden)
    return false;
  return std::ranges::find(*reading.processes, pid, &GpuProcess::pid) == reading.processes->end() &&
         is_kfd_process(Root::machine(), pid);
}

// Programs that we ignore by default monitor GPUs, or draw: if one of them computes, it is another program of that
// name, unless the settings name it too.
bool only_looks(const FillSettings& settings, const GpuProcess& process) {
  if (!is_ignored_opener(process.pid, settings.ignore)) return false;
  return process.graphics || std::ranges::count(settings.ignore, program_of(process.pid)) > 0 ||
         !is_ignored_opener(process.pid, {});
}

}  // namespace

Observations::Observations(const FillSettings& settings, Owns owns) : settings_(settings), owns_(std::move(owns)) {}

void Observations::observe(const Snapshot& snapshot, const Facts& machine) {
  if (snapshot.inventory != inventory_) {
    inventory_ = snapshot.inventory;
    for (const Device& device : inventory_->devices)
      if (!known_.contains(device.id()))
        known_.emplace(device.id(),
                       Known{device, Judge({.idle = settings_.idle}, {device}, {.interval = settings_.every})});
  }
  for (auto& [id, known] : known_) (void)known.judge.observe(snapshot, Facts(), machine);
}

void Observations::change(const FillSettings& settings) {
  const bool same_rule = settings.idle == settings_.idle && settings.every == settings_.every;
  settings_ = settings;
  if (same_rule) return;
  known_.clear();
  inventory_.reset();
}

void Observations::disturb(const DeviceId& gpu) {
  if (const auto found = known_.find(gpu); found != known_.end()) found->second.judge.begin_anew();
}

std::vector<GpuObservation> Observations::look(const Seen& seen) {
  std::vector<GpuObservation> observations;
  for (std::size_t i = 0; i < seen.snapshot.inventory->devices.size(); ++i) observations.push_back(look_at(seen, i));
  return observations;
}

GpuObservation Observations::look_at(const Seen& seen, std::size_t place) {
  const Device& device = seen.snapshot.inventory->devices[place];
  const Reading& reading = seen.snapshot.readings[place];
  GpuObservation observation{.gpu = device.id(), .label = device.label()};
  if (seen.snapshot.driver.absence != Absence::none)
    observation.unreadable = std::string(to_string(seen.snapshot.driver.absence));
  else if (reading.device_absence != Absence::none)
    observation.unreadable = std::string(to_string(reading.device_absence));
  else if (!reading.processes)
    observation.unreadable = "who computes on it cannot be read";
  else if (!seen.no_leases.empty())
    observation.unreadable = "leases cannot be read: " + seen.no_leases;
  else if (!seen.no_people.empty())
    observation.unreadable = seen.no_people;
  observation.temp = reading[Metric::temp];
  observation.mem_used = reading[Metric::mem_used];
  observation.mem_free = reading[Metric::mem_free];
  observation.mem_total = reading[Metric::mem_total];
  add_claims(seen, device, reading, observation);
  add_openers(seen, seen.snapshot.inventory->card_of(place), observation);
  if (reading.processes && reading.processes->empty() && !reading.processes_hidden &&
      observation.mem_used > empty_card(device))
    observation.mem_unexplained = observation.mem_used;
  const auto known = known_.find(observation.gpu);
  if (known == known_.end()) {
    observation.not_free = Reason{.kind = Reason::rule, .who = "the rule cannot be judged yet"};
    return observation;
  }
  if (!observation.claims.empty()) known->second.judge.begin_anew();
  observation.not_free = against(known->second.judge);
  return observation;
}

void Observations::add_claims(const Seen& seen, const Device& device, const Reading& reading,
                              GpuObservation& observation) const {
  if (seen.leases != nullptr) {
    for (const LeaseInfo& lease : seen.leases->leases)
      if (is_leased_as(device, lease.gpu) && !(lease.record.holder.pid > 0 && owns_(lease.record.holder.pid)))
        observation.claims.push_back({.kind = Reason::leased, .who = user_name(lease.owner)});
  }
  if (reading.processes) {
    for (const GpuProcess& process : *reading.processes) {
      if (!process.compute || process.mps_server) continue;
      // An unproven pid may belong to any process, also if it is now that of our own filler.
      const bool proven = process.proven();
      if (proven && (owns_(process.pid) || only_looks(settings_, process))) continue;
      if (proven && is_ignored_on(settings_, device, process.pid)) continue;
      observation.claims.push_back({.kind = Reason::used, .who = called(process), .pid = process.pid});
    }
  }
  for (const ActivePerson& person : seen.people)
    observation.claims.push_back({.kind = Reason::user, .who = person.name, .time = person.idle});
}

void Observations::add_openers(const Seen& seen, std::size_t place, GpuObservation& observation) const {
  if (seen.openers == nullptr || place >= seen.openers->holders.size()) return;
  if (seen.openers->absence[place] == Absence::looking) return;  // not done yet
  if (seen.openers->absence[place] == Absence::no_permission) {
    observation.hidden = static_cast<unsigned>(seen.openers->hidden.size());
    return;
  }
  if (seen.openers->absence[place] != Absence::none) {
    if (observation.unreadable.empty()) observation.unreadable = "its device file cannot be looked at";
    return;
  }
  observation.openers.emplace();
  for (const pid_t pid : seen.openers->holders[place]) {
    if (owns_(pid)) continue;
    const auto entry = read_process_entry(pid);
    if (!entry) continue;  // gone
    if (is_ignored_on(settings_, seen.snapshot.inventory->devices[place], pid)) continue;
    if (is_elsewhere(seen.snapshot, place, pid)) continue;
    observation.openers->push_back({.pid = pid, .start_ticks = entry->start_ticks, .program = program_of(pid)});
  }
}

std::optional<Reason> Observations::against(const Judge& judge) const {
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

std::vector<Waiter> Observations::waiters(const FolderState& leases, const Snapshot& snapshot) const {
  std::vector<Waiter> found;
  for (const TicketInfo& ticket : leases.tickets) {
    if (ticket.stopped || stopped(ticket.record.waiter)) continue;  // it could not take anything now
    if (ticket.record.waiter.pid > 0 && owns_(ticket.record.waiter.pid)) continue;
    Waiter waiter{.id = ticket.file, .who = user_name(ticket.owner), .missing = ticket.record.missing};
    for (const Device& device : snapshot.inventory->devices) {
      const auto meant = [&](const std::string& name) { return is_leased_as(device, name); };
      if (std::ranges::any_of(ticket.record.scope, meant) || std::ranges::any_of(ticket.record.wants, meant))
        waiter.could_use.push_back(device.id());
    }
    found.push_back(std::move(waiter));
  }
  return found;
}

std::vector<Metric> metrics_of(const FillSettings& settings) {
  std::vector<Metric> metrics = settings.idle.signals();
  for (const Metric metric : {Metric::mem_used, Metric::mem_free, Metric::mem_total}) metrics.push_back(metric);
  if (std::ranges::any_of(settings.fillers, [](const FillerSettings& one) { return one.max_temp.has_value(); }))
    metrics.push_back(Metric::temp);
  return metrics;
}

bool is_ignored_on(const FillSettings& settings, const Device& device, pid_t pid) {
  return std::ranges::any_of(settings.ignore_on, [&](const IgnoredOn& one) {
    return (!one.files || (device.minor && one.files->contains(*device.minor))) && is_called(pid, one.programs);
  });
}

Result<std::vector<std::size_t>> gpus_of(const FillerSettings& filler, const Inventory& inventory) {
  const bool all = filler.gpus == "all" || filler.gpus.empty();
  if (filler.absent_left_out && !all) {
    std::vector<std::size_t> there;
    for (const std::string_view one : split(filler.gpus, ','))
      if (const auto found = select_devices(one, inventory))
        std::ranges::copy_if(*found, std::back_inserter(there),
                             [&](std::size_t place) { return std::ranges::count(there, place) == 0; });
    return there;
  }
  std::vector<std::size_t> places = TRY(select_devices(all ? "all" : filler.gpus, inventory));
  if (!all) return places;
  std::erase_if(places, [&](std::size_t place) {
    return has_parts(inventory, place) || (filler.gpus.empty() && is_of_another_vendor(inventory, place));
  });
  return places;
}

Result<std::vector<FillUnit>> units_of(const std::vector<FillerSettings>& fillers, const Inventory& inventory) {
  std::vector<FillUnit> units;
  for (std::size_t i = 0; i < fillers.size(); ++i) {
    const auto places = TRY(during(fmt::format("filler {}", fillers[i].name), gpus_of(fillers[i], inventory)));
    FillUnit all{.filler = i, .gpus = {}};
    for (const std::size_t place : places) {
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

std::string left_out(const std::vector<FillerSettings>& fillers, const Inventory& inventory) {
  std::vector<Device> others;
  for (std::size_t place = 0; place < inventory.devices.size(); ++place)
    if (is_of_another_vendor(inventory, place)) others.push_back(inventory.devices[place]);
  if (others.empty() || std::ranges::none_of(fillers, [](const auto& one) { return one.gpus.empty(); })) return {};
  return fmt::format("{}: left out, since a filler has GPUs of one vendor ({}) unless it is told others (gpus)",
                     labels(others), to_string(inventory.devices.front().runtime()));
}

}  // namespace lull
