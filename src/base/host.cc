#include "base/host.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

namespace lull {

std::string host_name() {
  if (const char* chosen = std::getenv("LULL_HOST"); chosen != nullptr && *chosen != '\0') return chosen;
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace lull
