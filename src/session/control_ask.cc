// The side that asks.

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/text.h"
#include "session/control.h"
#include "session/control_place.h"

namespace lull {

namespace asking {

// One question on its way.
struct Call {
  const OwnedFolder* folder = nullptr;
  std::string name;
  Fd socket;
  bool connected = false;
  std::optional<std::string> line;  // over
  bool nobody = false;              // left behind by one that was killed
};

}  // namespace asking

namespace {

using namespace std::chrono_literals;
using asking::Call;

constexpr Duration kAnswerLimit = 2s;
constexpr Duration kTryAgain = 20ms;    // where a queue is full
constexpr std::size_t kMostAsked = 64;  // in one folder: its owner must not use up all our descriptors

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
    for (const std::string& name : names_in(folder.fd.get()))
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

std::vector<Reply> ask_all(ControlOf what, const std::string& question, Duration limit) {
  const std::vector<OwnedFolder> folders = folders_to_ask(what);
  std::vector<Call> calls = calls_to(folders, what);
  const SystemClock clock;
  const Instant end = clock.now() + limit;
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
    const Duration pause = std::min(again ? kTryAgain : limit, end - clock.now());
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(pause).count();
    (void)::poll(waiting.data(), waiting.size(), static_cast<int>(std::max<std::int64_t>(milliseconds, 0)));
  }
  return replies_to(calls, what);
}

struct Asking::State {
  State(Loop& its_loop, ControlOf its_kind, std::string its_question, Done its_done)
      : loop(its_loop),
        what(its_kind),
        question(std::move(its_question)),
        done(std::move(its_done)),
        folders(folders_to_ask(what)),
        calls(calls_to(folders, what)),
        end(loop.now() + kAnswerLimit) {
    timer = loop.in(Duration::zero(), [this] { step(); });
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    loop.cancel(timer);
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
              if (call.line) look_again(Duration::zero());
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
    loop.cancel(timer);
    timer = loop.in(in, [this] { step(); });
  }

  Loop& loop;
  ControlOf what;
  std::string question;
  Done done;
  std::vector<OwnedFolder> folders;
  std::vector<Call> calls;
  Instant end;
  Loop::TimerId timer;
};

Asking::Asking(Loop& loop, ControlOf what, std::string question, Done done)
    : state_(std::make_unique<State>(loop, what, std::move(question), std::move(done))) {}
Asking::~Asking() = default;

}  // namespace lull
