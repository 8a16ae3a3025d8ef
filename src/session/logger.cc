#include "session/logger.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/calendar.h"
#include "base/fd.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/units.h"

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

// Whether systemd's journal reads our stderr, which puts the time to each line itself.
bool goes_to_the_journal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat status{};
  return stream != nullptr && ::fstat(STDERR_FILENO, &status) == 0 &&
         fmt::format("{}:{}", status.st_dev, status.st_ino) == stream;
}

// Whoever looks at a terminal knows the day; a log is read days later, and elsewhere.
std::string stamp(WallTime now) {
  if (::isatty(STDERR_FILENO) == 1) return format_local(now, "%H:%M:%S ");
  static const bool journal = goes_to_the_journal();
  return journal ? "" : format_local(now, "%Y-%m-%d %H:%M:%S%z ");
}

}  // namespace

void Logger::say(Level level, std::string_view event, std::string_view text, std::string_view details,
                 const LogSubject* about) const {
  if (!wants(level)) return;
  std::string line;
  if (format_ == LogFormat::json) {
    JsonWriter json;
    json.begin_object().member("time", format_rfc3339(clock_.wall())).member("level", word(level));
    json.member("event", event).member("message", printable_lines(text));
    if (about != nullptr)
      json.member("subject", printable_lines(about->subject))
          .member_or_null("job", about->job)
          .member("gpus", about->gpus);
    if (!details.empty()) json.key("details").raw(details);
    line = json.end_object().take() + "\n";
  } else {
    if (live_) line = "\r\x1b[K";
    for (std::size_t from = 0; from <= text.size();) {
      const auto end = std::min(text.find('\n', from), text.size());
      // The first line says who speaks, the others belong to it.
      line += fmt::format("{}{}\n", from == 0 ? stamp(clock_.wall()) + "lull: " : "  ", text.substr(from, end - from));
      from = end + 1;
    }
  }
  (void)write_all(STDERR_FILENO, line);
}

Result<> check(const LogOptions& options) {
  constexpr std::array<std::string_view, 2> kFormats = {"text", "json"};
  TRY(choice_option("--log-format", options.log_format, kFormats));
  if (options.quiet && options.verbose) return fail("--quiet and --verbose contradict each other");
  return {};
}

Logger make_logger(const LogOptions& options, const Clock& clock) {
  const Level least = options.quiet ? Level::important : options.verbose ? Level::debug : Level::note;
  return {options.log_format == "json" ? LogFormat::json : LogFormat::text, least, clock};
}

}  // namespace lull
