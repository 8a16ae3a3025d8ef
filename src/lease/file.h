#pragma once
// One file of the lease folder: what its name says, whether somebody lives behind it. For folder.cc.

#include <fcntl.h>
#include <sys/stat.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "lease/folder.h"

namespace lull {

inline constexpr std::string_view kDraftPrefix = ".draft-";
// A ticket says its number in its name, and its priority where that is not 0, so that others need not open it.
inline constexpr std::string_view kNumberWord = ".number";
inline constexpr std::string_view kPriorityWord = ".priority";

struct Opened {
  Fd fd;
  struct stat status{};
  bool denied = false;
};
std::optional<Opened> open_to_look(int folder, const std::string& file);

struct flock whole_file(short type);
bool write_locked(int fd);
std::string read_start(int fd, off_t size);
std::string_view uuid_in(std::string_view file);
Turn turn_in(std::string_view file);
int rename_to_new(int folder, const std::string& from, const std::string& to);

}  // namespace lull
