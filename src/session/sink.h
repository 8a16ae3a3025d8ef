#pragma once
// Where everything that a session sees and does is told: the console output of lull and of its drop-ins are sinks.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "act/action.h"
#include "act/facts.h"
#include "base/clock.h"
#include "base/level.h"
#include "engine/event.h"
#include "session/logger.h"
#include "view/progress.h"

namespace lull {

class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;

  virtual void started() {}
  virtual void ticked(std::uint64_t /*tick*/) {}  // counted from the start, which is 0
  // `acts_at`: during a warning, when the machine goes down.
  virtual void sampled(const Sampled&, std::optional<Instant> /*acts_at*/) {}
  virtual void happened(const Event& event) = 0;
  virtual void firing(const FiringFacts& facts, bool dry_run) = 0;
  virtual void did(const ActionEvent& action_event) = 0;
  virtual void note(Level level, std::string_view event, const std::string& text) = 0;
  // Where each GPU or job is judged by itself: a note about one of them, and how far all of them are at a sample.
  virtual void note_of(const LogSubject& /*about*/, Level level, std::string_view event, const std::string& text) {
    note(level, event, text);
  }
  virtual void sampled_each(const EachSampled&) {}
};

}  // namespace lull
