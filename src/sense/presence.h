#pragma once
// Is a user active at this machine? The kernel notes on every terminal when a program last read a key from it:
// consoles, ssh sessions, panes of tmux. Graphical sessions type past the terminals and are not seen.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
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

// Who has a terminal, and for how long they have not typed.
struct Typist {
  uid_t user = 0;
  double idle = 0;  // seconds
};

// Keeps for each terminal when its last key was, by a clock that cannot be set. The kernel notes the wall clock: that
// is believed only as far as it agrees with the other clock. For what was before the first look: where the time at
// which the terminal was opened, which the kernel notes too, agrees with the start of the process that leads its
// session. Else the last key counts as one of now.
class Presence {
 public:
  explicit Presence(PresenceOptions options = {}) : options_(std::move(options)) {}

  // Seconds since the last key on any terminal of a user who counts; since boot where there is no terminal. Unknown
  // where the terminals cannot be looked at.
  double user_idle(const Clock& clock);
  // The same for each user who has a terminal; the last one to type first. Nothing: the terminals cannot be looked at.
  std::optional<std::vector<Typist>> typists(const Clock& clock);

 private:
  struct Terminal {
    uid_t user = 0;
    dev_t number = 0;
    Duration noted{};   // the kernel's time of the last key, by the wall clock
    Duration opened{};  // and that of its last change of owner or mode
    Instant typed{};    // the last key by our clock
  };
  using Terminals = std::map<std::string, Terminal>;
  void add(int folder, const std::string& name, const std::string& path, Terminals& found) const;
  bool add_all(const std::string& folder, std::string_view prefix, Terminals& found) const;
  void add_logged_in(Terminals& found) const;
  std::set<std::string> opened_before_leap(const Terminals& found, Duration ahead) const;

  PresenceOptions options_;
  Terminals terminals_;
  std::optional<Instant> looked_at_;
  Duration wall_ahead_{};  // of the other clock, at that look
};

void add_presence(Facts& facts, double user_idle);

}  // namespace lull
