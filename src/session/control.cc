#include "session/control.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

// Members of classes with external linkage.
namespace control {

struct OwnedFolder {
  Fd fd;
  uid_t owner = 0;
};

// A socket of ours that others can find.
struct Socket {
  Fd folder;
  Fd fd;
  std::string name;
};

// One question on its way.
struct Call {
  const OwnedFolder* folder = nullptr;
  std::string name;
  Fd socket;
  bool connected = false;
  std::optional<std::string> line;  // over
  bool nobody = false;              // left behind by one that was killed
};

}  // namespace control

namespace {

using control::Call;
using control::OwnedFolder;
using control::Socket;
using namespace std::chrono_literals;

constexpr int kBacklog = 16;
constexpr std::size_t kLongestAnswer = 512;
constexpr Duration kClientLimit = 2s;  // with one who connects and says nothing
constexpr Duration kCheckEvery = 5s;   // that our socket can still be found
constexpr std::size_t kLongestQuestion = 64 * 1024;
constexpr std::size_t kMostAskers = 64;  // at once
constexpr Duration kTryAgain = 20ms;     // where a queue is full
constexpr std::size_t kMostAsked = 64;   // in one folder: its owner must not use up all our descriptors

// ---- where the sockets stand: in folders that are their owner's alone, found by whoever may ask

std::string_view prefix_of(ControlOf what) {
  return what == ControlOf::watch ? "watch." : what == ControlOf::fill ? "fill." : "keep.";
}
std::string_view folder_prefix_of(ControlOf what) { return what == ControlOf::keep ? "lull-keep-" : "lull-control-"; }
std::string_view used_by(ControlOf what) {
  return what == ControlOf::watch ? "--cancel" : what == ControlOf::fill ? "--status" : "lull keep";
}

std::string text_of(const char* variable) { return environment_variable(variable).value_or(""); }

// Where the folder of a user may stand, the best place first. What the session manager gave us goes
// when the user logs out; a watcher goes on and moves to the next place.
std::vector<std::string> places_of(uid_t user, ControlOf what) {
  if (const std::string chosen = text_of("LULL_CONTROL"); !chosen.empty()) return {chosen};
  std::vector<std::string> places;
  // The socket of root's watcher that all users may ask must be where all users have access.
  const bool for_all = what == ControlOf::keep && user == 0;
  if (const std::string runtime = text_of("XDG_RUNTIME_DIR");
      runtime.starts_with('/') && user == ::geteuid() && !for_all)
    places.push_back(runtime);
  if (!for_all) places.push_back(fmt::format("/run/user/{}", user));
  if (user == 0) places.emplace_back("/run");
  places.emplace_back("/tmp");
  return places;
}

// A folder belongs to its owner only if no other user may enter it; for `keep`, put anything into it.
std::optional<uid_t> owner_of_private(int folder, ControlOf what) {
  struct stat status{};
  const mode_t closed = what == ControlOf::keep ? 022 : 077;
  if (::fstat(folder, &status) != 0 || !S_ISDIR(status.st_mode) || (status.st_mode & closed) != 0) return {};
  return status.st_uid;
}

// Another user can take our name where all users may make files, but not one that cannot be guessed.
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

// By the folder's descriptor: no path is too long, and no user can put another folder in its place.
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
// tries: if a watcher listens, the kernel says that the type is wrong.
void sweep(int folder, ControlOf what) {
  const Fd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return;
  Directory names(folder);
  while (const char* name = names.next())
    if (!watcher_in(name, what).empty() && connect_to(probe.get(), folder, name) == ECONNREFUSED)
      ::unlinkat(folder, name, 0);
}

// Under its name only once it listens, so that it is never taken for one that was left behind.
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

// Folders of watchers: ours first; as root then those of all users.
std::vector<OwnedFolder> folders_to_ask(ControlOf what) {
  const uid_t me = ::geteuid();
  std::vector<std::string> places = places_of(me, what);
  if (what == ControlOf::keep && me != 0 && text_of("LULL_CONTROL").empty())
    for (std::string& place : places_of(0, what)) places.push_back(std::move(place));
  if (me == 0 && text_of("LULL_CONTROL").empty())
    for (Directory users("/run/user"); const char* user = users.next();)
      places.push_back(std::string("/run/user/") + user);
  std::vector<OwnedFolder> folders;
  std::set<std::pair<dev_t, ino_t>> seen;
  for (const std::string& place : places) {
    Directory parent(place);
    while (const char* name = parent.next()) {
      if (!std::string_view(name).starts_with(folder_prefix_of(what))) continue;
      auto folder = open_at(parent.fd(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
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

std::string_view watcher_in(std::string_view name, ControlOf what) {
  const std::string_view prefix = prefix_of(what);
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  const std::string_view pid = name.substr(0, name.find('.'));
  return pid.size() < name.size() && to_pid(pid) ? pid : std::string_view();
}

// ---- the watcher's side

struct Control::Listening {
  Listening(Loop& its_loop, ControlOf its_kind, std::function<std::string(const std::string& who)> handler)
      : loop(its_loop), what(its_kind), on_asked(std::move(handler)) {}
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  Listening(Loop& its_loop, OnQuestion handler)
      : loop(its_loop), what(ControlOf::keep), on_question(std::move(handler)) {}
  ~Listening() {
    *here = false;
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
    Asker(Loop& loop, Fd client, std::uint64_t count) : socket(std::move(client)), limit(loop), number(count) {}
    Fd socket;
    Timer limit;
    std::uint64_t number;
    bool asked = false;  // waits for our answer
  };
  void drop(std::list<Asker>::iterator one) {
    if (!one->asked) loop.forget(one->socket.get());
    askers.erase(one);
  }
  // Who connects and says nothing goes after a while, or when others come.
  void receive_question(Fd client) {
    if (askers.size() >= kMostAskers) {
      const auto silent = std::ranges::find(askers, false, &Asker::asked);
      drop(silent != askers.end() ? silent : askers.begin());
    }
    const auto one = askers.emplace(askers.end(), loop, std::move(client), ++count);
    one->limit.in(kClientLimit, [this, one] { drop(one); });
    (void)loop.on_ready(one->socket.get(), [this, one] {
      std::string question(kLongestQuestion, '\0');
      const ssize_t got = ::recv(one->socket.get(), question.data(), question.size(), MSG_TRUNC);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      const auto user = peer_of(one->socket.get());
      // What was cut off is another question.
      if (got <= 0 || !user || static_cast<std::size_t>(got) > kLongestQuestion) return drop(one);
      question.resize(static_cast<std::size_t>(got));
      loop.forget(one->socket.get());
      one->asked = true;
      one->limit.in(kLongestAnswerTime, [this, one] { drop(one); });
      on_question(*user, fmt::format("{} (uid {})", user_name(*user), *user), question,
                  [this, alive = here, number = one->number](const std::string& said) {
                    if (*alive) answer(number, said);
                  });
    });
  }
  void answer(std::uint64_t number, const std::string& said) {
    const auto one = std::ranges::find(askers, number, &Asker::number);
    if (one == askers.end()) return;  // gone, or answered
    make_space(one->socket.get());
    (void)!::send(one->socket.get(), said.data(), said.size(), MSG_NOSIGNAL);
    drop(one);
  }

  // For an answer in one packet, however long.
  static void make_space(int client) {
    const int size = static_cast<int>(kLongestStatus);
    (void)::setsockopt(client, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  }

  // Connecting is asking, where there is only one question.
  void serve() {
    Fd client(::accept4(socket.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client) return;
    if (what == ControlOf::keep) return receive_question(std::move(client));
    const auto user = peer_of(client.get());
    std::string answer = "refused: only its own user and root may ask";
    if (user && (*user == 0 || *user == ::geteuid()))
      answer = on_asked(fmt::format("{} (uid {})", user_name(*user), *user));
    make_space(client.get());
    (void)!::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  }

  bool findable() const {
    struct stat status{};
    return socket.fd && ::fstatat(socket.folder.get(), socket.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISSOCK(status.st_mode);
  }

  // /run/user/UID goes when its user logs out, and a tidy-up may empty /tmp. A failure is tried again.
  void check_later() {
    timer.in(kCheckEvery, [this] {
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
  std::uint64_t count = 0;
  std::shared_ptr<bool> here = std::make_shared<bool>(true);  // false once we are gone
  Socket socket;
  Timer timer{loop};
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

// ---- the side that asks

namespace {

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
  std::string buffer(what == ControlOf::watch ? kLongestAnswer : kLongestStatus, '\0');
  const ssize_t got = ::recv(call.socket.get(), buffer.data(), buffer.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  buffer.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  call.line = got > 0 ? buffer : "no answer";
}

Reply answer_of(std::string_view name, std::string_view received, ControlOf what) {
  Reply answer{std::string(watcher_in(name, what)), {}};
  if (what != ControlOf::fill) {
    answer.line = answer_line(received);
    if (what == ControlOf::keep) answer.lines = printable_lines(received);
    return answer;
  }
  const std::size_t end = std::min(received.find('\0'), received.size());
  answer.line = printable_lines(received.substr(0, end));
  answer.json = printable(received.substr(std::min(end + 1, received.size())));
  return answer;
}

std::vector<Call> calls_to(const std::vector<OwnedFolder>& folders, ControlOf what) {
  std::vector<Call> calls;
  for (const OwnedFolder& folder : folders) {
    std::size_t asked = 0;
    Directory names(folder.fd.get());
    while (const char* name = names.next())
      if (!watcher_in(name, what).empty() && asked++ < kMostAsked)
        calls.push_back({&folder, name, {}, false, {}, false});
  }
  return calls;
}

std::vector<Reply> replies_to(const std::vector<Call>& calls, ControlOf what) {
  std::vector<Reply> answers;
  for (const Call& call : calls)
    if (!call.nobody) {
      answers.push_back(answer_of(call.name, call.line.value_or("no answer"), what));
      answers.back().owner = call.folder->owner;
    }
  return answers;
}

}  // namespace

std::string answer_line(std::string_view received) {
  return printable(received.substr(0, std::min(kLongestAnswer, received.find('\0'))));
}

struct Asking::State {
  State(Loop& its_loop, ControlOf its_kind, std::string its_question, Done its_done, Duration limit)
      : loop(its_loop),
        what(its_kind),
        question(std::move(its_question)),
        done(std::move(its_done)),
        folders(folders_to_ask(what)),
        calls(calls_to(folders, what)),
        end(loop.now() + limit) {
    look_again(Duration::zero());
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    for (Call& call : calls) drop(call);
  }

  void drop(Call& call) {
    if (call.socket && call.connected) loop.forget(call.socket.get());
    call.socket.reset();
  }
  // A call that is over has a line.
  void step() {
    bool again = false;
    bool waits = false;
    for (Call& call : calls) {
      if (call.line) continue;
      if (!call.connected) {
        try_to_connect(call, question);
        if (call.connected && !call.line && !loop.on_ready(call.socket.get(), [this, &call] {
              hear(call, what);
              if (!call.line) return;
              drop(call);  // after the answer it hangs up, which is not a second answer
              look_again(Duration::zero());
            }))
          call.line = "no answer";
      }
      if (call.line) drop(call);
      again = again || (!call.line && !call.connected);
      waits = waits || !call.line;
    }
    const Instant now = loop.now();
    if (waits && now < end) return look_again(again ? kTryAgain : end - now);
    done(replies_to(calls, what));  // we may be gone behind this
  }
  void look_again(Duration in) {
    timer.in(in, [this] { step(); });
  }

  Loop& loop;
  ControlOf what;
  std::string question;
  Done done;
  std::vector<OwnedFolder> folders;
  std::vector<Call> calls;
  Instant end;
  Timer timer{loop};
};

Asking::Asking(Loop& loop, ControlOf what, std::string question, Done done, Duration limit)
    : state_(std::make_unique<State>(loop, what, std::move(question), std::move(done), limit)) {}
Asking::~Asking() = default;

std::vector<Reply> ask_all(ControlOf what, const std::string& question, Duration limit) {
  const SystemClock clock;
  std::optional<std::vector<Reply>> replies;
  const auto loop = Loop::create(clock);
  if (loop) {
    const auto done = [&](const std::vector<Reply>& all) {
      replies = all;
      (*loop)->stop();
    };
    const Asking asking(**loop, what, question, done, limit);
    (void)(*loop)->run();
  }
  if (replies) return *std::move(replies);
  const auto folders = folders_to_ask(what);  // they are there, and could not be asked
  return replies_to(calls_to(folders, what), what);
}

}  // namespace lull
