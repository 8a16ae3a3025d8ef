// Which container a process is in, by the path of its cgroup: each runtime has its own habit.
#include <array>

#include "base/text.h"
#include "sense/processes.h"

namespace lull {
namespace {

bool hex(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
bool digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// docker-<id>.scope, cri-containerd-<id>.scope, libpod-<id>.scope, crio-<id>.scope, <id>, libpod-payload-<id>.
std::string_view container_id(std::string_view part) {
  if (part.ends_with(".scope")) part.remove_suffix(6);
  const std::size_t dash = part.rfind('-');
  const std::string_view id = dash == std::string_view::npos ? part : part.substr(dash + 1);
  return id.size() == 64 && hex(id) ? id.substr(0, 12) : std::string_view();
}

// Names instead of numbers: lxc.payload.NAME, lxc/NAME, machine-NAME.scope.
std::string_view named_container(std::string_view before, std::string_view part) {
  constexpr std::string_view kLxc = "lxc.payload.";
  if (part.starts_with(kLxc)) return part.substr(kLxc.size());
  if (before == "lxc") return part;
  if (before == "machine.slice" && part.starts_with("machine-") && part.ends_with(".scope"))
    return part.substr(8, part.size() - 8 - 6);
  return {};
}

}  // namespace

std::string cgroup_path(std::string_view text) {
  std::string_view unified;
  std::string_view longest;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view path = line.substr(second + 1);
    if (line.starts_with("0::")) unified = path;
    // Where several controllers have hierarchies of their own, the deepest path says most.
    if (path.size() > longest.size()) longest = path;
  }
  return std::string(unified.size() > 1 ? unified : longest.size() > 1 ? longest : unified);
}

std::string container_of(std::string_view cgroup) {
  std::string_view before;
  std::string_view job;
  std::string_view named;
  std::string_view id;
  for (const std::string_view part : split(cgroup, '/')) {
    if (const std::string_view found = container_id(part); !found.empty()) id = found;  // the innermost
    if (const std::string_view found = named_container(before, part); !found.empty()) named = found;
    if (part.starts_with("job_") && digits(part.substr(4)) && cgroup.find("slurm") != std::string_view::npos)
      job = part.substr(4);
    before = part;
  }
  if (!id.empty()) return std::string(id);
  if (!named.empty()) return std::string(named);
  return job.empty() ? "" : "slurm:" + std::string(job);
}

}  // namespace lull
