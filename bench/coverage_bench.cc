// How often a healthy card is called idle, and an idle one is not found: simulated
// time, random cards, rings, intervals, rules and pauses of the sensor. Prints one line
// a figure, name and number, for figure_coverage.py:
//
//   coverage_bench [CASES [SEED]]
#include <cstdio>
#include <cstdlib>

#include "sense/nvml/burst_card_test.h"

int main(int argc, char** argv) {
  const auto number = [&](int at, unsigned otherwise) {
    return argc > at ? static_cast<unsigned>(std::strtoul(argv[at], nullptr, 10)) : otherwise;
  };
  const unsigned cases = number(1, 10'000);
  const unsigned seed = number(2, 1);
  const lull::burst::Count working = lull::burst::count(cases, true, seed);
  const lull::burst::Count idle = lull::burst::count(cases, false, seed + 1);
  std::printf("cases %u\nfalse_idles %u\nmissed_idles %u\n", cases, working.wrong, idle.wrong);
  std::printf("unknown_working %.6f\nunknown_idle %.6f\n", working.unknown, idle.unknown);
  for (const lull::burst::Count* one : {&working, &idle})
    if (one->wrong > 0) std::fprintf(stderr, "first wrong %s\n", one->first.c_str());
  return 0;
}
