#include "lease/pick_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

Error about(std::string_view option, Error error) { return std::move(error).during(option); }

Result<double> size(std::string_view option, const std::string& text) {
  const auto bytes = parse_size(text);
  if (!bytes) return std::unexpected(about(option, bytes.error()));
  return static_cast<double>(*bytes);
}

Result<Limit> size_limit(std::string_view option, const std::string& text) {
  if (text.empty()) return Limit{};
  if (text == "any") return Limit::off();
  return Limit::of(TRY(size(option, text)));
}

// As far as the metric itself goes; a number of things is a whole one.
Result<Limit> limit(std::string_view option, const std::string& text, Metric metric) {
  if (text.empty()) return Limit{};
  if (text == "any") return Limit::off();
  const bool percent = info(metric).unit == Unit::percent && text.ends_with('%');
  const auto value = to_double(std::string_view(text).substr(0, text.size() - (percent ? 1 : 0)));
  const bool whole = info(metric).unit == Unit::count;
  const double most = std::min(info(metric).range.highest, 1e6);
  if (!value || !(*value >= 0 && *value <= most) || (whole && *value != std::floor(*value)))
    return fail(fmt::format("{} {}: a {}number from 0 to {} would be right, or any", option, printable(text),
                            whole ? "whole " : "", most));
  return Limit::of(*value);
}

Result<Vendor> vendor_option(const std::string& text) {
  constexpr std::array<std::string_view, 3> kNames = {"amd", "intel", "nvidia"};
  constexpr std::array kVendors = {Vendor::amd, Vendor::intel, Vendor::nvidia};
  const auto which = one_of(text, kNames);
  if (!which) return std::unexpected(about("--vendor", which.error()));
  return kVendors[*which];
}

Result<> read_constraints(const PickOptions& options, PickSettings& settings) {
  Constraints& constraints = settings.constraints;
  constraints.name = options.name;
  constraints.util = TRY(limit("--util", options.util, Metric::util));
  constraints.mem_util = TRY(limit("--mem-util", options.mem_util, Metric::mem_util));
  constraints.procs = TRY(limit("--procs", options.procs, Metric::procs));
  constraints.mem_used = TRY(size_limit("--mem-used", options.mem_used));
  if (!options.mem_free.empty()) constraints.mem_free = TRY(size_limit("--mem-free", options.mem_free));
  if (!options.temp.empty()) constraints.temp = TRY(limit("--temp", options.temp, Metric::temp));
  if (!options.tolerate.empty()) constraints.tolerate = TRY(size("--tolerate", options.tolerate));
  if (options.mine_ok) constraints.mine = ::geteuid();
  if (!options.where.empty()) {
    const auto rule = parse_rule(options.where);
    if (!rule) return std::unexpected(about("--where", rule.error()));
    auto where = where_rule(*rule);
    if (!where) return std::unexpected(about("--where", where.error()));
    constraints.where = *std::move(where);
    settings.where_details = true;
    for (const Metric metric : rule->signals()) {
      settings.where_openers = settings.where_openers || metric == Metric::openers;
      settings.where_pcie = settings.where_pcie || metric == Metric::pcie;
      settings.where_counters = settings.where_counters || is_counter(metric);
    }
  }
  return {};
}

Result<unsigned> holders(std::string_view option, const std::string& text, unsigned fewest) {
  const auto number = to_unsigned(text);
  if (!number || *number < fewest || *number > kMostHolders)
    return fail(
        fmt::format("{} {}: a number from {} to {} would be right", option, printable(text), fewest, kMostHolders));
  return static_cast<unsigned>(*number);
}

// Whoever shares takes the others' work as it is, unless a limit was given by name.
Result<> read_share(const PickOptions& options, PickSettings& settings) {
  settings.share = settings.patience = TRY(holders("--share", options.share, 1));
  if (!options.joinable.empty()) settings.patience = TRY(holders("--joinable", options.joinable, settings.share));
  if (settings.share == 1) return {};
  settings.company = settings.constraints;
  for (Limit* limit :
       {&settings.company->util, &settings.company->mem_util, &settings.company->procs, &settings.company->mem_used})
    if (limit->kind == Limit::usual) *limit = Limit::off();
  if (!settings.lease) return fail("--no-lease and --share: without a lease there are no holders to count");
  return {};
}

Result<> read_holding(const PickOptions& options, PickSettings& settings) {
  settings.lease = !options.no_lease;
  if (!options.hold.empty()) settings.hold = TRY(duration_option("--hold", options.hold));
  if (settings.hold == Duration::zero()) return fail("--hold 0 would hold nothing: 10m would be right, for example");
  if (!options.hold_pid.empty()) {
    const auto pid = to_pid(options.hold_pid);
    if (!pid)
      return fail(fmt::format("--hold-pid {}: the number of a process would be right", printable(options.hold_pid)));
    settings.hold_pid = *pid;
  }
  settings.wait = options.waits;
  if (!options.wait.empty()) settings.wait_limit = TRY(duration_option("--wait", options.wait));
  if (options.waits && options.wait.empty() && !settings.command.empty() &&
      (parse_duration(settings.command.front()) || to_double(settings.command.front())))
    return fail(fmt::format("--wait takes its time after a '=': --wait={}", printable(settings.command.front())));
  if (settings.hold && settings.hold_pid) return fail("--hold and --hold-pid: one of them");
  if ((settings.hold || settings.hold_pid) && !settings.command.empty())
    return fail("--hold is for a printed choice; a command holds its GPUs by itself");
  if (!settings.lease && (settings.hold || settings.hold_pid || settings.wait))
    return fail(fmt::format("--no-lease and --{}: without a lease lull can neither hold a GPU nor wait for one",
                            settings.wait ? "wait" : "hold"));
  if (!options.format.empty() && !settings.command.empty())
    return fail("--format is for a printed choice, not for a command");
  return {};
}

}  // namespace

Result<PickSettings> settle(const PickOptions& options, std::vector<std::string> command) {
  PickSettings settings;
  settings.command = std::move(command);
  const auto count = to_unsigned(options.count);
  if (options.count == "all")
    settings.all = true;
  else if (!count || *count == 0 || *count > 4096)
    return fail(fmt::format("--count {}: must be a positive number (4096 at most) or 'all'", printable(options.count)));
  else
    settings.count = static_cast<unsigned>(*count);
  settings.gpus = options.gpus;
  if (!options.vendor.empty()) settings.vendor = TRY(vendor_option(options.vendor));
  settings.best_asked_for = !options.best.empty();
  const bool several = settings.all || settings.count > 1;
  auto best = parse_best(settings.best_asked_for ? options.best : several ? "topology" : "random");
  if (!best) return std::unexpected(about("--best", best.error()));
  settings.best = *best;
  const auto priority = to_double(options.priority);
  if (!priority || std::fabs(*priority) > 1000 || *priority != std::floor(*priority))
    return fail(
        fmt::format("--priority {}: a whole number from -1000 to 1000 would be right", printable(options.priority)));
  settings.priority = static_cast<int>(*priority);
  TRY(read_constraints(options, settings));
  TRY(read_holding(options, settings));
  TRY(read_share(options, settings));
  return settings;
}

}  // namespace lull
