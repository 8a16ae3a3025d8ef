// From what stands on the board to a Snapshot.
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "sense/sampler_core.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kStartOver = 10s;  // where every GPU fails, a new start may help

// As new: the memory is that of an older sample, to which its owner may have added.
void unknown(Reading& reading, Absence why, Duration unanswered = {}) {
  reading = Reading();
  reading.miss_all(why);
  reading.unanswered = unanswered;
}

}  // namespace

void forget_moments(Reading& reading) {
  if (reading.asleep) return;
  for (const auto& [metric, basis] :
       {std::pair{Metric::util, &reading.util_basis}, std::pair{Metric::power, &reading.power_basis}}) {
    if (reading.why_missing(metric) != Absence::none) continue;
    reading.miss(metric, Absence::not_covered);
    *basis = Basis::unknown;
  }
}

// Who those are that have answered. False: as below.
bool Sampler::Core::learn_identities() {
  for (unsigned i = 0; i < seen.size(); ++i) {
    Seen& one = seen[i];
    const Slot& slot = board->slots[i];
    const std::uint32_t version = slot.identity;
    if (slot.round != requested || version == one.identity.version) continue;
    if (!copy_box(board->identities[i], version, room) || !decode(room, one.identity)) return false;
    one.identity.version = version;
    one.identity.device.index = i;
    rearrange = true;
  }
  return true;
}

// False: it makes no sense; this sensor is not to be asked again.
bool Sampler::Core::collect() {
  if (!learn_identities()) return false;
  for (unsigned i = 0; i < seen.size(); ++i) {
    Seen& one = seen[i];
    const Slot& slot = board->slots[i];
    if (slot.round != requested) continue;
    if (!copy_box(board->answers[i], requested, room) || !decode(room, one.answer)) return false;
    const Instant read = std::clamp(Instant(Duration(slot.done_at)), round_began, last_look);
    if (std::exchange(one.fresh, false) && one.read != Instant{} && read - one.read > kMomentStands) {
      forget_moments(one.answer.gpu);
      std::ranges::for_each(one.answer.parts, forget_moments);
    }
    one.read = read;
    one.round = requested;
    if (one.answer.gpu.device_absence == Absence::none) one.pause = {};
  }
  machine_known = false;
  if (board->machine.round == requested) {
    if (!copy_box(board->report, requested, room) || !decode(room, machine)) return false;
    machine_known = true;
  }
  failures = 0;
  return true;
}

// A card that requires a reset can only have it when nobody holds it: then all is let go, and that card left alone.
bool Sampler::Core::leave_alone_for_reset(Instant at) {
  bool any = false;
  for (unsigned i = 0; i < seen.size(); ++i) {
    Seen& one = seen[i];
    if (one.round != requested || one.answer.gpu.device_absence != Absence::reset_required) continue;
    avoid(i, Absence::reset_required, at);
    any = true;
  }
  return any;
}

bool Sampler::Core::nothing_works() const {
  return !seen.empty() && std::ranges::all_of(seen, [&](const Seen& one) {
    return one.round == requested && one.answer.gpu.device_absence != Absence::none;
  });
}

// When the last value of this round was read. Not now: we may have been stopped for an hour since.
Instant Sampler::Core::read_by(Instant at) const {
  if (board == nullptr) return at;
  std::int64_t last = machine_known ? board->machine.done_at.load() : 0;
  bool all = true;
  for (unsigned i = 0; i < seen.size(); ++i) {
    if (seen[i].round == requested)
      last = std::max(last, board->slots[i].done_at.load());
    else
      all = false;  // that somebody did not answer is known as of now
  }
  return all && !seen.empty() ? std::clamp(Instant(Duration(last)), round_began, at) : at;
}

void Sampler::Core::publish(Instant at) {
  if (rearrange) arrange_rows();
  const bool let_go =
      leave_alone_for_reset(at) || (board != nullptr && opened && nothing_works() && at - opened_at > kStartOver);
  Snapshot& snapshot = published;
  const Instant read = read_by(at);
  snapshot.at = read;
  snapshot.asked = round_began;
  snapshot.wall = SystemClock().wall() - (at - read);
  snapshot.inventory = inventory;
  snapshot.driver = driver;
  snapshot.readings.resize(inventory->devices.size());
  snapshot.processes.clear();
  snapshot.topology.reset();
  snapshot.took =
      board != nullptr ? std::max(read - Instant(Duration(board->round_began)), Duration::zero()) : Duration{};
  snapshot.attach_took = {};
  for (const Seen& one : seen) snapshot.attach_took = std::max(snapshot.attach_took, one.attach_took);
  bool all_hang = true;  // of those that were asked
  Duration longest{};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    fill(snapshot.readings[i], rows[i], at);
    const Absence why = snapshot.readings[i].device_absence;
    all_hang = all_hang && (why == Absence::no_answer || why == Absence::not_asked);
    longest = std::max(longest, snapshot.readings[i].unanswered);
  }
  add_machine(snapshot);
  if (driver.absence == Absence::none && all_hang && longest > Duration::zero()) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
    snapshot.driver = {Absence::no_answer, "the driver has not answered for " + format_duration(seconds), longest};
  }
  if (let_go) leave(-1);
  done = requested;
}

void Sampler::Core::arrange_rows() {
  rearrange = false;
  std::vector<FoundGpu> found;
  for (const Seen& one : seen) {
    FoundGpu& gpu = found.emplace_back();
    gpu.gpu = &one.identity.device;
    for (const Device& part : one.identity.parts) gpu.parts.push_back(&part);
  }
  Arrangement arrangement = arrange(inventory->devices, found);
  rows = std::move(arrangement.rows);
  if (arrangement.devices == inventory->devices && driver_version == inventory->driver_version &&
      library == inventory->library)
    return;
  inventory = std::make_shared<Inventory>(Inventory{std::move(arrangement.devices), driver_version, library});
}

void Sampler::Core::fill(Reading& reading, const Row& row, Instant at) {
  if (driver.absence != Absence::none) return unknown(reading, driver.absence, driver.unanswered);
  if (row.gpu == Row::kNobody || row.gpu >= seen.size()) return unknown(reading, Absence::lost);
  Seen& one = seen[row.gpu];
  if (one.round != requested) {
    if (one.avoid_until > at) {
      const bool silent = one.why_avoided == Absence::no_answer;
      return unknown(reading, one.why_avoided, silent ? at - one.avoided_since + patience : Duration{});
    }
    const std::int64_t busy = board != nullptr ? board->slots[row.gpu].busy_since.load() : 0;
    return unknown(reading, wakes(static_cast<unsigned>(row.gpu), at) ? Absence::waking : Absence::no_answer,
                   busy > 0 ? at - Instant(Duration(busy)) : at - round_began);
  }
  if (row.part == Row::kNobody)
    std::swap(reading, one.answer.gpu);  // its old memory is used again
  else if (row.part < one.answer.parts.size())
    std::swap(reading, one.answer.parts[row.part]);
  else
    unknown(reading, Absence::lost);
}

// Openers that could not be looked at, and MIG devices, which have no file of their own, are unknown.
void Sampler::Core::add_machine(Snapshot& snapshot) {
  for (std::size_t i = 0; i < rows.size() && options.openers; ++i) {
    Reading& reading = snapshot.readings[i];
    const Row& row = rows[i];
    if (row.part != Row::kNobody)
      reading.miss(Metric::openers, Absence::not_supported);
    else if (!machine_known || row.gpu >= machine.holders.size())
      reading.miss(Metric::openers, driver.absence != Absence::none                      ? driver.absence
                                    : board != nullptr && board->machine.busy_since != 0 ? Absence::looking
                                                                                         : Absence::no_answer);
    else if (machine.holders[row.gpu].absence != Absence::none)
      reading.miss(Metric::openers, machine.holders[row.gpu].absence);
    else
      reading.set(Metric::openers, machine.holders[row.gpu].count);
  }
  if (!machine_known || board == nullptr) return;
  for (ProcessInfo& process : machine.processes) {
    const pid_t pid = process.pid;
    snapshot.processes.emplace(pid, std::move(process));
  }
  if (!machine.topology) return;
  Topology topology(rows.size());
  for (std::size_t a = 0; a < rows.size(); ++a)
    for (std::size_t b = a + 1; b < rows.size(); ++b)
      topology.set(
          a, b,
          rows[a].gpu == rows[b].gpu ? Join{0, Nearness::board} : machine.topology->between(rows[a].gpu, rows[b].gpu));
  snapshot.topology = std::make_shared<const Topology>(std::move(topology));
}

void Sampler::Core::hand_over(Snapshot& into) {
  taken = done;
  std::swap(into, published);
}

}  // namespace lull
