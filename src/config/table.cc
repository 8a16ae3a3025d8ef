#include "config/table.h"

namespace lull {
namespace {

// On recordings of 8 H100s no working job stays under 1 % for two 5-second means, and the lightest real inference reads
// 4.8 %; on a day of 143 serving GPUs 30 minutes would still have lost half of their later work: servers need 2 h.
// `hung`: docs/hangs.md has what it says of all public hangs and healthy recordings. Until a card is learned it goes by
// its limit: the lowest mean power of healthy recordings at 95 % and more was 39 % of it.
// An empty card shows less than 64 MiB in use (gpu/snapshot.h), and a context takes more.
constexpr std::array<BuiltInRule, 4> kRules = {{
    {"idle", "util < 1 for 30m", "does nothing"},
    {"held", "util < 1 and mem_used > 1GiB for 30m", "holds memory and does nothing"},
    {"hung",
     "any(util) >= 95 and all(util < 5 or util >= 95 and (learned >= 1m and effort < 45 or learned < 1m and power < "
     "35%)) "
     "for 5m",
     "spins at 100 % without working, as a hung collective does"},
    {"free", "util < 1 and mem_used < 64MiB for 1m", "is used by nobody"},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kSettingTable.size(); ++i)
    if (static_cast<std::size_t>(kSettingTable[i].setting) != i) return false;
  return true;
}
static_assert(in_order());

}  // namespace

std::span<const BuiltInRule> built_in_rules() { return kRules; }

}  // namespace lull
