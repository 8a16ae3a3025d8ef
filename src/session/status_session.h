#pragma once
// The GPUs now, once or live: what `lull status` does with each sample.

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "base/exit_status.h"
#include "jobs/gpu_users.h"
#include "session/live_view.h"
#include "session/status_extras.h"
#include "view/status.h"

namespace lull {

struct StatusSettings {
  StatusFormat format = StatusFormat::table;
  std::optional<Duration> every;  // again and again
  std::string gpus;
  bool visible = false;    // those of CUDA_VISIBLE_DEVICES
  bool processes = false;  // list each of them
  std::string dump;        // a folder for copies of the files that are read
  int input = 0;           // where keys come from
  int output = 1;
};

class StatusSession {
 public:
  using Say = std::function<void(const std::string&)>;

  StatusSession(StatusSettings settings, Say say);

  // One sample. On a terminal a GPU that takes long to wake does not delay the others: they are shown first, and all of
  // them in the same place once it is there, or its time is up.
  SessionEnd once();
  // Until Ctrl-C, TERM, or the reader of our pipe is gone.
  SessionEnd watch(World& world);

 private:
  // What to read, the driver given its time.
  SamplerOptions sampling() const;
  // One picture of it. An end: there is no going on.
  std::optional<SessionEnd> show(Snapshot snapshot);
  std::optional<SessionEnd> once_on_terminal();
  std::optional<SessionEnd> show_meanwhile(Snapshot snapshot, const std::string& waking, std::string& erase);
  std::string still_waking(const Snapshot& snapshot) const;
  std::optional<SessionEnd> draw(const Snapshot& snapshot);
  std::optional<SessionEnd> draw_screen(const StatusView& view, const std::string& trouble);

  StatusSettings settings_;
  Say say_;
  StatusPictures pictures_;
  GpuUsers users_;
  IdleTimes idle_;
  // Of a screen that is looked at live:
  LiveView live_;
  Histories histories_;
  std::optional<Snapshot> shown_;
  bool driver_said_ = false;
  bool none_said_ = false;
  bool unread_said_ = false;  // that leases cannot be read
  bool hinted_ = false;
  std::set<std::string> warned_;
};

}  // namespace lull
