#pragma once
// gpu_idle_timeout by its documents: its options and defaults, the rule they mean, and
// every line that it logs. What is done with them is the caller's to say.

#include <csignal>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "act/determined.h"
#include "base/clock.h"
#include "base/result.h"
#include "session/run_session.h"
#include "session/watch_session.h"

namespace lull {

struct IdleTimeoutOptions {
  double threshold = 1;    // %
  double sample_freq = 5;  // s
  std::uint32_t num_samples = 60;
  std::int64_t delay_samples = 12;  // less than 1 is none
  bool any = false;
  bool debug = false;
  bool help = false;
  int signal = SIGQUIT;              // sent before the kill
  bool signal_children = false;      // to the whole tree, deepest first
  std::string gpus;                  // ours: which GPUs count
  std::vector<std::string> actions;  // ours: what to end where there is no Determined task
  std::vector<std::string> command;  // empty: runs inside a task

  std::string rule() const;  // "util < 50 for 5 samples"; of any: one and the same GPU for all of them
  Duration every() const;
  Duration delay() const;  // until the first sample that counts
};

// The error's errno_value is the exit status, as in its original: 2 where the words cannot be read, 1 where a value
// makes no sense.
Result<IdleTimeoutOptions> parse_idle_timeout(std::span<const std::string> words);
// Of the form that launches a command, or of the one that runs beside a task.
std::string_view idle_timeout_usage(bool task);
std::string idle_timeout_help(bool task);

// "2024-03-15 11:04:29,052: INFO: gpu_idle_timeout: …"
std::string idle_timeout_log(WallTime at, std::string_view level, std::string_view text);

std::string idle_timeout_started(const IdleTimeoutOptions& options);
// At a sample of the delay; nothing where there is nothing to wait for any more.
std::optional<std::string> idle_timeout_waiting(const IdleTimeoutOptions& options, std::uint64_t tick);
std::string idle_timeout_usage_of(std::string_view uuid, double util);
std::string idle_timeout_fired(const IdleTimeoutOptions& options, std::span<const std::string> uuids);
std::string idle_timeout_signalling(int signal, int pid);
std::string_view idle_timeout_killing();

// What --signal-children does, line by line: one process of the tree, the job itself in layer 0.
struct IdleTimeoutMember {
  int pid = 0;
  unsigned layer = 0;
  std::string command;
};
std::vector<std::string> idle_timeout_children(int signal, std::span<const IdleTimeoutMember> members);

// gpu_idle_timeout as settings and a sink of our sessions: of `lull run` where it launches a command, of
// `lull watch` where it runs beside a Determined task.
inline constexpr int kIdleTimeoutRefused = 1;  // its status where it does not begin

// What it logs, in the predecessor's own lines.
class IdleTimeoutConsole final : public Sink {
 public:
  IdleTimeoutConsole(const IdleTimeoutOptions& options, const Clock& clock) : options_(options), clock_(clock) {}

  void started() override { log("INFO", idle_timeout_started(options_)); }
  void ticked(std::uint64_t tick) override;
  void sampled(const Sampled& sampled, std::optional<Instant> acts_at) override;
  void happened(const Event& event) override;
  void firing(const FiringFacts& facts, bool dry_run) override;
  void did(const ActionEvent& action_event) override;
  void note(Level level, std::string_view event, const std::string& text) override;

 private:
  bool launches() const { return !options_.command.empty(); }
  void log(std::string_view level, std::string_view text) const;
  void say_signals(const FiringFacts& facts) const;

  const IdleTimeoutOptions& options_;
  const Clock& clock_;
};

RunSettings idle_timeout_run(const IdleTimeoutOptions& options, const Policy& policy);
// The Determined task that we are in.
std::optional<DeterminedTask> our_task();
Result<WatchSettings> idle_timeout_watch(const IdleTimeoutOptions& options, const Policy& policy,
                                         const std::optional<DeterminedTask>& task);

}  // namespace lull
