// lull.watch(): the thread that watches, and what Python says to it. lull/_watch.py has the rest.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <stdexcept>
#include <thread>

#include "base/process_start.h"
#include "base/units.h"
#include "callback.h"
#include "config/signal_source.h"
#include "errors.h"
#include "evidence.h"
#include "module.h"
#include "process_session.h"
#include "rule/policy.h"
#include "rule/quantity.h"
#include "session/end_program.h"
#include "shared_sampler.h"

namespace py = pybind11;

namespace lull::python {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kSignalCheck(20);

struct Settings {
  ProcessWatchSettings watch;
  std::optional<Duration> ends_after;  // the helper that ends this process waits so long first; none: there is none
  Duration grace{};
};

std::vector<std::string> given_texts(const std::vector<SignalSource>& sources) {
  std::vector<std::string> all;
  for (const SignalSource& source : sources) all.push_back(source.given);
  return all;
}

class Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(Settings settings, py::object act, py::object say)
      : program_(settings.watch.program),
        judged_{to_text(settings.watch.common.policy.idle), settings.watch.common.gpus,
                settings.watch.common.missing == WhenMissing::ignore ? "ignore" : "unknown",
                given_texts(settings.watch.common.signals)},
        ends_after_(settings.ends_after),
        grace_(settings.grace),
        kills_(settings.ends_after && act.is_none()),
        raises_(settings.ends_after && !act.is_none()),
        act_(std::move(act)),
        say_(std::move(say)) {
    watch_ = must(ProcessWatch::make(std::move(settings.watch),
                                     {.act = [this](const FiringFacts& facts, Action::Leave leave,
                                                    Done done) { fire(facts, std::move(leave), std::move(done)); },
                                      .call_off = [this] { return call_off(); },
                                      .say = [this](Level level, const std::string& text) { tell(level, text); }}),
                  Kind::error);
  }

  void start() {
    thread_ = start_thread([self = shared_from_this()] { self->watch_to_the_end(); });
  }

  // An error here must not end the program that we are in, and no wait for our end is without a limit.
  void watch_to_the_end() {
    SessionEnd end;
    contain([&] { end = watch_->run(); }, [&](const char* why) { end = {kExitFailure, why}; });
    const auto quiet = [](const char*) {};
    contain([&] { (void)call_off(); }, quiet);
    contain(
        [&] {
          if (!end.complaint.empty()) tell(Level::warning, "the watch has ended: " + end.complaint);
        },
        quiet);
    contain(
        [&] {
          const std::scoped_lock lock(mutex_);
          finished_ = true;
        },
        quiet);
    changed_.notify_all();
  }
  // For tests: something goes wrong on the thread that calls Python and on the one that watches. What is thrown is
  // no exception of the standard library, unless `known`.
  void fail_inside(bool known) {
    const auto fault = [known] {
      if (known) throw std::runtime_error("a fault for a test");
      throw 1;
    };
    callback_.post(fault);
    watch_->post(fault);
  }

  // A forked child has the object, but neither its threads nor anything to end.
  bool ours() const { return owner_ == ::getpid(); }
  void beat() {
    if (ours()) watch_->beat();
  }
  void keep(Duration time) {
    if (!ours()) return;
    watch_->keep(time);
    withdraw();
  }
  void pause(bool paused) {
    if (!ours()) return;
    watch_->pause(paused);
    if (paused) withdraw();
  }
  // pick() or release() has changed what this process was given.
  void look_at_environment() {
    if (ours()) watch_->set_environment(JobEnvironment::of_this_process());
  }
  bool active() const {
    if (!ours()) return false;
    const std::scoped_lock lock(mutex_);
    return !finished_;
  }
  std::shared_ptr<const FiringFacts> firing() const {
    if (!ours()) return nullptr;
    const std::scoped_lock lock(mutex_);
    return firing_;
  }
  ProcessWatchState state() const { return ours() ? watch_->state() : ProcessWatchState{}; }

  // True: it has fired. Called with the GIL, waits without it.
  bool wait(std::optional<double> timeout) {
    if (!ours()) return false;
    const SystemClock clock;
    const Instant end =
        timeout && *timeout < 1e9
            ? clock.now() + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::max(*timeout, 0.0)))
            : Instant::max();
    while (true) {
      {
        const py::gil_scoped_release release;
        std::unique_lock lock(mutex_);
        if (firing_ || finished_) return firing_ != nullptr;
        if (clock.now() >= end) return false;
        changed_.wait_for(lock, std::min<Duration>(kSignalCheck, end - clock.now()));
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
  }

  void close() {
    if (!ours() || !thread_.joinable()) return;
    watch_->stop();
    while (true) {
      bool finished = false;
      {
        const py::gil_scoped_release release;
        std::unique_lock lock(mutex_);
        finished = changed_.wait_for(lock, kSignalCheck, [&] { return finished_; });
        lock.unlock();
        if (finished) thread_.join();
      }
      if (finished) break;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    callback_.finish();
    act_ = py::none();
    say_ = py::none();
  }

 private:
  using Done = std::function<void(Outcome)>;
  // Of a firing.
  enum class Step : std::uint8_t {
    none,
    asked,    // for a confirmation
    offered,  // it may be done until may_until_
    taken,    // it is being done
  };

  // More time was asked for: what was confirmed and has not begun is not done any more. From any thread.
  void withdraw() {
    const std::scoped_lock lock(mutex_);
    if (offer_ ? !offer_->withdraw() : step_ != Step::offered) return;
    if (step_ == Step::offered) step_ = Step::none;
    watch_->post([self = shared_from_this()] {
      if (self->done_) self->give_up();
    });
  }

  void tell(Level level, const std::string& text) {
    callback_.post([self = shared_from_this(), level, text] {
      if (!self->say_.is_none()) self->say_(static_cast<int>(level), text);
    });
  }

  // ---- on the thread that watches; it takes no lock of Python's

  void fire(const FiringFacts& facts, Action::Leave leave, Done done) {
    leave_ = std::move(leave);
    done_ = std::move(done);
    {
      const std::scoped_lock lock(mutex_);
      fires_ = std::make_shared<const FiringFacts>(facts);
      step_ = Step::asked;
    }
    if (ends_after_) {
      if (const auto started = start_end(); !started) {
        if (kills_) return finish({false, started.error().message()});
        tell(Level::important, started.error().message());
      }
    }
    if (!kills_) offer();  // else the helper asks, once it is ready
  }

  void finish(const Outcome& how) {
    {
      const std::scoped_lock lock(mutex_);
      step_ = Step::none;
      offer_.reset();
    }
    hang_up();
    helper_ = Process();
    if (const Done done = std::exchange(done_, nullptr)) done(how);
  }

  // False: it has been done.
  bool call_off() {
    if (line_) hear();
    {
      const std::scoped_lock lock(mutex_);
      // Where the helper has taken it and has not said so yet, the signal is on its way.
      if (step_ == Step::taken || (offer_ && !offer_->withdraw() && offer_->taken())) return false;
      step_ = Step::none;
      offer_.reset();
    }
    hang_up();
    if (helper_) (void)helper_.signal(SIGKILL);
    helper_ = Process();
    done_ = nullptr;
    return true;
  }

  // A confirmation is good for a moment, and Python's lock may be had later: who has it looks once more.
  void offer() {
    {
      const std::scoped_lock lock(mutex_);
      if (step_ != Step::asked) return;
      step_ = Step::offered;
      may_until_ = leave_.until();
    }
    callback_.post([self = shared_from_this()] { self->call(); });
  }

  void confirm_again() {
    if (done_) leave_.again([self = shared_from_this()] { self->offer(); });
  }

  // ---- with Python's lock

  void call() {
    if (raises_) return call_to_raise();
    if (!take_leave()) return;
    if (!act_.is_none()) {
      try {
        act_(Firing{firing()});
      } catch (py::error_already_set& error) {
        error.discard_as_unraisable("lull.watch");
      }
    }
    watch_->post([self = shared_from_this()] { self->finish({}); });
  }

  // The main thread raises, when it comes to it: by then it may be too late, so it asks itself.
  void call_to_raise() {
    std::shared_ptr<const FiringFacts> fires;
    {
      const std::scoped_lock lock(mutex_);
      if (step_ != Step::offered) return;
      fires = fires_;
    }
    const py::cpp_function take([self = shared_from_this()] {
      if (!self->take_leave()) return false;
      self->watch_->post([self] { self->finish({}); });
      return true;
    });
    try {
      act_(Firing{fires}, take);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("lull.watch");
    }
  }

  // True: it may be done, and is from now on.
  bool take_leave() {
    const SystemClock clock;
    const bool held_back = watch_->held_back();
    bool late = false;
    {
      const std::scoped_lock lock(mutex_);
      if (step_ != Step::offered) return false;
      late = !held_back && clock.now() > may_until_;
      step_ = held_back ? Step::none : late ? Step::asked : Step::taken;
      if (step_ == Step::taken) firing_ = fires_;
    }
    if (held_back)
      watch_->post([self = shared_from_this()] {
        if (self->done_) self->give_up();
      });
    else if (late)
      watch_->post([self = shared_from_this()] { self->confirm_again(); });
    else
      changed_.notify_all();
    return !held_back && !late;
  }

  // Nothing: since more time was asked for.
  void give_up(const std::string& trouble = "") {
    hang_up();
    const Done done = done_;
    (void)call_off();
    if (done) done({.ok = trouble.empty(), .trouble = trouble, .called_off = trouble.empty()});
  }

  // ---- the helper: another process ends us, since we may be unable to

  void hang_up() {
    if (line_) watch_->loop().forget(line_.get());
    line_.reset();
  }

  // 'c': it is ready, or what it was told is too old: it asks for a confirmation. 's': the signal is on its way.
  void hear() {
    char word = 0;
    const ssize_t got = ::recv(line_.get(), &word, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got == 1 && word == 'c') {
      if (!std::exchange(told_, true) && leave_.holds()) return tell_helper();
      return leave_.again([self = shared_from_this()] { self->tell_helper(); });
    }
    if (got != 1 || word != 's') return give_up("lull-end has ended");
    {
      const std::scoped_lock lock(mutex_);
      firing_ = fires_;
      step_ = Step::taken;
    }
    changed_.notify_all();
    watch_->post([self = shared_from_this()] { self->finish({}); });
  }

  void tell_helper() {
    // In this order: who asks for more time says so first, and then withdraws what is offered.
    if (offer_) offer_->put();
    if (watch_->held_back()) return give_up();
    const std::int64_t until = leave_.until().time_since_epoch().count();
    if (line_) (void)::send(line_.get(), &until, sizeof until, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  Result<> start_end() {
    const Fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    if (!self) return fail(errno, "a handle of this process");
    std::array<int, 2> ends = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
      return fail(errno, "a pair of sockets");
    Fd line(ends[0]);
    const Fd far(ends[1]);
    std::vector<int> given = {self.get(), far.get()};
    if (kills_) {
      auto offer = SharedOffer::make();
      if (!offer) return std::unexpected(std::move(offer).error());
      const std::scoped_lock lock(mutex_);
      offer_.emplace(*std::move(offer));
      given.push_back(offer_->fd());
    }
    const auto millis = [](Duration time) { return std::to_string(time / 1ms) + "ms"; };
    std::vector<std::string> arguments = {
        "lull-end",     std::to_string(::getpid()), millis(*ends_after_), millis(grace_), judged_.rule, judged_.gpus,
        judged_.missing};
    arguments.emplace_back(kills_ ? "ask" : "-");
    arguments.insert(arguments.end(), judged_.signals.begin(), judged_.signals.end());
    auto started = start_program({program_.path, std::move(arguments), program_.environment}, given);
    if (!started) return std::unexpected(std::move(started).error());
    helper_ = *std::move(started);
    told_ = false;
    if (!kills_) return {};
    line_ = std::move(line);
    return watch_->loop().on_ready(line_.get(), [this] { hear(); });
  }

  const pid_t owner_ = ::getpid();
  const SensorProgram program_;  // whose program also ends us
  struct Judged {
    std::string rule;
    std::string gpus;
    std::string missing;
    std::vector<std::string> signals;
  };
  const Judged judged_;  // by which who ends us looks whether we work
  const std::optional<Duration> ends_after_;
  const Duration grace_;
  const bool kills_;   // by the helper alone
  const bool raises_;  // an exception, in the main thread
  py::object act_;
  py::object say_;
  std::unique_ptr<ProcessWatch> watch_;
  Callback callback_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const FiringFacts> firing_;  // the newest that was acted on
  std::shared_ptr<const FiringFacts> fires_;   // the newest
  Step step_ = Step::none;
  Instant may_until_{};
  std::optional<SharedOffer> offer_;  // to the helper, with kills_
  bool finished_ = false;

  // Of the thread that watches.
  Action::Leave leave_;
  Done done_;
  Process helper_;
  Fd line_;            // to it
  bool told_ = false;  // on it that it may act
};

// Every watch that was started and not closed: it goes on without a reference to it. Used with the GIL, never
// destroyed.
std::vector<std::shared_ptr<Watch>>& started_watches() {
  static auto* const all = new std::vector<std::shared_ptr<Watch>>;
  return *all;
}

// What Python holds. In a forked child the insides are left as they are: a thread is missing that they would wait for.
struct WatchHandle {
  std::shared_ptr<Watch> watch;
};

Duration time_of(const char* name, const std::string& text) {
  auto time = parse_duration(text);
  if (!time) throw Complaint(Kind::usage, std::string(name) + ": " + time.error().message());
  return *time;
}

Rule rule_of(const char* name, const std::string& text) {
  auto rule = parse_rule(text);
  if (!rule) throw Complaint(Kind::rule, std::string(name) + ": " + rule.error().message());
  return *std::move(rule);
}

Settings settings_of(const py::dict& given) {
  const auto text = [&](const char* name) { return given[name].cast<std::string>(); };
  Settings settings;
  SessionSettings& common = settings.watch.common;
  auto sources = signals_with({}, given["signals"].cast<std::vector<std::string>>(), "signals=");  // rules name them
  if (!sources) throw Complaint(Kind::usage, sources.error().message());
  common.signals = *std::move(sources);
  for (const SignalSource& source : common.signals)
    if (source.given.find('\0') != std::string::npos)
      throw Complaint(Kind::usage, "signals=: " + source.name + " has a zero byte in it");
  auto idle = rule_or_span(text("idle"), "util < 1 for 30m");
  if (!idle) throw Complaint(Kind::rule, "idle: " + idle.error().message());
  common.policy.idle = *std::move(idle);
  if (const auto arm = text("arm"); !arm.empty()) common.policy.arm = rule_of("arm", arm);
  common.every = time_of("every", text("every"));
  if (common.every < 10ms) throw Complaint(Kind::usage, "every: at least 10ms");
  common.delay = time_of("delay", text("delay"));
  common.gpus = text("gpus");
  common.gpus_option = "gpus=";
  common.dry_run = given["dry_run"].cast<bool>();
  const auto missing = missing_option(text("missing"), "missing");
  if (!missing) throw Complaint(Kind::usage, missing.error().message());
  common.missing = *missing;
  settings.watch.repeat = given["repeat"].cast<bool>();
  common.policy.rearm = settings.watch.repeat && common.policy.arm.has_value();
  settings.watch.action = text("action");
  settings.watch.program = sensor_program_of_now();
  if (const auto ends = text("ends_after"); !ends.empty()) settings.ends_after = time_of("grace", ends);
  settings.grace = time_of("grace", text("grace"));
  return settings;
}

}  // namespace

void add_watch(py::module_& module) {
  py::class_<WatchHandle>(module, "_Watch")
      .def(py::init([](const py::dict& given, py::object act, py::object say) {
        auto watch = std::make_shared<Watch>(settings_of(given), std::move(act), std::move(say));
        watch->start();
        started_watches().push_back(watch);
        return WatchHandle{std::move(watch)};
      }))
      .def("beat", [](const WatchHandle& it) { it.watch->beat(); })
      .def("keep", [](const WatchHandle& it, const std::string& time) { it.watch->keep(time_of("keep", time)); })
      .def("pause", [](const WatchHandle& it, bool paused) { it.watch->pause(paused); })
      .def("wait", [](const WatchHandle& it, std::optional<double> timeout) { return it.watch->wait(timeout); })
      .def("_fail_inside", [](const WatchHandle& it, bool known) { it.watch->fail_inside(known); })
      .def("close",
           [](const WatchHandle& it) {
             it.watch->close();
             std::erase(started_watches(), it.watch);
           })
      .def_property_readonly("active", [](const WatchHandle& it) { return it.watch->active(); })
      .def_property_readonly("firing",
                             [](const WatchHandle& it) -> std::optional<Firing> {
                               auto facts = it.watch->firing();
                               return facts ? std::optional(Firing{std::move(facts)}) : std::nullopt;
                             })
      .def_property_readonly("idle",
                             [](const WatchHandle& it) -> std::optional<bool> {
                               const Truth idle = it.watch->state().idle;
                               return idle == Truth::unknown ? std::nullopt : std::optional(idle == Truth::yes);
                             })
      .def_property_readonly("armed", [](const WatchHandle& it) { return it.watch->state().armed; })
      .def_property_readonly("judging", [](const WatchHandle& it) { return it.watch->state().judging; })
      .def_property_readonly("held", [](const WatchHandle& it) { return rounded(to_seconds(it.watch->state().held)); });
  module.def("_look_at_environment", [] {
    for (const auto& watch : started_watches()) watch->look_at_environment();
  });
  // In the main thread, at its next step; what it raises is raised there.
  module.def("_call_in_main", [](py::object call) {
    const auto run = [](void* what) {
      const auto given = py::reinterpret_steal<py::object>(static_cast<PyObject*>(what));
      const auto result = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(given.ptr()));
      return result ? 0 : -1;
    };
    PyObject* what = call.release().ptr();
    if (Py_AddPendingCall(run, what) != 0) Py_DECREF(what);  // too many wait; the helper sees to our end
  });
  module.def("_close_watches", [] {
    while (!started_watches().empty()) {
      const std::shared_ptr<Watch> last = started_watches().back();
      if (last->ours()) last->close();
      std::erase(started_watches(), last);
      if (!last->ours()) (void)new std::shared_ptr<Watch>(last);  // never destroyed here: that is its parent's
    }
  });
}

}  // namespace lull::python
