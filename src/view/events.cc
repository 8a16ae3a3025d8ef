#include "view/events.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "act/python_report.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

// One overload for each kind of event: the compiler finds the one that was forgotten.
struct EventName {
  std::string_view operator()(const Fired&) const { return "fire"; }
  std::string_view operator()(const CalledOff&) const { return "called-off"; }
  std::string_view operator()(const TimeUp&) const { return "max-time"; }
  std::string_view operator()(const NoGpu&) const { return "no-gpu"; }
  std::string_view operator()(const GpuBack&) const { return "gpu-back"; }
  std::string_view operator()(const CannotJudge&) const { return "cannot-judge"; }
  std::string_view operator()(const CanJudge&) const { return "can-judge"; }
  std::string_view operator()(const Armed&) const { return "armed"; }
  std::string_view operator()(const Gap&) const { return "gap"; }
  std::string_view operator()(const ScopeChanged&) const { return "scope"; }
  std::string_view operator()(const NotJudged&) const { return "not-judged"; }
};

struct EventText {
  std::string operator()(const Fired& fired) const { return headline(fired.why); }
  std::string operator()(const CalledOff&) const { return "the GPUs are no longer idle (or cannot be read)"; }
  std::string operator()(const TimeUp& up) const { return "the job has run for " + format_duration(up.after); }
  std::string operator()(const NoGpu& none) const {
    std::string why = printable(none.driver.detail);
    if (why.empty())
      why =
          none.driver.absence != Absence::none ? std::string(to_string(none.driver.absence)) : "the driver shows none";
    return "no GPU can be read: " + why + "; nothing is judged, still looking";
  }
  std::string operator()(const GpuBack& back) const {
    return "GPUs can be read now" + (back.watched.empty() ? "" : ": watching " + gpus_text(back.watched));
  }
  std::string operator()(const CannotJudge& cannot) const { return missing_line(cannot.missing); }
  std::string operator()(const CanJudge&) const { return "the rule can be judged again"; }
  std::string operator()(const Armed& armed) const { return "armed: " + armed.rule; }
  std::string operator()(const Gap& gap) const {
    return "no sample for " + format_duration(std::chrono::floor<std::chrono::milliseconds>(gap.unseen)) +
           " (machine suspended or overloaded): the idle time starts again";
  }
  std::string operator()(const ScopeChanged& changed) const {
    return "now watching " + gpus_text(changed.scope.devices) + " (" + changed.scope.why + ")";
  }
  std::string operator()(const NotJudged& not_judged) const { return not_judged.why; }
};

// One overload for each kind of action event: the compiler finds the one that was forgotten.
struct ActionEventName {
  std::string_view operator()(const Attempted&) const { return "act"; }
  std::string_view operator()(const Failed& failed) const { return failed.goes_on ? "hook" : "failed"; }
  std::string_view operator()(const Announced&) const { return "warn"; }
  std::string_view operator()(const Cancelled&) const { return "cancelled"; }
  std::string_view operator()(const NoLongerWanted&) const { return "called-off"; }
  std::string_view operator()(const PutOff&) const { return "put-off"; }
  std::string_view operator()(const Killing&) const { return "kill"; }
  std::string_view operator()(const WorksAgain&) const { return "called-off"; }
  std::string_view operator()(const KillWaits&) const { return "kill-waits"; }
  std::string_view operator()(const TreeGone&) const { return "ended"; }
  std::string_view operator()(const TreeStuck&) const { return "stuck"; }
  std::string_view operator()(const TreeUnproven&) const { return "unproven"; }
  std::string_view operator()(const EvidenceWritten&) const { return "evidence"; }
};

struct ActionEventText {
  std::string operator()(const Attempted& attempt) const {
    return fmt::format("now: {}{}", printable(attempt.action),
                       attempt.number > 1 ? fmt::format(" (try {})", attempt.number) : "");
  }
  std::string operator()(const Failed& failed) const {
    const std::string then = failed.goes_on    ? ""
                             : failed.again_in ? fmt::format("; again in {}", format_duration(*failed.again_in))
                                               : "; given up";
    return fmt::format("{}: {}{}", printable(failed.action), printable(failed.trouble), then);
  }
  std::string operator()(const Announced& one) const {
    return fmt::format("{} in {}; {} terminal{} warned; `lull watch --cancel` cancels it", one.action,
                       format_duration(one.in), one.terminals, one.terminals == 1 ? "" : "s");
  }
  std::string operator()(const Cancelled& cancelled) const { return "cancelled by " + cancelled.who; }
  std::string operator()(const NoLongerWanted&) const {
    return "the GPUs are no longer idle (or cannot be read): called off";
  }
  std::string operator()(const PutOff& one) const {
    return fmt::format("{}: not now{}{}; again in {}", printable(one.action), one.why.empty() ? "" : ": ",
                       printable(one.why), format_duration(std::chrono::ceil<std::chrono::seconds>(one.again_in)));
  }
  std::string operator()(const Killing& killing) const {
    return fmt::format("still there after {}: SIGKILL to {} process{}", format_duration(killing.grace),
                       killing.processes, killing.processes == 1 ? "" : "es");
  }
  std::string operator()(const WorksAgain&) const { return "it works again: not killed, and watched on"; }
  std::string operator()(const KillWaits&) const {
    return "still there, and it is unknown whether it works: SIGKILL waits until the GPUs can be read";
  }
  std::string operator()(const TreeGone&) const { return "the job and all its processes are gone"; }
  std::string operator()(const TreeStuck& stuck) const { return "cannot be ended: " + stuck.left; }
  std::string operator()(const TreeUnproven& unproven) const { return unproven.trouble; }
  std::string operator()(const EvidenceWritten& evidence) const {
    if (evidence.folder.empty()) return "no evidence could be written: " + printable(evidence.trouble);
    const std::string where = evidence.where.empty() ? "" : "; " + job_is(evidence.where);
    const std::string place = printable(evidence.page.empty() ? evidence.folder : evidence.page);
    if (evidence.trouble.empty()) return "evidence is in " + place + where;
    return "the evidence in " + place + " is not complete: " + printable(evidence.trouble) + where;
  }
};

struct Weight {
  Level operator()(const Failed&) const { return Level::warning; }
  Level operator()(const Announced&) const { return Level::important; }
  Level operator()(const Cancelled&) const { return Level::important; }
  Level operator()(const PutOff& one) const { return one.first ? Level::note : Level::debug; }
  Level operator()(const WorksAgain&) const { return Level::important; }
  Level operator()(const KillWaits&) const { return Level::warning; }
  Level operator()(const TreeStuck&) const { return Level::warning; }
  Level operator()(const TreeUnproven&) const { return Level::warning; }
  Level operator()(const EvidenceWritten& evidence) const {
    return evidence.trouble.empty() ? Level::note : Level::warning;
  }
  template <class Other>
  Level operator()(const Other&) const {
    return Level::note;
  }
};

}  // namespace

std::string_view event_name(const Event& event) { return std::visit(EventName{}, event.what); }
std::string to_string(const Event& event) { return std::visit(EventText{}, event.what); }

bool is_trouble(const Event& event) {
  return std::holds_alternative<NoGpu>(event.what) || std::holds_alternative<CannotJudge>(event.what);
}

std::string gpus_text(const std::vector<Device>& devices) {
  std::string text;
  for (const Device& device : devices) text += (text.empty() ? "" : ", ") + device.label();
  return (devices.size() == 1 ? "GPU " : "GPUs ") + text;
}

// ---- actions

std::string_view event_name(const ActionEvent& action_event) { return std::visit(ActionEventName{}, action_event); }
std::string to_string(const ActionEvent& action_event) { return std::visit(ActionEventText{}, action_event); }
Level level_of(const ActionEvent& action_event) { return std::visit(Weight{}, action_event); }

std::string would_text(const std::vector<ActionOption>& actions) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kVerbs = {
      {{"shutdown", "shut down"},
       {"exit=", "exit with "},
       {"kill=holders", "end its holders"},
       {"kill=", "kill "},
       {"park=", "park "},
       {"exec=", "run "},
       {"notify=", "notify "},
       {"slurm=", ""},
       {"determined", "end the Determined task"}}};
  std::string text;
  for (const ActionOption& action : actions) {
    std::string_view rest = action.text;
    text += text.empty() ? "" : ", then ";
    for (const auto& [word, verb] : kVerbs)
      if (rest.starts_with(word)) {
        text += verb;
        rest.remove_prefix(word.size());
        break;
      }
    text += printable(rest);
  }
  return text;
}

}  // namespace lull
