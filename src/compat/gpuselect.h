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
  std::vector<long> devices;
  std::optional<std::string> name;
  unsigned util = 0;
  std::optional<unsigned> mem_util;  // where it was given: its word on memory counts
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

// "Running: ['python3', 'train.py']", as it is printed before the command.
std::string gpuselect_running(std::span<const std::string> command);

}  // namespace lull
