#pragma once
// The command line of gpuselect, as Python's argparse reads it: long options may be
// shortened, values may follow or be joined, and everything from the first word
// that is no option on is the command. What it means for lull is the caller's to say.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull {

struct GpuselectOptions {
  unsigned count = 1;
  std::vector<unsigned> devices;
  std::optional<std::string> name;
  unsigned util = 0;
  unsigned mem_util = 0;
  unsigned processes = 0;
  bool quiet = false;
  bool debug = false;
  bool help = false;
  std::vector<std::string> command;
};

// The error's errno_value is the exit status: 2 where the words cannot be read, 1
// where they make no sense together.
Result<GpuselectOptions> parse_gpuselect(std::span<const std::string> words);

std::string_view gpuselect_help();

}  // namespace lull
