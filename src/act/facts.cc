#include "act/facts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/calendar.h"
#include "base/host.h"
#include "base/json_writer.h"
#include "base/process_start.h"
#include "base/text.h"
#include "base/units.h"
#include "gpu/own_signal.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kDetailLimit = 200ms;   // of one process
constexpr Duration kDetailsLimit = 500ms;  // of all: the end of the job does not wait for more

std::string text(std::string_view bytes) { return printable(bytes); }

std::string_view state_text(char state) {
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

// "percent" of util_percent; nothing of what has no unit.
std::string_view unit_of(const MetricInfo& metric) {
  return metric.field.size() > metric.name.size() ? metric.field.substr(metric.name.size() + 1) : std::string_view();
}

void put_story(JsonWriter& json, const Story& story) {
  json.begin_object().member_or_null("gpu", story.gpu).member("signal", info(story.metric).name);
  json.member_or_null("unit", story.share ? "percent" : unit_of(info(story.metric)));
  json.member_or_null("percent_of",
                      story.share && info(story.metric).whole ? info(*info(story.metric).whole).name : "");
  json.member("first", story.first).member("last", story.last).member("worst", story.worst);
  json.member("worst_ago_seconds", to_seconds(story.worst_ago)).key("trace").begin_array();
  for (const float value : story.trace) json.value(value);
  json.end_array().end_object();
}

void put_gpu(JsonWriter& json, const Device& device, const Reading& reading, const FiringFacts& facts) {
  json.begin_object().member("gpu", device.label()).member("uuid", device.uuid);
  json.member("name", text(device.name)).member("pci", device.pci);
  for (const MetricInfo& row : kMetricTable)
    if (const Facts& from = facts_with(row.metric, reading, facts.job_facts, facts.machine);
        from.why_missing(row.metric) != Absence::not_asked)
      json.member(row.field, from[row.metric]);
  for (const MetricInfo& row : own_signals())
    if (facts.machine.why_missing(row.metric) != Absence::not_asked) json.member(row.field, facts.machine[row.metric]);
  json.end_object();
}

void put_member(JsonWriter& json, const MemberView& member) {
  json.begin_object().member("pid", member.entry.pid).member("parent", member.entry.parent);
  json.member("state", std::string(1, member.entry.state)).member_or_null("waiting_in", text(member.waiting_in));
  json.member("cpu_percent", member.cpu_percent);
  json.member("command", member.unread ? std::nullopt : std::optional(text(member.command))).end_object();
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
  const auto details = run_each_with_timeout(
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

std::vector<MemberView> view_processes(const std::vector<GpuProcess>& processes, const Root& root) {
  std::vector<ProcessEntry> entries;
  for (const GpuProcess& one : processes) {
    if (!one.identified || std::ranges::find(entries, one.pid, &ProcessEntry::pid) != entries.end()) continue;
    auto entry = read_process_entry(one.pid, root);
    if (entry && entry->start_ticks == one.start_ticks) entries.push_back(*std::move(entry));
  }
  return view_members(entries, {}, 0, root);
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
                    printable(std::string_view(one.command).substr(0, 200)), state_text(one.entry.state));
    if (!one.waiting_in.empty()) line += fmt::format(" in {}", printable(one.waiting_in));
    if (one.cpu_percent) line += fmt::format(", {:.0f} % CPU", *one.cpu_percent);
    if (one.unread) line += ", its command line was not read in time";
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string more_time_of(const FiringFacts& facts) {
  if (!facts.keep.empty()) return "`" + facts.keep + "`";
  const std::string work = "work on the GPUs calls off what has not begun; ";
  if (facts.job) return work + "for longer pauses start it with a longer idle time";
  return work + fmt::format("`kill {}` ends this watcher", ::getpid());
}

std::string holders_text(const FiringFacts& facts) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(facts.holders.size(), kMost); ++i)
    text += fmt::format("{}{} {} of {}", i == 0 ? "" : ", ", printable(facts.holders[i].name()), facts.holders[i].pid,
                        printable(facts.holders[i].user()));
  if (facts.holders.size() > kMost) text += fmt::format(" and {} more", facts.holders.size() - kMost);
  return text;
}

std::string facts_json(const FiringFacts& facts, int indent) {
  JsonWriter json(indent);
  json.begin_object().member("event", facts.event).member("time", format_rfc3339(facts.at));
  json.member("host", host_name()).member("action", facts.action).member_or_null("next", next_of(facts));
  json.member_or_null("keep", facts.keep).member_or_null("more_time", more_time_of(facts));
  json.member_or_null("evidence_page", text(facts.evidence));
  json.member("headline", headline(facts.why)).member("rule", facts.why.rule);
  json.member_or_null("arm", facts.why.arm).member("gpus", facts.why.gpus);
  json.member("since", format_rfc3339(facts.why.since)).member("held_seconds", to_seconds(facts.why.held));
  json.member("samples", facts.why.samples).key("evidence").begin_array();
  for (const Story& story : facts.why.stories) put_story(json, story);
  json.end_array().key("readings").begin_array();
  if (facts.snapshot.inventory)
    for (const Device& device : facts.scope)
      if (const Reading* reading = facts.snapshot.find(device.id())) put_gpu(json, device, *reading, facts);
  json.end_array();
  if (facts.job) {
    json.key("job").begin_object().member("pid", *facts.job).key("command").begin_array();
    for (const std::string& word : facts.command) json.value(text(word));
    json.end_array().end_object();
  }
  if (!facts.subject.empty()) {
    json.member("subject", facts.subject).member_or_null("job_name", facts.job_name).key("holders").begin_array();
    for (const GpuProcess& one : facts.holders)
      json.begin_object()
          .member("pid", one.pid)
          .member("user", text(one.user()))
          .member("name", text(one.name()))
          .end_object();
    json.end_array();
  }
  json.key("processes").begin_array();
  for (const MemberView& member : facts.members) put_member(json, member);
  return json.end_array().end_object().take();
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
      {"LULL_HELD_SECONDS", fmt::format("{:.3f}", to_seconds(facts.why.held))},
      {"LULL_SINCE", format_rfc3339(facts.why.since)},
      {"LULL_TIME", format_rfc3339(facts.at)},
      {"LULL_ACTION", facts.action},
      {"LULL_HOST", host_name()},
      {"LULL_NEXT", next_of(facts)},
      {"LULL_KEEP", facts.keep},
      {"LULL_MORE_TIME", more_time_of(facts)},
      {"LULL_EVIDENCE", facts.evidence},
  };
  if (facts.job) environment.emplace_back("LULL_JOB_PID", std::to_string(*facts.job));
  if (facts.subject.empty()) return environment;
  std::vector<std::string> pids;
  std::vector<std::string> users;
  for (const GpuProcess& one : facts.holders) {
    pids.push_back(std::to_string(one.pid));
    if (std::ranges::find(users, one.user()) == users.end()) users.push_back(one.user());
  }
  if (users.empty()) users = facts.users;  // an allocation without processes
  environment.emplace_back("LULL_GPU", facts.why.gpus.empty() ? "" : facts.why.gpus.front());
  environment.emplace_back("LULL_JOB", facts.job_name);
  environment.emplace_back("LULL_JOB_ID", facts.job_name.substr(facts.job_name.find(':') + 1));  // as scontrol takes it
  environment.emplace_back("LULL_PIDS", joined(pids, " "));
  environment.emplace_back("LULL_USERS", joined(users, ","));
  return environment;
}

}  // namespace lull
