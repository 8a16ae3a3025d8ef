#include "lease/bell.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "lease/folder.h"

namespace lull {

namespace {

std::string bell_of(const std::string& ticket) {
  return kBellPrefix + ticket.substr(std::string_view(kTicketPrefix).size());
}

Fd open_pipe(int folder, const std::string& file, int flags, uid_t owner) {
  Fd pipe(::openat(folder, file.c_str(), flags | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
  struct stat status{};
  if (!pipe || ::fstat(pipe.get(), &status) != 0 || !S_ISFIFO(status.st_mode) || status.st_uid != owner) return {};
  return pipe;
}

// Of a pipe that is open for reading; without a writer there is an end of it to be read.
bool has_writer(int pipe) {
  char byte = 0;
  return ::read(pipe, &byte, 1) < 0 && errno == EAGAIN;
}

}  // namespace

Bell Bell::hang(int folder, const std::string& ticket) {
  Bell bell;
  bell.file_ = bell_of(ticket);
  if (::mkfifoat(folder, bell.file_.c_str(), 0600) != 0) {
    // One of ours that outlived its ticket, or somebody else's: then there is none.
    if (errno != EEXIST || ::unlinkat(folder, bell.file_.c_str(), 0) != 0 ||
        ::mkfifoat(folder, bell.file_.c_str(), 0600) != 0)
      return {};
  }
  bell.pipe_ = open_pipe(folder, bell.file_, O_RDWR, ::geteuid());
  if (!bell.pipe_ || ::fchmod(bell.pipe_.get(), 0644) != 0) bell.ring(folder);
  return bell;
}

void Bell::ring(int folder) {
  if (!file_.empty()) ::unlinkat(folder, file_.c_str(), 0);
  file_.clear();
  pipe_.reset();
}

Fd listen_to_bell(int folder, const std::string& ticket, uid_t owner) {
  Fd pipe = open_pipe(folder, bell_of(ticket), O_RDONLY, owner);
  if (!pipe || !has_writer(pipe.get())) return {};
  return pipe;
}

bool is_dead_bell(int folder, const std::string& file) {
  struct stat status{};
  if (::fstatat(folder, file.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISFIFO(status.st_mode)) return false;
  const Fd pipe = open_pipe(folder, file, O_RDONLY, status.st_uid);
  return pipe && !has_writer(pipe.get()) && (status.st_uid == ::geteuid() || ::geteuid() == 0);
}

}  // namespace lull
