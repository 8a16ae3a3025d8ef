#pragma once
// Where the sockets of control.h stand: in folders that are their owner's alone, found by whoever may ask.

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "session/control.h"

namespace lull {

inline constexpr std::size_t kLongestAnswer = 512;
inline constexpr std::size_t kLongestStatus = 128 * 1024;

struct OwnedFolder {
  Fd fd;
  uid_t owner = 0;
};
// Folders of watchers: ours first; as root then those of everybody.
std::vector<OwnedFolder> folders_to_ask(ControlOf what);
std::vector<std::string> names_in(int folder);

// A socket of ours that somebody can find.
struct Socket {
  Fd folder;
  Fd fd;
  std::string name;
};
Result<Socket> make_socket(ControlOf what);

Fd new_socket();
// 0, or why not. EAGAIN: it has as many callers as it takes.
int connect_to(int socket, int folder, std::string_view name);
std::optional<uid_t> peer_of(int socket);

}  // namespace lull
