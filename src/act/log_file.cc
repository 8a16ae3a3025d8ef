#include "act/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace lull {

Result<> LogFile::reopen() {
  fd_.reset();
  Fd fd(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644));
  if (!fd) return fail(errno, path_);
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return fail(errno, path_);
  rotates_ = S_ISREG(status.st_mode);
  size_ = static_cast<std::uint64_t>(status.st_size);
  fd_ = std::move(fd);
  return {};
}

Result<LogFile> LogFile::open(std::string path, std::uint64_t size, unsigned keep) {
  LogFile log(std::move(path), size, keep);
  if (auto opened = log.reopen(); !opened) return std::unexpected(std::move(opened).error());
  return log;
}

void LogFile::rotate() {
  const auto name = [&](unsigned number) { return number == 0 ? path_ : path_ + "." + std::to_string(number); };
  if (keep_ == 0) {
    (void)!::ftruncate(fd_.get(), 0);
    size_ = 0;
    return;
  }
  for (unsigned i = keep_; i > 0; --i) (void)std::rename(name(i - 1).c_str(), name(i).c_str());
  if (!reopen()) fd_.reset();
}

void LogFile::append(std::string_view bytes) {
  while (fd_ && !bytes.empty()) {
    std::string_view now = bytes;
    if (rotates_ && most_ > 0 && size_ + bytes.size() > most_) {
      // As many whole lines as there is room for; a line that is longer than that is not cut.
      const std::uint64_t room = most_ - std::min(size_, most_);
      std::size_t end = room > 0 ? bytes.rfind('\n', static_cast<std::size_t>(room) - 1) : std::string_view::npos;
      if (end == std::string_view::npos && size_ > 0) {
        rotate();
        continue;
      }
      if (end == std::string_view::npos) end = bytes.find('\n');
      if (end != std::string_view::npos) now = bytes.substr(0, end + 1);
    }
    if (!write_all(fd_.get(), now)) return;
    size_ += now.size();
    bytes.remove_prefix(now.size());
  }
}

}  // namespace lull
