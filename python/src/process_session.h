#pragma once
// A session that watches the very process that it runs in, on a thread of its own: Python's lull.watch(). It judges by
// the GPUs that this process was given or has a context on, as `lull run` judges a job. Everything that it does goes
// through `Calls`; it takes no lock of Python's.

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sense/sampler_options.h"
#include "session/session.h"

namespace lull::python {

struct ProcessWatchSettings {
  SessionSettings common;
  bool repeat = false;
  std::string action;     // what is done, in words
  SensorProgram program;  // that asks the driver
};

// How it stands, for who asks.
struct ProcessWatchState {
  Truth idle = Truth::unknown;  // of the rule without its `for`
  bool armed = true;
  Duration held{};
  bool judging = false;
};

struct ProcessWatchCalls {
  // Does it, on whatever thread, by a leave that holds (which is asked on the thread that watches), and then calls
  // `done` there, once.
  std::function<void(const FiringFacts&, Action::Leave leave, std::function<void(Outcome)> done)> act;
  // Takes back what has not been done yet. False: it has been done.
  std::function<bool()> call_off;
  std::function<void(Level, const std::string& text)> say;
};

class ProcessWatch {
 public:
  // To be made on a thread that may look at the environment.
  static Result<std::unique_ptr<ProcessWatch>> make(ProcessWatchSettings settings, ProcessWatchCalls calls);
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;
  ~ProcessWatch();

  // Until stop(), or until it has acted. On the thread that watches.
  SessionEnd run();

  // From any thread.
  void stop();
  void keep(Duration time);
  void pause(bool paused);
  void beat();
  void set_environment(JobEnvironment environment);  // this process was given other GPUs
  ProcessWatchState state() const;
  bool held_back() const;                 // more time was asked for, or a pause
  void post(std::function<void()> task);  // to be called on the thread that watches

  Loop& loop();  // of that thread

 private:
  class World;
  class OutputStyle;
  class Watcher;
  ProcessWatch();

  const SystemClock clock_;
  std::unique_ptr<const ProcessWatchCalls> calls_;
  std::unique_ptr<World> world_;
  std::unique_ptr<OutputStyle> console_;
  std::unique_ptr<Watcher> watcher_;
  Fd wakeup_;
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
};

}  // namespace lull::python
