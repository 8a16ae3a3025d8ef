#pragma once
// Reading what inotify has to tell.

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace lull {

// Calls visit(event, name) for each event that waits to be read, until there is none or visit says false. `name`: of
// the file in a folder that is watched, else empty. The descriptor does not block.
template <class Visit>
void each_inotify_event(int descriptor, Visit visit) {
  alignas(inotify_event) std::array<char, 16384> buffer;
  while (true) {
    const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    for (const char* at = buffer.data(); at < buffer.data() + got;) {
      inotify_event event{};
      std::memcpy(&event, at, sizeof event);
      const char* name = at + sizeof event;
      if (!visit(event, std::string_view(name, ::strnlen(name, event.len)))) return;
      at = name + event.len;
    }
  }
}

}  // namespace lull
