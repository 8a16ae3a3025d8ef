#pragma once
// Who is at this machine: whoever has typed at a terminal lately (access times of /dev/pts/*, /dev/ttyN and of the
// lines that utmp names), and whoever has a graphical session that logind does not call idle. Users who do not count
// are left out.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "act/children.h"
#include "base/clock.h"
#include "fill/settings.h"
#include "loop/loop.h"
#include "sense/presence.h"

namespace lull {

struct ActivePerson {
  std::string name;
  Duration idle{};  // since the last key
};

// On a screen, as logind tells of it.
struct GraphicalSession {
  std::string name;
  std::optional<uid_t> user;
  std::optional<Duration> idle;  // nothing: not at all
  bool operator==(const GraphicalSession&) const = default;
};

class People {
 public:
  People(Loop& loop, Helpers& helpers, const PeopleSettings& settings, const InheritedSignals* signals);
  People(const People&) = delete;
  People& operator=(const People&) = delete;
  ~People();

  // Those who are there now. `trouble`: why that is unknown; empty: it is known.
  std::vector<ActivePerson> look(std::string& trouble);
  // Users who are left out by a name that could not be found out, and why: they count.
  const std::vector<std::string>& unknown() const { return unknown_; }

 private:
  void ask_logind();

  Loop& loop_;
  Helpers& helpers_;
  PeopleSettings settings_;
  const InheritedSignals* signals_;
  std::vector<uid_t> left_out_;
  std::vector<std::string> unknown_;
  std::optional<Presence> presence_;
  Instant asked_ = Instant::min();
  bool asking_ = false;
  std::vector<GraphicalSession> graphical_;
  Instant graphical_at_{};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// What `loginctl show-session` says of graphical sessions. `now_microseconds` on the monotonic clock, as its
// IdleSinceHintMonotonic.
std::vector<GraphicalSession> graphical_sessions(const std::string& text, std::uint64_t now_microseconds);

}  // namespace lull
