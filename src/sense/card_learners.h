#pragma once
// A learner for each card that a sampler reads (gpu/power_learner.h): it goes on from what is kept of the card, and
// what it learns is kept now and then. A card without a UUID of its own is learned in memory alone.

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gpu/power_learner.h"
#include "gpu/snapshot.h"
#include "sense/learned_store.h"

namespace lull {

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
