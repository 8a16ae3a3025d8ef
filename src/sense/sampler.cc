#include "sense/sampler.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#include "base/process_start.h"
#include "base/units.h"
#include "sense/arrange.h"
#include "sense/learned_store.h"
#include "sense/processes.h"
#include "sense/proof.h"
#include "sense/select.h"
#include "sense/sensor.h"
#include "sense/source.h"
#include "sense/wire.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr int kShares = 4;                 // of the deadline, that one GPU may take one
constexpr Duration kDawdle = 50ms;         // no GPU was done for so long: another worker
constexpr Duration kShortestPause = 1s;    // a GPU that cost us a sensor is left alone for so long, then twice as long
constexpr Duration kLongestAlone = 10s;    // up to this; one that requires a reset up to a minute
constexpr Duration kLetGo = 60s;           // the driver, on request
constexpr Duration kLongestPause = 60s;    // between two starts that lead to nothing
constexpr Duration kToGo = 100ms;          // a healthy sensor is gone by then, on a busy machine too
constexpr unsigned kMostRestarts = 3;      // within a round
constexpr Duration kAttachGrace = 1000ms;  // a GPU that still attaches when all others have answered has this long
constexpr int kAttachTimes = 3;            // or this many times as long as the slowest of them
constexpr Duration kLongestBlock = 900ms;  // in one place of the kernel: then it is not waking up
constexpr Duration kStartOver = 10s;       // where every GPU fails, a new start may help

Instant now() { return SystemClock().now(); }
Duration since(std::int64_t ns, Instant at) { return at - Instant(Duration(ns)); }

bool gone(const Process& process) {
  if (!process.ended()) return false;
  (void)reap(process);
  return true;
}

// As new: the memory is that of an older sample, to which its owner may have added.
void unknown(Reading& reading, Absence why, Duration unanswered = {}) {
  reading = Reading();
  reading.miss_all(why);
  reading.unanswered = unanswered;
}

}  // namespace

// Asks one sensor process at a time, and decides when to stop waiting for it. A round is one sample of everything;
// `requested` and `done` count rounds. All decisions depend on the shared memory and on the time alone.
struct Sampler::Core {
  // One GPU as we have heard of it.
  struct Seen {
    Identity identity;
    Answer answer;
    std::uint64_t round = 0;  // of the answer
    Instant read{};           // when that was; none yet: the clock's beginning
    SleepCover sleep;
    bool fresh = true;      // its meters are: this sensor has not answered for it before
    bool given_up = false;  // it was not waited for any longer in an earlier round, and has not answered since
    // Left alone until then, and why.
    Instant avoid_until{};
    Absence why_avoided = Absence::no_answer;
    Instant avoided_since{};
    Duration pause{};        // how long that was the last time; each time in a row it is longer
    Duration attach_took{};  // when it was last attached, by this sensor or one before
    BlockedThread attacher;  // the thread that attaches it
  };
  // A sensor that we no longer ask, and the GPU whose call it was in.
  struct Left {
    Process process;
    int gpu = -1;
  };
  // What stands in the shared memory now.
  struct Look {
    Stage stage = Stage::opening;
    bool damaged = false;
    unsigned answered = 0;
    unsigned waiting = 0;    // not begun
    unsigned reading = 0;    // in a call, within their time
    unsigned attaching = 0;  // likewise
    unsigned hanging = 0;    // beyond it
    int longest = -1;        // the GPU that is in a call for the longest
    Duration slowest_attach{};
    bool machine_pending = false;
    bool complete() const { return stage == Stage::open && waiting + reading + attaching == 0 && !machine_pending; }
  };

  explicit Core(SamplerOptions chosen)
      : options(std::move(chosen)),
        patience(options.deadline / kShares),
        only_numbers(options.gpus.empty() ? std::nullopt : named_by_number(options.gpus, kMostGpus)),
        wakeup(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    driver = {Absence::no_answer, "no sample was taken yet", {}};
    if (options.learned) learners.emplace(LearnedStore(learned_folder(::geteuid()), ::geteuid()), !options.once);
  }

  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // If the program ends anyway, it does not wait for the end of the sensor.
  ~Core() {
    if (!options.once || shared == nullptr) {
      leave(-1);
    } else {
      end_sensor();
      ::munmap(shared, sizeof(SensorMemory));
    }
  }

  // ---- asking

  bool under_way() const { return requested > done; }

  void request(bool fresh_lists) {
    ++requested;
    if (fresh_lists) with_lists = requested;
    round_began = clock_from = last_sign = last_answer = last_look = now();
    answered_before = restarts = 0;
    if (shared != nullptr)
      ask();
    else
      advance();
  }

  void ask() {
    mark_avoided(round_began);
    shared->lists = with_lists;
    shared->wanted = requested;
    call_worker(*shared);
  }

  bool start() {
    const Instant at = now();
    if (at < not_before) return false;
    // Looked for at each sample, which costs nothing.
    if (!(options.nvidia_only ? nvml_may_be_there : any_gpu_may_be_there)(options.library, options.root)) {
      driver = {Absence::no_driver, no_gpu_text(options.root, options.nvidia_only), {}};
      return false;
    }
    const bool by_program = !options.program.path.empty();
    shared_file = by_program ? make_shared_file() : Fd();
    const int kind = MAP_SHARED | MAP_NORESERVE | (by_program ? 0 : MAP_ANONYMOUS);
    void* memory = ::mmap(nullptr, sizeof(SensorMemory), PROT_READ | PROT_WRITE, kind, shared_file.get(), 0);
    if (memory == MAP_FAILED) {
      driver = {Absence::failed, "no memory can be shared with a sensor process", {}};
      back_off(at);
      return false;
    }
    shared = new (memory) SensorMemory;
    shared->lists = with_lists;
    shared->wanted = requested;
    mark_avoided(at);
    auto child = by_program ? start_sensor_program(*shared, shared_file, wakeup.get(), options)
                            : start_sensor(*shared, wakeup.get(), options);
    if (!child) {
      ::munmap(std::exchange(shared, nullptr), sizeof(SensorMemory));
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

  void back_off(Instant at) {
    not_before = at + std::min<Duration>(kLongestPause, 1s * (1LL << std::min(failures, 6U)));
    ++failures;
  }

  void end_sensor() {
    (void)sensor.signal(SIGKILL);
    lifeline.reset();
  }

  void leave(int culprit) {
    if (shared == nullptr) return;
    end_sensor();
    ::munmap(std::exchange(shared, nullptr), sizeof(SensorMemory));  // a stuck sensor has a hold of its own on it
    pollfd over{sensor.fd(), POLLIN, 0};
    if (::poll(&over, 1, static_cast<int>(kToGo / 1ms)) > 0)
      (void)reap(sensor);
    else
      left.push_back({std::move(sensor), culprit});
    sensor = Process();
    if (culprit >= 0) avoid(static_cast<unsigned>(culprit), Absence::no_answer, now());
  }

  // ---- GPUs that are left alone

  void avoid(unsigned gpu, Absence why, Instant at) {
    if (gpu >= seen.size() || is_left_out(gpu)) return;  // the shared memory may say that one is being read
    Seen& one = seen[gpu];
    const bool reset = why == Absence::reset_required;
    one.pause = std::clamp<Duration>(one.pause * 2, reset ? kLongestAlone : kShortestPause,
                                     reset ? kLongestPause : kLongestAlone);
    if (one.avoid_until + one.pause <= at) one.avoided_since = at;
    one.avoid_until = at + one.pause;
    one.why_avoided = why;
  }

  bool is_left_out(unsigned gpu) const {
    return only_numbers && std::ranges::find(*only_numbers, gpu) == only_numbers->end();
  }

  // At most one sensor is stuck a GPU: it is let alone until that sensor's call has returned.
  void mark_avoided(Instant at) {
    std::erase_if(left, [](const Left& one) { return gone(one.process); });
    for (const Left& one : left)
      if (one.gpu >= 0 && static_cast<unsigned>(one.gpu) < seen.size())
        seen[static_cast<unsigned>(one.gpu)].avoid_until = at + kLongestAlone;
    for (unsigned i = 0; i < kMostGpus; ++i)
      shared->avoid[i] = is_left_out(i) || (i < seen.size() && seen[i].avoid_until > at) ? 1 : 0;
  }

  // ---- deciding

  // Decides what can be decided by now; publishes the round where that is all there will be.
  void advance() {
    while (under_way()) {
      if (shared == nullptr && (restarts > kMostRestarts || !start())) return publish(now());
      const Stage stage = shared->stage;  // once: it may change at any moment
      if (stage == Stage::open && !opened && !read_opening()) {
        ++restarts;
        leave(-1);
        continue;
      }
      last_look = now();
      // Before the clock is asked whether time is up: we ourselves may have been stopped for an hour.
      const Look found = look(stage, last_look);
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
      // All workers hang behind one another, or the sensor was stopped.
      const bool nobody_comes = found.waiting > 0 && shared->calls > 0 && last_look - last_sign >= patience;
      if (nobody_comes || found.complete()) {
        ++restarts;
        leave(found.longest);
        continue;
      }
      if (overdue(found, last_look)) {
        if (opened && !collect()) leave(-1);
        return publish(last_look);
      }
      if ((found.waiting > 0 || found.machine_pending) && last_look - last_sign >= kDawdle && shared->calls == 0) {
        last_sign = last_look;
        call_worker(*shared);
      }
      return;
    }
  }

  bool driver_report(DriverReport& report) { return copy_message(shared->driver, 0, copied) && decode(copied, report); }

  bool read_opening() {
    const std::uint32_t count = shared->count;
    const std::uint32_t more = shared->unread;
    DriverReport report;
    if (count > kMostGpus || more > kMostCounted || !driver_report(report)) return false;
    unread = more;
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
      one.attacher = {};
    }
    machine_known = false;
    rearrange = true;
    return true;
  }

  void driver_failed(Instant at) {
    DriverReport report;
    if (driver_report(report) && report.state.absence != Absence::none)
      driver = std::move(report.state);
    else
      driver = {Absence::failed, "the driver cannot be opened", {}};
    leave(-1);
    back_off(at);
  }

  // By itself: the driver's library crashed or called exit, it was killed, or asked to release the driver.
  void died(const Look& found, Instant at) {
    const int signal = reap(sensor).value_or(ExitStatus()).signal;
    const bool asked_to_release = signal == SIGUSR1 || shared->release_driver == 1;
    ::munmap(std::exchange(shared, nullptr), sizeof(SensorMemory));
    sensor = Process();
    lifeline.reset();
    if (asked_to_release) return release_driver();
    if (!opened && shared_file && is_other_layout(shared_file)) {
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
              signal != 0 ? "the driver's library ended the process that asks it (" + signal_name(signal) + ")"
                          : "the driver's library ended the process that asks it",
              {}};
    back_off(at);
  }

  void release_driver() {
    leave(-1);
    driver = {Absence::no_driver, "let go of the driver for " + format_duration(kLetGo) + ", as asked (SIGUSR1)", {}};
    not_before = now() + kLetGo;
  }

  // ---- what the shared memory says, and which GPUs are still worth waiting for

  Instant look_by() const { return last_look + kDawdle; }

  // One that was attached before will not take much longer this time.
  Duration attach_limit(const Seen& one) const {
    if (one.attach_took == Duration::zero()) return options.attach_deadline;
    return std::min(options.attach_deadline, std::max<Duration>(kAttachGrace, kAttachTimes * one.attach_took));
  }

  Look look(Stage stage, Instant at) {
    Look found;
    found.stage = stage;
    found.damaged = found.stage > Stage::over;
    if (found.stage != Stage::open || !opened) return found;
    std::int64_t oldest = std::numeric_limits<std::int64_t>::max();
    for (unsigned i = 0; i < seen.size(); ++i) {
      const Slot& slot = shared->slots[i];
      const std::int64_t busy = slot.busy_since;
      const std::uint64_t round = slot.round;
      const bool attaching = slot.attaching == 1;
      if (round > requested || busy < 0 || since(busy, at) < -1s) {
        found.damaged = true;
        return found;
      }
      if (busy != 0 && busy < oldest) {
        oldest = busy;
        found.longest = static_cast<int>(i);
      }
      if (seen[i].avoid_until > at) continue;
      if (round == requested) {
        ++found.answered;
        seen[i].given_up = false;
        seen[i].attach_took = std::clamp<Duration>(Duration(slot.attach_took), 1ns, options.attach_deadline);
        found.slowest_attach = std::max(found.slowest_attach, seen[i].attach_took);
      } else if (busy == 0) {
        ++found.waiting;
      } else if (seen[i].given_up || since(busy, at) >= (attaching ? attach_limit(seen[i]) : patience)) {
        ++found.hanging;
        seen[i].given_up = true;
      } else {
        ++(attaching ? found.attaching : found.reading);
      }
    }
    if (found.answered > answered_before) {
      answered_before = found.answered;
      last_sign = last_answer = at;
    }
    if (found.attaching > 0) give_up_slow_attaching(found, at);
    found.machine_pending = machine_is_pending(found, at);
    return found;
  }

  // Its first contact takes its time, and does not stand still: the driver works on it.
  bool wakes(unsigned gpu, Instant at) const {
    if (shared == nullptr || shared->slots[gpu].attaching != 1) return false;
    const std::int64_t busy = shared->slots[gpu].busy_since;
    const Seen& one = seen[gpu];
    return busy > 0 && since(busy, at) < attach_limit(one) && !one.attacher.blocked_for(kLongestBlock, at);
  }

  // Where all others have answered, a GPU that still attaches is one that hangs, or the only one that sleeps deeply. It
  // goes on attaching, and will be there in a later sample.
  void give_up_slow_attaching(Look& found, Instant at) {
    if (found.answered == 0 || found.waiting + found.reading > 0) return;
    const Instant until = last_answer + std::max<Duration>(kAttachGrace, kAttachTimes * found.slowest_attach);
    const bool enough = has_all_named();
    for (unsigned i = 0; i < seen.size(); ++i) {
      if (shared->slots[i].round == requested || seen[i].avoid_until > at || seen[i].given_up) continue;
      if (shared->slots[i].attaching != 1) continue;  // done with that meanwhile
      seen[i].attacher.look(sensor.pid(), shared->slots[i].worker, at);
      if (!enough && (at < until || (options.wait_for_waking && wakes(i, at)))) continue;
      seen[i].given_up = true;
      --found.attaching;
      ++found.hanging;
    }
  }

  // All that are named have answered. Which of them a UUID means is unknown before.
  bool has_all_named() {
    if (options.gpus.empty() || !learn_identities()) return false;
    if (rearrange) arrange_rows();
    const auto chosen = select_devices(options.gpus, *inventory);
    return chosen && std::ranges::all_of(*chosen, [&](std::size_t position) {
             const std::size_t gpu = rows[position].gpu;
             return gpu < seen.size() && shared->slots[gpu].round == requested;
           });
  }

  bool machine_is_pending(const Look& found, Instant at) const {
    if (!options.process_info && !options.openers && !options.topology) return false;
    const Slot& slot = shared->machine;
    if (slot.round == requested && shared->machine_knows >= found.answered) return false;
    const std::int64_t busy = slot.busy_since;
    if (busy != 0) return since(busy, at) < (options.openers ? options.deadline : patience);
    return true;
  }

  bool overdue(const Look& found, Instant at) {
    if (found.stage == Stage::opening || !opened) {
      const Duration hangs = at - started;
      if (hangs < options.init_deadline) return false;
      // Another sensor would not fare better: this one stays until the driver answers.
      driver = {Absence::no_answer, "the " + unanswered_text(hangs), hangs};
      return true;
    }
    if (found.attaching > 0) clock_from = at;  // that has a limit of its own
    return at >= clock_from + options.deadline;
  }

  // No GPU answers. Several: behind one another, at the library's own lock most likely. One: where it lasts, a fresh
  // sensor may fare better, since this one may have been stopped.
  bool all_hang(const Look& found, Instant at) const {
    if (found.answered > 0 || found.hanging == 0 || found.longest < 0) return false;
    const std::int64_t busy = shared->slots[static_cast<unsigned>(found.longest)].busy_since;
    return found.hanging > 1 || (busy != 0 && since(busy, at) > 2 * options.deadline);
  }

  // ---- from the shared memory to a Snapshot

  // Who those are that have answered, or have not answered yet. False: a message makes no sense.
  bool learn_identities() {
    for (unsigned i = 0; i < seen.size(); ++i) {
      Seen& one = seen[i];
      const Slot& slot = shared->slots[i];
      const std::uint32_t version = slot.identity;
      const bool answered = slot.round == requested;
      if ((!answered && slot.round != 0) || version == one.identity.version) continue;
      if (!copy_message(shared->identities[i], version, copied)) {
        if (answered) return false;
        continue;  // it is being written
      }
      if (!decode(copied, one.identity)) return false;
      one.identity.version = version;
      one.identity.device.index = i;
      rearrange = true;
    }
    return true;
  }

  // False: it makes no sense; this sensor is not to be asked again.
  bool collect() {
    if (!learn_identities()) return false;
    for (unsigned i = 0; i < seen.size(); ++i) {
      Seen& one = seen[i];
      const Slot& slot = shared->slots[i];
      if (slot.round != requested) continue;
      if (!copy_message(shared->answers[i], requested, copied) || !decode(copied, one.answer)) return false;
      one.sleep.apply(one.answer);
      const Instant read = std::clamp(Instant(Duration(slot.done_at)), round_began, last_look);
      if (std::exchange(one.fresh, false) && one.read != Instant{} && read - one.read > kMomentStands) {
        forget_moments(one.answer.gpu);
        std::ranges::for_each(one.answer.parts, forget_moments);
      }
      one.read = read;
      one.round = requested;
      if (one.answer.gpu.device_absence == Absence::none) one.pause = {};
    }
    machine_known = false;
    if (shared->machine.round == requested) {
      if (!copy_message(shared->report, requested, copied) || !decode(copied, machine)) return false;
      machine_known = true;
    }
    failures = 0;
    return true;
  }

  // A card that requires a reset can only have it when no process holds it: then all is released, and that GPU left
  // alone.
  bool leave_alone_for_reset(Instant at) {
    bool any = false;
    for (unsigned i = 0; i < seen.size(); ++i) {
      Seen& one = seen[i];
      if (one.round != requested || one.answer.gpu.device_absence != Absence::reset_required) continue;
      avoid(i, Absence::reset_required, at);
      any = true;
    }
    return any;
  }

  bool nothing_works() const {
    return !seen.empty() && std::ranges::all_of(seen, [&](const Seen& one) {
      return one.round == requested && one.answer.gpu.device_absence != Absence::none;
    });
  }

  // When the last value of this round was read. Not now: we may have been stopped for an hour since. If none
  // answered, that is known as of now.
  Instant read_by(Instant at) const {
    if (shared == nullptr) return at;
    std::int64_t last = machine_known ? shared->machine.done_at.load() : 0;
    bool any = false;
    for (unsigned i = 0; i < seen.size(); ++i) {
      if (seen[i].round != requested) continue;
      last = std::max(last, shared->slots[i].done_at.load());
      any = true;
    }
    return any ? std::clamp(Instant(Duration(last)), round_began, at) : at;
  }

  void publish(Instant at) {
    if (rearrange) arrange_rows();
    const bool release_driver =
        leave_alone_for_reset(at) || (shared != nullptr && opened && nothing_works() && at - opened_at > kStartOver);
    Snapshot& snapshot = published;
    const Instant read = read_by(at);
    snapshot.at = read;
    snapshot.asked = round_began;
    snapshot.wall = SystemClock().wall() - (at - read);
    snapshot.inventory = inventory;
    snapshot.driver = driver;
    snapshot.readings.resize(inventory->devices.size());
    snapshot.topology.reset();
    snapshot.took =
        shared != nullptr ? std::max(read - Instant(Duration(shared->round_began)), Duration::zero()) : Duration{};
    snapshot.attach_took = {};
    for (const Seen& one : seen) snapshot.attach_took = std::max(snapshot.attach_took, one.attach_took);
    bool all_hang = true;  // of those that were asked
    Duration longest{};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      fill(snapshot.readings[i], rows[i], at);
      if (auto& processes = snapshot.readings[i].processes)
        first_reports.check(inventory->devices[i].id(), *processes, read);
      const Absence why = snapshot.readings[i].device_absence;
      all_hang = all_hang && (why == Absence::no_answer || why == Absence::not_asked || why == Absence::too_many);
      longest = std::max(longest, snapshot.readings[i].unanswered);
    }
    first_reports.doubt_foreign_numbers(snapshot.readings);
    if (learners) learn(snapshot);
    add_machine(snapshot);
    if (driver.absence == Absence::none && all_hang && longest > Duration::zero()) {
      snapshot.driver = {Absence::no_answer, "the " + unanswered_text(longest), longest};
    }
    if (release_driver) leave(-1);
    done = requested;
  }

  void learn(Snapshot& snapshot) {
    if (met != inventory) {
      std::vector<std::string> notes = learners->meet(*inventory);
      if (!notes.empty()) say(std::move(notes));
    }
    if (std::string why = learners->keep_now_and_then(snapshot.at); !why.empty()) say({std::move(why)});
    met = snapshot.inventory = inventory;
    learners->learn(snapshot);
  }

  // An inventory is const once it is published.
  void say(std::vector<std::string> notes) {
    auto with = std::make_shared<Inventory>(*inventory);
    with->notes.insert(with->notes.end(), notes.begin(), notes.end());
    inventory = std::move(with);
  }

  void arrange_rows() {
    rearrange = false;
    std::vector<FoundGpu> found;
    for (const Seen& one : seen) {
      FoundGpu& gpu = found.emplace_back();
      gpu.gpu = &one.identity.device;
      for (const Device& part : one.identity.parts) gpu.parts.push_back(&part);
    }
    // They exist, and may be in use: what is asked of all GPUs is unknown.
    std::vector<Device> beyond(unread);
    for (std::size_t i = 0; i < beyond.size(); ++i) {
      beyond[i].index = static_cast<unsigned>(seen.size() + i);
      beyond[i].absence = Absence::too_many;
      found.emplace_back().gpu = &beyond[i];
    }
    Arrangement arrangement = arrange(inventory->devices, found);
    rows = std::move(arrangement.rows);
    if (arrangement.devices == inventory->devices && driver_version == inventory->driver_version &&
        library == inventory->library)
      return;
    inventory = std::make_shared<Inventory>(
        Inventory{std::move(arrangement.devices), driver_version, library, inventory->notes});
  }

  void fill(Reading& reading, const Row& row, Instant at) {
    if (driver.absence != Absence::none) return unknown(reading, driver.absence, driver.unanswered);
    if (row.gpu == Row::kNobody) return unknown(reading, Absence::lost);
    if (row.gpu >= seen.size()) return unknown(reading, Absence::too_many);
    Seen& one = seen[row.gpu];
    if (one.round != requested) {
      if (one.avoid_until > at) {
        const bool silent = one.why_avoided == Absence::no_answer;
        return unknown(reading, one.why_avoided, silent ? at - one.avoided_since + patience : Duration{});
      }
      const std::int64_t busy = shared != nullptr ? shared->slots[row.gpu].busy_since.load() : 0;
      return unknown(reading, wakes(static_cast<unsigned>(row.gpu), at) ? Absence::waking : Absence::no_answer,
                     busy > 0 ? at - Instant(Duration(busy)) : at - round_began);
    }
    if (row.part == Row::kNobody)
      std::swap(reading, one.answer.gpu);  // its old memory is used again
    else if (row.part < one.answer.parts.size())
      std::swap(reading, one.answer.parts[row.part]);
    else
      unknown(reading, Absence::lost);
  }

  // Openers that could not be looked at, and MIG devices, which have no file of their own, are unknown.
  void add_machine(Snapshot& snapshot) {
    for (std::size_t i = 0; i < rows.size() && options.openers; ++i) {
      Reading& reading = snapshot.readings[i];
      const Row& row = rows[i];
      if (row.part != Row::kNobody)
        reading.miss(Metric::openers, Absence::not_supported);
      else if (!machine_known || row.gpu >= machine.holders.size())
        reading.miss(Metric::openers, driver.absence != Absence::none                        ? driver.absence
                                      : shared != nullptr && shared->machine.busy_since != 0 ? Absence::looking
                                                                                             : Absence::no_answer);
      else if (machine.holders[row.gpu].absence != Absence::none)
        reading.miss(Metric::openers, machine.holders[row.gpu].absence);
      else
        reading.set(Metric::openers, machine.holders[row.gpu].count);
      const bool known = reading.why_missing(Metric::openers) == Absence::none;
      reading.openers_span = known ? std::max(Duration::zero(), snapshot.asked - machine.holders_began) : Duration{};
    }
    if (!machine_known || shared == nullptr) return;
    add_process_info(machine.process_info, snapshot.readings);
    if (!machine.topology) return;
    snapshot.topology = std::make_shared<const Topology>(topology_of(rows, *machine.topology));
  }

  void hand_over(Snapshot& into) {
    taken = done;
    std::swap(into, published);
  }

  const SamplerOptions options;
  const Duration patience;                                  // with one GPU's call
  const std::optional<std::vector<unsigned>> only_numbers;  // no others are asked
  Fd wakeup;

  std::uint64_t requested = 0;
  std::uint64_t with_lists = 0;  // the newest that wants fresh ones
  std::uint64_t done = 0;
  std::uint64_t taken = 0;  // by the owner
  Instant round_began{};
  Instant clock_from{};   // the deadline counts from here: opening and attaching have limits of their own
  Instant last_sign{};    // when we asked, or something new stood in the shared memory
  Instant last_answer{};  // when a GPU's answer did
  Instant last_look{};
  unsigned answered_before = 0;
  unsigned restarts = 0;  // within this round

  SensorMemory* shared = nullptr;  // null: there is no sensor
  Fd shared_file;                  // of a sensor that is a program
  Process sensor;
  Fd lifeline;          // of a sensor that is apart
  bool opened = false;  // by this sensor
  Instant started{};
  Instant opened_at{};
  Instant not_before{};   // the next start
  unsigned failures = 0;  // starts in a row that led to nothing
  std::vector<Left> left;

  DriverState driver;
  std::string driver_version;
  std::string library;
  std::vector<Seen> seen;
  FirstReports first_reports;  // outlives the sensor
  std::optional<CardLearners> learners;
  std::shared_ptr<const Inventory> met;  // that they were told of
  std::uint32_t unread = 0;              // GPUs beyond those, which are not read
  MachineReport machine;
  bool machine_known = false;
  std::vector<std::byte> copied;  // a message is copied out before it is judged
  std::shared_ptr<const Inventory> inventory = std::make_shared<Inventory>();
  std::vector<Row> rows;
  bool rearrange = false;
  Snapshot published;  // the newest; once it is taken, the buffer of the next but one
};

std::unique_ptr<Sampler> Sampler::start(SamplerOptions options) {
  return std::unique_ptr<Sampler>(new Sampler(std::make_unique<Core>(std::move(options))));
}

Sampler::Sampler(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Sampler::~Sampler() = default;

void Sampler::request(bool fresh_lists) {
  if (core_->under_way()) return;
  core_->request(fresh_lists);
  if (!core_->under_way()) (void)::eventfd_write(core_->wakeup.get(), 1);  // there was no sensor to ask
}

int Sampler::event_fd() { return core_->wakeup.get(); }

Instant Sampler::look_by() const { return core_->under_way() ? core_->look_by() : Instant::max(); }

bool Sampler::take(Snapshot& into) {
  eventfd_t rings = 0;
  (void)::eventfd_read(core_->wakeup.get(), &rings);  // does not wait
  core_->advance();
  if (core_->taken == core_->done) return false;
  core_->hand_over(into);
  return true;
}

void Sampler::wait(Snapshot& into) { (void)wait_for(into, Duration::max()); }

bool Sampler::wait_for(Snapshot& into, Duration limit) {
  Core& core = *core_;
  const Instant began = SystemClock().now();
  for (core.advance(); core.under_way(); core.advance()) {
    const Instant at = SystemClock().now();
    if (at - began >= limit) return false;
    const Duration left = std::min(core.look_by() - at, limit - (at - began));
    const timespec pause{.tv_sec = 0, .tv_nsec = std::clamp(left, Duration::zero(), Duration(999'999'999)).count()};
    std::array<pollfd, 2> events{{{core.wakeup.get(), POLLIN, 0}, {core.sensor.fd(), POLLIN, 0}}};
    (void)::ppoll(events.data(), events.size(), &pause, nullptr);
    eventfd_t rings = 0;
    (void)::eventfd_read(core.wakeup.get(), &rings);
  }
  if (core.taken < core.done) core.hand_over(into);
  return true;
}

void Sampler::sample(Snapshot& into) {
  request();
  wait(into);
}

Snapshot Sampler::sample() {
  Snapshot snapshot;
  sample(snapshot);
  return snapshot;
}

void Sampler::release_driver() { core_->release_driver(); }

}  // namespace lull
