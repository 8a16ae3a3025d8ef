#pragma once
// Questions that may hang: reading /proc/PID/cmdline, environ or stack of a strange process
// waits for locks that a driver in trouble may hold for ever, in a sleep that not even SIGKILL
// ends. They are asked in a child of our own, which is given a limit and left where it is stuck
// when that is over: nobody waits for it, not even our exit.
//
// The child ends without SIGCHLD and is seen by no wait() that does not ask for it (by __WALL):
// neither ours nor that of a command that we become. It is noted as our own process
// (base/process.h), has no descriptors but its pipe, and dies with us.
//
// To be called from a program without other threads: the child is a clone of us.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace lull {

// The answer of `question`; ETIMEDOUT where it did not come within the limit.
Result<std::string> ask_aside(const std::function<std::string()>& question, Duration limit);

// The answers of question(0) … question(count - 1), asked one after the other. One that takes
// longer than `each` is passed over, and the others are asked by a fresh child, all within the
// limit. Nothing: no answer in time.
std::vector<std::optional<std::string>> ask_each(std::size_t count,
                                                 const std::function<std::string(std::size_t)>& question, Duration each,
                                                 Duration limit);

}  // namespace lull
