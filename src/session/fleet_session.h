#pragma once
// `lull watch --from prometheus:URL --per job --slurm`: a judge for a whole cluster that runs on one machine, without a
// daemon on its nodes. Each interval it lists the jobs that run (squeue), learns once which GPUs each was given
// (scontrol), pulls the time that the rules look at from a Prometheus, and judges each job anew (fleet_judge.h). It
// remembers no sample. Nothing is done to a job before each of its GPUs has shown a sample that is newer than the
// firing, and without another look at what Slurm gave it.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "act/executor.h"
#include "base/exit_status.h"
#include "session/control.h"
#include "session/each_session.h"
#include "session/fleet_judge.h"
#include "session/sink.h"
#include "session/world.h"
#include "slurm/act_on_job.h"
#include "slurm/running_jobs.h"
#include "trace/prometheus_fetch.h"

namespace lull {

struct FleetSettings {
  EachSettings each;  // steps, users, hours, Slurm's policy
  trace::PrometheusQuery query;
  std::vector<trace::ColumnChoice> labels;
  bool same_order = false;  // exporters number GPUs as Slurm does
};
// Refuses what cannot be judged so: rules of the machine, other actions than those about a job.
Result<> check_fleet(const FleetSettings& settings);
std::string start_line(const FleetSettings& settings);

class FleetSession {
 public:
  FleetSession(FleetSettings settings, World& world, Sink& sink);
  FleetSession(const FleetSession&) = delete;
  FleetSession& operator=(const FleetSession&) = delete;
  ~FleetSession() { *here_ = false; }

  SessionEnd run();

 private:
  // One run of a job, or of a het job: what Slurm does to a component it does to all.
  struct Followed {
    slurm::RunningJob job;                      // a het job: its first component
    std::vector<slurm::RunningJob> components;  // itself, where it has no others
    std::vector<std::pair<std::string, unsigned>> gpus;
    std::map<std::string, unsigned> node_gpus;  // how many Slurm has on each of its nodes
    WallTime since{};                           // it has them, and runs
    bool known = false;                         // the two above, and `steps`
    std::string unclear;                        // why not
    std::vector<EachStep> steps;
    std::vector<FleetVerdict> verdicts;  // of each step, by the newest answer
    WallTime kept_until{};
    bool again = false;         // look at what Slurm gave it before it is judged
    slurm::GivenGpus learning;  // while that is being looked at, of the components so far
    std::map<std::string, unsigned> learning_nodes;
  };
  using Key = std::pair<std::string, std::uint32_t>;  // run and step
  struct Acting {
    std::vector<std::unique_ptr<Action>> actions;
    std::unique_ptr<Executor> executor;
    LogSubject about;
  };
  struct Waiting {
    std::string run;
    Instant since{};  // a sample of each GPU has to be newer, by the clock of Prometheus
    Instant until{};  // then it is given up, by our own
    std::function<void()> then;
  };

  Result<> prepare();
  void on_signal(const signalfd_siginfo& info);
  void look_in(Duration time);
  void look();
  void listed(const HelperResult& result);
  void follow(std::vector<slurm::RunningJob> jobs);
  bool left_alone(const slurm::RunningJob& job) const;
  void learn_next();
  void learn(const std::string& run, std::size_t component);
  void learn_node_gpus(const std::string& run, std::size_t component, const std::vector<std::string>& nodes);
  void learned(const std::string& run, std::string why);
  void pull();
  void pulled(const HelperResult& result);
  void judge(const std::vector<FleetGpu>& fleet, Instant now);
  void finish_look(std::string trouble);
  Duration reach() const;

  void fired(const Key& key);
  bool wanted(const Key& key) const;
  void confirm(const std::string& run, std::function<void()> then);
  void act_on(const Key& key);
  void done(const Key& key, bool all, bool called_off);
  bool keep_until(const std::string& run, std::uint32_t step, WallTime until);
  FiringFacts facts(const Followed& one, std::uint32_t step) const;
  std::unique_ptr<Action> through_slurm(const Key& key, const ActionOption& word);
  std::string on_cancel(const std::string& who);
  static LogSubject log_subject(const Followed& one);

  FleetSettings settings_;
  World& world_;
  Loop& loop_;
  Sink& sink_;
  std::vector<Metric> metrics_;
  std::string selector_;
  std::map<std::string, Followed> jobs_;  // by run
  std::vector<std::string> to_learn_;
  std::map<Key, Acting> acting_;
  std::vector<Waiting> waiting_;
  std::set<Key> done_;    // and the rule has held since
  std::set<Key> unsaid_;  // fired, and being confirmed
  std::map<std::uint64_t, std::unique_ptr<slurm::StartAgain>> starting_;
  std::map<std::string, std::string> said_of_;  // why a job is not judged, by its run
  std::optional<Control> control_;
  Timer timer_{loop_};
  bool looking_ = false;
  bool fresh_ = false;    // the newest look had an answer
  Instant looked_{};      // when that was
  Instant prometheus_{};  // and what time it was there, at the latest
  std::string trouble_;
  SessionEnd end_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace lull
