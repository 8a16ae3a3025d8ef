// Watching over the sensor: when it is asked, how long it is waited for, when it is left behind.
#include "sense/sampler_core.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/units.h"
#include "sense/select.h"
#include "sense/sensor_program.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr int kShares = 4;               // of the deadline, that one GPU may take one
constexpr Duration kShortestPause = 1s;  // a GPU that cost us a sensor is let alone for so long, then twice as long
constexpr Duration kLongestAlone = 10s;  // up to this; one that wants to be reset up to a minute
constexpr Duration kLetGo = 60s;         // the driver, when somebody asked for that
constexpr Duration kLongestPause = 60s;  // between two starts that lead to nothing
constexpr Duration kToGo = 100ms;        // a healthy sensor is gone by then, on a busy machine too
constexpr unsigned kMostRestarts = 3;    // within a round

Instant now() { return SystemClock().now(); }

// A child of ours that wait() does not find. Its status, once it has ended. One that is apart is somebody else's to
// reap.
std::optional<siginfo_t> reap(const Process& process) {
  siginfo_t info{};
  const auto pidfd = static_cast<id_t>(process.fd());
  const int got = ::waitid(static_cast<idtype_t>(P_PIDFD), pidfd, &info, WEXITED | WNOHANG | __WALL);
  return got == 0 && info.si_pid != 0 ? std::optional(info) : std::nullopt;
}

bool gone(const Process& process) {
  if (!process.ended()) return false;
  (void)reap(process);
  return true;
}

}  // namespace

SensorTask task_of(const SamplerOptions& options) {
  SensorTask task;
  task.needs.memory = options.memory;
  task.needs.power = options.power;
  task.needs.details = options.details;
  task.needs.tenants = options.tenants || options.processes;
  task.needs.all_lists = options.all_lists || options.processes;
  task.needs.pcie = options.pcie;
  task.needs.once = options.once;
  task.needs.idle_before = options.idle_before;
  task.needs.lists_every = options.lists_every;
  task.processes = options.processes;
  task.openers = options.openers;
  task.openers_budget = options.deadline / 2;  // most of what it has: this waits for no driver
  task.topology = options.topology;
  task.looks = !options.once;
  task.apart = options.apart;
  task.lets_go_after = options.lets_go_after;
  task.ignore_openers = options.ignore_openers;
  task.root = options.root;
  task.library = options.library;
  return task;
}

Sampler::Core::Core(SamplerOptions chosen)
    : options(std::move(chosen)),
      task(task_of(options)),
      patience(options.deadline / kShares),
      only_numbers(options.gpus.empty() ? std::nullopt : named_by_number(options.gpus, kMostGpus)),
      bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  driver = {Absence::no_answer, "no sample was taken yet", {}};
}

// Where the program ends anyway nobody waits to see the sensor go.
Sampler::Core::~Core() {
  if (!options.once || board == nullptr) {
    leave(-1);
  } else {
    end_sensor();
    ::munmap(board, sizeof(Board));
  }
}

// ---- asking ------------------------------------------------------------------------

void Sampler::Core::request(bool fresh_lists) {
  ++requested;
  if (fresh_lists) with_lists = requested;
  round_began = clock_from = last_sign = last_answer = last_look = now();
  answered_before = restarts = 0;
  if (board != nullptr)
    ask();
  else
    advance();
}

void Sampler::Core::ask() {
  tell_whom_to_avoid(round_began);
  board->lists = with_lists;
  board->wanted = requested;
  call_hand(*board);
}

// A library that is asked for while there is no driver runs modprobe each time and fills the kernel's log. There are
// machines whose driver has no such file: WSL2, Jetson; and who names a library wants that one.
bool Sampler::Core::driver_is_loaded() const {
  if (!options.library.empty() || options.root.driver.empty()) return true;
  if (const char* named = std::getenv("LULL_NVML"); named != nullptr && *named != '\0') return true;
  const std::string& dev = options.root.dev;
  for (const std::string& path : {options.root.driver + "/version", dev + "/dxg", dev + "/nvhost-ctrl", dev + "/nvmap"})
    if (::access(path.c_str(), F_OK) == 0) return true;
  return false;
}

bool Sampler::Core::start() {
  const Instant at = now();
  if (at < not_before) return false;
  if (!driver_is_loaded()) {  // looked for at each sample, which costs nothing
    driver = {
        Absence::no_driver, "the NVIDIA driver is not loaded (there is no " + options.root.driver + "/version)", {}};
    return false;
  }
  const bool by_program = !options.program.path.empty();
  board_file = by_program ? make_board_file() : Fd();
  const int kind = MAP_SHARED | MAP_NORESERVE | (by_program ? 0 : MAP_ANONYMOUS);
  void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, kind, board_file.get(), 0);
  if (memory == MAP_FAILED) {
    driver = {Absence::failed, "no memory can be shared with a sensor process", {}};
    back_off(at);
    return false;
  }
  board = new (memory) Board;
  board->lists = with_lists;
  board->wanted = requested;
  tell_whom_to_avoid(at);
  auto child = by_program ? start_sensor_program(*board, board_file, bell.get(), task, options.program)
                          : start_sensor(*board, bell.get(), task);
  if (!child) {
    ::munmap(std::exchange(board, nullptr), sizeof(Board));
    driver = {Absence::failed, child.error().message(), {}};
    back_off(at);
    return false;
  }
  sensor = std::move(child->process);
  lifeline = std::move(child->lifeline);
  opened = false;
  started = last_sign = clock_from = at;
  return true;
}

void Sampler::Core::back_off(Instant at) {
  not_before = at + std::min<Duration>(kLongestPause, 1s * (1LL << std::min(failures, 6U)));
  ++failures;
}

// One that is apart was opened by its number, which a handle of our own child is not: it is never signalled, it goes
// when its lifeline closes.
void Sampler::Core::end_sensor() {
  if (!task.apart) (void)sensor.signal(SIGKILL);
  lifeline.reset();
}

void Sampler::Core::leave(int culprit) {
  if (board == nullptr) return;
  end_sensor();
  ::munmap(std::exchange(board, nullptr), sizeof(Board));  // a stuck sensor has a hold of its own on it
  pollfd over{sensor.fd(), POLLIN, 0};
  if (::poll(&over, 1, static_cast<int>(kToGo / 1ms)) > 0)
    (void)reap(sensor);
  else
    left.push_back({std::move(sensor), culprit});
  sensor = Process();
  if (culprit >= 0) avoid(static_cast<unsigned>(culprit), Absence::no_answer, now());
}

// ---- GPUs that are let alone ----------------------------------------------------------

void Sampler::Core::avoid(unsigned gpu, Absence why, Instant at) {
  if (gpu >= seen.size()) return;
  Seen& one = seen[gpu];
  const bool reset = why == Absence::reset_required;
  one.pause = std::clamp<Duration>(one.pause * 2, reset ? kLongestAlone : kShortestPause,
                                   reset ? kLongestPause : kLongestAlone);
  if (one.avoid_until + one.pause <= at) one.avoided_since = at;
  one.avoid_until = at + one.pause;
  one.why_avoided = why;
}

bool Sampler::Core::is_left_out(unsigned gpu) const {
  return only_numbers && std::ranges::find(*only_numbers, gpu) == only_numbers->end();
}

// At most one sensor is stuck a GPU: it is let alone until that sensor's call has returned.
void Sampler::Core::tell_whom_to_avoid(Instant at) {
  std::erase_if(left, [](const Left& one) { return gone(one.process); });
  for (const Left& one : left)
    if (one.gpu >= 0 && static_cast<unsigned>(one.gpu) < seen.size())
      seen[static_cast<unsigned>(one.gpu)].avoid_until = at + kLongestAlone;
  for (unsigned i = 0; i < kMostGpus; ++i)
    board->avoid[i] = is_left_out(i) || (i < seen.size() && seen[i].avoid_until > at) ? 1 : 0;
}

// ---- deciding ------------------------------------------------------------------------

void Sampler::Core::advance() {
  while (under_way()) {
    if (board == nullptr && (restarts > kMostRestarts || !start())) return publish(now());
    if (board->stage == Stage::open && !opened && !heard_open()) {
      ++restarts;
      leave(-1);
      continue;
    }
    last_look = now();
    // Before the clock is asked whether time is up: we ourselves may have been stopped for an hour.
    const Look found = look(last_look);
    if (found.complete() && !all_hang(found, last_look)) {
      if (collect()) return publish(last_look);
      ++restarts;
      leave(-1);
      continue;
    }
    if (found.stage == Stage::failed) {
      driver_failed(last_look);
      return publish(last_look);
    }
    if (found.damaged || found.stage == Stage::over) {
      ++restarts;
      leave(-1);
      continue;
    }
    if (sensor.ended()) {
      died(found, last_look);
      continue;
    }
    // All hands hang behind one another, or somebody stopped the sensor.
    const bool nobody_comes = found.waiting > 0 && board->calls > 0 && last_look - last_sign >= patience;
    if (nobody_comes || found.complete()) {
      ++restarts;
      leave(found.longest);
      continue;
    }
    if (overdue(found, last_look)) {
      if (opened && !collect()) leave(-1);
      return publish(last_look);
    }
    if ((found.waiting > 0 || found.machine_pending) && last_look - last_sign >= kDawdle && board->calls == 0) {
      last_sign = last_look;
      call_hand(*board);
    }
    return;
  }
}

bool Sampler::Core::driver_report(DriverReport& report) {
  return copy_box(board->driver, 0, room) && decode(room, report);
}

bool Sampler::Core::heard_open() {
  const std::uint32_t count = board->count;
  DriverReport report;
  if (count > kMostGpus || !driver_report(report)) return false;
  opened = true;
  opened_at = clock_from = last_sign = now();
  driver = std::move(report.state);
  driver_version = std::move(report.version);
  library = std::move(report.library);
  seen.resize(count);
  for (Seen& one : seen) {
    one.identity = {};
    const unsigned gpu = one.identity.device.index = static_cast<unsigned>(&one - seen.data());
    if (is_left_out(gpu)) {
      one.avoid_until = Instant::max();
      one.why_avoided = Absence::not_asked;
    }
    one.identity.device.absence = one.avoid_until > opened_at ? one.why_avoided : Absence::no_answer;
    one.round = 0;
    one.fresh = true;
    one.given_up = false;
    one.still_since.reset();
  }
  machine_known = false;
  rearrange = true;
  return true;
}

void Sampler::Core::driver_failed(Instant at) {
  DriverReport report;
  if (driver_report(report) && report.state.absence != Absence::none)
    driver = std::move(report.state);
  else
    driver = {Absence::failed, "the driver cannot be opened", {}};
  leave(-1);
  back_off(at);
}

// By itself: the driver's library crashed or called exit, somebody killed it, or asked it to let go.
void Sampler::Core::died(const Look& found, Instant at) {
  const std::optional<siginfo_t> status = reap(sensor);
  const bool by_signal = status && status->si_code != CLD_EXITED;
  const int signal = by_signal ? status->si_status : 0;
  const bool asked_to_let_go = signal == SIGUSR1 || board->let_go == 1;
  ::munmap(std::exchange(board, nullptr), sizeof(Board));
  sensor = Process();
  lifeline.reset();
  if (asked_to_let_go) return let_go();
  if (!opened && board_file && is_other_board(board_file)) {
    driver = {Absence::failed, options.program.path + " is of another version of lull than this library", {}};
    restarts = kMostRestarts + 1;
    return back_off(at);
  }
  ++restarts;
  if (opened && found.longest >= 0) {
    avoid(static_cast<unsigned>(found.longest), Absence::failed, at);
    return;
  }
  if (opened && restarts <= 1) return;  // killed between two samples: a fresh one serves this one
  driver = {Absence::failed,
            by_signal ? "the driver's library ended the process that asks it (" + signal_name(signal) + ")"
                      : "the driver's library ended the process that asks it",
            {}};
  back_off(at);
}

void Sampler::Core::let_go() {
  leave(-1);
  driver = {Absence::no_driver, "let go of the driver for " + format_duration(kLetGo) + ", as asked (SIGUSR1)", {}};
  not_before = now() + kLetGo;
}

}  // namespace lull
