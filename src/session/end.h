#pragma once
// How a session ended: its exit status, and why it could not be done, where it could not.

#include <string>

namespace lull {

struct SessionEnd {
  int status = 0;
  std::string complaint = {};  // for a person; empty: there is nothing to complain about
};

}  // namespace lull
