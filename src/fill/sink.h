#pragma once
// Where everything that `lull fill` does is told, as data: the console output of lull and of its drop-in are sinks.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/level.h"
#include "base/process.h"
#include "fill/filling.h"
#include "fill/people.h"
#include "fill/settings.h"
#include "gpu/snapshot.h"
#include "sense/opens.h"
#include "session/logger.h"

namespace lull {

// Something changed about one filler on its GPUs.
struct FillEvent {
  enum Kind : std::uint8_t {
    started,
    not_started,  // text: why
    halted,       // is paused
    went_on,
    parking,   // its yield command runs
    parked,    // it is done
    yielding,  // it is being ended
    ended,     // nothing of it is left; by_us, status, killed
    backing_off,
    waiting,  // it does not run, for another reason than before
    stuck,    // processes are left that SIGKILL does not end
  };
  Kind kind = started;
  const FillerSettings& filler;
  std::vector<std::string> gpus;  // labels
  bool on_all = false;            // one on all of its GPUs at once
  Reason why = {};
  std::span<const ActivePerson> people = {};  // who is active
  pid_t pid = 0;
  ExitStatus status = {};
  std::size_t killed = 0;
  bool by_us = false;
  Duration ran = {};
  std::string text = {};
};
std::string_view to_string(FillEvent::Kind kind);  // for programs: "started", "not-started"

// What was seen at a sample, after everything that it led to.
struct FillPicture {
  const Snapshot& snapshot;
  std::span<const ActivePerson> people;
  const std::function<bool(pid_t)>& owns;  // is it of a filler of ours, or ourselves?
};

class FillSink {
 public:
  FillSink() = default;
  FillSink(const FillSink&) = delete;
  FillSink& operator=(const FillSink&) = delete;
  virtual ~FillSink() = default;

  // How opens are heard, and which GPUs there are.
  virtual void began(const FillSettings& settings, OpenWay way, const Inventory& inventory) = 0;
  virtual void happened(const FillEvent& event) = 0;
  virtual void sampled(const FillPicture& /*picture*/) {}
  virtual void note(Level level, std::string_view event, const std::string& text) = 0;
};

// "filler on GPU 0: started (pid 4711)": what lull says of it.
std::string to_string(const FillEvent& event);
std::string gpus_text(const std::vector<std::string>& labels);  // "GPU 0", "GPUs 0, 2"

// lull's own console output: what `lull fill` tells people of its session, through a Logger.
class FillConsole final : public FillSink {
 public:
  explicit FillConsole(const Logger& logger) : logger_(logger) {}

  void began(const FillSettings& settings, OpenWay way, const Inventory& inventory) override;
  void happened(const FillEvent& event) override;
  void note(Level level, std::string_view event, const std::string& text) override;

 private:
  const Logger& logger_;
};

// What `lull fill --status` shows: for every GPU why a filler runs on it or does not; as text and as JSON.
struct GpuStatus {
  std::string label;
  std::string uuid;
  std::string state;                     // "running", "being stopped", "paused", "waiting", …
  std::optional<std::size_t> unit = {};  // which one has processes on it
  std::string filler = {};               // its name, or of the one that is next
  pid_t pid = 0;
  Duration since{};  // for how long it has been in that state; of one that waits: zero
  Reason why = {};
  unsigned failures = 0;
};

struct FillStatus {
  pid_t pid = 0;
  OpenWay way = OpenWay::none;
  std::string rule;
  std::string trouble = {};
  std::vector<GpuStatus> gpus = {};
};

GpuStatus status_of(const Filling& filling, const GpuObservation& observation, Instant now);
std::string to_text(const FillStatus& status);  // several lines
std::string to_json(const FillStatus& status);  // one object, on one line

}  // namespace lull
