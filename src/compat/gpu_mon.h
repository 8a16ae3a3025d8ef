#pragma once
// gpu_mon by its document and by what it really does: its options, its INI file, and its lines on stderr. What the file
// asks for is carried out by `lull fill` (cli/gpu_mon.cc).

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull {

struct MonOptions {
  std::string file;  // as it was given
  bool help = false;
};

// The error's errno_value is the exit status.
Result<MonOptions> parse_mon(std::span<const std::string> words);
std::string_view mon_usage();
std::string_view mon_help();
// "~/x" and "~ada/x" as the shell and Python's expanduser() know them.
std::string expand_user(std::string_view path);

using MonGpus = std::optional<std::set<unsigned>>;  // nothing: all

struct MonIgnored {
  MonGpus gpus;
  std::vector<std::string> programs;
};

struct MonProcess {
  std::string section;
  MonGpus gpus;
  std::string directory;
  std::string command;             // as it is written
  std::vector<std::string> words;  // as a shell reads it
  std::string log;                 // empty: none
};

struct MonSettings {
  std::int64_t interval_seconds = 0;
  std::vector<MonIgnored> ignored;
  std::vector<MonProcess> processes;
  bool tty_enabled = false;
  std::vector<std::string> tty_whitelist;
  std::int64_t tty_idle_seconds = 0;
};

// A mistake is said with its line.
Result<MonSettings> parse_mon_config(std::string_view text);

// "2024-03-15 11:04:29,052 INFO ProcessTracker 2 gpus are idle", with the width that its format asks for.
std::string mon_line(std::string_view time, std::string_view level, std::string_view logger, std::string_view text);
// "GPU 0", "GPUs 0,1", "all GPUs"
std::string mon_name(const MonGpus& gpus);
// "GPUInfo(file_name='/dev/nvidia0', id=0)"
std::string mon_gpu(std::string_view file, unsigned id);
// "ProcInfo(file_name='/dev/nvidia0', gpu_id=0, pid=12, name='python3')"
std::string mon_process(std::string_view file, unsigned id, std::int64_t pid, std::string_view name);

}  // namespace lull
