#include "jobs/also.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "act/cgroup.h"
#include "base/text.h"
#include "base/users.h"
#include "jobs/gpu_users.h"
#include "sense/processes.h"

namespace lull {
namespace {

constexpr std::size_t kContainerDigits = 12;  // as docker ps shows them
constexpr std::size_t kMostContainerDigits = 64;
constexpr std::size_t kMostPidDigits = 9;

bool all_of(std::string_view text, std::string_view letters) {
  return !text.empty() && text.find_first_not_of(letters) == std::string_view::npos;
}

// "/sys/fs/cgroup/system.slice/ray.service/" → "/system.slice/ray.service".
Result<std::string> cgroup_name(std::string_view text, const Root& root) {
  std::string path(text);
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (const auto mounts = read_file(root.proc + "/self/mountinfo"))
    if (const auto top = find_own_cgroup(*mounts, "0::/"); top && is_in_folder(path, *top)) path.erase(0, top->size());
  if (path.empty() || path == "/") return fail("that is everything; name a cgroup below it");
  if (!path.starts_with('/')) path.insert(0, "/");
  return path;
}

}  // namespace

Result<Also> Also::parse(const std::vector<std::string>& words, const Root& root) {
  Also also;
  also.root_ = root;
  for (const std::string& word : words) {
    Item item;
    item.text = word;
    const auto wrong = [&](const std::string& why) { return fail("--also '" + printable(word) + "': " + why); };
    if (all_of(word, "0123456789") && word.size() <= kMostPidDigits) {
      const auto pid = to_pid(word);
      if (!pid) return wrong("there is no such process");
      auto process = Process::open(*pid);
      if (!process || process->ended()) return wrong("there is no such process");
      item.process = *std::move(process);
      item.tree = Tree::of_process(item.process);
    } else if (all_of(word, "0123456789abcdefABCDEF") && word.size() >= kContainerDigits &&
               word.size() <= kMostContainerDigits) {
      item.kind = Kind::container;
      item.name = lowered(word.substr(0, kContainerDigits));
    } else if (word.find('/') != std::string::npos || word.ends_with(".slice") || word.ends_with(".scope") ||
               word.ends_with(".service")) {
      item.kind = Kind::cgroup;
      auto name = cgroup_name(word, root);
      if (!name) return wrong(name.error().what);
      item.name = *std::move(name);
    } else {
      return wrong("a process number, the path of a cgroup or 12 digits of a container's id would be right");
    }
    also.items_.push_back(std::move(item));
  }
  return also;
}

// A container by its digits: made by root or by us. Another user could have chosen the same digits.
bool Also::holds(const Item& item, pid_t pid, const std::string& cgroups) const {
  if (item.kind == Kind::cgroup)
    return std::ranges::any_of(cgroup_lines(cgroups),
                               [&](const CgroupLine& line) { return is_in_folder(line.path, item.name); });
  for (const Container& found : find_containers(root_, pid).value_or(std::vector<Container>())) {
    if (found.kind != CgroupKind::container || found.name != item.name) continue;
    if (found.by_root()) return true;
    const auto user = process_user(root_, pid);
    return user && found.may_hold(*user) && belongs_to(*user, ::geteuid());
  }
  return false;
}

bool Also::contains(pid_t pid) const {
  std::optional<Result<std::string>> cgroups;
  for (const Item& item : items_) {
    if (item.kind == Kind::process) {
      if (item.tree.contains(pid)) return true;
      continue;
    }
    if (!cgroups) cgroups = read_cgroups(pid, root_);
    if (!*cgroups) return false;  // it has ended
    if (holds(item, pid, **cgroups)) return true;
  }
  return false;
}

std::vector<ProcessEntry> Also::members() const {
  std::vector<ProcessEntry> found;
  std::unordered_set<pid_t> seen;
  const auto add = [&](const ProcessEntry& one) {
    if (one.ended() || one.pid == ::getpid() || is_own_process(one.pid, one.start_ticks)) return;
    if (seen.insert(one.pid).second) found.push_back(one);
  };
  const auto by_cgroup = [](const Item& item) { return item.kind != Kind::process; };
  for (const Item& item : items_)
    if (!by_cgroup(item))
      for (const ProcessEntry& one : item.tree.members(root_)) add(one);
  if (std::ranges::none_of(items_, by_cgroup)) return found;
  for (const ProcessEntry& one : read_all_processes(root_)) {
    if (one.kernel_thread) continue;
    const auto cgroups = read_cgroups(one.pid, root_);
    if (cgroups && std::ranges::any_of(
                       items_, [&](const Item& item) { return by_cgroup(item) && holds(item, one.pid, *cgroups); }))
      add(one);
  }
  return found;
}

std::vector<std::string> Also::nobody_in() const {
  std::vector<std::string> texts;
  const std::vector<ProcessEntry> all = read_all_processes(root_);
  for (const Item& item : items_) {
    if (item.kind == Kind::process) continue;
    const bool somebody = std::ranges::any_of(all, [&](const ProcessEntry& one) {
      const auto cgroups = one.kernel_thread || one.ended() ? fail("") : read_cgroups(one.pid, root_);
      return cgroups && holds(item, one.pid, *cgroups);
    });
    if (!somebody) texts.push_back(item.text);
  }
  return texts;
}

std::vector<std::string> Also::take_ended() {
  std::vector<std::string> texts;
  for (Item& item : items_) {
    // Its tree is looked at while it lives: who loses its parent is known by then.
    if (item.kind != Kind::process || item.ended || !item.tree.members(root_).empty() || !item.process.ended())
      continue;
    item.ended = true;
    texts.push_back(item.text);
  }
  return texts;
}

bool Also::over() const {
  return !items_.empty() && std::ranges::all_of(items_, [](const Item& item) { return item.ended; });
}

}  // namespace lull
