#pragma once
// Whom a rule would have hurt: the jobs that it would have ended, added up by who had
// them, those first whose work would have been lost most. Empty where the trace does not say.

#include <cstdint>
#include <string>
#include <vector>

#include "replay/replay.h"

namespace lull::replay {

struct Hurt {
  std::string user;     // empty: not told
  std::string command;  // likewise
  std::string host;
  std::uint64_t ended = 0;
  std::uint64_t worked_again = 0;
  double lost_seconds = 0;
  double freed_seconds = 0;
};
std::vector<Hurt> hurt_owners(const ReplayResult& result);

}  // namespace lull::replay
