#pragma once
// The TOML file of `lull fill FILE`: text → settings. Every mistake is one line that names file, line and column, what
// was there and what would be right (docs/fill.md has all keys).

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fill/settings.h"

namespace lull {

Result<FillSettings> parse_plan(std::string_view text, std::string_view name);
Result<FillSettings> load_plan(const std::string& path);

Result<YieldWay> parse_yield(std::string_view text);
std::string_view to_string(YieldWay way);

// Beyond the form, each in one line: rules that are surely not meant; and what keeps a filler from being started now
// (its user, folder, program or log).
std::vector<std::string> doubts(const FillSettings& settings);
std::vector<std::string> obstacles(const FillSettings& settings);

// One filler as a command line tells it, each value as it was written, and the settings that come of it.
struct FillCommandOptions {
  std::string gpus;
  bool per_gpu = false;
  std::string idle = kDefaultIdle;
  std::string every = "1s";
  std::string confirm = "3s";
  std::string yield = "confirm";
  std::string park_else = "keep";
  std::string cuda_checkpoint;
  std::string yield_command;
  std::string resume_command;
  std::string yield_limit = "10s";
  std::string signal = "TERM";
  std::string grace = "10s";
  bool once = false;
  std::string log;
  std::string nice = "0";
  std::string hours;  // empty: always
  std::string user_idle = "5m";
  std::vector<std::string> except_user;
  std::vector<std::string> ignore;
  bool ignore_hidden = false;

  bool operator==(const FillCommandOptions&) const = default;
};
// `command`: what is run, its first word the program. The error names the option.
Result<FillSettings> settle(const FillCommandOptions& options, std::vector<std::string> command);

}  // namespace lull
