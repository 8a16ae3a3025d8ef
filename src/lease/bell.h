#pragma once
// How those in the queue hear that one ahead of them has gone, or wants something else by now: a
// named pipe beside its ticket that nobody ever writes to. It rings when its last writer is gone,
// however that went, and any number of others can wait for that without an inotify instance each
// (a user has 128 by default). Who cannot have one, or cannot hear one, looks now and then.

#include <sys/types.h>

#include <string>

#include "base/fd.h"

namespace lull {

class Bell {
 public:
  Bell() = default;
  // For the ticket of this name, inside the door; silent where a pipe cannot be made.
  static Bell hang(int folder, const std::string& ticket);
  // Tells those who listen to look; from then on it is gone.
  void ring(int folder);

 private:
  Fd pipe_;
  std::string file_;
};

inline constexpr const char* kBellPrefix = "bell.";

// Readable (hung up) from when that ticket's bell has rung. Nothing: there is none to listen to, or it has.
Fd listen_to_bell(int folder, const std::string& ticket, uid_t owner);

// A bell that nobody will ring any more.
bool is_dead_bell(int folder, const std::string& file);

}  // namespace lull
