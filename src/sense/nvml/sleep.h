#pragma once
// Which NVIDIA cards are suspended, as the kernel says it (runtime power management), without asking the driver: any
// question to the driver wakes a sleeping card, which on a laptop costs hours of battery. Cards whose power the kernel
// does not manage (servers) are never asleep and cost nothing here.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "gpu/snapshot.h"

namespace lull {

class Sleepers {
 public:
  explicit Sleepers(const Root& root);

  std::size_t count() const { return cards_.size(); }  // NVIDIA's GPUs, by PCI address
  bool asleep(std::size_t card) const;
  std::int64_t awake_ms(std::size_t card) const;  // in all, as the kernel counts; -1: not told
  const std::string& address(std::size_t card) const { return cards_[card].address; }  // 0000:3b:00.0
  bool all_asleep() const;
  std::optional<std::size_t> find(std::string_view pci) const;  // as NVML writes it: 00000000:3B:00.0
  // What the kernel driver's own files tell of it: name, minor number, UUID where it was read before.
  Device device(std::size_t card) const;

 private:
  struct Card {
    std::string address;  // 0000:3b:00.0
    std::string status;   // its power/runtime_status; empty: it does not sleep
    Fd open;              // the same, open: it is asked several times a second
  };
  Root root_;
  std::vector<Card> cards_;
};

}  // namespace lull
