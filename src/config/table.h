#pragma once
// Every setting there is, as a table: its name in a file, the variable that sets it, what kind of value it takes, what
// it is by default, and what it is for. Reading, checking and showing them go by this table.

#include <array>
#include <cstdint>
#include <span>
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
  cuda_checkpoint,
  notify_to,
  notify_address_file,
  slurm_except_partition,
  slurm_except_qos,
  slurm_except_account,
  slurm_interactive,
  slurm_restarts_at_most,
  slurm_steps,
  slurm_user_rule_at_most,
  slurm_delay,
};
inline constexpr std::size_t kSettingCount = 19;

enum class SettingKind : std::uint8_t {
  rule,
  rule_or_none,
  signal,
  duration,
  command,
  price,
  users,
  service,
  file,
  names,
  interactive,
  count,
  steps
};

struct SettingInfo {
  Setting setting;
  std::string_view name;      // in a file; "notify.to" is `to` of the table [notify]
  std::string_view variable;  // of the environment
  SettingKind kind;
  std::string_view otherwise;  // the default; empty: nothing
  std::string_view meaning;
};

inline constexpr std::array<SettingInfo, kSettingCount> kSettingTable = {{
    {Setting::idle, "idle", "LULL_IDLE", SettingKind::rule, "idle",
     "the rule of `lull run`, `lull watch` and `lull replay`, its name, or a time"},
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
    {Setting::cuda_checkpoint, "cuda_checkpoint", "LULL_CUDA_CHECKPOINT", SettingKind::file, "",
     "NVIDIA's cuda-checkpoint, where it is not in PATH, for `lull park`"},
    {Setting::notify_to, "notify.to", "LULL_NOTIFY_TO", SettingKind::service, "",
     "what takes notifications: slack, discord, teams, ntfy, webhook (by the address)"},
    {Setting::notify_address_file, "notify.address_file", "LULL_NOTIFY_ADDRESS_FILE", SettingKind::file, "",
     "the file with the address of notifications"},
    {Setting::slurm_except_partition, "slurm.except_partition", "LULL_SLURM_EXCEPT_PARTITION", SettingKind::names, "",
     "partitions whose jobs `lull watch --slurm` leaves alone"},
    {Setting::slurm_except_qos, "slurm.except_qos", "LULL_SLURM_EXCEPT_QOS", SettingKind::names, "", "the same by QOS"},
    {Setting::slurm_except_account, "slurm.except_account", "LULL_SLURM_EXCEPT_ACCOUNT", SettingKind::names, "",
     "the same by account"},
    {Setting::slurm_interactive, "slurm.interactive", "LULL_SLURM_INTERACTIVE", SettingKind::interactive, "leave",
     "what is done to an interactive job: leave it, or cancel also where a requeue is due"},
    {Setting::slurm_restarts_at_most, "slurm.restarts_at_most", "LULL_SLURM_RESTARTS_AT_MOST", SettingKind::count, "3",
     "a job that was restarted so often is requeued and held"},
    {Setting::slurm_steps, "slurm.steps", "LULL_SLURM_STEPS", SettingKind::steps, "",
     "the steps of `lull watch --per job --slurm`, each 'RULE: ACTION'"},
    {Setting::slurm_user_rule_at_most, "slurm.user_rule_at_most", "LULL_SLURM_USER_RULE_AT_MOST", SettingKind::duration,
     "24h", "the longest idle time that a job's user can ask for"},
    {Setting::slurm_delay, "slurm.delay", "LULL_SLURM_DELAY", SettingKind::duration, "0s",
     "nothing is done to a job before it has run for so long"},
}};

constexpr const SettingInfo& info(Setting setting) { return kSettingTable[static_cast<std::size_t>(setting)]; }

// The rules that come with lull.
struct BuiltInRule {
  std::string_view name;
  std::string_view text;
  std::string_view meaning;
};
std::span<const BuiltInRule> built_in_rules();
inline constexpr std::string_view kHangRule = "hung";  // of these, or a user's rule of that name

// What notifications can be made for.
inline constexpr std::array<std::string_view, 5> kServices = {"slack", "discord", "teams", "ntfy", "webhook"};

}  // namespace lull
