#include "slurm/act_on_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"
#include "slurm/keep_comment.h"
#include "slurm/running_jobs.h"

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLookEvery = 1s;
constexpr Duration kPendingFor = 3500ms;  // at least three seconds by Slurm's own clock of whole seconds

// What a command that did not work said, in one line.
std::string trouble_of(const HelperResult& result) {
  const std::string said = printable(trim(std::string_view(result.output).substr(0, 300)));
  return result.trouble + (said.empty() ? "" : ": " + said);
}

// By what a command that failed says: in what another prints there may be anything, a user's words among it.
bool is_silent(const HelperResult& result) { return result.timed_out || (!result.ok() && is_silence(result.output)); }
bool knows_no_job(const HelperResult& result) { return !result.ok() && is_unknown_job(result.output); }

// The request stays in the controller's queue when the command that sent it is ended.
bool may_still_be_done(const HelperResult& result, const Verb& verb) {
  if (verb.kind == VerbKind::comment) return false;
  return result.timed_out || (result.status && result.status->signal != 0) ||
         (is_silent(result) && !was_not_sent(result.output));
}

std::string slowness_text(const HelperResult& result) {
  return result.timed_out ? fmt::format("Slurm's controller does not answer within {}", format_duration(kSoon))
                          : silence_text(result.output);
}

std::string done_text(const Doing& doing, const std::string& id) {
  switch (doing.verb.kind) {
    case VerbKind::comment: return fmt::format("job {}: AdminComment set", id);
    case VerbKind::signal: return fmt::format("job {}: SIG{} sent", id, doing.verb.signal);
    case VerbKind::requeue: return fmt::format("job {} requeued", id);
    case VerbKind::requeuehold: return fmt::format("job {} requeued and held", id);
    case VerbKind::cancel: return fmt::format("job {} cancelled", id);
  }
  return {};
}

}  // namespace

void ActOnJob::run(const Command& command, const std::function<void(const HelperResult&)>& then, Duration limit) {
  run_(command, limit, [here = here_, then](const HelperResult& result) {
    if (*here) then(result);
  });
}

void ActOnJob::finish(ActResult::Kind kind, std::string text, bool gone, std::optional<Duration> again_in) {
  finish({.kind = kind, .text = std::move(text), .gone = gone, .again_in = again_in});
}

void ActOnJob::finish(ActResult result) {
  result.verb = doing_.verb;
  result.id = id_;
  if (const Done done = std::exchange(done_, nullptr)) done(result);
}

void ActOnJob::leave_off() {
  if (!*here_) return;
  *here_ = false;
  if (!sent_) not_sent();
}

void ActOnJob::not_sent() {
  if (!std::exchange(changed_, false)) return;
  for (const Command& command : doing_.undo) run_(command, kCommandLimit, [](const HelperResult&) {});
}

void ActOnJob::look(const Command& command, std::optional<HelperResult>& answer) {
  ++looking_;
  run(command, [this, &answer](const HelperResult& result) {
    answer = result;
    if (--looking_ == 0) looked();
  });
}

// All at once: what the Comment asks for is as new as what is said of the job. The file of the Prolog has the one of
// the start; since then the owner may have asked for time, for any component of a het job.
void ActOnJob::start() {
  look(squeue_command(request_.judged.job), state_);
  const std::uint64_t het_job = request_.het_job.value_or(0);
  if (request_.keep) look(comment_query(het_job != 0 ? het_job : request_.judged.job), comment_);
  given_.resize(request_.parts.size());
  for (std::size_t i = 0; i < given_.size(); ++i) look(job_details_command(request_.parts[i].job), given_[i]);
}

// False: it is not, and said so. An allocation file may be of an older job that had the same number.
bool ActOnJob::is_as_judged() {
  const auto not_now = [&](std::string why, std::optional<Duration> again_in = {}) {
    finish(ActResult::Kind::not_now, std::move(why), false, again_in);
    return false;
  };
  for (std::size_t i = 0; i < given_.size(); ++i) {
    const JudgedPart& part = request_.parts[i];
    if (is_silent(*given_[i])) return not_now(silence_text(given_[i]->output));
    if (!given_[i]->ok()) return not_now("scontrol show job: " + trouble_of(*given_[i]));
    auto given = read_job_details(given_[i]->output, part.job, part.nodes);
    if (!given) return not_now(given.error().message());
    std::vector<NodeGpu> judged = part.gpus;
    std::ranges::sort(judged);
    std::ranges::sort(given->gpus);
    if (given->gpus != judged) return not_now(fmt::format("Slurm gave job {} other GPUs than were judged", part.job));
    if (given->since > request_.runs_since)
      return not_now(fmt::format("job {} runs only since {}", part.job, format_rfc3339(given->since, 0)),
                     std::chrono::duration_cast<Duration>(given->since - request_.runs_since));
  }
  return true;
}

// True: it is, and said so. Where the Comment cannot be read it may ask for time.
bool ActOnJob::keeps() {
  if (!comment_ || knows_no_job(*comment_)) return false;
  if (is_silent(*comment_)) return finish(ActResult::Kind::not_now, silence_text(comment_->output)), true;
  if (!comment_->ok())
    return finish(ActResult::Kind::not_now, "its Comment cannot be read: " + trouble_of(*comment_)), true;
  // A comment of several lines does not exempt a job: what it asks for counts, and is capped as any other.
  const auto comments = read_comments(comment_->output);
  std::optional<WallTime> until;
  if (!comments || request_.het_job.value_or(0) != 0)
    until = kept_until(comment_->output);
  else if (const auto comment = comments->find(request_.judged.job); comment != comments->end())
    until = kept_until(comment->second);
  if (!until || !request_.keep(*until)) return false;
  return finish(ActResult::Kind::kept, "its Comment keeps it"), true;
}

void ActOnJob::looked() {
  if (is_silent(*state_)) return finish(ActResult::Kind::not_now, silence_text(state_->output));
  if (!state_->ok() && !knows_no_job(*state_)) return finish(ActResult::Kind::failed, "squeue: " + trouble_of(*state_));
  const auto state = state_->ok() ? read_squeue(state_->output, request_.judged.job) : std::optional<JobState>();
  if (!state) return finish(ActResult::Kind::failed, state.error().message());
  // A command that Slurm does not know of is allowed where a signal is.
  const Verb unknown{request_.acts ? VerbKind::signal : VerbKind::comment};
  doing_ = plan(*state, request_.judged, request_.verb.value_or(unknown), request_.policy, request_.reason);
  if (doing_.kind == Doing::Kind::no_longer) return finish(ActResult::Kind::no_longer, doing_.why, !*state);
  if (doing_.kind == Doing::Kind::not_now) return finish(ActResult::Kind::not_now, doing_.why);
  if (doing_.kind == Doing::Kind::refused) return finish(ActResult::Kind::refused, doing_.why);
  id_ = (*state)->id();
  if (request_.het_job && (*state)->het_job != (*request_.het_job == 0 ? "" : std::to_string(*request_.het_job)))
    return finish(ActResult::Kind::refused,
                  fmt::format("job {} is a component of het job {}, and lull has not asked the other components",
                              request_.judged.job, (*state)->het_job));
  if (!is_as_judged() || keeps()) return;
  if (!request_.verb) return finish(ActResult::Kind::done, "");
  if (request_.dry_run)
    return finish(ActResult::Kind::done,
                  fmt::format("would run: {}", printable(fmt::format("{}", fmt::join(doing_.command, " ")))));
  check_([this, here = here_] {
    if (*here) comment();
  });
}

// The user is told before it is done; where only that does not work (no operator), it is done all the same.
void ActOnJob::comment() {
  if (request_.reason.empty() || doing_.verb.kind == VerbKind::comment) return prepare(0);
  run(
      comment_command(id_, request_.reason),
      [this](const HelperResult& result) {
        if (is_silent(result)) return finish(ActResult::Kind::not_now, slowness_text(result));
        prepare(0);
      },
      kSoon);
}

void ActOnJob::prepare(std::size_t at) {
  if (at == doing_.before.size())
    return check_([this, here = here_] {
      if (*here) send();
    });
  changed_ = true;  // also where it does not answer
  run(
      doing_.before[at],
      [this, at](const HelperResult& result) {
        if (result.ok()) return prepare(at + 1);
        not_sent();
        if (is_silent(result)) return finish(ActResult::Kind::not_now, slowness_text(result));
        finish(ActResult::Kind::failed, doing_.before[at][0] + ": " + trouble_of(result));
      },
      kSoon);
}

void ActOnJob::send() {
  sent_ = true;
  run(doing_.command, [this](const HelperResult& result) {
    if (result.ok()) return finish(ActResult::Kind::done, done_text(doing_, id_));
    sent_ = false;
    not_sent();
    if (may_still_be_done(result, doing_.verb))
      return finish({.kind = ActResult::Kind::not_now,
                     .text = fmt::format("{} had no answer: Slurm may still do it", fmt::join(doing_.command, " ")),
                     .unanswered = true});
    if (is_silent(result)) return finish(ActResult::Kind::not_now, silence_text(result.output));
    finish(ActResult::Kind::failed, doing_.command[0] + ": " + trouble_of(result));
  });
}

StartAgain::StartAgain(Loop& loop, Run run, std::uint64_t job, std::string id, std::function<void(bool)> over,
                       Duration limit)
    : loop_(loop),
      run_(std::move(run)),
      job_(job),
      id_(std::move(id)),
      over_(std::move(over)),
      until_(loop.now() + limit) {
  look_later();
}

StartAgain::~StartAgain() {
  *here_ = false;
  if (timer_) loop_.cancel(*timer_);
}

void StartAgain::finish(bool asked) {
  if (const auto over = std::exchange(over_, nullptr)) over(asked);
}

void StartAgain::look_later() {
  if (loop_.now() >= until_) return finish(false);
  timer_ = loop_.in(kLookEvery, [this] {
    timer_.reset();
    look();
  });
}

void StartAgain::look() {
  run_(squeue_command(job_), kCommandLimit, [this, here = here_](const HelperResult& result) {
    if (!*here) return;
    const auto state = result.ok() ? read_squeue(result.output, job_) : fail("");
    if (!state) return look_later();  // the controller may be back
    if (!*state || (*state)->state == "RUNNING") return finish(false);
    if ((*state)->state != "PENDING") {
      pending_since_.reset();
      return look_later();
    }
    if (!pending_since_) pending_since_ = loop_.now();
    if (loop_.now() < *pending_since_ + kPendingFor) return look_later();
    run_(start_now_command(id_), kCommandLimit, [this, here](const HelperResult& asked) {
      if (*here) finish(asked.ok());
    });
  });
}

}  // namespace lull::slurm
