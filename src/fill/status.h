#pragma once
// What `lull fill --status` shows: for every GPU why a filler runs on it or does not; as text and as JSON.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "fill/filling.h"
#include "sense/opens.h"

namespace lull {

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
