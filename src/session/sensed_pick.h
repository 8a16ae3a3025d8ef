#pragma once
// The picker's eyes on this machine: readings from a sensor, names from /proc. Whoever derives from
// it says what the picker has to say.

#include <memory>
#include <string>
#include <vector>

#include "lease/picker.h"
#include "sense/sampler.h"

namespace lull {

class SensedPickWorld : public PickWorld {
 public:
  void open(const PickNeeds& needs) override;
  void first(Snapshot& into) override;
  void sample(Snapshot& into) override;
  void close() override;
  Result<std::vector<std::size_t>> scope(const Inventory& inventory, const PickSettings& settings) override;
  std::string user_name(uid_t user) override;
  std::string command_of(pid_t pid) override;
  std::string owner_of(pid_t pid) override;

 private:
  std::unique_ptr<Sampler> sampler_;
};

}  // namespace lull
