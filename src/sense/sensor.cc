#include "sense/sensor.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "base/text.h"
#include "sense/openers.h"
#include "sense/processes.h"
#include "sense/wire.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr int kBell = 3;
constexpr int kLifeline = 4;
constexpr Duration kSoonEnough = 20ms;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

std::int64_t now_ns() { return SystemClock().now().time_since_epoch().count(); }
Instant instant(std::int64_t ns) { return Instant(Duration(ns)); }

template <class BoxType, class Message>
bool fill(BoxType& box, const Message& message, std::uint64_t round) {
  Encoder out(box.bytes);
  encode(out, message);
  if (out.full()) return false;
  box.size = static_cast<std::uint32_t>(out.size());
  box.seal = seal_of(std::span(box.bytes).first(out.size()), round);
  return true;
}

class Hands {
 public:
  Hands(Board& board, int bell, const SensorTask& task)
      : board_(board), bell_(bell), task_(task), source_(make_nvml_source(task.library, task.root)) {}

  [[noreturn]] void run() {
    DriverReport report;
    report.state = source_->open();
    if (::chdir("/") != 0) ::_exit(1);  // keep no file system busy; the library was named relative to where we were
    report.version = source_->driver_version();
    report.library = source_->library();
    if (!fill(board_.driver, report, 0)) ::_exit(1);
    const bool open = report.state.absence == Absence::none;
    gpus_ = std::vector<Gpu>(open ? std::min(source_->count(), kMostGpus) : 0);
    shown_ = std::vector<Shown>(gpus_.size());
    board_.count = static_cast<std::uint32_t>(gpus_.size());
    board_.stage = open ? Stage::open : Stage::failed;
    if (!open) {
      ring();
      ::_exit(0);
    }
    add_spare();
    work();
    wait_for_calls();
  }

 private:
  struct Gpu {
    bool attached = false;
    bool asked = false;  // it has been sampled at least once
    Answer answer;
    std::atomic<std::int64_t> look_by{kNever};  // ns since boot
  };
  // What the machine's report needs of a GPU. A copy under a lock, since another hand may be at the GPU again by then.
  struct Shown {
    std::uint64_t round = 0;
    unsigned identity = 0;
    Device device;
    std::vector<pid_t> pids;
  };

  void ring() {
    if (::eventfd_write(bell_, 1) != 0) ::_exit(1);  // somebody closed our descriptors
  }

  // ---- hands

  // One with nothing to do, which can still come when all others hang.
  void add_spare() {
    pthread_t thread{};
    const auto body = [](void* self) -> void* { static_cast<Hands*>(self)->wait_for_calls(); };
    (void)::pthread_create(&thread, nullptr, body, this);  // none to be had: the parent leaves us if we hang
  }

  [[noreturn]] void wait_for_calls() {
    for (++idle_;; ++idle_) {
      bool called = false;
      while (!(called = take_call()) && !look_is_due()) wait();
      if (--idle_ == 0) add_spare();
      if (!called) look_around();
      work();
    }
  }

  bool take_call() {
    std::uint32_t calls = board_.calls;
    while (calls > 0)
      if (board_.calls.compare_exchange_weak(calls, calls - 1)) return true;
    return false;
  }

  void wait() {
    const Instant next = next_look();
    timespec limit{};
    if (next != Instant::max()) {
      const Duration left = std::max(next - SystemClock().now(), Duration(1ms));
      limit.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(left).count();
      limit.tv_nsec = (left % 1s).count();
    }
    ::syscall(SYS_futex, &board_.calls, FUTEX_WAIT, 0, next != Instant::max() ? &limit : nullptr, nullptr, 0);
  }

  // ---- looks between the samples

  Instant next_look() const {
    std::int64_t next = kNever;
    for (const Gpu& gpu : gpus_) next = std::min(next, gpu.look_by.load());
    return instant(next);
  }
  bool look_is_due() const { return next_look() <= SystemClock().now(); }

  // By the hand that has the GPU.
  void plan_look(unsigned i, Instant looked) {
    const Duration within = task_.looks ? source_->look_within(i) : Duration::zero();
    gpus_[i].look_by = within > Duration::zero() ? (looked + within).time_since_epoch().count() : kNever;
  }

  void look_around() {
    for (unsigned i = 0; i < gpus_.size(); ++i) {
      const Instant now = SystemClock().now();
      if (instant(gpus_[i].look_by) > now + kSoonEnough) continue;
      gpus_[i].look_by = kNever;  // one hand is enough; who has the GPU plans the next
      if (board_.avoid[i] != 0 || !take(board_.slots[i], now)) continue;
      source_->look(i, now);
      plan_look(i, now);
      board_.slots[i].busy_since = 0;
    }
  }

  // ---- samples

  static bool take(Slot& slot, Instant now) {
    std::int64_t nobody = 0;
    return slot.busy_since.compare_exchange_strong(nobody, now.time_since_epoch().count());
  }

  void work() {
    bool gone = false;
    for (bool again = true; std::exchange(again, false);) {
      for (unsigned i = 0; i < gpus_.size(); ++i) again |= serve(i, gone);
      again |= serve_machine();
    }
    if (gone || source_->wants_to_let_go()) {
      board_.stage = Stage::over;
      ring();
      ::_exit(0);
    }
    ring();
  }

  // True: it was asked, so there may be more to do by now.
  bool serve(unsigned i, bool& gone) {
    Slot& slot = board_.slots[i];
    Gpu& gpu = gpus_[i];
    const std::uint64_t round = board_.wanted;
    if (slot.round == round || board_.avoid[i] != 0) return false;
    const Instant began = SystemClock().now();
    if (!take(slot, began)) return false;  // another hand has it
    if (slot.round == round) return slot.busy_since = 0, false;
    if (last_round_.exchange(round) != round) board_.round_began = began.time_since_epoch().count();
    if (!gpu.attached) attach(i, began);
    const Instant now = gpu.asked ? began : SystemClock().now();
    source_->sample(i, task_.needs, now, gpu.answer);
    gpu.asked = true;
    plan_look(i, now);
    gone = gone || gpu.answer.driver_gone;
    publish(i, round);
    slot.busy_since = 0;
    return true;
  }

  void attach(unsigned i, Instant began) {
    Slot& slot = board_.slots[i];
    slot.attaching = 1;
    gpus_[i].attached = source_->attach(i, began);
    const Instant now = SystemClock().now();
    slot.attach_took = std::max<std::int64_t>((now - began).count(), 1);
    slot.busy_since = now.time_since_epoch().count();  // what follows has a limit of its own
    slot.attaching = 0;
  }

  void publish(unsigned i, std::uint64_t round) {
    Slot& slot = board_.slots[i];
    Answer& answer = gpus_[i].answer;
    const Identity& identity = source_->identity(i);
    if (identity.version != slot.identity && fill(board_.identities[i], identity, identity.version))
      slot.identity = identity.version;
    if (!fill(board_.answers[i], answer, round)) {  // more processes than there is room for
      const auto cut = [](Reading& reading) {
        reading.tenants.reset();
        reading.miss(Metric::procs, Absence::failed);
      };
      cut(answer.gpu);
      std::ranges::for_each(answer.parts, cut);
      if (!fill(board_.answers[i], answer, round)) ::_exit(1);
    }
    if (has_machine()) show(i, round, identity);
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
      if (!reading.tenants) return;
      for (const Tenant& tenant : *reading.tenants)
        if (tenant.here) shown.pids.push_back(tenant.pid);
    };
    add(gpus_[i].answer.gpu);
    std::ranges::for_each(gpus_[i].answer.parts, add);
  }

  // ---- what is not of one GPU

  bool has_machine() const { return task_.processes || task_.openers || task_.topology; }

  bool serve_machine() {
    if (!has_machine()) return false;
    const std::uint64_t round = board_.wanted;
    Slot& slot = board_.machine;
    std::uint32_t answers = 0;
    for (unsigned i = 0; i < gpus_.size(); ++i) answers += board_.slots[i].round == round ? 1 : 0;
    if (slot.round == round && board_.machine_knows >= answers) return false;
    if (!take(slot, SystemClock().now())) return false;
    MachineReport report;
    if (task_.processes) report.processes = tenants_of(round);
    if (task_.openers) report.holders = holders(round);
    if (task_.topology && answers > joined_) {
      topology_ = source_->topology();
      joined_ = answers;
    }
    if (task_.topology) report.topology = topology_;
    while (!fill(board_.report, report, round) && !report.processes.empty())
      report.processes.resize(report.processes.size() / 2);  // the rest is shown by number
    board_.machine_knows = answers;
    slot.done_at = now_ns();
    slot.round = round;
    slot.busy_since = 0;
    return true;
  }

  std::vector<ProcessInfo> tenants_of(std::uint64_t round) {
    std::set<pid_t> pids;
    {
      const std::scoped_lock lock(shown_mutex_);
      for (const Shown& one : shown_)
        if (one.round == round) pids.insert(one.pids.begin(), one.pids.end());
    }
    std::vector<ProcessInfo> processes;
    for (const pid_t pid : pids)
      if (auto info = read_process(task_.root, pid)) processes.push_back(std::move(*info));
    return processes;
  }

  std::vector<MachineReport::Holders> holders(std::uint64_t round) {
    Inventory inventory;
    {
      const std::scoped_lock lock(shown_mutex_);
      for (const Shown& one : shown_) {
        Device& device = inventory.devices.emplace_back();
        if (one.round == round)
          device = one.device;
        else
          device.absence = Absence::no_answer;
      }
    }
    Openers openers = find_openers(task_.root, inventory, task_.ignore_openers);
    std::vector<MachineReport::Holders> all;
    for (std::size_t i = 0; i < openers.holders.size(); ++i) {
      std::erase(openers.holders[i], ::getppid());  // who asks does not count
      all.push_back({openers.absence[i], static_cast<std::uint32_t>(openers.holders[i].size())});
    }
    return all;
  }

  Board& board_;
  const int bell_;
  const SensorTask task_;
  std::unique_ptr<Source> source_;
  std::vector<Gpu> gpus_;  // each used by the hand that has set its slot's busy_since
  std::mutex shown_mutex_;
  std::vector<Shown> shown_;
  std::atomic<int> idle_{0};
  std::atomic<std::uint64_t> last_round_{0};
  Topology topology_;         // by whoever has the machine's slot,
  std::uint32_t joined_ = 0;  // and how many GPUs it is of
};

// Ends the sensor when the other end of its lifeline closes. A thread, since the others may hang.
void watch_lifeline() {
  pthread_t thread{};
  const auto body = [](void*) -> void* {
    pollfd closed{kLifeline, POLLIN, 0};
    while (::poll(&closed, 1, -1) < 0) {
    }
    ::_exit(0);
  };
  (void)::pthread_create(&thread, nullptr, body, nullptr);
}

// What the child lets go of. Later it may be stuck for ever with whatever it holds.
[[noreturn]] void become_sensor(Board& board, int bell, int lifeline, const SensorTask& task) {
  ::setsid();  // no Ctrl-C, no Ctrl-Z, no hangup
  show_as("lull-sensor");
  sigset_t blocked;
  ::sigfillset(&blocked);
  // SIGUSR1 means "let go of the driver": the parent sees what ended us. The others are faults, or somebody's wish.
  for (const int number : {SIGUSR1, SIGTERM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS}) {
    ::sigdelset(&blocked, number);
    if (number == SIGUSR1 || number == SIGTERM) std::signal(number, SIG_DFL);
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
  const int safe_bell = ::fcntl(bell, F_DUPFD_CLOEXEC, 10);
  const int safe_lifeline = lifeline >= 0 ? ::fcntl(lifeline, F_DUPFD_CLOEXEC, 10) : -1;
  for (int stdio = 0; stdio < kStandard; ++stdio) ::dup2(null, stdio);
  ::dup2(safe_bell, kBell);
  if (lifeline >= 0) ::dup2(safe_lifeline, kLifeline);
  ::close_range(lifeline >= 0 ? kLifeline + 1 : kBell + 1, ~0U, 0);  // locks, sockets, timers
  if (lifeline >= 0) watch_lifeline();
  static Hands hands(board, kBell, task);
  hands.run();
}

// Not fork(): that cannot leave out the signal at the child's end, by which wait() would find it. Where there are no
// threads a raw clone is as good. 0: we are the child.
long make_child(int* pidfd) {
  return ::syscall(SYS_clone, pidfd != nullptr ? CLONE_PIDFD : 0, nullptr, pidfd, nullptr, 0);
}

Error cannot_start(int why) { return Error{"no process can be started to ask the driver", why}; }

// As a child, gone when we are.
Result<Sensor> start_child(Board& board, int bell, const SensorTask& task) {
  const pid_t parent = ::getpid();
  int pidfd = -1;
  const long pid = make_child(&pidfd);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);  // it died before we asked to be told
    become_sensor(board, bell, -1, task);
  }
  if (pid < 0) return std::unexpected(cannot_start(errno));
  note_own_process(static_cast<pid_t>(pid));  // it is no part of a job
  return Sensor{Process::adopt(static_cast<pid_t>(pid), Fd(pidfd)), Fd()};
}

// As a grandchild whose parent has ended: whatever we become has no child that it did not make.
Result<Sensor> start_apart(Board& board, int bell, const SensorTask& task) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::unexpected(cannot_start(errno));
  Fd theirs(ends[0]);
  Fd ours(ends[1]);
  int pidfd = -1;
  const long between = make_child(&pidfd);
  if (between == 0) {
    const long pid = make_child(nullptr);
    if (pid == 0) become_sensor(board, bell, theirs.get(), task);
    board.pid = static_cast<std::int32_t>(pid);
    ::_exit(0);
  }
  if (between < 0) return std::unexpected(cannot_start(errno));
  const Fd handle(pidfd);
  siginfo_t info{};
  while (::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(handle.get()), &info, WEXITED | __WALL) != 0 &&
         errno == EINTR) {
  }
  if (board.pid <= 0) return std::unexpected(cannot_start(EAGAIN));
  auto process = Process::open(board.pid);
  if (!process) return std::unexpected(cannot_start(EAGAIN));
  return Sensor{*std::move(process), std::move(ours)};
}

}  // namespace

void call_hand(Board& board) {
  ++board.calls;
  ::syscall(SYS_futex, &board.calls, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

Result<Sensor> start_sensor(Board& board, int bell, const SensorTask& task) {
  return task.apart ? start_apart(board, bell, task) : start_child(board, bell, task);
}

}  // namespace lull
