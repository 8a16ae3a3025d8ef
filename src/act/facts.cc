#include "act/facts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/calendar.h"
#include "base/errand.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;

constexpr Duration kDetailLimit = 200ms;   // of one process
constexpr Duration kDetailsLimit = 500ms;  // of all: the end of the job does not wait for more

Json number(double value) { return std::isnan(value) ? Json(nullptr) : Json(value); }
double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
std::string text(std::string_view bytes) { return printable(bytes); }

std::string_view state_words(char state) {
  switch (state) {
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "in the kernel, uninterruptible";
    case 'T': return "stopped";
    case 't': return "being traced";
    case 'Z': return "zombie";
    case 'I': return "idle";
    default: return "?";
  }
}

// What may hang: the kernel looks into the memory of the process for its command line.
std::string details_of(const Root& root, const ProcessEntry& entry) {
  const std::string folder = root.proc + "/" + std::to_string(entry.pid);
  const auto place = read_file(AT_FDCWD, folder + "/wchan", 256);
  const auto line = read_file(AT_FDCWD, folder + "/cmdline", 4096);
  return (place && *place != "0" ? *place : "") + "\n" + line.value_or("");
}

void add_details(MemberView& view, const std::optional<std::string>& details) {
  view.command = "[" + view.entry.name + "]";
  view.unread = !details;
  if (!details) return;
  const std::size_t end = details->find('\n');
  view.waiting_in = details->substr(0, end);
  std::string line = end == std::string::npos ? "" : details->substr(end + 1);
  if (line.ends_with('\0')) line.pop_back();
  std::ranges::replace(line, '\0', ' ');
  if (!line.empty()) view.command = std::move(line);
}

Json story_json(const Story& story) {
  Json trace = Json::array();
  for (const float value : story.trace) trace.push_back(number(value));
  return {{"gpu", story.gpu.empty() ? Json(nullptr) : Json(story.gpu)},
          {"signal", std::string(info(story.metric).name)},
          {"unit", story.share ? "percent of its whole" : std::string(info(story.metric).field)},
          {"first", number(story.first)},
          {"last", number(story.last)},
          {"worst", number(story.worst)},
          {"worst_ago_seconds", seconds(story.worst_ago)},
          {"trace", std::move(trace)}};
}

Json gpu_json(const Device& device, const Reading& reading, const FiringFacts& facts) {
  Json json{{"gpu", device.label()}, {"uuid", device.uuid}, {"name", text(device.name)}, {"pci", device.pci}};
  for (const MetricInfo& row : kMetricTable)
    if (const Facts& from = facts_with(row.metric, reading, facts.job_facts, facts.machine);
        from.why_missing(row.metric) != Absence::not_asked)
      json[std::string(row.field)] = number(from[row.metric]);
  return json;
}

Json member_json(const MemberView& member) {
  return {{"pid", member.entry.pid},
          {"parent", member.entry.parent},
          {"state", std::string(1, member.entry.state)},
          {"waiting_in", member.waiting_in.empty() ? Json(nullptr) : Json(text(member.waiting_in))},
          {"cpu_percent", member.cpu_percent ? Json(*member.cpu_percent) : Json(nullptr)},
          {"command", member.unread ? Json(nullptr) : Json(text(member.command))}};
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  return fmt::format("{}", fmt::join(words, between));
}

}  // namespace

std::vector<MemberView> view_members(const std::vector<ProcessEntry>& members, const std::vector<ProcessEntry>& before,
                                     double elapsed, const Root& root) {
  std::map<pid_t, const ProcessEntry*> old;
  for (const ProcessEntry& one : before) old[one.pid] = &one;
  std::map<pid_t, unsigned> depths;
  std::vector<MemberView> views;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto details = ask_each(
      members.size(), [&](std::size_t i) { return details_of(root, members[i]); }, kDetailLimit, kDetailsLimit);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const ProcessEntry& one = members[i];
    MemberView view;
    view.entry = one;
    add_details(view, details[i]);
    if (const auto parent = depths.find(one.parent); parent != depths.end()) view.depth = parent->second + 1;
    depths[one.pid] = view.depth;
    const auto found = old.find(one.pid);
    if (elapsed > 0 && found != old.end() && found->second->start_ticks == one.start_ticks)
      view.cpu_percent = 100 * static_cast<double>(one.cpu_ticks - found->second->cpu_ticks) / ticks / elapsed;
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<std::string> tree_lines(const std::vector<MemberView>& members, std::size_t most) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i == most && members.size() > most) {
      lines.push_back(fmt::format("… and {} more", members.size() - most));
      break;
    }
    const MemberView& one = members[i];
    std::string line =
        fmt::format("{:{}}{} {}: {}", "", 2 * std::min(one.depth, 12U), one.entry.pid,
                    printable(std::string_view(one.command).substr(0, 200)), state_words(one.entry.state));
    if (!one.waiting_in.empty()) line += fmt::format(" in {}", printable(one.waiting_in));
    if (one.cpu_percent) line += fmt::format(", {:.0f} % CPU", *one.cpu_percent);
    if (one.unread) line += ", its command line was not read in time";
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string facts_json(const FiringFacts& facts, int indent) {
  Json json{{"event", facts.event},
            {"time", format_rfc3339(facts.at)},
            {"action", facts.action},
            {"headline", headline(facts.why)},
            {"rule", facts.why.rule},
            {"arm", facts.why.arm.empty() ? Json(nullptr) : Json(facts.why.arm)},
            {"gpus", facts.why.gpus},
            {"since", format_rfc3339(facts.why.since)},
            {"held_seconds", seconds(facts.why.held)},
            {"samples", facts.why.samples}};
  json["evidence"] = Json::array();
  for (const Story& story : facts.why.stories) json["evidence"].push_back(story_json(story));
  json["readings"] = Json::array();
  if (facts.snapshot.inventory)
    for (const Device& device : facts.scope)
      if (const Reading* reading = facts.snapshot.find(device.id()))
        json["readings"].push_back(gpu_json(device, *reading, facts));
  if (facts.job) {
    json["job"] = {{"pid", *facts.job}, {"command", Json::array()}};
    for (const std::string& word : facts.command) json["job"]["command"].push_back(text(word));
  }
  json["processes"] = Json::array();
  for (const MemberView& member : facts.members) json["processes"].push_back(member_json(member));
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::vector<std::pair<std::string, std::string>> facts_environment(const FiringFacts& facts) {
  std::vector<std::string> uuids;
  // The rule may hold for some of the GPUs in scope only: a hook acts on what is named here.
  for (const Device& device : facts.scope)
    if (std::ranges::find(facts.why.ids, device.id()) != facts.why.ids.end()) uuids.push_back(device.uuid);
  std::vector<std::pair<std::string, std::string>> environment = {
      {"LULL_EVENT", facts.event},
      {"LULL_RULE", facts.why.rule},
      {"LULL_REASON", headline(facts.why)},
      {"LULL_GPUS", joined(facts.why.gpus, ",")},
      {"LULL_GPU_UUIDS", joined(uuids, ",")},
      {"LULL_HELD_SECONDS", fmt::format("{:.3f}", seconds(facts.why.held))},
      {"LULL_SINCE", format_rfc3339(facts.why.since)},
      {"LULL_TIME", format_rfc3339(facts.at)},
      {"LULL_ACTION", facts.action},
  };
  if (facts.job) environment.emplace_back("LULL_JOB_PID", std::to_string(*facts.job));
  return environment;
}

}  // namespace lull
