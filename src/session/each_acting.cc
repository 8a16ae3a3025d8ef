// The second half of an EachSession: what happens from the moment a rung fires.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "session/each_session.h"
#include "view/news.h"

namespace lull {
// ---- a fresh yes, for many at once

void EachSession::confirm(std::function<void()> then) {
  to_confirm_.push_back(std::move(then));
  if (confirming_.empty()) ask_for_confirmation();
}

// Those who ask while a sample is under way get the next one: theirs must have been asked for after them.
void EachSession::ask_for_confirmation() {
  confirming_ = std::exchange(to_confirm_, {});
  feed_->confirm([this] {
    const std::vector<std::function<void()>> all = std::exchange(confirming_, {});
    for (const auto& then : all) then();
    if (!to_confirm_.empty() && confirming_.empty()) ask_for_confirmation();
  });
}

bool EachSession::wanted(const Key& key) const {
  const Member* member = roster_.find(key.first);
  if (member == nullptr || !feed_->is_fresh() || !engine_.holds(key.first, 0, key.second)) return false;
  const auto kept = kept_.find(member->key);
  if (kept != kept_.end() && world_.clock().now() < kept->second.until) return false;
  return settings_.hours.contain(world_.clock().wall());
}

// By a sample of now: who was told to end works, here or on another GPU. Others may have come to the GPU since.
bool EachSession::works_again(const std::string& key, std::uint32_t rung) const {
  const auto member = std::ranges::find(roster_.members(), key, &Member::key);
  if (member == roster_.members().end() || !feed_->is_fresh()) return false;
  const SubjectId& id = member->subject.id;
  if (const Case* judged = engine_.find(id); judged != nullptr && judged->verdict(rung).condition == Truth::no)
    return true;
  return std::ranges::any_of(member->holders,
                             [&](const Holder& one) { return !works_elsewhere({id, rung}, *member, one).empty(); });
}

// ---- acting

void EachSession::fired(const Event& event, const Fired& fire) {
  const Key key{event.subject, event.rung};
  if (acting_.contains(key)) return;
  // The lists of processes may be a while old: nothing is said or done before one of now.
  confirm([this, key, fire] {
    if (acting_.contains(key)) return;
    if (wanted(key)) return act_on(key, fire);
    engine_.outcome(key.first, 0, key.second);
  });
}

// For those whom it is about: what they can still prevent, and how.
std::string EachSession::announced(std::uint32_t rung) const {
  std::string text = in_words_of_a_notice(settings_.rungs[rung].actions);
  for (std::size_t later = rung + 1; later < settings_.rungs.size(); ++later) {
    const EachRung& next = settings_.rungs[later];
    const std::string words = in_words_of_a_notice(next.actions);
    if (words.empty()) continue;
    text += fmt::format("{}{}, once `{}` holds; working again calls that off, `lull keep 4h` puts it off",
                        text.empty() ? "" : "; ", words, to_text(next.when));
    break;
  }
  return text;
}

FiringFacts EachSession::facts(const Member& member, const Fired& fire, std::uint32_t rung) const {
  FiringFacts all;
  all.event = "idle";
  all.why = fire.why;
  all.at = world_.clock().wall();
  all.action = in_words(settings_.rungs[rung].actions);
  all.announced = announced(rung);
  all.would = would_text(settings_.rungs[rung].actions);
  all.snapshot = feed_->newest();
  all.scope = member.subject.scope.devices;
  all.machine = feed_->machine();
  all.subject = member.title;
  all.job_name = member.job;
  all.holders = member.holders;
  return all;
}

void EachSession::act_on(const Key& key, const Fired& fire) {
  const Member& member = *roster_.find(key.first);
  FiringFacts all = facts(member, fire, key.second);
  sink_.firing(all, settings_.dry_run);
  if (settings_.dry_run) return engine_.outcome(key.first, 0, key.second);
  Acting acting{.actions = {}, .executor = nullptr, .whom = whom(member)};
  std::vector<Action*> actions;
  for (const ActionWord& word : settings_.rungs[key.second].actions) {
    std::vector<std::unique_ptr<Action>> made;
    if (word.kind == ActionWord::Kind::holders)
      made.push_back(ending(key, member, word));
    else
      made = world_.actions_of(word, settings_.how);
    for (auto& action : made) {
      if (const auto ready = action->prepare(); !ready)
        sink_.note_of(acting.whom, Level::warning, "failed",
                      fmt::format("{}: {}", member.title, ready.error().message()));
      else
        actions.push_back(action.get());
      acting.actions.push_back(std::move(action));
    }
  }
  const Whom about = acting.whom;
  acting.executor = std::make_unique<Executor>(
      loop_, std::move(actions), settings_.retries, std::move(all), true,
      Executor::Calls{.tell = [this, about](const News& news) { tell(about, news); },
                      .still_wanted = [this, key] { return wanted(key); },
                      .works_again = [this, name = member.key, rung = key.second] { return works_again(name, rung); },
                      .confirm = [this](std::function<void()> then) { confirm(std::move(then)); },
                      .done = [this, key](bool worked, bool called_off) { done(key, worked, called_off); }});
  Executor& executor = *acting.executor;
  acting_.emplace(key, std::move(acting));
  executor.start();
}

void EachSession::done(const Key& key, bool all, bool called_off) {
  const auto found = acting_.find(key);
  if (found == acting_.end()) return;
  const auto over = std::make_shared<Acting>(std::move(found->second));
  acting_.erase(found);
  // Called from inside the run that ends here: it goes when the stack is empty.
  loop_.in(Duration::zero(), [over] {});
  engine_.outcome(key.first, 0, key.second);
  // It was put off, and the rule may hold all the while: it counts from now.
  const Member* member = roster_.find(key.first);
  if (called_off && member != nullptr &&
      (kept_.contains(member->key) || !settings_.hours.contain(world_.clock().wall())))
    engine_.begin(key.first, world_.clock().now());
  if (!called_off)
    sink_.note_of(over->whom, Level::note, "done", over->whom.subject + (all ? ": done" : ": not all of it was done"));
}

void EachSession::tell(const Whom& whom, const News& news) {
  sink_.note_of(whom, level_of(news), event_word(news), whom.subject + ": " + to_words(news));
}

// ---- who is ended

std::unique_ptr<Action> EachSession::ending(const Key& key, const Member& member, const ActionWord& word) {
  std::set<std::pair<pid_t, std::uint64_t>> seen;
  for (const Holder& one : member.holders) seen.insert(one.id());
  return world_.end_holders(word.text, settings_.how.ending, [this, key, seen] { return to_end(key, seen); });
}

// Where else this process is, if the rule does not hold there: it works, then, or that cannot be seen.
std::string EachSession::works_elsewhere(const Key& key, const Member& member, const Holder& one) const {
  const auto& own = member.subject.scope.devices;
  for (const Card& card : cards_) {
    const auto is_here = [&](const Device& device) {
      return card.device.is(device.id()) || (card.device.kind == DeviceKind::gpu && device.kind == DeviceKind::mig &&
                                             card.device.index == device.index);
    };
    if (std::ranges::any_of(own, is_here)) continue;
    const bool there = std::ranges::find(card.holders, one.id(), &Holder::id) != card.holders.end() ||
                       std::ranges::find(card.drawers, one.id(), &Holder::id) != card.drawers.end();
    const bool may = card.reachable ? !card.listed : card.openers.contains(one.pid);
    if (!there && !may) continue;
    const bool idle = std::ranges::any_of(roster_.members(), [&](const Member& other) {
      return std::ranges::any_of(other.subject.scope.devices,
                                 [&](const Device& device) { return card.device.is(device.id()); }) &&
             engine_.holds(other.subject.id, 0, key.second);
    });
    if (!there || !idle) return card.device.label();
  }
  return "";
}

std::vector<Holder> EachSession::to_end(const Key& key, const std::set<std::pair<pid_t, std::uint64_t>>& seen) {
  std::vector<Holder> all;
  const Member* member = roster_.find(key.first);
  if (member == nullptr) return all;
  for (const Holder& one : member->holders) {
    if (!seen.contains(one.id())) continue;
    const std::string elsewhere = works_elsewhere(key, *member, one);
    if (elsewhere.empty())
      all.push_back(one);
    else
      sink_.note_of(whom(*member), Level::warning, "spared",
                    fmt::format("{}: {} {} of {} may work on GPU {}: it is not ended", member->title,
                                printable(one.name), one.pid, printable(one.user_name), elsewhere));
  }
  for (const Holder& one : all)
    sink_.note_of(whom(*member), Level::note, "end",
                  fmt::format("{}: {} to {} {} of {}", member->title,
                              settings_.how.ending.signal == 0 ? "SIGKILL" : signal_name(settings_.how.ending.signal),
                              printable(one.name), one.pid, printable(one.user_name)));
  return all;
}

// ---- people

std::string EachSession::on_cancel(const std::string& who) {
  std::vector<Executor*> all;
  std::string what;
  for (auto& [key, acting] : acting_) {
    all.push_back(acting.executor.get());
    what += (what.empty() ? "" : "; ") + acting.whom.subject;
  }
  bool any = false;
  for (Executor* one : all) any = one->cancel(who) || any;
  if (any) return "cancelled: " + what;
  return "nothing to cancel: " + std::string(all.empty() ? "no rule has fired" : "it is being done already");
}

std::string keep_question(const std::string& target, Duration time) {
  return fmt::format("{} {}", std::chrono::ceil<std::chrono::seconds>(time).count(), target);
}

std::optional<std::pair<std::string, Duration>> read_keep_question(const std::string& question) {
  constexpr std::uint64_t kLongestKeep = 10'000ULL * 24 * 3600;  // as parse_duration() takes
  const std::size_t blank = question.find(' ');
  const auto seconds = to_unsigned(std::string_view(question).substr(0, blank));
  if (blank == std::string::npos || !seconds || *seconds > kLongestKeep) return std::nullopt;
  return std::pair(question.substr(blank + 1), std::chrono::seconds(*seconds));
}

bool EachSession::may_keep(uid_t user, const Member& member) const {
  if (user == 0) return true;
  return !member.holders.empty() &&
         std::ranges::all_of(member.holders, [&](const Holder& one) { return one.user == user; });
}

bool EachSession::is_named(const Member& member, const std::string& target) {
  if (target.empty() || member.job == target || member.job == "tree:" + target || member.job == "container:" + target ||
      member.job == "lease:" + target)
    return true;
  std::string gpu = target;
  if (gpu.starts_with("gpu") || gpu.starts_with("GPU ")) gpu = std::string(trim(std::string_view(gpu).substr(3)));
  for (const Device& device : member.subject.scope.devices)
    if (device.label() == gpu || device.uuid == target) return true;
  return std::ranges::any_of(member.holders, [&](const Holder& one) { return std::to_string(one.pid) == target; });
}

std::string EachSession::on_keep(uid_t user, const std::string& who, const std::string& target, Duration time) {
  const Instant now = world_.clock().now();
  std::string given;
  std::string refused;
  for (const Member& member : roster_.members()) {
    if (!is_named(member, target)) continue;
    if (!may_keep(user, member)) {
      if (!target.empty())
        refused += fmt::format("{}only its owner and root may keep {}", refused.empty() ? "" : "; ", member.title);
      continue;
    }
    Kept& kept = kept_.try_emplace(member.key, Kept{now, now, users_of(member)}).first->second;
    if (!kept.since) kept.since = now;
    const Instant latest = *kept.since + settings_.keep_at_most;
    kept.until = std::max(kept.until, std::min(now + time, latest));
    const Duration left = kept.until - now;
    if (left <= Duration::zero()) {
      refused +=
          fmt::format("{}{} has had all the time that --keep-at-most gives", refused.empty() ? "" : "; ", member.title);
      continue;
    }
    engine_.keep(member.subject.id, kept.until);
    std::vector<Executor*> acting;
    for (auto& [key, one] : acting_)
      if (key.first == member.subject.id) acting.push_back(one.executor.get());
    bool too_late = false;
    for (Executor* one : acting) too_late = (!one->cancel(who) && one->ends_work()) || too_late;
    if (too_late) {
      refused += fmt::format("{}it is too late for {}: SIGKILL was sent", refused.empty() ? "" : "; ", member.title);
      continue;
    }
    given += fmt::format("{}{} for {}{}", given.empty() ? "" : "; ", member.title,
                         format_duration(std::chrono::ceil<std::chrono::seconds>(left)),
                         now + time > latest ? " (--keep-at-most)" : "");
  }
  if (!given.empty()) {
    sink_.note(Level::important, "keep", who + " keeps " + given);
    return "kept: " + given + (refused.empty() ? "" : "; refused: " + refused);
  }
  if (!refused.empty()) return "refused: " + refused;
  return "nothing to keep: " + (target.empty() ? "you hold no GPU that is watched here"
                                               : "there is no GPU or job '" + printable(target) + "' here");
}

}  // namespace lull
