#include "fill/filling.h"

// One sample: what is seen of each GPU, and what comes of it for each filler.

#include <algorithm>
#include <map>
#include <numeric>
#include <ranges>

namespace lull {

namespace {

using namespace std::chrono_literals;

constexpr Duration kOfferStands = 1min;        // a picker looks at least that often whether a GPU suits it
constexpr Duration kSettle = 250ms;            // an open is told before it is done: nobody is seen to have it open yet
constexpr double kGrowth = 16.0 * (1U << 20);  // of memory, while our filler stands still: somebody else's
constexpr double kLeftFree = 0.1;              // of the memory: with less the other one is short of it
constexpr double kCooler = 5;                  // C below the limit it goes on
constexpr unsigned kUnreadableSamples = 2;

Reason on(const GpuSight& sight, Reason reason) {
  reason.gpu = sight.label;
  return reason;
}

}  // namespace

struct Filling::Now {
  Instant now;
  Instant asked;
  std::map<DeviceId, const GpuSight*> sights;
  std::map<DeviceId, Reason> waited_for;
  int minute = 0;

  const GpuSight* sight(const DeviceId& gpu) const {
    const auto found = sights.find(gpu);
    return found == sights.end() ? nullptr : found->second;
  }
};

// ---- what is seen ---------------------------------------------------------------

std::optional<Reason> Filling::claim_on(std::size_t number, const Now& now) const {
  for (const DeviceId& gpu : units_[number].gpus) {
    const GpuSight* sight = now.sight(gpu);
    if (sight == nullptr) continue;
    if (!sight->claims.empty()) return on(*sight, sight->claims.front());
    if (const auto waiter = now.waited_for.find(gpu); waiter != now.waited_for.end()) return on(*sight, waiter->second);
  }
  return std::nullopt;
}

std::optional<Reason> Filling::unreadable(std::size_t number, const Now& now) const {
  for (const DeviceId& gpu : units_[number].gpus) {
    const GpuSight* sight = now.sight(gpu);
    if (sight == nullptr) return Reason{.kind = Reason::unreadable, .who = "it is not there", .gpu = gpu.value};
    if (!sight->unreadable.empty()) return on(*sight, {.kind = Reason::unreadable, .who = sight->unreadable});
  }
  return std::nullopt;
}

std::optional<Reason> Filling::not_free(std::size_t number, const Now& now) const {
  for (const DeviceId& gpu : units_[number].gpus)
    if (const GpuSight* sight = now.sight(gpu); sight != nullptr && sight->not_free)
      return on(*sight, *sight->not_free);
  return std::nullopt;
}

// Also where nobody has looked yet: then it is wanted.
std::optional<Reason> Filling::somebody_has_open(std::size_t number, const Now& now) {
  for (const DeviceId& gpu : units_[number].gpus) {
    const GpuSight* sight = now.sight(gpu);
    if (sight != nullptr && sight->hidden > 0)
      return on(*sight, {.kind = Reason::hidden, .number = static_cast<double>(sight->hidden)});
    if (sight == nullptr || !sight->openers) {
      wants_openers_ = true;
      return Reason{.kind = Reason::starts_soon, .gpu = sight != nullptr ? sight->label : gpu.value};
    }
    for (const Opener& opener : *sight->openers)
      if (!cleared(opener)) return on(*sight, {.kind = Reason::opened, .who = to_words(opener)});
  }
  return std::nullopt;
}

bool Filling::is_short_of_memory(std::size_t number, const Now& now) const {
  return std::ranges::any_of(units_[number].gpus, [&](const DeviceId& gpu) {
    const GpuSight* sight = now.sight(gpu);
    // What cannot be seen may be short.
    return sight == nullptr || !(sight->mem_free >= kLeftFree * sight->mem_total);
  });
}

// Who waits in the queue is given as many GPUs as it lacks: those that it was given before, then those on which nobody
// is, then those of fillers, the least important first. One that it does not take although nobody is on it any more
// does not suit it: that one is filled again, and another is tried.
void Filling::choose_for_waiters(Now& now, std::span<const Waiter> waiters) {
  std::set<DeviceId> given;
  std::map<std::pair<std::string, DeviceId>, Offer> offers;
  for (const Waiter& waiter : waiters) {
    std::vector<std::pair<int, DeviceId>> order;
    for (const DeviceId& gpu : waiter.could_use) {
      const GpuSight* sight = now.sight(gpu);
      const auto before = offers_.find({waiter.id, gpu});
      if (before != offers_.end() && before->second.lapsed) {
        offers.insert(*before);
        continue;
      }
      if (sight == nullptr || !sight->claims.empty() || given.contains(gpu)) continue;
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

std::vector<FillOrder> Filling::sampled(Instant at, Instant asked, std::span<const GpuSight> sights,
                                        std::span<const Waiter> waiters, int minute_of_day) {
  std::vector<FillOrder> orders;
  Now now{.now = at, .asked = asked, .sights = {}, .waited_for = {}, .minute = minute_of_day};
  for (const GpuSight& sight : sights) now.sights.emplace(sight.gpu, &sight);
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

// Somebody is there for certain.
void Filling::yield(std::size_t number, const Reason& why, const Now& now, std::vector<FillOrder>& orders) {
  const FillerSettings& told = settings(number);
  // Who takes a lease wants the whole card.
  const bool wants_all = why.kind == Reason::leased || why.kind == Reason::waited_for;
  if (!told.yield_command.empty()) {
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
  if (told.hours && !told.hours->contain(now.minute))
    return end(number, {.kind = Reason::out_of_hours}, now.now, orders);
  if (const auto why = unreadable(number, now)) {
    if (std::exchange(unit.unreadable_at, now.asked) != now.asked) ++unit.unreadable;
    if (unit.unreadable >= kUnreadableSamples) halt(number, *why, now.now, orders);
    return;
  }
  unit.unreadable = 0;
  for (const DeviceId& gpu : units_[number].gpus) {
    const GpuSight& sight = *now.sight(gpu);
    if (told.max_temp && !(sight.temp <= *told.max_temp))
      return halt(number, on(sight, {.kind = Reason::hot, .number = sight.temp}), now.now, orders);
    if (!sight.openers) continue;
    for (const Opener& opener : *sight.openers) {
      if (cleared(opener)) continue;
      const Reason why = on(sight, {.kind = Reason::opened, .who = to_words(opener)});
      if (told.yield == YieldWay::stop) return end(number, why, now.now, orders);
      if (unit.state != State::still) halt(number, why, now.now, orders);
      unit.suspects.push_back(opener);
    }
  }
}

void Filling::look_at_still(std::size_t number, const Now& now, std::vector<FillOrder>& orders) {
  Unit& unit = of_[number];
  const FillerSettings& told = settings(number);
  if (const auto claim = claim_on(number, now)) {
    // Paused already: only a lease, or memory that runs short, is more than that.
    const bool more = claim->kind == Reason::leased || claim->kind == Reason::waited_for;
    if (unit.waits_for_free && !more && !is_short_of_memory(number, now)) return;
    return yield(number, *claim, now, orders);
  }
  if (told.hours && !told.hours->contain(now.minute))
    return end(number, {.kind = Reason::out_of_hours}, now.now, orders);
  if (unreadable(number, now)) return;  // nothing is decided on what cannot be seen
  if (!unit.suspects.empty()) return look_at_suspects(number, now, orders);
  for (const DeviceId& gpu : units_[number].gpus)
    if (told.max_temp && unit.why.kind == Reason::hot && !(now.sight(gpu)->temp <= *told.max_temp - kCooler)) return;
  if (unit.waits_for_free && not_free(number, now)) return;
  if (somebody_has_open(number, now)) {
    bool looked = true;
    std::vector<Opener> there = uncleared(number, now, looked);
    if (unit.waits_for_free || !looked || there.empty()) return;
    // It stood still for something else, and somebody came meanwhile: now it is about them.
    halt(number, {.kind = Reason::opened, .who = to_words(there.front())}, now.now, orders);
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
    const GpuSight& sight = *now.sight(gpu);
    const auto before = std::ranges::find(unit.memory_before, gpu, &std::pair<DeviceId, double>::first);
    if (before == unit.memory_before.end()) {
      unit.memory_before.emplace_back(gpu, sight.mem_used);
    } else if (sight.mem_used - before->second > kGrowth) {
      return yield(number, on(sight, {.kind = Reason::memory_grew, .number = sight.mem_used - before->second}), now,
                   orders);
    }
  }
  bool looked = true;
  const std::vector<Opener> there = uncleared(number, now, looked);
  if (!looked) wants_openers_ = true;
  const bool time_is_up = now.asked >= decides_at(unit);
  const bool settled = now.asked >= unit.since + std::min<Duration>(kSettle, confirm_ / 4);
  if (!looked || (!time_is_up && (!there.empty() || !settled))) return;
  clear(there, true);
  clear(unit.suspects, time_is_up);
  go_on(number, {.kind = Reason::nothing_came, .who = to_words(unit.suspects.front())}, now.now, orders);
}

std::vector<Opener> Filling::uncleared(std::size_t number, const Now& now, bool& looked) const {
  std::vector<Opener> there;
  for (const DeviceId& gpu : units_[number].gpus) {
    const GpuSight* sight = now.sight(gpu);
    looked = looked && sight != nullptr && sight->openers.has_value();
    if (sight != nullptr && sight->openers)
      std::ranges::copy_if(*sight->openers, std::back_inserter(there), [&](const auto& one) { return !cleared(one); });
  }
  return there;
}

void Filling::look_at_parked(std::size_t number, const Now& now, std::vector<FillOrder>& orders) {
  if (claim_on(number, now) || unreadable(number, now) || not_free(number, now)) return;
  if (somebody_has_open(number, now)) return;
  go_on(number, {.kind = Reason::free_again}, now.now, orders);
}

// ---- starting -------------------------------------------------------------------

Reason Filling::against_starting(std::size_t number, const Now& now) {
  const Unit& unit = of_[number];
  const FillerSettings& told = settings(number);
  if (unit.done) return {.kind = Reason::done};
  if (told.hours && !told.hours->contain(now.minute)) return {.kind = Reason::out_of_hours};
  if (const auto why = unreadable(number, now)) return *why;
  if (const auto claim = claim_on(number, now)) return *claim;
  for (const DeviceId& gpu : units_[number].gpus)
    if (const auto other = unit_on(gpu))
      return on(*now.sight(gpu), {.kind = Reason::filled, .who = settings(*other).name});
  if (now.now < unit.not_before)
    return {
        .kind = Reason::backing_off, .time = unit.not_before - now.now, .number = static_cast<double>(unit.failures)};
  if (const auto why = not_free(number, now)) return *why;
  for (const DeviceId& gpu : units_[number].gpus) {
    const GpuSight& sight = *now.sight(gpu);
    if (sight.mem_unexplained > 0) return on(sight, {.kind = Reason::memory_left, .number = sight.mem_unexplained});
    if (told.max_temp && !(sight.temp <= *told.max_temp)) return on(sight, {.kind = Reason::hot, .number = sight.temp});
    if (told.memory && !(sight.mem_free >= *told.memory))
      return on(sight, {.kind = Reason::too_little_memory, .number = sight.mem_free});
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
