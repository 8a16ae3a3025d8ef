#include "act/python_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/text.h"

namespace lull {
namespace {

// What two processes must have in common to be alike: the frames of all their threads, not who they are.
std::vector<std::vector<PythonFrame>> shape_of(const PythonProcess& process) {
  std::vector<std::vector<PythonFrame>> shape;
  for (const PythonThread& one : process.threads) shape.push_back(one.frames);
  if (!shape.empty())
    std::ranges::sort(shape.begin() + 1, shape.end(), {},
                      [](const auto& frames) { return frames.empty() ? std::string() : frames.front().text(); });
  return shape;
}

// One that the job was started as: its launcher has no rank, and helpers that it starts, such as those that load data,
// have the rank of their parent.
bool is_rank(const PythonProcess& process, const std::vector<PythonProcess>& all) {
  return !process.rank.empty() && std::ranges::none_of(all, [&](const PythonProcess& one) {
    return one.pid == process.parent && one.rank == process.rank;
  });
}

struct Group {
  bool ranks = false;
  std::vector<std::vector<PythonFrame>> shape;
  std::vector<std::size_t> members;
};

// Alike ones together: ranks first, and of these the smallest group, which is who to look at.
std::vector<Group> groups_of(const std::vector<PythonProcess>& processes) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    Group one{is_rank(processes[i], processes), shape_of(processes[i]), {i}};
    const auto found = std::ranges::find_if(
        groups, [&](const Group& group) { return group.ranks == one.ranks && group.shape == one.shape; });
    if (found != groups.end()) {
      found->members.push_back(i);
    } else {
      groups.push_back(std::move(one));
    }
  }
  std::ranges::stable_sort(groups, {},
                           [](const Group& group) { return std::pair(!group.ranks, group.members.size()); });
  return groups;
}

// Those that are compared with each other: of ranks, or of all where there are none.
std::span<const Group> compared(const std::vector<Group>& groups) {
  const auto end = std::ranges::find_if_not(groups, &Group::ranks);
  return end == groups.begin() ? std::span(groups) : std::span(groups.begin(), end);
}

// Few differ from the rest: they are who the others wait for.
bool few_differ(std::span<const Group> groups) {
  return groups.size() > 1 && groups.front().members.size() * 2 <= groups.back().members.size();
}

// Of Python itself, or installed with it.
bool is_library(std::string_view file) {
  return file.contains("/lib/python3") || file.contains("/site-packages/") || file.contains("/dist-packages/") ||
         file.starts_with('<');
}

std::string called(const PythonProcess& process) {
  return process.rank.empty() ? fmt::format("process {}", process.pid)
                              : fmt::format("rank {} (process {})", process.rank, process.pid);
}

std::string stacks_text(const PythonProcess& process) {
  std::string text;
  for (const PythonThread& thread : process.threads) {
    text += fmt::format("thread {} {}{}{}\n", thread.id, printable(thread.name),
                        thread.waits_in.empty() ? "" : ", waiting in " + printable(thread.waits_in),
                        thread.changing ? " (it ran while it was read)" : "");
    for (const PythonFrame& frame : thread.frames)
      text += fmt::format("    {}{} in {}\n", printable(frame.file),
                          frame.line > 0 ? fmt::format(":{}", frame.line) : "", printable(frame.function));
    if (thread.cut) text += "    …\n";
  }
  return text;
}

}  // namespace

std::string where_text(const PythonProcess& process) {
  if (process.threads.empty() || process.threads.front().frames.empty()) return "";
  const PythonThread& main = process.threads.front();
  // A line of the program itself says more than one of a library that it calls.
  const auto own =
      std::ranges::find_if_not(main.frames, [](const PythonFrame& frame) { return is_library(frame.file); });
  const PythonFrame& frame = own != main.frames.end() ? *own : main.frames.front();
  std::string more = process.rank.empty() ? "" : "rank " + process.rank;
  if (!main.waits_in.empty())
    more += (more.empty() ? "" : ", ") + ("waiting in " + printable(main.waits_in.substr(0, main.waits_in.find(" ("))));
  return frame.text() + (more.empty() ? "" : " (" + more + ")");
}

std::string where_text(const std::vector<PythonProcess>& processes) {
  const auto all = groups_of(processes);
  const auto groups = compared(all);
  if (groups.empty()) return "";
  const std::vector<std::size_t>& most = groups.back().members;
  const PythonProcess& usual = processes[most.front()];
  if (!few_differ(groups)) {
    const std::string where = where_text(usual);
    return where.empty() ? "" : "at " + where;
  }
  const PythonProcess& first = processes[groups.front().members.front()];
  const std::string where = where_text(first);
  if (where.empty()) return "";
  return fmt::format("{} is at {}, {} others at {}", called(first), where, most.size(), where_text(usual));
}

std::string job_is(const std::string& where) { return where.starts_with("at ") ? "the job is " + where : where; }

std::vector<PythonGroup> python_groups(const std::vector<PythonProcess>& processes) {
  std::vector<PythonGroup> found;
  const auto groups = groups_of(processes);
  const auto those = compared(groups);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::vector<std::size_t>& members = groups[i].members;
    PythonGroup one{.processes = members.size(), .differs = few_differ(those) && i + 1 < those.size()};
    for (const std::size_t member : members) one.who += (one.who.empty() ? "" : ", ") + called(processes[member]);
    one.stacks = stacks_text(processes[members.front()]);
    found.push_back(std::move(one));
  }
  return found;
}

std::string python_report(const std::vector<PythonProcess>& processes) {
  std::string report;
  for (const PythonGroup& group : python_groups(processes))
    report += fmt::format("==> {} of {} Python processes: {} <==\n{}\n", group.processes, processes.size(), group.who,
                          group.stacks);
  return report;
}

}  // namespace lull
