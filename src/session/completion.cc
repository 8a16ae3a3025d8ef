#include "session/completion.h"

#include <pwd.h>

#include <chrono>
#include <set>
#include <utility>

#include "act/actions.h"
#include "base/process.h"
#include "base/users.h"
#include "config/table.h"
#include "gpu/metric.h"
#include "lease/folder.h"
#include "sense/sampler.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// A driver that does not answer at once offers nothing.
Snapshot look() {
  SamplerOptions options;
  options.memory = options.power = options.details = false;
  options.process_info = true;
  options.deadline = 800ms;
  options.attach_deadline = 500ms;
  options.once = true;
  return Sampler::start(std::move(options))->sample();
}

std::vector<Offer> gpus() {
  const Snapshot snapshot = look();
  std::vector<Offer> offers;
  for (const Device& device : snapshot.inventory->devices) offers.push_back({device.label(), device.name});
  return offers;
}

std::vector<Offer> jobs() {
  const Snapshot snapshot = look();
  std::vector<Offer> offers;
  std::set<pid_t> seen;
  for (const Reading& reading : snapshot.readings)
    for (const GpuProcess& process : reading.processes.value_or(std::vector<GpuProcess>{}))
      if (process.info != nullptr && seen.insert(process.pid).second)
        offers.push_back({std::to_string(process.pid), process.info->user + ": " + process.info->command_line()});
  return offers;
}

std::vector<Offer> leases() {
  std::vector<Offer> offers;
  if (const auto found = read_leases())
    for (const LeaseInfo& lease : *found)
      offers.push_back({lease.record.label, user_name(lease.owner) + ": " + lease.record.command});
  return offers;
}

std::vector<Offer> users() {
  std::vector<Offer> offers;
  ::setpwent();
  while (const passwd* user = ::getpwent()) offers.push_back({user->pw_name, user->pw_gecos});
  ::endpwent();
  return offers;
}

}  // namespace

std::vector<Offer> completions(std::string_view kind) {
  std::vector<Offer> offers;
  if (kind == "gpus") return gpus();
  if (kind == "jobs") return jobs();
  if (kind == "leases") return leases();
  if (kind == "users") return users();
  if (kind == "signal-names")
    for (const std::string_view name : signal_names()) offers.push_back({std::string(name), ""});
  if (kind == "signals")
    for (const MetricInfo& metric : kMetricTable)
      offers.push_back({std::string(metric.name), std::string(metric.meaning)});
  if (kind == "actions")
    for (const ActionOffer& action : action_offers())
      offers.push_back({std::string(action.word), std::string(action.does)});
  if (kind == "rules")
    for (const BuiltInRule& rule : built_in_rules()) offers.push_back({std::string(rule.name), std::string(rule.text)});
  return offers;
}

}  // namespace lull
