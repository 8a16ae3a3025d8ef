#pragma once
// The life of `lull fill`: samples, opens, leases and people go to the decisions (filling.h), what is decided is done
// to the fillers, and everything is told to a sink. `lull fill` and the drop-in gpu_mon are settings and sinks of this
// one session.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "act/guard.h"
#include "base/exit_status.h"
#include "fill/filling.h"
#include "fill/observations.h"
#include "fill/people.h"
#include "fill/settings.h"
#include "fill/sink.h"
#include "lease/folder.h"
#include "sense/opens.h"
#include "session/control.h"
#include "session/file_watch.h"
#include "session/machine.h"
#include "session/own_signals.h"
#include "session/sample_source.h"

namespace lull {

struct FillOptions {
  OpenWay best_way = OpenWay::cgroup_device;  // nothing better is tried
  bool use_cgroup = true;
  bool controlled = true;  // answers `lull fill --status`
  std::string file = {};   // the settings come from it: read again when it changes and on SIGHUP; empty: from nowhere
  std::function<Result<FillSettings>()> reload = nullptr;
  std::vector<SignalSource> signals = {};  // of the user's own
};

// What a session of filling needs of the machine; a test has samples of its own.
struct FillMachine {
  World& world;
  Children& children;
  Helpers& helpers;
  const InheritedSignals& signals;

  FillMachine(World& around, Children& ours, Helpers& commands, const InheritedSignals& inherited)
      : world(around), children(ours), helpers(commands), signals(inherited) {}
  FillMachine(Machine& machine) : FillMachine(machine, machine.children(), machine.helpers(), machine.signals()) {}
};

class FillSession {
 public:
  FillSession(FillSettings settings, FillOptions options, FillMachine machine, FillSink& sink);
  FillSession(const FillSession&) = delete;
  FillSession& operator=(const FillSession&) = delete;
  ~FillSession();

  SessionEnd run();

 private:
  struct Running;

  // ---- seeing ----
  void make_sampler();
  void make_own_signals();
  void tick();
  void make_scan();
  void make_people();
  void on_sample(const Snapshot& snapshot);
  void decide(Snapshot snapshot);
  void look_at_inventory(const Snapshot& snapshot);
  void watch_opens(const Inventory& inventory);
  void on_opens();
  void scan_openers();
  void scan_on_time();
  bool is_looking() const { return look_took_ > Duration::zero(); }
  Duration rest_after(Duration look) const;
  const Openers* openers_for(const Snapshot& snapshot) const;
  void watch_leases();
  void look_at_leases();
  void schedule_decision();
  bool owns(pid_t pid) const;
  std::optional<GpuProcess> foreign(pid_t pid) const;
  const GpuProcess* stranger(pid_t pid);
  std::vector<std::string> labels_of(std::size_t unit) const;

  // ---- doing ----
  void carry_out(const std::vector<FillOrder>& orders);
  void halt_at_once(const FillOrder& order);
  void carry_out_the_rest(const std::vector<FillOrder>& orders);
  void start(std::size_t unit);
  void on_paused(std::size_t unit);
  void gone(std::size_t unit, const GuardEnd& how);
  void park(std::size_t unit);
  void unpark(std::size_t unit);
  void run_command_of(std::size_t unit, const std::string& command,
                      std::function<void(Running&, const HelperResult&)> done);
  void end(std::size_t unit);
  void say(FillEvent::Kind kind, std::size_t unit, const Reason& why = {});
  void say_why_not();
  FillEvent event_of(FillEvent::Kind kind, std::size_t unit, const Reason& why) const;

  // ---- its own life (session.cc) ----
  void on_signal(const signalfd_siginfo& info);
  void begin_to_end(int signal);
  void end_if_nothing_is_left();
  void watch_file();
  void reload(bool asked);
  std::string status() const;

  FillSettings settings_;
  FillOptions options_;
  FillMachine machine_;
  Loop& loop_;
  FillSink& sink_;
  std::unique_ptr<SampleSource> sampler_;
  std::unique_ptr<Ticker> ticker_;
  std::unique_ptr<Observations> observations_;
  std::unique_ptr<OwnSignals> own_;  // where the rule looks at one
  Facts machine_facts_;
  std::unique_ptr<People> people_;
  std::unique_ptr<OpenerScan> scan_;
  std::unique_ptr<OpenWatch> opens_;
  std::string opens_of_;     // the files that it watches
  bool watch_anew_ = false;  // it told that events were lost
  // The GPUs that an open of each file may concern: a GPU and its MIG devices, all AMD GPUs (/dev/kfd).
  struct Behind {
    DeviceId gpu;
    DeviceId card;  // itself, or what a MIG device is a part of
  };
  std::vector<std::vector<Behind>> behind_;
  // Other processes that came just now: a program that starts opens every GPU.
  std::map<pid_t, GpuProcess> strangers_;
  Instant strangers_since_{};
  std::optional<Control> control_;
  std::shared_ptr<const Inventory> inventory_;
  std::set<std::string> warned_;

  std::unique_ptr<Filling> filling_;
  std::map<std::size_t, std::unique_ptr<Running>> running_;
  std::map<std::size_t, Reason::Kind> why_not_;  // of each unit that waits, as it was last told
  std::vector<GpuObservation> newest_;           // what was last seen
  std::vector<ActivePerson> active_;

  std::optional<Openers> openers_;
  Instant next_scan_{};
  Duration look_took_{};  // the look that is under way, so far
  Duration last_scan_took_{};
  bool looks_for_start_ = false;
  Instant rests_until_{};                // no scan that can wait is made before
  std::optional<Instant> wanted_since_;  // the first of the samples that want to know who has the files open
  Instant last_came_{};                  // when a process was last seen to come
  FolderState leases_;
  std::string no_leases_;
  Fd lease_events_;
  std::unique_ptr<FileWatch> file_watch_;
  std::string file_seen_;
  Timer decide_timer_{loop_};
  Timer last_timer_{loop_};
  Timer scan_timer_{loop_};
  bool ending_ = false;
  bool began_ = false;
  SessionEnd end_;
};

}  // namespace lull
