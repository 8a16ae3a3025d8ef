#include "session/each_words.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/option_value.h"
#include "base/text.h"
#include "base/units.h"
#include "base/users.h"
#include "view/news.h"

namespace lull {
namespace {

// A name or a number, as the user database knows it.
Result<uid_t> user_called(std::string_view option, const std::string& name) {
  std::vector<char> space(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(name.c_str(), &entry, space.data(), space.size(), &found) == 0 && found != nullptr)
    return found->pw_uid;
  if (const auto number = to_unsigned(name); number && *number < 0xFFFFFFFFU) return static_cast<uid_t>(*number);
  return fail(fmt::format("{}: there is no user '{}'", option, printable(name)));
}

Result<std::set<uid_t>> users_called(std::string_view option, const std::vector<std::string>& words) {
  std::set<uid_t> users;
  for (const std::string& word : words)
    for (const std::string_view name : split(word, ','))
      users.insert(TRY(user_called(option, std::string(trim(name)))));
  return users;
}

bool about_one(const ActionWord& action) {
  using Kind = ActionWord::Kind;
  return action.kind == Kind::holders || action.kind == Kind::exec || action.kind == Kind::notify;
}

Result<EachRung> rung_of(const std::string& text, const Settings& known) {
  const std::size_t colon = text.find(':');
  const std::string action(trim(colon == std::string::npos ? "" : std::string_view(text).substr(colon + 1)));
  if (action.empty())
    return fail(fmt::format("--rung '{}': a rule and what to do, such as 'util < 1 for 1h: end'", printable(text)));
  EachRung rung;
  rung.when = TRY(known.rule_option("--rung", trim(std::string_view(text).substr(0, colon))));
  auto word = settle_action(action, known);
  if (!word) return std::unexpected(std::move(word).error().during("--rung"));
  rung.actions.push_back(*std::move(word));
  return rung;
}

Result<> check_rung(const EachRung& rung) {
  for (const ActionWord& action : rung.actions)
    if (!about_one(action))
      return fail(
          fmt::format("{} is not about one GPU or job: with --per there are kill=holders, end, exec= and notify",
                      printable(action.text)));
  for (const Metric metric : rung.when.signals())
    if (info(metric).of == Of::job)
      return fail(
          fmt::format("{} cannot be judged with --per: which processes beside those on a GPU belong to a job is not "
                      "known for sure; `lull run`, or `lull watch --also PID` without --per, know it of one job",
                      info(metric).name));
  return {};
}

}  // namespace

Result<ActionWord> settle_action(std::string_view text, const Settings& known) {
  ActionWord word = TRY(parse_action(text));
  if (word.kind != ActionWord::Kind::notify) return word;
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

Result<> refuse_without_per(const EachWords& options, const std::vector<ActionWord>& actions) {
  const auto needs = [](std::string_view what) { return fail(fmt::format("{} needs --per gpu or --per job", what)); };
  if (!options.rungs.empty()) return needs("--rung");
  if (!options.except_users.empty()) return needs("--except-user");
  if (!options.only_users.empty()) return needs("--only-user");
  if (!options.hours.empty()) return needs("--hours");
  for (const ActionWord& action : actions)
    if (action.kind == ActionWord::Kind::holders) return needs("--do " + action.text);
  return {};
}

Result<EachSettings> settle_each(const EachWords& options, const WatchSettings& watch, bool given_idle,
                                 const Settings& known) {
  EachSettings settings;
  if (options.per != "gpu" && options.per != "job")
    return fail(fmt::format("--per: 'gpu' or 'job', not '{}'", printable(options.per)));
  settings.who.per = options.per == "gpu" ? Per::gpu : Per::job;
  if (!options.rungs.empty() && given_idle) return fail("--rung says rule and action: leave out --idle and --do");
  for (const std::string& text : options.rungs) settings.rungs.push_back(TRY(rung_of(text, known)));
  if (options.rungs.empty()) settings.rungs.push_back({watch.common.policy.idle, watch.actions});
  for (const EachRung& rung : settings.rungs) TRY(check_rung(rung));
  if (!watch.common.also.empty()) return fail("--also is about one job: leave it out with --per");
  settings.who.except = TRY(users_called(
      "--except-user", options.except_users.empty() ? known.list(Setting::except_users) : options.except_users));
  settings.who.only = TRY(users_called("--only-user", options.only_users));
  bool ends = false;
  for (const EachRung& rung : settings.rungs)
    for (const ActionWord& action : rung.actions) ends = ends || action.kind == ActionWord::Kind::holders;
  settings.who.free_too = !ends;
  // Who is not root can end its own processes alone: others' are none of its business.
  if (ends && ::geteuid() != 0 && settings.who.only.empty()) settings.who.only = {::geteuid()};
  settings.arm = watch.common.policy.arm;
  settings.gpus = watch.common.gpus;
  settings.delay = watch.common.delay;
  settings.every = watch.common.every;
  settings.missing = watch.common.missing;
  if (!options.hours.empty()) {
    auto hours = Hours::parse(options.hours);
    if (!hours) return std::unexpected(std::move(hours).error().during("--hours"));
    settings.hours = *std::move(hours);
  }
  settings.keep_at_most = TRY(duration_option("--keep-at-most", options.keep_at_most));
  settings.how = watch.how;
  settings.retries = watch.retries;
  settings.require_gpu = watch.common.require_gpu;
  settings.dry_run = watch.common.dry_run;
  return settings;
}

std::string start_line(const EachSettings& settings) {
  std::string text = fmt::format("watching each {} by itself: ", settings.who.per == Per::gpu ? "GPU" : "job");
  for (std::size_t i = 0; i < settings.rungs.size(); ++i)
    text += fmt::format("{}{}; {}", i == 0 ? "" : "; ", to_text(settings.rungs[i].when),
                        settings.dry_run ? "dry run, would then " + would_text(settings.rungs[i].actions)
                                         : "then: " + in_words(settings.rungs[i].actions));
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
