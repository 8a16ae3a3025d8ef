#pragma once
// The facts of a firing, as a hook, a receiver of notify= and a folder of evidence get
// them: as JSON (field names carry their unit, unknown is null) and as environment.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/process.h"
#include "gpu/snapshot.h"
#include "rule/reason.h"

namespace lull {

// One process of the job, as it is when the rule fires.
struct MemberView {
  ProcessEntry entry;
  unsigned depth = 0;
  std::optional<double> cpu_percent;  // since the last sample
  std::string waiting_in;             // the kernel's wchan; empty: runs, or not ours to see
  std::string command;                // not yet made printable
  bool unread = false;                // the kernel did not tell the last two in time
};
// `before`: the same members one sample ago, `seconds` earlier. What may hang is asked aside, and
// left out where it does not come in time.
std::vector<MemberView> view_members(const std::vector<ProcessEntry>& members, const std::vector<ProcessEntry>& before,
                                     double seconds, const Root& root = {});
// The same of processes that use a GPU, each once: those that are identified, and are the same still.
std::vector<MemberView> view_processes(const std::vector<GpuProcess>& processes, const Root& root = {});
// Lines for a person, at most `most` of them.
std::vector<std::string> tree_lines(const std::vector<MemberView>& members, std::size_t most);

struct FiringFacts {
  std::string event;  // "idle", "max-time"
  Explanation why;
  WallTime at{};
  std::string action;  // what comes next, in words
  // What a notice says of that: what comes besides it, and what a later step would do. Nothing: the same.
  std::optional<std::string> announced = {};
  std::string keep = {};     // the command that asks for more time; empty: there is none
  std::string would = {};    // the same behind "would", where nothing is done
  std::optional<pid_t> job;  // pid of the command
  std::vector<std::string> command;
  std::vector<MemberView> members;
  Snapshot snapshot;  // what the rule fired on; ours, since samples come in while hooks and retries run
  std::vector<Device> scope;
  Facts job_facts;  // of that moment, too
  Facts machine;
  // Where each GPU or each job is judged by itself: which one this is about, and who holds its GPUs.
  std::string subject = {};   // "GPU 3", "job 4711 (python3)"; empty: all that is watched
  std::string job_name = {};  // "tree:4711"; empty: it is about a GPU
  std::vector<GpuProcess> holders = {};
  std::vector<std::string> users = {};  // whose it is, with processes or without
  std::string evidence = {};            // the page that shows it, or its folder; empty: there is none
};

// What comes next, for the users of the job.
inline std::string next_of(const FiringFacts& facts) { return facts.announced.value_or(facts.action); }
// How to get more time: the command that asks for it, or what helps instead if there is none.
std::string more_time_of(const FiringFacts& facts);
// "python3 4711 of ada, … and 3 more": who holds the GPUs, for a person.
std::string holders_text(const FiringFacts& facts);
std::string facts_json(const FiringFacts& facts, int indent = -1);
std::vector<std::pair<std::string, std::string>> facts_environment(const FiringFacts& facts);

}  // namespace lull
