#pragma once
// The settings in force, each with where it came from: what comes with lull, then /etc/lull/lull.toml, then
// ~/.config/lull/lull.toml, then LULL_… variables; a command's own options come last and are the command's business.
// Where there is no file, no TOML is parsed and next to nothing is done: many commands start with this.

#include <sys/types.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "config/file.h"
#include "config/signal_source.h"
#include "config/table.h"
#include "rule/rule.h"

namespace lull {

// Where settings are looked for. Tests have their own.
struct SettingsSources {
  std::string system_file = "/etc/lull/lull.toml";
  std::string user_file;       // empty: none
  bool must_be_there = false;  // the user file: it was named
  uid_t user = 0;
  std::vector<std::pair<std::string, std::string>> variables;  // LULL_…, with their values

  // $LULL_CONFIG names one file in place of both; set to nothing, there is none.
  static SettingsSources of_this_process();
};

class Settings {
 public:
  struct Value {
    std::string text;
    std::string from;  // "/etc/lull/lull.toml:3:9", "LULL_GRACE", "built in"
  };
  struct NamedRule {
    std::string name;
    Value value;
    std::string meaning = {};  // of one that comes with lull, as it came
  };
  struct File {
    std::string path;
    std::string state;  // "read", "not there", or why it was passed over
  };

  Settings();  // what comes with lull
  // A mistake names file, line, column and the nearest right word.
  static Result<Settings> load(const SettingsSources& sources = SettingsSources::of_this_process());

  const Value& operator[](Setting setting) const { return values_[static_cast<std::size_t>(setting)]; }
  const std::string& text(Setting setting) const { return (*this)[setting].text; }
  std::vector<std::string> list(Setting setting) const;  // names, users, steps
  std::string one_line(Setting setting) const;
  // The address of notifications itself, from LULL_NOTIFY_ADDRESS; empty: it is not set. It is never shown.
  const std::string& notify_address() const { return notify_address_; }

  // In the order of their names' coming: those of lull first.
  const std::vector<NamedRule>& rules() const { return rules_; }
  const NamedRule* find_rule(std::string_view name) const;
  // A rule, or the name of one.
  Result<Rule> rule(std::string_view text) const;
  Result<Rule> rule_option(std::string_view option, std::string_view text) const;  // the option is named in the error
  // The same, or a time alone, such as 30m: the default rule for so long.
  Result<Rule> idle_rule(std::string_view text) const;
  Result<Rule> idle_option(std::string_view option, std::string_view text) const;

  // Signals of the user's own, by [signals].
  const std::vector<SignalSource>& signals() const { return signals_; }

  const std::vector<File>& files() const { return files_; }
  // What a person should know: files that were passed over, variables that are none of ours but look like it.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  Result<> take_file(const std::string& path, FileOf whose, uid_t user);
  Result<> take_variables(const std::vector<std::pair<std::string, std::string>>& variables);
  Result<> set(Setting setting, std::string text, const std::string& from);
  Result<> set_rule(std::string_view name, std::string text, const std::string& from);
  Result<> check_rules() const;
  Result<> check_steps(const SettingInfo& row, const Value& value) const;

  std::array<Value, kSettingCount> values_;
  std::vector<NamedRule> rules_;
  std::vector<SignalSource> signals_;
  std::vector<File> files_;
  std::vector<std::string> notes_;
  std::string notify_address_;
};

// A word that can only be the name of a rule: every rule has a comparison in it.
bool is_rule_name(std::string_view text);

// All settings with where each came from: a table for people, an object for programs.
std::string settings_text(const Settings& settings);
std::string settings_json(const Settings& settings);

}  // namespace lull
