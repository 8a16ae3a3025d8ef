#pragma once
// A file of settings as text, if it may be believed. Settings name commands to run and say when to end jobs, so a file
// counts only if no user except us and root can have written it; and whatever its name stands for (a FIFO, a device, a
// terabyte), reading it neither blocks nor fills our memory.

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/result.h"

namespace lull {

struct SettingsFile {
  std::string path;
  std::optional<std::string> text;  // nothing: it is not there, or not ours to read
  std::string passed_over;          // why it is there and was not read; empty: nothing to say
};

enum class FileOf : unsigned char {
  system,  // root's: if it is there and cannot be used, that is an error
  user,    // of this user: one that is another's (HOME was kept across sudo -u) is passed over
};
Result<SettingsFile> read_settings_file(const std::string& path, FileOf whose, uid_t user);

// ~/.config/lull/lull.toml of this user; empty: there is no home. Root's home is what the user database says: a HOME
// that sudo kept belongs to another user.
std::string user_settings_path(uid_t user);

}  // namespace lull
