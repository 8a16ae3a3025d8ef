#include "slurm/running_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/text.h"
#include "base/units.h"
#include "slurm/allocation.h"
#include "slurm/node_list.h"

namespace lull::slurm {
namespace {

struct ListField {
  std::string_view name;
  std::size_t width;
};
// No field that a user can choose. A cell as wide as its field may have been cut off.
constexpr std::array kListFields = {
    ListField{"JobID", 24},     ListField{"RestartCnt", 16},   ListField{"UserID", 16},    ListField{"UserName", 64},
    ListField{"StartTime", 24}, ListField{"HetJobID", 24},     ListField{"Partition", 64}, ListField{"QOS", 64},
    ListField{"Account", 64},   ListField{"HetJobIDSet", 512},
};
constexpr std::array kNodesFields = {ListField{"JobID", 24}, ListField{"RestartCnt", 16}, ListField{"NodeList", 8192}};
constexpr std::uint64_t kMostRestarts = 1'000'000'000;
constexpr std::int64_t kLatest = 1LL << 33;  // seconds since 1970 that Slurm can mean

// Times as seconds since 1970, whatever the zone and the settings of whoever runs us.
template <std::size_t N>
Command list_command(const std::array<ListField, N>& fields, std::vector<std::string> words) {
  Command command = {"env", "SLURM_TIME_FORMAT=%s", "squeue", "--noheader", "--states=RUNNING"};
  command.insert(command.end(), words.begin(), words.end());
  std::string format;
  for (const ListField& field : fields)
    format += fmt::format("{}{}:{}", format.empty() ? "" : ",", field.name, field.width);
  command.push_back("--Format=" + format);
  return command;
}

template <std::size_t N>
std::array<std::string_view, N> list_cells(std::string_view line, const std::array<ListField, N>& fields) {
  std::array<std::string_view, N> cells;
  std::size_t at = 0;
  for (std::size_t i = 0; i < N && at < line.size(); at += fields[i].width, ++i)
    cells[i] = trim(line.substr(at, fields[i].width));
  return cells;
}

std::optional<WallTime> read_seconds(std::string_view text) {
  const auto seconds = to_unsigned(text);
  if (!seconds || *seconds == 0 || *seconds > static_cast<std::uint64_t>(kLatest)) return std::nullopt;
  return WallTime(std::chrono::seconds(*seconds));
}

std::string name_of(std::string_view cell) { return cell == "(null)" || cell == "N/A" ? "" : std::string(cell); }

// "gpu:a100:2(IDX:0,3)", several with commas between; of other kinds nothing. Nothing: it is not understood.
std::optional<std::vector<unsigned>> read_given_gpus(std::string_view text) {
  std::vector<unsigned> gpus;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(')'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (text.starts_with(',')) text.remove_prefix(1);
    if (!one.starts_with("gpu:")) return std::nullopt;  // shards, MPS: which part of a GPU it has cannot be told
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

}  // namespace

Command running_jobs_command() { return list_command(kListFields, {}); }

Result<std::vector<RunningJob>> read_running_jobs(std::string_view output) {
  std::vector<RunningJob> jobs;
  std::set<std::uint64_t> met;
  for (const std::string_view line : split(output, '\n')) {
    if (trim(line).empty() || line.starts_with("squeue:")) continue;  // a warning
    const auto cells = list_cells(line, kListFields);
    const auto strange = [&] {
      return fail(fmt::format("squeue: '{}' is no line of a job", printable(trim(line).substr(0, 80))));
    };
    const auto number = to_unsigned(cells[0]);
    const auto restarts = to_unsigned(cells[1]);
    const auto uid = to_unsigned(cells[2]);
    const auto start = read_seconds(cells[4]);
    if (!number || *number == 0 || !restarts || *restarts > kMostRestarts || !uid || *uid > 0xFFFFFFFEU || !start)
      return strange();
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (cells[i].size() >= kListFields[i].width) return strange();
    if (!met.insert(*number).second) return fail(fmt::format("squeue has two jobs {}", *number));
    RunningJob job{.job = *number,
                   .restarts = static_cast<unsigned>(*restarts),
                   .uid = static_cast<uid_t>(*uid),
                   .user = name_of(cells[3]),
                   .start = *start,
                   .het_job = to_unsigned(cells[5]).value_or(0),
                   .partition = name_of(cells[6]),
                   .qos = name_of(cells[7]),
                   .account = name_of(cells[8])};
    if (job.het_job != 0) {
      const auto all = parse_node_list(fmt::format("[{}]", cells[9]));
      if (!all) return strange();
      for (const std::string& one : *all) job.het_components.push_back(to_unsigned(one).value_or(0));
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

Command job_nodes_command(std::uint64_t job) { return list_command(kNodesFields, {"--jobs=" + std::to_string(job)}); }

Result<std::vector<std::string>> read_job_nodes(std::string_view output, const RunningJob& job) {
  std::optional<std::vector<std::string>> nodes;
  for (const std::string_view line : split(output, '\n')) {
    const auto cells = list_cells(line, kNodesFields);
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
  unsigned suspensions = 0;
  for (const std::string_view line : split(output, '\n')) {
    if (line.starts_with("JobId=")) {
      ours = to_unsigned(line.substr(6, line.find(' ') - 6)) == job;
      records += ours ? 1 : 0;
    }
    const std::string_view words = trim(line);
    if (!ours) continue;
    if (words.starts_with("SuspendTime=")) {
      ++suspensions;
      const std::string_view time = words.substr(12, words.find(' ') - 12);
      given.resumed = read_seconds(time);
      if (!given.resumed && time != "None") return unclear();
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
  if (records != 1 || suspensions != 1 || found.size() != nodes.size()) return unclear();
  for (const std::string& node : nodes) {
    const auto place = found.find(node);
    if (place == found.end()) return unclear();
    for (const unsigned gpu : place->second) given.gpus.emplace_back(node, gpu);
  }
  return given;
}

}  // namespace lull::slurm
