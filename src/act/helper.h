#pragma once
// Runs a helper beside the job (a hook, curl, shutdown, gdb) in the loop: started,
// given its input, ended with all that came of it, daemons included, when its time is up,
// and the outcome handed over. Nothing here blocks.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "act/cgroup.h"
#include "act/children.h"
#include "act/spawn.h"
#include "act/tree.h"
#include "loop/loop.h"

namespace lull {

struct HelperOptions {
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::string input = {};  // its stdin
  Duration limit = std::chrono::seconds(30);
  std::string output_file = {};  // its stdout; empty: ours is stderr for it
  bool capture = false;          // its stdout comes back as text
  bool quiet = false;            // its stderr goes where its stdout goes
  const InheritedSignals* signals = nullptr;
};

struct HelperResult {
  std::optional<ExitStatus> status;  // nothing: it could not be started, or ran out of time
  bool timed_out = false;
  std::string trouble;  // in words; empty: it ended with 0
  std::string output;   // where wanted, cut at 64 KiB
  bool ok() const { return status && status->shell_status() == 0; }
};

class Helpers {
 public:
  using Done = std::function<void(const HelperResult&)>;
  Helpers(Loop& loop, Children& children, bool use_cgroup = true)
      : loop_(loop), children_(children), use_cgroup_(use_cgroup) {}
  ~Helpers();
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  // `on_start` learns of the process, so that a job's tree can leave it out.
  void run(const HelperOptions& options, Done done, const std::function<void(const Process&)>& on_start = nullptr);

 private:
  struct Running;
  static void end(Running& one);
  void finish(const std::shared_ptr<Running>& one, HelperResult result);

  Loop& loop_;
  Children& children_;
  bool use_cgroup_;
  std::vector<std::shared_ptr<Running>> running_;
  unsigned number_ = 0;
};

}  // namespace lull
