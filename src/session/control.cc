#include "session/control.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <list>
#include <optional>
#include <set>
#include <utility>

#include "base/fd.h"
#include "base/process.h"
#include "base/random.h"
#include "base/text.h"
#include "base/users.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 2s;
constexpr Duration kTryAgain = 20ms;    // where a queue is full
constexpr Duration kCheckEvery = 5s;    // that our socket can still be found
constexpr std::size_t kMostAsked = 64;  // in one folder: its owner must not use up all our descriptors
constexpr std::size_t kLongestAnswer = 512;
constexpr std::size_t kLongestStatus = 128 * 1024;
constexpr int kBacklog = 16;

constexpr std::size_t kLongestQuestion = 512;
constexpr std::size_t kMostAskers = 16;  // at once, who have not said yet what they want

std::string_view prefix_of(ControlOf what) {
  return what == ControlOf::watch ? "watch." : what == ControlOf::fill ? "fill." : "keep.";
}
std::string_view folder_prefix_of(ControlOf what) { return what == ControlOf::keep ? "lull-keep-" : "lull-control-"; }
std::string_view used_by(ControlOf what) {
  return what == ControlOf::watch ? "--cancel" : what == ControlOf::fill ? "--status" : "lull keep";
}

// ---- folders --------------------------------------------------------------------

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

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> list(copy < 0 ? nullptr : ::fdopendir(copy), ::closedir);
  if (!list) return names;
  while (const dirent* entry = ::readdir(list.get())) names.emplace_back(entry->d_name);
  return names;
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

struct OwnedFolder {
  Fd fd;
  uid_t owner = 0;
};

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

// ---- sockets --------------------------------------------------------------------

// By the folder's descriptor: no path is too long, and nobody can put another folder in its place.
std::optional<sockaddr_un> address_in(int folder, std::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = fmt::format("/proc/self/fd/{}/{}", folder, name);
  if (path.size() >= sizeof address.sun_path) return {};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
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

// Takes away what watchers that were killed left in our folder. Connecting is asking, so a socket of another type
// tries: where somebody listens, the kernel says that the type is wrong.
void sweep(int folder, ControlOf what) {
  const Fd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return;
  for (const std::string& name : names_in(folder))
    if (!watcher_in(name, what).empty() && connect_to(probe.get(), folder, name) == ECONNREFUSED)
      ::unlinkat(folder, name.c_str(), 0);
}

struct Socket {
  Fd folder;
  Fd fd;
  std::string name;
};

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

Result<Socket> make_socket(ControlOf what) {
  std::string trouble;
  for (const std::string& place : places_of(::geteuid(), what)) {
    auto made = socket_in(place, what);
    if (made) return made;
    trouble += (trouble.empty() ? "" : "; ") + made.error().message();
  }
  return fail(fmt::format("no place for the socket that {} uses: {}", used_by(what), printable(trouble)));
}

}  // namespace

std::string answer_line(std::string_view received) {
  return printable(received.substr(0, std::min(kLongestAnswer, received.find('\0'))));
}

std::string_view watcher_in(std::string_view name, ControlOf what) {
  const std::string_view prefix = prefix_of(what);
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  const std::string_view pid = name.substr(0, name.find('.'));
  return pid.size() < name.size() && to_pid(pid) ? pid : std::string_view();
}

// ---- the watcher's side ---------------------------------------------------------

struct Control::Listening {
  Listening(Loop& its_loop, ControlOf its_kind, std::function<std::string(const std::string& who)> handler)
      : loop(its_loop), what(its_kind), on_asked(std::move(handler)) {}
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  Listening(Loop& its_loop, OnQuestion handler)
      : loop(its_loop), what(ControlOf::keep), on_question(std::move(handler)) {}
  ~Listening() {
    if (timer) loop.cancel(*timer);
    while (!askers.empty()) drop(askers.begin());
    close();
  }

  Result<> open() {
    socket = TRY(make_socket(what));
    return loop.on_ready(socket.fd.get(), [this] { serve(); });
  }

  void close() {
    if (!socket.fd) return;
    loop.forget(socket.fd.get());
    if (findable()) ::unlinkat(socket.folder.get(), socket.name.c_str(), 0);
    socket = {};
  }

  struct Asker {
    Fd socket;
    Loop::TimerId limit;
  };
  void drop(std::list<Asker>::iterator one) {
    loop.forget(one->socket.get());
    loop.cancel(one->limit);
    askers.erase(one);
  }
  // Who connects and says nothing goes after a while, or when others come.
  void hear_question(Fd client) {
    if (askers.size() >= kMostAskers) drop(askers.begin());
    const auto one = askers.insert(askers.end(), Asker{std::move(client), {}});
    one->limit = loop.in(kPatience, [this, one] { drop(one); });
    (void)loop.on_ready(one->socket.get(), [this, one] {
      std::string question(kLongestQuestion, '\0');
      const ssize_t got = ::recv(one->socket.get(), question.data(), question.size(), 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      const auto user = peer_of(one->socket.get());
      if (got > 0 && user) {
        question.resize(static_cast<std::size_t>(got));
        const std::string answer = on_question(*user, fmt::format("{} (uid {})", user_name(*user), *user), question);
        (void)!::send(one->socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      }
      drop(one);
    });
  }

  // Connecting is asking, where there is only one question.
  void serve() {
    Fd client(::accept4(socket.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client) return;
    if (what == ControlOf::keep) return hear_question(std::move(client));
    const auto user = peer_of(client.get());
    std::string answer = "refused: only its own user and root may ask";
    if (user && (*user == 0 || *user == ::geteuid()))
      answer = on_asked(fmt::format("{} (uid {})", user_name(*user), *user));
    const int room = static_cast<int>(kLongestStatus);
    (void)::setsockopt(client.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    (void)!::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  }

  bool findable() const {
    struct stat status{};
    return socket.fd && ::fstatat(socket.folder.get(), socket.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISSOCK(status.st_mode);
  }

  // /run/user/UID goes when its user logs out, and a tidy-up may empty /tmp. A failure is tried again.
  void check_later() {
    timer = loop.in(kCheckEvery, [this] {
      if (!findable()) {
        close();
        (void)open();
      }
      check_later();
    });
  }

  Loop& loop;
  ControlOf what;
  std::function<std::string(const std::string& who)> on_asked;
  OnQuestion on_question;
  std::list<Asker> askers;
  Socket socket;
  std::optional<Loop::TimerId> timer;
};

Control::Control(std::unique_ptr<Listening> listening) : listening_(std::move(listening)) {}
Control::Control(Control&&) noexcept = default;
Control& Control::operator=(Control&&) noexcept = default;
Control::~Control() = default;

Result<Control> Control::listen(Loop& loop, ControlOf what,
                                std::function<std::string(const std::string& who)> on_asked) {
  auto listening = std::make_unique<Listening>(loop, what, std::move(on_asked));
  TRY(listening->open());
  listening->check_later();
  return Control(std::move(listening));
}

Result<Control> Control::listen_to_all(Loop& loop, OnQuestion on_asked) {
  auto listening = std::make_unique<Listening>(loop, std::move(on_asked));
  TRY(listening->open());
  listening->check_later();
  return Control(std::move(listening));
}

// ---- the side that asks -------------------------------------------------------

namespace {

struct Call {
  const OwnedFolder* folder = nullptr;
  std::string name;
  Fd socket;
  bool connected = false;
  std::optional<std::string> line;  // over
  bool nobody = false;              // left behind by one that was killed
};

void try_to_connect(Call& call, const std::string& question) {
  if (!call.socket) call.socket = new_socket();
  const int why = call.socket ? connect_to(call.socket.get(), call.folder->fd.get(), call.name) : errno;
  if (why == EAGAIN || why == EINTR) return;
  call.nobody = why == ECONNREFUSED || why == ENOENT || why == ENOTSOCK;
  if (why != 0) {
    call.line = std::string("cannot be reached: ") + std::strerror(why);
    return;
  }
  const auto user = peer_of(call.socket.get());
  call.connected = true;
  if (!user || (*user != 0 && *user != call.folder->owner))
    call.line = "not believed: who answers there is another user";
  else if (!question.empty())
    (void)!::send(call.socket.get(), question.data(), question.size(), MSG_NOSIGNAL);
}

void hear(Call& call, ControlOf what) {
  std::string buffer(what == ControlOf::fill ? kLongestStatus : kLongestAnswer, '\0');
  const ssize_t got = ::recv(call.socket.get(), buffer.data(), buffer.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  buffer.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  call.line = got > 0 ? buffer : "no answer";
}

Answer answer_of(std::string_view name, std::string_view received, ControlOf what) {
  Answer answer{std::string(watcher_in(name, what)), {}};
  if (what != ControlOf::fill) {
    answer.line = answer_line(received);
    return answer;
  }
  const std::size_t end = std::min(received.find('\0'), received.size());
  answer.line = printable_lines(received.substr(0, end));
  answer.json = printable(received.substr(std::min(end + 1, received.size())));
  return answer;
}

}  // namespace

std::vector<Answer> ask_all(ControlOf what, const std::string& question) {
  const std::vector<OwnedFolder> folders = folders_to_ask(what);
  std::vector<Call> calls;
  for (const OwnedFolder& folder : folders) {
    std::size_t asked = 0;
    for (const std::string& name : names_in(folder.fd.get()))
      if (!watcher_in(name, what).empty() && asked++ < kMostAsked)
        calls.push_back({&folder, name, {}, false, {}, false});
  }
  const SystemClock clock;
  const Instant end = clock.now() + kPatience;
  while (clock.now() < end) {
    std::vector<pollfd> waiting;
    bool again = false;
    for (Call& call : calls) {
      if (!call.line && !call.connected) try_to_connect(call, question);
      if (!call.line && call.connected) hear(call, what);
      if (call.line) call.socket.reset();
      again |= !call.line && !call.connected;
      if (!call.line && call.connected) waiting.push_back({call.socket.get(), POLLIN, 0});
    }
    if (waiting.empty() && !again) break;
    const Duration pause = std::min(again ? kTryAgain : kPatience, end - clock.now());
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(pause).count();
    (void)::poll(waiting.data(), waiting.size(), static_cast<int>(std::max<std::int64_t>(milliseconds, 0)));
  }
  std::vector<Answer> answers;
  for (const Call& call : calls)
    if (!call.nobody) answers.push_back(answer_of(call.name, call.line.value_or("no answer"), what));
  return answers;
}

}  // namespace lull
