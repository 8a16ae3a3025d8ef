#include "slurm/running_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>

#include "base/text.h"
#include "base/units.h"
#include "slurm/allocation.h"
#include "slurm/node_list.h"
#include "slurm/verb.h"

namespace lull::slurm {
namespace {

// No field that a user can choose.
constexpr std::array kJobFields = {
    Field{"JobID", 24},     Field{"RestartCnt", 16},   Field{"UserID", 16},    Field{"UserName", 64},
    Field{"StartTime", 24}, Field{"HetJobID", 24},     Field{"Partition", 64}, Field{"QOS", 64},
    Field{"Account", 64},   Field{"HetJobIDSet", 512},
};
constexpr std::array kNodesFields = {Field{"JobID", 24}, Field{"RestartCnt", 16}, Field{"NodeList", 8192}};
constexpr std::array kNodeFields = {Field{"NodeList", 256}, Field{"Gres", 512}};
constexpr std::uint64_t kMostRestarts = 1'000'000'000;
constexpr std::int64_t kLatest = 1LL << 33;  // seconds since 1970 that Slurm can mean

// Times as seconds since 1970, whatever the zone and the settings of whoever runs us.
Command list_command(std::vector<std::string> options) {
  Command command = {"env", "SLURM_TIME_FORMAT=%s", "squeue", "--noheader", "--states=RUNNING"};
  std::ranges::move(options, std::back_inserter(command));
  return command;
}

std::optional<WallTime> read_seconds(std::string_view text) {
  const auto seconds = to_unsigned(text);
  if (!seconds || *seconds == 0 || *seconds > static_cast<std::uint64_t>(kLatest)) return std::nullopt;
  return WallTime(std::chrono::seconds(*seconds));
}

// "gpu:a100:2(IDX:0,3)", several with commas between; of other kinds nothing. Nothing: it is not understood.
std::optional<std::vector<unsigned>> read_given_gpus(std::string_view text) {
  std::vector<unsigned> gpus;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(')'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (text.starts_with(',')) text.remove_prefix(1);
    const std::string_view kind = one.substr(0, one.find_first_of(":("));
    // Shards, MPS: the part of a GPU that it has is unknown.
    if (kind == "shard" || kind == "mps" || (kind != "gpu" && one.find(',') != std::string_view::npos))
      return std::nullopt;
    if (kind != "gpu") continue;
    const std::size_t indices = one.find("(IDX:");
    if (indices == std::string_view::npos) return std::nullopt;
    const std::string_view before = one.substr(0, indices);
    const auto count = to_unsigned(before.substr(before.rfind(':') + 1));
    const auto numbers = parse_gpu_numbers(one.substr(indices + 5));
    if (!count || !numbers || numbers->size() != *count) return std::nullopt;
    gpus.insert(gpus.end(), numbers->begin(), numbers->end());
  }
  std::ranges::sort(gpus);
  if (std::ranges::adjacent_find(gpus) != gpus.end()) return std::nullopt;
  return gpus;
}

// "gpu:a100:4(S:0-1),gpu:t4:2(S:0,1),shard:8", "(null)". Nothing: it is not understood.
std::optional<unsigned> read_gres_count(std::string_view text) {
  if (text == "(null)") return 0;
  std::string plain;
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' ? 1 : 0;
    if (depth == 0) plain += c;
    depth -= c == ')' ? 1 : 0;
  }
  std::uint64_t gpus = 0;
  for (const std::string_view one : split(plain, ',')) {
    if (one.substr(0, one.find(':')) != "gpu") continue;
    const auto count = to_unsigned(one.substr(one.rfind(':') + 1));
    if (!count || *count > 4096) return std::nullopt;
    gpus += *count;
  }
  return depth == 0 ? std::optional(static_cast<unsigned>(gpus)) : std::nullopt;
}

}  // namespace

Command running_jobs_command() { return list_command({format_option(kJobFields)}); }

Result<std::vector<RunningJob>> read_running_jobs(std::string_view output) {
  std::vector<RunningJob> jobs;
  std::set<std::uint64_t> met;
  for (const std::string_view line : split(output, '\n')) {
    if (trim(line).empty() || line.starts_with("squeue:")) continue;  // a warning
    const auto cells = cells_of(line, kJobFields);
    const auto strange = [&] {
      return fail(fmt::format("squeue: '{}' is not a job line", printable(trim(line).substr(0, 80))));
    };
    const auto number = to_unsigned(cells[0]);
    const auto restarts = to_unsigned(cells[1]);
    const auto uid = to_unsigned(cells[2]);
    const auto start = read_seconds(cells[4]);
    if (!number || *number == 0 || !restarts || *restarts > kMostRestarts || !uid || *uid > 0xFFFFFFFEU || !start)
      return strange();
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (cells[i].size() >= kJobFields[i].width) return strange();
    if (!met.insert(*number).second) return fail(fmt::format("squeue has two jobs {}", *number));
    RunningJob job{.job = *number,
                   .restarts = static_cast<unsigned>(*restarts),
                   .uid = static_cast<uid_t>(*uid),
                   .user = name_or_none(cells[3]),
                   .start = *start,
                   .het_job = to_unsigned(cells[5]).value_or(0),
                   .partition = name_or_none(cells[6]),
                   .qos = name_or_none(cells[7]),
                   .account = name_or_none(cells[8])};
    if (job.het_job != 0) {
      const auto all = parse_node_list(fmt::format("[{}]", cells[9]));
      if (!all) return strange();
      for (const std::string& one : *all) job.het_components.push_back(to_unsigned(one).value_or(0));
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

Command job_nodes_command(std::uint64_t job) {
  return list_command({"--jobs=" + std::to_string(job), format_option(kNodesFields)});
}

Result<std::vector<std::string>> read_job_nodes(std::string_view output, const RunningJob& job) {
  std::optional<std::vector<std::string>> nodes;
  for (const std::string_view line : split(output, '\n')) {
    const auto cells = cells_of(line, kNodesFields);
    if (to_unsigned(cells[0]) != job.job) continue;  // another task of its array, another component
    if (nodes || to_unsigned(cells[1]) != job.restarts || cells[2].size() >= kNodesFields[2].width)
      return fail(fmt::format("squeue shows another run of job {}, or not all of its nodes", job.job));
    nodes = TRY(parse_node_list(cells[2]));
  }
  if (!nodes || nodes->empty()) return fail(fmt::format("job {} does not run any more", job.job));
  return *std::move(nodes);
}

Command job_details_command(std::uint64_t job) {
  return {"env", "SLURM_TIME_FORMAT=%s", "scontrol", "show", "job", "--details", std::to_string(job)};
}

Result<GivenGpus> read_job_details(std::string_view output, std::uint64_t job, const std::vector<std::string>& nodes) {
  const auto unclear = [&] {
    return fail(fmt::format("`scontrol show job -d {}` does not say which GPUs it has on which nodes", job));
  };
  GivenGpus given;
  std::map<std::string, std::vector<unsigned>> found;
  bool ours = false;
  unsigned records = 0;
  unsigned starts = 0;
  unsigned suspensions = 0;
  for (const std::string_view line : split(output, '\n')) {
    if (line.starts_with("JobId=")) {
      ours = to_unsigned(line.substr(6, line.find(' ') - 6)) == job;
      records += ours ? 1 : 0;
    }
    const std::string_view words = trim(line);
    if (!ours) continue;
    const bool begins = words.starts_with("StartTime=");
    if (begins || words.starts_with("SuspendTime=")) {
      ++(begins ? starts : suspensions);
      const std::size_t at = words.find('=') + 1;
      const std::string_view time = words.substr(at, words.find(' ') - at);
      const auto since = read_seconds(time);
      if (!since && (begins || time != "None")) return unclear();
      given.since = std::max(given.since, since.value_or(WallTime{}));
    }
    if (!words.starts_with("Nodes=")) continue;
    const std::size_t gres = words.rfind(" GRES=");
    const auto names = parse_node_list(words.substr(6, words.find(' ') - 6));
    if (gres == std::string_view::npos || !names) return unclear();
    const std::string_view text = words.substr(gres + 6);
    const auto gpus = text == "(null)" ? std::optional(std::vector<unsigned>()) : read_given_gpus(text);
    if (!gpus) return unclear();
    for (const std::string& name : *names)
      if (!found.emplace(name, *gpus).second) return unclear();
  }
  if (records != 1 || starts != 1 || suspensions != 1 || found.size() != nodes.size()) return unclear();
  for (const std::string& node : nodes) {
    const auto place = found.find(node);
    if (place == found.end()) return unclear();
    for (const unsigned gpu : place->second) given.gpus.emplace_back(node, gpu);
  }
  return given;
}

Command node_gpus_command(const std::vector<std::string>& nodes) {
  return {"sinfo", "--noheader", "--Node", fmt::format("--nodes={}", fmt::join(nodes, ",")),
          format_option(kNodeFields)};
}

// A node is in as many lines as it has partitions.
Result<std::map<std::string, unsigned>> read_node_gpus(std::string_view output, const std::vector<std::string>& nodes) {
  std::map<std::string, unsigned> counts;
  for (const std::string_view line : split(output, '\n')) {
    const auto cells = cells_of(line, kNodeFields);
    if (std::ranges::find(nodes, cells[0]) == nodes.end()) continue;  // a warning
    const auto count = cells[1].size() < kNodeFields[1].width ? read_gres_count(cells[1]) : std::nullopt;
    if (!count || counts.emplace(cells[0], *count).first->second != *count)
      return fail(fmt::format("sinfo does not say how many GPUs {} has", cells[0]));
  }
  for (const std::string& node : nodes)
    if (!counts.contains(node)) return fail(fmt::format("sinfo does not know the node {}", printable(node)));
  return counts;
}

}  // namespace lull::slurm
