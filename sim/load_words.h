#pragma once
// The words of `lull sim load`, read into what it is to play.

#include <string>

#include "base/result.h"
#include "sim/args.h"
#include "sim/load.h"

namespace lull::sim {

struct LoadWords {
  std::string gpus;   // empty: not said
  std::string title;  // the command line that it shows; empty: its own
  LoadSpec load;
};
Result<LoadWords> parse_load(Args& args);

// Shows `title` as our command line: ps and nvidia-smi read it from our own memory. `argv` is main's, or its end.
void show_as(const std::string& title, int argc, char** argv);

}  // namespace lull::sim
