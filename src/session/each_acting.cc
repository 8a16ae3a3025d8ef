// The second half of an EachSession: what happens from the moment a step fires.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "act/evidence.h"
#include "base/text.h"
#include "base/units.h"
#include "base/users.h"
#include "sense/processes.h"
#include "session/each_session.h"
#include "view/events.h"

namespace lull {
// ---- confirmation

// By a sample of now, and by the newest data of it. (A dry run ends nothing, and says what a replay of its recording
// says: what fired. That of Slurm jobs does all but the verb.)
bool EachSession::wanted(const Key& key) const {
  if (!may_act_on(key) || !feed_->is_fresh()) return false;
  if (!confirms()) return engine_.holds(key.first, 0, key.second);
  return feed_->covers() && engine_.holds_now(key.first, 0, key.second);
}

bool EachSession::may_act_on(const Key& key) const {
  const TrackedSubject* tracked = tracker_.find(key.first);
  if (tracked == nullptr) return false;
  const auto kept = kept_.find(tracked->key);
  if (kept != kept_.end() && world_.clock().now() < kept->second.until) return false;
  if (slurm_ && world_.clock().now() < slurm_->not_before(tracked->job)) return false;
  return settings_.hours.contain(world_.clock().wall());
}

void EachSession::not_confirmed(const Key& key) {
  const TrackedSubject& tracked = *tracker_.find(key.first);
  const bool goes_on = engine_.holds(key.first, 0, key.second);
  if (goes_on ? !not_confirmed_.insert(key).second : not_confirmed_.erase(key) > 0) return;
  sink_.note_of(log_subject(tracked), Level::note, "not-confirmed",
                tracked.title + ": " +
                    not_confirmed_text(feed_->newest(), tracked.subject.scope.devices,
                                       steps_of(key.first)[key.second].when, feed_->covers()));
}

// By a sample of now: who was told to end works, here or on another GPU. They may have left this one since.
// Unknown: what they do now cannot be seen.
Truth EachSession::works_again(const TrackedSubject& told, std::uint32_t step) const {
  if (!feed_->is_fresh() || feed_->newest().driver.absence != Absence::none) return Truth::unknown;
  const auto now = std::ranges::find(tracker_.subjects(), told.key, &TrackedSubject::key);
  const SubjectState* judged = now == tracker_.subjects().end() ? nullptr : engine_.find(now->subject.id);
  if (judged != nullptr && judged->fails_now(step)) return Truth::yes;
  const auto elsewhere = [&](const GpuProcess& one) { return !works_elsewhere(told, step, one).empty(); };
  if (std::ranges::any_of(told.holders, elsewhere)) return Truth::yes;
  return judged != nullptr && judged->unknown_now(step) ? Truth::unknown : Truth::no;
}

// ---- acting

namespace {

constexpr std::size_t kMostSpared = 1000;  // of which it was said

// Of a Slurm job, of which this node is perhaps one of many. From inside a job its own user may mean just that.
bool is_slurms(const GpuProcess& one) { return one.job.starts_with("slurm:") && !inside_slurm_job(one.job); }

}  // namespace

// Without --slurm the other nodes of a Slurm job are not asked, and a command may do anything to it: `scontrol requeue`
// would end the work of all of them. Said once for each run of a subject.
bool EachSession::spares_slurm_job(const TrackedSubject& tracked, const ActionOption& word) {
  if (slurm_ || word.kind != ActionOption::Kind::exec) return false;
  const auto of_slurm = std::ranges::find_if(tracked.holders, is_slurms);
  if (of_slurm == tracked.holders.end()) return false;
  if (spared_.size() > kMostSpared) spared_.clear();
  if (spared_.emplace(tracked.key, word.text).second)
    sink_.note_of(log_subject(tracked), Level::warning, "spared",
                  fmt::format("{}: {} is not run for Slurm job {}: its other nodes are not asked; `--per job --slurm` "
                              "asks them, notify and mail work without it",
                              tracked.title, printable(word.text), printable(of_slurm->job.substr(6))));
  return true;
}

void EachSession::fired(const Event& event, const Fired& fire) {
  const Key key{event.subject, event.step};
  if (acting_.contains(key)) return;
  // Another node of the job does what is to be done; where that is not known yet, it is asked again.
  if (const auto leader = leads(key); leader != true)
    return engine_.outcome(key.first, 0, key.second, leader ? FiresAgain::in_another_stretch : FiresAgain::at_once);
  // The mean of the time before says nothing of its last moments, and the lists of processes may be a while old:
  // nothing is said or done before there are new data.
  if (!unsaid_.emplace(key, false).second) return;
  ask_nodes_early(key);
  confirm([this, key, fire] {
    const auto unsaid = unsaid_.extract(key);
    if (acting_.contains(key)) return;
    const bool cancelled = cancelled_.erase(key) > 0;
    const bool acts = !cancelled && !unsaid.mapped() && wanted(key);
    if (acts) act_on(key, fire);
    asking_.erase(key);
    if (acts) return;
    const bool again = !cancelled && confirms() && may_act_on(key);
    if (again) not_confirmed(key);
    engine_.outcome(key.first, 0, key.second, again ? FiresAgain::at_once : FiresAgain::in_another_stretch);
    // Kept, or out of hours: what held so far does not count when that is over.
    if (!again && confirms() && tracker_.find(key.first) != nullptr) begin(key.first, world_.clock().now());
  });
}

// For the users of the job: what they can still prevent, and how.
std::string EachSession::announced(const Key& key, Duration held) const {
  const std::vector<EachStep>& steps = steps_of(key.first);
  std::string text = notice_text(steps[key.second].actions);
  for (std::size_t later = key.second + 1; later < steps.size(); ++later) {
    const EachStep& next = steps[later];
    const std::string words = notice_text(next.actions);
    if (words.empty()) continue;
    const auto span = next.when.span();
    const bool timed = span && span->samples == 0 && span->time > held;
    text += fmt::format("{}{}{}, once `{}` holds; working again calls that off", text.empty() ? "" : "; ", words,
                        timed ? " in " + format_duration(std::chrono::ceil<std::chrono::seconds>(span->time - held)) +
                                    " at the earliest"
                              : "",
                        to_text(next.when));
    break;
  }
  return text;
}

// By a process if there is one: it is easy to copy. A Slurm job has one name on all nodes, and on login nodes.
std::string EachSession::keep_command(const TrackedSubject& tracked) const {
  if (tracked.job.starts_with("slurm:")) return fmt::format("lull keep {} 4h", tracked.job);
  if (!tracked.job.empty() && !tracked.holders.empty()) return fmt::format("lull keep {} 4h", tracked.holders[0].pid);
  const std::vector<Device>& gpus = tracked.subject.scope.devices;
  return gpus.empty() ? "lull keep 4h" : fmt::format("lull keep gpu{} 4h", gpus[0].label());
}

FiringFacts EachSession::facts(const TrackedSubject& tracked, const Fired& fire, std::uint32_t step) const {
  const EachStep& fired = steps_of(tracked.subject.id)[step];
  FiringFacts all;
  all.event = "idle";
  all.why = fire.why;
  all.at = world_.clock().wall();
  all.action = to_text(fired.actions);
  all.announced = announced({tracked.subject.id, step}, fire.why.held);
  all.keep = keep_command(tracked);
  all.would = would_text(fired.actions);
  all.snapshot = feed_->newest();
  all.scope = tracked.subject.scope.devices;
  all.machine = feed_->machine();
  all.subject = tracked.title;
  all.job_name = tracked.job;
  all.holders = tracked.holders;
  const slurm::Allocation* job = slurm_ ? slurm_->find(tracked.job) : nullptr;
  if (job != nullptr && !job->user.empty()) all.users = {job->user};
  if (all.users.empty())
    for (const uid_t user : users_of(tracked)) {
      const std::string name = user_name(owner_of(user, settings_.who.user_files), settings_.who.user_files);
      if (std::ranges::find(all.users, name) == all.users.end()) all.users.push_back(name);
    }
  return all;
}

std::vector<std::unique_ptr<Action>> EachSession::actions_of(const Key& key, const TrackedSubject& tracked,
                                                             const ActionOption& word) {
  std::vector<std::unique_ptr<Action>> made;
  if (slurm_) add_slurm_actions(key, tracked, word, made);
  if (settings_.dry_run) return made;  // the nodes are asked, and that is all
  if (word.kind == ActionOption::Kind::holders)
    made.push_back(ending(key, tracked, word));
  else if (word.kind == ActionOption::Kind::park)
    made.push_back(parking(key, tracked, word));
  else
    std::ranges::move(world_.actions_of(word, settings_.how), std::back_inserter(made));
  return made;
}

void EachSession::log_hang(const TrackedSubject& tracked, std::uint32_t step) {
  if (!steps_of(tracked.subject.id)[step].when.for_hangs) return;
  std::vector<pid_t> pids;
  for (const MemberView& one : view_processes(tracked.holders, world_.root())) pids.push_back(one.entry.pid);
  if (const std::string where = where_it_hangs(pids); !where.empty())
    sink_.note_of(log_subject(tracked), Level::note, "where", tracked.title + ": " + where);
}

void EachSession::act_on(const Key& key, const Fired& fire) {
  const TrackedSubject& tracked = *tracker_.find(key.first);
  std::vector<ActionOption> words = steps_of(key.first)[key.second].actions;
  const auto spared = std::erase_if(words, [&](const ActionOption& word) { return spares_slurm_job(tracked, word); });
  if (spared > 0 && words.empty()) return engine_.outcome(key.first, 0, key.second);
  FiringFacts all = facts(tracked, fire, key.second);
  const bool dry_run = settings_.dry_run;
  if (!dry_run || !confirms()) sink_.firing(all, dry_run);
  if (settings_.evidence.empty() || dry_run) log_hang(tracked, key.second);
  if (!confirms()) return engine_.outcome(key.first, 0, key.second);
  Acting acting{.actions = {}, .executor = nullptr, .about = log_subject(tracked)};
  if (dry_run) acting.would = all;
  std::vector<Action*> actions;
  if (!settings_.evidence.empty() && !dry_run) {
    all.members = view_processes(tracked.holders, world_.root());
    if (auto action = world_.evidence(settings_.evidence, recorder_)) {
      actions.push_back(action.get());
      acting.actions.push_back(std::move(action));
    }
  }
  for (const ActionOption& word : words)
    for (auto& action : actions_of(key, tracked, word)) {
      if (const auto ready = action->prepare(); !ready)
        sink_.note_of(acting.about, Level::warning, "failed",
                      fmt::format("{}: {}", tracked.title, ready.error().message()));
      else
        actions.push_back(action.get());
      acting.actions.push_back(std::move(action));
    }
  const LogSubject about = acting.about;
  acting.executor = std::make_unique<Executor>(
      loop_, std::move(actions), settings_.retries, std::move(all), true,
      Executor::Calls{.tell = [this, about](const ActionEvent& action_event) { tell(about, action_event); },
                      .still_wanted = [this, key] { return wanted(key); },
                      .works_again = [this, told = tracked, step = key.second] { return works_again(told, step); },
                      .age = [this] { return feed_->age(); },
                      .confirm = [this](std::function<void()> then) { confirm(std::move(then)); },
                      .done = [this, key](bool worked, bool called_off) { done(key, worked, called_off); }});
  Executor& executor = *acting.executor;
  acting_.emplace(key, std::move(acting));
  executor.start();
}

void EachSession::done(const Key& key, bool all, bool called_off) {
  auto over = acting_.extract(key);
  if (over.empty()) return;
  const Acting& acting = over.mapped();
  // It was announced, and hooks have run: it is not announced again before the rule has held for its time again.
  const bool counts = called_off && !acting.executor->cancelled() && engine_.holds(key.first, 0, key.second);
  engine_.outcome(key.first, 0, key.second, counts ? FiresAgain::after_another_count : FiresAgain::in_another_stretch);
  // It was put off, and the rule may hold all the while: it counts from now.
  const TrackedSubject* tracked = tracker_.find(key.first);
  if (called_off && tracked != nullptr &&
      (kept_.contains(tracked->key) || !settings_.hours.contain(world_.clock().wall())))
    begin(key.first, world_.clock().now());
  if (acting.would && all && !called_off) sink_.firing(*acting.would, true);
  if (!called_off && !acting.would)
    sink_.note_of(acting.about, Level::note, "done",
                  acting.about.subject + (all ? ": done" : ": not all of it was done"));
  loop_.destroy_later(std::move(over));
}

void EachSession::tell(const LogSubject& about, const ActionEvent& action_event) {
  const auto* attempt = std::get_if<Attempted>(&action_event);
  if (attempt != nullptr && attempt->action == settings_.evidence) return;  // where it is, is said
  sink_.note_of(about, level_of(action_event), event_name(action_event),
                about.subject + ": " + to_string(action_event));
}

// ---- who is ended

std::unique_ptr<Action> EachSession::ending(const Key& key, const TrackedSubject& tracked, const ActionOption& word) {
  std::set<ProcessId> seen;
  for (const GpuProcess& one : tracked.holders) seen.insert(one.id());
  return world_.end_holders(word.text, settings_.how.ending, [this, key, seen] { return to_end(key, seen); });
}

// The same who would be ended.
std::unique_ptr<Action> EachSession::parking(const Key& key, const TrackedSubject& tracked, const ActionOption& word) {
  std::set<ProcessId> seen;
  for (const GpuProcess& one : tracked.holders) seen.insert(one.id());
  return world_.parking(
      word.text, settings_.how.park,
      [this, key, seen]() -> Result<std::vector<std::string>> {
        std::vector<std::string> who;
        for (const GpuProcess& one : to_end(key, seen, "parked"))
          who.push_back(park_argument(one.pid, one.start_ticks, false));
        return who;
      },
      settings_.how.park.else_end ? ending(key, tracked, word) : nullptr);
}

// Where else this process is, if the rule does not hold there: it works, then, or that cannot be seen.
std::string EachSession::works_elsewhere(const TrackedSubject& tracked, std::uint32_t step,
                                         const GpuProcess& one) const {
  const auto& own = tracked.subject.scope.devices;
  for (const GpuUse& use : uses_) {
    const auto is_here = [&](const Device& device) {
      return use.device.is(device.id()) ||
             (use.device.kind == DeviceKind::gpu && device.kind == DeviceKind::mig && use.device.index == device.index);
    };
    if (std::ranges::any_of(own, is_here)) continue;
    const bool there = std::ranges::any_of(use.processes, [&](const GpuProcess& other) {
      return other.id() == one.id() && (holds(other) || draws(other));
    });
    // A number that is listed there without proof may be this process all the same.
    const bool may = (use.reachable && !use.listed) || use.may_have(one.pid);
    if (!there && !may) continue;
    const bool idle = std::ranges::any_of(tracker_.subjects(), [&](const TrackedSubject& other) {
      return std::ranges::any_of(other.subject.scope.devices,
                                 [&](const Device& device) { return use.device.is(device.id()); }) &&
             engine_.holds_now(other.subject.id, 0, step);
    });
    if (!there || !idle) return use.device.label();
  }
  return "";
}

std::vector<GpuProcess> EachSession::to_end(const Key& key, const std::set<ProcessId>& seen, std::string_view what) {
  std::vector<GpuProcess> all;
  const TrackedSubject* tracked = tracker_.find(key.first);
  if (tracked == nullptr) return all;
  for (const GpuProcess& one : tracked->holders) {
    if (!seen.contains(one.id())) continue;
    // Its script would go on, and the GPUs stay allocated.
    if (is_slurms(one)) {
      sink_.note_of(log_subject(*tracked), Level::warning, "spared",
                    fmt::format("{}: {} {} of {} is of Slurm job {}, which would keep its GPUs: it is not {}; "
                                "`--per job --slurm` with slurm=cancel or slurm=requeue is meant",
                                tracked->title, printable(one.name()), one.pid, printable(one.user()),
                                printable(one.job.substr(6)), what));
      continue;
    }
    const std::string elsewhere = works_elsewhere(*tracked, key.second, one);
    if (elsewhere.empty())
      all.push_back(one);
    else
      sink_.note_of(log_subject(*tracked), Level::warning, "spared",
                    fmt::format("{}: {} {} of {} may work on GPU {}: it is not {}", tracked->title,
                                printable(one.name()), one.pid, printable(one.user()), elsewhere, what));
  }
  // Of a job that is parked all processes are, or none.
  if (what == "parked" && all.size() != seen.size()) all.clear();
  for (const GpuProcess& one : all)
    if (what == "parked")
      sink_.note_of(log_subject(*tracked), Level::note, "park",
                    fmt::format("{}: parking {} {} of {}", tracked->title, printable(one.name()), one.pid,
                                printable(one.user())));
    else
      sink_.note_of(log_subject(*tracked), Level::note, "end",
                    fmt::format("{}: {} to {} {} of {}", tracked->title,
                                settings_.how.ending.signal == 0 ? "SIGKILL" : signal_name(settings_.how.ending.signal),
                                printable(one.name()), one.pid, printable(one.user())));
  return all;
}

// ---- people

std::string EachSession::on_cancel(const std::string& who) {
  std::vector<Executor*> all;
  std::string what;
  for (auto& [key, acting] : acting_) {
    all.push_back(acting.executor.get());
    what += (what.empty() ? "" : "; ") + acting.about.subject;
    if (const std::string doubt = doubt_about(key.first); !doubt.empty()) what += ": " + doubt;
  }
  bool any = false;
  for (Executor* one : all) any = one->cancel(who) || any;
  for (const auto& [key, called_off] : unsaid_) {  // has fired, and is being confirmed
    any = true;
    cancelled_.insert(key);
    if (const TrackedSubject* tracked = tracker_.find(key.first)) what += (what.empty() ? "" : "; ") + tracked->title;
  }
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

constexpr std::string_view kInNameOf = "for ";

std::string keep_question_for(uid_t user, const std::string& target, Duration time) {
  return fmt::format("{}{} {}", kInNameOf, user, keep_question(target, time));
}

std::optional<std::pair<uid_t, std::string>> read_question_for(const std::string& question) {
  if (!question.starts_with(kInNameOf)) return std::nullopt;
  const std::string_view rest = std::string_view(question).substr(kInNameOf.size());
  const std::size_t blank = rest.find(' ');
  const auto user = to_unsigned(rest.substr(0, blank));
  if (blank == std::string_view::npos || !user || *user > 0xFFFFFFFEU) return std::nullopt;
  return std::pair(static_cast<uid_t>(*user), std::string(rest.substr(blank + 1)));
}

bool EachSession::may_keep(uid_t user, const TrackedSubject& tracked) const {
  if (user == 0) return true;
  if (tracked.owner) return *tracked.owner == user;
  const auto is_theirs = [&](const GpuProcess& one) {
    return one.info->uid && belongs_to(*one.info->uid, user, settings_.who.user_files);
  };
  // Each who works in a job may keep it; a GPU that several users share is not a job.
  return tracked.job.empty() ? !tracked.holders.empty() && std::ranges::all_of(tracked.holders, is_theirs)
                             : std::ranges::any_of(tracked.holders, is_theirs);
}

bool EachSession::is_named(const TrackedSubject& tracked, const std::string& target) {
  if (target.empty() || tracked.job == target || tracked.job == "tree:" + target ||
      tracked.job == "container:" + target || tracked.job == "pod:" + target || tracked.job == "lease:" + target)
    return true;
  if (const auto slash = tracked.job.find('/');  // "container:ada/0123456789ab"
      (tracked.job.starts_with("container:") || tracked.job.starts_with("pod:")) && slash != std::string::npos &&
      tracked.job.substr(slash + 1) == target)
    return true;
  std::string gpu = target;
  if (gpu.starts_with("gpu") || gpu.starts_with("GPU ")) gpu = std::string(trim(std::string_view(gpu).substr(3)));
  for (const Device& device : tracked.subject.scope.devices)
    if (device.label() == gpu || device.uuid == target) return true;
  return std::ranges::any_of(tracked.holders, [&](const GpuProcess& one) { return std::to_string(one.pid) == target; });
}

// Until when it is kept now: no longer than the limit from the first time it was asked for, and never shorter than
// before.
Instant EachSession::give_time(const TrackedSubject& tracked, Duration time) {
  const Instant now = world_.clock().now();
  Kept& kept = kept_.try_emplace(tracked.key, Kept{now, now, users_of(tracked)}).first->second;
  if (!kept.since) kept.since = now;
  kept.until = std::max(kept.until, std::min(now + time, *kept.since + settings_.keep_at_most));
  if (now < kept.until) engine_.keep(tracked.subject.id, kept.until);
  if (slurm_) write_kept();
  return kept.until;
}

std::string EachSession::on_keep(uid_t user, const std::string& who, const std::string& target, Duration time) {
  const Instant now = world_.clock().now();
  std::string given;
  std::string uncertain;  // given, and perhaps in vain
  std::string refused;
  for (const TrackedSubject& tracked : tracker_.subjects()) {
    if (!is_named(tracked, target)) continue;
    if (!may_keep(user, tracked)) {
      if (!target.empty())
        refused += fmt::format("{}only its owner and root may keep {}", refused.empty() ? "" : "; ", tracked.title);
      continue;
    }
    const Duration left = give_time(tracked, time) - now;
    if (left <= Duration::zero()) {
      refused += fmt::format("{}{} has had all the time that --keep-at-most gives", refused.empty() ? "" : "; ",
                             tracked.title);
      continue;
    }
    std::vector<Executor*> acting;
    for (auto& [key, one] : acting_)
      if (key.first == tracked.subject.id) acting.push_back(one.executor.get());
    bool too_late = false;
    for (Executor* one : acting) too_late = (!one->cancel(who) && one->ends_work()) || too_late;
    if (too_late) {
      refused += fmt::format("{}it is too late for {}: its end has begun", refused.empty() ? "" : "; ", tracked.title);
      continue;
    }
    const std::string doubt = doubt_about(tracked.subject.id);
    std::string& one = doubt.empty() ? given : uncertain;
    one += fmt::format("{}{} for {}{}{}{}", one.empty() ? "" : "; ", tracked.title,
                       format_duration(std::chrono::ceil<std::chrono::seconds>(left)),
                       left < time ? " (--keep-at-most)" : "", doubt.empty() ? "" : ": ", doubt);
  }
  std::string answer;
  for (const auto& [word, text] :
       {std::pair("kept: ", &given), std::pair("not certain: ", &uncertain), std::pair("refused: ", &refused)})
    if (!text->empty()) answer += (answer.empty() ? "" : "; ") + (word + *text);
  if (!given.empty() || !uncertain.empty())
    sink_.note(Level::important, "keep",
               who + " keeps " + given + (given.empty() || uncertain.empty() ? "" : "; ") + uncertain);
  if (!answer.empty()) return answer;
  return "nothing to keep: " + (target.empty() ? "you hold no GPU that is watched here"
                                               : "there is no GPU or job '" + printable(target) + "' here");
}

}  // namespace lull
