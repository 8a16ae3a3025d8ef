#include "jobs/scope.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/text.h"
#include "lease/folder.h"
#include "sense/select.h"
#include "sense/visible.h"

namespace lull {
namespace {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

std::vector<Device> devices_at(const Inventory& inventory, const std::vector<std::size_t>& places) {
  std::vector<Device> devices;
  devices.reserve(places.size());
  for (const std::size_t place : places) devices.push_back(inventory.devices[place]);
  return devices;
}

bool among(const std::vector<Device>& devices, const Device& one) {
  return std::ranges::any_of(devices, [id = one.id()](const Device& device) { return device.is(id); });
}

void add_missing(std::vector<Device>& devices, const std::vector<Device>& more) {
  for (const Device& one : more)
    if (!among(devices, one)) devices.push_back(one);
}

std::string labels(const std::vector<Device>& devices) {
  std::string text;
  for (const Device& device : devices) text += (text.empty() ? "" : ", ") + device.label();
  return (devices.size() == 1 ? "GPU " : "GPUs ") + text;
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

}  // namespace

JobEnvironment JobEnvironment::of_this_process() {
  return {.cuda_visible_devices = environment("CUDA_VISIBLE_DEVICES"),
          .cuda_device_order = environment("CUDA_DEVICE_ORDER"),
          .lease = environment("LULL_LEASE").value_or(""),
          .slurm = environment("SLURM_STEP_GPUS").value_or(environment("SLURM_JOB_GPUS").value_or(""))};
}

void ScopeFinder::note(std::string text) {
  if (noted_.insert(text).second) notes_.push_back(std::move(text));
}

void ScopeFinder::forget_job() {
  contexts_.forget();
  given_ = {};
  inventory_.reset();
}

// ---- what was given

ScopeFinder::Given ScopeFinder::by_variable() {
  const JobEnvironment& job = options_.environment;
  const Visible visible = visible_devices(job.cuda_visible_devices, job.cuda_device_order, *inventory_);
  Given given{devices_at(*inventory_, visible.devices), "CUDA_VISIBLE_DEVICES", false, visible.devices.size()};
  given.uncertain = !visible.certain && !visible.order_certain;
  given.none = why_none_is_visible(visible, job.cuda_visible_devices);
  if (!visible.devices.empty() && !visible.note.empty())
    note(visible.note + (given.uncertain ? "; all that may be meant are watched" : ""));
  return given;
}

// Whoever else's it is: a variable that came from elsewhere gives nobody anything.
ScopeFinder::Given ScopeFinder::by_lease() const {
  Given given;
  const auto leases = read_leases();
  if (!leases) return given;
  for (const LeaseInfo& lease : *leases) {
    if (lease.record.id != options_.environment.lease || lease.owner != ::geteuid() ||
        lease.record.kind == LeaseKind::collecting)
      continue;
    for (const Device& device : inventory_->devices)
      if (device.uuid == lease.gpu) given.devices.push_back(device);
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
  given.uncertain = given.devices.size() < numbers->size() ||
                    std::ranges::any_of(devices, [](const Device& one) { return !one.minor; });
  given.by = "its Slurm allocation";
  return given;
}

// The variable comes first: it is what the job's own runtime goes by, `lull pick` and Slurm set it themselves, and who
// narrows it further gives one of several jobs its share of what all of them have.
ScopeFinder::Given ScopeFinder::given_now() {
  if (options_.environment.cuda_visible_devices) return by_variable();
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
        if (device.is(one.id())) one = device;
    return;
  }
  trouble_.clear();
  const auto chosen = options_.absent_left_out ? named_that_exist() : select_devices(options_.gpus, *inventory_);
  if (!chosen) {
    trouble_ = "--gpus: " + chosen.error().message();
    return;
  }
  std::vector<Device> devices = devices_at(*inventory_, *chosen);
  keep_vanished(devices, given_.devices);
  given_ = {std::move(devices), "--gpus", false, 0};
}

void ScopeFinder::resolve() {
  if (inventory_->devices.empty()) return;  // whatever was given stays given
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
                           : "we may not open its device file, nor is anybody seen to hold it") +
         ": left out (--gpus takes it in)");
  if (const std::vector<Device> silent = contexts_.silent(); !silent.empty() && !options_.is_ours)
    note(labels(silent) +
         ": no permission to read it, but somebody may work there (its device file can be opened, or is held): it "
         "counts "
         "as unknown (--gpus can leave it out)");
  return devices;
}

void ScopeFinder::compose_given(const std::vector<Device>& contexts) {
  scope_ = {given_.devices, given_.by, {}};
  if (!options_.gpus.empty()) {
    std::vector<Device> elsewhere = contexts;
    std::erase_if(elsewhere, [&](const Device& one) { return among(scope_.devices, one); });
    if (!elsewhere.empty())
      note("the job has a context on " + labels(elsewhere) + " too, which --gpus leaves out of the judgement");
    return;
  }
  if (given_.uncertain && given_.count > 0 && contexts.size() >= given_.count && contexts_.unseen().empty()) {
    scope_ = {contexts, "the job has a context there", {}};  // so these are the ones that were meant
    return;
  }
  if (given_.uncertain) {
    if (options_.stricter_with_more)
      add_missing(scope_.devices, everything());
    else
      scope_.not_judged =
          "which GPUs " + given_.by + " means cannot be told for sure: not judged until the job has a context on them";
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
    scope_.not_judged = "whether the job works on " + labels(maybe) + " cannot be seen: not judged meanwhile";
}

void ScopeFinder::compose_contexts(const std::vector<Device>& contexts) {
  scope_ = {contexts, "the job has a context there", {}};
  if (!contexts.empty()) return add_unseen();
  if (!options_.needs_gpu) {
    scope_ = {everything(), "all of them", {}};
  } else if (contexts_.blind()) {
    scope_.not_judged =
        "the processes on the GPUs cannot be seen: the job is not judged; --gpus says which GPUs are its own";
  } else if (contexts_.ever()) {
    scope_.not_judged = "the job has no GPU context any more: not judged until it has one again";
  } else {
    scope_.not_judged = "the job has no GPU context yet: not judged until it has one (--gpus all judges all GPUs)";
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
    std::vector<Device> devices = everything();
    keep_vanished(devices, all_);
    all_ = devices;
    scope_ = {std::move(devices), "all of them", {}};
    // Those that are left out are all there are.
    if (scope_.devices.empty()) scope_.not_judged = "every GPU says \"no permission\": none is judged";
  }
}

const Scope& ScopeFinder::find(const Snapshot& snapshot) {
  const bool other = snapshot.inventory != inventory_;
  inventory_ = snapshot.inventory;
  contexts_.look(snapshot, options_.is_ours);
  if (other) resolve();
  compose();
  return scope_;
}

}  // namespace lull
