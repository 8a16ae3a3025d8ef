#include "fill/status.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_writer.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

std::string_view state_name(Filling::State state) {
  switch (state) {
    case Filling::State::waiting: return "waiting";
    case Filling::State::running: return "running";
    case Filling::State::still: return "paused";
    case Filling::State::parking: return "parking";
    case Filling::State::parked: return "parked";
    case Filling::State::ending: return "ending";
  }
  return "";
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
