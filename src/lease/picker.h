#pragma once
// Finding GPUs that suit, taking a lease on them or waiting for it: what `lull pick` and the
// drop-in gpuselect share. What it sees of the machine, and its output, are given to it
// (PickWorld), and it never sleeps by itself: it says what to wait for, so that the caller
// can do that on a loop (session/pick_session.h), also with a test's clock.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/process.h"
#include "base/random.h"
#include "base/result.h"
#include "gpu/snapshot.h"
#include "gpu/topology.h"
#include "lease/choice.h"
#include "lease/folder.h"
#include "lease/lease_holder.h"
#include "lease/queue.h"

namespace lull {

struct PickSettings {
  unsigned count = 1;
  bool all = false;              // every one that is named, however many
  std::string gpus;              // as in --gpus; empty: all of one vendor
  std::optional<Vendor> vendor;  // nothing: that of the first GPU, unless --gpus names others
  bool keep_to_visible = true;   // in a batch job: the GPUs that it was given
  Constraints constraints;
  bool where_details = false;   // the rule looks at more than utilisation, memory and processes,
  bool where_openers = false;   // at who holds the device file,
  bool where_pcie = false;      // at the traffic,
  bool where_counters = false;  // at the chip's own counters: the last three are dear to read
  Best best = Best::random;
  bool best_asked_for = true;  // else it does not matter if the driver does not tell
  bool lease = true;
  std::optional<Duration> hold;
  std::optional<pid_t> hold_pid;
  bool wait = false;
  std::optional<Duration> wait_limit;
  int priority = 0;
  unsigned share = 1;                  // be one of so many holders of a GPU at most,
  unsigned patience = 1;               // and live with so many; both count who asks
  std::optional<Constraints> company;  // what a GPU must show that others hold; else the same as any
  std::vector<std::string> command;

  bool holds() const { return lease && (!command.empty() || hold || hold_pid); }
  bool queues() const { return lease && wait; }
};

// What was chosen, and what holds it.
struct Picked {
  Snapshot snapshot;
  std::vector<std::size_t> devices;        // positions in the snapshot, ascending
  std::vector<Judgement> judgements;       // of each: by what it was found idle
  std::vector<LockedFile> locks;           // empty: not held
  std::string lease;                       // its id
  std::optional<pid_t> lease_holder = {};  // the process that holds them beside us, or from hand_over() on alone
};

// Why nothing was picked.
struct Refusal {
  enum Kind : std::uint8_t { failure, usage, late };
  Refusal() = default;
  Refusal(const Error& error, Kind how = failure) : kind(how), what(error.message()) {}  // for TRY

  Kind kind = failure;  // late: waited for as long as was asked for
  std::string what;
  std::vector<std::string> reasons = {};          // one a GPU: "GPU 2: 3 processes; wanted 0 processes"
  std::map<std::string, std::size_t> kinds = {};  // how many for which kind of reason: "leased", "in use"
  unsigned wanted = 0;
  unsigned fitting = 0;
  unsigned filled = 0;         // in use by fillers alone
  bool waiting_helps = false;  // there are enough that may come to suit, and they were not waited for
};
using PickResult = std::expected<Picked, Refusal>;

// How it stands with one who waits, for people.
struct Waiting {
  unsigned count = 0;
  std::size_t ahead = 0;
  std::size_t collected = 0;
  std::vector<std::string> reasons;               // as in a refusal
  std::map<std::string, std::size_t> kinds = {};  // likewise
};

// What has to be read of the GPUs.
struct PickNeeds {
  bool power = false;
  bool details = false;  // temperature, performance state, clocks
  bool openers = false;
  bool pcie = false;
  bool counters = false;      // the chip's own
  bool process_info = false;  // whose they are
  bool topology = false;
  bool once = false;  // the moment decides, there is no second look after a while
};

class PickWorld {
 public:
  virtual ~PickWorld() = default;

  virtual const Clock& clock() const = 0;
  // From now on this is what sample() reads; the first sample is begun at once.
  virtual void open(const PickNeeds& needs) = 0;
  // The sample that open() began.
  virtual void first(Snapshot& into) = 0;
  virtual void sample(Snapshot& into) = 0;
  // Lets go of the driver: nothing of it is left beside us. open() may follow.
  virtual void close() = 0;

  // Positions of the GPUs that are meant: those of the list, else those that a batch job was given, else all of one
  // vendor.
  virtual Result<std::vector<std::size_t>> scope(const Inventory& inventory, const PickSettings& settings) = 0;
  virtual std::string user_name(uid_t user) = 0;
  virtual std::string command_of(pid_t pid) = 0;   // printable; empty: cannot be seen
  virtual std::string owner_of(pid_t pid) = 0;     // its user's name; empty: cannot be seen
  virtual bool is_filler(pid_t) { return false; }  // of a `lull fill`, which yields to who waits

  virtual void warn(const std::string& text) = 0;
  virtual void waits(const Waiting& waiting) = 0;
  virtual void waits_no_more() = 0;
};

// What to do next: sleep, and then let the picker go on; or nothing, for this came of it.
using PickStep = std::variant<Sleep, PickResult>;

class Picker {
 public:
  Picker(PickWorld& world, PickSettings settings)
      : world_(world), settings_(std::move(settings)), random_(random_bits()) {}

  PickStep begin();
  PickStep go_on();  // after each Sleep
  // Both: with a result the world is closed, so that nothing of it is left beside the command.

  // With a choice: lets the lease holder hold the locks, for the time or the process of the settings.
  Result<> hand_to_lease_holder(const Picked& picked);
  const PickSettings& settings() const { return settings_; }

  // With a result: what was read of each GPU in scope, and why it suits or not.
  struct Choice {
    DeviceId gpu;
    std::vector<std::string> names;  // under which it may be leased, ours first; none: it cannot be had
    std::string label;
    Judgement judgement;
    Judgement in_company;  // as one of several holders
  };
  const std::vector<Choice>& choices() const { return choices_; }
  const Snapshot& snapshot() const { return snapshot_; }
  std::optional<std::size_t> position_of(const Choice& choice) const;

 private:
  // What the sleep was for.
  enum class Phase : std::uint8_t { asking, queueing, settling, looking_again };
  PickStep sleep(Phase phase, Sleep on);
  PickStep ended(PickStep step);
  PickStep next();
  std::expected<void, Refusal> prepare();
  Result<> open_folder();
  void open_world();
  Result<std::vector<std::size_t>> scope();
  std::expected<void, Refusal> find_candidates();
  void read_joins();
  void judge_again();
  void judge_our_turn();
  void judge_one(Choice& choice, std::size_t position) const;
  Candidate candidate_of(const Choice& choice) const;
  void look_closer();
  bool may_only_look_busy() const;
  bool know_enough();
  PickStep ask();
  PickStep choose_among_all();
  PickStep pick_at_once();
  PickStep unless_it_only_looks_busy(PickResult result);
  PickStep unless_fillers_yield(Refusal refusal);
  bool only_fillers_on(const Choice& choice) const;
  PickStep pick_unheld();
  PickStep pick_now();
  std::vector<std::size_t> fitting_now(const std::vector<Standing>& standing) const;
  bool settling(const std::vector<Standing>& standing) const;
  PickStep join_queue();
  PickStep in_queue();
  PickStep woken_in_queue();
  Refusal late();
  std::optional<PickResult> finished();
  void complete(Picked& picked) const;
  std::string who(const LeaseInfo& lease) const;
  std::string standing_text(const Standing& standing) const;
  std::string users_text(const Choice& choice) const;
  Chooser chooser();
  Refusal refusal(const std::vector<Standing>& standing);
  bool presume_fit(const std::vector<Standing>& standing);
  bool foreign_use(const std::vector<Standing>& standing);
  void tell(const std::vector<Standing>& standing);
  LeaseRecord pattern() const;

  PickWorld& world_;
  PickSettings settings_;
  std::mt19937_64 random_;

  std::optional<LeaseFolder> folder_;
  std::optional<LeaseHolder> lease_holder_;
  std::optional<Process> held_process_;
  LeaseRecord record_;  // what our leases will say
  std::optional<Process> self_;
  bool open_ = false;    // the world is
  bool closer_ = false;  // and we read the performance state as well
  Snapshot snapshot_;
  Instant looked_{};  // when that was begun
  Topology topology_;
  std::shared_ptr<const Inventory> joined_inventory_;  // that the topology is of

  std::string within_;                  // the lease that we are inside of
  std::vector<std::string> inside_;     // its GPUs
  std::vector<Choice> choices_;         // all in scope, also those that can never fit
  std::vector<std::size_t> candidate_;  // of each candidate of the queue: its choice
  std::optional<LeaseQueue> queue_;

  Phase phase_ = Phase::asking;
  std::optional<Instant> deadline_;  // of waiting
  Instant settled_{};                // for those who do not wait: until then others may take what is theirs,
  int rounds_ = 0;                   // and so often we have chosen
  bool looked_again_ = false;
  bool asks_fillers_ = false;  // we queue only so that they yield
  Duration pause_{};           // in the queue: until we look at GPUs that others use,
  Instant look_again_{};
  bool foreign_ = false;  // of which there are some;
  bool covered_ = false;  // others were ahead of us when we went to sleep;
  bool sampled_ = false;  // and what we know of the GPUs is of now
};

}  // namespace lull
