#include "session/fleet_session.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>

#include "base/calendar.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "base/users.h"
#include "gpu/power_learner.h"
#include "session/slurm_steps.h"
#include "slurm/job_step.h"
#include "slurm/keep_comment.h"
#include "view/events.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPullLimit = 20s;
constexpr Duration kSlack = 5min;  // beside what the rules reach back: holes, late scrapes
constexpr std::size_t kMostList = std::size_t{64} << 20;
constexpr std::size_t kMostAnswer = std::size_t{1} << 30;
constexpr Duration kShortestWait = 250ms;
constexpr Duration kClocksApart = 1min;  // more, and it may be an answer of long ago

std::string run_name(const slurm::RunningJob& job) {
  return fmt::format("{}/{}/{}", job.job, job.restarts, job.start.time_since_epoch().count());
}

// What curl prints with --dump-header - : the headers of each answer, and then the body.
struct HttpAnswer {
  int status = 0;
  std::optional<Instant> date = {};
  std::string_view body = {};
};
std::optional<HttpAnswer> read_http(std::string_view text) {
  HttpAnswer answer;
  while (text.starts_with("HTTP/")) {  // 100 Continue, a proxy's
    const std::size_t end = text.find("\r\n\r\n");
    if (end == std::string_view::npos) return std::nullopt;
    const std::string head(text.substr(0, end));
    answer.status = static_cast<int>(to_unsigned(head.substr(head.find(' ') + 1, 3)).value_or(0));
    answer.date.reset();
    for (const std::string_view line : split(head, '\n')) {
      if (line.size() < 6 || ::strncasecmp(line.data(), "date: ", 6) != 0) continue;
      std::tm parts{};
      const std::string date(trim(line.substr(6)));
      if (::strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts) != nullptr)
        answer.date = Instant(std::chrono::seconds(::timegm(&parts)));
    }
    text.remove_prefix(end + 4);
  }
  answer.body = text;
  return answer.status == 0 ? std::nullopt : std::optional(answer);
}

// "connect failed after 3 ms" is what it was with 2 ms.
std::string without_numbers(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

WallTime to_wall(Instant at) { return WallTime(at.time_since_epoch()); }

}  // namespace

Result<> check_fleet(const FleetSettings& settings) {
  if (!settings.each.slurm) return fail("--from prometheus:URL needs --per job --slurm: Slurm says who has which GPU");
  if (settings.each.arm) return fail("--arm: a Prometheus is asked for the time of the rule alone; leave it out");
  if (!settings.each.gpus.empty()) return fail("--gpus is about this machine: --match chooses series of Prometheus");
  if (settings.each.delay > Duration::zero()) return fail("--delay is about this machine: slurm.delay is meant");
  for (const EachStep& step : settings.each.steps)
    if (const std::string why = why_no_fleet_rule(step.when); !why.empty())
      return fail(fmt::format("{}: {}", to_text(step.when), why));
  return {};
}

std::string start_line(const FleetSettings& settings) {
  std::string text =
      fmt::format("watching the Slurm jobs of the cluster by {}: ", trace::host_of_url(settings.query.url));
  const EachSettings& each = settings.each;
  for (std::size_t i = 0; i < each.steps.size(); ++i)
    text += fmt::format("{}{}; {}", i == 0 ? "" : "; ", to_text(each.steps[i].when),
                        each.dry_run ? "dry run, would then " + would_text(each.steps[i].actions)
                                     : "then: " + to_text(each.steps[i].actions));
  if (each.slurm->delay > Duration::zero())
    text += fmt::format("; none before it has run for {}", format_duration(each.slurm->delay));
  return text;
}

FleetSession::FleetSession(FleetSettings settings, World& world, Sink& sink)
    : settings_(std::move(settings)), world_(world), loop_(world.loop()), sink_(sink) {
  for (const EachStep& step : settings_.each.steps)
    for (const Metric metric : step.when.signals())
      if (std::ranges::find(metrics_, metric) == metrics_.end()) metrics_.push_back(metric);
  selector_ = trace::prometheus_selector(made_of(metrics_), settings_.labels, settings_.query.match);
}

// What the rules of the jobs look at: a user may have asked for another time than the site's steps have.
Duration FleetSession::reach() const {
  Duration longest{};
  for (const auto& [run, one] : jobs_)
    for (const EachStep& step : one.steps) longest = std::max(longest, reach_of(step.when));
  return longest + kSlack;
}

Result<> FleetSession::prepare() {
  TRY(world_.listen({SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGCHLD},
                    [this](const signalfd_siginfo& info) { on_signal(info); }));
  for (const EachStep& step : settings_.each.steps)
    for (const ActionOption& word : step.actions)
      for (const auto& action : world_.actions_of(word, settings_.each.how)) TRY(action->prepare());
  TRY(trace::read_token(settings_.query));
  return {};
}

SessionEnd FleetSession::run() {
  if (const auto ready = prepare(); !ready) return {kExitFailure, ready.error().message()};
  if (auto control =
          Control::listen(loop_, ControlOf::watch, [this](const std::string& who) { return on_cancel(who); }))
    control_ = *std::move(control);
  else
    sink_.note(Level::warning, "control", control.error().message());
  sink_.started();
  look_in(Duration::zero());
  SessionEnd end = world_.run(end_);
  acting_.clear();
  starting_.clear();
  return end;
}

void FleetSession::on_signal(const signalfd_siginfo& info) {
  if (info.ssi_signo == SIGCHLD) {
    std::vector<Executor*> all;
    for (auto& [key, acting] : acting_) all.push_back(acting.executor.get());
    for (Executor* one : all) one->look();
    return;
  }
  end_ = ended_by(static_cast<int>(info.ssi_signo));
  loop_.stop();
}

// ---- one look

void FleetSession::look_in(Duration time) {
  timer_.in(time, [this] { look(); });
}

void FleetSession::look() {
  if (looking_) return;
  looking_ = true;
  world_.run_tool({.arguments = slurm::running_jobs_command(),
                   .limit = slurm::kCommandLimit,
                   .capture = true,
                   .most_output = kMostList,
                   .quiet = true},
                  [this, here = here_](const HelperResult& result) {
                    if (*here) listed(result);
                  });
}

void FleetSession::listed(const HelperResult& result) {
  if (result.timed_out || slurm::is_silence(result.output)) return finish_look("Slurm's controller does not answer");
  if (!result.ok()) return finish_look("squeue: " + result.trouble);
  auto jobs = slurm::read_running_jobs(result.output);
  if (!jobs) return finish_look(jobs.error().message());
  follow(*std::move(jobs));
  learn_next();
}

bool FleetSession::left_alone(const slurm::RunningJob& job) const {
  const SlurmSettings& slurm = *settings_.each.slurm;
  for (const auto& [names, name] :
       {std::pair(&slurm.policy.except_partitions, &job.partition), std::pair(&slurm.policy.except_qos, &job.qos),
        std::pair(&slurm.policy.except_accounts, &job.account)})
    if (!names->empty() && (name->empty() || names->contains(*name))) return true;
  return slurm.except_users.contains(job.uid) || (!slurm.only_users.empty() && !slurm.only_users.contains(job.uid));
}

void FleetSession::follow(std::vector<slurm::RunningJob> jobs) {
  std::map<std::uint64_t, std::vector<slurm::RunningJob>> groups;
  for (slurm::RunningJob& job : jobs) groups[job.het_job != 0 ? job.het_job : job.job].push_back(std::move(job));
  std::map<std::string, Followed> now;
  for (auto& [number, components] : groups) {
    if (std::ranges::any_of(components, [this](const auto& one) { return left_alone(one); })) continue;
    std::ranges::sort(components, {}, &slurm::RunningJob::job);
    // All of a het job has to run, and be listed.
    if (components[0].het_job != 0) {
      std::vector<std::uint64_t> running;
      for (const auto& one : components) running.push_back(one.job);
      std::vector<std::uint64_t> expected = components[0].het_components;
      std::ranges::sort(expected);
      if (running != expected || components[0].job != number) continue;
    }
    std::string run;
    for (const auto& one : components) run += (run.empty() ? "" : "+") + run_name(one);
    Followed& one = now[run];
    if (const auto known = jobs_.find(run); known != jobs_.end()) one = std::move(known->second);
    one.job = components[0];
    one.components = std::move(components);
  }
  jobs_ = std::move(now);
  to_learn_.clear();
  for (auto& [run, one] : jobs_)
    if (!one.known || one.again) to_learn_.push_back(run);
  std::erase_if(done_, [this](const Key& key) { return !jobs_.contains(key.first); });
  std::erase_if(said_of_, [this](const auto& one) { return !jobs_.contains(one.first); });
}

void FleetSession::learn_next() {
  if (to_learn_.empty()) return pull();
  const std::string run = to_learn_.back();
  to_learn_.pop_back();
  Followed& one = jobs_.at(run);
  one.again = false;
  one.learning = {};
  one.learning_nodes.clear();
  learn(run, 0);
}

// What squeue and scontrol say of one component after the other.
void FleetSession::learn(const std::string& run, std::size_t component) {
  const slurm::RunningJob job = jobs_.at(run).components[component];
  const auto then = [this, here = here_](auto body) {
    return [here, body](const HelperResult& result) {
      if (*here) body(result);
    };
  };
  world_.run_helper(
      slurm::job_nodes_command(job.job), slurm::kCommandLimit, then([=, this](const HelperResult& listed) {
        const auto nodes = listed.ok() ? slurm::read_job_nodes(listed.output, job) : fail("squeue: " + listed.trouble);
        if (!nodes) return learned(run, nodes.error().message());
        world_.run_helper(slurm::job_details_command(job.job), slurm::kCommandLimit,
                          then([=, this, nodes = *nodes](const HelperResult& shown) {
                            const auto given = shown.ok() ? slurm::read_job_details(shown.output, job.job, nodes)
                                                          : fail("scontrol: " + shown.trouble);
                            if (!given) return learned(run, given.error().message());
                            Followed& one = jobs_.at(run);
                            auto& all = one.learning;
                            all.gpus.insert(all.gpus.end(), given->gpus.begin(), given->gpus.end());
                            all.since = std::max({all.since, job.start, given->since});
                            learn_node_gpus(run, component, nodes);
                          }));
      }));
}

void FleetSession::learn_node_gpus(const std::string& run, std::size_t component,
                                   const std::vector<std::string>& nodes) {
  world_.run_tool({.arguments = slurm::node_gpus_command(nodes),
                   .limit = slurm::kCommandLimit,
                   .capture = true,
                   .most_output = kMostList,
                   .quiet = true},
                  [=, this, here = here_](const HelperResult& shown) {
                    if (!*here) return;
                    const auto counts =
                        shown.ok() ? slurm::read_node_gpus(shown.output, nodes) : fail("sinfo: " + shown.trouble);
                    if (!counts) return learned(run, counts.error().message());
                    Followed& one = jobs_.at(run);
                    one.learning_nodes.insert(counts->begin(), counts->end());
                    if (component + 1 < one.components.size()) return learn(run, component + 1);
                    learned(run, "");
                  });
}

void FleetSession::learned(const std::string& run, std::string why) {
  Followed& one = jobs_.at(run);
  one.unclear = std::move(why);
  one.known = false;
  one.gpus = std::move(one.learning.gpus);
  one.node_gpus = std::move(one.learning_nodes);
  one.since = one.learning.since;
  if (!one.unclear.empty() || one.gpus.empty() || !one.steps.empty()) {
    one.known = one.unclear.empty();
    return learn_next();
  }
  // What its user asked for, once for each run.
  world_.run_helper(slurm::comment_query(one.job.job), slurm::kCommandLimit,
                    [this, here = here_, run](const HelperResult& result) {
                      if (!*here) return;
                      Followed& job = jobs_.at(run);
                      job.steps = settings_.each.steps;
                      if (!result.ok()) job.unclear = "its Comment cannot be read: " + result.trouble;
                      slurm::Allocation asking{.job = job.job.job};
                      if (const auto comments = slurm::read_comments(result.output); comments) {
                        const auto comment = comments->find(job.job.job);
                        if (comment != comments->end()) asking.comment = comment->second;
                      }
                      const auto asked = slurm::user_rule_of(asking);
                      if (asked && *asked)
                        job.steps = steps_asked_for(settings_.each.steps, **asked, settings_.each.every,
                                                    settings_.each.slurm->user_rule_at_most);
                      job.known = result.ok();
                      if (!job.known) job.steps.clear();
                      learn_next();
                    });
}

void FleetSession::pull() {
  const bool any =
      std::ranges::any_of(jobs_, [](const auto& one) { return one.second.known && !one.second.gpus.empty(); });
  if (!any) {
    judge({}, Instant{});
    return finish_look("");
  }
  // As it is now there: its clock need not be ours.
  const auto token = trace::read_token(settings_.query);
  if (!token) return finish_look(token.error().message());
  world_.run_tool({.arguments = {"curl", "-q", "--config", "-", "--silent", "--show-error", "--proto", "=http,https",
                                 "--connect-timeout", "5", "--dump-header", "-"},
                   .input = trace::prometheus_request(settings_.query.url, *token, selector_, reach()),
                   .limit = kPullLimit,
                   .capture = true,
                   .most_output = kMostAnswer,
                   .quiet = true},
                  [this, here = here_](const HelperResult& result) {
                    if (*here) pulled(result);
                  });
}

void FleetSession::pulled(const HelperResult& result) {
  const std::string where = trace::host_of_url(settings_.query.url);
  const auto trouble = [&](std::string_view why) {
    return finish_look(fmt::format("{}: {}", where, printable(trim(why.substr(0, 200)))));
  };
  if (!result.ok()) return trouble(result.output.empty() ? result.trouble : result.output);
  const auto answer = read_http(result.output);
  if (!answer) return trouble("its answer is not understood");
  if (answer->status != 200 || !trace::is_success(answer->body))
    return trouble(fmt::format("it answers {} {}", answer->status, answer->body.substr(0, 150)));
  if (const std::string part = trace::partial_answer(answer->body); !part.empty())
    return trouble("it does not have all of it: " + part);
  if (!answer->date) return trouble("it does not say what time it is");
  // An answer that was kept, or a clock that was set back, would show as idle now what was idle then.
  if (const Duration apart = to_wall(*answer->date) - world_.clock().wall(); std::chrono::abs(apart) > kClocksApart)
    return trouble(fmt::format("its answer is of {} by its clock, {} {} ours: too far apart",
                               format_rfc3339(to_wall(*answer->date), 0),
                               format_duration(std::chrono::floor<std::chrono::seconds>(std::chrono::abs(apart))),
                               apart > Duration::zero() ? "ahead of" : "behind"));
  const Fd file(::memfd_create("lull-fleet", MFD_CLOEXEC));
  if (!file || !write_all(file.get(), answer->body)) return trouble("no memory for its answer");
  std::vector<FleetGpu> fleet;
  if (answer->body.find("\"metric\"") != std::string_view::npos) {
    auto read = read_fleet(fmt::format("/proc/self/fd/{}", file.get()), metrics_, settings_.labels);
    if (!read) return trouble(read.error().message());
    fleet = *std::move(read);
  }
  // It counts whole seconds: it may be so late.
  prometheus_ = *answer->date + 1s;
  judge(fleet, prometheus_);
  looked_ = world_.clock().now();
  finish_look("");
}

void FleetSession::judge(const std::vector<FleetGpu>& fleet, Instant now) {
  const Duration ahead = to_wall(now) - world_.clock().wall();
  for (auto& [run, one] : jobs_) {
    one.verdicts.clear();
    std::string why = one.unclear;
    if (one.known && !one.gpus.empty()) {
      const FleetQuestion question{.gpus = one.gpus,
                                   .from = Instant(one.since.time_since_epoch() + ahead),
                                   .now = now,
                                   .node_gpus = one.node_gpus,
                                   .same_order = settings_.same_order};
      for (std::uint32_t step = 0; step < one.steps.size(); ++step) {
        one.verdicts.push_back(judge_fleet_job(one.steps[step].when, question, fleet, settings_.each.missing));
        const FleetVerdict& verdict = one.verdicts.back();
        if (why.empty() && verdict.truth == Truth::unknown) why = verdict.why;
        if (verdict.condition == Truth::no) done_.erase({run, step});
      }
    }
    std::string& said = said_of_[run];
    if (why != said && !why.empty())
      sink_.note_of(log_subject(one), Level::note, "not-judged",
                    fmt::format("{}: {}: not judged", log_subject(one).subject, why));
    said = why;
  }
}

// Said once, as long as it is so.
void FleetSession::finish_look(std::string trouble) {
  looking_ = false;
  fresh_ = trouble.empty();
  if (!trouble.empty()) {
    for (auto& [run, one] : jobs_) one.verdicts.clear();
    if (without_numbers(trouble) != without_numbers(trouble_))
      sink_.note(Level::warning, "fleet", trouble + "; no job is judged");
  } else if (!trouble_.empty()) {
    sink_.note(Level::note, "fleet", "jobs are judged again");
  }
  trouble_ = std::move(trouble);
  // Who waits for newer samples, and has them or will not.
  std::vector<std::function<void()>> ready;
  std::erase_if(waiting_, [&](Waiting& one) {
    const auto job = jobs_.find(one.run);
    const bool newer =
        fresh_ && job != jobs_.end() && !job->second.verdicts.empty() && job->second.verdicts[0].newest > one.since;
    if (!newer && job != jobs_.end() && loop_.now() < one.until) return false;
    ready.push_back(std::move(one.then));
    return true;
  });
  for (const auto& then : ready) then();
  if (fresh_) {
    std::vector<Key> fires;
    for (const auto& [run, one] : jobs_)
      for (std::uint32_t step = 0; step < one.verdicts.size(); ++step)
        if (one.verdicts[step].truth == Truth::yes) fires.emplace_back(run, step);
    for (const Key& key : fires) fired(key);
  }
  look_in(waiting_.empty() ? settings_.each.every : std::clamp<Duration>(settings_.each.every / 4, kShortestWait, 5s));
}

// ---- acting

LogSubject FleetSession::log_subject(const Followed& one) {
  std::vector<std::string> gpus;
  for (const auto& [node, number] : one.gpus) gpus.push_back(fmt::format("{}/{}", node, number));
  return {fmt::format("Slurm job {} of {}", one.job.job,
                      printable(one.job.user.empty() ? std::to_string(one.job.uid) : one.job.user)),
          fmt::format("slurm:{}", one.job.job), std::move(gpus)};
}

// By the newest answer, in the hours, and without granted time.
bool FleetSession::wanted(const Key& key) const {
  const auto found = jobs_.find(key.first);
  if (!fresh_ || found == jobs_.end() || key.second >= found->second.verdicts.size()) return false;
  const WallTime now = world_.clock().wall();
  return found->second.verdicts[key.second].truth == Truth::yes && settings_.each.hours.contain(now) &&
         now >= found->second.kept_until && now >= found->second.since + settings_.each.slurm->delay;
}

void FleetSession::confirm(const std::string& run, std::function<void()> then) {
  const auto found = jobs_.find(run);
  Duration interval = settings_.each.every;
  if (found != jobs_.end()) {
    found->second.again = true;
    for (const FleetVerdict& verdict : found->second.verdicts) interval = std::max(interval, verdict.interval);
  }
  waiting_.push_back({.run = run,
                      .since = prometheus_ + (world_.clock().now() - looked_),
                      .until = loop_.now() + 3 * interval + kPullLimit,
                      .then = std::move(then)});
  if (!looking_) look_in(kShortestWait);
}

void FleetSession::fired(const Key& key) {
  if (acting_.contains(key) || done_.contains(key) || unsaid_.contains(key) || !wanted(key)) return;
  unsaid_.insert(key);
  confirm(key.first, [this, key] {
    unsaid_.erase(key);
    if (wanted(key) && !acting_.contains(key) && !done_.contains(key)) act_on(key);
  });
}

FiringFacts FleetSession::facts(const Followed& one, std::uint32_t step) const {
  const EachStep& fired = one.steps[step];
  const FleetVerdict& verdict = one.verdicts[step];
  FiringFacts all;
  all.event = "idle";
  all.why.truth = Truth::yes;
  all.why.fires = true;
  all.why.rule = to_text(fired.when);
  all.why.gpus = log_subject(one).gpus;
  all.why.since = to_wall(verdict.since);
  all.why.window = all.why.held = verdict.held;
  all.why.running = true;
  all.why.needed = fired.when.span().value_or(Span{});
  all.at = world_.clock().wall();
  all.action = to_text(fired.actions);
  all.would = would_text(fired.actions);
  all.keep = fmt::format("lull keep slurm:{} 4h", one.job.job);
  all.subject = log_subject(one).subject;
  all.job_name = log_subject(one).job;
  if (!one.job.user.empty()) all.users = {one.job.user};
  return all;
}

std::unique_ptr<Action> FleetSession::through_slurm(const Key& key, const ActionOption& word) {
  const Followed& one = jobs_.at(key.first);
  const bool is_verb = word.kind == ActionOption::Kind::slurm;
  std::string nodes;
  for (const auto& [node, number] : one.gpus)
    if (!nodes.ends_with(node)) nodes += (nodes.empty() ? "" : ",") + node;
  slurm::JobStep::Options options{.text = is_verb ? word.text : "read its Comment", .job = {}, .asks_nodes = false};
  options.job = {.job = one.job.job,
                 .node = nodes,
                 .uid = one.job.uid,
                 .user = one.job.user,
                 .restarts = one.job.restarts,
                 .het_job = one.job.het_job};
  for (const auto& [node, number] : one.gpus) options.job.gpus.push_back(number);
  if (is_verb) options.verb = slurm::parse_verb(word.argument).value_or(slurm::Verb{});
  options.acts = !word.only_tells();
  options.policy = settings_.each.slurm->policy;
  options.rule = to_text(one.steps[key.second].when);
  auto step = std::make_unique<slurm::JobStep>(loop_, world_.runner(), std::move(options));
  step->on_keep = [this, key](WallTime until) { return keep_until(key.first, key.second, until); };
  step->on_requeued = [this, number = one.job.job](const slurm::ActResult& result) {
    starting_[number] =
        std::make_unique<slurm::StartAgain>(loop_, world_.runner(), number, result.id,
                                            [this, number](bool) { loop_.destroy_later(starting_.extract(number)); });
  };
  return step;
}

void FleetSession::act_on(const Key& key) {
  const Followed& one = jobs_.at(key.first);
  FiringFacts all = facts(one, key.second);
  sink_.firing(all, settings_.each.dry_run);
  if (settings_.each.dry_run) {
    done_.insert(key);
    return;
  }
  Acting acting{.actions = {}, .executor = nullptr, .about = log_subject(one)};
  std::vector<Action*> actions;
  for (const ActionOption& word : one.steps[key.second].actions) {
    // What the user asked for in the Comment is read before anything is done.
    std::vector<std::unique_ptr<Action>> made;
    made.push_back(through_slurm(key, word));
    std::ranges::move(world_.actions_of(word, settings_.each.how), std::back_inserter(made));
    for (auto& action : made) {
      if (const auto ready = action->prepare(); !ready)
        sink_.note_of(acting.about, Level::warning, "failed",
                      fmt::format("{}: {}", acting.about.subject, ready.error().message()));
      else
        actions.push_back(action.get());
      acting.actions.push_back(std::move(action));
    }
  }
  const LogSubject about = acting.about;
  acting.executor = std::make_unique<Executor>(
      loop_, std::move(actions), settings_.each.retries, std::move(all), true,
      Executor::Calls{.tell =
                          [this, about](const ActionEvent& event) {
                            sink_.note_of(about, level_of(event), event_name(event),
                                          about.subject + ": " + to_string(event));
                          },
                      .still_wanted = [this, key] { return wanted(key); },
                      .age = [this] { return world_.clock().now() - looked_; },
                      .confirm = [this, run = key.first](std::function<void()> then) { confirm(run, std::move(then)); },
                      .done = [this, key](bool worked, bool called_off) { done(key, worked, called_off); }});
  Executor& executor = *acting.executor;
  acting_.emplace(key, std::move(acting));
  executor.start();
}

void FleetSession::done(const Key& key, bool all, bool called_off) {
  auto over = acting_.extract(key);
  if (over.empty()) return;
  const Acting& acting = over.mapped();
  // Cancelled: not again in this stretch. Kept, or no longer wanted: again when that is over.
  if (!called_off || acting.executor->cancelled()) done_.insert(key);
  if (!called_off)
    sink_.note_of(acting.about, Level::note, "done",
                  acting.about.subject + (all ? ": done" : ": not all of it was done"));
  loop_.destroy_later(std::move(over));
}

// No later than keep_at_most behind the moment at which the rule first held: who asks again gets no more.
bool FleetSession::keep_until(const std::string& run, std::uint32_t step, WallTime until) {
  const auto found = jobs_.find(run);
  if (found == jobs_.end() || step >= found->second.verdicts.size()) return false;
  Followed& one = found->second;
  const FleetVerdict& verdict = one.verdicts[step];
  const WallTime held = to_wall(verdict.since) + one.steps[step].when.span().value_or(Span{}).time;
  const WallTime now = world_.clock().wall();
  until = std::min(until, held + settings_.each.keep_at_most);
  if (until <= now) return false;
  if (one.kept_until != until)
    sink_.note_of(log_subject(one), Level::important, "keep",
                  fmt::format("{}: its Comment keeps it for {}", log_subject(one).subject,
                              format_duration(std::chrono::ceil<std::chrono::seconds>(until - now))));
  one.kept_until = until;
  return true;
}

std::string FleetSession::on_cancel(const std::string& who) {
  std::string what;
  std::vector<Executor*> all;
  for (auto& [key, acting] : acting_) {
    all.push_back(acting.executor.get());
    what += (what.empty() ? "" : "; ") + acting.about.subject;
  }
  bool any = false;
  for (Executor* one : all) any = one->cancel(who) || any;
  for (const Key& key : unsaid_) {
    any = true;
    done_.insert(key);
    if (const auto job = jobs_.find(key.first); job != jobs_.end())
      what += (what.empty() ? "" : "; ") + log_subject(job->second).subject;
  }
  if (any) return "cancelled: " + what;
  return "nothing to cancel: " + std::string(all.empty() ? "no rule has fired" : "it is being done already");
}

}  // namespace lull
