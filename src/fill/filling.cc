#include "fill/filling.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace lull {

namespace {

using namespace std::chrono_literals;

constexpr Duration kFirstBackOff = 10s;
constexpr Duration kLongestBackOff = 10min;
constexpr Duration kAtOnce = 10s;         // who ends sooner than this has failed, whatever it says
constexpr Duration kRanWell = 1min;       // a failure after that is the first one
constexpr Duration kDecideEarly = 200ms;  // so that it is decided within --confirm, and not a sample later
constexpr std::size_t kMostCleared = 100'000;

}  // namespace

std::string to_words(const Opener& opener) {
  if (opener.pid == 0) return "somebody";
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

bool Filling::cleared(const Opener& opener) const {
  return opener.pid != 0 && opener.start_ticks != 0 && cleared_.contains({opener.pid, opener.start_ticks});
}

// Who opened it and is done with it already may come back with more in mind; the second time it is known as one who
// looks now and then.
void Filling::clear(std::span<const Opener> openers, bool for_good) {
  if (cleared_.size() > kMostCleared) cleared_.clear();
  if (came_once_.size() > kMostCleared) came_once_.clear();
  for (const Opener& opener : openers) {
    if (opener.pid == 0 || opener.start_ticks == 0) continue;
    const OpenerId id{opener.pid, opener.start_ticks};
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

std::vector<FillOrder> Filling::opened(Instant now, const DeviceId& gpu, const Opener& opener) {
  std::vector<FillOrder> orders;
  const auto number = unit_on(gpu);
  if (!number || cleared(opener)) return orders;
  Unit& unit = of_[*number];
  if (unit.state != State::running && unit.state != State::still) return orders;
  const Reason why{.kind = Reason::opened, .who = to_words(opener), .gpu = gpu.value};
  if (settings(*number).yield == YieldWay::stop) {
    end(*number, why, now, orders);
    return orders;
  }
  if (unit.state == State::running) halt(*number, why, now, orders);
  if (unit.waits_for_free) return orders;  // it stands still for somebody else anyway
  unit.since = now;                        // whoever came last has the whole time
  if (std::ranges::find(unit.suspects, opener) == unit.suspects.end()) unit.suspects.push_back(opener);
  return orders;
}

bool Filling::suspects(const DeviceId& gpu, const Opener& opener) const {
  const auto number = unit_on(gpu);
  if (!number || of_[*number].state != State::still) return false;
  return std::ranges::find(of_[*number].suspects, opener) != of_[*number].suspects.end();
}

void Filling::started(std::size_t unit, Instant now) { of_[unit].started = now; }

void Filling::ended(std::size_t number, Instant now, int status) {
  Unit& unit = of_[number];
  const bool by_us = unit.state == State::ending;
  const Duration ran = now - unit.started;
  set(unit, State::waiting, {}, now);
  if (by_us) return;
  if (status == 0 && settings(number).once) {
    unit.done = true;
  } else if (status != 0 || ran < kAtOnce) {
    unit.failures = ran >= kRanWell ? 1 : unit.failures + 1;
    Duration pause = kFirstBackOff;
    for (unsigned i = 1; i < unit.failures && pause < kLongestBackOff; ++i) pause *= 2;
    unit.not_before = now + std::min(pause, kLongestBackOff);
  } else {
    unit.failures = 0;
  }
}

std::vector<FillOrder> Filling::parked(std::size_t number, bool well, Instant now) {
  std::vector<FillOrder> orders;
  Unit& unit = of_[number];
  if (unit.state != State::parking) return orders;
  if (well)
    set(unit, State::parked, unit.why, now);
  else
    end(number, unit.why, now, orders);
  return orders;
}

std::vector<FillOrder> Filling::unparked(std::size_t number, bool well, Instant now) {
  std::vector<FillOrder> orders;
  if (!well && (of_[number].state == State::running || of_[number].state == State::still))
    end(number, {.kind = Reason::not_resumed}, now, orders);
  return orders;
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

}  // namespace lull
