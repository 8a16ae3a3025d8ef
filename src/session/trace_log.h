#pragma once
// A trace that grows while a session runs: rows of some GPUs at each snapshot, by a
// clock that nobody can set, put on the disk often enough that a crash loses little.

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "gpu/snapshot.h"
#include "trace/rows.h"
#include "trace/writer.h"

namespace lull {

class TraceLog {
 public:
  // `path` is empty: standard output. What is there already is appended to.
  static Result<TraceLog> open(const std::string& path, trace::RowLayout layout);

  const std::string& note() const { return writer_.note(); }  // what was found and done on opening
  // Wall time is counted from here on.
  void begin(const Snapshot& first);
  Duration anchor() const { return anchor_; }  // from our clock to wall time

  // `who`: one for each of the devices, or none at all.
  Result<> add(const Snapshot& snapshot, std::span<const std::size_t> devices, const Facts& job, const Facts& machine,
               std::span<const trace::Who> who);
  Result<> close() { return writer_.close(); }

 private:
  TraceLog(trace::TraceWriter writer, trace::RowLayout layout, bool packed)
      : writer_(std::move(writer)), layout_(std::move(layout)), packed_(packed) {}

  trace::TraceWriter writer_;
  trace::RowLayout layout_;
  bool packed_;
  Duration anchor_{};
  Instant flushed_{};
  std::string rows_;
};

}  // namespace lull
