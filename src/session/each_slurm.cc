// The part of an EachSession that knows Slurm: which jobs there are, what it answers for one, and what is done to one.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "session/each_session.h"
#include "session/slurm_steps.h"
#include "view/progress.h"

namespace lull {
namespace {

constexpr Duration kLeftAlone = std::chrono::minutes(10);  // until the user may have changed it

// Each node has lull where we have it.
std::string own_program() {
  constexpr std::string_view kDeleted = " (deleted)";  // by an upgrade: the new one has its name
  std::error_code error;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (path.ends_with(kDeleted) && !std::filesystem::exists(path, error)) path.resize(path.size() - kDeleted.size());
  return path.empty() ? "lull" : path;
}

Duration needed(const Verdict& verdict, Duration every) {
  const auto samples = static_cast<std::int64_t>(verdict.needed.samples);
  return std::max(verdict.needed.time, samples * every);
}

Duration left(const Verdict& verdict, Duration every) {
  const std::uint64_t wanted = verdict.needed.samples;
  const auto samples = static_cast<std::int64_t>(wanted - std::min(wanted, verdict.held_samples));
  return std::max<Duration>({Duration::zero(), verdict.needed.time - verdict.held, samples * every});
}

}  // namespace

void EachSession::look_at_slurm(const std::vector<AllocatedJob>& jobs) {
  if (slurm_->numbers().wants_look(world_.clock().now()))
    world_.run_helper(slurm::gres_command(slurm_->settings().node), slurm::kCommandLimit,
                      [this](const HelperResult& result) { slurm_->numbers().looked(result, world_.clock().now()); });
  leaders_->keep(slurm_->all());
  std::erase_if(unanswered_, [this](const auto& one) { return doubt_about(one.first).empty(); });
  tracker_.take(allocated_subjects(jobs, uses_));
  for (const std::string& text : slurm_->take_notes()) sink_.note(Level::warning, "slurm", text);
  choose_steps();
}

// Once for each run of a job: what a file says later changes nothing.
void EachSession::choose_steps() {
  std::map<SubjectId, std::vector<EachStep>> chosen;
  for (const TrackedSubject& tracked : tracker_.subjects()) {
    const SubjectId& id = tracked.subject.id;
    if (auto known = own_steps_.extract(id); !known.empty()) {
      chosen.insert(std::move(known));
    } else if (const auto asked = slurm_->asked_for(tracked.job); asked && engine_.find(id) == nullptr) {
      chosen[id] = steps_asked_for(settings_.steps, *asked, settings_.every, slurm_->settings().user_rule_at_most);
    }
  }
  own_steps_ = std::move(chosen);
}

// All that is done to a job is done from one node.
std::optional<bool> EachSession::leads(const Key& key) {
  const TrackedSubject* tracked = slurm_ ? tracker_.find(key.first) : nullptr;
  const slurm::Allocation* job = tracked == nullptr ? nullptr : slurm_->find(tracked->job);
  return job == nullptr ? true : leaders_->leads(*job, world_.clock().now());
}

// ---- what is done

// The other nodes confirm while we do. Once in a stretch: where ours is not confirmed, they are asked when it is.
void EachSession::ask_nodes_early(const Key& key) {
  const TrackedSubject* tracked = tracker_.find(key.first);
  const slurm::Allocation* job = slurm_ && tracked != nullptr ? slurm_->find(tracked->job) : nullptr;
  if (job == nullptr || !may_act_on(key) || not_confirmed_.contains(key)) return;
  if (!job->restarts || job->nodes.empty() || (job->het_job == 0 && job->nodes == job->node)) return;
  const auto asking = std::make_shared<slurm::AskNodes>(
      loop_, world_.runner(),
      slurm::AskNodes::Options{
          .job = *job, .program = own_program(), .rule = to_text(steps_of(key.first)[key.second].when)});
  asking_[key] = asking;
  asking->start();
}

// The job's Comment is read and all its nodes are asked before anything: by the verb itself, else by a step of its own.
// A message about a job whose nodes are not known does no harm; a command may do anything.
void EachSession::add_slurm_actions(const Key& key, const TrackedSubject& tracked, const ActionOption& word,
                                    std::vector<std::unique_ptr<Action>>& made) {
  const slurm::Allocation* job = slurm_->find(tracked.job);
  if (job == nullptr) return;
  const bool is_verb = word.kind == ActionOption::Kind::slurm;
  if (job->nodes.empty() && word.only_tells()) return;
  const bool does_verb = is_verb && !settings_.dry_run;
  slurm::JobStep::Options options{.text = does_verb ? word.text : "ask the nodes of the job", .job = *job};
  if (is_verb) options.verb = slurm::parse_verb(word.argument).value_or(slurm::Verb{});
  options.acts = !word.only_tells();
  options.policy = slurm_->settings().policy;
  const EachStep& fired = steps_of(key.first)[key.second];
  options.program = own_program();
  options.rule = to_text(fired.when);
  options.dry_run = settings_.dry_run;
  if (auto early = asking_.extract(key); !early.empty()) options.early = std::move(early.mapped());
  auto step = std::make_unique<slurm::JobStep>(loop_, world_.runner(), std::move(options));
  step->on_keep = [this, key](WallTime until) { return keep_until(key.first, until); };
  if (!settings_.dry_run) {
    step->on_requeued = [this, number = job->job](const slurm::ActResult& result) { start_again(number, result.id); };
    step->on_unanswered = [this, id = key.first](const slurm::ActResult& result) {
      unanswered_[id] = {to_text(result.verb), world_.clock().now()};
    };
    step->on_gone = [this, name = tracked.job] { slurm_->drop(name); };
  }
  made.push_back(std::move(step));
}

void EachSession::start_again(std::uint64_t job, const std::string& id) {
  starting_[job] = std::make_unique<slurm::StartAgain>(
      loop_, world_.runner(), job, id, [this, job](bool) { loop_.destroy_later(starting_.extract(job)); });
}

// Nothing where all that was sent to Slurm has had an answer, or is too old to be done.
std::string EachSession::doubt_about(const SubjectId& id) const {
  const auto found = unanswered_.find(id);
  const Instant now = world_.clock().now();
  if (found == unanswered_.end() || now >= found->second.sent + slurm::kMayStillBeDone) return "";
  return fmt::format("Slurm had not answered slurm={} {} ago, and may still do it", found->second.verb,
                     format_duration(std::chrono::ceil<std::chrono::seconds>(now - found->second.sent)));
}

// As on_keep(), by the Comment of the job: Slurm has said who may.
bool EachSession::keep_until(const SubjectId& id, WallTime until) {
  const TrackedSubject* tracked = tracker_.find(id);
  if (tracked == nullptr) return false;
  const Duration time = std::min<Duration>(until - world_.clock().wall(), settings_.keep_at_most);
  const Instant now = world_.clock().now();
  if (time <= Duration::zero() || give_time(*tracked, time) <= now) return false;
  const std::string doubt = doubt_about(id);
  sink_.note_of(
      log_subject(*tracked), Level::important, "keep",
      fmt::format("{}: its Comment keeps it for {}{}{}", tracked->title,
                  format_duration(std::chrono::ceil<std::chrono::seconds>(kept_.at(tracked->key).until - now)),
                  doubt.empty() ? "" : "; ", doubt));
  return true;
}

// ---- time that was given outlives the watcher that gave it

namespace {

constexpr const char* kKeptFile = "kept";  // beside the allocation files: until when (ns since 1970), and which run

}  // namespace

void EachSession::read_kept() {
  if (slurm_->settings().source != SlurmSettings::Source::lull) return;
  const auto text = slurm::read_trusted_file(slurm_->settings().folder, kKeptFile);
  for (const std::string_view line : split(text ? std::string_view(*text) : std::string_view(), '\n')) {
    const std::size_t blank = line.find(' ');
    const auto until = to_unsigned(line.substr(0, blank));
    if (blank == std::string_view::npos || !until || *until > static_cast<std::uint64_t>(Duration::max().count()))
      continue;
    kept_before_[std::string(line.substr(blank + 1))] = WallTime(Duration(static_cast<std::int64_t>(*until)));
  }
}

void EachSession::write_kept() {
  if (slurm_->settings().source != SlurmSettings::Source::lull) return;
  const Duration ahead = world_.clock().wall().time_since_epoch() - world_.clock().now().time_since_epoch();
  std::string text;
  for (const TrackedSubject& tracked : tracker_.subjects())
    if (const auto kept = kept_.find(tracked.key); kept != kept_.end())
      text += fmt::format("{} {}\n", (kept->second.until.time_since_epoch() + ahead).count(), tracked.subject.id.value);
  if (const auto written = slurm::write_trusted_file(slurm_->settings().folder, kKeptFile, text); !written)
    sink_.note(Level::warning, "keep", written.error().message() + ": a watcher after this one will not know of it");
}

// The same run of the job, and no more than a watcher gives.
void EachSession::keep_as_before(const TrackedSubject& tracked) {
  const auto before = kept_before_.extract(tracked.subject.id.value);
  if (before.empty()) return;
  const Instant now = world_.clock().now();
  const Duration left = std::min<Duration>(before.mapped() - world_.clock().wall(), settings_.keep_at_most);
  if (left <= Duration::zero() || kept_.contains(tracked.key)) return;
  kept_.emplace(tracked.key, Kept{now, now + left, users_of(tracked)});
}

// ---- what it answers

void EachSession::answer_slurm(uid_t user, const slurm::Question& question,
                               std::function<void(const slurm::Answer&)> answered) {
  const slurm::Answer quick = on_slurm_question(user, question);
  if (quick.says != slurm::Says::yes || quick.gpus == 0U) return answered(quick);
  feed_->confirm([this, user, question, answered = std::move(answered)] {
    slurm::Answer answer = on_slurm_question(user, question);
    if (answer.says == slurm::Says::yes && !feed_->covers()) {
      answer.says = slurm::Says::unknown;
      answer.why = "the driver has no data of now";
    }
    answered(answer);
  });
}

slurm::Answer EachSession::on_slurm_question(uid_t user, const slurm::Question& question) const {
  using slurm::Says;
  slurm::Answer answer{.job = question.job, .node = question.node};
  if (!slurm_) return answer;
  const slurm::Allocation* job = slurm_->find(fmt::format("slurm:{}", question.job));
  // The Prolog has the node's name from slurmd; without a job, by what we are told or the machine is called.
  if ((job != nullptr ? job->node : slurm_->settings().node) != question.node) return answer;
  answer.every = settings_.every;  // says to `lull slurm check` that this node is watched
  if (job == nullptr) return answer;
  answer.says = Says::unknown;
  if (user != 0 && user != job->uid) {
    answer.why = "only its owner and root may ask";
    return answer;
  }
  answer.restarts = job->restarts;
  answer.gpus = static_cast<unsigned>(job->gpus.size());
  answer.numbers = job->gpus;
  answer.age = std::max(Duration::zero(), feed_->age());
  if (!slurm::is_fresh(answer))
    answer.why = fmt::format("the newest sample is {} old",
                             format_duration(std::chrono::ceil<std::chrono::milliseconds>(answer.age)));
  else if (job->gpus.empty() && (job->shares_gpus || !slurm_->numbers().known()))
    answer.why = job->shares_gpus ? "which GPUs it shares here is not known" : slurm_->numbers().why();
  else if (job->gpus.empty())
    answer.says = Says::yes, answer.why = "it has no GPU here";
  else
    answer_for(*job, question.rule, answer);
  return answer;
}

void EachSession::answer_for(const slurm::Allocation& job, const std::string& rule, slurm::Answer& answer) const {
  using slurm::Says;
  const auto tracked = std::ranges::find(tracker_.subjects(), "job:" + job.name(), &TrackedSubject::key);
  if (slurm_->leaves_alone(job)) {
    answer.says = Says::no;
    answer.yes_in = kLeftAlone;
    answer.why = "it is left alone here";
    return;
  }
  if (tracked == tracker_.subjects().end()) {
    answer.why = slurm_->numbers().known() ? "it is not judged yet" : slurm_->numbers().why();
    return;
  }
  const std::vector<EachStep>& steps = steps_of(tracked->subject.id);
  std::uint32_t step = static_cast<std::uint32_t>(steps.size() - 1);
  if (!rule.empty()) {
    const auto found = std::ranges::find_if(steps, [&](const EachStep& one) { return to_text(one.when) == rule; });
    if (found == steps.end()) {
      answer.why = "no step here has this rule";
      return;
    }
    step = static_cast<std::uint32_t>(found - steps.begin());
  }
  const SubjectState* judged = engine_.find(tracked->subject.id);
  if (judged == nullptr || !tracked->subject.scope.not_judged.empty()) {
    answer.why = judged == nullptr ? "it is not judged yet" : tracked->subject.scope.not_judged;
    return;
  }
  const Verdict& verdict = judged->verdict(step);
  const Instant now = world_.clock().now();
  answer.held = verdict.held;
  answer.why = progress_text(*judged, step);
  const auto kept = kept_.find(tracked->key);
  if (kept != kept_.end() && now < kept->second.until) {
    answer.says = Says::no;
    answer.yes_in = kept->second.until - now;
    answer.why = "its owner asked for more time";
  } else if (const Instant first = slurm_->not_before(tracked->job); now < first) {
    answer.says = Says::no;
    answer.yes_in = first - now;
    answer.why = "it has not run long enough (slurm.delay)";
  } else if (!may_act_on({tracked->subject.id, step})) {
    answer.says = Says::no;
    answer.yes_in = settings_.hours.until(world_.clock().wall());
    answer.why = "nothing is done at this hour";
  } else if (engine_.holds_now(tracked->subject.id, 0, step)) {
    answer.says = Says::yes;
    answer.yes_in = Duration::zero();
  } else if (verdict.condition == Truth::unknown || tracked->subject.stopped) {
    answer.yes_in = needed(verdict, settings_.every);
  } else {
    answer.says = Says::no;
    answer.yes_in = verdict.condition == Truth::yes ? std::max(left(verdict, settings_.every), settings_.every)
                                                    : needed(verdict, settings_.every);
  }
}

}  // namespace lull
