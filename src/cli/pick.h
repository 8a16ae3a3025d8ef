#pragma once
// What `lull pick` and the drop-in gpuselect share: finding GPUs that suit, taking
// a lease on them or waiting for it, and starting the command on them.

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "act/lease.h"
#include "act/lease_keeper.h"
#include "act/lease_queue.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/random.h"
#include "base/result.h"
#include "gpu/snapshot.h"
#include "gpu/topology.h"
#include "rule/choice.h"
#include "sense/sampler.h"

namespace lull {

enum class PickFormat : std::uint8_t { ids, uuids, docker, env, json };

struct PickSettings {
  unsigned count = 1;
  bool all = false;             // every one that is named, however many
  std::string gpus;             // as in --gpus; empty: all
  bool keep_to_visible = true;  // in a batch job: the GPUs that it was given
  Wishes wishes;
  bool where_details = false;  // the rule looks at more than utilisation, memory and processes,
  bool where_openers = false;  // at who holds the device file,
  bool where_pcie = false;     // at the traffic: the last two are dear to read
  Best best = Best::random;
  bool uuid = false;
  PickFormat format = PickFormat::ids;
  bool lease = true;
  std::optional<Duration> hold;
  std::optional<pid_t> hold_pid;
  bool wait = false;
  std::optional<Duration> wait_limit;
  int priority = 0;
  bool quiet = false;
  std::vector<std::string> command;

  bool holds() const { return lease && (!command.empty() || hold || hold_pid); }
  bool queues() const { return lease && wait; }
};

// What was chosen, and what holds it.
struct Picked {
  Snapshot snapshot;
  std::vector<std::size_t> devices;   // positions in the snapshot, ascending
  std::vector<Judgement> judgements;  // of each: by what it was found idle
  std::vector<LockedFile> locks;      // empty: not held
  std::string lease;                  // its id
};

// Why nothing was picked: what to say, and the exit status.
struct Refusal {
  std::string what;
  std::vector<std::string> reasons;  // one a GPU: "GPU 2: 3 processes, 41 % util; wanted 0"
  int status = 125;
  unsigned wanted = 0;
  unsigned fitting = 0;
};
using PickResult = std::expected<Picked, Refusal>;

class Picker {
 public:
  explicit Picker(PickSettings settings) : settings_(std::move(settings)), random_(random_bits()) {}

  // Afterwards the sensor is gone: nothing of it is left beside the command.
  PickResult pick();
  // For after pick(): lets the keeper hold the locks, for the time or the process of the settings.
  Result<> hand_to_keeper(const Picked& picked);
  // Nothing follows but exec or the end of this process.
  void part_from_keeper();
  const PickSettings& settings() const { return settings_; }
  // After pick(): what was read of each GPU in scope, and why it suits or not.
  std::vector<std::string> debug_lines() const;

 private:
  std::optional<Refusal> prepare();
  std::optional<Refusal> open_folder();
  void start_sampler();
  Result<std::vector<std::size_t>> scope();
  std::optional<Refusal> find_candidates();
  void read_joins();
  void judge_again();
  void look_closer();
  bool may_only_look_busy() const;
  PickResult find();
  PickResult pick_at_once();
  PickResult pick_unheld();
  PickResult pick_now();
  PickResult pick_waiting();
  PickResult finished();
  void complete(Picked& picked) const;
  std::vector<std::size_t> unfit_of_kept();
  Chooser chooser();
  Refusal refusal(const std::vector<Standing>& standing);
  void show_place(const std::vector<Standing>& standing);
  void clear_place();
  std::optional<std::size_t> position_of(const std::string& uuid) const;
  std::optional<std::size_t> position_of_label(const std::string& label) const;
  void wait_for_gpus();
  LeaseRecord pattern() const;

  PickSettings settings_;
  std::mt19937_64 random_;

  std::optional<LeaseFolder> folder_;
  std::optional<Keeper> keeper_;
  std::optional<Process> held_process_;
  LeaseRecord record_;  // what our leases will say
  std::optional<Process> self_;
  std::unique_ptr<Sampler> sampler_;
  bool closer_ = false;  // it reads the performance state as well
  Snapshot snapshot_;
  Topology topology_;
  std::shared_ptr<const Inventory> joined_inventory_;  // that the topology is of

  std::string within_;               // the lease that we are inside of
  std::vector<std::string> inside_;  // its GPUs
  struct Choice {
    std::string uuid;
    std::string label;
    Judgement judgement;
  };
  std::vector<Choice> choices_;         // all in scope, also those that can never fit
  std::vector<std::size_t> candidate_;  // of each candidate of the queue: its choice
  std::optional<LeaseQueue> queue_;
  std::string shown_;
};

// Sets what makes the command see these GPUs and no others: CUDA_VISIBLE_DEVICES
// and CUDA_DEVICE_ORDER, or what the maker of the GPUs uses instead.
std::vector<std::pair<std::string, std::string>> visibility(const Picked& picked, bool uuid, const Root& root);
// CUDA_VISIBLE_DEVICES: "0,3", or UUIDs where asked for or where there are MIG devices.
std::string visible_value(const Picked& picked, bool uuid);

// Says on stderr why nothing was picked; returns the exit status.
int say_refusal(const Refusal& refusal);

// Nothing: `name` can be run. Else the exit status (126, 127), all has been said.
std::optional<int> cannot_run(const std::string& name);

// Becomes the command. Returns only if that fails, with the exit status.
int run_picked(Picker& picker, const Picked& picked);

}  // namespace lull
