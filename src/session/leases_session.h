#pragma once
// Who holds which GPU, and what the GPU does meanwhile: `lull leases`, once or live.

#include <optional>

#include "base/exit_status.h"
#include "lease/folder.h"
#include "session/live_view.h"
#include "session/status_extras.h"
#include "view/leases.h"

namespace lull {

struct LeasesSettings {
  bool json = false;
  std::optional<Duration> every;  // again and again
  LeasePlace place = LeasePlace::of_environment();
  int input = 0;  // where keys come from
  int output = 1;
};

// All that is in the folder, by GPU. Nothing if no GPU was ever leased.
Result<FolderState> read_folder(const LeasePlace& place);
// What the GPUs of a sample do, by the names that leases have for them.
LeasedGpus leased_gpus(const Snapshot& snapshot, const IdleTimes& idle);

class LeasesSession {
 public:
  explicit LeasesSession(LeasesSettings settings);

  SessionEnd once();
  SessionEnd watch(World& world);

 private:
  SamplerOptions sampling() const;
  std::optional<SessionEnd> look();  // into the folder
  void see(const Snapshot& snapshot);
  std::optional<SessionEnd> draw();

  LeasesSettings settings_;
  IdleTimes idle_;
  LeasesView view_;
  LiveView live_;
};

}  // namespace lull
