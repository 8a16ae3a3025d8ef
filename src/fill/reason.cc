#include "fill/reason.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/text.h"
#include "base/units.h"

namespace lull {

namespace {

std::string whole_seconds_up(Duration time) { return format_duration(std::chrono::ceil<std::chrono::seconds>(time)); }

std::string without_gpu(const Reason& reason) {
  const std::string who = printable(reason.who);
  switch (reason.kind) {
    case Reason::none: return "";
    case Reason::leased: return "leased by " + who;
    case Reason::waited_for: return who + " waits for it";
    case Reason::used: return who + " computes on it";
    case Reason::opened: return who + " has opened it";
    case Reason::memory_grew: return fmt::format("another process took {} of its memory", format_size(reason.number));
    case Reason::user: return fmt::format("{} typed {} ago", who, whole_seconds_up(reason.time));
    case Reason::rule: return who;
    case Reason::starts_soon:
      return reason.time > Duration::zero() ? "starts in " + whole_seconds_up(reason.time) : "about to start";
    case Reason::hot:
      return std::isnan(reason.number) ? "its temperature is unknown"
                                       : fmt::format("{:.0f} C is too hot", reason.number);
    case Reason::cool_enough: return "cool enough";
    case Reason::too_little_memory:
      return std::isnan(reason.number) ? "its free memory is unknown"
                                       : fmt::format("only {} of memory are free", format_size(reason.number));
    case Reason::memory_left:
      return fmt::format("{} of its memory is in use by processes that lull cannot see", format_size(reason.number));
    case Reason::out_of_hours: return "not at this time of day";
    case Reason::unreadable: return "cannot be judged: " + who;
    case Reason::hidden:
      return fmt::format(
          "{:.0f} processes cannot be looked at: they may have it open (run as root, or say "
          "--ignore-hidden)",
          reason.number);
    case Reason::backing_off:
      return fmt::format("backing off for {} after {:.0f} failure{}{}{}", whole_seconds_up(reason.time), reason.number,
                         reason.number == 1 ? "" : "s", who.empty() ? "" : ": ", who);
    case Reason::filled: return "filled by " + who;
    case Reason::elsewhere: return who;
    case Reason::done: return "its work is done";
    case Reason::no_filler: return "no filler is meant for it";
    case Reason::nothing_came: return who + " opened it and did nothing";
    case Reason::free_again: return "free again";
    case Reason::not_resumed: return "its resume command failed";
    case Reason::config: return "not in the settings any more";
    case Reason::shutting_down: return "lull fill ends";
  }
  return "";
}

}  // namespace

std::string to_string(const Reason& reason) {
  const std::string text = without_gpu(reason);
  if (reason.gpu.empty() || text.empty()) return text;
  return fmt::format("GPU {}: {}", printable(reason.gpu), text);
}

std::string_view to_string(Reason::Kind kind) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"none",        "leased",       "waited-for",  "used",         "opened",      "memory-grew",
       "user",        "rule",         "starts-soon", "hot",          "cool-enough", "too-little-memory",
       "memory-left", "out-of-hours", "unreadable",  "hidden",       "backing-off", "filled",
       "elsewhere",   "done",         "no-filler",   "nothing-came", "free-again",  "not-resumed",
       "config",      "shutting-down"});
  static_assert(kNames.size() == Reason::shutting_down + 1);
  return kNames[kind];
}

}  // namespace lull
