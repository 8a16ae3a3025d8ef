#pragma once
// Every setting there is, as a table: its name in a file, the variable that sets it, what kind of value it takes, what
// it is where nobody says anything, and what it is for. Reading, checking and showing them go by this table.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lull {

enum class Setting : std::uint8_t {
  idle,
  warn_by,
  signal,
  grace,
  on_idle,
  price,
  except_users,
  keep_at_most,
  notify_to,
  notify_address_file,
};
inline constexpr std::size_t kSettingCount = 10;

enum class SettingKind : std::uint8_t { rule, rule_or_none, signal, duration, command, price, users, service, file };

struct SettingInfo {
  Setting setting;
  std::string_view name;      // in a file; "notify.to" is `to` of the table [notify]
  std::string_view variable;  // of the environment
  SettingKind kind;
  std::string_view otherwise;  // where nobody says anything; empty: nothing
  std::string_view meaning;
};

inline constexpr std::array<SettingInfo, kSettingCount> kSettingTable = {{
    {Setting::idle, "idle", "LULL_IDLE", SettingKind::rule, "idle",
     "the rule of `lull run` and `lull watch`, or its name"},
    {Setting::warn_by, "warn_by", "LULL_WARN_BY", SettingKind::rule_or_none, "hung",
     "the rule by which `lull run` warns without ending anything, or none"},
    {Setting::signal, "signal", "LULL_SIGNAL", SettingKind::signal, "TERM", "what a job that is to end gets first"},
    {Setting::grace, "grace", "LULL_GRACE", SettingKind::duration, "10s", "how long it then has before SIGKILL"},
    {Setting::on_idle, "on_idle", "LULL_ON_IDLE", SettingKind::command, "",
     "what `lull run` runs before it ends a job"},
    {Setting::price, "price", "LULL_PRICE", SettingKind::price, "", "what an hour of a GPU costs"},
    {Setting::except_users, "except_users", "LULL_EXCEPT_USERS", SettingKind::users, "",
     "whose processes `lull watch --per` leaves alone"},
    {Setting::keep_at_most, "keep_at_most", "LULL_KEEP_AT_MOST", SettingKind::duration, "24h",
     "how much more time `lull keep` gives at most"},
    {Setting::notify_to, "notify.to", "LULL_NOTIFY_TO", SettingKind::service, "",
     "what takes notifications: slack, discord, teams, ntfy, webhook (by the address)"},
    {Setting::notify_address_file, "notify.address_file", "LULL_NOTIFY_ADDRESS_FILE", SettingKind::file, "",
     "the file with the address of notifications"},
}};

constexpr const SettingInfo& info(Setting setting) { return kSettingTable[static_cast<std::size_t>(setting)]; }

// The rules that come with lull.
struct BuiltInRule {
  std::string_view name;
  std::string_view text;
  std::string_view meaning;
};
std::span<const BuiltInRule> built_in_rules();

// What notifications can be made for.
inline constexpr std::array<std::string_view, 5> kServices = {"slack", "discord", "teams", "ntfy", "webhook"};

}  // namespace lull
