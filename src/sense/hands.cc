// The hands of the sensor: threads that take the GPUs one after the other, and what is not of one GPU.
#include <linux/futex.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "sense/openers.h"
#include "sense/processes.h"
#include "sense/sensor.h"
#include "sense/wire.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kSoonEnough = 60ms;  // a look that is due by then is taken along: GPUs are looked at together
constexpr Duration kStandIn = 1s;       // so much later another hand looks, should the one that keeps the time hang
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
      : board_(board), bell_(bell), task_(task), source_(make_nvml_source(task.library, task.root, clock_)) {
    fresh_.lists_every = Duration::zero();
  }

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
      work(called);
    }
  }

  bool take_call() {
    std::uint32_t calls = board_.calls;
    while (calls > 0)
      if (board_.calls.compare_exchange_weak(calls, calls - 1)) return true;
    return false;
  }

  // Where nobody has asked for long enough, the driver is let go of: looks between samples are for nobody.
  Instant end_of_use() const {
    if (task_.lets_go_after <= Duration::zero()) return Instant::max();
    return instant(board_.round_began) + task_.lets_go_after;
  }

  void wait() {
    const Instant end = board_.round_began > 0 ? end_of_use() : Instant::max();
    if (end <= SystemClock().now()) ::_exit(0);
    // One of the idle hands wakes up for the next look, and not all of them.
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
    ::syscall(SYS_futex, &board_.calls, FUTEX_WAIT, 0, next != Instant::max() ? &limit : nullptr, nullptr, 0);
    if (keeps_time) kept_.compare_exchange_strong(look, kNever);
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

  // Also after a look, which is of no concern to anybody but us: who came for that GPU meanwhile went away.
  void work(bool tell) {
    bool gone = false;
    for (bool again = true; std::exchange(again, false);) {
      for (unsigned i = 0; i < gpus_.size(); ++i) again |= serve(i, gone);
      again |= serve_machine();
      tell |= again;
    }
    if (gone || source_->wants_to_let_go()) {
      board_.stage = Stage::over;
      ring();
      ::_exit(0);
    }
    if (tell) ring();
  }

  // True: it was asked, so there may be more to do by now.
  bool serve(unsigned i, bool& gone) {
    Slot& slot = board_.slots[i];
    Gpu& gpu = gpus_[i];
    if (slot.round == board_.wanted || board_.avoid[i] != 0) return false;
    const Instant began = SystemClock().now();
    if (!take(slot, began)) return false;  // another hand has it
    // Asked anew, now that the slot is ours: a hand that was held up before would write an old answer over a new one.
    const std::uint64_t round = board_.wanted;
    if (slot.round == round) return slot.busy_since = 0, false;
    if (last_round_.exchange(round) != round) board_.round_began = began.time_since_epoch().count();
    if (!gpu.attached) attach(i, began);
    const Instant now = gpu.asked ? began : SystemClock().now();
    source_->sample(i, board_.lists == round ? fresh_ : task_.needs, now, gpu.answer);
    gpu.asked = true;
    plan_look(i, now);
    gone = gone || gpu.answer.driver_gone;
    publish(i, round);
    slot.busy_since = 0;
    return true;
  }

  void attach(unsigned i, Instant began) {
    Slot& slot = board_.slots[i];
    slot.hand = ::gettid();
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

  std::uint32_t answers_of(std::uint64_t round) const {
    std::uint32_t answers = 0;
    for (unsigned i = 0; i < gpus_.size(); ++i) answers += board_.slots[i].round == round ? 1 : 0;
    return answers;
  }
  bool machine_is_told(std::uint64_t round) const {
    return board_.machine.round == round && board_.machine_knows >= answers_of(round);
  }

  bool serve_machine() {
    if (!has_machine()) return false;
    Slot& slot = board_.machine;
    if (machine_is_told(board_.wanted) || !take(slot, SystemClock().now())) return false;
    const std::uint64_t round = board_.wanted;  // anew, as in serve()
    const std::uint32_t answers = answers_of(round);
    if (machine_is_told(round)) return slot.busy_since = 0, false;
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
    std::vector<bool> answered;
    {
      const std::scoped_lock lock(shown_mutex_);
      for (const Shown& one : shown_) {
        inventory.devices.push_back(one.device);  // as it was last: the files to look for stay the same
        answered.push_back(one.round == round);
      }
    }
    Openers openers = scan_.look(inventory, task_.openers_budget);
    std::vector<MachineReport::Holders> all;
    for (std::size_t i = 0; i < openers.holders.size(); ++i) {
      std::erase(openers.holders[i], ::getppid());  // who asks does not count
      all.push_back({answered[i] ? openers.absence[i] : Absence::no_answer,
                     static_cast<std::uint32_t>(openers.holders[i].size())});
    }
    return all;
  }

  Board& board_;
  const int bell_;
  const SensorTask task_;
  Needs fresh_ = task_.needs;  // with process lists of now
  const SystemClock clock_;
  std::unique_ptr<Source> source_;
  std::vector<Gpu> gpus_;  // each used by the hand that has set its slot's busy_since
  std::mutex shown_mutex_;
  std::vector<Shown> shown_;
  std::atomic<int> idle_{0};
  std::atomic<std::int64_t> kept_{kNever};  // when an idle hand wakes up for a look, ns since boot
  std::atomic<std::uint64_t> last_round_{0};
  // By whoever has the machine's slot:
  OpenerScan scan_{task_.root, task_.ignore_openers, clock_};
  Topology topology_;
  std::uint32_t joined_ = 0;  // how many GPUs the topology is of
};

}  // namespace

void call_hand(Board& board) {
  ++board.calls;
  ::syscall(SYS_futex, &board.calls, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void serve_board(Board& board, int bell, const SensorTask& task) {
  static Hands hands(board, bell, task);
  hands.run();
}

}  // namespace lull
