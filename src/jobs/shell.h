#pragma once
// Whether a process is a shell that a person types into, which makes what it starts jobs of their own, or a program
// that happens to lead a session with a terminal (`tmux new -d ./train.sh`, `ssh -t host ./train.sh`, `script -c`),
// which makes what it starts its workers. In doubt it is no shell: a job that is too big is idle only where all of it
// is.

#include <span>
#include <string_view>

#include "base/fd.h"
#include "base/process.h"

namespace lull {

// By the arguments with which a shell was started: it was given neither a script nor a command.
bool asks_for_commands(std::span<const std::string_view> arguments);

// `child` is a job that was typed into `shell`: a known shell that leads a session with a terminal, keeps its jobs in
// process groups of their own, and was given nothing to run.
bool is_typed_into(const ProcessEntry& shell, const ProcessEntry& child, const Root& root);

}  // namespace lull
