#include "replay/learning.h"

#include <algorithm>

namespace lull::replay {
std::vector<Metric> must_have(const std::vector<Metric>& signals) {
  std::vector<Metric> all = made_of(signals);
  if (any_learned(signals)) std::erase(all, Metric::power_limit);
  return all;
}

Learning::Gpu& Learning::at(std::size_t gpu) {
  if (gpu >= gpus_.size()) gpus_.resize(gpu + 1);
  if (!gpus_[gpu]) gpus_[gpu] = std::make_unique<Gpu>();
  return *gpus_[gpu];
}

void Learning::block(std::size_t gpu, const Block& block) { next_.block(gpu, at(gpu).add(block)); }

void Learning::frames(std::span<const Block> gpus) {
  blocks_.clear();
  for (std::size_t i = 0; i < gpus.size(); ++i) blocks_.push_back(at(i).add(gpus[i]));
  next_.frames(blocks_);
}

}  // namespace lull::replay
