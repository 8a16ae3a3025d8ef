#include "fill/filling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <ranges>

#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

std::string whole_seconds_up(Duration time) { return format_duration(std::chrono::ceil<std::chrono::seconds>(time)); }

std::string without_gpu(const Reason& reason) {
  const std::string who = printable(reason.who);
  switch (reason.kind) {
    case Reason::none: return "";
    case Reason::leased: return "leased by " + who;
    case Reason::waited_for: return who + " waits for it";
    case Reason::used: return who + " computes on it";
    case Reason::opened: return who + " has opened it";
    case Reason::memory_grew: return fmt::format("another process took {} of its memory", format_size(reason.number));
    case Reason::user: return fmt::format("{} typed {} ago", who, whole_seconds_up(reason.time));
    case Reason::rule: return who;
    case Reason::starts_soon:
      return reason.time > Duration::zero() ? "starts in " + whole_seconds_up(reason.time) : "about to start";
    case Reason::hot:
      return std::isnan(reason.number) ? "its temperature is unknown"
                                       : fmt::format("{:.0f} C is too hot", reason.number);
    case Reason::cool_enough: return "cool enough";
    case Reason::too_little_memory:
      return std::isnan(reason.number) ? "its free memory is unknown"
                                       : fmt::format("only {} of memory are free", format_size(reason.number));
    case Reason::memory_left:
      return fmt::format("{} of its memory is in use by processes that lull cannot see", format_size(reason.number));
    case Reason::out_of_hours: return "not at this time of day";
    case Reason::unreadable: return "cannot be judged: " + who;
    case Reason::hidden:
      return fmt::format(
          "{:.0f} processes cannot be looked at: they may have it open (run as root, or say "
          "--ignore-hidden)",
          reason.number);
    case Reason::backing_off:
      return fmt::format("backing off for {} after {:.0f} failure{}{}{}", whole_seconds_up(reason.time), reason.number,
                         reason.number == 1 ? "" : "s", who.empty() ? "" : ": ", who);
    case Reason::filled: return "filled by " + who;
    case Reason::elsewhere: return who;
    case Reason::done: return "its work is done";
    case Reason::no_filler: return "no filler is meant for it";
    case Reason::nothing_came: return who + " opened it and did nothing";
    case Reason::free_again: return "free again";
    case Reason::not_resumed: return "its resume command failed";
    case Reason::config: return "not in the settings any more";
    case Reason::shutting_down: return "lull fill ends";
  }
  return "";
}

}  // namespace

std::string to_string(const Reason& reason) {
  const std::string text = without_gpu(reason);
  if (reason.gpu.empty() || text.empty()) return text;
  return fmt::format("GPU {}: {}", printable(reason.gpu), text);
}

std::string_view to_string(Reason::Kind kind) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"none",        "leased",       "waited-for",  "used",         "opened",      "memory-grew",
       "user",        "rule",         "starts-soon", "hot",          "cool-enough", "too-little-memory",
       "memory-left", "out-of-hours", "unreadable",  "hidden",       "backing-off", "filled",
       "elsewhere",   "done",         "no-filler",   "nothing-came", "free-again",  "not-resumed",
       "config",      "shutting-down"});
  static_assert(kNames.size() == Reason::shutting_down + 1);
  return kNames[kind];
}

namespace {

using namespace std::chrono_literals;

constexpr Duration kFirstBackOff = 10s;
constexpr Duration kLongestBackOff = 10min;
constexpr Duration kAtOnce = 10s;         // who ends sooner than this has failed, whatever it says
constexpr Duration kRanWell = 1min;       // a failure after that is the first one
constexpr Duration kDecideEarly = 200ms;  // so that it is decided within --confirm, and not a sample later
constexpr std::size_t kMostCleared = 100'000;

}  // namespace

std::string to_string(const GpuProcess& opener) {
  if (opener.pid == 0) return "an unknown process";
  return (opener.program.empty() ? "process" : opener.program) + " (" + std::to_string(opener.pid) + ")";
}

Filling::Filling(std::vector<FillerSettings> fillers, std::vector<FillUnit> units, Duration confirm)
    : fillers_(std::move(fillers)), units_(std::move(units)), of_(units_.size()), confirm_(confirm) {}

void Filling::set(Unit& unit, State state, const Reason& why, Instant now) {
  unit.state = state;
  unit.why = why;
  unit.since = now;
  if (state != State::still) {
    unit.suspects.clear();
    unit.memory_before.clear();
    unit.waits_for_free = false;
  }
  unit.unreadable = 0;
}

bool Filling::cleared(const GpuProcess& opener) const {
  return cleared_.contains(opener.id());  // it contains none without a start time
}

// Who opened it and is done with it already may come back with more in mind; the second time it is known as one who
// looks now and then.
void Filling::clear(std::span<const GpuProcess> openers, bool for_good) {
  if (cleared_.size() > kMostCleared) cleared_.clear();
  if (came_once_.size() > kMostCleared) came_once_.clear();
  for (const GpuProcess& opener : openers) {
    if (opener.start_ticks == 0) continue;  // unknown, as that of one without a pid
    const ProcessId id = opener.id();
    if (for_good || came_once_.contains(id))
      cleared_.insert(id);
    else
      came_once_.insert(id);
  }
}

std::optional<std::size_t> Filling::unit_on(const DeviceId& gpu) const {
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (of_[i].state != State::waiting && std::ranges::count(units_[i].gpus, gpu) > 0) return i;
  return std::nullopt;
}

Instant Filling::decides_at(const Unit& unit) const {
  return unit.since + confirm_ - std::min<Duration>(kDecideEarly, confirm_ / 4);
}

std::optional<Instant> Filling::decides_at() const {
  std::optional<Instant> first;
  for (const Unit& unit : of_)
    if (unit.state == State::still && !unit.suspects.empty()) {
      const Instant at = decides_at(unit);
      first = std::min(first.value_or(at), at);
    }
  return first;
}

// ---- orders ---------------------------------------------------------------------

void Filling::halt(std::size_t number, const Reason& why, Instant now, std::vector<FillOrder>& orders) {
  const bool still = of_[number].state == State::still;
  set(of_[number], State::still, why, now);
  if (!still) orders.push_back({FillOrder::halt, number, why});
}

void Filling::go_on(std::size_t number, const Reason& why, Instant now, std::vector<FillOrder>& orders) {
  set(of_[number], State::running, why, now);
  orders.push_back({FillOrder::go_on, number, why});
}

void Filling::end(std::size_t number, const Reason& why, Instant now, std::vector<FillOrder>& orders) {
  set(of_[number], State::ending, why, now);
  orders.push_back({FillOrder::end, number, why});
}

std::vector<FillOrder> Filling::end_all(const Reason& why) {
  std::vector<FillOrder> orders;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    of_[i].retired = true;
    if (of_[i].state != State::waiting && of_[i].state != State::ending) end(i, why, of_[i].since, orders);
  }
  return orders;
}

// ---- what happens between samples -----------------------------------------------

std::vector<FillOrder> Filling::opened(Instant now, const DeviceId& gpu, const GpuProcess& opener) {
  std::vector<FillOrder> orders;
  const auto number = unit_on(gpu);
  if (!number || cleared(opener)) return orders;
  Unit& unit = of_[*number];
  if (unit.state != State::running && unit.state != State::still) return orders;
  const Reason why{.kind = Reason::opened, .who = to_string(opener), .pid = opener.pid, .gpu = gpu.value};
  if (settings(*number).yield == YieldWay::stop) {
    end(*number, why, now, orders);
    return orders;
  }
  if (unit.state == State::running) halt(*number, why, now, orders);
  if (unit.waits_for_free) return orders;  // it is paused for another process anyway
  unit.since = now;                        // whoever came last has the whole time
  if (std::ranges::find(unit.suspects, opener) == unit.suspects.end()) unit.suspects.push_back(opener);
  return orders;
}

bool Filling::suspects(const DeviceId& gpu, const GpuProcess& opener) const {
  const auto number = unit_on(gpu);
  if (!number || of_[*number].state != State::still) return false;
  return std::ranges::find(of_[*number].suspects, opener) != of_[*number].suspects.end();
}

void Filling::started(std::size_t unit, Instant now) { of_[unit].started = now; }

void Filling::ended(std::size_t number, Instant now, int status, const std::string& failure) {
  Unit& unit = of_[number];
  const bool by_us = unit.state == State::ending;
  const Duration ran = now - unit.started;
  set(unit, State::waiting, {}, now);
  if (by_us) return;
  if (status == 0 && settings(number).once) {
    unit.done = true;
  } else if (status == 0 && settings(number).again) {
    unit.failures = 0;
    unit.not_before = unit.started + *settings(number).again;
  } else if (status != 0 || ran < kAtOnce) {
    unit.failures = ran >= kRanWell ? 1 : unit.failures + 1;
    unit.failure = failure;
    Duration pause = kFirstBackOff;
    for (unsigned i = 1; i < unit.failures && pause < kLongestBackOff; ++i) pause *= 2;
    unit.not_before = now + std::min(pause, kLongestBackOff);
  } else {
    unit.failures = 0;
  }
}

Reason Filling::back_off(std::size_t number, Duration left) const {
  const Unit& unit = of_[number];
  return {.kind = Reason::backing_off, .who = unit.failure, .time = left, .number = static_cast<double>(unit.failures)};
}

std::vector<FillOrder> Filling::parked(std::size_t number, bool well, Instant now) {
  std::vector<FillOrder> orders;
  Unit& unit = of_[number];
  if (unit.state != State::parking) return orders;
  if (well)
    set(unit, State::parked, unit.why, now);
  else if (settings(number).yield == YieldWay::park && settings(number).park_keeps && unit.why.kind != Reason::leased &&
           unit.why.kind != Reason::waited_for) {
    halt(number, unit.why, now, orders);
    unit.suspects.clear();
    unit.waits_for_free = true;
  } else
    end(number, unit.why, now, orders);
  return orders;
}

std::vector<FillOrder> Filling::unparked(std::size_t number, bool well, Instant now) {
  std::vector<FillOrder> orders;
  if (!well && (of_[number].state == State::running || of_[number].state == State::still))
    end(number, {.kind = Reason::not_resumed}, now, orders);
  return orders;
}

void Filling::stays_parked(std::size_t number, Instant now) {
  Unit& unit = of_[number];
  if (unit.state == State::running || unit.state == State::still) set(unit, State::parked, unit.why, now);
}

std::vector<FillOrder> Filling::replace(const std::vector<FillerSettings>& fillers, std::vector<FillUnit> units,
                                        Instant now) {
  std::vector<FillOrder> orders;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (of_[i].retired) continue;
    const auto same = std::ranges::find_if(units, [&](const FillUnit& unit) {
      return unit.gpus == units_[i].gpus && fillers[unit.filler] == settings(i);
    });
    if (same != units.end()) {
      units.erase(same);
      continue;
    }
    of_[i].retired = true;
    if (of_[i].state != State::waiting && of_[i].state != State::ending) end(i, {.kind = Reason::config}, now, orders);
  }
  const std::size_t offset = fillers_.size();
  fillers_.insert(fillers_.end(), fillers.begin(), fillers.end());
  for (FillUnit& unit : units) {
    unit.filler += offset;
    units_.push_back(std::move(unit));
    of_.emplace_back();
  }
  return orders;
}

// One sample: what is seen of each GPU, and what comes of it for each filler.

namespace {

using namespace std::chrono_literals;

constexpr Duration kOfferStands = 1min;  // a picker looks at least that often whether a GPU suits it
constexpr Duration kSettle = 250ms;  // an open is reported before it is done: no process is seen to have it open yet
constexpr double kGrowth = 16.0 * (1U << 20);  // of memory, while our filler is paused: another process grows
constexpr double kLeftFree = 0.1;              // of the memory: with less the other one is short of it
constexpr double kCooler = 5;                  // C below the limit it goes on
constexpr unsigned kUnreadableSamples = 2;

Reason on(const GpuObservation& observation, Reason reason) {
  reason.gpu = observation.label;
  return reason;
}

}  // namespace

struct Filling::Now {
  Instant now;
  Instant asked;
  std::map<DeviceId, const GpuObservation*> observations;
  std::map<DeviceId, Reason> waited_for;
  int minute = 0;

  const GpuObservation* observation(const DeviceId& gpu) const {
    const auto found = observations.find(gpu);
    return found == observations.end() ? nullptr : found->second;
  }
};

// ---- what is seen ---------------------------------------------------------------

std::optional<Reason> Filling::claim_on(std::size_t number, const Now& now) const {
  for (const DeviceId& gpu : units_[number].gpus) {
    const GpuObservation* observation = now.observation(gpu);
    if (observation == nullptr) continue;
    if (!observation->claims.empty()) return on(*observation, observation->claims.front());
    if (const auto waiter = now.waited_for.find(gpu); waiter != now.waited_for.end())
      return on(*observation, waiter->second);
  }
  return std::nullopt;
}

std::optional<Reason> Filling::unreadable(std::size_t number, const Now& now) const {
  for (const DeviceId& gpu : units_[number].gpus) {
    const GpuObservation* observation = now.observation(gpu);
    if (observation == nullptr) return Reason{.kind = Reason::unreadable, .who = "it is not there", .gpu = gpu.value};
    if (!observation->unreadable.empty())
      return on(*observation, {.kind = Reason::unreadable, .who = observation->unreadable});
  }
  return std::nullopt;
}

std::optional<Reason> Filling::not_free(std::size_t number, const Now& now) const {
  for (const DeviceId& gpu : units_[number].gpus)
    if (const GpuObservation* observation = now.observation(gpu); observation != nullptr && observation->not_free)
      return on(*observation, *observation->not_free);
  return std::nullopt;
}

bool Filling::is_out_of_hours(std::size_t number, const Now& now) const {
  return !settings(number).hours.contain_minute(static_cast<unsigned>(now.minute));
}

// Also if no scan was made yet: then one is wanted.
std::optional<Reason> Filling::somebody_has_open(std::size_t number, const Now& now) {
  for (const DeviceId& gpu : units_[number].gpus) {
    const GpuObservation* observation = now.observation(gpu);
    if (observation != nullptr && observation->hidden > 0)
      return on(*observation, {.kind = Reason::hidden, .number = static_cast<double>(observation->hidden)});
    if (observation == nullptr || !observation->openers) {
      wants_openers_ = true;
      return Reason{.kind = Reason::starts_soon, .gpu = observation != nullptr ? observation->label : gpu.value};
    }
    for (const GpuProcess& opener : *observation->openers)
      if (!cleared(opener))
        return on(*observation, {.kind = Reason::opened, .who = to_string(opener), .pid = opener.pid});
  }
  return std::nullopt;
}

bool Filling::is_short_of_memory(std::size_t number, const Now& now) const {
  return std::ranges::any_of(units_[number].gpus, [&](const DeviceId& gpu) {
    const GpuObservation* observation = now.observation(gpu);
    // What cannot be seen may be short.
    return observation == nullptr || !(observation->mem_free >= kLeftFree * observation->mem_total);
  });
}

// A waiter in the queue is given as many GPUs as it lacks: those that it was given before, then unused ones, then those
// of fillers, the least important first. A GPU that it does not take although it is unused does not suit it: that one
// is filled again, and another is tried.
void Filling::choose_for_waiters(Now& now, std::span<const Waiter> waiters) {
  std::set<DeviceId> given;
  std::map<std::pair<std::string, DeviceId>, Offer> offers;
  for (const Waiter& waiter : waiters) {
    std::vector<std::pair<int, DeviceId>> order;
    for (const DeviceId& gpu : waiter.could_use) {
      const GpuObservation* observation = now.observation(gpu);
      const auto before = offers_.find({waiter.id, gpu});
      if (before != offers_.end() && before->second.lapsed) {
        offers.insert(*before);
        continue;
      }
      if (observation == nullptr || !observation->claims.empty() || given.contains(gpu)) continue;
      const auto unit = unit_on(gpu);
      const int rank = before != offers_.end() ? -2'000'000 : !unit ? -1'000'000 : settings(*unit).priority;
      order.emplace_back(rank, gpu);
    }
    std::ranges::stable_sort(order, {}, &std::pair<int, DeviceId>::first);
    for (const auto& [rank, gpu] : order | std::views::take(waiter.missing)) {
      const auto before = offers_.find({waiter.id, gpu});
      Offer offer = before != offers_.end() ? before->second : Offer{};
      if (unit_on(gpu))
        offer.empty_since.reset();
      else if (!offer.empty_since)
        offer.empty_since = now.now;
      offer.lapsed = offer.empty_since && now.now - *offer.empty_since > kOfferStands;
      offers.insert_or_assign({waiter.id, gpu}, offer);
      if (offer.lapsed) continue;
      given.insert(gpu);
      now.waited_for.emplace(gpu, Reason{.kind = Reason::waited_for, .who = waiter.who});
    }
  }
  offers_ = std::move(offers);
}

// ---- one sample -----------------------------------------------------------------

std::vector<FillOrder> Filling::sampled(Instant at, Instant asked, std::span<const GpuObservation> observations,
                                        std::span<const Waiter> waiters, int minute_of_day) {
  std::vector<FillOrder> orders;
  Now now{.now = at, .asked = asked, .observations = {}, .waited_for = {}, .minute = minute_of_day};
  for (const GpuObservation& observation : observations) now.observations.emplace(observation.gpu, &observation);
  wants_openers_ = false;
  choose_for_waiters(now, waiters);
  for (std::size_t i = 0; i < units_.size(); ++i) {
    switch (of_[i].state) {
      case State::running: look_at(i, now, orders); break;
      case State::still: look_at_still(i, now, orders); break;
      case State::parked: look_at_parked(i, now, orders); break;
      case State::waiting:
      case State::parking:
      case State::ending: break;
    }
  }
  start_some(now, orders);
  return orders;
}

// The GPU is certainly in use.
void Filling::yield(std::size_t number, const Reason& why, const Now& now, std::vector<FillOrder>& orders) {
  const FillerSettings& told = settings(number);
  // Who takes a lease wants the whole card.
  const bool wants_all = why.kind == Reason::leased || why.kind == Reason::waited_for;
  // What is paused since it could not be parked is not tried again.
  const bool parks = told.yield != YieldWay::park || !of_[number].waits_for_free;
  if (!told.yield_command.empty() && parks) {
    set(of_[number], State::parking, why, now.now);
    orders.push_back({FillOrder::park, number, why});
  } else if (told.yield == YieldWay::pause && !wants_all && !is_short_of_memory(number, now)) {
    halt(number, why, now.now, orders);
    of_[number].suspects.clear();
    of_[number].waits_for_free = true;
  } else {
    end(number, why, now.now, orders);
  }
}

void Filling::look_at(std::size_t number, const Now& now, std::vector<FillOrder>& orders) {
  Unit& unit = of_[number];
  const FillerSettings& told = settings(number);
  if (const auto claim = claim_on(number, now)) return yield(number, *claim, now, orders);
  if (is_out_of_hours(number, now)) return end(number, {.kind = Reason::out_of_hours}, now.now, orders);
  if (const auto why = unreadable(number, now)) {
    if (std::exchange(unit.unreadable_at, now.asked) != now.asked) ++unit.unreadable;
    if (unit.unreadable >= kUnreadableSamples) halt(number, *why, now.now, orders);
    return;
  }
  unit.unreadable = 0;
  for (const DeviceId& gpu : units_[number].gpus) {
    const GpuObservation& observation = *now.observation(gpu);
    if (told.max_temp && !(observation.temp <= *told.max_temp))
      return halt(number, on(observation, {.kind = Reason::hot, .number = observation.temp}), now.now, orders);
    if (!observation.openers) continue;
    for (const GpuProcess& opener : *observation.openers) {
      if (cleared(opener)) continue;
      const Reason why = on(observation, {.kind = Reason::opened, .who = to_string(opener), .pid = opener.pid});
      if (told.yield == YieldWay::stop) return end(number, why, now.now, orders);
      if (unit.state != State::still) halt(number, why, now.now, orders);
      unit.suspects.push_back(opener);
    }
  }
}

void Filling::look_at_still(std::size_t number, const Now& now, std::vector<FillOrder>& orders) {
  Unit& unit = of_[number];
  const FillerSettings& told = settings(number);
  if (is_out_of_hours(number, now)) return end(number, {.kind = Reason::out_of_hours}, now.now, orders);
  if (const auto claim = claim_on(number, now)) {
    // Paused already: only a lease, or memory that runs short, is more than that.
    const bool more = claim->kind == Reason::leased || claim->kind == Reason::waited_for;
    if (unit.waits_for_free && !more && !is_short_of_memory(number, now)) return;
    return yield(number, *claim, now, orders);
  }
  if (unreadable(number, now)) return;  // nothing is decided on what cannot be seen
  if (!unit.suspects.empty()) return look_at_suspects(number, now, orders);
  for (const DeviceId& gpu : units_[number].gpus)
    if (told.max_temp && unit.why.kind == Reason::hot && !(now.observation(gpu)->temp <= *told.max_temp - kCooler))
      return;
  if (unit.waits_for_free && not_free(number, now)) return;
  if (somebody_has_open(number, now)) {
    bool looked = true;
    std::vector<GpuProcess> there = uncleared(number, now, looked);
    if (unit.waits_for_free || !looked || there.empty()) return;
    // It was paused for something else, and another process came meanwhile: now it is about them.
    halt(number, {.kind = Reason::opened, .who = to_string(there.front()), .pid = there.front().pid}, now.now, orders);
    unit.suspects = std::move(there);
    return;
  }
  go_on(number, {.kind = unit.why.kind == Reason::hot ? Reason::cool_enough : Reason::free_again}, now.now, orders);
}

// Opening is not using: CUDA opens every GPU of the machine when it starts, and monitors open all day.
void Filling::look_at_suspects(std::size_t number, const Now& now, std::vector<FillOrder>& orders) {
  Unit& unit = of_[number];
  if (now.asked <= unit.since) return;  // of before
  for (const DeviceId& gpu : units_[number].gpus) {
    const GpuObservation& observation = *now.observation(gpu);
    const auto before = std::ranges::find(unit.memory_before, gpu, &std::pair<DeviceId, double>::first);
    if (before == unit.memory_before.end()) {
      unit.memory_before.emplace_back(gpu, observation.mem_used);
    } else if (observation.mem_used - before->second > kGrowth) {
      return yield(number,
                   on(observation, {.kind = Reason::memory_grew, .number = observation.mem_used - before->second}), now,
                   orders);
    }
  }
  bool looked = true;
  const std::vector<GpuProcess> there = uncleared(number, now, looked);
  if (!looked) wants_openers_ = true;
  const bool time_is_up = now.asked >= decides_at(unit);
  const bool settled = now.asked >= unit.since + std::min<Duration>(kSettle, confirm_ / 4);
  if (!looked || (!time_is_up && (!there.empty() || !settled))) return;
  clear(there, true);
  clear(unit.suspects, time_is_up);
  go_on(number, {.kind = Reason::nothing_came, .who = to_string(unit.suspects.front())}, now.now, orders);
}

std::vector<GpuProcess> Filling::uncleared(std::size_t number, const Now& now, bool& looked) const {
  std::vector<GpuProcess> there;
  for (const DeviceId& gpu : units_[number].gpus) {
    const GpuObservation* observation = now.observation(gpu);
    looked = looked && observation != nullptr && observation->openers.has_value();
    if (observation != nullptr && observation->openers)
      std::ranges::copy_if(*observation->openers, std::back_inserter(there),
                           [&](const auto& one) { return !cleared(one); });
  }
  return there;
}

void Filling::look_at_parked(std::size_t number, const Now& now, std::vector<FillOrder>& orders) {
  if (is_out_of_hours(number, now)) return end(number, {.kind = Reason::out_of_hours}, now.now, orders);
  if (claim_on(number, now) || unreadable(number, now) || not_free(number, now)) return;
  if (somebody_has_open(number, now)) return;
  go_on(number, {.kind = Reason::free_again}, now.now, orders);
}

// ---- starting -------------------------------------------------------------------

Reason Filling::against_starting(std::size_t number, const Now& now) {
  const Unit& unit = of_[number];
  const FillerSettings& told = settings(number);
  if (unit.done) return {.kind = Reason::done};
  if (is_out_of_hours(number, now)) return {.kind = Reason::out_of_hours};
  if (const auto why = unreadable(number, now)) return *why;
  if (const auto claim = claim_on(number, now)) return *claim;
  for (const DeviceId& gpu : units_[number].gpus)
    if (const auto other = unit_on(gpu))
      return on(*now.observation(gpu), {.kind = Reason::filled, .who = settings(*other).name});
  if (now.now < unit.not_before && unit.failures == 0)
    return {.kind = Reason::starts_soon, .time = unit.not_before - now.now};
  if (now.now < unit.not_before) return back_off(number, unit.not_before - now.now);
  if (const auto why = not_free(number, now)) return *why;
  for (const DeviceId& gpu : units_[number].gpus) {
    const GpuObservation& observation = *now.observation(gpu);
    if (observation.mem_unexplained > 0)
      return on(observation, {.kind = Reason::memory_left, .number = observation.mem_unexplained});
    if (told.max_temp && !(observation.temp <= *told.max_temp))
      return on(observation, {.kind = Reason::hot, .number = observation.temp});
    if (told.memory && !(observation.mem_free >= *told.memory))
      return on(observation, {.kind = Reason::too_little_memory, .number = observation.mem_free});
  }
  return somebody_has_open(number, now).value_or(Reason{});
}

void Filling::start_some(const Now& now, std::vector<FillOrder>& orders) {
  std::vector<std::size_t> order(units_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t unit) { return settings(unit).priority; });
  for (const std::size_t number : order) {
    Unit& unit = of_[number];
    if (unit.state != State::waiting || unit.retired || units_[number].gpus.empty()) continue;
    const Reason why = against_starting(number, now);
    unit.why = why;
    if (why.kind != Reason::none) continue;
    set(unit, State::running, why, now.now);
    unit.started = now.now;
    orders.push_back({FillOrder::start, number, why});
  }
}

}  // namespace lull
