#pragma once
// The people of this machine, by name.

#include <sys/types.h>

#include <string>

namespace lull {

// The name of a user, or the number as text. Looks into the file first: asking the
// system's name service loads plugins, and with a network directory may take seconds.
std::string user_name(uid_t uid, const std::string& passwd = "/etc/passwd");

}  // namespace lull
