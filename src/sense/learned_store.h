#pragma once
// Keeps what was learned of each card (gpu/power_learner.h) in a file per UUID. `effort` says when a job is ended, so a
// file counts only if no user except us and root can have written it, or put it there: the file is ours, and each
// folder above it is ours or root's and closed to others. Any other or damaged file is ignored with one line.

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "gpu/power_learner.h"
#include "gpu/snapshot.h"

namespace lull {

// $LULL_LEARNED (empty: nowhere); in a simulation ($LULL_SIM) a folder of it; root's /var/lib/lull/learned; else
// lull/learned in $XDG_STATE_HOME or ~/.local/state. Empty: there is none.
std::string learned_folder(uid_t user);

class LearnedStore {
 public:
  explicit LearnedStore(std::string folder, uid_t user) : folder_(std::move(folder)), user_(user) {}

  // Nothing: there is none, or it is kept nowhere.
  Result<std::optional<PowerLearner::Learned>> load(const std::string& uuid) const;
  // Replaces the file in one step, unless another process has learned more there in the meantime.
  Result<> save(const std::string& uuid, const PowerLearner::Learned& learned) const;

  const std::string& folder() const { return folder_; }

 private:
  Result<Fd> open_folder() const;

  std::string folder_;
  uid_t user_;
};

// The file's text. Reading back refuses whatever save() would not have written.
std::string learned_text(const std::string& uuid, const PowerLearner::Learned& learned);
Result<PowerLearner::Learned> parse_learned(std::string_view text, const std::string& uuid);

// A learner for each card that a sampler reads (gpu/power_learner.h): it goes on from what is kept of the card, and
// what it learns is kept now and then. A card without a UUID of its own is learned in memory alone.
class CardLearners {
 public:
  // `keeps`: what is learned is written. One who looks only once learns nothing.
  CardLearners(LearnedStore store, bool keeps);
  CardLearners(const CardLearners&) = delete;
  CardLearners& operator=(const CardLearners&) = delete;
  ~CardLearners();

  // The GPUs have changed. Loads what is kept of new ones; what was ignored is said, a line each.
  std::vector<std::string> meet(const Inventory& inventory);
  // Fills in the signals that are learned, of the GPUs that meet() was told of last.
  void learn(Snapshot& snapshot);
  // Writes what was learned since, every ten minutes. Why it cannot be written: once.
  std::string keep_now_and_then(Instant now);

 private:
  struct Card {
    PowerLearner learner;
    std::string uuid;         // empty: kept nowhere
    double kept_seconds = 0;  // what has been written
    double kept_idle = kUnknown;
  };
  std::string keep();

  LearnedStore store_;
  bool keeps_;
  pid_t owner_;  // a child of a fork keeps nothing
  std::map<DeviceId, Card> cards_;
  std::vector<Card*> places_;  // by the place in the inventory
  Instant kept_at_{};
  bool begun_ = false;
  bool failed_ = false;  // and that was said
};

}  // namespace lull
