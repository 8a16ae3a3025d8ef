#include "engine/engine.h"

#include <algorithm>
#include <utility>

namespace lull {

void Engine::begin(const SubjectId& subject, Instant start, const std::vector<Plan>& plans) {
  std::vector<SubjectState>& states = states_[subject];
  states.clear();
  for (std::uint32_t i = 0; i < plans.size(); ++i) states.emplace_back(plans[i], i, subject, start);
}

// Said once for all subjects, then now and then, until there is one.
void Engine::look_at_driver(const Snapshot& snapshot, std::span<const Subject> subjects) {
  const bool none = snapshot.driver.absence != Absence::none || snapshot.inventory->devices.empty();
  if (none) {
    const Duration remind = plans_.empty() ? Duration::max() : plans_.front().remind;
    if (no_gpu_said_ && snapshot.at - *no_gpu_said_ < remind) return;
    no_gpu_said_ = snapshot.at;
    events_.push_back({.at = snapshot.at, .subject = {}, .what = NoGpu{snapshot.driver}});
  } else if (no_gpu_said_) {
    no_gpu_said_.reset();
    GpuBack back;
    for (const Subject& subject : subjects)
      if (subject.scope.not_judged.empty())
        for (const Device& device : subject.scope.devices)
          if (std::ranges::find(back.watched, device.id(), &Device::id) == back.watched.end())
            back.watched.push_back(device);
    events_.push_back({.at = snapshot.at, .subject = {}, .what = std::move(back)});
  }
}

void Engine::forget_others(std::span<const Subject> subjects, Instant now) {
  for (auto place = states_.begin(); place != states_.end();) {
    if (std::ranges::find(subjects, place->first, &Subject::id) != subjects.end()) {
      ++place;
      continue;
    }
    for (SubjectState& one : place->second) one.call_off(now, events_);
    place = states_.erase(place);
  }
}

std::span<const Event> Engine::observe(const Snapshot& snapshot, std::span<const Subject> subjects,
                                       const Facts& machine, bool counts) {
  events_.clear();
  forget_others(subjects, snapshot.at);
  look_at_driver(snapshot, subjects);
  for (const Subject& subject : subjects) {
    if (!states_.contains(subject.id)) begin(subject.id, snapshot.at);
    for (SubjectState& one : states_[subject.id])
      one.observe(snapshot, subject, machine, no_gpu_said_.has_value(), counts, events_);
  }
  // That GPUs are back names them: once is enough.
  if (std::ranges::any_of(events_, [](const Event& one) { return std::holds_alternative<GpuBack>(one.what); }))
    std::erase_if(events_, [](const Event& one) { return std::holds_alternative<ScopeChanged>(one.what); });
  return events_;
}

std::span<const Event> Engine::time_is(Instant now) {
  events_.clear();
  for (auto& [id, states] : states_)
    for (SubjectState& one : states) one.time_is(now, events_);
  return events_;
}

std::optional<Instant> Engine::next_time() const {
  std::optional<Instant> next;
  for (const auto& [id, states] : states_)
    for (const SubjectState& one : states)
      if (const auto time = one.next_time(); time && (!next || *time < *next)) next = time;
  return next;
}

const SubjectState* Engine::find(const SubjectId& subject, std::uint32_t plan) const {
  const auto found = states_.find(subject);
  return found == states_.end() || plan >= found->second.size() ? nullptr : &found->second[plan];
}

void Engine::stopped(const SubjectId& subject, bool stopped) {
  if (const auto found = states_.find(subject); found != states_.end())
    for (SubjectState& one : found->second) one.stopped(stopped);
}

void Engine::keep(const SubjectId& subject, Instant until) {
  if (const auto found = states_.find(subject); found != states_.end())
    for (SubjectState& one : found->second) one.keep(until);
}

void Engine::outcome(const SubjectId& subject, std::uint32_t plan, std::uint32_t step, FiresAgain again) {
  if (const auto found = states_.find(subject); found != states_.end() && plan < found->second.size())
    found->second[plan].outcome(step, again);
}

bool Engine::holds(const SubjectId& subject, std::uint32_t plan, std::uint32_t step) const {
  const SubjectState* one = find(subject, plan);
  return one != nullptr && one->holds(step);
}

bool Engine::holds_now(const SubjectId& subject, std::uint32_t plan, std::uint32_t step) const {
  const SubjectState* one = find(subject, plan);
  return one != nullptr && one->holds_now(step);
}

}  // namespace lull
