#include "fill/sink.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>

#include "base/json_writer.h"
#include "base/text.h"
#include "base/units.h"
#include "fill/observations.h"

namespace lull {

std::string_view to_string(FillEvent::Kind kind) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"started", "not-started", "halted", "went-on", "parking", "parked", "yielding",
                                       "ended", "backing-off", "waiting", "stuck"});
  static_assert(kNames.size() == FillEvent::stuck + 1);
  return kNames[kind];
}

std::string gpus_text(const std::vector<std::string>& labels) {
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
  const std::string why = to_string(reason);
  const auto because = [&](std::string_view what) {
    return why.empty() ? std::string(what) : fmt::format("{}: {}", what, why);
  };
  switch (event.kind) {
    case FillEvent::started: return fmt::format("started (pid {})", event.pid);
    case FillEvent::not_started: return "could not be started: " + printable(event.text);
    case FillEvent::halted: return because("paused");
    case FillEvent::went_on: return because("resumed");
    case FillEvent::parking: return because("its yield command runs");
    case FillEvent::parked: return because("parked");
    case FillEvent::yielding: return because("yields");
    case FillEvent::ended: return how_it_ended(event);
    case FillEvent::backing_off: return why;
    case FillEvent::waiting: return because("waits");
    case FillEvent::stuck:
      return "SIGKILL does not end some of its processes; lull does not fill the GPU until they end";
  }
  return "";
}

}  // namespace

std::string to_string(const FillEvent& event) {
  return fmt::format("{} on {}: {}", printable(event.filler.name), gpus_text(event.gpus), what_happened(event));
}

namespace {

Level level_of(const FillEvent& event) {
  switch (event.kind) {
    case FillEvent::not_started:
    case FillEvent::backing_off:
    case FillEvent::stuck: return Level::warning;
    // A GPU that is busy now and then would fill the log.
    case FillEvent::waiting:
      return event.why.kind == Reason::rule || event.why.kind == Reason::starts_soon || event.why.kind == Reason::filled
                 ? Level::debug
             : event.why.kind == Reason::memory_left ? Level::warning
                                                     : Level::note;
    default: return Level::note;
  }
}

std::string details(const FillEvent& event) {
  JsonWriter json;
  json.begin_object();
  json.member("filler", event.filler.name).key("gpus").value(std::span<const std::string>(event.gpus));
  json.member("reason", to_string(event.why.kind)).member_or_null("who", event.why.who);
  json.key("pid");
  event.pid > 0 ? json.value(event.pid) : json.null();
  json.key("status");
  event.kind == FillEvent::ended ? json.value(event.status.shell_status()) : json.null();
  json.key("seconds");
  if (event.kind == FillEvent::ended)
    json.value(std::chrono::duration<double>(event.ran).count());
  else if (event.why.time > Duration::zero())
    json.value(std::chrono::duration<double>(event.why.time).count());
  else
    json.null();
  json.end_object();
  return json.take();
}

}  // namespace

void FillConsole::began(const FillSettings& settings, OpenWay way, const Inventory& inventory) {
  std::set<std::size_t> theirs;
  for (const FillerSettings& filler : settings.fillers)
    if (const auto some = gpus_of(filler, inventory)) theirs.insert(some->begin(), some->end());
  std::vector<std::string> labels;
  for (const std::size_t device : theirs) labels.push_back(inventory.devices[device].label());
  logger_.say(
      Level::note, "start",
      fmt::format("{} filler{} for {}; free means {}; opens are detected by {}", settings.fillers.size(),
                  settings.fillers.size() == 1 ? "" : "s", gpus_text(labels), to_text(settings.idle), to_string(way)));
}

void FillConsole::happened(const FillEvent& event) {
  logger_.say(level_of(event), to_string(event.kind), to_string(event),
              logger_.format() == LogFormat::json ? details(event) : "");
}

void FillConsole::note(Level level, std::string_view event, const std::string& text) {
  logger_.say(level, event, text);
}

namespace {

std::string_view state_name(Filling::State state) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"waiting", "running", "paused", "parking", "parked", "ending"});
  static_assert(kNames.size() == static_cast<std::size_t>(Filling::State::ending) + 1);
  return kNames[static_cast<std::size_t>(state)];
}

std::string whole_seconds(Duration time) { return format_duration(std::chrono::floor<std::chrono::seconds>(time)); }

}  // namespace

GpuStatus status_of(const Filling& filling, const GpuObservation& observation, Instant now) {
  GpuStatus status{.label = observation.label, .uuid = observation.gpu.value, .state = "not filled"};
  status.why = {.kind = Reason::no_filler};
  status.unit = filling.unit_on(observation.gpu);
  std::optional<std::size_t> shown = status.unit;
  // Of those that wait for it the first one that could have it.
  for (std::size_t i = 0; !shown && i < filling.units().size(); ++i)
    if (!filling.retired(i) && std::ranges::count(filling.units()[i].gpus, observation.gpu) > 0) shown = i;
  if (!shown) return status;
  status.state = state_name(filling.state(*shown));
  status.filler = filling.filler(*shown).name;
  status.why = filling.why(*shown);
  status.failures = filling.failures(*shown);
  if (status.unit) status.since = now - filling.since(*shown);
  return status;
}

std::string to_text(const FillStatus& status) {
  std::string text = fmt::format("lull fill (pid {}): free means {}; opens are detected by {}\n", status.pid,
                                 status.rule, to_string(status.way));
  if (!status.trouble.empty()) text += status.trouble + "\n";
  std::size_t widest = 1;
  for (const GpuStatus& gpu : status.gpus) widest = std::max(widest, gpu.label.size());
  for (const GpuStatus& gpu : status.gpus) {
    Reason why = gpu.why;
    if (why.gpu == gpu.label) why.gpu.clear();
    std::string line = fmt::format("GPU {:<{}}  {:<14}", gpu.label, widest, gpu.state);
    if (!gpu.filler.empty()) line += "  " + printable(gpu.filler);
    if (gpu.pid > 0) line += fmt::format(" (pid {})", gpu.pid);
    if (gpu.since > Duration::zero()) line += " for " + whole_seconds(gpu.since);
    if (const std::string words = to_string(why); !words.empty()) line += (gpu.filler.empty() ? "  " : ": ") + words;
    text += line + "\n";
  }
  return text;
}

std::string to_json(const FillStatus& status) {
  JsonWriter json;
  json.begin_object();
  json.member("pid", status.pid).member("opens_detected_by", to_string(status.way)).member("idle", status.rule);
  json.key("gpus").begin_array();
  for (const GpuStatus& gpu : status.gpus) {
    json.begin_object();
    json.member("gpu", gpu.label).member("uuid", gpu.uuid).member("state", gpu.state);
    json.member_or_null("filler", gpu.filler);
    json.key("pid");
    gpu.pid > 0 ? json.value(gpu.pid) : json.null();
    json.key("state_seconds");
    gpu.since > Duration::zero() ? json.value(std::chrono::duration<double>(gpu.since).count()) : json.null();
    json.member("failures", gpu.failures);
    json.member("reason", to_string(gpu.why.kind));
    json.member_or_null("who", gpu.why.who);
    json.key("seconds");
    gpu.why.time > Duration::zero() ? json.value(std::chrono::duration<double>(gpu.why.time).count()) : json.null();
    json.member_or_null("text", to_string(gpu.why));
    json.end_object();
  }
  json.end_array().end_object();
  return json.take();
}

}  // namespace lull
