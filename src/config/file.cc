#include "config/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/fd.h"
#include "base/text.h"

namespace lull {
namespace {

constexpr std::size_t kLargest = 256 << 10;

// Who else can write it. A group with the user's own number is the user alone, as Debian sets users up.
std::string writable_by(const struct stat& status, uid_t user) {
  if ((status.st_mode & S_IWOTH) != 0) return "everybody";
  const bool private_group = status.st_gid == user && user != 0;
  if ((status.st_mode & S_IWGRP) != 0 && !private_group && status.st_gid != 0) return "its group";
  return "";
}

std::string home_in_database(uid_t user) {
  std::array<char, 4096> space;
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(user, &entry, space.data(), space.size(), &found) != 0 || found == nullptr) return "";
  return found->pw_dir;
}

std::string variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string user_settings_path(uid_t user) {
  constexpr std::string_view kBelow = "/lull/lull.toml";
  if (user == 0) {
    const std::string home = home_in_database(user);
    return home.empty() ? "" : home + "/.config" + std::string(kBelow);
  }
  if (const std::string folder = variable("XDG_CONFIG_HOME"); folder.starts_with('/'))
    return folder + std::string(kBelow);
  const std::string home = variable("HOME");
  return home.starts_with('/') ? home + "/.config" + std::string(kBelow) : "";
}

Result<SettingsFile> read_settings_file(const std::string& path, FileOf whose, uid_t user) {
  SettingsFile file{path, {}, {}};
  // Without opening it first: what stands there may wait for a writer, or do something when opened.
  const auto handle = open_file(path, O_PATH);
  if (!handle) {
    const int why = handle.error().errno_value;
    if (why == ENOENT || why == ENOTDIR) return file;
    if (whose == FileOf::user && why == EACCES) {  // the home of another user
      file.passed_over = "no permission";
      return file;
    }
    return std::unexpected(handle.error());
  }
  struct stat status{};
  if (::fstat(handle->get(), &status) != 0) return fail(errno, printable(path));
  if (whose == FileOf::user && status.st_uid != user && status.st_uid != 0) {
    file.passed_over = fmt::format("it belongs to uid {}, not to us", status.st_uid);
    return file;
  }
  if (!S_ISREG(status.st_mode)) return fail(printable(path) + " is not a regular file");
  if (whose == FileOf::system && status.st_uid != 0)
    return fail(
        fmt::format("{0} belongs to uid {1}, so it is not believed: chown root {0}", printable(path), status.st_uid));
  if (const std::string who = writable_by(status, user); !who.empty())
    return fail(fmt::format("{0} can be written by {1}, so it is not believed: chmod go-w {0}", printable(path), who));
  if (status.st_size > static_cast<off_t>(kLargest))
    return fail(fmt::format("{} has more than {} KiB: that is not a settings file", printable(path), kLargest >> 10));
  auto text = read_file(AT_FDCWD, fmt::format("/proc/self/fd/{}", handle->get()), kLargest);
  if (!text) {
    if (whose == FileOf::user && text.error().errno_value == EACCES) {
      file.passed_over = "no permission";
      return file;
    }
    return fail(text.error().errno_value, printable(path));
  }
  file.text = *std::move(text);
  return file;
}

}  // namespace lull
