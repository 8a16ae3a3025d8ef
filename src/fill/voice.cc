#include "fill/voice.h"

#include <fmt/format.h>

#include <chrono>
#include <set>
#include <vector>

#include "base/json_writer.h"
#include "sense/select.h"

namespace lull {
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
  json.member("reason", word_of(event.why.kind)).member_or_null("who", event.why.who);
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

void FillVoice::began(const FillSettings& settings, OpenWay way, const Inventory& inventory) {
  std::set<std::size_t> theirs;
  for (const FillerSettings& filler : settings.fillers)
    if (const auto some = select_devices(filler.gpus, inventory)) theirs.insert(some->begin(), some->end());
  std::vector<std::string> labels;
  for (const std::size_t device : theirs) labels.push_back(inventory.devices[device].label());
  sayer_.say(
      Level::note, "start",
      fmt::format("{} filler{} for {}; free means {}; opens are heard by {}", settings.fillers.size(),
                  settings.fillers.size() == 1 ? "" : "s", gpus_in_words(labels), to_text(settings.free), words(way)));
}

void FillVoice::happened(const FillEvent& event) {
  sayer_.say(level_of(event), word_of(event.kind), to_words(event),
             sayer_.format() == LogFormat::json ? details(event) : "");
}

void FillVoice::note(Level level, std::string_view event, const std::string& text) { sayer_.say(level, event, text); }

}  // namespace lull
