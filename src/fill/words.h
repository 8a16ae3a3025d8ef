#pragma once
// One filler as a command line tells it, each value as it was written, and the settings that come of it.

#include <string>
#include <vector>

#include "base/result.h"
#include "fill/settings.h"

namespace lull {

struct FillWords {
  std::string gpus = "all";
  bool per_gpu = false;
  std::string free = kDefaultFree;
  std::string every = "1s";
  std::string confirm = "3s";
  std::string yield = "confirm";
  std::string yield_command;
  std::string resume_command;
  std::string yield_limit = "10s";
  std::string signal = "TERM";
  std::string grace = "10s";
  bool once = false;
  std::string log;
  std::string nice = "0";
  std::string user_idle = "5m";
  std::vector<std::string> leave_out;
  std::vector<std::string> ignore;
  bool ignore_hidden = false;
};
// `command`: what is run, its first word the program. The error names the option.
Result<FillSettings> settle(const FillWords& words, std::vector<std::string> command);

}  // namespace lull
