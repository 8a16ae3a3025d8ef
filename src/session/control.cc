// The watcher's side.

#include "session/control.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <optional>
#include <utility>

#include "base/fd.h"
#include "base/users.h"
#include "session/control_place.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kClientLimit = 2s;  // with one who connects and says nothing
constexpr Duration kCheckEvery = 5s;   // that our socket can still be found
constexpr std::size_t kLongestQuestion = 64 * 1024;
constexpr std::size_t kMostAskers = 64;  // at once

}  // namespace

struct Control::Listening {
  Listening(Loop& its_loop, ControlOf its_kind, std::function<std::string(const std::string& who)> handler)
      : loop(its_loop), what(its_kind), on_asked(std::move(handler)) {}
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  Listening(Loop& its_loop, OnQuestion handler)
      : loop(its_loop), what(ControlOf::keep), on_question(std::move(handler)) {}
  ~Listening() {
    if (timer) loop.cancel(*timer);
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
    Fd socket;
    Loop::TimerId limit;
    std::uint64_t number = 0;
    bool asked = false;  // waits for our answer
  };
  void drop(std::list<Asker>::iterator one) {
    if (!one->asked) loop.forget(one->socket.get());
    loop.cancel(one->limit);
    askers.erase(one);
  }
  // Who connects and says nothing goes after a while, or when others come.
  void receive_question(Fd client) {
    if (askers.size() >= kMostAskers) {
      const auto silent = std::ranges::find(askers, false, &Asker::asked);
      drop(silent != askers.end() ? silent : askers.begin());
    }
    const auto one = askers.insert(askers.end(), Asker{std::move(client), {}, ++count});
    one->limit = loop.in(kClientLimit, [this, one] { drop(one); });
    (void)loop.on_ready(one->socket.get(), [this, one] {
      std::string question(kLongestQuestion, '\0');
      const ssize_t got = ::recv(one->socket.get(), question.data(), question.size(), MSG_TRUNC);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      const auto user = peer_of(one->socket.get());
      // What was cut off is another question.
      if (got <= 0 || !user || static_cast<std::size_t>(got) > kLongestQuestion) return drop(one);
      question.resize(static_cast<std::size_t>(got));
      loop.forget(one->socket.get());
      loop.cancel(one->limit);
      one->asked = true;
      one->limit = loop.in(kLongestAnswerTime, [this, one] { drop(one); });
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
  std::uint64_t count = 0;
  std::shared_ptr<bool> here = std::make_shared<bool>(true);  // false once we are gone
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

}  // namespace lull
