#include "act/guard_process.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "act/log_file.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr int kMostPasses = 64;       // of stopping a tree at a time
constexpr Duration kStopAgain = 2ms;  // for those that forked away meanwhile, or are in the kernel; then ever later
constexpr Duration kLookAgain = 1s;   // at those that stand still: somebody may have let one go on
constexpr Duration kStuckPause = 1s;

const SystemClock kClock;

// Another filler's socket would keep that one's guard from hearing that lull is gone; a lock or a device file would be
// held for as long as we live.
void close_all_but(int one, int another) {
  unsigned first = STDERR_FILENO + 1;
  for (const int kept : {std::min(one, another), std::max(one, another)}) {
    if (kept < static_cast<int>(first)) continue;
    if (static_cast<unsigned>(kept) > first) ::close_range(first, static_cast<unsigned>(kept) - 1, 0);
    first = static_cast<unsigned>(kept) + 1;
  }
  ::close_range(first, ~0U, 0);
}

Fd hear_of_children() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  return Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

// Who the command is to run as.
struct Account {
  uid_t user = 0;
  gid_t group = 0;
  std::string name;
  std::string home;
  std::string shell;
};

class GuardProcess {
 public:
  explicit GuardProcess(const GuardTask& task)
      : options_(task.options), cgroup_(task.cgroup), socket_(task.socket), children_(hear_of_children()) {}

  [[noreturn]] void run() {
    if (const int why = start(); why != 0) {
      say({.kind = GuardWord::refused, .a = why});
      leave({.kind = GuardWord::gone, .a = 127});
    }
    say({.kind = GuardWord::started, .a = root_.pid()});
    for (;;) turn();
  }

 private:
  void say(const GuardWord& word) const {
    if (socket_ >= 0) (void)!::send(socket_, &word, sizeof word, MSG_NOSIGNAL);
  }

  [[noreturn]] void leave(const GuardWord& word) {
    drain_log();
    cgroup_.remove();
    say(word);
    ::_exit(0);
  }

  // ---- starting ----
  int find_account() {
    if (options_.user.empty()) return 0;
    errno = 0;
    const passwd* entry = ::getpwnam(options_.user.c_str());
    if (entry == nullptr) return errno != 0 ? errno : ENOENT;
    account_ = Account{entry->pw_uid, entry->pw_gid, entry->pw_name, entry->pw_dir, entry->pw_shell};
    return 0;
  }

  // As the user whose log it is: a link in a folder of theirs must not lead root's pen.
  int open_log(int& output) {
    if (options_.log.empty()) return 0;
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
    from_command_ = Fd(ends[0]);
    output = ends[1];
    ::fcntl(from_command_.get(), F_SETFL, O_NONBLOCK);
    const As user(account_);
    auto log = LogFile::open(options_.log, options_.log_size, options_.log_keep);
    if (!log) return log.error().errno_value != 0 ? log.error().errno_value : EIO;
    log_.emplace(*std::move(log));
    return 0;
  }

  int start() {
    if (const int why = find_account(); why != 0) return why;
    int output = -1;
    if (const int why = open_log(output); why != 0) return why;
    const Fd to_log(output);
    const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    SpawnOptions options{.arguments = options_.command,
                         .environment = options_.environment,
                         .cgroup = cgroup_ ? cgroup_.fd() : -1,
                         .standard_input = nothing.get(),
                         .standard_output = output,
                         .standard_error = output,
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
    if (!spawned) return spawned.error().errno_value != 0 ? spawned.error().errno_value : EIO;
    if (!spawned->in_cgroup) cgroup_.remove();
    root_ = std::move(spawned->process);
    tree_ = Tree::of_job(root_, cgroup_ ? &cgroup_ : nullptr, {});
    return 0;
  }

  // In the child: 0, or the errno for which it gives up.
  int settle_in(pid_t guard) const {
    ::setpgid(0, 0);
    if (options_.nice != 0 && ::setpriority(PRIO_PROCESS, 0, options_.nice) != 0) return errno;
    constexpr int kOfProcess = 1;
    if (options_.io_priority != 0 && ::syscall(SYS_ioprio_set, kOfProcess, 0, options_.io_priority) != 0) return errno;
    if (account_ && (::initgroups(account_->name.c_str(), account_->group) != 0 || ::setgid(account_->group) != 0 ||
                     ::setuid(account_->user) != 0))
      return errno;
    if (!options_.directory.empty() && ::chdir(options_.directory.c_str()) != 0) return errno;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // behind setuid, which takes it away
    return ::getppid() == guard ? 0 : ECHILD;
  }

  // ---- the loop ----
  void turn() {
    std::array<pollfd, 3> ready = {
        {{socket_, POLLIN, 0}, {children_.get(), POLLIN, 0}, {from_command_.get(), POLLIN, 0}}};
    int wait = -1;
    if (next_) {
      const Duration left = std::max<Duration>(*next_ - kClock.now(), Duration::zero());
      wait = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
    }
    if (::poll(ready.data(), from_command_ ? 3 : 2, wait) < 0) return;
    if ((ready[2].revents & POLLIN) != 0) copy_some();
    if ((ready[2].revents & (POLLHUP | POLLERR)) != 0 && (ready[2].revents & POLLIN) == 0) from_command_.reset();
    if (ready[1].revents != 0) reap();
    if (ready[0].revents != 0) hear();
    if (next_ && kClock.now() >= *next_) due();
    if (root_ended_ && !ending_ && is_gone()) leave_with_status();
  }

  void hear() {
    GuardWord word;
    const ssize_t got = ::recv(socket_, &word, sizeof word, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got != static_cast<ssize_t>(sizeof word)) return abandoned();
    switch (word.kind) {
      case GuardWord::halt:
        halted_ = true;
        frozen_ = word.a != 0;
        halt_number_ = word.b;
        still_said_ = false;
        pause_ = kStopAgain;
        if (!ending_) stop_everybody();
        break;
      case GuardWord::go_on: go_on(word.a != 0); break;
      case GuardWord::end: begin_to_end(word.a, Duration(word.time)); break;
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
      if (info.si_pid != root_.pid() || root_ended_) continue;
      root_ended_ = true;
      (info.si_code == CLD_EXITED ? status_.code : status_.signal) = info.si_status;
    }
    if (ending_) due();
  }

  bool is_gone() const {
    siginfo_t info{};
    const bool childless = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
    return childless && !(cgroup_ && cgroup_.populated());
  }

  [[noreturn]] void leave_with_status(std::size_t killed = 0) {
    leave({.kind = GuardWord::gone,
           .a = status_.code,
           .b = status_.signal,
           .c = static_cast<std::int32_t>(std::min<std::size_t>(killed, 1U << 30))});
  }

  // ---- standing still ----
  // Whoever the freezer does not reach. True: nobody was found who runs.
  bool stop_some() {
    const bool inside_stands = frozen_ && cgroup_.frozen();  // asked first: who stands still does not move away
    std::set<pid_t> inside;
    if (frozen_)
      for (const pid_t pid : cgroup_.members()) inside.insert(pid);
    bool all = inside_stands || !frozen_;
    for (const ProcessEntry& one : tree_.look()) {
      if (one.state == 'T' || one.state == 't' || one.ended() || inside.contains(one.pid)) continue;
      all = false;
      const auto process = Process::open(one);
      if (process && process->signal(SIGSTOP)) stopped_.insert_or_assign(one.pid, one);
    }
    return all;
  }

  // Who stands still has no children meanwhile, so a look at all of them that found nobody running is proof.
  void stop_everybody() {
    bool all = false;
    for (int pass = 0; pass < kMostPasses && !all; ++pass) all = stop_some();
    if (all != still_said_) say({.kind = GuardWord::still, .a = all ? 1 : 0, .b = halt_number_});
    still_said_ = all;
    if (!all) pause_ = std::min<Duration>(2 * pause_, kLookAgain);
    next_ = kClock.now() + (all ? kLookAgain : pause_);
  }

  // Whom we did not stop stands still for a reason of its own.
  void go_on(bool thawed) {
    halted_ = false;
    if (ending_) return;
    next_.reset();
    if (cgroup_ && !thawed) (void)cgroup_.set_frozen(false);
    for (const auto& [pid, one] : std::exchange(stopped_, {}))
      if (const auto process = Process::open(one)) (void)process->signal(SIGCONT);
  }

  // ---- ending ----
  void begin_to_end(int signal, Duration grace) {
    ending_.emplace(tree_, root_,
                    Ending::Options{.signal = grace > Duration::zero() ? signal : 0, .to_tree = true, .grace = grace});
    next_ = ending_->step(kClock.now());
    // The signal waits for them: they find it before anything else.
    if (cgroup_) (void)cgroup_.set_frozen(false);
    if (!next_) ended();
  }

  void due() {
    if (ending_) {
      next_ = ending_->step(kClock.now());
      if (!next_) ended();
    } else if (halted_) {
      next_.reset();
      stop_everybody();
    } else {
      next_.reset();
    }
  }

  void ended() {
    const std::size_t killed = ending_->killed();
    if (ending_->state() == Ending::State::stuck) {
      if (!stuck_said_) say({.kind = GuardWord::stuck});
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
  void copy_some() {
    std::array<char, 65536> buffer;
    const ssize_t got = ::read(from_command_.get(), buffer.data(), buffer.size());
    if (got == 0) from_command_.reset();
    if (got <= 0 || !log_) return;
    const As user(account_);
    log_->append({buffer.data(), static_cast<std::size_t>(got)});
  }
  void drain_log() {
    for (int i = 0; i < 1024 && from_command_; ++i) {
      pollfd ready{from_command_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLIN) == 0) return;
      copy_some();
    }
  }

  // Files as somebody else sees them, for a while.
  class As {
   public:
    explicit As(const std::optional<Account>& account) : done_(account.has_value()) {
      if (!done_) return;
      (void)!::setegid(account->group);
      (void)!::seteuid(account->user);
    }
    As(const As&) = delete;
    As& operator=(const As&) = delete;
    ~As() {
      if (!done_) return;
      (void)!::seteuid(::getuid());
      (void)!::setegid(::getgid());
    }

   private:
    bool done_;
  };

  const GuardOptions& options_;
  Cgroup& cgroup_;
  int socket_;   // below 0: there is nobody at the other end
  Fd children_;  // SIGCHLD
  std::optional<Account> account_;
  Fd from_command_;
  std::optional<LogFile> log_;
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
  bool stuck_said_ = false;
  std::optional<Ending> ending_;
  std::optional<Instant> next_;
};

}  // namespace

void be_guard(const GuardTask& task) {
  ::setsid();             // no Ctrl-C, no hangup: what is to be done we are told
  show_as("fill-guard");  // not lull: who kills that by its name must not hit what watches over it
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  close_all_but(task.socket, task.cgroup ? task.cgroup.fd() : -1);
  GuardProcess(task).run();
}

}  // namespace lull
