#include "session/signal_program.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

#include "base/process_start.h"
#include "config/signal_source.h"
#include "session/machine.h"
#include "session/own_signals.h"

namespace lull {
namespace {

constexpr int kAnswer = 3;
constexpr int kLine = 4;
constexpr char kGood = '+';
constexpr char kBad = '-';

Result<SignalReading> read_command(const SignalSource& source) {
  const SystemClock clock;
  const std::unique_ptr<Machine> machine = TRY(Machine::open(clock));
  Loop& loop = machine->loop();
  TRY(machine->listen({SIGCHLD}, [](const signalfd_siginfo&) {}));
  TRY(loop.on_ready(kLine, [&] { loop.stop(); }));
  Result<SignalReading> reading = fail("nobody waits for it any more");
  machine->run_tool(command_of(source), [&](const HelperResult& result) {
    reading = printed_number(source, result);
    loop.stop();
  });
  TRY(loop.run());
  loop.forget(kLine);
  return reading;
}

std::string answer_of(const SignalSource& source) {
  try {
    const auto reading = source.kind == SignalSource::Kind::command ? read_command(source) : read_source(source);
    std::string text = reading ? kGood + to_text(*reading) : kBad + reading.error().message();
    return text.size() <= kLongestReading ? text : kBad + std::string("the answer is too large");
  } catch (const std::bad_alloc&) {
    return kBad + std::string("there is not enough memory for it");
  }
}

}  // namespace

Result<> signal_program(int argc, char** argv) {
  ::setsid();  // Ctrl-C is for the program that started us
  if (argc != 2 || ::fcntl(kAnswer, F_GETFD) < 0 || ::fcntl(kLine, F_GETFD) < 0)
    return fail("is started by Python's lull.watch(), not by hand");
  const SignalSource source = TRY(parse_signal_from(argv[1]));
  const rlimit no_core{0, 0};
  (void)::setrlimit(RLIMIT_CORE, &no_core);
  if (source.kind != SignalSource::Kind::command) {
    end_with(kLine);
    const rlimit most{kReadingMemory, kReadingMemory};
    (void)::setrlimit(RLIMIT_AS, &most);
  }
  return write_all(kAnswer, answer_of(source));
}

SignalPrograms::~SignalPrograms() {
  for (One& one : running_) {
    if (one.limit) loop_.cancel(*one.limit);
    if (one.line) loop_.forget(one.line.get());
  }
}

Result<> SignalPrograms::start(const SignalSource& source, One& one) {
  const auto late = late_.find(source.given);
  if (late != late_.end() && !late->second.ended()) return fail(kHangs);
  if (late != late_.end()) late_.erase(late);
  one.answer = Fd(::memfd_create("lull", MFD_CLOEXEC));
  if (!one.answer) return fail(errno, "memfd_create");
  std::array<int, 2> ends = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail(errno, "a pair of sockets");
  one.line = Fd(ends[0]);
  const Fd far(ends[1]);
  const std::array<int, 2> given = {one.answer.get(), far.get()};
  one.process = TRY(start_program({program_.path, {kSignalName, source.given}, program_.environment}, given));
  return {};
}

void SignalPrograms::read(const SignalSource& source, Done done) {
  const Place one = running_.insert(
      running_.end(),
      One{.source = source.given, .process = {}, .line = {}, .answer = {}, .limit = {}, .done = std::move(done)});
  Result<> started = start(source, *one);
  if (started) started = loop_.on_ready(one->line.get(), [this, one] { ended(one); });
  if (!started) {
    one->line.reset();
    one->limit = loop_.in(Duration::zero(), [this, one, why = started.error()] {
      one->limit.reset();
      tell(one, std::unexpected(why));
    });
    return;
  }
  one->limit = loop_.in(source.timeout + kBeyondTimeout, [this, one] {
    one->limit.reset();
    late_[one->source] = std::move(one->process);
    tell(one, fail("it was not read in time"));
  });
}

void SignalPrograms::ended(Place one) {
  std::string text(kLongestReading + 1, '\0');
  const ssize_t got = ::pread(one->answer.get(), text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  if (text.empty()) return tell(one, fail("it was ended before it was done"));
  const bool good = text.front() == kGood;
  text.erase(0, 1);
  tell(one, good ? parse_reading(text) : Result<SignalReading>(fail(std::move(text))));
}

void SignalPrograms::tell(Place one, const Result<SignalReading>& reading) {
  if (one->limit) loop_.cancel(*one->limit);
  if (one->line) loop_.forget(one->line.get());
  const Done done = std::move(one->done);
  running_.erase(one);
  done(reading);
}

}  // namespace lull
