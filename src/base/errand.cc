#include "base/errand.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "base/fd.h"
#include "base/process.h"

namespace lull {
namespace {

constexpr std::size_t kMostAnswer = 4U << 20;
constexpr int kMostChildren = 16;  // for one list of questions
constexpr int kEndOfAChild = 100;  // milliseconds, for one that has said all and only has to exit

using Question = std::function<std::string(std::size_t)>;
using Answers = std::vector<std::optional<std::string>>;

std::vector<pid_t>& abandoned() {
  static auto* const all = new std::vector<pid_t>;
  return *all;
}

void reap_abandoned() {
  std::erase_if(abandoned(), [](pid_t pid) { return ::waitpid(pid, nullptr, __WALL | WNOHANG) != 0; });
}

[[noreturn]] void answer(const Question& question, std::size_t from, std::size_t count, int pipe, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  ::prctl(PR_SET_NAME, "lull-errand");
  const auto kept = static_cast<unsigned>(pipe);
  if (kept > 0) ::syscall(SYS_close_range, 0U, kept - 1, 0U);
  ::syscall(SYS_close_range, kept + 1, ~0U, 0U);
  for (std::size_t i = from; i < count; ++i) {
    std::string text;
    try {
      text = question(i);
    } catch (...) {  // out of memory; there is nobody to tell
      ::_exit(1);
    }
    text.resize(std::min(text.size(), kMostAnswer));
    std::array<char, sizeof(std::uint32_t)> size;
    const auto length = static_cast<std::uint32_t>(text.size());
    std::memcpy(size.data(), &length, size.size());
    text.insert(0, size.data(), size.size());
    if (!write_all(pipe, text)) ::_exit(1);
  }
  ::_exit(0);
}

// A child that ends without a signal to us, unlike that of fork().
pid_t start(const Question& question, std::size_t from, std::size_t count, const Fd& pipe) {
  const pid_t us = ::getpid();
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);  // no handler of ours runs in the child
  const auto pid = static_cast<pid_t>(::syscall(SYS_clone, 0UL, nullptr, nullptr, nullptr, nullptr));
  if (pid == 0) answer(question, from, count, pipe.get(), us);
  const int why = errno;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid > 0) note_own_process(pid);
  errno = why;
  return pid;
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

void part_from(pid_t pid, bool done) {
  if (!done) ::kill(pid, SIGKILL);  // ours and not reaped: the number is its own
  const Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd one{.fd = handle.get(), .events = POLLIN, .revents = 0};
  if (handle) (void)::poll(&one, 1, kEndOfAChild);
  if (::waitpid(pid, nullptr, __WALL | WNOHANG) == 0) abandoned().push_back(pid);
}

}  // namespace

Answers ask_each(std::size_t count, const Question& question, Duration each, Duration limit) {
  reap_abandoned();
  Answers answers(count);
  const SystemClock clock;
  const Instant by = clock.now() + limit;
  std::size_t next = 0;
  for (int child = 0; child < kMostChildren && next < count && clock.now() < by; ++child) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) break;
    const Fd read(ends[0]);
    Fd write(ends[1]);
    const pid_t pid = start(question, next, count, write);
    if (pid < 0) break;
    write.reset();
    next = listen(read.get(), next, each, by, answers);
    part_from(pid, next == count);
    ++next;  // whatever held it up is not asked again
  }
  return answers;
}

Result<std::string> ask_aside(const std::function<std::string()>& question, Duration limit) {
  auto answers = ask_each(1, [&](std::size_t) { return question(); }, limit, limit);
  if (!answers.front()) return fail(ETIMEDOUT, "not read in time");
  return *std::move(answers.front());
}

}  // namespace lull
