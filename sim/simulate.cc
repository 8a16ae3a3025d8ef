#include "sim/simulate.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/fd.h"
#include "sim/dstate.h"
#include "sim/files_server.h"
#include "sim/folder.h"
#include "sim/machine.h"
#include "sim/plan.h"
#include "sim/session.h"

namespace lull::sim {
namespace {

namespace fs = std::filesystem;

// The folder with the simulated libnvidia-ml.so.1: beside us in a build tree, under lib where we are installed.
Result<std::string> library_folder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return fail(error.value(), "finding where lull is installed");
  const fs::path here = self.parent_path();
  std::vector<fs::path> places = {here / "sim", here / "../lib/lull/sim", here / "../lib64/lull/sim"};
  for (fs::directory_iterator it(here / "../lib", error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().find("-linux-") != std::string::npos) places.push_back(it->path() / "lull/sim");
  for (const fs::path& place : places)
    if (fs::exists(place / "libnvidia-ml.so.1", error)) return fs::canonical(place, error).string();
  return fail(fmt::format("the simulated libnvidia-ml.so.1 is neither in {} nor in {}: is lull installed whole?",
                          places[0].string(), fs::weakly_canonical(places[1], error).string()));
}

// NAME's value with `first` in front, unless it is in front already.
std::string prepended(const char* name, const std::string& first) {
  const char* old = std::getenv(name);
  if (old == nullptr || *old == '\0') return first;
  const std::string_view rest = old;
  return rest == first || rest.starts_with(first + ":") ? std::string(rest) : first + ":" + std::string(rest);
}

// Leases are the simulation's own, unless somebody chose a folder (and not an outer simulation did).
std::string leases_folder(const Folder& folder) {
  const char* chosen = std::getenv("LULL_LEASES");
  const char* outer = std::getenv("LULL_SIM");
  if (chosen == nullptr || *chosen == '\0') return folder.leases();
  if (outer != nullptr && *outer != '\0' && std::string_view(chosen).starts_with(std::string(outer) + "/"))
    return folder.leases();
  return chosen;
}

std::vector<std::string> load_command(const ProcessSpec& process) {
  std::vector<std::string> command = {"lull", "sim", "load", "--gpu"};
  std::vector<std::string> gpus;
  for (const std::size_t gpu : process.gpus)
    gpus.push_back(process.mig ? fmt::format("{}:{}", gpu, *process.mig) : fmt::format("{}", gpu));
  command.push_back(fmt::format("{}", fmt::join(gpus, ",")));
  if (process.kind == kGraphics) command.emplace_back("--graphics");
  if (process.kind == (kCompute | kGraphics)) command.emplace_back("--both");
  if (process.kind == kMps) command.emplace_back("--mps");
  if (!process.name.empty()) command.insert(command.end(), {"--as", process.name});
  for (std::size_t i = 0; i < process.phases.size(); ++i) {
    const PhaseSpec& phase = process.phases[i];
    const double util = phase.util.value_or(90);
    if (i == 0 && phase.util) command.push_back(fmt::format("--util={}", util));
    if (i == 0 && phase.memory) command.push_back(fmt::format("--mem={}B", *phase.memory));
    if (i > 0) command.emplace_back("--then");
    if (i > 0 && phase.util) command.push_back(fmt::format("util={}", util));
    if (i > 0 && phase.memory) command.push_back(fmt::format("mem={}B", *phase.memory));
    for (unsigned k = 0; k < kCounters; ++k)
      if (phase.counters[k])
        command.push_back(fmt::format("{}{}={}", i == 0 ? "--" : "", counter_name(k), *phase.counters[k]));
    if (phase.lasting) command.push_back(fmt::format("--for={}ns", phase.lasting->count()));
  }
  return command;
}

// Notes when loads die, so that the energy they used is right even if nobody looks.
class DeathWatch {
 public:
  explicit DeathWatch(const std::string& folder) : stop_(::eventfd(0, EFD_CLOEXEC)) {
    thread_ = std::thread([folder, fd = stop_.get()] {
      sigset_t all;
      sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the main thread's
      if (auto writer = Writer::open(folder)) (void)writer->watch_deaths(fd);
    });
  }
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;
  ~DeathWatch() {
    const std::uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }

 private:
  Fd stop_;
  std::thread thread_;
};

Session make_session(const std::vector<std::string>& command, const Scenario& scenario, const Folder& folder,
                     const std::string& library, const State& state) {
  Session session;
  session.command = command;
  session.environment = {
      {"LD_LIBRARY_PATH", prepended("LD_LIBRARY_PATH", library)},
      {"LULL_LEASES", leases_folder(folder)},
      {"LULL_SIM", folder.path()},
      {"LULL_DEV", folder.dev()},
      {"LULL_NVML", ""},  // would lead lull past the simulation
  };
  if (!scenario.host.empty()) session.environment.emplace_back("LULL_HOST", scenario.host);
  session.start = Instant(Duration(state.start_boot_ns));
  for (const ProcessSpec& process : scenario.processes)
    if (!process.pid)
      session.processes.push_back(
          {Duration(boot_time(state, process.at.count()) - state.start_boot_ns), load_command(process)});
  return session;
}

// Plain files are faster to read, and show neither an errno nor a hang.
bool plain_files() { return environment_variable("LULL_SIM_FILES") == "plain"; }

Result<> serve_files_of(const std::string& folder, const Plan& plan) {
  const bool any = std::ranges::any_of(plan.gpus, [](const auto& gpu) { return gpu.gpu.vendor != Vendor::nvidia; });
  return any ? serve_files(folder, ::getpid()) : Result<>();
}

std::size_t nvml_gpus(const Plan& plan) {
  return static_cast<std::size_t>(
      std::ranges::count_if(plan.gpus, [](const GpuPlan& gpu) { return in_nvml(gpu.gpu.vendor); }));
}

}  // namespace

Result<SessionEnd> simulate(const Scenario& scenario, const std::vector<std::string>& command,
                            const std::function<void()>& ready) {
  const std::string library = TRY(library_folder());
  const Plan plan = TRY(make_plan(scenario));
  const SessionSignals signals;  // from here on there is something to tidy up
  const Folder folder = TRY(Folder::create(folder_base(), nvml_gpus(plan)));
  TRY(create_state(folder.path(), plan));
  TRY(furnish_machine(folder.path(), plan));
  if (!plain_files()) (void)serve_files_of(folder.path(), plan);  // without FUSE they are plain
  if (std::ranges::any_of(plan.faults, [](const auto& fault) { return fault.kind == FaultKind::dstate; }))
    TRY(serve_dstate(folder.path(), ::getpid()));
  Writer writer = TRY(Writer::open(folder.path()));
  const Session session = make_session(command, scenario, folder, library, writer.state());
  ready();
  const DeathWatch deaths(folder.path());
  auto end = run_session(session, signals);
  writer.close_simulation();
  return end;
}

}  // namespace lull::sim
