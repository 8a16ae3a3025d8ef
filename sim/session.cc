#include "sim/session.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/fd.h"
#include "base/text.h"

namespace lull::sim {
namespace {

// What a person or a program may send us and mean the command.
constexpr std::array kForwarded = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

struct Child {
  pid_t pid = -1;
  int failure = 0;  // errno of the exec that failed
};

// Forks and runs `command`; `prepare` runs in the child before it becomes the command.
template <class Prepare>
Result<Child> spawn(const char* program, const std::vector<std::string>& command, const SessionSignals& signals,
                    Prepare prepare) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(errno, "pipe");
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const auto arguments = pointers(command);
  const pid_t pid = ::fork();
  if (pid < 0) return fail(errno, "fork");
  if (pid == 0) {
    prepare();
    signals.restore();
    ::execvp(program, arguments.data());
    const int failure = errno;
    (void)!::write(write_end.get(), &failure, sizeof failure);
    ::_exit(kExitFailure);
  }
  write_end.reset();
  Child child{pid, 0};
  ssize_t got = 0;
  do got = ::read(read_end.get(), &child.failure, sizeof child.failure);
  while (got < 0 && errno == EINTR);
  if (got == sizeof child.failure) ::waitpid(pid, nullptr, 0);
  return child;
}

void detach(int output) {
  ::setsid();  // a Ctrl-C is not meant for the scenario's processes
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC)); null)
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null.get(), fd);
  if (output >= 0) ::dup2(output, STDOUT_FILENO);
}

class Runner {
 public:
  Runner(const Session& session, const SessionSignals& signals) : session_(session), signals_(signals) {
    pending_ = session.processes;
    std::stable_sort(pending_.begin(), pending_.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() {
    for (const pid_t pid : running_) ::kill(pid, SIGKILL);
    for (const pid_t pid : running_) ::waitpid(pid, nullptr, 0);
  }

  SessionEnd run(pid_t command) {
    command_ = command;
    for (;;) {
      start_due();
      pollfd wait{signals_.fd(), POLLIN, 0};
      ::poll(&wait, 1, milliseconds_to_next());
      forward();
      if (auto end = reap()) return *std::move(end);
    }
  }

  void start_due() {
    while (next_ < pending_.size() && session_.start + pending_[next_].at <= clock_.now()) start(pending_[next_++]);
  }

  // Those that are there from the start are there before the command: waits until each says so.
  void start_first() {
    while (next_ < pending_.size() && pending_[next_].at <= Duration::zero()) {
      std::array<int, 2> ends{};
      if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
      const Fd ready(ends[0]);
      Fd theirs(ends[1]);
      ScheduledProcess process = pending_[next_++];
      process.command.emplace_back("--ready-fd=1");
      start(process, theirs.get());
      theirs.reset();
      constexpr int kAtMost = 5000;  // milliseconds; a load takes one or two
      pollfd wait{ready.get(), POLLIN, 0};
      ::poll(&wait, 1, kAtMost);  // the other end is closed: it is there, or gone
    }
  }

 private:
  void start(const ScheduledProcess& process, int output = -1) {
    const auto child = spawn("/proc/self/exe", process.command, signals_, [output] { detach(output); });
    if (child && child->failure == 0) running_.push_back(child->pid);
  }

  int milliseconds_to_next() const {
    if (next_ >= pending_.size()) return -1;
    const auto left = session_.start + pending_[next_].at - clock_.now();
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 60'000));
  }

  void forward() const {
    signalfd_siginfo info{};
    while (::read(signals_.fd(), &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) continue;
      // The terminal's own signals reach the whole group: the command has them already. But when the terminal itself
      // goes, its session leader alone is told.
      const bool hangup = number == SIGHUP && ::getsid(0) == ::getpid();
      if (info.ssi_code == SI_KERNEL && !hangup) continue;
      ::kill(command_, number);
      if (hangup) ::kill(command_, SIGCONT);  // who is stopped would not take it
    }
  }

  std::optional<SessionEnd> reap() {
    std::optional<SessionEnd> ended;
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == command_) ended = WIFSIGNALED(status) ? ended_by(WTERMSIG(status)) : SessionEnd{WEXITSTATUS(status)};
      std::erase(running_, pid);
    }
    return ended;
  }

  const Session& session_;
  const SessionSignals& signals_;
  SystemClock clock_;
  std::vector<ScheduledProcess> pending_;
  std::size_t next_ = 0;
  std::vector<pid_t> running_;
  pid_t command_ = -1;
};

std::vector<std::string> shell() {
  const char* wanted = std::getenv("SHELL");
  return {wanted != nullptr && ::access(wanted, X_OK) == 0 ? wanted : "/bin/sh"};
}

void apply(const std::vector<std::pair<std::string, std::string>>& environment) {
  for (const auto& [name, value] : environment) {
    if (value.empty())
      ::unsetenv(name.c_str());
    else
      ::setenv(name.c_str(), value.c_str(), 1);
  }
}

}  // namespace

SessionSignals::SessionSignals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : kForwarded) sigaddset(&wanted, number);
  sigaddset(&wanted, SIGCHLD);
  // A SIGCHLD that is ignored (some daemons do) would reap for us.
  std::signal(SIGCHLD, SIG_DFL);
  ::sigprocmask(SIG_BLOCK, &wanted, &old_);
  fd_ = Fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
}

void SessionSignals::restore() const { ::sigprocmask(SIG_SETMASK, &old_, nullptr); }

Result<SessionEnd> run_session(const Session& session, const SessionSignals& signals) {
  apply(session.environment);
  const auto command = session.command.empty() ? shell() : session.command;
  Runner runner(session, signals);
  runner.start_first();
  const Child child = TRY(spawn(command[0].c_str(), command, signals, [] {}));
  if (child.failure != 0)
    return SessionEnd{.status = child.failure == ENOENT ? kExitNotFound : kExitCannotRun,
                      .complaint = fmt::format("{}: {}", printable(command[0]), std::strerror(child.failure))};
  return runner.run(child.pid);
}

}  // namespace lull::sim
