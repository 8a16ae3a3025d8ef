#include "session/own_signals.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/process_start.h"
#include "base/text.h"
#include "base/units.h"
#include "rule/timeline.h"
#include "session/machine.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kBeyondTimeout = 2s;  // of a source, for the start of a process on a busy machine
constexpr std::size_t kReadingMemory = std::size_t{256} << 20;

Duration shortest_pause(const SignalSource& source) {
  return source.kind == SignalSource::Kind::command ? Duration(5s) : Duration(1s);
}

Result<SignalReading> printed_number(const SignalSource& source, const HelperResult& result) {
  const std::string who = "command " + printable(source.command);
  if (result.timed_out) return fail(who + ": no answer within " + format_duration(source.timeout));
  if (result.output.size() >= kLongestNumber) return fail(who + " prints more than a number");  // and may fail by that
  if (!result.ok()) return fail(fmt::format("{}: {}", who, printable(result.trouble)));
  auto reading = read_number(result.output);
  if (!reading) return fail(who + ": what it prints " + reading.error().message());
  return reading;
}

HelperOptions command_of(const SignalSource& source) {
  // What it has to complain of would come again and again.
  return {.arguments = {"/bin/sh", "-c", "exec 2>/dev/null\n" + source.command},
          .limit = source.timeout,
          .capture = true,
          .most_output = kLongestNumber,
          .no_more_output = true,
          .leaves_nothing = true};
}

}  // namespace

struct OwnSignals::One {
  One(const SignalSource& from, Loop& loop) : state(from), reading(loop) {}

  OwnSignalState state;
  Background reading;
  bool under_way = false;
  std::optional<Instant> asked = {};   // the newest question
  std::optional<Instant> read = {};    // the newest one that has an answer
  std::optional<Instant> wanted = {};  // one is wanted that was asked from then on
  std::string said;                    // why it is unknown
};

OwnSignals::OwnSignals(World& world, const std::vector<SignalSource>& sources, Duration every)
    : world_(world), every_(every) {
  for (const SignalSource& source : sources) all_.push_back(std::make_unique<One>(source, world.loop()));
}

OwnSignals::~OwnSignals() { *alive_ = false; }

void OwnSignals::ask() {
  const Instant now = world_.clock().now();
  for (const auto& one : all_)
    if (!one->under_way && (!one->asked || now - *one->asked >= shortest_pause(one->state.source()))) start(*one);
}

void OwnSignals::ask_since(Instant from) {
  for (const auto& one : all_) {
    if (one->asked && *one->asked >= from) continue;
    if (one->under_way)
      one->wanted = from;
    else
      start(*one);
  }
}

bool OwnSignals::read_since(Instant from) const {
  return std::ranges::all_of(all_, [&](const auto& one) { return one->read && *one->read >= from; });
}

Duration OwnSignals::longest_timeout() const {
  Duration longest{};
  for (const auto& one : all_) longest = std::max(longest, one->state.source().timeout);
  return longest + kBeyondTimeout;
}

void OwnSignals::start(One& one) {
  const SignalSource& source = one.state.source();
  one.under_way = true;
  one.asked = world_.clock().now();
  one.wanted.reset();
  const BackgroundLimits limits{.time = source.timeout + kBeyondTimeout,
                                .memory = kReadingMemory,
                                .answer = kLongestReading,
                                .steps_back = false};
  const auto read = [this, &one](const Result<std::string>& text) {
    done(one, text ? parse_reading(*text) : Result<SignalReading>(std::unexpected(text.error())));
  };
  if (const SensorProgram* program = world_.program())
    return one.reading.start(ProgramStart{program->path, {kSignalName, source.given}, program->environment}, limits,
                             read);
  if (source.kind != SignalSource::Kind::command)
    return one.reading.start([source]() -> Result<std::string> { return to_text(TRY(read_source(source))); }, limits,
                             read);
  world_.run_tool(command_of(source), [this, alive = alive_, &one](const HelperResult& result) {
    if (*alive) done(one, printed_number(one.state.source(), result));
  });
}

void OwnSignals::done(One& one, const Result<SignalReading>& reading) {
  one.under_way = false;
  one.read = one.asked;
  one.state.take(reading, *one.asked, world_.clock().wall());
  const SignalValue& value = one.state.value();
  std::string text;
  if (value.known() && !one.said.empty()) {
    one.said.clear();
    text = fmt::format("signal {} is known again", one.state.source().name);
  } else if (!value.known() && !value.trouble.empty() && value.trouble != one.said) {
    one.said = value.trouble;
    text = fmt::format("signal {} is unknown: {}", one.state.source().name, value.trouble);
  }
  if (!text.empty() && on_note) on_note(text);
  if (one.wanted && *one.wanted > *one.asked) start(one);
  if (on_read) on_read();
}

// A value that no newer one has replaced in time is none any more: its source hangs, or we slept.
Absence OwnSignals::why_unknown(const One& one) const {
  const SignalSource& source = one.state.source();
  const Duration longest = std::max(longest_gap(every_), 2 * shortest_pause(source)) + source.timeout + kBeyondTimeout;
  if (!one.read) return Absence::unread;
  if (world_.loop().now() - *one.read > longest) return Absence::stale;
  return one.state.value().why;
}

void OwnSignals::add_to(Facts& machine) const {
  for (const auto& one : all_) {
    const Metric metric = one->state.source().metric;
    if (const Absence why = why_unknown(*one); why != Absence::none)
      machine.miss(metric, why);
    else
      machine.set(metric, one->state.value().value);
  }
}

std::map<Metric, std::string> OwnSignals::troubles() const {
  std::map<Metric, std::string> all;
  for (const auto& one : all_)
    if (!one->state.value().known()) all[one->state.source().metric] = one->state.value().trouble;
  return all;
}

std::vector<SignalSource> sources_of(const std::vector<SignalSource>& sources, const std::vector<Metric>& used) {
  std::vector<SignalSource> found;
  for (const SignalSource& source : sources)
    if (std::ranges::find(used, source.metric) != used.end()) found.push_back(source);
  return found;
}

// ---- lull-signal

namespace {

Result<SignalReading> read_command(const SignalSource& source) {
  const SystemClock clock;
  const std::unique_ptr<Machine> machine = TRY(Machine::open(clock));
  Loop& loop = machine->loop();
  TRY(machine->listen({SIGCHLD}, [](const signalfd_siginfo&) {}));
  TRY(loop.on_ready(Background::kLineOfProgram, [&] { loop.stop(); }));
  Result<SignalReading> reading = fail("it is no longer needed");
  machine->run_tool(command_of(source), [&](const HelperResult& result) {
    reading = printed_number(source, result);
    loop.stop();
  });
  TRY(loop.run());
  loop.forget(Background::kLineOfProgram);
  return reading;
}

}  // namespace

Result<> signal_program(int argc, char** argv) {
  ::setsid();  // Ctrl-C is for the program that started us
  if (argc != 2 || ::fcntl(Background::kAnswerOfProgram, F_GETFD) < 0 ||
      ::fcntl(Background::kLineOfProgram, F_GETFD) < 0)
    return fail("is started by Python's lull.watch(), not by hand");
  const SignalSource source = TRY(parse_signal_from(argv[1]));
  const bool command = source.kind == SignalSource::Kind::command;
  if (!command) end_with(Background::kLineOfProgram);
  Background::apply({.memory = command ? 0 : kReadingMemory, .steps_back = false});
  const auto read = [&]() -> Result<std::string> {
    return to_text(TRY(command ? read_command(source) : read_source(source)));
  };
  return Background::write_answer(Background::kAnswerOfProgram, read, kLongestReading);
}

}  // namespace lull
