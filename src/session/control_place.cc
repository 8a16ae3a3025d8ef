#include "session/control_place.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "base/process.h"
#include "base/random.h"
#include "base/text.h"

namespace lull {
namespace {

constexpr int kBacklog = 16;

std::string_view prefix_of(ControlOf what) {
  return what == ControlOf::watch ? "watch." : what == ControlOf::fill ? "fill." : "keep.";
}
std::string_view folder_prefix_of(ControlOf what) { return what == ControlOf::keep ? "lull-keep-" : "lull-control-"; }
std::string_view used_by(ControlOf what) {
  return what == ControlOf::watch ? "--cancel" : what == ControlOf::fill ? "--status" : "lull keep";
}

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

// Where the folder of a user may stand, the best place first. What the session manager gave us goes
// when the user logs out; a watcher goes on and moves to the next place.
std::vector<std::string> places_of(uid_t user, ControlOf what) {
  if (const std::string chosen = text_of("LULL_CONTROL"); !chosen.empty()) return {chosen};
  std::vector<std::string> places;
  // What root's watcher is asked by everybody must stand where everybody gets to.
  const bool for_all = what == ControlOf::keep && user == 0;
  if (const std::string runtime = text_of("XDG_RUNTIME_DIR");
      runtime.starts_with('/') && user == ::geteuid() && !for_all)
    places.push_back(runtime);
  if (!for_all) places.push_back(fmt::format("/run/user/{}", user));
  if (user == 0) places.emplace_back("/run");
  places.emplace_back("/tmp");
  return places;
}

// A folder is its owner's only if nobody else may enter it; for `keep`, put anything into it.
std::optional<uid_t> owner_of_private(int folder, ControlOf what) {
  struct stat status{};
  const mode_t closed = what == ControlOf::keep ? 022 : 077;
  if (::fstat(folder, &status) != 0 || !S_ISDIR(status.st_mode) || (status.st_mode & closed) != 0) return {};
  return status.st_uid;
}

// Another user can sit on our name where everybody may make files, but not on one that cannot be guessed.
Result<Fd> folder_of_ours(const std::string& place, ControlOf what) {
  const Fd parent = TRY(open_file(place, O_RDONLY | O_DIRECTORY));
  const std::string plain = fmt::format("{}{}", folder_prefix_of(what), ::geteuid());
  for (const std::string& name : {plain, fmt::format("{}-{:016x}", plain, random_bits())}) {
    if (::mkdirat(parent.get(), name.c_str(), 0700) != 0 && errno != EEXIST) return fail(errno, place + "/" + name);
    auto folder = open_at(parent.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!folder || owner_of_private(folder->get(), what) != ::geteuid()) continue;
    if (what == ControlOf::keep) (void)::fchmod(folder->get(), 0755);  // whatever our umask is
    return folder;
  }
  return fail(fmt::format("{}/{} is not a folder of ours alone", place, plain));
}

// By the folder's descriptor: no path is too long, and nobody can put another folder in its place.
std::optional<sockaddr_un> address_in(int folder, std::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = fmt::format("/proc/self/fd/{}/{}", folder, name);
  if (path.size() >= sizeof address.sun_path) return {};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// Takes away what watchers that were killed left in our folder. Connecting is asking, so a socket of another type
// tries: where somebody listens, the kernel says that the type is wrong.
void sweep(int folder, ControlOf what) {
  const Fd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return;
  for (const std::string& name : names_in(folder))
    if (!watcher_in(name, what).empty() && connect_to(probe.get(), folder, name) == ECONNREFUSED)
      ::unlinkat(folder, name.c_str(), 0);
}

// Under its name only once somebody listens, so that it is never taken for one that was left behind.
Result<Socket> socket_in(const std::string& place, ControlOf what) {
  Socket made{TRY(folder_of_ours(place, what)), new_socket(), {}};
  if (!made.fd) return fail(errno, "socket");
  const int folder = made.folder.get();
  sweep(folder, what);
  made.name = fmt::format("{}{}.{:016x}", prefix_of(what), ::getpid(), random_bits());
  const std::string draft = ".new-" + made.name;
  const auto address = address_in(folder, draft);
  if (!address) return fail(ENAMETOOLONG, place);
  if (::bind(made.fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0)
    return fail(errno, place);
  if (what == ControlOf::keep) (void)::fchmodat(folder, draft.c_str(), 0666, 0);
  if (::listen(made.fd.get(), kBacklog) == 0 && ::renameat(folder, draft.c_str(), folder, made.name.c_str()) == 0)
    return made;
  const int why = errno;
  ::unlinkat(folder, draft.c_str(), 0);
  return fail(why, place);
}

}  // namespace

std::string_view watcher_in(std::string_view name, ControlOf what) {
  const std::string_view prefix = prefix_of(what);
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  const std::string_view pid = name.substr(0, name.find('.'));
  return pid.size() < name.size() && to_pid(pid) ? pid : std::string_view();
}

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> list(copy < 0 ? nullptr : ::fdopendir(copy), ::closedir);
  if (!list) return names;
  while (const dirent* entry = ::readdir(list.get())) names.emplace_back(entry->d_name);
  return names;
}

// Folders of watchers: ours first; as root then those of everybody.
std::vector<OwnedFolder> folders_to_ask(ControlOf what) {
  const uid_t me = ::geteuid();
  std::vector<std::string> places = places_of(me, what);
  if (what == ControlOf::keep && me != 0 && text_of("LULL_CONTROL").empty())
    for (std::string& place : places_of(0, what)) places.push_back(std::move(place));
  if (me == 0 && text_of("LULL_CONTROL").empty())
    if (const auto users = open_file("/run/user", O_RDONLY | O_DIRECTORY))
      for (const std::string& user : names_in(users->get()))
        if (!user.starts_with('.')) places.push_back("/run/user/" + user);
  std::vector<OwnedFolder> folders;
  std::set<std::pair<dev_t, ino_t>> seen;
  for (const std::string& place : places) {
    const auto parent = open_file(place, O_RDONLY | O_DIRECTORY);
    if (!parent) continue;
    for (const std::string& name : names_in(parent->get())) {
      if (!name.starts_with(folder_prefix_of(what))) continue;
      auto folder = open_at(parent->get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      if (!folder) continue;
      const auto owner = owner_of_private(folder->get(), what);
      struct stat status{};
      const bool theirs = owner && *owner != me && me != 0 && (what != ControlOf::keep || *owner != 0);
      if (!owner || theirs || ::fstat(folder->get(), &status) != 0) continue;
      if (seen.emplace(status.st_dev, status.st_ino).second) folders.push_back({*std::move(folder), *owner});
    }
  }
  std::stable_partition(folders.begin(), folders.end(), [me](const OwnedFolder& one) { return one.owner == me; });
  return folders;
}

// 0, or why not. EAGAIN: it has as many callers as it takes.
int connect_to(int socket, int folder, std::string_view name) {
  const auto address = address_in(folder, name);
  if (!address) return ENAMETOOLONG;
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0 ? 0 : errno;
}

Fd new_socket() { return Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

std::optional<uid_t> peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return peer.uid;
}

Result<Socket> make_socket(ControlOf what) {
  std::string trouble;
  for (const std::string& place : places_of(::geteuid(), what)) {
    auto made = socket_in(place, what);
    if (made) return made;
    trouble += (trouble.empty() ? "" : "; ") + made.error().message();
  }
  return fail(fmt::format("no place for the socket that {} uses: {}", used_by(what), printable(trouble)));
}

}  // namespace lull
