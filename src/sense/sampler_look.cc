// What stands on the board, and whom it is still worth waiting for.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "sense/sampler_core.h"
#include "sense/select.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kAttachGrace = 1000ms;  // a GPU that still attaches when all others have answered has this long
constexpr int kAttachTimes = 3;            // or this many times as long as the slowest of them
constexpr Duration kStandsStill = 900ms;   // in one place of the kernel: that is no waking up

Duration since(std::int64_t ns, Instant at) { return at - Instant(Duration(ns)); }

}  // namespace

Instant Sampler::Core::look_by() const { return last_look + kDawdle; }

// One that was attached before will not take much longer this time.
Duration Sampler::Core::attach_limit(const Seen& one) const {
  if (one.attach_took == Duration::zero()) return options.attach_deadline;
  return std::min(options.attach_deadline, std::max<Duration>(kAttachGrace, kAttachTimes * one.attach_took));
}

Sampler::Core::Look Sampler::Core::look(Instant at) {
  Look found;
  found.stage = board->stage;
  found.damaged = found.stage > Stage::over;
  if (found.stage != Stage::open || !opened) return found;
  std::int64_t oldest = std::numeric_limits<std::int64_t>::max();
  for (unsigned i = 0; i < seen.size(); ++i) {
    const Slot& slot = board->slots[i];
    const std::int64_t busy = slot.busy_since;
    const std::uint64_t round = slot.round;
    const bool attaching = slot.attaching == 1;
    if (round > requested || busy < 0 || since(busy, at) < -1s) {
      found.damaged = true;
      return found;
    }
    if (busy != 0 && busy < oldest) {
      oldest = busy;
      found.longest = static_cast<int>(i);
    }
    if (seen[i].avoid_until > at) continue;
    if (round == requested) {
      ++found.answered;
      seen[i].given_up = false;
      seen[i].attach_took = std::clamp<Duration>(Duration(slot.attach_took), 1ns, options.attach_deadline);
      found.slowest_attach = std::max(found.slowest_attach, seen[i].attach_took);
    } else if (busy == 0) {
      ++found.waiting;
    } else if (seen[i].given_up || since(busy, at) >= (attaching ? attach_limit(seen[i]) : patience)) {
      ++found.hanging;
      seen[i].given_up = true;
    } else {
      ++(attaching ? found.attaching : found.reading);
    }
  }
  if (found.answered > answered_before) {
    answered_before = found.answered;
    last_sign = last_answer = at;
  }
  if (found.attaching > 0) give_up_slow_attaching(found, at);
  found.machine_pending = machine_is_pending(found, at);
  return found;
}

// "State:\tD (disk sleep)", and the sum of both kinds of "…voluntary_ctxt_switches:\tN".
void Sampler::Core::watch_attaching(unsigned gpu, Instant at) {
  Seen& one = seen[gpu];
  const std::string hand = std::to_string(board->slots[gpu].hand);
  const auto status = read_file("/proc/" + std::to_string(sensor.pid()) + "/task/" + hand + "/status");
  bool asleep = false;
  std::uint64_t switches = 0;
  for (const std::string_view line : split(status ? std::string_view(*status) : std::string_view(), '\n')) {
    const std::string_view value = trim(line.substr(std::min(line.find(':') + 1, line.size())));
    if (line.starts_with("State:")) asleep = value.starts_with('D');
    if (line.find("voluntary_ctxt_switches:") != std::string_view::npos) switches += to_unsigned(value).value_or(0);
  }
  if (!asleep || std::exchange(one.switches, switches) != switches)
    one.still_since.reset();
  else if (!one.still_since)
    one.still_since = at;
}

// Its first contact takes its time, and does not stand still: the driver works on it.
bool Sampler::Core::wakes(unsigned gpu, Instant at) const {
  if (board == nullptr || board->slots[gpu].attaching != 1) return false;
  const std::int64_t busy = board->slots[gpu].busy_since;
  const Seen& one = seen[gpu];
  return busy > 0 && since(busy, at) < attach_limit(one) && (!one.still_since || at - *one.still_since < kStandsStill);
}

// Where all others have answered, a GPU that still attaches is one that hangs, or the only one that sleeps deeply. It
// goes on attaching, and will be there in a later sample.
void Sampler::Core::give_up_slow_attaching(Look& found, Instant at) {
  if (found.answered == 0 || found.waiting + found.reading > 0) return;
  const Instant until = last_answer + std::max<Duration>(kAttachGrace, kAttachTimes * found.slowest_attach);
  const bool enough = has_all_named();
  for (unsigned i = 0; i < seen.size(); ++i) {
    if (board->slots[i].round == requested || seen[i].avoid_until > at || seen[i].given_up) continue;
    if (board->slots[i].attaching != 1) continue;  // done with that meanwhile
    watch_attaching(i, at);
    if (!enough && (at < until || (options.wait_for_waking && wakes(i, at)))) continue;
    seen[i].given_up = true;
    --found.attaching;
    ++found.hanging;
  }
}

// All that are named have answered. Which of them a UUID means nobody can tell before it has.
bool Sampler::Core::has_all_named() {
  if (options.gpus.empty() || !learn_identities()) return false;
  if (rearrange) arrange_rows();
  const auto chosen = select_devices(options.gpus, *inventory);
  return chosen && std::ranges::all_of(*chosen, [&](std::size_t position) {
           const std::size_t gpu = rows[position].gpu;
           return gpu < seen.size() && board->slots[gpu].round == requested;
         });
}

bool Sampler::Core::machine_is_pending(const Look& found, Instant at) const {
  if (!task.processes && !task.openers && !task.topology) return false;
  const Slot& slot = board->machine;
  if (slot.round == requested && board->machine_knows >= found.answered) return false;
  const std::int64_t busy = slot.busy_since;
  if (busy != 0) return since(busy, at) < (task.openers ? options.deadline : patience);
  return true;
}

bool Sampler::Core::overdue(const Look& found, Instant at) {
  if (found.stage == Stage::opening || !opened) {
    const Duration hangs = at - started;
    if (hangs < options.init_deadline) return false;
    // Nobody else would fare better: the sensor stays where it is until the driver answers.
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(hangs);
    driver = {Absence::no_answer, "the driver has not answered for " + format_duration(seconds), hangs};
    return true;
  }
  if (found.attaching > 0) clock_from = at;  // that has a limit of its own
  return at >= clock_from + options.deadline;
}

// No GPU answers. Several: behind one another, at the library's own lock most likely. One: where it lasts, a fresh
// sensor may fare better, since somebody may have stopped this one.
bool Sampler::Core::all_hang(const Look& found, Instant at) const {
  if (found.answered > 0 || found.hanging == 0 || found.longest < 0) return false;
  const std::int64_t busy = board->slots[static_cast<unsigned>(found.longest)].busy_since;
  return found.hanging > 1 || (busy != 0 && since(busy, at) > 2 * options.deadline);
}

}  // namespace lull
