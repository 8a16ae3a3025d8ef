#include "sim/session.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/fd.h"
#include "base/text.h"
#include "sim/dstate.h"
#include "sim/files_server.h"
#include "sim/folder.h"
#include "sim/machine.h"
#include "sim/plan.h"

namespace lull::sim {
namespace {

// What a person or a program may send us and mean the command.
constexpr std::array kForwarded = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

struct Child {
  pid_t pid = -1;
  int failure = 0;  // errno of the exec that failed
};

// Forks and runs `command`; `prepare` runs in the child before it becomes the command.
template <class Prepare>
Result<Child> spawn(const char* program, const std::vector<std::string>& command, const SessionSignals& signals,
                    Prepare prepare) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(errno, "pipe");
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const auto arguments = pointers(command);
  const pid_t pid = ::fork();
  if (pid < 0) return fail(errno, "fork");
  if (pid == 0) {
    prepare();
    signals.restore();
    ::execvp(program, arguments.data());
    const int failure = errno;
    (void)!::write(write_end.get(), &failure, sizeof failure);
    ::_exit(kExitFailure);
  }
  write_end.reset();
  Child child{pid, 0};
  ssize_t got = 0;
  do got = ::read(read_end.get(), &child.failure, sizeof child.failure);
  while (got < 0 && errno == EINTR);
  if (got == sizeof child.failure) ::waitpid(pid, nullptr, 0);
  return child;
}

void detach(int output) {
  ::setsid();  // a Ctrl-C is not meant for the scenario's processes
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC)); null)
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null.get(), fd);
  if (output >= 0) ::dup2(output, STDOUT_FILENO);
}

class Runner {
 public:
  Runner(const Session& session, const SessionSignals& signals) : session_(session), signals_(signals) {
    pending_ = session.processes;
    std::stable_sort(pending_.begin(), pending_.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() {
    for (const pid_t pid : running_) ::kill(pid, SIGKILL);
    for (const pid_t pid : running_) ::waitpid(pid, nullptr, 0);
  }

  SessionEnd run(pid_t command) {
    command_ = command;
    for (;;) {
      start_due();
      pollfd wait{signals_.fd(), POLLIN, 0};
      ::poll(&wait, 1, milliseconds_to_next());
      forward();
      if (auto end = reap()) return *std::move(end);
    }
  }

  void start_due() {
    while (next_ < pending_.size() && session_.start + pending_[next_].at <= clock_.now()) start(pending_[next_++]);
  }

  // Those that are there from the start are there before the command: waits until each says so.
  void start_first() {
    while (next_ < pending_.size() && pending_[next_].at <= Duration::zero()) {
      std::array<int, 2> ends{};
      if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
      const Fd ready(ends[0]);
      Fd theirs(ends[1]);
      ScheduledProcess process = pending_[next_++];
      process.command.emplace_back("--ready-fd=1");
      start(process, theirs.get());
      theirs.reset();
      constexpr int kAtMost = 5000;  // milliseconds; a load takes one or two
      pollfd wait{ready.get(), POLLIN, 0};
      ::poll(&wait, 1, kAtMost);  // the other end is closed: it is there, or gone
    }
  }

 private:
  void start(const ScheduledProcess& process, int output = -1) {
    const auto child = spawn("/proc/self/exe", process.command, signals_, [output] { detach(output); });
    if (child && child->failure == 0) running_.push_back(child->pid);
  }

  int milliseconds_to_next() const {
    if (next_ >= pending_.size()) return -1;
    const auto left = session_.start + pending_[next_].at - clock_.now();
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 60'000));
  }

  void forward() const {
    signalfd_siginfo info{};
    while (::read(signals_.fd(), &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) continue;
      // The terminal's own signals reach the whole group: the command has them already. But when the terminal itself
      // goes, its session leader alone is told.
      const bool hangup = number == SIGHUP && ::getsid(0) == ::getpid();
      if (info.ssi_code == SI_KERNEL && !hangup) continue;
      ::kill(command_, number);
      if (hangup) ::kill(command_, SIGCONT);  // who is stopped would not take it
    }
  }

  std::optional<SessionEnd> reap() {
    std::optional<SessionEnd> ended;
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == command_) ended = WIFSIGNALED(status) ? ended_by(WTERMSIG(status)) : SessionEnd{WEXITSTATUS(status)};
      std::erase(running_, pid);
    }
    return ended;
  }

  const Session& session_;
  const SessionSignals& signals_;
  SystemClock clock_;
  std::vector<ScheduledProcess> pending_;
  std::size_t next_ = 0;
  std::vector<pid_t> running_;
  pid_t command_ = -1;
};

std::vector<std::string> shell() {
  const char* wanted = std::getenv("SHELL");
  return {wanted != nullptr && ::access(wanted, X_OK) == 0 ? wanted : "/bin/sh"};
}

void apply(const std::vector<std::pair<std::string, std::string>>& environment) {
  for (const auto& [name, value] : environment) {
    if (value.empty())
      ::unsetenv(name.c_str());
    else
      ::setenv(name.c_str(), value.c_str(), 1);
  }
}

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

// Leases are the simulation's own, unless the user chose a folder (and not an outer simulation did).
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

// Notes when loads die, so that the energy they used is right even if no client reads it.
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

SessionSignals::SessionSignals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : kForwarded) sigaddset(&wanted, number);
  sigaddset(&wanted, SIGCHLD);
  // A SIGCHLD that is ignored (some daemons do) would reap for us.
  std::signal(SIGCHLD, SIG_DFL);
  ::sigprocmask(SIG_BLOCK, &wanted, &old_);
  fd_ = Fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
}

void SessionSignals::restore() const { ::sigprocmask(SIG_SETMASK, &old_, nullptr); }

Result<SessionEnd> run_session(const Session& session, const SessionSignals& signals) {
  apply(session.environment);
  const auto command = session.command.empty() ? shell() : session.command;
  Runner runner(session, signals);
  runner.start_first();
  const Child child = TRY(spawn(command[0].c_str(), command, signals, [] {}));
  if (child.failure != 0)
    return SessionEnd{.status = child.failure == ENOENT ? kExitNotFound : kExitCannotRun,
                      .complaint = fmt::format("{}: {}", printable(command[0]), std::strerror(child.failure))};
  return runner.run(child.pid);
}

// ---- a whole simulation

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
