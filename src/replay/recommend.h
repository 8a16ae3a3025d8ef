#pragma once
// Which of the policies that were tried to take, if the recording supports any: the one that frees most GPU-hours of
// those of which the work lost stays within --lose at the upper end of its interval. How far that can be relied on goes
// by how long the recording is, how many jobs it has, and how long those that were not seen again were followed.

#include <cstdint>
#include <string>
#include <vector>

#include "replay/replay.h"

namespace lull::replay {

inline constexpr Duration kLeastRecorded = std::chrono::hours(24);
inline constexpr Duration kFirmRecorded = std::chrono::hours(24 * 7);
inline constexpr Duration kFirmFollowUp = std::chrono::hours(4);
inline constexpr std::uint64_t kFirmJobs = 10;
inline constexpr Duration kLongestMomentary = std::chrono::seconds(10);  // between readings of a moment

// Fills recommendation or recommendation_missing, and marks the row of the sweep.
void recommend(ReplayResult& result);

// For how long one GPU at least was seen. The first sample stands for an interval, too: a week of samples a minute
// apart is a week, in the decision and in words.
Duration recorded(const ReplayResult& result);

// Whose work a rule would have lost: the jobs that it would have ended, added up by
// user and command, largest loss first. Empty where the trace does not say.
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
