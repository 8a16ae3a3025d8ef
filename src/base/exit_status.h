#pragma once
// Exit statuses that are lull's own, as in timeout(1) and env(1), and how a session ended.

#include <string>

namespace lull {

inline constexpr int kExitUsage = 2;        // the command line was wrong
inline constexpr int kExitNotNow = 75;      // not now, as EX_TEMPFAIL of sysexits.h: a hook's, and ours
inline constexpr int kExitIdle = 124;       // ended for idleness, or a wait ran out
inline constexpr int kExitFailure = 125;    // lull itself could not do it
inline constexpr int kExitCannotRun = 126;  // the command is there but cannot be run
inline constexpr int kExitNotFound = 127;   // the command is not there

// Its exit status, and why it could not be done, where it could not.
struct SessionEnd {
  int status = 0;
  std::string complaint = {};  // for a person; empty: there is nothing to complain about
  int signal = 0;              // that ended it, or its job: the program dies of it as well
};
inline SessionEnd ended_by(int signal) { return {.status = 128 + signal, .signal = signal}; }

}  // namespace lull
