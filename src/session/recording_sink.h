#pragma once
// A sink that also writes a trace of the job under watch: its GPUs, and beside them its
// own signals (cpu, io, quiet), so that rules on those can be replayed. Everything
// goes on to another sink. A trace that cannot be written is said once and given
// up: a job does not suffer for its recording.

#include <optional>
#include <string>
#include <vector>

#include "session/sink.h"
#include "session/trace_log.h"

namespace lull {

class RecordingSink final : public Sink {
 public:
  // `who`: of every row, since all of them are of one job.
  RecordingSink(Sink& next, TraceLog log, trace::Who who) : next_(next), log_(std::move(log)), who_(std::move(who)) {}

  // What a recording of a job holds.
  static trace::RowLayout layout(const std::string& path);

  void started() override { next_.started(); }
  void ticked(std::uint64_t tick) override { next_.ticked(tick); }
  void sampled(const Sampled& sampled, std::optional<Instant> acts_at) override;
  void happened(const Event& event) override { next_.happened(event); }
  void firing(const FiringFacts& facts, bool dry_run) override { next_.firing(facts, dry_run); }
  void did(const News& news) override { next_.did(news); }
  void note(Level level, std::string_view event, const std::string& text) override { next_.note(level, event, text); }

  // The session is over.
  void finish();

 private:
  void give_up(const Error& error);

  Sink& next_;
  std::optional<TraceLog> log_;
  trace::Who who_;
  bool begun_ = false;
  std::size_t rows_ = 0;
  std::vector<std::size_t> devices_;
  std::vector<trace::Who> whos_;
};

}  // namespace lull
