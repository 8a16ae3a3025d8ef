#include "act/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "base/process.h"
#include "base/process_start.h"

namespace lull {

Result<> LogFile::reopen() {
  Fd fd(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644));
  if (!fd) return fail(errno, path_);
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return fail(errno, path_);
  rotates_ = S_ISREG(status.st_mode);
  size_ = static_cast<std::uint64_t>(status.st_size);
  rotate_at_ = most_;
  fd_ = std::move(fd);
  return {};
}

Result<LogFile> LogFile::open(std::string path, std::uint64_t size, unsigned keep) {
  LogFile log(std::move(path), size, keep);
  if (auto opened = log.reopen(); !opened) return std::unexpected(std::move(opened).error());
  return log;
}

int LogFile::rotate() {
  const auto name = [&](unsigned number) { return number == 0 ? path_ : path_ + "." + std::to_string(number); };
  if (keep_ == 0) {
    if (::ftruncate(fd_.get(), 0) != 0) return errno;
    size_ = 0;
    return 0;
  }
  // What is not a file is not one of our old logs, and stays where it is.
  for (unsigned i = 1; i <= keep_; ++i)
    if (struct stat status{}; ::lstat(name(i).c_str(), &status) == 0 && !S_ISREG(status.st_mode)) return EEXIST;
  for (unsigned i = keep_; i > 0; --i)
    if (std::rename(name(i - 1).c_str(), name(i).c_str()) != 0 && errno != ENOENT) return errno;
  const auto opened = reopen();
  if (opened) return 0;
  (void)std::rename(name(1).c_str(), path_.c_str());  // the same file grows on
  return opened.error().errno_value != 0 ? opened.error().errno_value : EIO;
}

void LogFile::append(std::string_view bytes) {
  const auto note = [](int& first, int error) { first = first != 0 ? first : error; };
  while (fd_ && !bytes.empty()) {
    std::string_view now = bytes;
    if (rotates_ && most_ > 0 && size_ + bytes.size() > rotate_at_) {
      // As many whole lines as there is room for; a line that is longer than that is not cut.
      const std::uint64_t left = rotate_at_ - std::min(size_, rotate_at_);
      std::size_t end = left > 0 ? bytes.rfind('\n', static_cast<std::size_t>(left) - 1) : std::string_view::npos;
      if (end == std::string_view::npos && size_ > 0) {
        if (const int error = rotate(); error != 0) {
          note(rotation_error_, error);
          rotate_at_ = size_ + bytes.size() + most_;
        }
        continue;
      }
      if (end == std::string_view::npos) end = bytes.find('\n');
      if (end != std::string_view::npos) now = bytes.substr(0, end + 1);
    }
    if (const auto written = write_all(fd_.get(), now); !written)
      return note(write_error_, written.error().errno_value);
    size_ += now.size();
    bytes.remove_prefix(now.size());
  }
}

void be_log_writer(const LogFileOptions& options, int input, int reports) {
  const auto report = [&](LogReport::Kind kind, int error) {
    const LogReport one{.kind = kind, .error = error};
    (void)!::write(reports, &one, sizeof one);
  };
  show_as("fill-log");
  close_all_but({input, reports}, STDERR_FILENO + 1);  // the pipe's other end among them: only so does the input end
  if (const int error = options.become ? options.become() : 0; error != 0) {
    report(LogReport::opened, error);
    ::_exit(1);
  }
  auto log = LogFile::open(options.path, options.size, options.keep);
  report(LogReport::opened, log ? 0 : std::max(log.error().errno_value, 1));
  if (!log) ::_exit(1);
  bool rotation_told = false;
  bool writing_told = false;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t got = ::read(input, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) ::_exit(0);
    log->append({buffer.data(), static_cast<std::size_t>(got)});
    if (log->rotation_error() != 0 && !std::exchange(rotation_told, true))
      report(LogReport::not_rotated, log->rotation_error());
    if (log->write_error() != 0 && !std::exchange(writing_told, true))
      report(LogReport::not_written, log->write_error());
  }
}

}  // namespace lull
