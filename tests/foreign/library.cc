// A driver's library that no test may load: whoever does is written down, and gets a driver that fails.
#include <fcntl.h>
#include <unistd.h>

#include <array>

namespace {

[[gnu::constructor]] void note() {
  std::array<char, 4096> line{};
  const int self = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  const ssize_t length = self < 0 ? 0 : ::read(self, line.data(), line.size() - 1);
  if (self >= 0) ::close(self);
  for (ssize_t i = 0; i < length; ++i)
    if (line.at(static_cast<std::size_t>(i)) == '\0') line.at(static_cast<std::size_t>(i)) = ' ';
  const std::size_t used = length > 0 ? static_cast<std::size_t>(length) : 0;
  line.at(used) = '\n';
  const int notes = ::open("/foreign.log", O_WRONLY | O_APPEND | O_CLOEXEC);
  if (notes >= 0) {
    (void)!::write(notes, line.data(), used + 1);
    ::close(notes);
  }
}

}  // namespace

extern "C" int nvmlInit_v2() { return 255; }  // internal driver error
