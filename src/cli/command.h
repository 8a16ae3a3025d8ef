#pragma once
// A command is one file in this folder and one row in the table of commands.cc.
// It gets its own arguments (argv[0] is the command's name), parses them, wires
// sense, decide and act together, and returns the exit status.

#include <span>
#include <string_view>

namespace lull {

// Exit statuses that are lull's own, as in timeout(1) and env(1).
inline constexpr int kExitUsage = 2;        // the command line was wrong
inline constexpr int kExitIdle = 124;       // ended for idleness, or a wait ran out
inline constexpr int kExitFailure = 125;    // lull itself could not do it
inline constexpr int kExitCannotRun = 126;  // the command is there but cannot be run
inline constexpr int kExitNotFound = 127;   // the command is not there

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(int argc, char** argv);
};

std::span<const Command> commands();  // `lull NAME …`
std::span<const Command> drop_ins();  // called by a predecessor's name

// Under which name complaints are made: a drop-in speaks under its own.
void speak_as(std::string_view name);
// One line to stderr, "lull: …"; returns `status`, so a command can return it.
int complain(std::string_view what, int status = kExitFailure);

}  // namespace lull
