#pragma once
// Is somebody at this machine? The kernel notes on every terminal when a program
// last read a key from it, so the idle time of the people is that of the terminal
// that was used last: consoles, ssh sessions, panes of tmux. Graphical sessions
// type past the terminals and are not seen.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "gpu/snapshot.h"

namespace lull {

struct PresenceOptions {
  std::vector<uid_t> ignore;  // users who do not count
  std::string utmp = {};      // the file of who is logged in: terminals of other names (ttyS0, hvc0) are found by it
  Root root = Root::machine();
};

// Seconds since the last key on any terminal of a user who counts; since boot
// where there is no terminal. Unknown where the terminals cannot be looked at.
double user_idle_seconds(const PresenceOptions& options, const Clock& clock);

// The same for each user who has a terminal; the last one to type first. Nothing: the terminals cannot be looked at.
struct Typist {
  uid_t user = 0;
  double idle = 0;  // seconds
};
std::optional<std::vector<Typist>> typists(const PresenceOptions& options, const Clock& clock);

void add_presence(Facts& facts, double user_idle);

}  // namespace lull
