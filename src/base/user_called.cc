#include "base/user_called.h"

#include <pwd.h>

#include <vector>

#include "base/text.h"

namespace lull {

std::optional<uid_t> user_called(const std::string& name) {
  std::vector<char> space(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(name.c_str(), &entry, space.data(), space.size(), &found) == 0 && found != nullptr)
    return found->pw_uid;
  const auto number = to_unsigned(name);
  return number && *number < 0xFFFFFFFFU ? std::optional(static_cast<uid_t>(*number)) : std::nullopt;
}

}  // namespace lull
