#include "sense/sensor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "base/exit_status.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/process_start.h"
#include "base/text.h"
#include "sense/files.h"
#include "sense/openers.h"
#include "sense/processes.h"
#include "sense/sockets.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kSoonEnough = 60ms;  // a look that is due by then is taken along: GPUs are looked at together
constexpr Duration kStandIn = 1s;       // so much later another worker looks, should the one that keeps the time hang
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

std::int64_t now_ns() { return SystemClock().now().time_since_epoch().count(); }
Instant instant(std::int64_t ns) { return Instant(Duration(ns)); }

template <std::size_t Bytes, class Message>
bool fill(SharedMessage<Bytes>& shared, const Message& message, std::uint64_t round) {
  Encoder out(shared.bytes);
  encode(out, message);
  if (out.full()) return false;
  shared.size = static_cast<std::uint32_t>(out.size());
  shared.checksum = checksum_of(std::span(shared.bytes).first(out.size()), round);
  return true;
}

// Threads that take the GPUs one after the other, and what is not of one GPU.
class SensorWorkers {
 public:
  SensorWorkers(SensorMemory& shared, int wakeup, const SamplerOptions& options)
      : shared_(shared),
        wakeup_(wakeup),
        options_(options),
        source_(options.nvidia_only ? make_nvml_source(options.library, options.root, clock_)
                                    : make_all_sources(options.library, options.root, clock_)) {
    fresh_.lists_every = Duration::zero();
  }

  [[noreturn]] void run() {
    if (!options_.dump.empty()) keep_files_in(options_.dump, real_path(options_.root.sys));
    DriverReport report;
    report.state = source_->open();
    if (::chdir("/") != 0) ::_exit(1);  // keep no file system busy; the library was named relative to where we were
    report.version = source_->driver_version();
    report.library = source_->library();
    if (!fill(shared_.driver, report, 0)) ::_exit(1);
    const bool open = report.state.absence == Absence::none;
    const unsigned count = open ? std::min(source_->count(), kMostCounted) : 0;
    gpus_ = std::vector<Gpu>(std::min(count, kMostGpus));
    shared_.unread = count - static_cast<unsigned>(gpus_.size());
    shown_ = std::vector<Shown>(gpus_.size());
    shared_.count = static_cast<std::uint32_t>(gpus_.size());
    shared_.stage = open ? Stage::open : Stage::failed;
    if (!open) {
      ring();
      ::_exit(0);
    }
    add_spare();
    work(true);
    wait_for_calls();
  }

 private:
  struct Gpu {
    bool attached = false;
    bool asked = false;  // it has been sampled at least once
    Answer answer;
    std::atomic<std::int64_t> look_by{kNever};  // ns since boot
  };
  // What the machine's report needs of a GPU. A copy under a lock, since another worker may be at the GPU again by
  // then.
  struct Shown {
    std::uint64_t round = 0;
    unsigned identity = 0;
    Device device;
    std::vector<pid_t> pids;
  };

  void ring() {
    if (::eventfd_write(wakeup_, 1) != 0) ::_exit(1);  // our descriptors were closed
  }

  // ---- workers

  // One with nothing to do, which can still come when all others hang.
  void add_spare() {
    pthread_t thread{};
    const auto body = [](void* self) -> void* { static_cast<SensorWorkers*>(self)->wait_for_calls(); };
    (void)::pthread_create(&thread, nullptr, body, this);  // none to be had: the parent leaves us if we hang
  }

  [[noreturn]] void wait_for_calls() {
    for (++idle_;; ++idle_) {
      bool called = false;
      while (!(called = take_call()) && !look_is_due()) wait();
      if (--idle_ == 0) add_spare();
      if (!called) look_around();
      work(called);
    }
  }

  bool take_call() {
    std::uint32_t calls = shared_.calls;
    while (calls > 0)
      if (shared_.calls.compare_exchange_weak(calls, calls - 1)) return true;
    return false;
  }

  // After long enough without a request the driver is released: then there are no looks between samples.
  Instant end_of_use() const {
    if (options_.release_after <= Duration::zero()) return Instant::max();
    return instant(shared_.round_began) + options_.release_after;
  }

  void wait() {
    const Instant end = shared_.round_began > 0 ? end_of_use() : Instant::max();
    if (end <= SystemClock().now()) ::_exit(0);
    // One of the idle workers wakes up for the next look, and not all of them.
    std::int64_t look = next_look().time_since_epoch().count();
    const bool keeps_time = look < kept_;
    if (keeps_time) kept_ = look;
    Instant next = instant(look);
    if (!keeps_time && look != kNever) next += kStandIn;
    next = std::min(next, end);
    timespec limit{};
    if (next != Instant::max()) {
      const Duration left = std::max(next - SystemClock().now(), Duration(1ms));
      limit.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(left).count();
      limit.tv_nsec = (left % 1s).count();
    }
    ::syscall(SYS_futex, &shared_.calls, FUTEX_WAIT, 0, next != Instant::max() ? &limit : nullptr, nullptr, 0);
    if (keeps_time) kept_.compare_exchange_strong(look, kNever);
  }

  // ---- looks between the samples

  Instant next_look() const {
    std::int64_t next = kNever;
    for (const Gpu& gpu : gpus_) next = std::min(next, gpu.look_by.load());
    return instant(next);
  }
  bool look_is_due() const { return next_look() <= SystemClock().now(); }

  // By the worker that has the GPU.
  void plan_look(unsigned i, Instant looked) {
    const Duration within = !options_.once ? source_->look_within(i) : Duration::zero();
    gpus_[i].look_by = within > Duration::zero() ? (looked + within).time_since_epoch().count() : kNever;
  }

  void look_around() {
    for (unsigned i = 0; i < gpus_.size(); ++i) {
      const Instant now = SystemClock().now();
      if (instant(gpus_[i].look_by) > now + kSoonEnough) continue;
      gpus_[i].look_by = kNever;  // one worker is enough; who has the GPU plans the next
      if (shared_.avoid[i] != 0 || !take(shared_.slots[i], now)) continue;
      source_->look(i, now);
      plan_look(i, now);
      shared_.slots[i].busy_since = 0;
    }
  }

  // ---- samples

  static bool take(Slot& slot, Instant now) {
    std::int64_t nobody = 0;
    return slot.busy_since.compare_exchange_strong(nobody, now.time_since_epoch().count());
  }

  // Also after a look, which only we know of: a worker that came for that GPU in between went away.
  void work(bool tell) {
    bool gone = false;
    for (bool again = true; std::exchange(again, false);) {
      for (unsigned i = 0; i < gpus_.size(); ++i) again |= serve(i, gone);
      again |= serve_machine();
      tell |= again;
    }
    if (gone || source_->wants_release()) {
      shared_.stage = Stage::over;
      ring();
      ::_exit(0);
    }
    if (tell) ring();
  }

  // True: it was asked, so there may be more to do by now.
  bool serve(unsigned i, bool& gone) {
    Slot& slot = shared_.slots[i];
    Gpu& gpu = gpus_[i];
    if (slot.round == shared_.wanted || shared_.avoid[i] != 0) return false;
    const Instant began = SystemClock().now();
    if (!take(slot, began)) return false;  // another worker has it
    // Asked anew, now that the slot is ours: a worker that was held up before would write an old answer over a new one.
    const std::uint64_t round = shared_.wanted;
    if (slot.round == round) return slot.busy_since = 0, false;
    if (last_round_.exchange(round) != round) shared_.round_began = began.time_since_epoch().count();
    if (!gpu.attached) attach(i, began);
    const Instant now = gpu.asked ? began : SystemClock().now();
    source_->sample(i, shared_.lists == round ? fresh_ : needs_, now, gpu.answer);
    gpu.asked = true;
    plan_look(i, now);
    gone = gone || gpu.answer.driver_gone;
    publish(i, round);
    slot.busy_since = 0;
    return true;
  }

  void attach(unsigned i, Instant began) {
    Slot& slot = shared_.slots[i];
    publish_identity(i);  // what is known before: of which vendor it is
    slot.worker = ::gettid();
    slot.attaching = 1;
    gpus_[i].attached = source_->attach(i, began);
    const Instant now = SystemClock().now();
    slot.attach_took = std::max<std::int64_t>((now - began).count(), 1);
    slot.busy_since = now.time_since_epoch().count();  // what follows has a limit of its own
    slot.attaching = 0;
    publish_identity(i);  // also of a GPU whose first sample hangs
  }

  void publish_identity(unsigned i) {
    Slot& slot = shared_.slots[i];
    const Identity& identity = source_->identity(i);
    if (identity.version != slot.identity && fill(shared_.identities[i], identity, identity.version))
      slot.identity = identity.version;
  }

  void publish(unsigned i, std::uint64_t round) {
    Slot& slot = shared_.slots[i];
    Answer& answer = gpus_[i].answer;
    publish_identity(i);
    if (!fill(shared_.answers[i], answer, round)) {  // more processes than fit
      const auto cut = [](Reading& reading) {
        reading.processes.reset();
        reading.miss(Metric::procs, Absence::failed);
      };
      cut(answer.gpu);
      std::ranges::for_each(answer.parts, cut);
      if (!fill(shared_.answers[i], answer, round)) ::_exit(1);
    }
    if (has_machine()) show(i, round, source_->identity(i));
    slot.done_at = now_ns();
    slot.round = round;
  }

  void show(unsigned i, std::uint64_t round, const Identity& identity) {
    const std::scoped_lock lock(shown_mutex_);
    Shown& shown = shown_[i];
    shown.round = round;
    if (std::exchange(shown.identity, identity.version) != identity.version) shown.device = identity.device;
    shown.pids.clear();
    const auto add = [&](const Reading& reading) {
      if (!reading.processes) return;
      for (const GpuProcess& process : *reading.processes)
        if (process.here) shown.pids.push_back(process.pid);
    };
    add(gpus_[i].answer.gpu);
    std::ranges::for_each(gpus_[i].answer.parts, add);
  }

  // ---- what is not of one GPU

  bool has_machine() const { return options_.process_info || options_.openers || options_.topology; }

  std::uint32_t answers_of(std::uint64_t round) const {
    std::uint32_t answers = 0;
    for (unsigned i = 0; i < gpus_.size(); ++i) answers += shared_.slots[i].round == round ? 1 : 0;
    return answers;
  }
  bool machine_is_told(std::uint64_t round) const {
    return shared_.machine.round == round && shared_.machine_knows >= answers_of(round);
  }

  bool serve_machine() {
    if (!has_machine()) return false;
    Slot& slot = shared_.machine;
    if (machine_is_told(shared_.wanted) || !take(slot, SystemClock().now())) return false;
    const std::uint64_t round = shared_.wanted;  // anew, as in serve()
    const std::uint32_t answers = answers_of(round);
    if (machine_is_told(round)) return slot.busy_since = 0, false;
    MachineReport report;
    if (options_.process_info) report.process_info = read_process_info(round);
    if (options_.openers) add_holders(report, round);
    if (options_.topology && answers > joined_) {
      topology_ = source_->topology();
      joined_ = answers;
    }
    if (options_.topology) report.topology = topology_;
    while (!fill(shared_.report, report, round) && !report.process_info.empty())
      report.process_info.resize(report.process_info.size() / 2);  // the rest is shown by number
    shared_.machine_knows = answers;
    slot.done_at = now_ns();
    slot.round = round;
    slot.busy_since = 0;
    return true;
  }

  std::vector<ProcessInfo> read_process_info(std::uint64_t round) {
    std::set<pid_t> pids;
    {
      const std::scoped_lock lock(shown_mutex_);
      for (const Shown& one : shown_)
        if (one.round == round) pids.insert(one.pids.begin(), one.pids.end());
    }
    std::vector<ProcessInfo> processes;
    for (const pid_t pid : pids)
      if (auto info = read_process(options_.root, pid)) processes.push_back(std::move(*info));
    return processes;
  }

  void add_holders(MachineReport& report, std::uint64_t round) {
    Inventory inventory;
    std::vector<bool> answered;
    {
      const std::scoped_lock lock(shown_mutex_);
      for (const Shown& one : shown_) {
        inventory.devices.push_back(one.device);  // as it was last: the files to look for stay the same
        answered.push_back(one.round == round);
      }
    }
    Openers openers = scan_.look(inventory, options_.deadline / 2);
    report.holders_began = openers.began;
    for (std::size_t i = 0; i < openers.holders.size(); ++i) {
      std::erase(openers.holders[i], ::getppid());  // who asks does not count
      report.holders.push_back({answered[i] ? openers.absence[i] : Absence::no_answer,
                                static_cast<std::uint32_t>(openers.holders[i].size())});
    }
  }

  SensorMemory& shared_;
  const int wakeup_;
  const SamplerOptions options_;
  const Needs needs_ = options_.needs();
  Needs fresh_ = needs_;  // with process lists of now
  const SystemClock clock_;
  std::unique_ptr<Source> source_;
  std::vector<Gpu> gpus_;  // each used by the worker that has set its slot's busy_since
  std::mutex shown_mutex_;
  std::vector<Shown> shown_;
  std::atomic<int> idle_{0};
  std::atomic<std::int64_t> kept_{kNever};  // when an idle worker wakes up for a look, ns since boot
  std::atomic<std::uint64_t> last_round_{0};
  // By whoever has the machine's slot:
  OpenerScan scan_{options_.root, options_.ignore_openers, clock_};
  Topology topology_;
  std::uint32_t joined_ = 0;  // how many GPUs the topology is of
};

// ---- becoming a sensor

constexpr int kWakeup = 3;
constexpr int kPipe = 4;
constexpr int kParent = 5;

// How a sensor is told that it is needed no more, besides by a signal.
struct Lifelines {
  int pipe = -1;    // at its end: the parent has closed the other, by its hand, at its end, or by exec
  int parent = -1;  // readable: the parent has ended. A child that it forked may still hold the pipe
};

// Ends the sensor when one of its lifelines does. The kernel does it by SIGKILL when the pipe ends: also for a
// stopped one, whose threads cannot run. And a thread, since the others may hang: a child of the parent's
// may hold the pipe.
void watch_lifelines(bool has_parent) {
  end_with(kPipe);
  static const nfds_t count = has_parent ? 2 : 1;
  pthread_t thread{};
  const auto body = [](void*) -> void* {
    pollfd ends[2] = {{kPipe, POLLIN, 0}, {kParent, POLLIN, 0}};
    while (::poll(ends, count, -1) < 0) {
    }
    ::_exit(0);
  };
  if (::pthread_create(&thread, nullptr, body, nullptr) != 0) ::_exit(1);
}

// Of one that is not a child of the parent, which cannot see what ended us: we say it.
SensorMemory* asked_on = nullptr;
void release_driver(int) {
  asked_on->release_driver = 1;
  ::_exit(0);
}

// From a process that is to be a sensor to one that has nothing but the shared memory, the wake-up and its lifelines:
// later it may be stuck for ever with whatever it holds.
[[noreturn]] void become_sensor(SensorMemory& shared, int wakeup, Lifelines lifelines, const SamplerOptions& options) {
  ::setsid();  // no Ctrl-C, no Ctrl-Z, no hangup
  show_as(kSensorName.data());
  sigset_t blocked;
  ::sigfillset(&blocked);
  // SIGUSR1 means "let go of the driver": the parent sees what ended us. The others are faults, or were sent on
  // purpose.
  for (const int number : {SIGUSR1, SIGTERM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS}) {
    ::sigdelset(&blocked, number);
    if (number == SIGUSR1 || number == SIGTERM) std::signal(number, SIG_DFL);
  }
  if (lifelines.pipe >= 0) {
    asked_on = &shared;
    std::signal(SIGUSR1, release_driver);
  }
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  std::atexit([] { ::_exit(1); });  // the parent's exit handlers are not ours, should the driver call exit
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kStandard = 2;  // what the sanitizer has to say must be heard
#else
  constexpr int kStandard = 3;  // who reads our output to its end must not wait for a stuck sensor
#endif
  // Out of the way first: their numbers may be those of standard descriptors that were closed.
  const int safe_wakeup = ::fcntl(wakeup, F_DUPFD_CLOEXEC, 10);
  const int safe_pipe = lifelines.pipe >= 0 ? ::fcntl(lifelines.pipe, F_DUPFD_CLOEXEC, 10) : -1;
  const int safe_parent = lifelines.parent >= 0 ? ::fcntl(lifelines.parent, F_DUPFD_CLOEXEC, 10) : -1;
  if (safe_wakeup < 0 || (lifelines.pipe >= 0 && safe_pipe < 0)) ::_exit(1);  // too few descriptors are allowed
  for (int stdio = 0; stdio < kStandard; ++stdio) ::dup2(null, stdio);
  ::close_range(kWakeup, 9, 0);
  ::dup2(safe_wakeup, kWakeup);
  if (safe_pipe >= 0) ::dup2(safe_pipe, kPipe);
  if (safe_parent >= 0) ::dup2(safe_parent, kParent);
  ::close_range(kParent + 1, ~0U, 0);  // locks, sockets, timers
  if (safe_pipe >= 0) watch_lifelines(safe_parent >= 0);
  static SensorWorkers workers(shared, kWakeup, options);
  workers.run();
}

// Orphans come to a subreaper in any case, and one that is meant to be so reaps whatever child ends.
bool is_subreaper() {
  int is = 0;
  return ::prctl(PR_GET_CHILD_SUBREAPER, &is) == 0 && is != 0;
}

// ---- a sensor that is a program

// Where the program finds what it was given.
enum Given : int { kGivenMemory = 3, kGivenWakeup, kGivenPipe, kGivenParent };
constexpr char kOtherLayout = 'v';  // in the byte behind the shared memory

// What both sides must agree on; a library and a program of different builds may not.
std::string shared_mark() {
  return "lull-memory-1." + std::to_string(sizeof(SensorMemory)) + "." + std::to_string(kMetrics) + "." +
         std::to_string(sizeof(Reading));
}

}  // namespace

void call_worker(SensorMemory& shared) {
  ++shared.calls;
  ::syscall(SYS_futex, &shared.calls, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

Result<Sensor> start_sensor(SensorMemory& shared, int wakeup, const SamplerOptions& options) {
  const auto cannot_start = [](const Error& error) {
    return std::unexpected(Error{"no process can be started to ask the driver", error.errno_value});
  };
  // A child costs half of what one apart does. A program that is about to end, or reaps all children, does not mind.
  if (!options.apart && (options.once || is_subreaper())) {
    auto child = start_child([&] { become_sensor(shared, wakeup, {}, options); });
    if (!child) return cannot_start(child.error());
    return Sensor{*std::move(child), Fd()};
  }
  auto apart =
      start_apart([&](const Fd& lifeline) { become_sensor(shared, wakeup, {.pipe = lifeline.get()}, options); });
  if (!apart) return cannot_start(apart.error());
  return Sensor{std::move(apart->process), std::move(apart->socket)};
}

Fd make_shared_file() {
  Fd file(::memfd_create("lull-memory", MFD_CLOEXEC));
  if (file && ::ftruncate(file.get(), sizeof(SensorMemory) + 1) != 0) file.reset();
  return file;
}

bool is_other_layout(const Fd& file) {
  char mark = 0;
  return ::pread(file.get(), &mark, 1, sizeof(SensorMemory)) == 1 && mark == kOtherLayout;
}

Result<Sensor> start_sensor_program(SensorMemory& shared, const Fd& memory, int wakeup, const SamplerOptions& options) {
  const SensorProgram& program = options.program;
  const auto cannot_start = [&](int why) {
    return fail(why, "the driver is asked by " + program.path + ", which cannot be started");
  };
  if (!fill(shared.options, options, 0)) return fail("the options of the sensor are too long");
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return cannot_start(errno);
  const Fd theirs(ends[0]);
  Fd ours(ends[1]);
  ignore_pipe(ours.get());
  const Fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!self) return cannot_start(errno);
  const std::array<int, 4> given = {memory.get(), wakeup, theirs.get(), self.get()};
  auto process = start_program({program.path, {std::string(kSensorName), shared_mark()}, program.environment}, given);
  if (!process) return cannot_start(process.error().errno_value);
  return Sensor{*std::move(process), std::move(ours)};
}

int sensor_program(int argc, char** argv) {
  if (argc != 2) return kExitUsage;
  if (argv[1] != shared_mark()) {  // all that is known of the shared memory then is where it ends
    struct stat file{};
    if (::fstat(kGivenMemory, &file) == 0) (void)!::pwrite(kGivenMemory, &kOtherLayout, 1, file.st_size - 1);
    return kExitUsage;
  }
  void* memory =
      ::mmap(nullptr, sizeof(SensorMemory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, kGivenMemory, 0);
  if (memory == MAP_FAILED) return kExitUsage;
  auto& shared = *static_cast<SensorMemory*>(memory);
  std::vector<std::byte> copied;
  SamplerOptions options;
  if (!copy_message(shared.options, 0, copied) || !decode(copied, options)) return kExitUsage;
  become_sensor(shared, kGivenWakeup, {.pipe = kGivenPipe, .parent = kGivenParent}, options);
}

// ---- blocked threads

void BlockedThread::look(pid_t process, pid_t thread, Instant at) {
  const auto status = read_file(fmt::format("/proc/{}/task/{}/status", process, thread));
  const std::string_view text = status ? std::string_view(*status) : std::string_view();
  const bool asleep = status_field(text, "State").value_or("").starts_with('D');
  std::uint64_t switches = 0;
  for (const std::string_view name : {"voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"})
    switches += to_unsigned(status_field(text, name).value_or("")).value_or(0);
  if (!asleep || std::exchange(switches_, switches) != switches)
    since_.reset();
  else if (!since_)
    since_ = at;
}

}  // namespace lull
