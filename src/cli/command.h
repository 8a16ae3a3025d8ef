#pragma once
// A command is one file in this folder and one row in the table of commands.cc.
// It gets its own arguments (argv[0] is the command's name), parses them, runs
// the session that they ask for, and returns the exit status.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/exit_status.h"

namespace lull {

class Machine;

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(int argc, char** argv);
};

std::span<const Command> commands();  // `lull NAME …`
std::span<const Command> drop_ins();  // called by a predecessor's name
std::span<const Command> inside();    // started only by lull's own library (Python)

// Of a command that has commands of its own, such as `lull sim set`. Nothing: its first word is none of them.
std::optional<int> run_subcommand(std::span<const Command> table, int argc, char** argv);
// "  lull sim set     change …", a line each.
std::string help_of_subcommands(std::string_view name, std::span<const Command> table);
// "; did you mean …", or nothing.
std::string did_you_mean(std::string_view word, std::span<const Command> table);

// For the completions of shells, in no list.
int complete_command(int argc, char** argv);

std::string_view version();  // of this build, as `lull --version` says it

// The name before each complaint; a drop-in has its own.
void set_program_name(std::string_view name);
// One line to stderr, "lull: …"; returns `status`, so a command can return it.
int complain(std::string_view what, int status = kExitFailure);
// Its status; why it could not be done is said.
int ended(const SessionEnd& session);
// The signal that ended the session or its job; 0: none. main() dies of it.
int ending_signal();
// Opens the machine and runs a session on it; `failed` where it cannot be opened.
int on_machine(const Clock& clock, const std::function<SessionEnd(Machine&)>& session, int failed = kExitFailure);
// As Python does: a closed output does not change the exit status. A session does so itself.
void ignore_sigpipe();
// Shows a list once, which needs no loop and is most of what people wait for; or live, until it is left.
template <class Session>
int show_list(Session& session, bool live) {
  ignore_sigpipe();
  if (!live) return ended(session.once());
  return on_machine(SystemClock(), [&](Machine& machine) { return session.watch(machine); });
}

}  // namespace lull
