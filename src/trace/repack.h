#pragma once
// Days of a history that are over, packed anew. A recorder writes a frame per sample, so that a crash loses little;
// thousands of small frames take four times the room of large ones, and twice the time to read. The rows stay the same.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "trace/history.h"

namespace lull::trace {

// Whether the file begins with frames as a recorder writes them.
Result<bool> has_small_frames(const std::string& path);

// Replaces the file by one with the same rows in large frames, once that is whole on the disk and was read back. What a
// crash cut off goes. A file that is damaged, or that somebody writes, stays as it is: an error. How many bytes it has
// now.
Result<std::uint64_t> repack(const std::string& path);

// All days before `today` that need it, with their roll-ups (trace/rollup.h). What a repack that was killed left behind
// goes. The first error, after all of them were tried.
Result<> repack_days(const std::string& folder, Day today);

}  // namespace lull::trace
