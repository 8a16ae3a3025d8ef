#include "slurm/leaders.h"

#include <algorithm>
#include <set>

#include "slurm/node_list.h"
#include "slurm/running_jobs.h"

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFirst = 2 * kCommandLimit;  // the first node asks and acts in this time
constexpr Duration kApart = 50ms;               // so that the nodes of a large job do not ask at once
constexpr Duration kAskAgain = 60s;             // where slurmctld did not say it

std::string key_of(const Allocation& job) { return job.name() + "@" + job.run(); }

}  // namespace

std::optional<bool> Leaders::leads(const Allocation& job, Instant now) {
  if (job.nodes.empty()) return true;  // nothing is done to it through Slurm (slurm/job_step.h)
  const auto nodes = parse_node_list(job.nodes);
  if (!nodes) return false;
  const auto own = std::ranges::find(*nodes, job.node);
  if (own == nodes->begin() || own == nodes->end()) return own == nodes->begin();
  const auto [place, is_new] = places_.try_emplace(key_of(job));
  if (is_new) place->second.ask_at = now + kFirst + (own - nodes->begin()) * kApart;
  if (!place->second.leads && !place->second.asking && now >= place->second.ask_at) ask(job, *nodes, now);
  return place->second.leads;
}

void Leaders::ask(const Allocation& job, const std::vector<std::string>& nodes, Instant now) {
  Place& place = places_.at(key_of(job));
  place.asking = true;
  place.ask_at = now + kAskAgain;
  run_(job_details_command(job.job), kCommandLimit,
       [this, here = here_, key = key_of(job), number = job.job, node = job.node, nodes](const HelperResult& result) {
         if (!*here) return;
         const auto asked = places_.find(key);
         if (asked == places_.end()) return;
         asked->second.asking = false;
         const auto given = result.ok() ? read_job_details(result.output, number, nodes) : fail("");
         if (given) asked->second.leads = !given->gpus.empty() && given->gpus.front().first == node;
       });
}

void Leaders::keep(const std::vector<Allocation>& jobs) {
  std::set<std::string> there;
  for (const Allocation& job : jobs) there.insert(key_of(job));
  std::erase_if(places_, [&](const auto& place) { return !there.contains(place.first); });
}

}  // namespace lull::slurm
