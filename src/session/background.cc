#include "session/background.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <new>
#include <utility>

#include "base/process_start.h"
#include "base/units.h"

namespace lull {
namespace {

constexpr char kAnswer = '+';
constexpr char kError = '-';

void set_limit(__rlimit_resource_t what, std::size_t most) {
  const rlimit limit{most, most};
  (void)::setrlimit(what, &limit);
}

// Whoever samples comes first, on the processor and on the disk.
void step_back(const BackgroundLimits& limits) {
  constexpr int kWhoProcess = 1;
  constexpr int kIdleClass = 3 << 13;
  const sched_param none{};
  if (limits.steps_back) {
    (void)::setpriority(PRIO_PROCESS, 0, 19);
    (void)::sched_setscheduler(0, SCHED_IDLE, &none);
    (void)::syscall(SYS_ioprio_set, kWhoProcess, 0, kIdleClass);
  }
  set_limit(RLIMIT_CORE, 0);
  if (limits.memory > 0) set_limit(RLIMIT_AS, limits.memory);
  if (limits.cpu)
    set_limit(RLIMIT_CPU, static_cast<std::size_t>(std::chrono::ceil<std::chrono::seconds>(*limits.cpu).count()));
}

std::string written(const Result<std::string>& result) {
  return result ? kAnswer + *result : kError + result.error().message();
}

}  // namespace

void Background::start(const Work& work, const BackgroundLimits& limits, Done done) {
  stop();
  done_ = std::move(done);
  if (late_ && !late_.ended()) return report_soon(Error{kHangs, 0});
  late_ = {};
  most_ = limits.answer;
  answer_ = Fd(::memfd_create("lull", MFD_CLOEXEC));
  if (!answer_) return report_soon(Error{"memfd_create", errno});
  auto started = start_apart([&](Fd socket) {
    close_all_but({answer_.get(), socket.get(), STDERR_FILENO});
    end_with(socket.get());
    step_back(limits);
    std::string text;
    try {
      text = written(work());
    } catch (const std::bad_alloc&) {
      text = written(fail("there is not enough memory for it"));
    }
    if (text.size() > limits.answer) text = written(fail("the answer is too large"));
    (void)write_all(answer_.get(), text);
  });
  if (!started) return report_soon(started.error());
  process_ = std::move(started->process);
  socket_ = std::move(started->socket);
  if (const auto listening = loop_.on_ready(socket_.get(), [this] { ended(); }); !listening) {
    stop();
    return report_soon(listening.error());
  }
  limit_ = loop_.in(limits.time, [this, time = limits.time] {
    limit_.reset();
    late_ = std::exchange(process_, {});
    (void)late_.signal(SIGKILL);
    tell(fail("not done after " + format_duration(time)));
  });
}

void Background::stop() {
  if (limit_) loop_.cancel(*std::exchange(limit_, {}));
  if (failing_) loop_.cancel(*std::exchange(failing_, {}));
  if (socket_) {
    loop_.forget(socket_.get());
    if (process_) (void)process_.signal(SIGKILL);
  }
  socket_.reset();
  process_ = {};
  answer_.reset();
  done_ = nullptr;
}

void Background::ended() {
  struct stat status{};
  std::string text;
  if (::fstat(answer_.get(), &status) == 0 && status.st_size > 0 &&
      static_cast<std::size_t>(status.st_size) <= most_ + 4096) {
    text.resize(static_cast<std::size_t>(status.st_size));
    const ssize_t got = ::pread(answer_.get(), text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  }
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
  failing_ = loop_.in(Duration::zero(), [this, error = std::move(error)] {
    failing_.reset();
    tell(std::unexpected(error));
  });
}

}  // namespace lull
