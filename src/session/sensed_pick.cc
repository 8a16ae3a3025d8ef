#include "session/sensed_pick.h"

#include <cstdlib>

#include "base/text.h"
#include "base/users.h"
#include "sense/processes.h"
#include "sense/select.h"
#include "sense/visible.h"

namespace lull {

void SensedPickWorld::open(const PickNeeds& needs) {
  SamplerOptions options;
  options.power = needs.power;
  options.details = needs.details;
  options.openers = needs.openers;
  options.pcie = needs.pcie;
  options.once = needs.once;
  options.processes = needs.processes;
  options.topology = needs.topology;
  options.apart = true;
  options.lists_every = {};  // whoever came a moment ago counts
  sampler_ = Sampler::start(options);
  sampler_->request();
}
void SensedPickWorld::first(Snapshot& into) { sampler_->wait(into); }
void SensedPickWorld::sample(Snapshot& into) { sampler_->sample(into); }
void SensedPickWorld::close() { sampler_.reset(); }

Result<std::vector<std::size_t>> SensedPickWorld::scope(const Inventory& inventory, const PickSettings& settings) {
  if (!settings.gpus.empty()) return select_devices(settings.gpus, inventory);
  const char* job = std::getenv("SLURM_JOB_ID");
  if (settings.keep_to_visible && job != nullptr && *job != '\0' && std::getenv("CUDA_VISIBLE_DEVICES") != nullptr)
    return visible_devices(inventory).devices;
  std::vector<std::size_t> all(inventory.devices.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

std::string SensedPickWorld::user_name(uid_t user) { return lull::user_name(user); }

std::string SensedPickWorld::command_of(pid_t pid) {
  const auto process = read_process(Root::machine(), pid);
  return process ? printable(process->command_line()) : "";
}

std::string SensedPickWorld::owner_of(pid_t pid) {
  const auto user = process_user(Root::machine(), pid);
  return user ? printable(lull::user_name(*user)) : "";
}

}  // namespace lull
