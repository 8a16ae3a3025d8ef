#include "base/result.h"

#include <system_error>

namespace lull {

std::string Error::message() const {
  if (errno_value == 0) return what;
  const std::string system = std::generic_category().message(errno_value);
  return what.empty() ? system : what + ": " + system;
}

}  // namespace lull
