#pragma once
// Choosing GPUs, and waiting for them: the picker (lease/picker.h) decides, and the session samples for it and sleeps
// for it on the one loop. `lull pick` and the drop-in gpuselect are settings and a voice of this.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lease/picker.h"
#include "session/sample_source.h"

namespace lull {

// The picker's eyes on this machine: readings from a sensor, names from /proc. Whoever derives from it says what the
// picker has to say.
class SensedPickWorld : public PickWorld {
 public:
  explicit SensedPickWorld(Senses& senses) : senses_(senses) {}

  const Clock& clock() const override { return senses_.clock(); }
  void open(const PickNeeds& needs) override;
  void first(Snapshot& into) override { sample(into); }
  void sample(Snapshot& into) override;
  void close() override { sampler_.reset(); }
  Result<std::vector<std::size_t>> scope(const Inventory& inventory, const PickSettings& settings) override;
  std::string user_name(uid_t user) override;
  std::string command_of(pid_t pid) override;
  std::string owner_of(pid_t pid) override;

 private:
  Senses& senses_;
  std::unique_ptr<SampleSource> sampler_;
};

class PickSession {
 public:
  PickSession(Loop& loop, PickWorld& world, PickSettings settings) : loop_(loop), picker_(world, std::move(settings)) {}

  PickResult run();
  Picker& picker() { return picker_; }

 private:
  void take(PickStep step);
  Result<> sleep();
  void wake();

  Loop& loop_;
  Picker picker_;
  Sleep sleep_;
  std::optional<Loop::TimerId> alarm_;
  std::optional<PickResult> result_;
};

}  // namespace lull
