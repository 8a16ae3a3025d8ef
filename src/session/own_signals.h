#pragma once
// The user's own signals of a session: asks their sources beside the loop, and has the newest value of each. A file or
// an endpoint is read by a process of its own (Background), a command runs as hooks do (World::run_tool). In a program
// with threads all are read by programs (lull-signal). No sample waits for them: one takes what is known by then,
// and what is not is unknown.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/signal_source.h"
#include "gpu/snapshot.h"
#include "session/background.h"
#include "session/world.h"
#include "signals/own_signal_state.h"

namespace lull {

class OwnSignals {
 public:
  // `every`: how often samples are taken.
  OwnSignals(World& world, const std::vector<SignalSource>& sources, Duration every);
  OwnSignals(const OwnSignals&) = delete;
  OwnSignals& operator=(const OwnSignals&) = delete;
  ~OwnSignals();

  std::function<void(const std::string& text)> on_note;  // that one is unknown, and why; that it is known again
  std::function<void()> on_read;                         // one has answered, or failed to

  // Asks those that are due. Not more often than a source can bear: files and endpoints once a second, commands every
  // five.
  void ask();
  // Asks all that have not been asked since then.
  void ask_since(Instant from);
  // Each has been asked since then, and has answered or failed to.
  bool read_since(Instant from) const;
  // What is known now. The rest is unknown, with the reason.
  void add_to(Facts& machine) const;
  // The same in words, where one is unknown.
  std::map<Metric, std::string> troubles() const;
  Duration longest_timeout() const;

 private:
  struct One;
  void start(One& one);
  void done(One& one, const Result<SignalReading>& reading);
  Absence why_unknown(const One& one) const;

  World& world_;
  Duration every_;
  std::vector<std::unique_ptr<One>> all_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for who calls back late
};

// Those of the sources that a rule looks at, or all.
std::vector<SignalSource> sources_of(const std::vector<SignalSource>& sources, const std::vector<Metric>& used);

// `lull-signal NAME=SOURCE`: reads one of them once, and ends. A program with threads (Python) must not fork, so it
// starts this for each reading (Background::start).
inline constexpr const char* kSignalName = "lull-signal";
Result<> signal_program(int argc, char** argv);  // main() of it

}  // namespace lull
