#include "view/news.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

// One overload for each kind of news: the compiler finds the one that was forgotten.
struct ShortWord {
  std::string_view operator()(const Attempted&) const { return "act"; }
  std::string_view operator()(const Failed& failed) const { return failed.goes_on ? "hook" : "failed"; }
  std::string_view operator()(const Announced&) const { return "warn"; }
  std::string_view operator()(const Cancelled&) const { return "cancelled"; }
  std::string_view operator()(const NoLongerWanted&) const { return "called-off"; }
  std::string_view operator()(const Killing&) const { return "kill"; }
  std::string_view operator()(const WorksAgain&) const { return "called-off"; }
  std::string_view operator()(const TreeGone&) const { return "ended"; }
  std::string_view operator()(const TreeStuck&) const { return "stuck"; }
  std::string_view operator()(const TreeUnproven&) const { return "unproven"; }
  std::string_view operator()(const EvidenceWritten&) const { return "evidence"; }
};

struct Sentence {
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
    return fmt::format("{} in {}; {} terminal{} told; `lull watch --cancel` calls it off", one.action,
                       format_duration(one.in), one.terminals, one.terminals == 1 ? "" : "s");
  }
  std::string operator()(const Cancelled& cancelled) const { return "cancelled by " + cancelled.who; }
  std::string operator()(const NoLongerWanted&) const {
    return "the GPUs are no longer idle (or cannot be read): called off";
  }
  std::string operator()(const Killing& killing) const {
    return fmt::format("still there after {}: SIGKILL to {} process{}", format_duration(killing.grace),
                       killing.processes, killing.processes == 1 ? "" : "es");
  }
  std::string operator()(const WorksAgain&) const { return "it works again: not killed, and watched on"; }
  std::string operator()(const TreeGone&) const { return "the job and all its processes are gone"; }
  std::string operator()(const TreeStuck& stuck) const { return "cannot be ended: " + stuck.left; }
  std::string operator()(const TreeUnproven& unproven) const { return unproven.trouble; }
  std::string operator()(const EvidenceWritten& evidence) const {
    if (evidence.folder.empty()) return "no evidence could be written: " + printable(evidence.trouble);
    if (evidence.trouble.empty()) return "evidence is in " + printable(evidence.folder);
    return "the evidence is not complete: " + printable(evidence.trouble);
  }
};

struct Weight {
  Level operator()(const Failed&) const { return Level::warning; }
  Level operator()(const Announced&) const { return Level::important; }
  Level operator()(const Cancelled&) const { return Level::important; }
  Level operator()(const WorksAgain&) const { return Level::important; }
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

std::string_view event_word(const News& news) { return std::visit(ShortWord{}, news); }
std::string to_words(const News& news) { return std::visit(Sentence{}, news); }
Level level_of(const News& news) { return std::visit(Weight{}, news); }

std::string would_text(const std::vector<ActionWord>& actions) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kVerbs = {
      {{"shutdown", "shut down"},
       {"exit=", "exit with "},
       {"kill=holders", "end its holders"},
       {"kill=", "kill "},
       {"exec=", "run "},
       {"notify=", "notify "},
       {"determined", "end the Determined task"}}};
  std::string text;
  for (const ActionWord& action : actions) {
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
