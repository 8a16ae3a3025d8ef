#include "config/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/json_writer.h"
#include "base/text.h"

namespace lull {
namespace {

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

std::string settings_text(const Settings& settings) {
  std::vector<Row> rows;
  for (const SettingInfo& row : kSettingTable)
    rows.push_back({std::string(row.name), or_dash(settings.shown(row.setting)), settings[row.setting].from});
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
    json.begin_object().member("name", row.name).member_or_null("value", settings.shown(row.setting));
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
