#include "lease/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <utility>

#include "base/text.h"
#include "lease/bell.h"

namespace lull {
namespace {

constexpr std::size_t kLargestRecord = 64U << 10;

template <class Number>
Number number_after(std::string_view word, std::string_view file) {
  Number number = 0;
  if (const std::size_t at = file.find(word); at != std::string_view::npos)
    std::from_chars(file.data() + at + word.size(), file.data() + file.size(), number);
  return number;
}

}  // namespace

struct flock whole_file(short type) {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  return range;
}

// A lease is a write lock. Asking as a reader would leaves those out who only
// hold a read lock: anyone who may look could, and it must mean nothing.
bool write_locked(int fd) {
  struct flock range = whole_file(F_RDLCK);
  if (::fcntl(fd, F_OFD_GETLK, &range) != 0) return true;
  return range.l_type != F_UNLCK;
}

std::string read_start(int fd, off_t size) {
  std::string text(std::min(kLargestRecord, static_cast<std::size_t>(std::max<off_t>(size, 0))), '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

// The UUID in `GPU-….1000`, or nothing.
std::string_view uuid_in(std::string_view file) {
  const std::size_t dot = file.find('.');
  if (dot == std::string_view::npos || file.starts_with(kTicketPrefix) || file.starts_with(kBellPrefix)) return {};
  const std::string_view uuid = file.substr(0, dot);
  return plain_word(uuid) ? uuid : std::string_view();
}

// Links and anything but plain files were not made by lull and mean nothing.
std::optional<Opened> open_to_look(int folder, const std::string& file) {
  Opened opened;
  auto fd = open_at(folder, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (!fd) {
    if (fd.error().errno_value != EACCES && fd.error().errno_value != EPERM) return {};
    if (::fstatat(folder, file.c_str(), &opened.status, AT_SYMLINK_NOFOLLOW) != 0) return {};
    opened.denied = true;
  } else {
    if (::fstat(fd->get(), &opened.status) != 0) return {};
    opened.fd = *std::move(fd);
  }
  if (!S_ISREG(opened.status.st_mode)) return {};
  return opened;
}

// 0, or why not; never in the place of another file.
int rename_to_new(int folder, const std::string& from, const std::string& to) {
  if (::renameat2(folder, from.c_str(), folder, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system that cannot do that in one step.
  if (::linkat(folder, from.c_str(), folder, to.c_str(), 0) != 0) return errno;
  ::unlinkat(folder, from.c_str(), 0);
  return 0;
}

// By its name's word. One without a number is of another version, and goes before all.
Turn turn_in(std::string_view file) {
  const int priority = number_after<int>(kPriorityWord, file);
  return {std::clamp(priority, -kGreatestPriority, kGreatestPriority), 0,
          number_after<std::uint64_t>(kNumberWord, file)};
}

}  // namespace lull
