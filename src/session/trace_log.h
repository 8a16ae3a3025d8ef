#pragma once
// A trace that grows while a session runs: rows of some GPUs at each snapshot, by a
// clock that cannot be set, put on the disk often enough that a crash loses little.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "config/signal_source.h"
#include "gpu/snapshot.h"
#include "rule/policy.h"
#include "session/sink.h"
#include "trace/rows.h"
#include "trace/writer.h"

namespace lull {

std::string host_cell();  // of a row: this machine

class TraceLog {
 public:
  // `path` is empty: standard output. What is there already is appended to. Packed rows wait for some seconds, so that
  // their frames are not small; with `each_sample` they do not.
  static Result<TraceLog> open(const std::string& path, trace::RowLayout layout, bool each_sample = false);

  const std::string& note() const { return writer_.note(); }  // what was found and done on opening
  // Wall time is counted from here on.
  void begin(const Snapshot& first);
  Duration anchor() const { return anchor_; }  // from our clock to wall time

  // `who`: one for each of the devices, or none at all.
  Result<> add(const Snapshot& snapshot, std::span<const std::size_t> devices, const Facts& job, const Facts& machine,
               std::span<const trace::UserCells> who);
  Result<> close() { return writer_.close(); }

 private:
  TraceLog(trace::TraceWriter writer, trace::RowLayout layout, bool waits)
      : writer_(std::move(writer)), layout_(std::move(layout)), waits_(waits) {}

  trace::TraceWriter writer_;
  trace::RowLayout layout_;
  bool waits_;
  Duration anchor_{};
  Instant flushed_{};
  std::string rows_;
};

// A sink that also writes a trace of the job under watch: its GPUs, and beside them its
// own signals (cpu, io, quiet), so that rules on those can be replayed. Everything
// goes on to another sink. A trace that cannot be written is said once and given
// up: a job does not suffer for its recording.
class RecordingSink final : public Sink {
 public:
  // `who`: of every row, since all of them are of one command. Each start of it is a job of its own.
  RecordingSink(Sink& next, TraceLog log, trace::UserCells who)
      : next_(next), log_(std::move(log)), who_(std::move(who)), job_(who_.job) {}

  // What a recording of a job holds: what is cheap to read, what the rules look at, and the user's own signals.
  static trace::RowLayout layout(const std::string& path, const Policy& policy = {},
                                 const std::vector<SignalSource>& signals = {});

  void started() override;
  void ticked(std::uint64_t tick) override { next_.ticked(tick); }
  void sampled(const Sampled& sampled, std::optional<Instant> acts_at) override;
  void happened(const Event& event) override { next_.happened(event); }
  void firing(const FiringFacts& facts, bool dry_run) override { next_.firing(facts, dry_run); }
  void did(const ActionEvent& action_event) override { next_.did(action_event); }
  void note(Level level, std::string_view event, const std::string& text) override { next_.note(level, event, text); }

  // The session is over.
  void finish();

 private:
  void give_up(const Error& error);

  Sink& next_;
  std::optional<TraceLog> log_;
  trace::UserCells who_;
  std::string job_;  // the name of the first; that of the second ends in .2
  int starts_ = 0;
  bool begun_ = false;
  std::size_t rows_ = 0;
  std::vector<std::size_t> devices_;
  std::vector<trace::UserCells> whos_;
};

}  // namespace lull
