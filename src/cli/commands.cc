#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <vector>

#include "base/fd.h"
#include "base/text.h"
#include "cli/command.h"
#include "sense/sensor.h"
#include "session/end_program.h"
#include "session/machine.h"
#include "session/own_signals.h"

namespace lull {

int status_command(int argc, char** argv);
int run_command(int argc, char** argv);
int watch_command(int argc, char** argv);
int pick_command(int argc, char** argv);
int fill_command(int argc, char** argv);
int leases_command(int argc, char** argv);
int release_command(int argc, char** argv);
int record_command(int argc, char** argv);
int replay_command(int argc, char** argv);
int report_command(int argc, char** argv);
int check_command(int argc, char** argv);
int jobs_command(int argc, char** argv);
int keep_command(int argc, char** argv);
int config_command(int argc, char** argv);
int park_command(int argc, char** argv);
int unpark_command(int argc, char** argv);
int sim_command(int argc, char** argv);
int slurm_command(int argc, char** argv);
int serve_command(int argc, char** argv);
int gpu_idle_timeout_command(int argc, char** argv);
int gpu_sentinel_command(int argc, char** argv);
int gpu_mon_command(int argc, char** argv);
int gpuselect_command(int argc, char** argv);

namespace {

// In the order in which people meet them.
constexpr std::array kCommands = {
    Command{"status", "the GPUs now: table, --json, --csv, --watch", status_command},
    Command{"run", "run a command, end it when its GPUs sit idle", run_command},
    Command{"watch", "watch GPUs, act when a rule fires: shutdown, kill, notify, …", watch_command},
    Command{"jobs", "the jobs that have GPUs: idle for, next step, kept until", jobs_command},
    Command{"keep", "ask a `lull watch --per` for more time for a job", keep_command},
    Command{"pick", "choose idle GPUs, hold them, run a command on them", pick_command},
    Command{"fill", "run low-priority work on idle GPUs, yield to anyone", fill_command},
    Command{"park", "move a job out of its GPUs (cuda-checkpoint)", park_command},
    Command{"unpark", "bring a parked job back", unpark_command},
    Command{"leases", "who holds which GPU, and who waits", leases_command},
    Command{"release", "give a leased GPU back", release_command},
    Command{"record", "write what the GPUs show as a trace", record_command},
    Command{"replay", "what a rule would have done to recorded telemetry", replay_command},
    Command{"report", "how the GPUs were used, by user, command and host", report_command},
    Command{"check", "explain a rule, and what this machine can read of it", check_command},
    Command{"config", "the settings in force, and where each came from", config_command},
    Command{"serve", "page, Prometheus metrics and JSON over HTTP", serve_command},
    Command{"slurm", "idle GPUs of Slurm jobs: prolog, epilog, ask, act, check", slurm_command},
    Command{"sim", "simulated GPUs for any program that speaks NVML", sim_command},
};
constexpr std::array kDropIns = {
    Command{"gpu_idle_timeout", "run a command, end it when its GPUs sit idle", gpu_idle_timeout_command},
    Command{"gpu_sentinel", "arm when the GPUs are busy, act when they fall idle", gpu_sentinel_command},
    Command{"gpu_mon", "run programs on GPUs that nobody uses", gpu_mon_command},
    Command{"gpuselect", "choose idle GPUs", gpuselect_command},
};

int end_command(int argc, char** argv) {
  return ended(end_program(argc, argv, [](const std::string& text) { (void)complain(text); }));
}

int signal_command(int argc, char** argv) {
  const auto read = signal_program(argc, argv);
  return read ? 0 : complain(read.error().message(), kExitUsage);
}

constexpr std::array kInsideCommands = {
    Command{kSensorName, "asks the driver", sensor_program},
    Command{kEndName, "ends who started it", end_command},
    Command{kSignalName, "reads a signal of the user's own", signal_command},
};

std::string_view program_name = "lull";
int died_of = 0;

}  // namespace

std::span<const Command> commands() { return kCommands; }
std::span<const Command> drop_ins() { return kDropIns; }
std::span<const Command> inside() { return kInsideCommands; }

std::optional<int> run_subcommand(std::span<const Command> table, int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  for (const Command& command : table)
    if (command.name == word) return command.run(argc - 1, argv + 1);
  return std::nullopt;
}

std::string help_of_subcommands(std::string_view name, std::span<const Command> table) {
  std::string text;
  for (const Command& command : table) text += fmt::format("  lull {} {:<7} {}\n", name, command.name, command.summary);
  return text;
}

std::string did_you_mean(std::string_view word, std::span<const Command> table) {
  std::vector<std::string_view> names;
  for (const Command& command : table) names.push_back(command.name);
  return did_you_mean(word, names);
}

void set_program_name(std::string_view name) { program_name = name; }

void ignore_sigpipe() { std::signal(SIGPIPE, SIG_IGN); }

int complain(std::string_view what, int status) {
  // A closed output does not change the exit status: fmt::print would throw.
  (void)write_all(STDERR_FILENO, fmt::format("{}: {}\n", program_name, what));
  return status;
}

int ended(const SessionEnd& session) {
  died_of = session.signal;
  return session.complaint.empty() ? session.status : complain(session.complaint, session.status);
}

int ending_signal() { return died_of; }

int on_machine(const Clock& clock, const std::function<SessionEnd(Machine&)>& session, int failed) {
  const auto machine = Machine::open(clock);
  return machine ? ended(session(**machine)) : complain(machine.error().message(), failed);
}

}  // namespace lull
