#include "config/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/json_writer.h"
#include "base/process.h"
#include "base/text.h"
#include "base/toml.h"
#include "base/units.h"
#include "config/signal_reader.h"
#include "rule/quantity.h"

namespace lull {
namespace {

// On recordings of 8 H100s no working job stays under 1 % for two 5-second means, and the lightest real inference reads
// 4.8 %; on a day of 143 serving GPUs 30 minutes would still have lost half of their later work: servers need 2 h.
// `hung`: docs/hangs.md has what it says of all public hangs and healthy recordings. Until a card is learned it goes by
// its limit: the lowest mean power of healthy recordings at 95 % and more was 39 % of it.
// An empty card shows less than 64 MiB in use (gpu/snapshot.h), and a context takes more.
constexpr std::array<BuiltInRule, 4> kRules = {{
    {"idle", "util < 1 for 30m", "does nothing"},
    {"held", "util < 1 and mem_used > 1GiB for 30m", "holds memory and does nothing"},
    {"hung",
     "any(util) >= 95 and all(util < 5 or util >= 95 and (learned >= 1m and effort < 45 or learned < 1m and power < "
     "35%)) "
     "for 5m",
     "spins at 100 % without working, as a hung collective does"},
    {"free", "util < 1 and mem_used < 64MiB for 1m", "is used by nobody"},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kSettingTable.size(); ++i)
    if (static_cast<std::size_t>(kSettingTable[i].setting) != i) return false;
  return true;
}
static_assert(in_order());

constexpr std::string_view kBuiltIn = "built in";
constexpr std::string_view kRuleVariable = "LULL_RULE_";
constexpr std::string_view kAddressVariable = "LULL_NOTIFY_ADDRESS";
constexpr std::size_t kLongestName = 64;
constexpr char kStepEnd = '\n';  // a step may have any other character in it
// What lull has variables for that are not settings: what it tells hooks and helpers, and where things are in a test.
constexpr std::array<std::string_view, 34> kOtherVariables = {
    "LULL_ACTION",  "LULL_CONFIG",    "LULL_CONTROL",      "LULL_DEV",           "LULL_EVENT",     "LULL_GPU",
    "LULL_GPUS",    "LULL_GPU_UUIDS", "LULL_HELD_SECONDS", "LULL_HELPER_NUMBER", "LULL_HELPER_OF", "LULL_JOB",
    "LULL_JOB_PID", "LULL_LEASE",     "LULL_LEASES",       "LULL_NVML",          "LULL_PIDS",      "LULL_REASON",
    "LULL_LEARNED", "LULL_RULE",      "LULL_SIM",          "LULL_SINCE",         "LULL_TIME",      "LULL_USERS",
    "LULL_SIM_LOG", "LULL_SCHEDULES", "LULL_JOB_ID",       "LULL_HOST",          "LULL_SLURM_DIR", "LULL_KEEP",
    "LULL_NEXT",    "LULL_SLURM",     "LULL_PARK",         "LULL_EVIDENCE"};

std::vector<std::string_view> names_of(std::string_view prefix) {
  std::vector<std::string_view> names;
  for (const SettingInfo& row : kSettingTable) {
    std::string_view name = row.name;
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    if (name.find('.') == std::string_view::npos) names.push_back(name);
  }
  return names;
}

// How one kind of value must be written; the text as it is kept.
Result<std::string> checked(const SettingInfo& row, std::string text) {
  switch (row.kind) {
    case SettingKind::duration: {
      const auto duration = parse_duration(text);
      if (!duration) return std::unexpected(duration.error());
      return text;
    }
    case SettingKind::signal: {
      const auto signal = parse_signal(text);
      if (!signal) return std::unexpected(signal.error());
      return text;
    }
    case SettingKind::price: {
      const auto price = to_double(text);
      if (!text.empty() && (!price || !(*price >= 0) || *price > 1e9))
        return fail(fmt::format("'{}' is not a price: a number such as 2.50 would be right", printable(text)));
      return text;
    }
    case SettingKind::service:
      if (!text.empty() && std::ranges::find(kServices, text) == kServices.end()) {
        const std::string hint = did_you_mean(text, kServices);
        return fail(fmt::format("there is no '{}'{}", printable(text),
                                hint.empty() ? "; there are slack, discord, teams, ntfy and webhook" : hint));
      }
      return text;
    case SettingKind::file:
      if (!text.empty() && !text.starts_with('/'))
        return fail(fmt::format("'{}' must be a whole path, such as /etc/lull/slack", printable(text)));
      return text;
    case SettingKind::interactive:
      if (text != "leave" && text != "cancel")
        return fail(fmt::format("'{}': leave or cancel would be right", printable(text)));
      return text;
    case SettingKind::count:
      if (const auto count = to_unsigned(text); !count || *count > 1'000'000)
        return fail(fmt::format("'{}' is not a whole number such as 3", printable(text)));
      return text;
    case SettingKind::names:
      for (const std::string_view name : split(text, ','))
        if (trim(name).size() != name.size() || (name.empty() && !text.empty()))
          return fail(fmt::format("'{}' is not a list of names: debug,long would be right", printable(text)));
      return text;
    case SettingKind::users:
      for (const std::string_view name : split(text, ','))
        if (trim(name).size() != name.size() || (name.empty() && !text.empty()))
          return fail(fmt::format("'{}' is not a list of users: ada,bob would be right", printable(text)));
      return text;
    case SettingKind::rule:
    case SettingKind::steps:
    case SettingKind::rule_or_none:  // once all rules are known
    case SettingKind::command: return text;
  }
  return text;
}

std::string place(const std::string& path, std::uint32_t line, std::uint32_t column) {
  return fmt::format("{}:{}:{}", printable(path), line, column);
}

std::string_view example_of(SettingKind list) {
  if (list == SettingKind::users) return "user names, such as [\"root\", \"ada\"]";
  return list == SettingKind::steps ? "steps, such as [\"util < 1 for 2h: slurm=requeue\"]"
                                    : "names, such as [\"debug\", \"long\"]";
}

// A value of a file as text; a list of texts for users, names and steps alone.
Result<std::string> text_of(const SettingInfo& row, const toml::Node& value) {
  using Kind = toml::Node::Kind;
  const bool number =
      value.kind == Kind::number && (row.kind == SettingKind::price || row.kind == SettingKind::duration ||
                                     (row.kind == SettingKind::count && value.whole));
  if (number) return fmt::format("{}", value.number);
  const bool steps = row.kind == SettingKind::steps;
  const bool is_list = row.kind == SettingKind::users || row.kind == SettingKind::names || steps;
  if (is_list && value.kind == Kind::list) {
    const char between = steps ? kStepEnd : ',';
    std::string all;
    for (const toml::Node& one : value.list) {
      if (one.kind != Kind::text || one.text.empty() || one.text.find(between) != std::string::npos)
        return fail(fmt::format("{} is a list of {}", row.name, example_of(row.kind)));
      if (!all.empty()) all += between;
      all += one.text;
    }
    return all;
  }
  if (value.kind != Kind::text)
    return fail(fmt::format("{} is {}: {} would be right", row.name, value.kind_name(),
                            is_list                                                            ? "a list of texts"
                            : row.kind == SettingKind::price || row.kind == SettingKind::count ? "a number"
                                                                                               : "a text in quotes"));
  return value.text;
}

struct Row {
  std::string name;
  std::string value;
  std::string from;
};

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

std::string address_state(const Settings& settings) {
  return settings.notify_address().empty() ? "" : "(set, not shown)";
}

std::string aligned(const std::vector<Row>& rows) {
  std::string text;
  std::size_t name = 0;
  std::size_t value = 0;
  for (const Row& row : rows) {
    name = std::max(name, row.name.size());
    value = std::max(value, row.value.size());
  }
  value = std::min<std::size_t>(value, 40);  // a long rule does not push where everything came from off the screen
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}  {:<{}}", row.name, name, row.value, value);
    if (row.value.size() > value) text += "\n" + std::string(name + 2 + value, ' ');
    text += "  " + row.from + "\n";
  }
  return text;
}

}  // namespace

std::span<const BuiltInRule> built_in_rules() { return kRules; }

bool is_rule_name(std::string_view text) {
  if (text.empty() || text.size() > kLongestName || text.front() < 'a' || text.front() > 'z') return false;
  return std::ranges::all_of(
      text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'; });
}

SettingsSources SettingsSources::of_this_process() {
  SettingsSources sources;
  sources.user = ::geteuid();
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    const std::string_view line = *one;
    const auto equals = line.find('=');
    if (line.starts_with("LULL_") && equals != std::string_view::npos)
      sources.variables.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  const auto chosen = std::ranges::find(sources.variables, "LULL_CONFIG", &std::pair<std::string, std::string>::first);
  if (chosen == sources.variables.end()) {
    sources.user_file = user_settings_path(sources.user);
  } else {
    sources.system_file.clear();
    sources.user_file = chosen->second;
    sources.must_be_there = !chosen->second.empty();
  }
  return sources;
}

Settings::Settings() {
  for (const SettingInfo& row : kSettingTable)
    values_[static_cast<std::size_t>(row.setting)] = {std::string(row.otherwise), std::string(kBuiltIn)};
  for (const BuiltInRule& rule : built_in_rules())
    rules_.push_back(
        {std::string(rule.name), {std::string(rule.text), std::string(kBuiltIn)}, std::string(rule.meaning)});
}

Result<Settings> Settings::load(const SettingsSources& sources) {
  Settings settings;
  if (!sources.system_file.empty()) TRY(settings.take_file(sources.system_file, FileOf::system, sources.user));
  if (!sources.user_file.empty()) TRY(settings.take_file(sources.user_file, FileOf::user, sources.user));
  if (sources.must_be_there && settings.files_.back().state != "read")
    return fail(fmt::format("LULL_CONFIG: {}: {}", printable(sources.user_file), settings.files_.back().state));
  TRY(settings.take_variables(sources.variables));
  TRY(settings.check_rules());
  return settings;
}

Result<> Settings::take_file(const std::string& path, FileOf whose, uid_t user) {
  const SettingsFile file = TRY(read_settings_file(path, whose, user));
  files_.push_back({path, file.text ? "read" : file.passed_over.empty() ? "not there" : file.passed_over});
  if (!file.passed_over.empty()) notes_.push_back(printable(path) + " is not read: " + file.passed_over);
  if (!file.text) return {};
  const toml::Node root = TRY(toml::parse(*file.text, path));
  const auto wrong = [&](std::uint32_t line, std::uint32_t column, std::string_view what) {
    return fail(fmt::format("{}: {}", place(path, line, column), what));
  };
  // `prefix`: "notify." inside that table.
  const auto take = [&](const toml::Member& member, const std::string& prefix) -> Result<> {
    const std::string name = prefix + member.name;
    const auto row = std::ranges::find(kSettingTable, name, &SettingInfo::name);
    if (row == kSettingTable.end()) {
      std::vector<std::string_view> names = names_of(prefix);
      if (prefix.empty()) names.insert(names.end(), {"rules", "notify", "slurm", "signals"});
      return wrong(member.line, member.column,
                   fmt::format("there is no setting '{}'{}", printable(name), did_you_mean(member.name, names)));
    }
    const auto text = text_of(*row, member.value);
    if (!text) return wrong(member.value.line, member.value.column, text.error().message());
    return set(row->setting, *text, place(path, member.value.line, member.value.column));
  };
  const auto is_table = [&](const toml::Member& member) -> Result<> {
    if (member.value.kind == toml::Node::Kind::table) return {};
    return wrong(member.value.line, member.value.column,
                 fmt::format("{0} is {1}: a table, [{0}], would be right", member.name, member.value.kind_name()));
  };
  // Before the rules, which use them.
  for (const toml::Member& member : root.members) {
    if (member.name != "signals") continue;
    TRY(is_table(member));
    for (const toml::Member& signal : member.value.members) {
      SignalSource source = TRY(read_signal(signal.name, signal.value, path));
      const auto same = std::ranges::find(signals_, source.name, &SignalSource::name);
      if (same != signals_.end())
        *same = std::move(source);
      else
        signals_.push_back(std::move(source));
    }
  }
  for (const toml::Member& member : root.members) {
    if (member.name == "signals") continue;
    if (member.name != "rules" && member.name != "notify" && member.name != "slurm") {
      TRY(take(member, ""));
      continue;
    }
    TRY(is_table(member));
    for (const toml::Member& inner : member.value.members) {
      if (member.name != "rules") {
        TRY(take(inner, member.name + "."));
      } else if (inner.value.kind != toml::Node::Kind::text) {
        return wrong(inner.value.line, inner.value.column,
                     fmt::format("a rule is a text, such as \"util < 1 for 2h\", not {}", inner.value.kind_name()));
      } else {
        TRY(set_rule(inner.name, inner.value.text, place(path, inner.value.line, inner.value.column)));
      }
    }
  }
  return {};
}

Result<> Settings::take_variables(const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string_view> names;
  for (const SettingInfo& row : kSettingTable) names.push_back(row.variable);
  names.push_back(kAddressVariable);
  for (const auto& [name, value] : variables) {
    if (name == kAddressVariable) {
      notify_address_ = value;
      continue;
    }
    if (const auto row = std::ranges::find(kSettingTable, name, &SettingInfo::variable); row != kSettingTable.end()) {
      TRY(set(row->setting, value, name));
      continue;
    }
    if (name.starts_with(kRuleVariable)) {
      std::string rule = name.substr(kRuleVariable.size());
      std::ranges::transform(rule, rule.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
      TRY(set_rule(rule, value, name));
      continue;
    }
    if (std::ranges::find(kOtherVariables, name) != kOtherVariables.end()) continue;
    if (const std::string_view near = nearest(name, names); !near.empty())
      notes_.push_back(fmt::format("{} is not a variable of lull; did you mean {}?", printable(name), near));
  }
  return {};
}

Result<> Settings::set(Setting setting, std::string text, const std::string& from) {
  auto value = checked(info(setting), std::move(text));
  if (!value) return fail(fmt::format("{}: {}: {}", from, info(setting).name, value.error().message()));
  values_[static_cast<std::size_t>(setting)] = {*std::move(value), from};
  return {};
}

Result<> Settings::set_rule(std::string_view name, std::string text, const std::string& from) {
  if (!is_rule_name(name) || name == "none")
    return fail(
        fmt::format("{}: '{}' is not a valid rule name: use small letters, digits, - and _", from, printable(name)));
  const auto rule = parse_rule(text);
  if (!rule) return fail(fmt::format("{}: rule {}: {}", from, name, rule.error().message()));
  const auto known = std::ranges::find(rules_, name, &NamedRule::name);
  if (known != rules_.end())
    *known = {std::string(name), {std::move(text), from}};
  else
    rules_.push_back({std::string(name), {std::move(text), from}});
  return {};
}

// A rule may be named before it is described, and in another file.
Result<> Settings::check_rules() const {
  for (const SettingInfo& row : kSettingTable) {
    const Value& value = (*this)[row.setting];
    if (row.kind == SettingKind::steps) TRY(check_steps(row, value));
    if (row.kind != SettingKind::rule && row.kind != SettingKind::rule_or_none) continue;
    if (row.kind == SettingKind::rule_or_none && value.text == "none") continue;
    if (const auto good = row.setting == Setting::idle ? idle_rule(value.text) : rule(value.text); !good)
      return fail(fmt::format("{}: {}: {}", value.from, row.name, good.error().message()));
  }
  return {};
}

// What its action means is checked by who does it.
Result<> Settings::check_steps(const SettingInfo& row, const Value& value) const {
  for (const std::string& step : list(row.setting)) {
    const auto wrong = [&](std::string_view what) {
      return fail(fmt::format("{}: {}: '{}': {}", value.from, row.name, printable(step), what));
    };
    const std::size_t colon = step.find(':');
    if (colon == std::string::npos || trim(std::string_view(step).substr(colon + 1)).empty())
      return wrong("a rule and what to do would be right, such as 'util < 1 for 2h: slurm=requeue'");
    if (const auto good = idle_rule(trim(std::string_view(step).substr(0, colon))); !good)
      return wrong(good.error().message());
  }
  return {};
}

std::vector<std::string> Settings::list(Setting setting) const {
  std::vector<std::string> all;
  for (const std::string_view one : split(text(setting), info(setting).kind == SettingKind::steps ? kStepEnd : ','))
    if (!trim(one).empty()) all.emplace_back(trim(one));
  return all;
}

std::string Settings::one_line(Setting setting) const {
  if (info(setting).kind != SettingKind::steps) return printable(text(setting));
  std::string all;
  for (const std::string& step : list(setting)) all += (all.empty() ? "" : "; ") + printable(step);
  return all;
}

const Settings::NamedRule* Settings::find_rule(std::string_view name) const {
  const auto found = std::ranges::find(rules_, name, &NamedRule::name);
  return found == rules_.end() ? nullptr : &*found;
}

Result<Rule> Settings::rule(std::string_view text) const {
  const std::string_view name = trim(text);
  if (!is_rule_name(name)) return parse_rule(text);
  if (const NamedRule* found = find_rule(name)) {
    Result<Rule> rule = parse_rule(found->value.text);
    if (rule) rule->for_hangs = name == kHangRule;
    return rule;
  }
  if (metric_by_name(name)) return parse_rule(text);
  std::vector<std::string_view> names;
  for (const NamedRule& one : rules_) names.push_back(one.name);
  const std::string hint = did_you_mean(name, names);
  return fail(
      fmt::format("there is no rule called '{}'{}", name,
                  hint.empty() ? "; `lull config` lists them, and a rule itself is like 'util < 1 for 30m'" : hint));
}

Result<Rule> Settings::idle_rule(std::string_view text) const {
  if (!is_quantity(text)) return rule(text);
  const Span span = TRY(parse_span(text));
  // The default may be a time too: then of the rule that comes with lull.
  const std::string_view otherwise = this->text(Setting::idle);
  return with_span(TRY(rule(is_quantity(otherwise) ? info(Setting::idle).otherwise : otherwise)), span);
}

namespace {

Result<Rule> named(std::string_view option, Result<Rule> rule) {
  if (!rule) return std::unexpected(std::move(rule).error().during(std::string(option)));
  return rule;
}

}  // namespace

Result<Rule> Settings::rule_option(std::string_view option, std::string_view text) const {
  return named(option, rule(text));
}

Result<Rule> Settings::idle_option(std::string_view option, std::string_view text) const {
  return named(option, idle_rule(text));
}

// ---- as a table and as JSON

std::string settings_text(const Settings& settings) {
  std::vector<Row> rows;
  for (const SettingInfo& row : kSettingTable)
    rows.push_back({std::string(row.name), or_dash(settings.one_line(row.setting)), settings[row.setting].from});
  if (!settings.notify_address().empty())
    rows.push_back({"notify.address", address_state(settings), "LULL_NOTIFY_ADDRESS"});
  for (const Settings::NamedRule& rule : settings.rules())
    rows.push_back({"rules." + rule.name, or_dash(printable(rule.value.text)), rule.value.from});
  for (const SignalSource& signal : settings.signals())
    rows.push_back({"signals." + signal.name, signal.to_string(), signal.from});
  std::string text = aligned(rows) + "\n";
  for (const Settings::File& file : settings.files()) text += fmt::format("{}: {}\n", printable(file.path), file.state);
  return text;
}

std::string settings_json(const Settings& settings) {
  JsonWriter json(2);
  json.begin_object().key("settings").begin_array();
  for (const SettingInfo& row : kSettingTable) {
    json.begin_object().member("name", row.name).member_or_null("value", settings.one_line(row.setting));
    json.member("from", settings[row.setting].from).member("variable", row.variable);
    json.member_or_null("default", row.otherwise).member("meaning", row.meaning).end_object();
  }
  json.end_array().key("rules").begin_array();
  for (const Settings::NamedRule& rule : settings.rules())
    json.begin_object()
        .member("name", rule.name)
        .member("rule", printable(rule.value.text))
        .member("from", rule.value.from)
        .end_object();
  json.end_array().key("signals").begin_array();
  for (const SignalSource& signal : settings.signals())
    json.begin_object()
        .member("name", signal.name)
        .member("source", signal.to_string())
        .member("from", signal.from)
        .end_object();
  json.end_array().key("files").begin_array();
  for (const Settings::File& file : settings.files())
    json.begin_object().member("path", printable(file.path)).member("state", file.state).end_object();
  json.end_array().member("notify_address_set", !settings.notify_address().empty()).member("notes", settings.notes());
  return json.end_object().take() + "\n";
}

}  // namespace lull
