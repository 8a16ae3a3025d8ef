// Whatever bytes a scenario file holds, parsing ends with a scenario or one line of complaint, and a
// scenario that was accepted can be laid out. The corpus is replayed by sim/scenario_test.cc.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "sim/plan.h"
#include "sim/scenario.h"
#include "sim/trace_csv.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lull;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // The same bytes serve as the trace that the scenario may name.
  const auto parsed = sim::parse_scenario(
      text, "fuzz.toml", [text](const std::string&) -> Result<std::string> { return std::string(text); });
  if (!parsed && parsed.error().message().find('\n') != std::string::npos) std::abort();
  if (parsed) (void)sim::make_plan(*parsed);
  (void)sim::read_trace_csv(text, "fuzz.csv", 0);
  return 0;
}
