// The second half of a RunSession: what happens from the moment a rule fires.

#include <fmt/format.h>

#include <cmath>
#include <csignal>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "session/run_session.h"
#include "view/news.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr int kMemoryTries = 12;  // a driver frees the memory of a killed process a little later
constexpr Duration kMemoryPause = 250ms;
constexpr double kMemoryThatMatters = 256.0 * 1024 * 1024;

std::map<DeviceId, double> memory_of(const Snapshot& snapshot, const std::vector<Device>& scope) {
  std::map<DeviceId, double> used;
  for (const Device& device : scope)
    if (const Reading* reading = snapshot.find(device.id())) used.emplace(device.id(), (*reading)[Metric::mem_used]);
  return used;
}

double value_of(const std::map<DeviceId, double>& list, const DeviceId& id) {
  const auto found = list.find(id);
  return found == list.end() ? kUnknown : found->second;
}

}  // namespace

std::string RunSession::next_in_words(bool for_time) const {
  const Ending::Options& how = settings_.ending;
  std::string text = how.signal == 0 || how.signal == SIGKILL
                         ? std::string("SIGKILL to its process tree")
                         : fmt::format("{} to its process tree, SIGKILL to what is left after {}",
                                       signal_name(how.signal), format_duration(how.grace));
  if (!for_time && restarts_done_ < settings_.restarts)
    text += fmt::format(", then start it again ({} of {}) after {}", restarts_done_ + 1, settings_.restarts,
                        format_duration(settings_.backoff));
  return text;
}

void RunSession::fired(const Fired& fire) {
  if (phase_ != Phase::watching) return;
  FiringFacts all = facts("idle", fire.why, next_in_words());
  all.would = "send " + all.action;
  all.job = job_->pid();
  all.command = settings_.command;
  all.members = view_members(members_.empty() ? job_->members() : members_, members_before_, members_apart_);
  sink_.firing(all, common_.dry_run);
  if (common_.dry_run) return engine_->outcome(subject_.id);
  memory_at_fire_ = memory_of(feed_->newest(), judged().scope());
  phase_ = Phase::firing;
  std::vector<Action*> actions;
  for (Action* action : {evidence_.get(), hook_.get(), ending_.get()})
    if (action != nullptr) actions.push_back(action);
  act(std::move(actions), {.most = 0}, std::move(all));
}

void RunSession::time_is_up(const TimeUp& up) {
  if (!wants_samples()) return;
  sink_.note(Level::important, "max-time",
             fmt::format("the job has run for {} (--max-time): {}{}", format_duration(up.after),
                         common_.dry_run ? "dry run: would send " : "", next_in_words(true)));
  if (common_.dry_run) return;
  ended_for_time_ = true;
  act({ending_.get()}, {.most = 0}, facts("max-time", {}, next_in_words(true)), true);
}

void RunSession::tell(const News& news) {
  if (const auto* attempt = std::get_if<Attempted>(&news)) {
    if (attempt->action == ending_->text()) phase_ = Phase::ending;
    return;  // it was said when the rule fired
  }
  if (const auto* failed = std::get_if<Failed>(&news); failed != nullptr && !failed->goes_on) return;  // said already
  if (std::holds_alternative<NoLongerWanted>(news))
    return sink_.note(Level::note, "called-off",
                      "the GPUs are no longer idle (or cannot be read): the job is not ended");
  if (std::holds_alternative<TreeGone>(news) || std::holds_alternative<TreeStuck>(news) ||
      std::holds_alternative<TreeUnproven>(news))
    job_->restore_terminal();
  sink_.did(news);
}

void RunSession::acted(bool /*all*/, bool called_off) {
  if (phase_ != Phase::ending && phase_ != Phase::firing) return;
  if (!called_off) return tree_is_gone();
  phase_ = Phase::watching;
}

void RunSession::tree_is_gone() {
  phase_ = Phase::checking;
  bool matters = false;
  for (const auto& [id, used] : memory_at_fire_) matters |= used - value_of(memory_at_start_, id) > kMemoryThatMatters;
  if (!matters) return after_ending();
  memory_wanted_ = true;
  memory_tries_ = kMemoryTries;
  feed_->request();
  // A driver that hangs now keeps nobody waiting.
  loop_.in(kMemoryPause * (kMemoryTries + 2), [this] {
    if (phase_ == Phase::checking && memory_wanted_) after_ending();
  });
}

void RunSession::check_memory() {
  std::string held;
  const auto now = memory_of(feed_->newest(), judged().scope());
  for (const Device& device : judged().scope()) {
    const double used = value_of(now, device.id());
    const double before = value_of(memory_at_start_, device.id());
    const double took = value_of(memory_at_fire_, device.id()) - before;
    if (!(took > kMemoryThatMatters) || std::isnan(used) || used - before < took / 2) continue;
    held += fmt::format("{}GPU {}: {} ({} before the job)", held.empty() ? "" : ", ", device.label(), format_size(used),
                        format_size(before));
  }
  if (held.empty()) return after_ending();
  if (--memory_tries_ <= 0) {
    sink_.note(Level::warning, "memory", "the job is gone, its GPU memory is not: " + held);
    return after_ending();
  }
  loop_.in(kMemoryPause, [this] {
    if (phase_ == Phase::checking) feed_->request();
  });
}

void RunSession::after_ending() {
  memory_wanted_ = false;
  if (ended_for_time_ || restarts_done_ >= settings_.restarts) return finish({settings_.idle_status});
  ++restarts_done_;
  phase_ = Phase::backoff;
  feed_->stop();
  sink_.note(Level::note, "restart",
             fmt::format("starting again in {} ({} of {})", format_duration(settings_.backoff), restarts_done_,
                         settings_.restarts));
  loop_.in(settings_.backoff, [this] {
    if (phase_ != Phase::backoff) return;
    if (const auto failed = start_job()) return finish(*failed);
    feed_->begin();
  });
}

}  // namespace lull
