#include "session/each_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "base/text.h"
#include "base/units.h"
#include "base/users.h"
#include "slurm/verb.h"
#include "view/events.h"

namespace lull {
namespace {

Result<std::set<uid_t>> users_called(std::string_view option, const std::vector<std::string>& words) {
  std::set<uid_t> users;
  for (const std::string& name : comma_list(words)) {
    const auto user = user_called(name);
    if (!user) return fail(fmt::format("{}: there is no user '{}'", option, printable(name)));
    users.insert(*user);
  }
  return users;
}

bool about_one(const ActionOption& action) {
  using Kind = ActionOption::Kind;
  if (action.kind == Kind::slurm) return true;
  if (action.kind == Kind::park) return action.argument.empty();
  return action.kind == Kind::holders || action.kind == Kind::exec || action.only_tells();
}

Result<EachStep> step_of(const std::string& text, const std::string& from, const Settings& known) {
  const std::size_t colon = text.find(':');
  const std::string action(trim(colon == std::string::npos ? "" : std::string_view(text).substr(colon + 1)));
  if (action.empty())
    return fail(fmt::format("{} '{}': a rule and what to do, such as 'util < 1 for 1h: end'", from, printable(text)));
  EachStep step;
  step.when = TRY(known.idle_option(from, trim(std::string_view(text).substr(0, colon))));
  step.actions.push_back(TRY(during(from, settle_action(action, known))));
  return step;
}

// A Slurm job whose processes are ended or parked goes on with its script, and keeps its GPUs.
Result<> check_slurm(const EachStep& step, bool slurm) {
  for (const ActionOption& action : step.actions) {
    if (action.kind == ActionOption::Kind::slurm) {
      if (!slurm) return fail(fmt::format("{} needs --per job --slurm", printable(action.text)));
      TRY(during("slurm=", slurm::parse_verb(action.argument)));
    }
    if (slurm && (action.kind == ActionOption::Kind::holders || action.kind == ActionOption::Kind::park))
      return fail(fmt::format("{} would leave a Slurm job its GPUs: slurm=cancel or slurm=requeue is meant",
                              printable(action.text)));
  }
  return {};
}

Result<> check_step(const EachStep& step, Per per) {
  for (const ActionOption& action : step.actions)
    if (!about_one(action))
      return fail(fmt::format(
          "{} is not about one GPU or job: with --per there are kill=holders, end, park, exec=, notify and mail",
          printable(action.text)));
  for (const Metric metric : step.when.signals()) {
    if (metric == Metric::job_util && per == Per::job) continue;  // its processes on the GPUs are all that it needs
    if (metric == Metric::job_util) return fail("job_util is a signal of a job, not of a GPU: give --per job");
    if (info(metric).of == Of::job)
      return fail(
          fmt::format("{} cannot be judged with --per: lull does not know for sure which other processes belong to a "
                      "job; use `lull run`, or `lull watch --also PID` without --per",
                      info(metric).name));
  }
  return {};
}

}  // namespace

Result<ActionOption> settle_action(std::string_view text, const Settings& known) {
  ActionOption word = TRY(parse_action(text));
  if (word.kind != ActionOption::Kind::notify) return word;
  if (word.notify.from == NotifyTo::From::nowhere && !known.notify_address().empty()) {
    word.notify.from = NotifyTo::From::variable;
    word.notify.place = "LULL_NOTIFY_ADDRESS";
  } else if (const std::string& file = known.text(Setting::notify_address_file);
             word.notify.from == NotifyTo::From::nowhere && !file.empty()) {
    word.notify.from = NotifyTo::From::file;
    word.notify.place = file;
  }
  if (word.notify.from == NotifyTo::From::nowhere) return std::unexpected(address_of(word.notify).error());
  if (!word.notify.service) word.notify.service = service_called(known.text(Setting::notify_to));
  return word;
}

Result<> refuse_without_per(const EachOptions& options, const std::vector<ActionOption>& actions) {
  const auto needs = [](std::string_view what) { return fail(fmt::format("{} needs --per gpu or --per job", what)); };
  if (!options.steps.empty()) return needs("--step");
  if (!options.except_users.empty()) return needs("--except-user");
  if (!options.only_users.empty()) return needs("--only-user");
  if (!options.hours.empty()) return needs("--hours");
  if (options.slurm) return fail("--slurm needs --per job");
  for (const ActionOption& action : actions)
    if (action.kind == ActionOption::Kind::holders || action.kind == ActionOption::Kind::slurm ||
        (action.kind == ActionOption::Kind::park && action.argument.empty()))
      return needs("--do " + action.text);
  for (const ActionOption& action : actions)
    if (action.kind == ActionOption::Kind::mail && action.argument.empty())
      return fail("--do mail writes to the users of a job: give --per gpu or --per job, or mail=ADDRESS");
  return {};
}

Result<EachSettings> settle_each(const EachOptions& options, const WatchSettings& watch, bool given_idle,
                                 const Settings& known) {
  EachSettings settings;
  constexpr std::array<std::string_view, 2> kPer = {"gpu", "job"};
  settings.who.per = TRY(choice_option("--per", options.per, kPer)) == 0 ? Per::gpu : Per::job;
  if (!options.steps.empty() && given_idle) return fail("--step says rule and action: leave out --idle and --do");
  for (const std::string& text : options.steps)
    settings.steps.push_back(TRY(step_of(text, options.steps_place.empty() ? "--step" : options.steps_place, known)));
  if (options.steps.empty()) settings.steps.push_back({watch.common.policy.idle, watch.actions});
  for (const EachStep& step : settings.steps) {
    auto good = check_slurm(step, options.slurm.has_value());
    if (good) good = check_step(step, settings.who.per);
    TRY(options.steps_place.empty() ? good : during(options.steps_place, good));
  }
  if (options.slurm && settings.who.per != Per::job) return fail("--slurm is about jobs: give --per job");
  if (!watch.common.also.empty()) return fail("--also is about one job: leave it out with --per");
  settings.who.except = TRY(users_called(
      "--except-user", options.except_users.empty() ? known.list(Setting::except_users) : options.except_users));
  settings.who.only = TRY(users_called("--only-user", options.only_users));
  bool ends = false;
  for (const EachStep& step : settings.steps)
    for (const ActionOption& action : step.actions)
      ends = ends || action.kind == ActionOption::Kind::holders || action.kind == ActionOption::Kind::park;
  settings.who.free_too = !ends;
  // Who is not root can end its own processes alone: others' are none of its business.
  if (ends && ::geteuid() != 0 && settings.who.only.empty()) settings.who.only = {::geteuid()};
  static_cast<CommonSettings&>(settings) = static_cast<const CommonSettings&>(watch.common);
  static_cast<ActingSettings&>(settings) = static_cast<const ActingSettings&>(watch);
  settings.arm = watch.common.policy.arm;
  if (!options.hours.empty()) settings.hours = TRY(during("--hours", Hours::parse(options.hours)));
  settings.keep_at_most = TRY(duration_option("--keep-at-most", options.keep_at_most));
  if (options.slurm) {
    settings.slurm = slurm_settings(*options.slurm);
    settings.slurm->except_users = settings.who.except;
    settings.slurm->only_users = settings.who.only;
    const auto names = [&](Setting setting) {
      const std::vector<std::string> all = known.list(setting);
      return std::set<std::string>(all.begin(), all.end());
    };
    settings.slurm->policy.except_partitions = names(Setting::slurm_except_partition);
    settings.slurm->policy.except_qos = names(Setting::slurm_except_qos);
    settings.slurm->policy.except_accounts = names(Setting::slurm_except_account);
    settings.slurm->policy.interactive = known.text(Setting::slurm_interactive) == "cancel"
                                             ? slurm::ActPolicy::Interactive::cancel
                                             : slurm::ActPolicy::Interactive::leave;
    settings.slurm->policy.restarts_at_most =
        static_cast<unsigned>(to_unsigned(known.text(Setting::slurm_restarts_at_most)).value_or(3));
    settings.slurm->user_rule_at_most = TRY(parse_duration(known.text(Setting::slurm_user_rule_at_most)));
    settings.slurm->delay = TRY(parse_duration(known.text(Setting::slurm_delay)));
  }
  return settings;
}

std::string start_line(const EachSettings& settings) {
  std::string text = fmt::format("watching each {} by itself: ", settings.who.per == Per::gpu ? "GPU" : "job");
  for (std::size_t i = 0; i < settings.steps.size(); ++i)
    text += fmt::format("{}{}; {}", i == 0 ? "" : "; ", to_text(settings.steps[i].when),
                        settings.dry_run ? "dry run, would then " + would_text(settings.steps[i].actions)
                                         : "then: " + to_text(settings.steps[i].actions));
  if (settings.slurm) text += fmt::format("; Slurm jobs of {} in {}", settings.slurm->node, settings.slurm->folder);
  if (settings.slurm && settings.slurm->delay > Duration::zero())
    text += fmt::format("; none before it has run for {}", format_duration(settings.slurm->delay));
  if (settings.arm) text += "; armed by " + to_text(*settings.arm);
  const auto add_users = [&](std::string_view how, const auto& users) {
    std::string names;
    for (const uid_t user : users) names += (names.empty() ? "" : ", ") + user_name(user);
    if (!names.empty()) text += fmt::format("; {} {}", how, names);
  };
  add_users("except those of", settings.who.except);
  add_users("only those of", settings.who.only);
  return text;
}

}  // namespace lull
