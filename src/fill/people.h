#pragma once
// Who is at this machine: whoever has typed at a terminal lately (access times of /dev/pts/*, /dev/ttyN and of the
// lines that utmp names), and whoever has a graphical session that logind does not call idle. Users who do not count
// are left out.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "act/helper.h"
#include "base/clock.h"
#include "fill/settings.h"
#include "loop/loop.h"

namespace lull {

struct ActivePerson {
  std::string name;
  Duration idle{};  // since the last key
};

class People {
 public:
  People(Loop& loop, Helpers& helpers, const PeopleSettings& settings, const InheritedSignals* signals);
  People(const People&) = delete;
  People& operator=(const People&) = delete;
  ~People();

  // Those who are there now. `trouble`: why that cannot be said; empty: it can.
  std::vector<ActivePerson> look(std::string& trouble);

 private:
  void ask_logind();

  Loop& loop_;
  Helpers& helpers_;
  PeopleSettings settings_;
  const InheritedSignals* signals_;
  std::vector<uid_t> left_out_;
  Instant asked_ = Instant::min();
  bool asking_ = false;
  std::vector<std::pair<std::string, std::optional<Duration>>> graphical_;  // user, and for how long idle
  Instant graphical_at_{};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// What `loginctl show-session` says of graphical sessions: each user, and for how long idle (nothing: not at all).
// `now_microseconds` on the monotonic clock, as its IdleSinceHintMonotonic.
std::vector<std::pair<std::string, std::optional<Duration>>> graphical_sessions(const std::string& text,
                                                                                std::uint64_t now_microseconds);

}  // namespace lull
