// Our side of a filler under guard.
#include "act/guard.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "act/guard_process.h"
#include "base/kin.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLookAgain = 5ms;
constexpr Duration kTellsLater = 3ms;
constexpr int kQuietLooks = 3;  // whoever loses its parent comes to us a moment later

void say(int socket, const GuardWord& word) { (void)!::send(socket, &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT); }

}  // namespace

Result<std::unique_ptr<Guard>> Guard::start(Loop& loop, Children& children, const GuardOptions& options, Calls calls) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail(errno, "socketpair");
  std::unique_ptr<Guard> guard(new Guard(loop, children, std::move(calls)));
  guard->socket_ = Fd(ends[0]);
  Fd theirs(ends[1]);
  if (options.use_cgroup)
    if (auto made = Cgroup::create()) guard->cgroup_ = *std::move(made);
  if (guard->cgroup_)
    if (auto freezer = open_at(guard->cgroup_.fd(), "cgroup.freeze", O_WRONLY)) guard->freezer_ = *std::move(freezer);

  const pid_t pid = ::fork();
  if (pid == 0) be_guard({.options = options, .cgroup = guard->cgroup_, .socket = theirs.get()});
  if (pid < 0) {
    const int why = errno;
    guard->cgroup_.remove();
    return fail(why, "starting a process");
  }
  Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!handle) {
    const int why = errno;
    ::kill(pid, SIGKILL);  // a child of ours that nobody has reaped: the number is its own
    children.sweep();
    guard->cgroup_.remove();
    return fail(why, "pidfd_open");
  }
  guard->process_ = Process::adopt(pid, std::move(handle));
  note_own_process(pid);
  guard->cgroup_.remove_abandoned();
  children.expect(guard->process_, [raw = guard.get()](const ExitStatus&) { raw->guard_ended(); });
  if (auto heard = loop.on_ready(guard->socket_.get(), [raw = guard.get()] { raw->hear(); }); !heard)
    return std::unexpected(std::move(heard).error());
  return guard;
}

Guard::~Guard() {
  if (timer_) loop_.cancel(*timer_);
  if (telling_) loop_.cancel(*telling_);
  if (process_) children_.forget(process_);
  if (socket_) loop_.forget(socket_.get());  // closing it tells the guard to kill
  if (!over_ && cgroup_) (void)cgroup_.kill();
}

// The freezer is one write, and ours alone. The guard, which stops whoever is elsewhere, hears of it a little later:
// somebody may have opened many GPUs at once, and guards that wake up meanwhile would keep us from the other fillers.
void Guard::halt() {
  still_ = false;
  ++halts_;
  if (!freezer_ || ::write(freezer_.get(), "1", 1) != 1)
    say(socket_.get(), {.kind = GuardWord::halt, .a = 0, .b = halts_});
  else if (!telling_)
    telling_ = loop_.in(kTellsLater, [this] { tell_of_freezing(); });
}

void Guard::tell_of_freezing() {
  if (!telling_) return;
  loop_.cancel(*telling_);
  telling_.reset();
  say(socket_.get(), {.kind = GuardWord::halt, .a = 1, .b = halts_});
}

void Guard::go_on() {
  still_ = false;
  if (telling_) loop_.cancel(*std::exchange(telling_, std::nullopt));
  const bool thaws = freezer_ && ::write(freezer_.get(), "0", 1) == 1;
  say(socket_.get(), {.kind = GuardWord::go_on, .a = thaws ? 1 : 0, .b = ++halts_});
}

void Guard::end(const Ending::Options& how) {
  tell_of_freezing();
  say(socket_.get(), {.kind = GuardWord::end, .a = how.signal, .time = how.grace.count()});
}

Lineage Lineage::of(pid_t pid) {
  constexpr std::size_t kDeepest = 1024;
  Lineage found;
  found.cgroups = read_file("/proc/" + std::to_string(pid) + "/cgroup").value_or(std::string());
  while (pid > 1 && found.line.size() < kDeepest) {
    found.line.push_back(pid);
    const auto entry = read_process_entry(pid);
    if (!entry) break;
    pid = entry->parent;
  }
  return found;
}

bool Guard::owns(const Lineage& process) const {
  if (std::ranges::count(process.line, process_.pid()) > 0) return true;
  if (!cgroup_) return false;
  const std::string name = cgroup_.path().substr(cgroup_.path().rfind('/'));
  const auto at = process.cgroups.find(name);
  if (at == std::string::npos) return false;
  const std::size_t end = at + name.size();
  return end == process.cgroups.size() || process.cgroups[end] == '\n' || process.cgroups[end] == '/';
}

void Guard::hear() {
  GuardWord word;
  const ssize_t got = ::recv(socket_.get(), &word, sizeof word, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got != static_cast<ssize_t>(sizeof word)) {  // the guard is gone, or will be at once
    loop_.forget(socket_.get());
    children_.sweep();
    return;
  }
  switch (word.kind) {
    case GuardWord::started:
      root_ = word.a;
      if (calls_.started) calls_.started(root_);
      break;
    case GuardWord::refused:
      end_.errno_value = word.a;
      end_.not_started = std::strerror(word.a);
      break;
    case GuardWord::gone:
      told_ = true;
      end_.status.code = word.a;
      end_.status.signal = word.b;
      end_.killed = static_cast<std::size_t>(std::max(word.c, 0));
      break;
    case GuardWord::still:
      if (word.b != halts_) break;  // of an earlier time
      still_ = word.a != 0;
      if (still_ && calls_.still) calls_.still();
      break;
    case GuardWord::stuck:
      if (calls_.stuck) calls_.stuck();
      break;
    default: break;
  }
}

void Guard::guard_ended() {
  // What it said last may still lie in the socket.
  GuardWord word;
  while (!told_ &&
         ::recv(socket_.get(), &word, sizeof word, MSG_DONTWAIT | MSG_PEEK) == static_cast<ssize_t>(sizeof word))
    hear();
  loop_.forget(socket_.get());
  if (told_) return finish();
  end_.status.signal = SIGKILL;  // the command died with its guard
  kill_what_is_left();
}

// What the guard watched over comes to us, its subreaper in the second place. Everything below us that is neither
// machinery of ours nor expected by anybody is of that kind.
void Guard::kill_what_is_left() {
  timer_.reset();
  if (cgroup_) (void)cgroup_.kill();
  bool left = cgroup_ && cgroup_.populated();
  const auto ours = [&](const ProcessEntry& one) {
    return one.pid != ::getpid() && one.parent == ::getpid() &&
           (is_own_process(one.pid, one.start_ticks) || children_.expects(one.pid));
  };
  for (const ProcessEntry& one : descendants(read_all_processes(), ::getpid(), ours)) {
    if (one.pid == ::getpid() || one.ended()) continue;
    left = true;
    ++end_.killed;
    if (const auto process = Process::open(one)) (void)process->signal(SIGKILL);
  }
  children_.sweep();
  quiet_ = left ? 0 : quiet_ + 1;
  if (quiet_ >= kQuietLooks) return finish();
  timer_ = loop_.in(kLookAgain, [this] { kill_what_is_left(); });
}

void Guard::finish() {
  over_ = true;
  cgroup_.remove();
  // The caller may destroy us in there.
  if (calls_.gone) loop_.in(Duration::zero(), [gone = std::move(calls_.gone), how = end_] { gone(how); });
}

}  // namespace lull
