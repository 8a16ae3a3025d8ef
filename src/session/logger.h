#pragma once
// What a watching command tells people: lines on stderr with the time, as text or as JSON (one
// object per line). A line goes out in one write, so it never mixes with the job's
// own output halfway; a closed stderr is not an error.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/level.h"
#include "base/result.h"

namespace lull {

enum class LogFormat : std::uint8_t { text, json };

// What a log line is about, if each GPU or each job is judged by itself.
struct LogSubject {
  std::string subject;            // "GPU 3", "job 4711 (python3) of ada on GPUs 0, 1"
  std::string job;                // "tree:4711"; empty: it is a GPU
  std::vector<std::string> gpus;  // their labels
};

class Logger {
 public:
  Logger(LogFormat format, Level least, const Clock& clock) : format_(format), least_(least), clock_(clock) {}

  // `event` is a word for programs ("fire", "ended"); `details` JSON for the object's "details", or empty.
  void say(Level level, std::string_view event, std::string_view text, std::string_view details = "",
           const LogSubject* about = nullptr) const;
  bool wants(Level level) const { return level >= least_; }
  LogFormat format() const { return format_; }
  // A line of the live display of `lull watch` stands on the terminal: clear it first.
  void set_live(bool live) { live_ = live; }

 private:
  LogFormat format_;
  Level least_;
  const Clock& clock_;
  bool live_ = false;
};

// What a command is told about it, as it was written.
struct LogOptions {
  std::string log_format = "text";
  bool quiet = false;
  bool verbose = false;
};
Result<> check(const LogOptions& options);
Logger make_logger(const LogOptions& options, const Clock& clock);  // they have been checked

}  // namespace lull
