#pragma once
// gpu_mon by its document and by what it really does: its options, its INI file, and its lines on stderr. What the file
// asks for is carried out by `lull fill` (cli/gpu_mon.cc).

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fill/session.h"
#include "sense/openers.h"

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

// gpu_mon as settings and a sink of the session of `lull fill`.
//
// What its file asks for: a filler per [process-…], of which the one on ALL goes first when every GPU is free; a GPU is
// free when only ignored programs have it open; another program that opens it ends the filler at once.
FillSettings mon_fill_settings(const MonSettings& settings);

// Its lines on stderr.
class MonConsole final : public FillSink {
 public:
  MonConsole(const MonSettings& settings, const Clock& clock);

  void began(const FillSettings& settings, OpenWay way, const Inventory& inventory) override;
  void happened(const FillEvent& event) override;
  void sampled(const FillPicture& picture) override;
  void note(Level level, std::string_view event, const std::string& text) override;
  // Ctrl-C, in its words.
  void interrupted();

 private:
  // Who has a GPU open, as it tells of that.
  struct Opener {
    std::string text;  // "ProcInfo(…)"
    bool ours = false;
    bool whitelisted = false;
  };
  struct Look {
    std::vector<Opener> openers;
    std::set<unsigned> idle;  // numbers of GPUs that are not open, and without a program of ours
  };
  Look look(const Inventory& inventory, const std::function<bool(pid_t)>& owns);
  void say(std::string_view level, std::string_view logger, const std::string& text) const;
  void say_start(const FillEvent& event) const;
  void say_why(const FillEvent& event);
  void say_idle(const std::set<unsigned>& idle);
  std::set<unsigned> numbers_of(const FillEvent& event) const;
  std::string preemptor(const Reason& why) const;
  const MonProcess* process_of(const FillEvent& event) const;

  const MonSettings& settings_;
  const Clock& clock_;
  OpenerScan scan_;
  std::map<std::string, std::vector<std::string>> running_;  // on which GPUs, by its words for them
  std::shared_ptr<const Inventory> inventory_;
  std::set<unsigned> idle_said_;  // GPUs, by the last line that counts them
  std::optional<Instant> next_look_;
  bool users_said_ = false;
};

}  // namespace lull
