#pragma once
// The command line of gpuselect, as Python's argparse reads it: long options may be
// shortened, values may follow or be joined, and everything from the first word
// that is not an option on is the command. What it means for lull is the caller's to say.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "lease/picker.h"

namespace lull {

struct GpuselectOptions {
  unsigned count = 1;  // at least as many as devices are named
  unsigned asked = 1;  // as it was given
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

std::string_view gpuselect_usage();
std::string_view gpuselect_help();

// "count=1,devices=[0, 1],name=None,…": what -D tells first.
std::string gpuselect_asked(const GpuselectOptions& options);
// What it says where more devices are named than the count; empty: nothing.
std::string gpuselect_warning(const GpuselectOptions& options);
// As Python shows a string: 'train.py'
std::string python_repr(const std::string& word);

// "Running: ['python3', 'train.py']", as it is printed before the command.
std::string gpuselect_running(std::span<const std::string> command);

// What the options of gpuselect mean to our picker, and what came of it in the predecessor's words.
PickSettings gpuselect_settings(const GpuselectOptions& options);
// What -D tells of the GPUs, of the filters, and of what we have against a GPU that they let through.
std::vector<std::string> gpuselect_debug(const Picker& picker, const GpuselectOptions& options);
// Whole lines.
std::string gpuselect_refusal(const Refusal& refusal, const GpuselectOptions& options);

}  // namespace lull
