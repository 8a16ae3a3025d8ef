#pragma once
// GPUs that were lost, or closed to us, before we first looked: the driver tells nothing of who is there. Mostly nobody
// can be, since the card is dead or not ours. But who has opened its device file may have been at work there before, or
// still be.

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "sense/openers.h"

namespace lull {

class DarkCards {
 public:
  explicit DarkCards(Root root) : root_(std::move(root)) {}

  // Who holds the files of these places in the inventory. A look at the files of every process takes long, so for a
  // while the last one is good: but only for the very same cards.
  const FileHolders& look(const std::shared_ptr<const Inventory>& inventory, const std::vector<std::size_t>& dark,
                          Instant at);

 private:
  Root root_;
  std::shared_ptr<const Inventory> inventory_;
  std::vector<std::size_t> dark_;
  FileHolders found_;
  Instant looked_{};
};

}  // namespace lull
