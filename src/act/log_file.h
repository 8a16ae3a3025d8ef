#pragma once
// A log that a filler's output is appended to, begun anew when it has grown to its size: FILE becomes FILE.1, that
// becomes FILE.2, and the last one goes.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace lull {

class LogFile {
 public:
  static Result<LogFile> open(std::string path, std::uint64_t size, unsigned keep);

  // What cannot be written (no room) is lost: a filler does not stand still for its log.
  void append(std::string_view bytes);

 private:
  LogFile(std::string path, std::uint64_t size, unsigned keep) : path_(std::move(path)), most_(size), keep_(keep) {}
  Result<> reopen();
  void rotate();

  std::string path_;
  std::uint64_t most_;
  unsigned keep_;
  Fd fd_;
  std::uint64_t size_ = 0;
  bool rotates_ = false;  // a plain file, and not /dev/null or a pipe
};

}  // namespace lull
