#include "slurm/ask_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "slurm/node_list.h"
#include "slurm/running_jobs.h"

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLeftToAnother = 10min;   // then it is looked at again
constexpr std::size_t kMostComponents = 16;  // each is asked by an srun of its own, all at once

constexpr Duration kFirst = 2 * kCommandLimit;  // the first node asks and acts in this time
constexpr Duration kApart = 50ms;               // so that the nodes of a large job do not ask at once
constexpr Duration kAskAgain = 60s;             // where slurmctld did not say it

std::string key_of(const Allocation& job) { return job.name() + "@" + job.run(); }

}  // namespace

bool NodesSaid::unknown() const { return std::ranges::any_of(groups, &NodeGroup::unknown); }

void AskNodes::when_heard(std::function<void(const NodesSaid&)> heard) {
  heard_ = std::move(heard);
  if (over_) std::exchange(heard_, nullptr)(said_);
}

void AskNodes::finish(std::string why, std::optional<Duration> again_in, bool never) {
  over_ = true;
  said_.why = std::move(why);
  said_.again_in = again_in;
  said_.never = never;
  if (const auto heard = std::exchange(heard_, nullptr)) heard(said_);
}

void AskNodes::start() {
  asked_ = loop_.now();
  if (options_.job.user.empty())
    return finish("its user has no name on this node: srun cannot be run as them", {}, true);
  if (options_.job.het_job != 0) return look_at_components();
  const auto nodes = parse_node_list(options_.job.nodes);
  if (!nodes) return finish(nodes.error().message(), {}, true);
  ask({{.job = options_.job.job, .restarts = *options_.job.restarts, .nodes = *nodes}});
}

void AskNodes::look_at_components() {
  run_(components_command(options_.job.het_job), kCommandLimit, [this, here = here_](const HelperResult& result) {
    if (*here) ask_components(result);
  });
}

void AskNodes::ask_components(const HelperResult& result) {
  if (!result.ok()) return finish(fmt::format("squeue: {}", result.trouble));
  const auto components = read_components(result.output, options_.job.het_job);
  if (!components) return finish(components.error().message(), kLookAgain);
  if (components->size() > kMostComponents)
    return finish(
        fmt::format("it is of a het job with {} components, more than {}", components->size(), kMostComponents), {},
        true);
  std::vector<NodeGroup> groups;
  bool ours = false;
  for (const Component& one : *components) {
    const auto nodes = parse_node_list(one.nodes);
    if (one.state != "RUNNING" || !nodes || nodes->empty())
      return finish(
          fmt::format("component {} of het job {} is {} now", one.job, options_.job.het_job, printable(one.state)),
          kLookAgain);
    ours = ours || (one.job == options_.job.job && one.restarts == *options_.job.restarts);
    groups.push_back({.job = one.job, .restarts = one.restarts, .nodes = *nodes, .number = one.group});
  }
  if (!ours) return finish("squeue shows another run of it", kLookAgain);
  ask(std::move(groups));
}

void AskNodes::ask(std::vector<NodeGroup> groups) {
  said_.groups = std::move(groups);
  asked_ = loop_.now();
  for (std::size_t i = 0; i < said_.groups.size(); ++i) ask_one(i);
}

void AskNodes::ask_one(std::size_t at) {
  const NodeGroup& group = said_.groups[at];
  const Command question = {options_.program, "slurm",  "ask",        std::to_string(group.job),
                            "--plain",        "--rule", options_.rule};
  run_(ask_command(group.number ? options_.job.het_job : group.job, options_.job.user, group.nodes.size(), question,
                   group.number),
       kCommandLimit, [this, here = here_, at](const HelperResult& result) {
         if (*here) heard(at, result);
       });
}

void AskNodes::heard(std::size_t at, const HelperResult& result) {
  NodeGroup& group = said_.groups[at];
  group.heard = agree(group.job, group.restarts, group.nodes, result.output);
  // A node that says no ends srun with its status: what it says is what counts.
  if (!result.ok() && (group.heard->agreed || group.heard->answers != group.nodes.size())) {
    const std::string said = printable(trim(std::string_view(result.output).substr(0, 300)));
    group.heard->agreed = false;
    group.heard->why = fmt::format("asking its nodes: {}{}{}", result.trouble, said.empty() ? "" : ": ", said);
    group.heard->again_in.reset();
    group.unknown = group.heard->answers == 0 && is_unknown_job(result.output);
  }
  if (std::ranges::all_of(said_.groups, [](const NodeGroup& one) { return one.heard.has_value(); })) all_heard();
}

void AskNodes::all_heard() {
  std::string why;
  std::optional<Duration> again_in;
  for (const NodeGroup& group : said_.groups) {
    if (group.heard->agreed) continue;
    if (why.empty()) why = group.heard->why;
    if (group.heard->again_in) again_in = std::max(again_in.value_or(Duration::zero()), *group.heard->again_in);
  }
  if (!why.empty()) return finish(std::move(why), again_in);
  if (!std::ranges::all_of(said_.groups, [](const NodeGroup& one) { return one.heard->complete; }))
    return finish("its nodes do not say which GPUs it has there");
  for (const NodeGroup& group : said_.groups) {
    const bool ours = group.job == options_.job.job;
    // Put off and not called off: our own streak must go on, which is what the other waits for.
    if (!group.heard->judged.empty() && !(ours && group.heard->leader == options_.job.node))
      return finish(group.heard->leader + " acts on it", kLeftToAnother);
    if (ours) break;
  }
  finish("");
}

// ---- which node asks

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
