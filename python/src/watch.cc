// lull.watch(): the thread that watches, and what Python says to it. lull/_watch.py has the rest.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <thread>

#include "base/beside.h"
#include "base/units.h"
#include "errors.h"
#include "evidence.h"
#include "eyes.h"
#include "module.h"
#include "process_session.h"
#include "rule/policy.h"
#include "speaker.h"

namespace py = pybind11;

namespace lull::python {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kHearSignals(20);

struct Settings {
  ProcessWatchSettings watch;
  std::optional<Duration> ends_after;  // the helper that ends this process waits so long first; none: there is none
  Duration grace{};
};

class Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(Settings settings, py::object act, py::object say)
      : program_(settings.watch.program),
        ends_after_(settings.ends_after),
        grace_(settings.grace),
        act_(std::move(act)),
        say_(std::move(say)) {
    watch_ =
        must(ProcessWatch::make(std::move(settings.watch),
                                {.act = [this](const FiringFacts& facts,
                                               std::function<void(Outcome)> done) { fire(facts, std::move(done)); },
                                 .say = [this](Level level, const std::string& text) { tell(level, text); }}),
             Kind::error);
  }

  void start() {
    thread_ = start_thread([self = shared_from_this()] {
      const SessionEnd end = self->watch_->run();
      if (!end.complaint.empty()) self->tell(Level::warning, "the watch has ended: " + end.complaint);
      const std::scoped_lock lock(self->mutex_);
      self->finished_ = true;
      self->changed_.notify_all();
    });
  }

  // A forked child has the object, but neither its threads nor anything to end.
  bool ours() const { return owner_ == ::getpid(); }
  void beat() {
    if (ours()) watch_->beat();
  }
  void keep(Duration time) {
    if (ours()) watch_->keep(time);
  }
  void pause(bool paused) {
    if (ours()) watch_->pause(paused);
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
        changed_.wait_for(lock, std::min<Duration>(kHearSignals, end - clock.now()));
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
        finished = changed_.wait_for(lock, kHearSignals, [&] { return finished_; });
        lock.unlock();
        if (finished) thread_.join();
      }
      if (finished) break;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    speaker_.finish();
    act_ = py::none();
    say_ = py::none();
  }

 private:
  void tell(Level level, const std::string& text) {
    speaker_.post([self = shared_from_this(), level, text] {
      if (!self->say_.is_none()) self->say_(static_cast<int>(level), text);
    });
  }

  // On the thread that watches; it takes no lock of Python's.
  void fire(const FiringFacts& facts, std::function<void(Outcome)> done) {
    auto kept = std::make_shared<const FiringFacts>(facts);
    if (ends_after_) {
      if (const auto started = start_end(); !started) tell(Level::important, started.error().message());
    }
    {
      const std::scoped_lock lock(mutex_);
      firing_ = kept;
    }
    changed_.notify_all();
    speaker_.post([self = shared_from_this(), kept, done = std::move(done)] {
      if (!self->act_.is_none()) {
        try {
          self->act_(Firing{kept});
        } catch (py::error_already_set& error) {
          error.discard_as_unraisable("lull.watch");
        }
      }
      self->watch_->post([done] { done({}); });
    });
  }

  // Somebody outside sees to our end: we may be unable to.
  Result<> start_end() {
    const Fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    if (!self) return fail(errno, "a handle of this process");
    const std::array given = {self.get()};
    const auto millis = [](Duration time) { return std::to_string(time / 1ms) + "ms"; };
    auto started = start_beside({program_.path,
                                 {"lull-end", std::to_string(::getpid()), millis(*ends_after_), millis(grace_)},
                                 program_.environment},
                                given);
    if (!started) return std::unexpected(std::move(started).error());
    return {};
  }

  const pid_t owner_ = ::getpid();
  const SensorProgram program_;  // whose program also ends us
  const std::optional<Duration> ends_after_;
  const Duration grace_;
  py::object act_;
  py::object say_;
  std::unique_ptr<ProcessWatch> watch_;
  Speaker speaker_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const FiringFacts> firing_;
  bool finished_ = false;
};

// Every watch that was started and not closed: it goes on when nobody has a name for it. Used with the GIL, never
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
  common.policy.idle = rule_of("idle", text("idle"));
  if (const auto arm = text("arm"); !arm.empty()) common.policy.arm = rule_of("arm", arm);
  common.every = time_of("every", text("every"));
  if (common.every < 10ms) throw Complaint(Kind::usage, "every: at least 10ms");
  common.delay = time_of("delay", text("delay"));
  common.gpus = text("gpus");
  common.dry_run = given["dry_run"].cast<bool>();
  const auto missing = text("missing");
  if (missing != "unknown" && missing != "ignore")
    throw Complaint(Kind::usage, "missing: 'unknown' or 'ignore', not '" + missing + "'");
  common.missing = missing == "ignore" ? WhenMissing::ignore : WhenMissing::unknown;
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
      .def_property_readonly(
          "held", [](const WatchHandle& it) { return std::chrono::duration<double>(it.watch->state().held).count(); });
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
