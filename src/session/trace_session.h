#pragma once
// Readings of the GPUs as a trace, until told to stop: what `lull record` does.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/exit_status.h"
#include "jobs/gpu_users.h"
#include "session/background.h"
#include "session/feed.h"
#include "session/own_signals.h"
#include "session/sampling_session.h"
#include "session/trace_log.h"
#include "trace/history.h"

namespace lull {

struct TraceSettings {
  Duration every = std::chrono::seconds(1);
  std::optional<Duration> length;
  std::string output;          // empty: standard output
  std::string history;         // instead: the folder of a file a day
  std::size_t days_kept = 90;  // of which so many stay
  bool to_stdout() const { return output.empty() && history.empty(); }
  std::string gpus;
  trace::RowLayout layout;
  std::vector<SignalSource> signals = {};  // of the user's own, that the layout has
};

// What was read of a process: it stays known while the process is listed, also once it is too late to read it.
struct UserName {
  std::uint64_t start_ticks = 0;
  std::string user;
  std::string command;
  std::string job;
};
using UserNames = std::map<pid_t, UserName>;
// What a row says of who uses a GPU. `reading`: that of the GPU; `leases`: all of them; `before`: the names of the last
// sample, `now` gets those of this one.
trace::UserCells user_cells(const std::string& host, const GpuUse& use, const Reading& reading,
                            const std::vector<LeaseInfo>& leases, const UserNames& before, UserNames& now);

class TraceSession {
 public:
  using Say = std::function<void(std::string_view)>;

  TraceSession(TraceSettings settings, World& world, Say say);

  SessionEnd run();

 private:
  std::optional<SessionEnd> begin(const Snapshot& first);
  std::optional<SessionEnd> take(const Snapshot& snapshot);
  std::optional<SessionEnd> add(const Snapshot& snapshot);
  Result<> open_history();
  Result<> open_day(trace::Day day);
  Result<> turn_day(const Snapshot& snapshot);
  void repack_days();
  void report_state(trace::RecorderState::Kind kind, const std::string& why = "");
  void choose(const Snapshot& snapshot);
  void mention_oddities(const Snapshot& snapshot);
  SessionEnd failed(const Error& error);
  SessionEnd finish();

  TraceSettings settings_;
  World& world_;
  Say say_;
  bool quiet_ = false;  // whoever read has gone away
  SamplingSession sampling_;
  SamplingCosts costs_;
  std::optional<OwnSignals> own_;
  std::optional<TraceLog> log_;  // from the first snapshot on
  Fd history_lock_;              // one recorder a folder
  trace::Day day_;               // of the file that is written
  Background repacking_;         // of the days before
  bool recording_ = false;       // rows were written, and .lock says so
  const std::string host_ = host_cell();
  std::string trouble_;  // that was said of who uses the GPUs
  std::vector<trace::UserCells> cells_;
  UserNames names_;  // of the processes in the last sample
  std::shared_ptr<const Inventory> inventory_;
  std::set<std::string> warned_;
  std::vector<std::size_t> devices_;
  std::optional<Instant> last_;
  Duration said_anchor_{};
  Absence driver_ = Absence::none;
  std::uint64_t count_ = 0;
  int gaps_ = 0;
};

}  // namespace lull
