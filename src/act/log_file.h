#pragma once
// A log that a filler's output is appended to, begun anew when it has grown to its size: FILE becomes FILE.1, that
// becomes FILE.2, and the last one goes. Where that fails the same file grows on, and it is tried again later.
//
// Writing to a file may hang for ever, where not even SIGKILL helps (NFS, a dead FUSE server): only the log writer, a
// process of its own, does it.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace lull {

class LogFile {
 public:
  static Result<LogFile> open(std::string path, std::uint64_t size, unsigned keep);

  // What cannot be written (disk full) is lost: a filler does not block on its log.
  void append(std::string_view bytes);

  // errno of the first time that it could not be rotated or written; 0: always could.
  int rotation_error() const { return rotation_error_; }
  int write_error() const { return write_error_; }

 private:
  LogFile(std::string path, std::uint64_t size, unsigned keep) : path_(std::move(path)), most_(size), keep_(keep) {}
  Result<> reopen();
  int rotate();  // errno

  std::string path_;
  std::uint64_t most_;
  unsigned keep_;
  Fd fd_;
  std::uint64_t size_ = 0;
  std::uint64_t rotate_at_ = 0;  // the size; after a failure that much more
  int rotation_error_ = 0;
  int write_error_ = 0;
  bool rotates_ = false;  // a plain file, and not /dev/null or a pipe
};

struct LogFileOptions {
  std::string path;
  std::uint64_t size = 0;  // 0: it is never begun anew
  unsigned keep = 0;
  // In the writer, first of all: becomes the user whose log it is. 0, or the errno for which it gives up.
  std::function<int()> become = {};
};

// What the writer reports, each kind once.
struct LogReport {
  enum Kind : std::int32_t {
    opened,       // error: 0, or why not; then it ends
    not_rotated,  // the same file grows on
    not_written,  // output is lost
  };
  std::int32_t kind = opened;
  std::int32_t error = 0;
};

// Never returns. To be called in a fresh child of a program without threads: appends what comes from `input` until that
// ends, and writes its reports to `reports`. A separate process, since a guard that hangs would not end its filler: a
// log that hangs stops only this process.
[[noreturn]] void be_log_writer(const LogFileOptions& options, int input, int reports);

}  // namespace lull
