// `lull keep`: asks the watchers for more time for a GPU or a job, or Slurm if there is no watcher here.

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "act/spawn.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "session/control.h"
#include "session/each_session.h"
#include "session/machine.h"
#include "slurm/keep_comment.h"

namespace lull {
namespace {

constexpr const char* kKeepAbout =
    "Asks every `lull watch --per` on this machine to leave a GPU or job alone for a time. Its owner and root\n"
    "may ask. A watcher gives at most its --keep-at-most, until the GPU or job works again. If nobody watches a\n"
    "Slurm job here, its Comment is changed: its watcher reads that before it acts.\n";
constexpr const char* kKeepMore =
    "A JOB is a PID of its processes, slurm:ID, a container's or a lease's id; a GPU is its number or UUID.\n"
    "Without one it is about every GPU and job that is yours.\n\n"
    "Exit status: 0 more time was given; 1 none was, or it may be too late; 2 the command line was wrong.\n\n"
    "Examples:\n"
    "  lull keep 4h\n"
    "  lull keep 4711 4h\n"
    "  lull keep gpu3 30m\n"
    "  lull keep slurm:22 4h\n";

// From a login node: Slurm says whether the caller may.
SessionEnd keep_by_comment(Machine& machine, std::uint64_t job, Duration time) {
  Loop& loop = machine.loop();
  SessionEnd end{1};
  if (const auto ready = machine.stop_on_signals(end); !ready) return {kExitFailure, ready.error().message()};
  slurm::KeepByComment keeping(
      machine.runner(), job, machine.clock().wall() + time, [&](const slurm::KeepByComment::Outcome& outcome) {
        end = outcome.kept ? SessionEnd{} : SessionEnd{1, "keep: " + outcome.text};
        if (outcome.kept)
          (void)write_all(STDOUT_FILENO,
                          fmt::format("Slurm: kept: {} by its Comment; its watcher gives no more than its "
                                      "--keep-at-most\n",
                                      outcome.text));
        loop.stop();
      });
  keeping.start();
  return machine.run(end);
}

}  // namespace

int keep_command(int argc, char** argv) {
  std::vector<std::string> words;
  CommandLine line(kKeepAbout, "lull keep");
  line.usage("[JOB|GPU] TIME");
  line.arguments("TIME", words, "how long from now on, such as 4h; before it a JOB or GPU (default: all of mine)")
      .required();
  line.footer(kKeepMore);
  if (const auto status = line.parse(argc, argv)) return *status;
  if (words.size() > 2) return complain("keep: '" + printable(words[2]) + "' is one argument too many", kExitUsage);
  const auto time = parse_duration(words.back());
  if (!time) return complain("keep: " + time.error().message(), kExitUsage);
  if (*time <= Duration::zero()) return complain("keep: more than 0 would be right, such as 4h", kExitUsage);
  const std::string target = words.size() == 2 ? words[0] : "";
  if (target.size() > 256) return complain("keep: this is not a GPU or a job", kExitUsage);
  bool kept = false;
  bool watched = false;
  const std::vector<Reply> answers = ask_all(ControlOf::keep, keep_question(target, *time));
  for (const Reply& answer : answers) {
    fmt::print("lull watch {}: {}\n", answer.watcher, answer.line);
    kept |= answer.line.starts_with("kept");
    watched |= answer.line.starts_with("refused") || answer.line.starts_with("not certain");
  }
  if (const auto job = target.starts_with("slurm:") ? slurm::parse_job_number(target) : std::nullopt;
      job && !kept && !watched) {
    if (is_executable("squeue") && is_executable("scontrol"))
      return on_machine(SystemClock(), [&](Machine& machine) { return keep_by_comment(machine, *job, *time); });
    if (answers.empty())
      return complain(
          fmt::format("keep: nobody watches {} here, and Slurm's squeue and scontrol are not in PATH", target), 1);
  }
  if (answers.empty()) return complain("keep: nobody watches with `lull watch --per` here", 1);
  return kept ? 0 : 1;
}

}  // namespace lull
