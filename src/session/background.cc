#include "session/background.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <new>
#include <utility>

#include "base/units.h"

namespace lull {
namespace {

constexpr char kAnswer = '+';
constexpr char kError = '-';

void set_limit(__rlimit_resource_t what, std::size_t most) {
  const rlimit limit{most, most};
  (void)::setrlimit(what, &limit);
}

}  // namespace

// Whoever samples comes first, on the processor and on the disk.
void Background::apply(const BackgroundLimits& limits) {
  constexpr int kWhoProcess = 1;
  constexpr int kIdleClass = 3 << 13;
  const sched_param none{};
  if (limits.steps_back) {
    (void)::setpriority(PRIO_PROCESS, 0, 19);
    (void)::sched_setscheduler(0, SCHED_IDLE, &none);
    (void)::syscall(SYS_ioprio_set, kWhoProcess, 0, kIdleClass);
    // Where memory is short, this is what the kernel ends, and nobody's work.
    if (const auto first = open_file("/proc/self/oom_score_adj", O_WRONLY)) (void)write_all(first->get(), "1000");
  }
  set_limit(RLIMIT_CORE, 0);
  if (limits.memory > 0) set_limit(RLIMIT_AS, limits.memory);
  if (limits.cpu)
    set_limit(RLIMIT_CPU, static_cast<std::size_t>(std::chrono::ceil<std::chrono::seconds>(*limits.cpu).count()));
}

Result<> Background::write_answer(int file, const Work& work, std::size_t most) {
  Result<std::string> answer;
  try {
    answer = work();
  } catch (const std::bad_alloc&) {
    answer = fail("there is not enough memory for it");
  }
  if (answer && answer->size() > most) answer = fail("the answer is too large");
  return write_all(file, answer ? kAnswer + *answer : kError + answer.error().message());
}

// False: it fails for a reason that was reported.
bool Background::prepare(const BackgroundLimits& limits, Done done) {
  stop();
  done_ = std::move(done);
  if (late_ && !late_.ended()) {
    report_soon(Error{"the last reading has not ended: it hangs in the kernel", 0});
    return false;
  }
  late_ = {};
  most_ = limits.answer;
  answer_ = Fd(::memfd_create("lull", MFD_CLOEXEC));
  if (!answer_) report_soon(Error{"memfd_create", errno});
  return static_cast<bool>(answer_);
}

void Background::start(const Work& work, const BackgroundLimits& limits, Done done) {
  if (!prepare(limits, std::move(done))) return;
  auto started = start_apart([&](Fd socket) {
    close_all_but({answer_.get(), socket.get(), STDERR_FILENO});
    end_with(socket.get());
    apply(limits);
    (void)write_answer(answer_.get(), work, limits.answer);
  });
  if (!started) return report_soon(started.error());
  follow(std::move(started->process), std::move(started->socket), limits.time);
}

void Background::start(const ProgramStart& program, const BackgroundLimits& limits, Done done) {
  if (!prepare(limits, std::move(done))) return;
  std::array<int, 2> ends = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return report_soon(Error{"a pair of sockets", errno});
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  auto started = start_program(program, std::array{answer_.get(), theirs.get()});
  if (!started) return report_soon(started.error());
  follow(*std::move(started), std::move(ours), limits.time);
}

void Background::follow(Process process, Fd socket, Duration time) {
  process_ = std::move(process);
  socket_ = std::move(socket);
  if (const auto listening = loop_.on_ready(socket_.get(), [this] { ended(); }); !listening) {
    socket_.reset();
    process_ = {};
    return report_soon(listening.error());
  }
  limit_.in(time, [this, time] {
    late_ = std::exchange(process_, {});
    (void)late_.signal(SIGKILL);
    tell(fail("not done after " + format_duration(time)));
  });
}

void Background::stop() {
  limit_.cancel();
  failing_.cancel();
  if (socket_) loop_.forget(socket_.get());
  socket_.reset();
  process_ = {};
  answer_.reset();
  done_ = nullptr;
}

void Background::ended() {
  std::string text = read_beginning(answer_.get(), most_ + 4096);
  if (text.empty()) return tell(fail("it was ended before it was done"));
  const bool good = text.front() == kAnswer;
  text.erase(0, 1);
  tell(good ? Result<std::string>(std::move(text)) : fail(std::move(text)));
}

void Background::tell(Result<std::string> answer) {
  const Done done = std::move(done_);
  stop();
  if (done) done(std::move(answer));
}

void Background::report_soon(Error error) {
  failing_.in(Duration::zero(), [this, error = std::move(error)] { tell(std::unexpected(error)); });
}

}  // namespace lull
