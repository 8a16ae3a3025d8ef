#include "fill/sink.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"
#include "base/units.h"

namespace lull {

std::string_view word_of(FillEvent::Kind kind) {
  switch (kind) {
    case FillEvent::started: return "started";
    case FillEvent::not_started: return "not-started";
    case FillEvent::halted: return "halted";
    case FillEvent::went_on: return "went-on";
    case FillEvent::parking: return "parking";
    case FillEvent::parked: return "parked";
    case FillEvent::yielding: return "yielding";
    case FillEvent::ended: return "ended";
    case FillEvent::backing_off: return "backing-off";
    case FillEvent::waiting: return "waiting";
    case FillEvent::stuck: return "stuck";
  }
  return "";
}

std::string gpus_in_words(const std::vector<std::string>& labels) {
  return fmt::format("GPU{} {}", labels.size() == 1 ? "" : "s", printable(fmt::format("{}", fmt::join(labels, ", "))));
}

namespace {

std::string how_it_ended(const FillEvent& event) {
  std::string text = event.by_us ? "ended" : "ended by itself";
  if (!event.by_us || event.status.signal == 0) {
    text += event.status.signal != 0 ? fmt::format(" by {}", signal_name(event.status.signal))
                                     : fmt::format(" with status {}", event.status.code);
  }
  text += " after " + format_duration(std::chrono::floor<std::chrono::seconds>(event.ran));
  if (event.killed > 0) text += fmt::format(", {} of its processes had to be killed", event.killed);
  return text;
}

std::string what_happened(const FillEvent& event) {
  // Of a filler on one GPU its name stands before it already.
  Reason reason = event.why;
  if (event.gpus.size() == 1) reason.gpu.clear();
  const std::string why = to_words(reason);
  const auto because = [&](std::string_view what) {
    return why.empty() ? std::string(what) : fmt::format("{}: {}", what, why);
  };
  switch (event.kind) {
    case FillEvent::started: return fmt::format("started (pid {})", event.pid);
    case FillEvent::not_started: return "could not be started: " + printable(event.text);
    case FillEvent::halted: return because("stands still");
    case FillEvent::went_on: return because("goes on");
    case FillEvent::parking: return because("its yield command runs");
    case FillEvent::parked: return because("parked");
    case FillEvent::yielding: return because("yields");
    case FillEvent::ended: return how_it_ended(event);
    case FillEvent::backing_off: return why;
    case FillEvent::waiting: return because("waits");
    case FillEvent::stuck:
      return "some of its processes do not even end by SIGKILL; the GPU stays unfilled until they do";
  }
  return "";
}

}  // namespace

std::string to_words(const FillEvent& event) {
  return fmt::format("{} on {}: {}", printable(event.filler.name), gpus_in_words(event.gpus), what_happened(event));
}

}  // namespace lull
