#include "sim/load_words.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/option_value.h"
#include "base/text.h"
#include "base/units.h"
#include "sim/values.h"

namespace lull::sim {
namespace {

Result<> parse_util(std::string_view text, PhaseSpec& phase) {
  const double util = TRY(parse_value(value_info(Metric::util), text));
  if (!(util >= 0 && util <= 100)) return fail("util is a percentage, such as util=90");
  phase.util = util;
  return {};
}

Result<> parse_then(std::string_view word, PhaseSpec& phase) {
  const auto equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
  if (name == "util") return parse_util(value, phase);
  if (name == "mem" || name == "mem_used") {
    phase.memory = TRY(parse_size(value));
    return {};
  }
  constexpr std::string_view kKnown[] = {"util", "mem"};
  const std::string hint = did_you_mean(name, kKnown);
  return fail(fmt::format("a phase has no '{}'{}", printable(name), hint.empty() ? ": util=0 and mem=2GiB are" : hint));
}

Result<> begin_phase(Args& args, LoadWords& options) {
  if (!options.load.phases.back().lasting) return fail("the phase before --then never ends: it needs a --for");
  if (options.load.phases.size() >= kMaxSteps)
    return fail(fmt::format("more phases than the {} there is room for", kMaxSteps));
  options.load.phases.emplace_back();
  bool any = false;
  while (args.more() && !args.at_option()) {
    TRY(parse_then(args.take(), options.load.phases.back()));
    any = true;
  }
  if (!any) return fail("--then needs what changes, such as util=0");
  return {};
}

}  // namespace

Result<LoadWords> parse_load(Args& args) {
  LoadWords options;
  while (args.more()) {
    if (const auto gpus = args.option("--gpu", "a GPU, such as 0")) {
      options.gpus = TRY(*gpus);
    } else if (const auto many = args.option("--gpus", "GPUs, such as 0,1")) {
      options.gpus = TRY(*many);
    } else if (const auto util = args.option("--util", "a percentage, such as 90")) {
      const std::string_view text = TRY(*util);
      TRY(parse_util(text, options.load.phases.back()));
    } else if (const auto memory = args.option("--mem", "a size, such as 8GiB")) {
      const std::string_view text = TRY(*memory);
      auto size = parse_size(text);
      if (!size) return std::unexpected(std::move(size).error().during("--mem"));
      options.load.phases.back().memory = *size;
    } else if (const auto time = args.option("--for", "a time, such as 30s")) {
      const std::string_view text = TRY(*time);
      options.load.phases.back().lasting = TRY(duration_option("--for", text));
    } else if (args.flag("--then")) {
      TRY(begin_phase(args, options));
    } else if (args.flag("--graphics")) {
      options.load.kind = kGraphics;
    } else if (args.flag("--both")) {
      options.load.kind = kCompute | kGraphics;
    } else if (args.flag("--mps")) {
      options.load.kind = kMps;
    } else if (args.flag("--mps-server")) {
      options.load.kind = kCompute;
      options.title = kMpsServerName;
      PhaseSpec& phase = options.load.phases.back();
      phase.util = phase.util.value_or(0);
      phase.memory = phase.memory.value_or(kMpsServerMemory);
    } else if (const auto title = args.option("--as", "a command line, such as 'python train.py'")) {
      options.title = TRY(*title);
    } else if (const auto ready = args.option("--ready-fd", "a file descriptor")) {
      options.load.ready_fd = static_cast<int>(to_unsigned(TRY(*ready)).value_or(0));
    } else if (args.at_option()) {
      return fail(unknown_option(
          args.peek(), "sim load",
          {"--gpu", "--util", "--mem", "--for", "--then", "--graphics", "--both", "--mps", "--mps-server", "--as"}));
    } else {
      return fail(fmt::format("'{}' is one argument too many", printable(args.peek())));
    }
  }
  return options;
}

// ps and nvidia-smi read our arguments from our own memory: say there what we play.
void show_as(const std::string& title, int argc, char** argv) {
  if (title.empty()) return;
  const std::string_view first = std::string_view(title).substr(0, title.find(' '));
  ::prctl(PR_SET_NAME, std::string(first.substr(first.find_last_of('/') + 1)).c_str());
  char* begin = program_invocation_name;                     // the first word of all: argv[0] here is the command's
  char* end = argv[argc - 1] + std::strlen(argv[argc - 1]);  // its last byte is not zero: the kernel shows one text
  const auto room = static_cast<std::size_t>(end - begin);
  const std::string text = title.substr(0, room);
  std::memset(begin, 0, room);
  std::ranges::copy(text, begin);
  *end = text.size() < room ? '.' : '\0';
}

}  // namespace lull::sim
