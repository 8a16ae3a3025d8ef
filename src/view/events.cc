#include "view/events.h"

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
    return "nothing was seen for " + format_duration(std::chrono::floor<std::chrono::milliseconds>(gap.unseen)) +
           " (suspended, or starved): the count begins anew";
  }
  std::string operator()(const ScopeChanged& changed) const {
    return "now watching " + gpus_text(changed.scope.devices) + " (" + changed.scope.why + ")";
  }
  std::string operator()(const NotJudged& not_judged) const { return not_judged.why; }
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

}  // namespace lull
