#include "sim/load_options.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

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

Result<> parse_counter(unsigned counter, std::string_view text, PhaseSpec& phase) {
  const double percent = TRY(parse_value(value_info(kCounterMetrics[counter]), text));
  if (!(percent >= 0 && percent <= 100))
    return fail(fmt::format("{0} is a percentage, such as {0}=30", counter_name(counter)));
  phase.counters[counter] = percent;
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
  for (unsigned i = 0; i < kCounters; ++i)
    if (name == counter_name(i)) return parse_counter(i, value, phase);
  constexpr std::string_view kKnown[] = {"util", "mem", "sm", "tensor", "dram"};
  const std::string hint = did_you_mean(name, kKnown);
  return fail(fmt::format("a phase has no '{}'{}", printable(name), hint.empty() ? ": util=0 and mem=2GiB are" : hint));
}

}  // namespace

Result<> add_phase(const PhaseOptions& words, LoadSpec& load) {
  const bool first = load.phases.empty();
  if (first && !words.changes.empty())
    return fail(fmt::format("'{}' is one argument too many", printable(words.changes.front())));
  if (!first && !load.phases.back().lasting) return fail("the phase before --then never ends: it needs a --for");
  if (!first && words.changes.empty()) return fail("--then needs what changes, such as util=0");
  if (load.phases.size() >= kMaxSteps) return fail(fmt::format("more phases than the {} there is room for", kMaxSteps));
  PhaseSpec phase;
  for (const std::string& change : words.changes) TRY(parse_then(change, phase));
  if (!words.util.empty()) TRY(parse_util(words.util, phase));
  for (unsigned i = 0; i < kCounters; ++i)
    if (!words.counters[i].empty()) TRY(parse_counter(i, words.counters[i], phase));
  if (!words.memory.empty()) {
    auto size = parse_size(words.memory);
    if (!size) return std::unexpected(std::move(size).error().during("--mem"));
    phase.memory = *size;
  }
  if (!words.lasting.empty()) phase.lasting = TRY(duration_option("--for", words.lasting));
  load.phases.push_back(phase);
  return {};
}

void be_mps_server(LoadSpec& load) {
  load.kind = kCompute;
  PhaseSpec& phase = load.phases.front();
  phase.util = phase.util.value_or(0);
  phase.memory = phase.memory.value_or(kMpsServerMemory);
}

// ps and nvidia-smi read our arguments from our own memory: say there what we play.
void show_as(const std::string& title, int argc, char** argv) {
  if (title.empty()) return;
  const std::string_view first = std::string_view(title).substr(0, title.find(' '));
  ::prctl(PR_SET_NAME, std::string(first.substr(first.find_last_of('/') + 1)).c_str());
  char* begin = program_invocation_name;                     // the first word of all: argv[0] here is the command's
  char* end = argv[argc - 1] + std::strlen(argv[argc - 1]);  // its last byte is not zero: the kernel shows one text
  const auto size = static_cast<std::size_t>(end - begin);
  const std::string text = title.substr(0, size);
  std::memset(begin, 0, size);
  std::ranges::copy(text, begin);
  *end = text.size() < size ? '.' : '\0';
}

}  // namespace lull::sim
