#include "act/guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "act/log_file.h"
#include "act/spawn.h"
#include "base/process_start.h"
#include "base/text.h"

namespace lull {

// What passes between us and the guard process: one packet each, in both directions.
struct GuardMessage {
  enum Kind : std::int32_t {
    // to the guard
    halt,   // a: 1 where its cgroup has been frozen, b: the number of this message
    go_on,  // a: 1 where its cgroup has been thawed
    end,    // a: signal, time: grace in ns
    // from the guard
    started,  // a: pid of the command, b: of its log's writer
    refused,  // a: errno, b: Refuser
    log,      // a: errno, b: LogReport::Kind
    still,    // a: 1 where all are seen to be paused (0: not any more), b: since which message
    stuck,    // SIGKILL does not end a process; it is tried again and again
    gone,     // a: exit code, b: signal, c: killed
  };
  // What the errno is about.
  enum Refuser : std::int32_t { itself, the_command, the_log, the_user, the_directory };
  std::int32_t kind = halt;
  std::int32_t a = 0;
  std::int32_t b = 0;
  std::int32_t c = 0;
  std::int64_t time = 0;
};

namespace {

using namespace std::chrono_literals;

// ---- the guard process

constexpr int kMostPasses = 64;           // of stopping a tree at a time
constexpr Duration kStopAgain = 2ms;      // for those that forked away meanwhile, or are in the kernel; then ever later
constexpr Duration kStoppedRecheck = 1s;  // of stopped processes: another process may have continued one
constexpr Duration kStuckPause = 1s;
constexpr int kMostSends = 100;        // of one word, a millisecond apart
constexpr Duration kLogOpens = 10s;    // for opening the log; a server may have to wake up
constexpr int kOfDirectory = 1 << 16;  // beside an errno: it is about the directory
constexpr Duration kLogEnds = 2s;      // for the last lines, when all writers have ended

const SystemClock kClock;

Fd open_child_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  return Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

class GuardProcess {
 public:
  GuardProcess(const GuardOptions& options, Cgroup& cgroup, int socket)
      : options_(options), cgroup_(cgroup), socket_(socket), children_(open_child_signals()) {}

  [[noreturn]] void run() {
    if (const int why = start(); why != 0) {
      say({.kind = GuardMessage::refused, .a = why & ~kOfDirectory, .b = refused_by_});
      leave({.kind = GuardMessage::gone, .a = 127});
    }
    say({.kind = GuardMessage::started, .a = root_.pid(), .b = log_writer_});
    for (;;) turn();
  }

 private:
  // The session waits for each word. A kernel without memory has some again in a moment; longer the guard never waits.
  void say(const GuardMessage& word) const {
    for (int tries = 0; socket_ >= 0 && tries < kMostSends; ++tries) {
      if (::send(socket_, &word, sizeof word, MSG_NOSIGNAL) >= 0) return;
      if (errno != EINTR && errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM) return;
      const timespec nap{0, 1'000'000};
      if (errno != EINTR) ::nanosleep(&nap, nullptr);
    }
  }

  [[noreturn]] void leave(const GuardMessage& word) {
    cgroup_.remove();
    await_log();
    say(word);
    ::_exit(0);
  }

  // ---- starting ----
  // As the user whose log it is: a link in a folder of theirs must not lead root's pen.
  int open_log(Fd& output) {
    if (options_.log.empty()) return 0;
    int data[2] = {-1, -1};
    int reports[2] = {-1, -1};
    if (::pipe2(data, O_CLOEXEC) != 0) return errno;
    from_command_ = Fd(data[0]);
    output = Fd(data[1]);
    if (::pipe2(reports, O_CLOEXEC) != 0) return errno;
    from_log_ = Fd(reports[0]);
    Fd to_us(reports[1]);
    const LogFileOptions log{
        .path = options_.log, .size = options_.log_size, .keep = options_.log_keep, .become = [this] {
          return account_ ? account_->become() : 0;
        }};
    // It outlives us, until its input ends: what the command says last is kept.
    const auto writer = start_child([&] { be_log_writer(log, from_command_.get(), to_us.get()); }, true);
    if (!writer) return writer.error().errno_value;
    log_writer_ = writer->pid();
    to_us.reset();
    const Instant by = kClock.now() + kLogOpens;
    LogReport report;
    while (!hung_up()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(by - kClock.now()).count();
      if (left <= 0) return ETIMEDOUT;
      std::array<pollfd, 2> ready = {{{from_log_.get(), POLLIN, 0}, {socket_, POLLRDHUP, 0}}};
      if (::poll(ready.data(), ready.size(), static_cast<int>(left)) < 0 && errno != EINTR) return errno;
      if (ready[0].revents == 0) continue;
      const bool whole = ::read(from_log_.get(), &report, sizeof report) == static_cast<ssize_t>(sizeof report);
      return whole ? report.error : EIO;
    }
    return ECANCELED;
  }

  // lull is gone.
  bool hung_up() const {
    pollfd ready{socket_, POLLRDHUP, 0};
    return ::poll(&ready, 1, 0) > 0 && (ready.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }

  int refused(GuardMessage::Refuser by, int why) {
    refused_by_ = by;
    return why;
  }

  int start() {
    if (!children_) return EMFILE;  // who ended would not be noticed
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return errno;
    if (!options_.user.empty()) {
      auto account = Account::find(options_.user);
      if (!account) return refused(GuardMessage::the_user, account.error().errno_value);
      account_ = *std::move(account);
    }
    Fd output;
    if (const int why = open_log(output); why != 0) return refused(GuardMessage::the_log, why);
    const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!nothing) return errno;  // else it would have our terminal
    SpawnOptions options{.arguments = options_.command,
                         .environment = options_.environment,
                         .unset = options_.unset,
                         .cgroup = cgroup_ ? cgroup_.fd() : -1,
                         .standard_input = nothing.get(),
                         .standard_output = output.get(),
                         .standard_error = output.get(),
                         .signals = options_.signals};
    if (account_)
      for (const auto& [name, value] : {std::pair{"HOME", account_->home},
                                        {"USER", account_->name},
                                        {"LOGNAME", account_->name},
                                        {"SHELL", account_->shell}})
        if (std::ranges::none_of(options.environment, [&](const auto& one) { return one.first == name; }))
          options.environment.emplace_back(name, value);
    options.in_child = [this, guard = ::getpid()] { return settle_in(guard); };
    auto spawned = spawn(options);
    if (!spawned) {
      const int why = spawned.error().errno_value != 0 ? spawned.error().errno_value : EIO;
      return refused((why & kOfDirectory) != 0 ? GuardMessage::the_directory : GuardMessage::the_command, why);
    }
    if (!spawned->in_cgroup) cgroup_.remove();
    root_ = std::move(spawned->process);
    tree_ = Tree::of_job(root_, cgroup_ ? &cgroup_ : nullptr, {});
    return 0;
  }

  // In the child: 0, or the errno for which it gives up. System calls only, and those by which users change as the
  // kernel has them: libc's would speak to threads that are not here.
  int settle_in(pid_t guard) const {
    ::setpgid(0, 0);
    if (options_.nice != 0 && ::setpriority(PRIO_PROCESS, 0, options_.nice) != 0) return errno;
    constexpr int kOfProcess = 1;
    if (options_.io_priority != 0 && ::syscall(SYS_ioprio_set, kOfProcess, 0, options_.io_priority) != 0) return errno;
    if (const int why = account_ ? account_->become() : 0; why != 0) return why;
    if (!options_.directory.empty() && ::chdir(options_.directory.c_str()) != 0) return errno | kOfDirectory;
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;  // behind setuid, which takes it away
    return ::getppid() == guard ? 0 : ECHILD;
  }

  // ---- the loop ----
  void turn() {
    // If the log writer has ended, output is lost: else the command would block on it.
    const Fd& third = log_writer_ > 0 ? from_log_ : from_command_;
    std::array<pollfd, 3> ready = {{{socket_, POLLIN, 0}, {children_.get(), POLLIN, 0}, {third.get(), POLLIN, 0}}};
    int wait = -1;
    if (next_) {
      const Duration left = std::max<Duration>(*next_ - kClock.now(), Duration::zero());
      wait = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
    }
    if (::poll(ready.data(), third ? 3 : 2, wait) < 0) return;
    if (ready[2].revents != 0) read_log();
    if (ready[1].revents != 0) reap();
    if (ready[0].revents != 0) read_messages();
    if (next_ && kClock.now() >= *next_) due();
    if (root_ended_ && !ending_ && is_gone()) leave_with_status();
  }

  void read_messages() {
    GuardMessage word;
    const ssize_t got = ::recv(socket_, &word, sizeof word, MSG_DONTWAIT);
    if (got < 0 && errno != ECONNRESET) return;
    if (got != static_cast<ssize_t>(sizeof word)) return abandoned();
    switch (word.kind) {
      case GuardMessage::halt:
        halted_ = true;
        frozen_ = word.a != 0;
        halt_number_ = word.b;
        to_thaw_ = false;
        still_said_ = false;
        pause_ = kStopAgain;
        if (!ending_) stop_everybody();
        break;
      case GuardMessage::go_on: go_on(word.a != 0); break;
      case GuardMessage::end: begin_to_end(word.a, Duration(word.time)); break;
      default: break;
    }
  }

  // Whoever told us what to do is no more.
  void abandoned() {
    ::close(socket_);
    socket_ = -1;
    begin_to_end(0, Duration::zero());
  }

  void reap() {
    signalfd_siginfo told{};
    while (::read(children_.get(), &told, sizeof told) > 0) {
    }
    for (;;) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) break;
      if (info.si_pid == log_writer_) log_writer_ = 0;
      if (info.si_pid != root_.pid() || root_ended_) continue;
      root_ended_ = true;
      (info.si_code == CLD_EXITED ? status_.code : status_.signal) = info.si_status;
    }
    if (ending_) due();
  }

  bool is_gone() const {
    siginfo_t info{};
    if (cgroup_ && cgroup_.populated()) return false;
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) return true;
    return log_writer_ > 0 && tree_.gone();
  }

  [[noreturn]] void leave_with_status(std::size_t killed = 0) {
    leave({.kind = GuardMessage::gone,
           .a = status_.code,
           .b = status_.signal,
           .c = static_cast<std::int32_t>(std::min<std::size_t>(killed, 1U << 30))});
  }

  // ---- pausing ----
  // Processes that the freezer does not reach. True: none was found running.
  bool stop_some() {
    const bool inside_stands = frozen_ && cgroup_.frozen();  // asked first: who is paused does not move away
    std::set<pid_t> inside;
    if (frozen_)
      for (const pid_t pid : cgroup_.members()) inside.insert(pid);
    bool all = inside_stands || !frozen_;
    for (const ProcessEntry& one : tree_.look()) {
      if (one.ended() || is_stopped(one) || inside.contains(one.pid)) continue;
      all = false;
      const auto process = Process::open(one);
      if (process && process->signal(SIGSTOP)) stopped_.insert_or_assign(one.pid, one);
    }
    return all;
  }

  // Paused processes start no children, so a scan of all of them that finds none running is proof.
  void stop_everybody() {
    bool all = false;
    for (int pass = 0; pass < kMostPasses && !all; ++pass) all = stop_some();
    if (all != still_said_) say({.kind = GuardMessage::still, .a = all ? 1 : 0, .b = halt_number_});
    still_said_ = all;
    if (!all) pause_ = std::min<Duration>(2 * pause_, kStoppedRecheck);
    next_ = kClock.now() + (all ? kStoppedRecheck : pause_);
  }

  // A process that we did not stop is paused for another reason. What fails is tried again.
  void go_on(bool thawed) {
    halted_ = false;
    if (ending_) return;
    next_.reset();
    to_thaw_ = cgroup_ && !thawed;
    thaw();
    std::erase_if(stopped_, [](const auto& one) {
      const auto process = Process::open(one.second);
      const auto sent = process ? process->signal(SIGCONT) : Result<>(std::unexpected(process.error()));
      return sent || sent.error().errno_value == ESRCH;
    });
    if (to_thaw_ || !stopped_.empty()) next_ = kClock.now() + kStopAgain;
  }
  void thaw() {
    if (to_thaw_ && cgroup_.set_frozen(false)) to_thaw_ = false;
  }

  // ---- ending ----
  void begin_to_end(int signal, Duration grace) {
    ending_.emplace(tree_, root_,
                    Ending::Options{.signal = grace > Duration::zero() ? signal : 0, .to_tree = true, .grace = grace});
    next_ = ending_->step(kClock.now());
    // The signal waits for them: they find it before anything else.
    to_thaw_ = static_cast<bool>(cgroup_);
    thaw();
    if (!next_) ended();
  }

  void due() {
    if (ending_) {
      thaw();
      next_ = ending_->step(kClock.now());
      if (!next_) ended();
    } else if (halted_) {
      next_.reset();
      stop_everybody();
    } else {
      go_on(!to_thaw_);
    }
  }

  void ended() {
    const std::size_t killed = ending_->killed();
    if (ending_->state() == Ending::State::stuck) {
      if (!stuck_said_) say({.kind = GuardMessage::stuck});
      stuck_said_ = true;
      ending_.emplace(tree_, root_, Ending::Options{.signal = 0, .grace = Duration::zero()});
      next_ = kClock.now() + kStuckPause;
      return;
    }
    ending_.reset();
    next_.reset();
    reap();
    leave_with_status(killed);
  }

  // ---- the log ----
  void read_log() {
    LogReport report;
    std::array<char, 65536> lost;
    if (log_writer_ <= 0) {
      if (::read(from_command_.get(), lost.data(), lost.size()) <= 0) from_command_.reset();
    } else if (::read(from_log_.get(), &report, sizeof report) == static_cast<ssize_t>(sizeof report)) {
      say({.kind = GuardMessage::log, .a = report.error, .b = report.kind});
    } else {
      from_log_.reset();
    }
  }

  // Until it has written what there was. One that hangs is left alone, with a SIGKILL for when it wakes up.
  void await_log() {
    if (log_writer_ <= 0) return;
    const Instant by = kClock.now() + kLogEnds;
    while (::waitpid(log_writer_, nullptr, WNOHANG) == 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(by - kClock.now()).count();
      if (left <= 0) return (void)::kill(log_writer_, SIGKILL);  // ours and not reaped: the number is its own
      pollfd ready{children_.get(), POLLIN, 0};
      (void)::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(left, 50)));
      signalfd_siginfo told{};
      while (::read(children_.get(), &told, sizeof told) > 0) {
      }
    }
  }

  const GuardOptions& options_;
  Cgroup& cgroup_;
  int socket_;   // below 0: the other end is gone
  Fd children_;  // SIGCHLD
  std::optional<Account> account_;
  Fd from_command_;       // what it writes; read by the log's writer
  Fd from_log_;           // reports of that one
  pid_t log_writer_ = 0;  // 0: there is none
  GuardMessage::Refuser refused_by_ = GuardMessage::itself;
  Process root_;
  Tree tree_;
  ExitStatus status_;
  bool root_ended_ = false;
  bool halted_ = false;
  bool frozen_ = false;  // with halted_: by its cgroup, as far as they are in it
  bool still_said_ = false;
  std::int32_t halt_number_ = 0;
  Duration pause_ = kStopAgain;
  std::map<pid_t, ProcessEntry> stopped_;  // by us
  bool to_thaw_ = false;                   // its cgroup, which may be frozen
  bool stuck_said_ = false;
  std::optional<Ending> ending_;
  std::optional<Instant> next_;
};

// Never returns. To be called in a fresh child of a program without threads.
[[noreturn]] void be_guard(const GuardOptions& options, Cgroup& cgroup, int socket) {
  ::setsid();           // no Ctrl-C, no hangup: what is to be done we are told
  show_as(kGuardName);  // not lull: who kills that by its name must not hit what watches over it
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  // Another filler's socket would keep that one's guard from hearing that lull is gone; a lock or a device file would
  // be held for as long as we live.
  close_all_but({socket, cgroup ? cgroup.fd() : -1}, STDERR_FILENO + 1);
  GuardProcess(options, cgroup, socket).run();
}

// ---- our side

constexpr Duration kGuardRetry = 5ms;
constexpr Duration kTellsLater = 3ms;
constexpr int kQuietLooks = 3;  // whoever loses its parent comes to us a moment later

bool send_word(int socket, const GuardMessage& word) {
  ssize_t sent = -1;
  do sent = ::send(socket, &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent >= 0 || errno == EPIPE || errno == ECONNRESET;  // a guard that is gone needs no word
}

}  // namespace

Result<std::unique_ptr<Guard>> Guard::start(Loop& loop, Children& children, const GuardOptions& options, Calls calls) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail(errno, "socketpair");
  std::unique_ptr<Guard> guard(new Guard(loop, children, std::move(calls), options));
  guard->socket_ = Fd(ends[0]);
  Fd theirs(ends[1]);
  if (options.use_cgroup)
    if (auto made = Cgroup::create()) guard->cgroup_ = *std::move(made);
  if (guard->cgroup_)
    if (auto freezer = open_at(guard->cgroup_.fd(), "cgroup.freeze", O_WRONLY)) guard->freezer_ = *std::move(freezer);

  auto started = start_child([&] { be_guard(options, guard->cgroup_, theirs.get()); }, /*outlives_us=*/true);
  if (!started) {
    guard->cgroup_.remove();
    return std::unexpected(std::move(started).error());
  }
  guard->process_ = *std::move(started);
  guard->cgroup_.remove_abandoned();
  children.expect(guard->process_, [raw = guard.get()](const ExitStatus&) { raw->guard_ended(); });
  if (auto heard = loop.on_ready(guard->socket_.get(), [raw = guard.get()] { raw->read_messages(); }); !heard)
    return std::unexpected(std::move(heard).error());
  return guard;
}

Guard::Guard(Loop& loop, Children& children, Calls calls, const GuardOptions& options)
    : loop_(loop),
      children_(children),
      calls_(std::move(calls)),
      command_(options.command.empty() ? "" : options.command[0]),
      log_(options.log),
      user_(options.user),
      directory_(options.directory) {}

// In order, and none is lost: one that cannot be sent now is sent later.
void Guard::tell(const GuardMessage& word) {
  unsent_.push_back(word);
  send_messages();
}

void Guard::send_messages() {
  while (!unsent_.empty() && send_word(socket_.get(), unsent_.front())) unsent_.erase(unsent_.begin());
  if (unsent_.empty() || sending_) return;
  sending_.in(kGuardRetry, [this] { send_messages(); });
}

Guard::~Guard() {
  if (process_) children_.forget(process_);
  if (socket_) loop_.forget(socket_.get());  // closing it tells the guard to kill
  if (!over_ && cgroup_) (void)cgroup_.kill();
}

// The freezer is one write, and only we do it. The guard, which stops processes in other cgroups, is told a little
// later: a program may have opened many GPUs at once, and guards that wake up would delay pausing the other fillers.
void Guard::halt() {
  still_ = false;
  ++halts_;
  if (!freezer_ || ::write(freezer_.get(), "1", 1) != 1)
    tell({.kind = GuardMessage::halt, .a = 0, .b = halts_});
  else if (!telling_)
    telling_.in(kTellsLater, [this] { report_freezing(); });
}

void Guard::report_freezing() {
  telling_.cancel();
  tell({.kind = GuardMessage::halt, .a = 1, .b = halts_});
}

void Guard::go_on() {
  still_ = false;
  telling_.cancel();
  const bool thaws = freezer_ && ::write(freezer_.get(), "0", 1) == 1;
  tell({.kind = GuardMessage::go_on, .a = thaws ? 1 : 0, .b = ++halts_});
}

void Guard::end(const Ending::Options& how) {
  if (telling_) report_freezing();
  tell({.kind = GuardMessage::end, .a = how.signal, .time = how.grace.count()});
}

Lineage Lineage::of(pid_t pid) {
  Lineage found;
  found.cgroups = read_cgroups(pid).value_or(std::string());
  found.line.push_back(pid);
  climb(pid, [&](const ProcessEntry& one) { return found.line.push_back(one.parent), false; });
  return found;
}

bool Guard::owns(const Lineage& process) const {
  if (std::ranges::count(process.line, process_.pid()) > 0) return true;
  return cgroup_.holds(process.cgroups);
}

// What an errno is about, as the beginning of a message.
std::string Guard::named(std::int32_t refuser) const {
  switch (refuser) {
    case GuardMessage::the_command: return printable(command_) + ": ";
    case GuardMessage::the_log: return "its log " + printable(log_) + ": ";
    case GuardMessage::the_user: return "its user " + printable(user_) + ": ";
    case GuardMessage::the_directory: return "its directory " + printable(directory_) + ": ";
    default: return {};
  }
}

void Guard::read_messages() {
  GuardMessage word;
  const ssize_t got = ::recv(socket_.get(), &word, sizeof word, MSG_DONTWAIT);
  if (got < 0 && errno != ECONNRESET) return;
  if (got != static_cast<ssize_t>(sizeof word)) {  // the guard is gone, or will be at once
    loop_.forget(socket_.get());
    children_.sweep();
    return;
  }
  switch (word.kind) {
    case GuardMessage::started:
      root_ = word.a;
      if (word.b > 0) note_own_process(word.b);  // it ends by itself, also where the guard is killed
      if (calls_.started) calls_.started(root_);
      break;
    case GuardMessage::refused:
      end_.errno_value = word.a;
      end_.not_started = named(word.b) + std::strerror(word.a);
      break;
    case GuardMessage::log:
      if (calls_.log_trouble)
        calls_.log_trouble(fmt::format("its log {} cannot be {}: {}; {}", printable(log_),
                                       word.b == LogReport::not_rotated ? "rotated" : "written", std::strerror(word.a),
                                       word.b == LogReport::not_rotated ? "it grows" : "output is lost"));
      break;
    case GuardMessage::gone:
      told_ = true;
      end_.status.code = word.a;
      end_.status.signal = word.b;
      end_.killed = static_cast<std::size_t>(std::max(word.c, 0));
      break;
    case GuardMessage::still:
      if (word.b != halts_) break;  // of an earlier time
      still_ = word.a != 0;
      if (still_ && calls_.still) calls_.still();
      break;
    case GuardMessage::stuck:
      if (calls_.stuck) calls_.stuck();
      break;
    default: break;
  }
}

void Guard::guard_ended() {
  (void)reap(process_);  // its status says nothing that it did not say itself
  // What it said last may still lie in the socket.
  GuardMessage word;
  while (!told_ &&
         ::recv(socket_.get(), &word, sizeof word, MSG_DONTWAIT | MSG_PEEK) == static_cast<ssize_t>(sizeof word))
    read_messages();
  loop_.forget(socket_.get());
  unsent_.clear();
  if (told_) return finish();
  end_.status.signal = SIGKILL;  // the command died with its guard
  kill_what_is_left();
}

// If the guard dies, its processes become our children: we are the next subreaper. Every descendant of ours that is
// neither a helper of ours nor expected by a caller is one of them.
void Guard::kill_what_is_left() {
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
  timer_.in(kGuardRetry, [this] { kill_what_is_left(); });
}

void Guard::finish() {
  over_ = true;
  cgroup_.remove();
  // The caller may destroy us in there.
  if (calls_.gone) loop_.in(Duration::zero(), [gone = std::move(calls_.gone), how = end_] { gone(how); });
}

namespace {

using namespace std::chrono_literals;

constexpr Duration kLimit = 10s;  // a file server may have to wake up

bool may(const std::string& path, int how) { return ::faccessat(AT_FDCWD, path.c_str(), how, AT_EACCESS) == 0; }

// Why nothing can be appended to it; 0: it can.
int log_error(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) return EISDIR;
    return may(path, W_OK) ? 0 : errno;
  }
  if (errno != ENOENT) return errno;
  return may(folder_of(path), W_OK | X_OK) ? 0 : errno;
}

// In a child that has become the user.
std::vector<std::string> look(const GuardOptions& options) {
  std::vector<std::string> found;
  const auto say = [&](std::string_view what, const std::string& path, int error) {
    found.push_back(fmt::format("{}{}: {}", what, printable(path), std::strerror(error)));
  };
  if (!options.log.empty())
    if (const int why = log_error(options.log); why != 0) say("its log ", options.log, why);
  if (!options.directory.empty() && ::chdir(options.directory.c_str()) != 0) {
    say("its directory ", options.directory, errno);
    return found;
  }
  if (const auto well = check_executable(options.command[0]); !well)
    say("", options.command[0], well.error().errno_value);
  return found;
}

}  // namespace

std::vector<std::string> what_prevents_start(const GuardOptions& options) {
  std::optional<Account> account;
  if (!options.user.empty()) {
    auto user = Account::find(options.user);
    if (!user) return {"there is no user " + printable(options.user)};
    if (::geteuid() != 0 && user->user != ::geteuid()) return {"only root may run it as another user"};
    if (::geteuid() == 0) account = *std::move(user);
  }
  const auto text = run_with_timeout(
      [&] {
        if (const int why = account ? account->become() : 0; why != 0)
          return fmt::format("its user {}: {}\n", printable(options.user), std::strerror(why));
        return fmt::format("{}", fmt::join(look(options), "\n"));
      },
      kLimit);
  if (!text) return {"its files do not answer"};
  std::vector<std::string> found;
  for (const std::string_view line : split(*text, '\n'))
    if (!line.empty()) found.emplace_back(line);
  return found;
}

}  // namespace lull
