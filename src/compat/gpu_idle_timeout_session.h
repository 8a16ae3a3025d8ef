#pragma once
// gpu_idle_timeout as settings and a sink of our sessions: of `lull run` where it launches a command, of
// `lull watch` where it runs beside a Determined task.

#include <optional>

#include "act/determined.h"
#include "compat/gpu_idle_timeout.h"
#include "session/run_session.h"
#include "session/watch_session.h"

namespace lull {

inline constexpr int kIdleTimeoutRefused = 1;  // its status where it does not begin

// What it logs, in the predecessor's own lines.
class IdleTimeoutVoice final : public Sink {
 public:
  IdleTimeoutVoice(const IdleTimeoutOptions& options, const Clock& clock) : options_(options), clock_(clock) {}

  void started() override { log("INFO", idle_timeout_started(options_)); }
  void ticked(std::uint64_t tick) override;
  void sampled(const Sampled& sampled, std::optional<Instant> acts_at) override;
  void happened(const Event& event) override;
  void firing(const FiringFacts& facts, bool dry_run) override;
  void did(const News& news) override;
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
