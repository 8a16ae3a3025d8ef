#pragma once
// The machine as a session needs it: time, samples, a job, actions. The real one is Machine (machine.h); a test's lets
// a day pass in milliseconds (fake_world_test.h). Everything that a session does to the world goes through here.

#include <sys/signalfd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "act/action.h"
#include "act/actions.h"
#include "act/children.h"
#include "act/evidence.h"
#include "base/exit_status.h"
#include "base/process.h"
#include "base/result.h"
#include "gpu/snapshot.h"
#include "jobs/gpu_users.h"
#include "lease/folder.h"
#include "loop/loop.h"
#include "sense/job.h"
#include "sense/sampler.h"
#include "session/sample_source.h"

namespace lull {

// A command that we started, with all its processes.
class Job {
 public:
  Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  virtual ~Job() = default;

  virtual pid_t pid() const = 0;
  virtual bool contains(pid_t pid) const = 0;
  // Costs more than sampling the GPUs, and grows with the job.
  virtual std::vector<ProcessEntry> members() const = 0;
  virtual JobUsage usage(const std::vector<ProcessEntry>& members, const std::vector<ProcessEntry>& outside,
                         Instant at) = 0;

  // We got this signal, and it is meant for the job.
  virtual void forward(const signalfd_siginfo& info) = 0;
  virtual void go_on() = 0;  // SIGCONT
  // The job was stopped: if that means us as well (Ctrl-Z), we stop too, and continue with it. True: we did.
  virtual bool stop_with_it(int signal) = 0;
  virtual void restore_terminal() = 0;  // as it was before the job had it

  // What can be done about it.
  virtual std::unique_ptr<Action> evidence(const std::string& folder, const Recorder& recorder) = 0;
  virtual std::unique_ptr<Action> hook(const std::string& line, Duration limit) = 0;
  virtual std::unique_ptr<Action> ending(Ending::Options options) = 0;
  // Null: cannot be had here.
  virtual std::unique_ptr<Action> parking(const ParkOptions& /*options*/, Ending::Options /*ending*/) {
    return nullptr;
  }
};

struct JobOptions {
  std::vector<std::string> command;
  bool use_cgroup = true;
  bool count_io = false;
};
struct JobCalls {
  std::function<void(const ExitStatus&)> ended;
  std::function<void(int signal)> stopped;  // 0: it runs again
};

class World : public Senses {
 public:
  using OnSignal = std::function<void(const signalfd_siginfo&)>;

  // SIGCHLD among them is told after our children have been looked at.
  virtual Result<> listen(const std::vector<int>& signals, OnSignal on_signal) = 0;
  // SIGINT and SIGTERM stop the loop; `end` then says so.
  Result<> stop_on_signals(SessionEnd& end) {
    return listen({SIGINT, SIGTERM, SIGCHLD}, [this, &end](const signalfd_siginfo& info) {
      if (info.ssi_signo == SIGCHLD) return;
      end = ended_by(static_cast<int>(info.ssi_signo));
      loop().stop();
    });
  }
  // Runs the loop until it is stopped, and returns what `end` is then.
  SessionEnd run(const SessionEnd& end) {
    const auto ran = loop().run();
    return ran ? end : SessionEnd{kExitFailure, ran.error().message()};
  }
  // Where a session looks at processes that it does not know by its job, and at the device files they hold.
  virtual Root root() { return {.dev = Root::machine().dev}; }
  virtual double user_idle() = 0;  // seconds; unknown where the terminals cannot be looked at
  // errno_value of the error is exec's own.
  virtual Result<std::unique_ptr<Job>> start(const JobOptions& options, JobCalls calls) = 0;
  virtual std::vector<std::unique_ptr<Action>> actions_of(const ActionOption& word, const ActionOptions& options) = 0;
  // Which processes use each GPU: one for all who ask.
  const std::shared_ptr<GpuUsers>& users() {
    if (!users_) users_ = make_users();
    return users_;
  }
  // `who` is asked when it begins.
  virtual std::unique_ptr<Action> end_holders(const std::string& text, Ending::Options options,
                                              EndHolders::Who who) = 0;
  // Null: cannot be had here.
  virtual std::unique_ptr<Action> parking(const std::string& /*text*/, const ParkOptions& /*options*/,
                                          ParkJob::Who /*who*/, std::unique_ptr<Action> /*otherwise*/) {
    return nullptr;
  }
  // Of processes that are not ours: none of them is stopped for it. Null: cannot be had here.
  virtual std::unique_ptr<Action> evidence(const std::string& /*folder*/, const Recorder& /*recorder*/) {
    return nullptr;
  }
  virtual void stop_ourselves() = 0;  // as Ctrl-Z would; returns when we go on
  // What is started instead of a fork where we are one of several threads. Null: we may fork.
  virtual const SensorProgram* program() const { return nullptr; }
  // Runs a helper beside what is watched; all that it prints comes back as text.
  virtual void run_helper(const std::vector<std::string>& command, Duration /*limit*/, Helpers::Done done) {
    HelperResult result;
    result.trouble = command.front() + " cannot be run here";
    done(result);
  }
  // The same for the classes of slurm/.
  auto runner() {
    return [this](const std::vector<std::string>& command, Duration limit, Helpers::Done done) {
      run_helper(command, limit, std::move(done));
    };
  }
  // The same, with all that a helper can be given.
  virtual void run_tool(const HelperOptions& options, Helpers::Done done) {
    HelperResult result;
    result.trouble = options.arguments.front() + " cannot be run here";
    done(result);
  }

 protected:
  virtual std::shared_ptr<GpuUsers> make_users() {
    return std::make_shared<GpuUsers>(root(), [] { return read_leases(); });
  }

 private:
  std::shared_ptr<GpuUsers> users_;
};

}  // namespace lull
