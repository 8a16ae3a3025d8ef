#pragma once
// Readings of the GPUs as a trace, until told to stop: what `lull record` does.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/exit_status.h"
#include "session/feed.h"
#include "session/sampling_session.h"
#include "session/trace_log.h"
#include "session/who.h"

namespace lull {

struct TraceSettings {
  Duration every = std::chrono::seconds(1);
  std::optional<Duration> length;
  std::string output;  // empty: standard output
  std::string gpus;
  trace::RowLayout layout;
};

class TraceSession {
 public:
  using Say = std::function<void(std::string_view)>;

  TraceSession(TraceSettings settings, World& world, Say say);

  SessionEnd run();

 private:
  std::optional<SessionEnd> begin(const Snapshot& first);
  std::optional<SessionEnd> take(const Snapshot& snapshot);
  std::optional<SessionEnd> add(const Snapshot& snapshot);
  void choose(const Snapshot& snapshot);
  void mention_oddities(const Snapshot& snapshot);
  SessionEnd failed(const Error& error);
  SessionEnd finish();

  TraceSettings settings_;
  Say say_;
  bool quiet_ = false;  // whoever read has gone away
  SamplingSession sampling_;
  SamplingCosts costs_;
  std::optional<TraceLog> log_;  // from the first snapshot on
  WhoFinder who_;
  std::vector<trace::Who> whos_;
  std::shared_ptr<const Inventory> inventory_;
  std::vector<std::size_t> devices_;
  std::optional<Instant> last_;
  Duration said_anchor_{};
  Absence driver_ = Absence::none;
  std::uint64_t count_ = 0;
  int gaps_ = 0;
};

}  // namespace lull
