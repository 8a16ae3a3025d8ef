#include "base/process_start.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace lull {
namespace {

constexpr std::size_t kControlSize = CMSG_SPACE(sizeof(int));

}  // namespace

ssize_t send_with_descriptor(int socket, const void* data, std::size_t size, int descriptor, int flags) {
  alignas(cmsghdr) std::array<char, kControlSize> control{};
  iovec part{const_cast<void*>(data), size};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket, &header, flags | MSG_NOSIGNAL);
}

ssize_t receive_with_descriptor(int socket, void* data, std::size_t size, Fd& descriptor, int flags) {
  alignas(cmsghdr) std::array<char, kControlSize> control{};
  iovec part{data, size};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
  if (got < 0) return got;
  if (const cmsghdr* rights = CMSG_FIRSTHDR(&header); rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(rights), sizeof number);
    descriptor = Fd(number);
  }
  return got;
}

namespace {

using namespace std::chrono_literals;

constexpr Duration kLongestStart = 10s;  // for a process that makes four system calls
constexpr Duration kLongestEnd = 1s;     // for one that was killed
constexpr const char* kStarting = "starting a process";

// Those of start_child() and start_apart(), with the status that keep_status() was told.
struct Started {
  std::mutex mutex;
  std::map<pid_t, std::optional<ExitStatus>> all;
};
Started& started() {
  static auto* const table = new Started;
  return *table;
}

int open_pidfd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

// No handler of ours runs in a child before it has become what it is to be.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { restore(); }
  void restore() const {
    const int why = errno;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = why;
  }

 private:
  sigset_t before_{};
};

template <class Body>
[[noreturn]] void run(const Body& body) {
  try {
    body();
  } catch (...) {  // out of memory; there is no way to report it
    ::_exit(1);
  }
  ::_exit(0);
}

Process noted(pid_t pid, Fd handle) {
  note_own_process(pid);
  auto& [mutex, all] = started();
  const std::scoped_lock lock(mutex);
  all[pid].reset();
  return Process::adopt(pid, std::move(handle));
}

// ---- one that is apart

// A process and its handle, or minus the errno for which there is none; by the one between.
struct Handover {
  pid_t pid = -EIO;
  Fd handle;
};

void hand_over(int socket, pid_t pid) {
  const Fd handle(pid > 0 ? open_pidfd(pid) : -1);  // our child, not reaped: the number is its own
  const pid_t answer = pid > 0 && !handle ? -errno : pid;
  const bool sent = send_with_descriptor(socket, &answer, sizeof answer, handle.get(), MSG_DONTWAIT) == sizeof answer;
  if (pid > 0 && !(handle && sent)) ::kill(pid, SIGKILL);
}

Handover receive(int socket) {
  Handover got;
  pid_t pid = 0;
  if (receive_with_descriptor(socket, &pid, sizeof pid, got.handle, MSG_DONTWAIT) != sizeof pid) return got;
  // No handle with it: this process had no descriptor left.
  got.pid = pid > 0 && !got.handle ? -EMFILE : pid;
  return got;
}

// ---- a program

constexpr int kFirst = 3;
constexpr int kAbove = 64;  // ours are moved there first, so that none lies where another is to go
constexpr std::size_t kStack = std::size_t{64} << 10;

// What the two children of a birth share with us: our memory is theirs until the second has become the program, and
// we wait for that.
struct Birth {
  ProgramStart what;
  std::vector<char*> argv;
  std::vector<char*> envp;
  std::vector<int> given;  // all above kAbove
  pid_t pid = -1;          // of the second
  int pidfd = -1;          // likewise; the first shares our descriptors, so this is one of ours
  int error = 0;
  // Stacks grow downwards, from an address that suits any processor.
  alignas(64) std::array<std::byte, kStack> first_stack;
  alignas(64) std::array<std::byte, kStack> second_stack;
};

// Both children make system calls alone, on stacks of their own: another thread may hold any lock there is. A sanitizer
// would count their calls as ours.
#define SYSTEM_CALLS_ONLY __attribute__((no_sanitize("thread", "address", "undefined")))

SYSTEM_CALLS_ONLY int second_child(void* data) {
  auto& birth = *static_cast<Birth*>(data);
  int next = kFirst;
  for (const int fd : birth.given) {
    if (::syscall(SYS_dup3, fd, next++, 0) < 0) {
      birth.error = errno;
      ::_exit(1);
    }
  }
  ::syscall(SYS_close_range, static_cast<unsigned>(next), ~0U, CLOSE_RANGE_CLOEXEC);
  ::syscall(SYS_execve, birth.what.program.c_str(), birth.argv.data(), birth.envp.data());
  birth.error = errno;
  ::_exit(1);
}

// A process that has called exec gives SIGCHLD at its end, whatever it was made with. This one does not, and is between
// us and the program, whose parent it thus is not for long.
SYSTEM_CALLS_ONLY int first_child(void* data) {
  auto& birth = *static_cast<Birth*>(data);
  birth.pid =
      ::clone(second_child, birth.second_stack.end(), CLONE_VM | CLONE_VFORK | CLONE_PIDFD, &birth, &birth.pidfd);
  if (birth.pid < 0) birth.error = errno;
  ::_exit(0);
}

#undef SYSTEM_CALLS_ONLY

}  // namespace

std::vector<char*> exec_pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& one : strings) out.push_back(const_cast<char*>(one.c_str()));
  out.push_back(nullptr);
  return out;
}

Result<Process> start_child(const std::function<void()>& body, bool outlives_us) {
  const pid_t us = ::getpid();
  const BlockedSignals quiet;
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (!outlives_us) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != us) ::_exit(0);  // it ended before we asked to be told
    }
    quiet.restore();
    run(body);
  }
  if (pid < 0) return fail(errno, kStarting);
  Fd handle(open_pidfd(pid));  // our child, not reaped: the number is its own
  if (handle) return noted(pid, std::move(handle));
  const int why = errno;
  ::kill(pid, SIGKILL);
  wait_for_child(pid, kLongestEnd);
  return fail(why, kStarting);
}

Result<ApartProcess> start_apart(const std::function<void(Fd socket)>& body) {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return fail(errno, kStarting);
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  // The handle comes through sockets of its own: the body may be the first to write to the others.
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return fail(errno, kStarting);
  Fd heard(ends[0]);
  Fd told(ends[1]);
  const BlockedSignals quiet;
  const pid_t between = ::fork();
  if (between == 0) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (Fd* one : {&ours, &heard, &told}) one->reset();
      quiet.restore();
      run([&] { body(std::move(theirs)); });
    }
    hand_over(told.get(), pid < 0 ? -errno : pid);
    ::_exit(0);
  }
  if (between < 0) return fail(errno, kStarting);
  // Until it has ended, not until it has told: killed in between it tells nothing. What it left behind then ends when
  // it finds our end of the sockets closed.
  if (!wait_for_child(between, kLongestStart)) {
    ::kill(between, SIGKILL);
    wait_for_child(between, kLongestEnd);
  }
  theirs.reset();
  Handover got = receive(heard.get());
  if (got.pid <= 0) return fail(-got.pid, kStarting);
  return ApartProcess{noted(got.pid, std::move(got.handle)), std::move(ours)};
}

void end_with(int lifeline) {
  const bool asked = ::fcntl(lifeline, F_SETOWN, ::getpid()) == 0 && ::fcntl(lifeline, F_SETSIG, SIGKILL) == 0 &&
                     ::fcntl(lifeline, F_SETFL, O_ASYNC) == 0;
  // It may have closed already, and then there is no event.
  pollfd closed{lifeline, POLLIN, 0};
  if (!asked || ::poll(&closed, 1, 0) > 0) ::_exit(1);
}

Result<Process> start_program(const ProgramStart& what, std::span<const int> descriptors) {
  auto birth = std::make_unique<Birth>();
  birth->what = what;
  birth->argv = exec_pointers(birth->what.arguments);
  birth->envp = exec_pointers(birth->what.environment);
  std::vector<Fd> moved;
  for (const int fd : descriptors) {
    moved.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, kAbove));
    if (!moved.back()) return fail(errno, what.program);
    birth->given.push_back(moved.back().get());
  }
  int between = -1;
  int why = 0;
  {
    const BlockedSignals quiet;
    between = ::clone(first_child, birth->first_stack.end(), CLONE_VM | CLONE_VFORK | CLONE_FILES, birth.get());
    why = errno;
  }
  if (between < 0) return fail(why, what.program);
  // It is no longer in our memory, and ends now. It has no exit signal: a wait() without __WALL passes it over.
  int status = 0;
  while (::waitpid(between, &status, __WALL) < 0 && errno == EINTR) {
  }
  Fd pidfd(birth->pidfd);
  if (!WIFSIGNALED(status)) {
    if (birth->error != 0) return fail(birth->error, what.program);
    return Process::adopt(birth->pid, std::move(pidfd));
  }
  // It was killed. The second may be anywhere, in our memory too: that stays as it is unless it is seen to end.
  pollfd ended{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  if (pidfd) ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
  if (pidfd && ::poll(&ended, 1, static_cast<int>(kLongestEnd / 1ms)) != 1) (void)birth.release();
  return fail(ECHILD, what.program);
}

std::optional<ExitStatus> reap(const Process& process) {
  siginfo_t info{};
  int got = 0;
  do {
    got = ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(process.fd()), &info, WEXITED | WNOHANG);
  } while (got != 0 && errno == EINTR);
  if (got == 0 && info.si_pid == 0) return std::nullopt;
  auto& [mutex, all] = started();
  const std::scoped_lock lock(mutex);
  const auto found = all.find(process.pid());
  std::optional<ExitStatus> status = found != all.end() ? found->second : std::nullopt;
  if (got == 0) {
    status.emplace();
    (info.si_code == CLD_EXITED ? status->code : status->signal) = info.si_status;
  }
  if (found != all.end() && (status || process.ended())) all.erase(found);
  return status;
}

bool keep_status(pid_t pid, const ExitStatus& status) {
  auto& [mutex, all] = started();
  const std::scoped_lock lock(mutex);
  const auto found = all.find(pid);
  if (found == all.end() || found->second) return false;
  found->second = status;
  return true;
}

bool wait_for_child(pid_t pid, Duration limit, int* status) {
  const SystemClock clock;
  const Instant end = clock.now() + limit;
  const Fd handle(open_pidfd(pid));
  for (;;) {
    const pid_t got = ::waitpid(pid, status, WNOHANG);
    if (got > 0 || (got < 0 && errno != EINTR)) return true;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock.now()).count();
    if (left <= 0) return false;
    pollfd one{.fd = handle.get(), .events = POLLIN, .revents = 0};
    (void)::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left, handle ? 60'000 : 1)));
  }
}

void close_all_but(std::initializer_list<int> kept, unsigned first) {
  static constexpr unsigned kMost = 65536;  // where the kernel does not close them at once
  const auto close_some = [](unsigned from, unsigned to) {
    if (::close_range(from, to, 0) == 0) return;
    for (unsigned fd = from; fd <= std::min(to, kMost); ++fd) ::close(static_cast<int>(fd));
  };
  std::vector<int> sorted(kept);
  std::ranges::sort(sorted);
  for (const int one : sorted) {
    if (one < 0 || static_cast<unsigned>(one) < first) continue;
    if (static_cast<unsigned>(one) > first) close_some(first, static_cast<unsigned>(one) - 1);
    first = static_cast<unsigned>(one) + 1;
  }
  close_some(first, ~0U);
}

namespace {

constexpr std::size_t kMostAnswer = 4U << 20;
constexpr int kMostChildren = 16;  // for one list of questions
constexpr int kEndOfAChild = 100;  // milliseconds, for one that has said all and only has to exit

using Question = std::function<std::string(std::size_t)>;
using Answers = std::vector<std::optional<std::string>>;

std::vector<Process>& abandoned() {
  static auto* const all = new std::vector<Process>;
  return *all;
}

bool is_gone(const Process& child) { return reap(child) || child.ended(); }

void answer(const Question& question, std::size_t from, std::size_t count, int pipe, int lifeline) {
  end_with(lifeline);
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);  // what the terminal sends is not for us
  ::prctl(PR_SET_NAME, "lull-task");
  close_all_but({pipe, lifeline});
  for (std::size_t i = from; i < count; ++i) {
    std::string text = question(i);
    text.resize(std::min(text.size(), kMostAnswer));
    std::array<char, sizeof(std::uint32_t)> size;
    const auto length = static_cast<std::uint32_t>(text.size());
    std::memcpy(size.data(), &length, size.size());
    text.insert(0, size.data(), size.size());
    if (!write_all(pipe, text)) return;
  }
}

// Takes whole answers out of what has come so far.
void take(std::string& buffer, std::size_t& next, Answers& answers) {
  std::uint32_t length = 0;
  std::size_t at = 0;
  while (next < answers.size() && buffer.size() - at >= sizeof length) {
    std::memcpy(&length, buffer.data() + at, sizeof length);
    if (buffer.size() - at - sizeof length < length) break;
    answers[next++] = buffer.substr(at + sizeof length, length);
    at += sizeof length + length;
  }
  buffer.erase(0, at);
}

// Reads answers until all are there, the child ends, or one takes too long. Returns the first that is not there.
std::size_t listen(int pipe, std::size_t next, Duration each, Instant by, Answers& answers) {
  const SystemClock clock;
  std::string buffer;
  std::vector<char> bytes(64U << 10);
  Instant limit = std::min(by, clock.now() + each);
  while (next < answers.size()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - clock.now()).count();
    if (left <= 0) return next;
    pollfd one{.fd = pipe, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (ready <= 0) continue;  // a signal, or the limit: looked at above
    const ssize_t got = ::read(pipe, bytes.data(), bytes.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return next;
    buffer.append(bytes.data(), static_cast<std::size_t>(got));
    const std::size_t before = next;
    take(buffer, next, answers);
    if (next > before) limit = std::min(by, clock.now() + each);
  }
  return next;
}

void part_from(Process child, bool done) {
  if (!done) (void)child.signal(SIGKILL);
  pollfd one{.fd = child.fd(), .events = POLLIN, .revents = 0};
  (void)::poll(&one, 1, kEndOfAChild);
  if (!is_gone(child)) abandoned().push_back(std::move(child));
}

}  // namespace

Answers run_each_with_timeout(std::size_t count, const Question& question, Duration each, Duration limit) {
  std::erase_if(abandoned(), is_gone);
  Answers answers(count);
  const SystemClock clock;
  const Instant by = clock.now() + limit;
  std::size_t next = 0;
  for (int child = 0; child < kMostChildren && next < count && clock.now() < by; ++child) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) break;
    const Fd read(ends[0]);
    Fd write(ends[1]);
    auto started = start_apart([&](const Fd& lifeline) { answer(question, next, count, write.get(), lifeline.get()); });
    if (!started) break;
    write.reset();
    next = listen(read.get(), next, each, by, answers);
    part_from(std::move(started->process), next == count);
    ++next;  // whatever held it up is not asked again
  }
  return answers;
}

Result<std::string> run_with_timeout(const std::function<std::string()>& question, Duration limit) {
  auto answers = run_each_with_timeout(1, [&](std::size_t) { return question(); }, limit, limit);
  if (!answers.front()) return fail(ETIMEDOUT, "not read in time");
  return *std::move(answers.front());
}

}  // namespace lull
