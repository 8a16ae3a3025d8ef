#pragma once
// Which folder the leases are in. One for all users of the machine is what makes them worth something; where there is
// none and only root could make it, a user has one alone, and is told what that means.

#include <string>

#include "base/result.h"

namespace lull {

struct LeasePlace {
  std::string path;
  bool shared_default = false;  // /run/lull: must be root's
  bool alone = false;           // there is no /run/lull: this user's own, into which others do not look

  // $LULL_LEASES; inside a simulation its own; else /run/lull, or what this user has instead.
  static LeasePlace of_environment();

  // What cannot be promised there; empty: nothing.
  std::string caveat() const;
};

// A folder that belongs to us and that nobody else can write to.
Result<> check_own_folder(const std::string& path);

}  // namespace lull
