// `lull config`: the settings in force, and where each of them came from.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "config/settings.h"

namespace lull {
namespace {

constexpr const char* kMore =
    "Later ones win: /etc/lull/lull.toml, ~/.config/lull/lull.toml (or $LULL_CONFIG in place of both),\n"
    "LULL_… variables, a command's own options. lull.toml(5) has all of them.\n\n"
    "Exit status: 0; 2 a file or a variable has a mistake.\n\n"
    "Examples:\n"
    "  lull config\n"
    "  LULL_GRACE=1m lull config --json\n";

struct Row {
  std::string name;
  std::string value;
  std::string from;
};

std::string shown(const std::string& text) { return text.empty() ? "-" : printable(text); }

std::string address_state(const Settings& settings) {
  return settings.notify_address().empty() ? "" : "(set, not shown)";
}

void print_rows(const std::vector<Row>& rows) {
  std::size_t name = 0;
  std::size_t value = 0;
  for (const Row& row : rows) {
    name = std::max(name, row.name.size());
    value = std::max(value, row.value.size());
  }
  value = std::min<std::size_t>(value, 40);  // a long rule does not push where everything came from off the screen
  for (const Row& row : rows) fmt::print("{:<{}}  {:<{}}  {}\n", row.name, name, row.value, value, row.from);
}

void print_text(const Settings& settings) {
  std::vector<Row> rows;
  for (const SettingInfo& row : kSettingTable)
    rows.push_back({std::string(row.name), shown(settings.text(row.setting)), settings[row.setting].from});
  if (!settings.notify_address().empty())
    rows.push_back({"notify.address", address_state(settings), "LULL_NOTIFY_ADDRESS"});
  for (const Settings::NamedRule& rule : settings.rules())
    rows.push_back({"rules." + rule.name, shown(rule.value.text), rule.value.from});
  print_rows(rows);
  fmt::print("\n");
  for (const Settings::File& file : settings.files()) fmt::print("{}: {}\n", printable(file.path), file.state);
}

void print_json(const Settings& settings) {
  JsonWriter json(2);
  json.begin_object().key("settings").begin_array();
  for (const SettingInfo& row : kSettingTable) {
    json.begin_object().member("name", row.name).member_or_null("value", printable(settings.text(row.setting)));
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
  json.end_array().key("files").begin_array();
  for (const Settings::File& file : settings.files())
    json.begin_object().member("path", printable(file.path)).member("state", file.state).end_object();
  json.end_array().member("notify_address_set", !settings.notify_address().empty()).member("notes", settings.notes());
  fmt::print("{}\n", json.end_object().take());
}

}  // namespace

int config_command(int argc, char** argv) {
  bool json = false;
  CommandLine line("The settings in force, and where each of them came from.", "lull config");
  line.flag("--json", json, "one JSON object");
  line.footer(kMore);
  if (const auto status = line.parse(argc, argv)) return *status;
  const auto settings = Settings::load();
  if (!settings) return complain(settings.error().message(), kExitUsage);
  json ? print_json(*settings) : print_text(*settings);
  if (!json)
    for (const std::string& note : settings->notes()) complain(note);
  return 0;
}

}  // namespace lull
