#pragma once
// Choosing GPUs, and waiting for them: the picker (lease/picker.h) decides, and the session samples for it and sleeps
// for it on the one loop. `lull pick` and the drop-in gpuselect are settings and a console output of this.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/exit_status.h"
#include "jobs/gpu_users.h"
#include "lease/picker.h"
#include "sense/processes.h"
#include "session/sample_source.h"
#include "view/picked.h"

namespace lull {

// What the picker sees of this machine: readings from a sensor, names from /proc. Whoever derives from it says what the
// picker has to say.
class SensedPickWorld : public PickWorld {
 public:
  explicit SensedPickWorld(Senses& senses) : senses_(senses), users_(Root{.dev = Root::machine().dev}) {}

  const Clock& clock() const override { return senses_.clock(); }
  void open(const PickNeeds& needs) override;
  void first(Snapshot& into) override { sample(into); }
  void sample(Snapshot& into) override;
  void close() override { sampler_.reset(); }
  Result<std::vector<std::size_t>> scope(const Inventory& inventory, const PickSettings& settings) override;
  std::string user_name(uid_t user) override;
  std::string command_of(pid_t pid) override;
  std::string owner_of(pid_t pid) override;
  bool is_filler(pid_t pid) override { return Fillers().contain(pid); }

 private:
  Senses& senses_;
  std::unique_ptr<SampleSource> sampler_;
  GpuUsers users_;
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
  Timer alarm_{loop_};
  std::optional<PickResult> result_;
};

// What `lull pick` and the drop-in gpuselect share: the picker's world with a console output and a terminal, and how we
// become the command that runs on what was picked.
struct PickOutput {
  bool uuid = false;  // GPUs are named by UUID
  PickFormat format = PickFormat::ids;
  bool quiet = false;
};
using TellPicker = std::function<void(const std::string&)>;  // one line for whoever picks

// The sensor, the terminal: the world that a picker at the command line sees.
std::unique_ptr<PickWorld> pick_world(Senses& senses, bool quiet, TellPicker tell);

// Nothing: `name` can be run. Else why not (126, 127).
std::optional<SessionEnd> cannot_run(const std::string& name);

// Becomes the command. Returns only if that fails.
SessionEnd run_picked(Picker& picker, const Picked& picked, const PickOutput& output, const TellPicker& tell);

}  // namespace lull
