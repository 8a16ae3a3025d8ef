#include "jobs/scope.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "act/cgroup.h"
#include "base/text.h"
#include "base/users.h"
#include "lease/folder.h"
#include "lease/record.h"
#include "sense/openers.h"
#include "sense/select.h"

namespace lull {
namespace {

constexpr std::string_view kOurJob = "ours";
constexpr std::string_view kOtherJob = "another";

std::vector<Device> devices_at(const Inventory& inventory, const std::vector<std::size_t>& places) {
  std::vector<Device> devices;
  devices.reserve(places.size());
  for (const std::size_t place : places) devices.push_back(inventory.devices[place]);
  return devices;
}

// Also one that was known by its UUID until a second GPU showed the same.
bool same_device(const Device& now, const Device& before) {
  if (now.is(before.id())) return true;
  return now.shares_uuid && now.uuid == before.uuid && !now.pci.empty() && now.pci == before.pci &&
         now.kind == before.kind && now.mig_index == before.mig_index;
}

bool among(const std::vector<Device>& devices, const Device& one) {
  return std::ranges::any_of(devices, [&](const Device& device) { return same_device(device, one); });
}

void add_missing(std::vector<Device>& devices, const std::vector<Device>& more) {
  for (const Device& one : more)
    if (!among(devices, one)) devices.push_back(one);
}

// "0,2-3": numbers of device files. Nothing: not such a list.
std::optional<std::vector<unsigned>> numbers_in(std::string_view text) {
  constexpr std::uint64_t kMost = 4096;
  std::vector<unsigned> numbers;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t dash = part.find('-');
    const auto first = to_unsigned(trim(part.substr(0, dash)));
    const auto last = dash == std::string_view::npos ? first : to_unsigned(trim(part.substr(dash + 1)));
    if (!first || !last || *last < *first || *last > kMost) return std::nullopt;
    for (std::uint64_t number = *first; number <= *last; ++number) numbers.push_back(static_cast<unsigned>(number));
  }
  return numbers;
}

bool is_used_by_render_node(const Device& device) {
  return device.kind == DeviceKind::gpu && device.render_minor &&
         (device.vendor == Vendor::amd || device.vendor == Vendor::intel);
}

}  // namespace

// ---- JobGpus

template <class Is>
std::vector<Device> JobGpus::those(Is is) const {
  std::vector<Device> devices;
  for (const Place& place : places_)
    if (std::invoke(is, place)) devices.push_back(place.device);
  return devices;
}

void JobGpus::use(const Inventory& inventory) {
  std::vector<Place> places;
  places.reserve(inventory.devices.size());
  for (const Device& device : inventory.devices) {
    // By its name first. What was known by its place alone, while it had no name, is the same card too.
    std::optional<Place> found;
    for (const bool by_name : {true, false})
      for (auto one = places_.begin(); one != places_.end();) {
        if (by_name ? one->device.id() != device.id() : !device.is(one->device.id())) {
          ++one;
          continue;
        }
        if (found)
          found->held = found->held || one->held;
        else
          found = std::move(*one);
        one = places_.erase(one);
      }
    Place place = std::move(found).value_or(Place{});
    place.device = device;
    place.listed = true;
    places.push_back(std::move(place));
  }
  for (Place& place : places_) {
    if (!place.held) continue;
    place.listed = false;
    places.push_back(std::move(place));
  }
  places_ = std::move(places);
}

void JobGpus::look_at(Place& place, const GpuUse& use, const IsOurs& is_ours) {
  place.forbidden = use.forbidden;
  place.reachable = use.reachable;
  place.settled = use.asleep;  // nothing runs there; what the job has, it keeps
  place.doubtful = false;
  if (!use.listed) return;
  place.looked = true;
  if (use.asleep || !is_ours) return;
  std::vector<ProcessId> ours;
  // Whether a list without the job's processes proves that it has none there. Where the driver may leave processes out,
  // or names some by numbers that mean nothing here or whose processes have ended, only an empty card does, or, of one
  // that is used through its render node alone, who holds that: the files of others are closed to us, the job's are
  // not.
  bool conclusive = true;
  bool doubtful = !use.empty && use.hides;
  if (doubtful && !is_used_by_render_node(place.device)) conclusive = false;
  for (const GpuProcess& process : use.processes) {
    if (!process.here) continue;
    if (process.identified) {
      if (is_ours(process.pid)) ours.push_back(process.id());
    } else if (process.proven() || is_ours(process.pid)) {
      conclusive = false;
    } else if (!job_is_new_) {
      // Of another user mostly. It had its number when it was first listed: one that is older than the job stands for
      // none of the job's, however its own files cannot be looked at.
      doubtful = true;
    }
  }
  place.settled = !ours.empty() || (conclusive && !doubtful);
  place.doubtful = doubtful && !place.settled && conclusive;
  settle(place, std::move(ours));
}

void JobGpus::settle(Place& place, std::vector<ProcessId> ours) {
  if (!ours.empty()) {
    place.held = ever_ = true;
    place.ours = std::move(ours);
  } else if (place.settled) {
    place.held = false;
    place.ours.clear();
  }
}

void JobGpus::look_at_files(const IsOurs& is_ours) {
  for (Place& place : places_) place.opened = false;
  if (!is_ours) return look_at_closed();
  std::vector<std::size_t> untold;
  for (std::size_t i = 0; i < inventory_->devices.size(); ++i) {
    if (!places_[i].reachable && inventory_->devices[i].kind == DeviceKind::gpu) untold.push_back(i);
    if (places_[i].doubtful) untold.push_back(inventory_->card_of(i));
  }
  if (untold.empty()) return;
  std::ranges::sort(untold);
  untold.erase(std::ranges::unique(untold).begin(), untold.end());
  const FileHolders& found = users_->file_holders(untold);
  const bool hidden = std::ranges::any_of(found.hidden, is_ours);
  const auto has_job = [&](std::size_t place) {
    const auto which = static_cast<std::size_t>(std::ranges::find(untold, place) - untold.begin());
    return hidden || std::ranges::any_of(found.holders[which], is_ours);
  };
  for (std::size_t i = 0; i < inventory_->devices.size(); ++i) {
    Place& place = places_[i];
    if (!place.reachable && place.device.kind == DeviceKind::gpu) place.opened = has_job(i);
    // No process of the job has opened it: an unproven process there is not one of the job's.
    if (!place.doubtful || has_job(inventory_->card_of(i))) continue;
    place.settled = true;
    settle(place, {});
  }
}

// Without a job: any work on an unreadable GPU counts. Our processes cannot work where we may not open it; other
// processes may where they are seen to hold it.
void JobGpus::look_at_closed() {
  std::vector<std::size_t> barred;
  for (std::size_t i = 0; i < inventory_->devices.size(); ++i) {
    Place& place = places_[i];
    if (place.reachable || !place.forbidden) continue;
    place.opened = open_to_us(*inventory_, i, users_->root());
    if (!place.opened && place.device.kind == DeviceKind::gpu) barred.push_back(i);
  }
  if (barred.empty()) return;
  const FileHolders& found = users_->file_holders(barred);
  // Whoever has files that we may not look at may hold it.
  for (std::size_t i = 0; i < barred.size(); ++i)
    places_[barred[i]].opened = !found.holders[i].empty() || !found.hidden.empty();
}

void JobGpus::look(const Snapshot& snapshot, const IsOurs& is_ours, bool fresh) {
  if (snapshot.inventory != inventory_) {
    inventory_ = snapshot.inventory;
    use(*inventory_);
  }
  const std::vector<GpuUse> uses = users_->look(snapshot, is_ours ? UserDetail::identity : UserDetail::none, fresh);
  for (std::size_t i = 0; i < uses.size(); ++i) look_at(places_[i], uses[i], is_ours);
  look_at_files(is_ours);
  if (!is_ours) return;
  shares_.look(snapshot, uses, [&](const GpuProcess& one) -> std::optional<std::string> {
    const bool ours = is_ours(one.pid);
    // If the pid now belongs to a process that is not of the job, it is another process, proven or not.
    if (!one.identified && (ours || !one.here || one.proven())) return std::nullopt;
    return std::string(ours ? kOurJob : kOtherJob);
  });
}

void JobGpus::add_share(Facts& job, const std::vector<Device>& scope) const {
  shares_.add_to(job, std::string(kOurJob), scope);
}

void JobGpus::forget() {
  users_->forget_reached();
  *this = JobGpus(users_, job_is_new_);
}

std::vector<Device> JobGpus::held() const { return those(&Place::held); }

std::vector<Device> JobGpus::unseen() const {
  return those(
      [](const Place& one) { return one.listed && (one.reachable || one.opened) && !one.settled && !one.held; });
}

std::vector<Device> JobGpus::closed() const {
  return those([](const Place& one) { return one.is_silent() && !one.opened; });
}

std::vector<Device> JobGpus::silent() const {
  return those([](const Place& one) { return one.is_silent() && one.opened; });
}

bool JobGpus::blind() const {
  return !places_.empty() && std::ranges::none_of(places_, [](const Place& place) { return place.looked; });
}

std::optional<ProcessEntry> JobGpus::stopped(bool traced) const {
  for (const Place& place : places_)
    for (const auto& [pid, start] : place.ours) {
      const auto entry = read_process_entry(pid, users_->root());
      if (!entry || entry->start_ticks != start) continue;
      const char state = run_state(*entry, users_->root());
      if (state == 'T' || (traced && state == 't')) return *entry;
    }
  return std::nullopt;
}

bool JobGpus::frozen(std::vector<pid_t> others) const {
  for (const Place& place : places_)
    for (const auto& [pid, start] : place.ours) {
      const auto entry = read_process_entry(pid, users_->root());
      if (entry && entry->start_ticks == start) others.push_back(pid);
    }
  return !others.empty() && is_any_frozen(others, users_->root());
}

JobEnvironment JobEnvironment::of_this_process() {
  return {
      .variables = RuntimeVariables::of_this_process(),
      .lease = environment_variable("LULL_LEASE").value_or(""),
      .slurm = environment_variable("SLURM_STEP_GPUS").value_or(environment_variable("SLURM_JOB_GPUS").value_or(""))};
}

void ScopeFinder::note(std::string text) {
  if (noted_.insert(text).second) notes_.push_back(std::move(text));
}

void ScopeFinder::forget_job() {
  contexts_.forget();
  given_ = {};
  inventory_.reset();
}

void ScopeFinder::set_environment(JobEnvironment environment) {
  options_.environment = std::move(environment);
  inventory_.reset();  // so that it is looked up
}

// ---- what was given

// What the variables of all vendors give together: a job may use several.
ScopeFinder::Given ScopeFinder::by_variable() {
  Given given;
  std::vector<VisibleOf> all = visible_by_variables(options_.environment.variables, *inventory_);
  const auto gives_none = [](const VisibleOf& one) { return one.visible.devices.empty(); };
  if (!std::ranges::all_of(all, gives_none)) std::erase_if(all, gives_none);
  for (const VisibleOf& one : all) {
    const Visible& visible = one.visible;
    const bool uncertain = !visible.certain && !visible.order_certain;
    add_missing(given.devices, devices_at(*inventory_, visible.devices));
    given.by += (given.by.empty() ? "" : " and ") + one.variable;
    given.uncertain = given.uncertain || uncertain;
    // Of AMD and Intel those that may be meant are in it already.
    given.may_be_any = given.may_be_any || (uncertain && one.vendor == Vendor::nvidia);
    given.count += one.count;
    if (!one.none.empty()) given.none += (given.none.empty() ? "" : ", ") + one.none;
    if (!visible.devices.empty() && !visible.note.empty())
      note(visible.note + (uncertain ? "; all that may be meant are watched" : ""));
  }
  return given;
}

// Only a lease of ours counts: a variable that was inherited from elsewhere gives no GPUs.
ScopeFinder::Given ScopeFinder::by_lease() {
  Given given;
  const auto leases = read_leases();
  if (!leases) {
    note("leases cannot be read: " + leases.error().message() + "; all GPUs that may be meant are watched");
    return {.devices = {},
            .by = "its lease",
            .uncertain = true,
            .may_be_any = true,
            .count = 0,
            .none = {},
            .unread = true};
  }
  for (const LeaseInfo& lease : *leases) {
    if (lease.record.id != options_.environment.lease || !is_us(lease.owner) ||
        lease.record.kind == LeaseKind::collecting)
      continue;
    for (const Device& device : inventory_->devices)
      if (is_leased_as(device, lease.gpu)) given.devices.push_back(device);
  }
  given.count = given.devices.size();
  if (given.count > 0) given.by = "its lease";
  return given;
}

ScopeFinder::Given ScopeFinder::by_slurm() const {
  Given given;
  const auto numbers = numbers_in(options_.environment.slurm);
  const auto& devices = inventory_->devices;
  // Parts of a GPU have no device file of their own that its numbers could mean.
  if (!numbers || std::ranges::any_of(devices, [](const Device& one) { return one.kind == DeviceKind::mig; }))
    return given;
  for (const Device& device : devices)
    if (std::ranges::count(*numbers, device.minor.value_or(device.index)) > 0) given.devices.push_back(device);
  given.count = numbers->size();
  given.uncertain = given.may_be_any = given.devices.size() < numbers->size() ||
                                       std::ranges::any_of(devices, [](const Device& one) { return !one.minor; });
  given.by = "its Slurm allocation";
  return given;
}

// The variable comes first: it is what the job's own runtime goes by, `lull pick` and Slurm set it themselves, and who
// narrows it further gives one of several jobs its share of what all of them have.
ScopeFinder::Given ScopeFinder::given_now() {
  if (Given given = by_variable(); !given.by.empty()) return given;
  if (!options_.environment.lease.empty())
    if (Given given = by_lease(); !given.by.empty()) return given;
  if (!options_.environment.slurm.empty())
    if (Given given = by_slurm(); !given.by.empty()) return given;
  return {};
}

// What was given and is not in the inventory any more has not been taken back: it cannot be seen. But a part of a GPU
// that is there itself was done away with (MIG was switched).
void ScopeFinder::keep_vanished(std::vector<Device>& devices, const std::vector<Device>& before) const {
  const auto cut_up = [this](const Device& part) {
    return part.kind == DeviceKind::mig && std::ranges::any_of(inventory_->devices, [&](const Device& whole) {
             return whole.kind == DeviceKind::gpu && whole.absence == Absence::none && whole.pci == part.pci;
           });
  };
  for (const Device& one : before)
    if (!among(devices, one) && !among(inventory_->devices, one) && !cut_up(one)) devices.push_back(one);
}

Result<std::vector<std::size_t>> ScopeFinder::named_that_exist() {
  std::vector<std::size_t> found;
  std::string absent;
  for (const std::string_view part : split(options_.gpus, ',')) {
    const auto chosen = select_devices(part, *inventory_);
    if (chosen)
      found.insert(found.end(), chosen->begin(), chosen->end());
    else
      absent += (absent.empty() ? "" : ",") + std::string(part);
  }
  if (found.empty()) return select_devices(options_.gpus, *inventory_);  // why
  if (!absent.empty()) note(fmt::format("GPU {} is not on this system: judging on the others", printable(absent)));
  return found;
}

void ScopeFinder::resolve_named() {
  const bool all = options_.gpus == "all";
  if (!given_.devices.empty() && !all) {  // numbers meant the GPUs of back then
    for (Device& one : given_.devices)
      for (const Device& device : inventory_->devices)
        if (same_device(device, one)) one = device;
    return;
  }
  trouble_.clear();
  const auto chosen = options_.absent_left_out ? named_that_exist() : select_devices(options_.gpus, *inventory_);
  if (!chosen) {
    trouble_ = options_.option + ": " + chosen.error().message();
    return;
  }
  std::vector<Device> devices = devices_at(*inventory_, *chosen);
  keep_vanished(devices, given_.devices);
  given_ = {.devices = std::move(devices), .by = options_.option};
}

void ScopeFinder::resolve() {
  if (inventory_->devices.empty()) return;  // whatever was given stays given
  for (std::string& text : inventory_->warnings()) note(std::move(text));
  if (!options_.gpus.empty()) return resolve_named();
  Given now = given_now();
  if (now.by == given_.by) keep_vanished(now.devices, given_.devices);
  given_ = std::move(now);
}

// ---- what is in scope

// Where the job has contexts. A GPU that is split shows the processes of its parts as well: the parts are what counts,
// all of them where theirs tell nothing.
std::vector<Device> ScopeFinder::held() const {
  const std::vector<Device> seen = contexts_.held();
  std::vector<Device> devices;
  for (const Device& one : seen) {
    std::vector<Device> parts;
    bool known = false;
    for (const Device& part : inventory_->devices) {
      if (one.kind != DeviceKind::gpu || part.kind != DeviceKind::mig || part.index != one.index) continue;
      parts.push_back(part);
      known = known || among(seen, part);
    }
    if (parts.empty()) parts.push_back(one);
    if (!known) add_missing(devices, parts);
  }
  return devices;
}

// All GPUs, as their parts where they are split, without those that are not for us.
std::vector<Device> ScopeFinder::everything() {
  Visible visible = visible_devices(std::nullopt, std::nullopt, *inventory_);
  std::ranges::sort(visible.devices);
  std::vector<Device> devices = devices_at(*inventory_, visible.devices);
  const std::vector<Device> closed = contexts_.closed();
  std::erase_if(devices, [&](const Device& one) { return among(closed, one); });
  if (!closed.empty() && !devices.empty())
    note(labels(closed) + ": no permission, and " +
         (options_.is_ours ? "no process of the job has opened its device file"
                           : "lull may not open its device file, and no process is seen to hold it") +
         ": left out (" + options_.option + " includes it)");
  if (const std::vector<Device> silent = contexts_.silent(); !silent.empty() && !options_.is_ours)
    note(labels(silent) +
         ": no permission to read it, but a process may work there (its device file can be opened, or may be held): it "
         "counts as unknown (" +
         options_.option + " can leave it out)");
  return devices;
}

void ScopeFinder::not_seen(std::string why) {
  scope_.not_judged = std::move(why);
  scope_.unseen = true;
}

void ScopeFinder::compose_given(const std::vector<Device>& contexts) {
  scope_ = {given_.devices, given_.by, {}};
  if (!options_.gpus.empty()) {
    std::vector<Device> elsewhere = contexts;
    std::erase_if(elsewhere, [&](const Device& one) { return among(scope_.devices, one); });
    if (!elsewhere.empty())
      note("the job has a context on " + labels(elsewhere) + " too, which " + options_.option +
           " leaves out of the judgement");
    return;
  }
  if (given_.uncertain && given_.count > 0 && contexts.size() >= given_.count && contexts_.unseen().empty()) {
    scope_ = {contexts, "the job has a context there", {}};  // so these are the ones that were meant
    return;
  }
  if (given_.uncertain) {
    if (!options_.stricter_with_more)
      not_seen("it is not certain which GPUs " + given_.by + " means: not judged until the job has a context on them");
    else if (given_.may_be_any)
      add_missing(scope_.devices, everything());
  }
  const std::size_t before = scope_.devices.size();
  add_missing(scope_.devices, contexts);
  if (scope_.devices.size() > before) scope_.why += ", and the job has a context there";
  if (!contexts.empty() && scope_.not_judged.empty()) add_unseen();
  if (scope_.devices.empty())
    scope_.not_judged = (given_.none.empty() ? given_.by + " gives it no GPU" : given_.none) +
                        ": there is nothing to judge until the job has a context on one";
}

// GPUs on which the job may be as well, which cannot be seen now. They may make an answer unknown or a no, never a yes.
void ScopeFinder::add_unseen() {
  const std::vector<Device> all = everything();
  std::vector<Device> maybe = contexts_.unseen();
  std::erase_if(maybe, [&](const Device& one) { return !among(all, one) || among(scope_.devices, one); });
  if (maybe.empty()) return;
  if (options_.stricter_with_more)
    add_missing(scope_.devices, maybe);
  else
    not_judged_for(maybe);
}

void ScopeFinder::not_judged_for(const std::vector<Device>& unseen) {
  not_seen("it is unknown whether the job works on " + labels(unseen) + ": not judged until it is known");
}

void ScopeFinder::compose_contexts(const std::vector<Device>& contexts) {
  scope_ = {contexts, "the job has a context there", {}};
  if (!contexts.empty()) return add_unseen();
  if (options_.all_without_context && (options_.stricter_with_more || contexts_.unseen().empty())) {
    compose_all();
  } else if (!options_.needs_gpu) {
    scope_ = {everything(), "all of them", {}};
  } else if (contexts_.blind()) {
    not_seen("the processes on the GPUs are unknown: the job is not judged; " + options_.option + " names its GPUs");
  } else if (options_.all_without_context) {
    not_judged_for(contexts_.unseen());
  } else if (contexts_.ever()) {
    scope_.not_judged = "the job has no GPU context any more: not judged until it has one again";
  } else {
    scope_.not_judged =
        fmt::format("the job has no GPU context yet: not judged until it has one ({}all judges all GPUs)",
                    options_.option.ends_with('=') ? options_.option : options_.option + " ");
  }
}

void ScopeFinder::compose() {
  const std::vector<Device> contexts = held();
  if (!options_.gpus.empty() || !given_.by.empty()) return compose_given(contexts);
  if (inventory_->devices.empty() && contexts.empty()) {
    scope_ = {};  // the driver's absence is said elsewhere
  } else if (options_.is_ours) {
    compose_contexts(contexts);
  } else {
    compose_all();
  }
}

void ScopeFinder::leave_out_integrated(std::vector<Device>& devices) {
  std::vector<Device> integrated;
  std::ranges::copy_if(devices, std::back_inserter(integrated), &Device::integrated);
  if (integrated.empty() || integrated.size() == devices.size()) return;
  std::erase_if(devices, &Device::integrated);
  note(fmt::format("{}: integrated, and left out beside other GPUs ({}{}all takes it in)", labels(integrated),
                   options_.option, options_.option.ends_with('=') ? "" : " "));
}

void ScopeFinder::compose_all() {
  std::vector<Device> devices = everything();
  if (options_.without_integrated) leave_out_integrated(devices);
  keep_vanished(devices, all_);
  all_ = devices;
  scope_ = {std::move(devices), "all of them", {}};
  // Those that are left out are all there are.
  if (scope_.devices.empty()) scope_.not_judged = "every GPU says \"no permission\": none is judged";
}

const Scope& ScopeFinder::find(const Snapshot& snapshot, bool fresh) {
  const bool other = snapshot.inventory != inventory_;
  inventory_ = snapshot.inventory;
  contexts_.look(snapshot, options_.is_ours, fresh);
  if (other || given_.unread) resolve();
  compose();
  return scope_;
}

}  // namespace lull
