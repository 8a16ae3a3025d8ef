#pragma once
// The jobs that have GPUs on this machine (jobs_look.h), once or live: `lull jobs`. What a `lull watch --per` knows of
// them is asked of it.

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "base/exit_status.h"
#include "jobs/gpu_users.h"
#include "session/jobs_look.h"
#include "session/live_view.h"
#include "view/jobs.h"

namespace lull {

struct JobsSettings {
  bool json = false;
  std::optional<Duration> every;  // again and again
  int input = 0;                  // where keys come from
  int output = 1;
};

class JobsSession {
 public:
  using Say = std::function<void(const std::string&)>;
  JobsSession(JobsSettings settings, Say say);

  SessionEnd once();
  SessionEnd watch(World& world);

 private:
  SamplerOptions sampling() const;
  void see(const Snapshot& snapshot);
  void ask_watchers();
  void warn_once(const std::string& text);
  std::optional<SessionEnd> show(const Snapshot& snapshot);
  std::optional<SessionEnd> draw();

  JobsSettings settings_;
  Say say_;
  JobsLook look_;
  GpuUsers users_;
  Instant ask_again_ = Instant::min();
  std::set<std::string> said_;
  std::string trouble_;
  JobsView view_;
  LiveView live_;
};

}  // namespace lull
