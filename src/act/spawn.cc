#include "act/spawn.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <poll.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/process_start.h"
#include "base/text.h"

namespace lull {
namespace {

constexpr int kExecFailed = 127;
constexpr Duration kLongestEnd = std::chrono::seconds(2);  // of a child that was killed, or that said it ends
constexpr const char* kUsualPath = "/bin:/usr/bin";

std::vector<std::string> merged_environment(const std::vector<std::pair<std::string, std::string>>& added,
                                            const std::vector<std::string>& removed) {
  std::vector<std::string> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    bool replaced = std::ranges::find(removed, name) != removed.end();
    for (const auto& [key, value] : added) replaced |= key == name;
    if (!replaced) all.emplace_back(text);
  }
  for (const auto& [key, value] : added) all.push_back(key + "=" + value);
  return all;
}

// Where execvp(3) would look for it.
std::vector<std::string> places_of(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos) return {name};
  const char* path = std::getenv("PATH");
  std::vector<std::string> places;
  for (const std::string_view folder : split(path != nullptr ? path : kUsualPath, ':'))
    places.push_back((folder.empty() ? std::string(".") : std::string(folder)) + "/" + name);
  return places;
}

// All that the child needs, made before there is one.
struct Plan {
  const SpawnOptions& options;
  std::vector<std::string> environment;
  std::vector<std::string> places;  // where the program may be
  std::vector<char*> argv;
  std::vector<char*> envp;
  std::vector<char*> shell;  // argv of the shell for a script that does not say what runs it; [1] is its place
  int error_pipe;
};

Plan plan_of(const SpawnOptions& options, int error_pipe) {
  Plan plan{
      options,   merged_environment(options.environment, options.unset), places_of(options.arguments[0]), {}, {}, {},
      error_pipe};
  plan.argv = exec_pointers(options.arguments);
  plan.envp = exec_pointers(plan.environment);
  plan.shell = plan.argv;
  plan.shell.insert(plan.shell.begin(), const_cast<char*>("/bin/sh"));
  return plan;
}

// As execvpe(3), which may not be called here. Returns why not.
int exec(Plan& plan) {
  int why = ENOENT;
  for (std::string& place : plan.places) {
    ::execve(place.c_str(), plan.argv.data(), plan.envp.data());
    if (errno == ENOEXEC) {
      plan.shell[1] = place.data();
      ::execve(plan.shell[0], plan.shell.data(), plan.envp.data());
      return errno;
    }
    if (errno == EACCES || plan.places.size() == 1) why = errno;
    if (errno != EACCES && errno != ENOENT && errno != ENOTDIR && errno != ESTALE && errno != ENODEV &&
        errno != ETIMEDOUT)
      return errno;
  }
  return why;
}

// Runs in the child until exec. It may have been made by a raw clone3 (born_in), after which libc knows neither the
// child's thread id nor its robust mutexes: so it makes system calls only. No memory is allocated, no lock is taken, no
// user, group or program is looked up: all of that is in the plan.
[[noreturn]] void become(Plan& plan, bool in_cgroup) {
  const SpawnOptions& options = plan.options;
  const auto give_up = [&] [[noreturn]] {
    const int why = errno;
    (void)!::write(plan.error_pipe, &why, sizeof why);
    ::_exit(kExecFailed);
  };
  if (options.cgroup >= 0 && !in_cgroup) {
    const int procs = ::openat(options.cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (procs >= 0) (void)!::write(procs, "0", 1);
  }
  if (options.own_session) ::setsid();
  if (options.standard_input >= 0 && ::dup2(options.standard_input, STDIN_FILENO) < 0) give_up();
  if (options.standard_output >= 0 && ::dup2(options.standard_output, STDOUT_FILENO) < 0) give_up();
  if (options.standard_error >= 0 && ::dup2(options.standard_error, STDERR_FILENO) < 0) give_up();
  if (options.signals != nullptr) {
    ::sigaction(SIGPIPE, &options.signals->pipe, nullptr);
    ::sigaction(SIGCHLD, &options.signals->child, nullptr);
    ::sigprocmask(SIG_SETMASK, &options.signals->mask, nullptr);
  }
  if (options.in_child) {
    errno = options.in_child();
    if (errno != 0) give_up();
  }
  errno = exec(plan);
  give_up();
}

struct Child {
  pid_t pid = -1;  // 0: we are it; -1: errno says why
  Fd pidfd;
  bool in_cgroup = false;
};

// As fork() does it, but born inside the cgroup. libc offers no other way, and to move there later made a process wait
// 6 to 18 ms for the kernel (Linux 6.18, 2 CPUs), longer than a whole `lull run -- true` (4 ms). It is for speed alone:
// where it is forbidden, as in many sandboxes, the child moves itself before it becomes anything else (become()).
// The only raw clone in this program: see become() for what the child may do.
Child born_in(int cgroup) {
  int pidfd = -1;
  clone_args args{};
  args.flags = CLONE_PIDFD | CLONE_INTO_CGROUP;
  args.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
  args.exit_signal = SIGCHLD;
  args.cgroup = static_cast<std::uint64_t>(cgroup);
  const long pid = ::syscall(SYS_clone3, &args, sizeof args);
  return {static_cast<pid_t>(pid), Fd(pid > 0 ? pidfd : -1), pid >= 0};
}

// Comes back twice, in us and in the child.
Child make_child(int cgroup) {
  if (cgroup >= 0)
    if (Child child = born_in(cgroup); child.pid >= 0) return child;
  Child child{::fork(), Fd(), false};
  if (child.pid <= 0) return child;
  // Only we reap it, and we have not: the pid is still its own.
  child.pidfd = Fd(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  if (child.pidfd) return child;
  const int why = errno;
  ::kill(child.pid, SIGKILL);
  wait_for_child(child.pid, kLongestEnd);
  child.pid = -1;
  errno = why;
  return child;
}

bool is_member(int cgroup, pid_t pid) {
  const auto text = read_file(cgroup, "cgroup.procs");
  if (!text) return false;
  for (const std::string_view line : split(*text, '\n'))
    if (line == std::to_string(pid)) return true;
  return false;
}

// A file that may be executed; else, where there is one, why not.
bool runnable(const std::string& path, int& why) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) why = errno;
    return false;
  }
  if (S_ISDIR(status.st_mode) || ::faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) != 0) {
    why = EACCES;
    return false;
  }
  return true;
}

}  // namespace

InheritedSignals InheritedSignals::take() {
  InheritedSignals taken;
  ::sigprocmask(SIG_SETMASK, nullptr, &taken.mask);
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &taken.pipe);
  // Whoever started us may ignore SIGCHLD: then the kernel would throw statuses away.
  struct sigaction normal{};
  normal.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &normal, &taken.child);
  return taken;
}

Result<Spawned> spawn(const SpawnOptions& options) {
  if (options.arguments.empty()) return fail(ENOENT, "no command");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(errno, "pipe");
  const Fd from_child(ends[0]);
  Fd to_parent(ends[1]);
  Plan plan = plan_of(options, to_parent.get());
  Child child = make_child(options.cgroup);
  if (child.pid == 0) become(plan, child.in_cgroup);
  if (child.pid < 0) return fail(errno, "starting a process");
  const bool join = options.cgroup >= 0 && !child.in_cgroup;

  to_parent.reset();
  int why = 0;
  ssize_t got = 0;
  do {
    got = ::read(from_child.get(), &why, sizeof why);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof why)) {
    wait_for_child(child.pid, kLongestEnd);
    return fail(why, options.arguments[0]);
  }
  Spawned spawned{Process::adopt(child.pid, std::move(child.pidfd)), child.in_cgroup};
  if (join) spawned.in_cgroup = is_member(options.cgroup, child.pid);
  return spawned;
}

Result<Output> run_and_wait(SpawnOptions options, Duration limit) {
  const Fd output(::memfd_create("lull", MFD_CLOEXEC));
  const Fd nothing = TRY(open_file("/dev/null", O_RDWR));
  options.standard_input = nothing.get();
  options.standard_output = output.get();
  options.standard_error = nothing.get();
  options.own_session = true;
  const Spawned spawned = TRY(spawn(options));
  pollfd one{.fd = spawned.process.fd(), .events = POLLIN, .revents = 0};
  const auto milliseconds = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(limit).count());
  int ready = 0;
  do {
    ready = ::poll(&one, 1, milliseconds);
  } while (ready < 0 && errno == EINTR);
  if (ready != 1) (void)spawned.process.signal(SIGKILL);
  int status = 0;
  const bool ended = wait_for_child(spawned.process.pid(), kLongestEnd, &status);
  if (ready != 1 || !ended) return fail(ETIMEDOUT, options.arguments[0]);
  Output result;
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.text = read_beginning(output.get(), 64U << 10);
  return result;
}

Result<> check_executable(const std::string& name) {
  int why = ENOENT;
  for (const std::string& place : places_of(name))
    if (runnable(place, why)) return {};
  return fail(why, name);
}

bool is_executable(const std::string& name) { return check_executable(name).has_value(); }

int status_of_failed_exec(const Error& error) {
  switch (error.errno_value) {
    case ENOENT: return 127;
    // Not the command's fault: there was no room to start anything.
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case ENOMEM: return 125;
    default: return 126;
  }
}

void guard_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() takes the lowest free number, which is this one.
    if (::open("/dev/null", (fd == 0 ? O_RDONLY : O_WRONLY) | O_CLOEXEC) != fd) return;
  }
}

Result<Fd> memory_file(std::string_view content) {
  Fd fd(::memfd_create("lull", MFD_CLOEXEC));
  if (!fd) return fail(errno, "memfd");
  TRY(write_all(fd.get(), content));
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

Result<Account> Account::find(const std::string& name) {
  errno = 0;
  const passwd* entry = ::getpwnam(name.c_str());
  if (entry == nullptr) return fail(errno != 0 ? errno : ENOENT, "user " + name);
  Account account{entry->pw_uid, entry->pw_gid, entry->pw_name, entry->pw_dir, entry->pw_shell, {}};
  int count = 0;
  (void)::getgrouplist(account.name.c_str(), account.group, nullptr, &count);
  account.groups.resize(static_cast<std::size_t>(std::max(count, 1)));
  count = static_cast<int>(account.groups.size());
  if (::getgrouplist(account.name.c_str(), account.group, account.groups.data(), &count) < 0)
    return fail(EIO, "groups of user " + name);
  account.groups.resize(static_cast<std::size_t>(count));
  return account;
}

int Account::become() const {
  // As system calls: libc would tell threads that this process does not have.
  const bool done = ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0 && ::syscall(SYS_setgid, group) == 0 &&
                    ::syscall(SYS_setuid, user) == 0;
  return done ? 0 : errno;
}

namespace {

// Changing the terminal from the background would stop us.
template <class Change>
void undisturbed(const Change& change) {
  sigset_t set;
  sigset_t old;
  sigemptyset(&set);
  sigaddset(&set, SIGTTOU);
  ::pthread_sigmask(SIG_BLOCK, &set, &old);
  change();
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

}  // namespace

Terminal Terminal::remember() {
  Terminal terminal;
  Fd tty(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  if (!tty) return terminal;
  terminal.foreground_ = ::tcgetpgrp(tty.get());
  if (terminal.foreground_ != ::getpgrp()) return terminal;
  termios modes{};
  if (::tcgetattr(tty.get(), &modes) == 0) terminal.modes_ = modes;
  terminal.tty_ = std::move(tty);
  return terminal;
}

void Terminal::restore() const {
  if (!tty_) return;
  undisturbed([&] {
    if (::tcgetpgrp(tty_.get()) != foreground_) ::tcsetpgrp(tty_.get(), foreground_);
    if (modes_) ::tcsetattr(tty_.get(), TCSADRAIN, &*modes_);
  });
}

pid_t Terminal::foreground() const {
  const pid_t group = tty_ ? ::tcgetpgrp(tty_.get()) : -1;
  return group > 0 ? group : 0;
}

void Terminal::give_to(pid_t group) const {
  if (tty_ && group > 0) undisturbed([&] { ::tcsetpgrp(tty_.get(), group); });
}

void stop_ourselves() {
  if (::getpid() == 1) return;
  sigset_t set;
  sigset_t old;
  sigemptyset(&set);
  sigaddset(&set, SIGTSTP);
  ::raise(SIGTSTP);  // waits, since it is blocked
  ::pthread_sigmask(SIG_UNBLOCK, &set, &old);
  // Here we stood still. In an orphaned process group the kernel drops the signal.
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

}  // namespace lull
