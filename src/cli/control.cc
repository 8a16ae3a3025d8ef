#include "cli/control.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <set>
#include <string_view>

#include "base/text.h"
#include "sense/processes.h"

namespace lull {
namespace {

constexpr std::string_view kPrefix = "lull/watch/";

struct Address {
  sockaddr_un socket{};
  socklen_t length = 0;
};

// A name that begins with a zero byte is in the abstract namespace.
Address address_of(std::string_view name) {
  Address address;
  address.socket.sun_family = AF_UNIX;
  std::memcpy(address.socket.sun_path + 1, name.data(), std::min(name.size(), sizeof address.socket.sun_path - 1));
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

std::string peer_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return "somebody";
  return user_name(peer.uid) + " (uid " + std::to_string(peer.uid) + ")";
}

}  // namespace

Result<Control> Control::listen(Loop& loop, std::function<std::string(const std::string& who)> on_cancel) {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail(errno, "socket");
  const Address address = address_of(std::string(kPrefix) + std::to_string(::getpid()));
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.length) != 0 ||
      ::listen(socket.get(), 8) != 0)
    return fail(errno, "the socket for --cancel");
  const int fd = socket.get();
  TRY(loop.on_ready(fd, [fd, on_cancel = std::move(on_cancel)] {
    // Connecting is asking: there is only one question.
    const Fd client(::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client) return;
    const std::string answer = on_cancel(peer_of(client.get()));
    (void)!::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  }));
  return Control(std::move(socket));
}

std::vector<Answer> cancel_watchers() {
  std::vector<Answer> answers;
  const auto sockets = read_file("/proc/net/unix");
  if (!sockets) return answers;
  std::set<std::string> names;
  for (const std::string_view line : split(*sockets, '\n')) {
    const auto at = line.find(" @" + std::string(kPrefix));
    if (at != std::string_view::npos) names.emplace(line.substr(at + 2));
  }
  for (const std::string& name : names) {
    const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const Address address = address_of(name);
    if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.length) != 0)
      continue;
    pollfd one{.fd = socket.get(), .events = POLLIN, .revents = 0};
    std::array<char, 512> buffer;
    std::string line = "no answer";
    if (::poll(&one, 1, 2000) == 1)
      if (const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), 0); got > 0)
        line = printable({buffer.data(), static_cast<std::size_t>(got)});
    answers.push_back({name.substr(kPrefix.size()), line});
  }
  return answers;
}

}  // namespace lull
