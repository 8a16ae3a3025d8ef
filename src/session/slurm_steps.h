#pragma once
// The steps by which one Slurm job is judged: the site's, with the time and the action that the job's user asked for.
// Pure. Each node of a job comes to the same steps, since each has the same settings and the same allocation.
//
// The time asked for is that of the first step that does something to the job; all other steps are moved in proportion.
// Nothing comes earlier than the site's steps say unless the user asked for a shorter time.

#include <vector>

#include "base/clock.h"
#include "session/each_session.h"
#include "slurm/user_rule.h"

namespace lull {

// `every`: between two samples. `at_most`: the longest time that a user can ask for.
std::vector<EachStep> steps_asked_for(const std::vector<EachStep>& site, const slurm::UserRule& asked, Duration every,
                                      Duration at_most);

}  // namespace lull
