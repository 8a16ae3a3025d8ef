// The second half of a RunSession: what happens from the moment a rule fires.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "cli/actions.h"
#include "cli/run_session.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr int kMemoryTries = 12;  // a driver frees the memory of a killed process a little later
constexpr Duration kMemoryPause = 250ms;
constexpr double kMemoryThatMatters = 256.0 * 1024 * 1024;

std::vector<std::pair<std::string, double>> memory_of(const Snapshot& snapshot, const std::vector<Device>& scope) {
  std::vector<std::pair<std::string, double>> used;
  const auto& devices = snapshot.inventory->devices;
  for (std::size_t i = 0; i < snapshot.readings.size() && i < devices.size(); ++i)
    for (const Device& device : scope)
      if (device.uuid == devices[i].uuid) used.emplace_back(device.uuid, snapshot.readings[i][Metric::mem_used]);
  return used;
}

double value_of(const std::vector<std::pair<std::string, double>>& list, const std::string& uuid) {
  for (const auto& [name, value] : list)
    if (name == uuid) return value;
  return kUnknown;
}

}  // namespace

std::string RunSession::next_in_words(bool for_time) const {
  const Ending::Options& how = settings_.ending;
  std::string text = how.signal == 0 ? std::string("SIGKILL to its process tree")
                                     : fmt::format("{} to its process tree, SIGKILL to what is left after {}",
                                                   signal_name(how.signal), format_duration(how.grace));
  if (!for_time && restarts_done_ < settings_.restarts)
    text += fmt::format(", then start it again ({} of {}) after {}", restarts_done_ + 1, settings_.restarts,
                        format_duration(settings_.backoff));
  return text;
}

FiringFacts RunSession::facts(std::string event, Explanation why) const {
  FiringFacts all;
  all.event = std::move(event);
  all.why = std::move(why);
  all.at = clock_.wall();
  all.action = next_in_words();
  all.job = job_.pid();
  all.command = settings_.command;
  all.members = view_members(members_.empty() ? tree_.members() : members_, members_before_, members_apart_);
  all.snapshot = feed_->newest();
  all.scope = watcher_->scope();
  return all;
}

void RunSession::fire(Fire fire) {
  if (phase_ != Phase::watching) return;
  firing_ = facts("idle", std::move(fire.why));
  voice_.firing(*firing_, settings_.dry_run);
  if (settings_.dry_run) return watcher_->acted();
  memory_at_fire_ = memory_of(feed_->newest(), watcher_->scope());
  phase_ = Phase::firing;
  acting_at_once_ = settings_.evidence.empty() && settings_.on_idle.empty();
  collect_evidence();
}

void RunSession::collect_evidence() {
  if (settings_.evidence.empty()) return run_hook();
  Evidence::collect(
      settings_.evidence, *firing_, recorder_, *helpers_, signals_,
      [this](const Process& tool) { tree_.exclude(tool); },
      [this](const std::string& where, const std::string& trouble) {
        if (phase_ != Phase::firing) return;
        if (!trouble.empty())
          voice_.note(Level::warning, "evidence", "the evidence is not complete: " + printable(trouble));
        voice_.note(Level::note, "evidence", "evidence is in " + printable(where));
        run_hook();
      });
}

void RunSession::run_hook() {
  if (settings_.on_idle.empty()) return confirm();
  helpers_->run(
      {.arguments = {"/bin/sh", "-c", settings_.on_idle},
       .environment = facts_environment(*firing_),
       .input = facts_json(*firing_) + "\n",
       .limit = settings_.on_idle_limit,
       .signals = &signals_},
      [this](const HelperResult& result) {
        if (phase_ != Phase::firing) return;
        if (!result.ok()) voice_.note(Level::warning, "hook", "--on-idle: " + printable(result.trouble));
        confirm();
      },
      [this](const Process& hook) { tree_.exclude(hook); });
}

// Nothing that cannot be undone is done on an old verdict: evidence and hook took their time, and we, or the whole
// machine, may have been stopped since the sample that fired. A job that came back to life meanwhile is spared.
void RunSession::confirm() {
  if (acting_at_once_ && !feed_->lists_may_be_old() &&
      clock_.now() - feed_->newest().at <= longest_gap(settings_.every))
    return confirmed();
  feed_->confirm([this] {
    if (phase_ == Phase::firing) confirmed();
  });
}

void RunSession::confirmed() {
  const bool fresh = clock_.now() - feed_->newest().at <= longest_gap(settings_.every);
  if (fresh && watcher_->still_holds()) return begin_ending();
  voice_.note(Level::note, "called-off", "the GPUs are no longer idle (or cannot be read): the job is not ended");
  phase_ = Phase::watching;
  watcher_->acted();
}

void RunSession::begin_ending() {
  phase_ = Phase::ending;
  ending_.emplace(tree_, job_, settings_.ending);
  step_ending();
}

void RunSession::step_ending() {
  if (ending_timer_) loop_->cancel(*ending_timer_);
  ending_timer_.reset();
  const bool killed_before = ending_->killed() > 0;
  const auto next = ending_->step(clock_.now());
  if (!killed_before && ending_->killed() > 0 && settings_.ending.signal != 0)
    voice_.note(Level::note, "kill",
                fmt::format("still there after {}: SIGKILL to {} process{}", format_duration(settings_.ending.grace),
                            ending_->killed(), ending_->killed() == 1 ? "" : "es"));
  if (!next) return tree_is_gone();
  ending_timer_ = loop_->at(*next, [this] {
    ending_timer_.reset();
    children_.sweep();
    if (phase_ == Phase::ending) step_ending();
  });
}

void RunSession::tree_is_gone() {
  phase_ = Phase::checking;
  children_.sweep();
  terminal_.restore();
  if (ending_->state() == Ending::State::stuck) {
    voice_.note(Level::warning, "stuck", "cannot be ended: " + left_in_words(ending_->left()));
  } else if (const std::string trouble = trouble_of(*ending_); !trouble.empty()) {
    voice_.note(Level::warning, "unproven", trouble);
  } else {
    voice_.note(Level::note, "ended", "the job and all its processes are gone");
  }
  bool matters = false;
  for (const auto& [uuid, used] : memory_at_fire_)
    matters |= used - value_of(memory_at_start_, uuid) > kMemoryThatMatters;
  if (!matters) return after_ending();
  memory_wanted_ = true;
  memory_tries_ = kMemoryTries;
  feed_->request();
  // A driver that hangs now keeps nobody waiting.
  loop_->in(kMemoryPause * (kMemoryTries + 2), [this] {
    if (phase_ == Phase::checking && memory_wanted_) after_ending();
  });
}

void RunSession::check_memory(int tries) {
  std::string held;
  for (const auto& [uuid, used] : memory_of(feed_->newest(), watcher_->scope())) {
    const double before = value_of(memory_at_start_, uuid);
    const double took = value_of(memory_at_fire_, uuid) - before;
    if (!(took > kMemoryThatMatters) || std::isnan(used) || used - before < took / 2) continue;
    for (const Device& device : watcher_->scope())
      if (device.uuid == uuid)
        held += fmt::format("{}GPU {}: {} ({} before the job)", held.empty() ? "" : ", ", device.label(),
                            format_size(used), format_size(before));
  }
  if (held.empty()) return after_ending();
  if (tries <= 1) {
    voice_.note(Level::warning, "memory", "the job is gone, its GPU memory is not: " + held);
    return after_ending();
  }
  memory_tries_ = tries - 1;
  loop_->in(kMemoryPause, [this] {
    if (phase_ == Phase::checking) feed_->request();
  });
}

void RunSession::after_ending() {
  memory_wanted_ = false;
  if (ended_for_time_ || restarts_done_ >= settings_.restarts) return finish(settings_.idle_status);
  ++restarts_done_;
  phase_ = Phase::backoff;
  feed_->stop();
  voice_.note(Level::note, "restart",
              fmt::format("starting again in {} ({} of {})", format_duration(settings_.backoff), restarts_done_,
                          settings_.restarts));
  loop_->in(settings_.backoff, [this] {
    if (phase_ != Phase::backoff) return;
    ending_.reset();
    if (const auto failed = start_job()) return finish(*failed);
    feed_->begin();
  });
}

}  // namespace lull
