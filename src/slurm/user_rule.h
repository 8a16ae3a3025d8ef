#pragma once
// What the user of a job may ask for: TIME[,requeue|cancel|warn], by `sbatch --gpu-idle=2h` (SPANK plug-in) or by a
// word of the job's comment, `sbatch --comment lull=2h,cancel`. The text is the user's own: anything may stand there.

#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "slurm/allocation.h"

namespace lull::slurm {

struct UserRule {
  enum class Then : std::uint8_t {
    site,  // what the site's steps do
    requeue,
    cancel,
    warn,  // the user is told, and no more is done before the longest time that the site allows
  };
  Duration time{};  // the GPUs have to be idle for so long
  Then then = Then::site;
  bool operator==(const UserRule&) const = default;
};

Result<UserRule> parse_user_rule(std::string_view text);  // "2h", "1h30m,warn"
// Nothing: the job asks for nothing. An error: for nonsense; then the site's steps hold as they are.
Result<std::optional<UserRule>> user_rule_of(const Allocation& job);

}  // namespace lull::slurm
