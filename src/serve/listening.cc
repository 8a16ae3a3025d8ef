#include "serve/listening.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/random.h"
#include "base/text.h"
#include "base/users.h"

namespace lull {
namespace {

constexpr int kBacklog = 128;
// What it tells is what `lull status` tells any user.
constexpr mode_t kForEverybody = 0666;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// A socket at root's path in a folder where all users may make files was put there to impersonate root's.
bool is_squatted(const struct stat& status, const struct stat& folder) {
  return ::geteuid() == 0 && status.st_uid != 0 && (folder.st_mode & S_IWOTH) != 0;
}

// Nothing: the file may go. An error: why it may not.
Result<> may_replace(const std::string& path, const struct stat& status) {
  if (!S_ISSOCK(status.st_mode)) return fail(fmt::format("{} exists and is not a socket", printable(path)));
  if (status.st_uid != ::geteuid())
    return fail(fmt::format("{} exists and belongs to {}", printable(path), printable(user_name(status.st_uid))));
  const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return fail(errno, "socket");
  const sockaddr_un address = address_of(path);
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN)
    return fail(fmt::format("{}: another lull serve listens there", printable(path)));
  if (errno != ECONNREFUSED) return fail(errno, printable(path));
  return {};
}

}  // namespace

Result<Listening> Listening::open(const ListenAddress& address) {
  Listening listening(address);
  TRY(address.path.empty() ? listening.open_port() : listening.open_path());
  if (::listen(listening.fd(), kBacklog) != 0) return fail(errno, "listen");
  return listening;
}

Listening::~Listening() {
  struct stat status{};
  if (!folder_ || ::fstatat(folder_.get(), name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (status.st_ino == inode_) ::unlinkat(folder_.get(), name_.c_str(), 0);
}

Result<> Listening::open_path() {
  const std::string& path = address_.path;
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == 0 ? "/" : path.substr(0, slash);
  auto opened = open_file(folder, O_RDONLY | O_DIRECTORY);
  if (!opened) return fail(opened.error().errno_value, "--listen unix:" + printable(path));
  struct stat place{};
  if (::fstat(opened->get(), &place) != 0) return fail(errno, printable(folder));
  // Two that start at once must not both find the file stale. If all users may hold the lock, root does not wait for
  // it.
  if (::flock(opened->get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK &&
      (::geteuid() != 0 || (place.st_mode & S_IWOTH) == 0))
    return fail(fmt::format("{}: another lull serve begins there", printable(folder)));
  fd_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_) return fail(errno, "socket");
  struct stat status{};
  const bool there = ::lstat(path.c_str(), &status) == 0;
  if (there && !is_squatted(status, place)) TRY(may_replace(path, status));
  // Under an unguessable name first: no other process gets between the old one's end and the new one's beginning.
  const std::string draft = fmt::format("/proc/self/fd/{}/.{:016x}", opened->get(), random_bits());
  const std::string aside = fmt::format("{}/.{:016x}", folder, random_bits());
  const sockaddr_un address = address_of(draft);
  if (::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail(errno, "--listen unix:" + printable(path));
  if (there && S_ISDIR(status.st_mode)) (void)::rename(path.c_str(), aside.c_str());  // a socket replaces none
  if (::chmod(draft.c_str(), kForEverybody) != 0 || ::lstat(draft.c_str(), &status) != 0 ||
      ::rename(draft.c_str(), path.c_str()) != 0) {
    const int why = errno;
    ::unlink(draft.c_str());
    return fail(why, "--listen unix:" + printable(path));
  }
  folder_ = *std::move(opened);
  name_ = path.substr(slash + 1);
  inode_ = status.st_ino;
  (void)::flock(folder_.get(), LOCK_UN);
  return {};
}

Result<> Listening::open_port() {
  sockaddr_in6 six{};
  sockaddr_in four{};
  six.sin6_family = AF_INET6;
  six.sin6_port = four.sin_port = htons(address_.port);
  four.sin_family = AF_INET;
  (void)(address_.ipv6 ? ::inet_pton(AF_INET6, address_.host.c_str(), &six.sin6_addr)
                       : ::inet_pton(AF_INET, address_.host.c_str(), &four.sin_addr));
  fd_ = Fd(::socket(address_.ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!fd_) return fail(errno, "socket");
  (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  auto* const address = address_.ipv6 ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  socklen_t size = address_.ipv6 ? sizeof six : sizeof four;
  if (::bind(fd_.get(), address, size) != 0 || ::getsockname(fd_.get(), address, &size) != 0)
    return fail(errno, "--listen " + address_.to_string());
  address_.port = ntohs(address_.ipv6 ? six.sin6_port : four.sin_port);
  return {};
}

}  // namespace lull
