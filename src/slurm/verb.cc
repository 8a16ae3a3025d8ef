#include "slurm/verb.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "base/process.h"
#include "base/text.h"
#include "base/units.h"
#include "slurm/node_list.h"

namespace lull::slurm {
namespace {

// By VerbKind.
constexpr std::array<std::string_view, 5> kVerbs = {"comment", "signal", "requeue", "requeuehold", "cancel"};

// Numbers, and words of Slurm's and its administrator's.
constexpr std::array kFields = {
    Field{"JobID", 24},   Field{"State", 24},       Field{"RestartCnt", 16},  Field{"BatchFlag", 8},
    Field{"Requeue", 8},  Field{"ArrayJobID", 24},  Field{"ArrayTaskID", 64}, Field{"HetJobID", 24},
    Field{"UserID", 16},  Field{"NumNodes", 12},    Field{"Partition", 64},   Field{"QOS", 64},
    Field{"Account", 64}, Field{"tres-alloc", 256}, Field{"NodeList", 1024},
};

// Of each component of a het job.
constexpr std::array kComponentFields = {
    Field{"JobID", 24},        Field{"State", 24},        Field{"RestartCnt", 16}, Field{"HetJobID", 24},
    Field{"HetJobOffset", 16}, Field{"HetJobIDSet", 512}, Field{"NodeList", 8192},
};

Command squeue(std::uint64_t job, std::string format) {
  return {"squeue", "--noheader", "--jobs=" + std::to_string(job), "--states=all", std::move(format)};
}

std::string signal_word(std::string_view text) {
  std::string word(text);
  if (word.starts_with("SIG")) word.erase(0, 3);
  return word;
}

// 0, N/A and nothing say that there is none.
std::string number_or_none(std::string_view text) {
  const auto number = to_unsigned(text);
  return number && *number != 0 ? std::string(text) : "";
}

// "cpu=4,mem=8G,node=2,billing=4,gres/gpu=3,gres/gpu:a100=3"
std::optional<std::uint64_t> gpus_in(std::string_view tres, std::size_t width) {
  constexpr std::string_view kGpus = "gres/gpu=";
  for (const std::string_view part : split(tres, ','))
    if (part.starts_with(kGpus) && (tres.size() < width || !tres.ends_with(part)))
      return to_unsigned(part.substr(kGpus.size()));
  return std::nullopt;
}

bool has_any(std::string_view output, std::initializer_list<std::string_view> texts) {
  return std::ranges::any_of(texts, [&](std::string_view text) { return output.find(text) != std::string_view::npos; });
}

bool same_nodes(const JobState& state, std::string_view judged) {
  auto nodes = parse_node_list(judged);
  if (!nodes || state.node_count != nodes->size()) return false;
  if (state.nodes.empty()) return true;  // too long to be shown: as many, then
  auto now = parse_node_list(state.nodes);
  if (!now) return false;
  std::ranges::sort(*nodes);
  std::ranges::sort(*now);
  return *now == *nodes;
}

}  // namespace

Result<Verb> parse_verb(std::string_view text) {
  if (text.starts_with("signal:")) {
    const std::string word = signal_word(text.substr(7));
    if (const auto number = parse_signal(word); number && *number != 0) return Verb{VerbKind::signal, word};
    return fail(fmt::format("'{}' is not a signal, such as signal:TERM", printable(text)));
  }
  const auto* const found = std::ranges::find(kVerbs, text);
  const auto kind = static_cast<VerbKind>(found - kVerbs.begin());
  if (found != kVerbs.end() && kind != VerbKind::signal) return Verb{kind};
  return fail(
      fmt::format("'{}': comment, signal:TERM, requeue, requeuehold or cancel would be right", printable(text)));
}

std::string to_text(const Verb& verb) {
  return fmt::format("{}{}{}", kVerbs[static_cast<std::size_t>(verb.kind)], verb.signal.empty() ? "" : ":",
                     verb.signal);
}

std::string JobState::id() const {
  if (!het_job.empty()) return het_job;
  return array_task.empty() ? std::to_string(job) : array_job + "_" + array_task;
}

Command squeue_command(std::uint64_t job) { return squeue(job, format_option(kFields)); }

Command components_command(std::uint64_t het_job) { return squeue(het_job, format_option(kComponentFields)); }

Result<std::vector<Component>> read_components(std::string_view output, std::uint64_t het_job) {
  std::vector<Component> found;
  std::set<std::string> expected;
  for (const std::string_view line : split(output, '\n')) {
    const auto cells = cells_of(line, kComponentFields);
    if (to_unsigned(cells[3]) != het_job) continue;  // a warning
    const auto job = to_unsigned(cells[0]);
    const auto restarts = to_unsigned(cells[2]);
    const auto group = to_unsigned(cells[4]);
    const auto numbers = parse_node_list(fmt::format("[{}]", cells[5]));
    if (!job || !restarts || *restarts > 1'000'000'000 || !group || *group > 1000 || !numbers || cells[1].empty() ||
        cells[5].size() == kComponentFields[5].width || cells[6].size() == kComponentFields[6].width)
      return fail(fmt::format("squeue does not say what the components of het job {} are", het_job));
    expected.insert(numbers->begin(), numbers->end());
    found.push_back({.job = *job,
                     .group = static_cast<unsigned>(*group),
                     .state = std::string(cells[1]),
                     .restarts = static_cast<unsigned>(*restarts),
                     .nodes = std::string(cells[6])});
  }
  std::ranges::sort(found, {}, &Component::group);
  for (unsigned i = 0; i < found.size(); ++i)
    if (found[i].group != i || expected.erase(std::to_string(found[i].job)) != 1)
      return fail(fmt::format("squeue does not show each component of het job {} once", het_job));
  if (found.empty() || !expected.empty())
    return fail(fmt::format("squeue does not show all components of het job {}", het_job));
  return found;
}

Result<std::optional<JobState>> read_squeue(std::string_view output, std::uint64_t job) {
  std::optional<JobState> found;
  for (const std::string_view line : split(output, '\n')) {
    if (trim(line).empty()) continue;
    const auto cells = cells_of(line, kFields);
    const auto number = to_unsigned(cells[0]);
    const auto restarts = to_unsigned(cells[2]);
    if (!number || *number != job) continue;  // another task of the array, another component; a warning
    if (!restarts || cells[1].empty() || *restarts > 1'000'000'000)
      return fail("squeue says something else than was asked for");
    if (found) return fail(fmt::format("squeue has two jobs {}", job));
    JobState state;
    state.job = job;
    state.state = cells[1];
    state.restarts = static_cast<unsigned>(*restarts);
    state.batch = cells[3] == "1";
    state.requeue = cells[4] == "1";
    const std::string task = name_or_none(cells[6]);
    state.array_task = to_unsigned(task) ? task : "";  // "3-9": they are all pending
    state.array_job = state.array_task.empty() ? "" : number_or_none(cells[5]);
    // The number of the last task alone means the whole array.
    if (!task.empty() && (state.array_task.empty() ? state.state != "PENDING" : state.array_job.empty()))
      return fail(fmt::format("squeue does not say which task of an array job {} is", job));
    state.het_job = number_or_none(cells[7]);
    if (const auto user = to_unsigned(cells[8]); user && *user < 0xFFFFFFFFULL) state.user = static_cast<uid_t>(*user);
    if (const auto nodes = to_unsigned(cells[9])) state.node_count = *nodes;
    state.partition = name_or_none(cells[10]);
    state.qos = name_or_none(cells[11]);
    state.account = name_or_none(cells[12]);
    state.gpus = gpus_in(cells[13], kFields[13].width);
    state.nodes = cells[14].size() == kFields[14].width ? "" : std::string(cells[14]);
    found = std::move(state);
  }
  return found;
}

Command comment_command(const std::string& id, const std::string& text) {
  return {"scontrol", "update", "jobid=" + id, "AdminComment=" + printable(text)};
}

Command start_now_command(const std::string& id) { return {"scontrol", "update", "jobid=" + id, "StartTime=now"}; }

Doing plan(const std::optional<JobState>& state, const Judged& judged, const Verb& verb, const ActPolicy& policy,
           const std::string& reason) {
  Doing doing{.verb = verb};
  const std::uint64_t job = judged.job;
  const auto other = [&](Doing::Kind kind, std::string why) {
    doing.kind = kind;
    doing.why = std::move(why);
    return doing;
  };
  if (!state) return other(Doing::Kind::no_longer, fmt::format("there is no job {} any more", job));
  if (state->state != "RUNNING")
    return other(Doing::Kind::no_longer, fmt::format("job {} is {} now", job, printable(state->state)));
  if (judged.restarts && state->restarts != *judged.restarts)
    return other(Doing::Kind::no_longer,
                 fmt::format("job {} has been restarted {} times, not {}", job, state->restarts, *judged.restarts));
  if (judged.user && state->user != judged.user)
    return other(Doing::Kind::no_longer, fmt::format("job {} is of another user than the one that was judged", job));
  if (!judged.nodes.empty() && !same_nodes(*state, judged.nodes))
    return other(Doing::Kind::no_longer,
                 fmt::format("job {} has other nodes than {} now", job, printable(judged.nodes)));
  if (judged.gpus && state->gpus && *state->gpus != *judged.gpus)
    return other(Doing::Kind::not_now,
                 fmt::format("job {} has {} GPUs, and its nodes know of {}", job, *state->gpus, *judged.gpus));
  for (const auto& [names, name, what] : {std::tuple(&policy.except_partitions, &state->partition, "partition"),
                                          std::tuple(&policy.except_qos, &state->qos, "QOS"),
                                          std::tuple(&policy.except_accounts, &state->account, "account")})
    if (names->contains(*name))
      return other(Doing::Kind::refused,
                   fmt::format("job {} is left alone: its {} is {}", job, what, printable(*name)));
  using Interactive = ActPolicy::Interactive;
  if (!state->batch && verb.kind != VerbKind::comment) {
    if (policy.interactive == Interactive::leave)
      return other(Doing::Kind::refused,
                   fmt::format("job {} is interactive (salloc, srun): it is left alone (slurm.interactive)", job));
    if (requeues(verb) && policy.interactive != Interactive::cancel)
      return other(Doing::Kind::refused,
                   fmt::format("job {} is interactive (salloc, srun): it can be cancelled, not requeued", job));
    if (requeues(verb)) doing.verb = {VerbKind::cancel};
  }
  const std::string id = state->id();
  if (doing.verb.kind == VerbKind::requeue && state->restarts >= policy.restarts_at_most)
    doing.verb = {VerbKind::requeuehold};
  if (requeues(doing.verb) && !state->requeue) {
    doing.before.push_back({"scontrol", "update", "jobid=" + id, "Requeue=1"});
    doing.undo.push_back({"scontrol", "update", "jobid=" + id, "Requeue=0"});
  }
  switch (doing.verb.kind) {
    case VerbKind::comment: doing.command = comment_command(id, reason); return doing;
    case VerbKind::signal: doing.command = {"scancel", "--full", "--signal=" + doing.verb.signal, id}; break;
    case VerbKind::requeue: doing.command = {"scontrol", "requeue", id}; break;
    case VerbKind::requeuehold: doing.command = {"scontrol", "requeuehold", id}; break;
    case VerbKind::cancel: doing.command = {"scancel", id}; break;
  }
  return doing;
}

// `env -i`: what root's environment has is none of the user's.
Command ask_command(std::uint64_t job, const std::string& user, std::size_t nodes, const Command& question,
                    std::optional<unsigned> group) {
  const char* configuration = std::getenv("SLURM_CONF");
  const char* path = std::getenv("PATH");
  Command command = {"runuser",
                     "-u",
                     user,
                     "--",
                     "env",
                     "-i",
                     fmt::format("PATH={}", path != nullptr && *path != '\0' ? path : "/usr/bin:/bin")};
  if (configuration != nullptr && *configuration != '\0')
    command.push_back(fmt::format("SLURM_CONF={}", configuration));
  for (std::string word :
       {std::string("srun"), fmt::format("--jobid={}", job), std::string("--immediate=5"), std::string("--input=none"),
        std::string("--overlap"), std::string("--mem=0"), std::string("--gres=none"), std::string("--export=PATH"),
        std::string("--chdir=/"), std::string("--kill-on-bad-exit=0"), std::string("--ntasks-per-node=1"),
        fmt::format("--nodes={}", nodes), fmt::format("--ntasks={}", nodes)})
    command.push_back(std::move(word));
  if (group) command.push_back(fmt::format("--het-group={}", *group));
  command.insert(command.end(), question.begin(), question.end());
  return command;
}

bool is_silence(std::string_view output) {
  return has_any(output, {"Unable to contact slurm controller", "Socket timed out", "Connection refused",
                          "Zero Bytes were transmitted", "Communication connection failure", "in standby mode"});
}

bool was_not_sent(std::string_view output) {
  return has_any(output, {"slurm controller (connect failure)", "Connection refused", "in standby mode"});
}

std::string silence_text(std::string_view output) {
  const std::string_view all = trim(output);
  const std::string_view said = all.substr(0, std::min<std::size_t>(all.find('\n'), 200));
  return fmt::format("Slurm's controller does not answer{}{}", said.empty() ? "" : ": ", printable(said));
}

bool is_unknown_job(std::string_view output) { return output.find("Invalid job id") != std::string_view::npos; }

}  // namespace lull::slurm
