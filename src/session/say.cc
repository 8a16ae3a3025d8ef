#include "session/say.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/calendar.h"
#include "base/fd.h"
#include "base/json_writer.h"
#include "base/text.h"

namespace lull {
namespace {

std::string_view word(Level level) {
  switch (level) {
    case Level::debug: return "debug";
    case Level::note: return "info";
    case Level::warning: return "warning";
    case Level::important: return "error";
  }
  return "info";
}

}  // namespace

void Sayer::say(Level level, std::string_view event, std::string_view text, std::string_view details) const {
  if (!wants(level)) return;
  std::string line;
  if (format_ == LogFormat::json) {
    JsonWriter json;
    json.begin_object().member("time", format_rfc3339(clock_.wall())).member("level", word(level));
    json.member("event", event).member("message", printable_lines(text));
    if (!details.empty()) json.key("details").raw(details);
    line = json.end_object().take() + "\n";
  } else {
    if (live_) line = "\r\x1b[K";
    for (std::size_t from = 0; from <= text.size();) {
      const auto end = std::min(text.find('\n', from), text.size());
      // The first line says who speaks, the others belong to it.
      line += fmt::format("{}{}\n", from == 0 ? "lull: " : "  ", text.substr(from, end - from));
      from = end + 1;
    }
  }
  (void)write_all(STDERR_FILENO, line);
}

}  // namespace lull
