#pragma once
// Parks a job and brings it back, step by step (docs/park.md). Before each step its record is on disk. Whatever fails,
// and wherever a lull before us was killed, bring_back() is what follows: it asks each process for its state and makes
// all of them run, or, where the GPUs are not free, leaves all of them parked. Nothing stays locked as long as the tool
// answers.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/result.h"
#include "gpu/snapshot.h"
#include "lease/folder.h"
#include "park/plan.h"
#include "park/record.h"
#include "park/tool.h"

namespace lull {

// What the steps need of the machine.
struct ParkWorld {
  std::function<Snapshot()> sample;             // asked for now
  std::function<void(const std::string&)> say;  // one line for a person
  LeasePlace leases = LeasePlace::of_environment();
};

enum class ParkEnd : std::uint8_t {
  parked,
  running,    // all of it runs
  ended,      // all of its processes have ended
  waits,      // still parked: the GPUs are not free
  failed,     // still parked: it could not be restored
  lost,       // some of it cannot be brought back
  uncertain,  // some of it may be locked, or runs while the rest is parked: to be tried again
};

class Parking {
 public:
  // A new one. Refused: nothing was done.
  static Result<Parking> begin(const ParkFolder& folder, ParkPlan plan, CheckpointTool tool, ParkWorld world);
  // One that is there; nothing: it is gone. EAGAIN: another lull works on it.
  static Result<std::optional<Parking>> take(const ParkFolder& folder, const std::string& id,
                                             CheckpointTool::Limits limits, const std::optional<std::string>& tool,
                                             ParkWorld world);

  const ParkRecord& record() const { return record_; }

  // `parked`, or what became of the way back.
  ParkEnd park();
  ParkEnd bring_back();
  // Why it waits, what failed: the last thing that was in the way.
  const std::string& why() const { return why_; }

 private:
  struct Lease;
  struct Member {
    Process process;  // empty: has ended
    const ParkedProcess* of = nullptr;
    CudaState state = CudaState::unknown;
  };
  Parking(const ParkFolder& folder, ParkRecord record, CheckpointTool tool, ParkWorld world)
      : folder_(&folder), record_(std::move(record)), tool_(std::move(tool)), world_(std::move(world)) {}

  Result<> open_members();
  void ask();
  std::vector<const Process*> in(std::initializer_list<CudaState> states) const;
  std::size_t count(CudaState state) const { return in({state}).size(); }
  bool all_are(CudaState state) const;
  std::string not_in(CudaState state) const;
  bool reach(ParkStep step);
  void note(std::string trouble);
  bool checkpoint_all();
  bool restore_all();
  ParkEnd stay_parked(ParkEnd how);
  ParkEnd unlock_all();
  ParkEnd try_to_bring_back(std::unique_ptr<Lease>& lease);
  void give_up_leases();
  Result<Process> lease_process() const;
  bool is_own_lease(const LeaseInfo& one) const;
  bool start_restoring(Lease& lease);
  Result<std::unique_ptr<Lease>> take_lease();
  Result<> check_free();

  const ParkFolder* folder_;
  ParkFolder::Lock lock_;
  ParkRecord record_;
  CheckpointTool tool_;
  ParkWorld world_;
  std::vector<Member> members_;
  std::string why_;
};

// Beside whoever works on an entry: brings the job back should that one die. Over when it is destroyed.
class ParkGuard {
 public:
  static Result<ParkGuard> start(const std::string& id);
  ParkGuard(ParkGuard&&) = default;
  ParkGuard& operator=(ParkGuard&&) = default;
  ~ParkGuard();

 private:
  explicit ParkGuard(Fd socket) : socket_(std::move(socket)) {}
  Fd socket_;
};

// What a killed lull left in the middle of a step is brought back by a separate process, which is not waited for.
void repair_in_background();

}  // namespace lull
